"""Every verdict of the linter has a town that passes it and a town that fails it, and its figures are sums one can do by hand."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pytest

from linter_agreement import live_a_week
from scenario_towns import load, redraw, tree
from townlet.config.loader import load_config, shipped_configs
from townlet.scenarios.lint import Offer, Verdict, day_of, lint

CORE = ("bed", "bench", "cafe_counter", "fridge", "shower", "stove", "table")


def offers(*kinds: str) -> tuple[Offer, ...]:
    """One object of each kind, with stock to spare."""
    specs = load_config("town_day").affordances.specs
    return tuple(Offer(spec, len({*kinds} & {*spec.objects}), inf) for spec in specs if {*kinds} & {*spec.objects})


def verdict(folder: Path, town: dict[str, Any], name: str, days: float | None = None) -> Verdict:
    report = lint(load(folder, town), days=days)
    return next(one for one in report.verdicts if one.name == name)


def test_a_day_by_hand() -> None:
    """Hunger 0.001 × 1440 / 0.5 = 2.88 meals of 20 ticks, 1.44 times 25 ticks of cooking; hygiene 0.0007 × 1440 / 0.5 = 2.016
    showers of 20; sleep s: 0.0025 s = 0.0008 (1440 − s) + 1.44 × 0.03 + 2.016 × 0.02, so s = 374.3; coins 1.44 × 0.15 +
    2.016 × 0.05 = 0.3168."""
    day = day_of(load_config("town_day"), offers(*CORE))
    assert day.uses["eat_meal"] == pytest.approx(2.88)
    assert day.ticks["eat_meal"] == pytest.approx(57.6)
    assert day.ticks["cook_meal"] == pytest.approx(36.0)
    assert day.ticks["use_shower"] == pytest.approx(40.32)
    assert day.ticks["rest_sleep"] == pytest.approx((1.152 + 0.0432 + 0.04032) / 0.0033)
    assert day.coins == pytest.approx(0.3168)


def test_without_a_stove_meals_are_bought() -> None:
    day = day_of(load_config("town_day"), offers("cafe_counter"))
    assert day.uses == {"buy_meal": pytest.approx(2.88)}
    assert day.coins == pytest.approx(2.88 * 0.4)


@pytest.mark.parametrize("name", [name for name in shipped_configs("scenarios") if name != "metropolis"])
def test_every_shipped_scenario_passes(name: str) -> None:
    report = lint(load_config(name))
    assert [one for one in report.verdicts if not one.ok] == []
    assert " ".join(one.name for one in report.verdicts) == "tiles reachability doors stock time money capacity starvation memory"


def test_the_small_town_lasts_a_week(tmp_path: Path) -> None:
    assert lint(load(tmp_path, tree()), days=7).ok


def crowd(town: dict[str, Any], count: int) -> dict[str, Any]:
    """The same town with one bed and many residents."""
    town["scenario"]["residents"] = [{"id": f"r{i}", "home": "house", "job": "clerk"} for i in range(count)]
    return town


def test_tiles_fail_when_a_home_has_fewer_beds_than_residents(tmp_path: Path) -> None:
    found = verdict(tmp_path, crowd(tree(), 3), "tiles")
    assert not found.ok
    assert found.found == "house has 2 beds for 3 residents"


def test_reachability_fails_behind_a_wall(tmp_path: Path) -> None:
    town = tree()
    town["scenario"]["map"] = redraw({6: "############"})
    found = verdict(tmp_path, town, "reachability")
    assert not found.ok
    assert "'office' at row 7, column 1 cannot be reached from 'house'" in found.found


def test_a_bed_too_few_is_told_with_what_to_do(tmp_path: Path) -> None:
    """It ended with "see the message"."""
    town = tree()
    town["scenario"]["map"] = redraw({1: "#b...#..s..#"})
    assert verdict(tmp_path, town, "tiles").found == "house has 1 bed for 2 residents"
    found = verdict(tmp_path, town, "reachability")
    assert found.found.endswith("has 1 bed, and 'bob' finds none free")
    assert found.remedy == "add a bed or give 'bob' another home"


def test_doors_fail_when_forty_people_share_one(tmp_path: Path) -> None:
    town = tree()
    beds, aisle, door, wall = "#" + "b" * 20 + "#", "#" + "." * 20 + "#", "#" + "." * 20 + "+", "#" * 22
    town["jobs"] = {}
    town["scenario"] = {
        "map": "\n".join([wall, beds, door, aisle, beds, wall]),
        "legend": {"b": "bed"},
        "buildings": {"house": {"at": [1, 1], "size": [20, 4]}},
        "residents": [{"id": f"r{i}", "home": "house"} for i in range(40)],
        "episode_ticks": 60,
    }
    found = verdict(tmp_path, town, "doors")
    assert not found.ok
    assert found.found == "at most 40 people per door tile (house)"


def test_time_fails_when_a_shift_leaves_no_room_for_sleep(tmp_path: Path) -> None:
    town = tree()
    town["jobs"]["clerk"]["end"] = "24:00"
    found = verdict(tmp_path, town, "time")
    assert not found.ok
    assert "of 1440 ticks a day" in found.found


def test_time_fails_when_the_way_to_work_is_longer_than_one_may_set_out_ahead(tmp_path: Path) -> None:
    town = tree()
    town["employment"] = {"work_ahead": 5, "absent_cutoff": 10}
    found = verdict(tmp_path, town, "time")
    assert not found.ok
    assert "may set out 5 before the shift and is absent 10 after its start" in found.found


def test_money_fails_when_wages_do_not_pay_for_the_day(tmp_path: Path) -> None:
    """0.002 × 240 = 0.48 a day against 0.40 rent and 0.3168: 7 × 0.48 + 1 − 7 × 0.7168 = −0.66 after a week."""
    town = tree()
    town["jobs"]["clerk"]["wage"] = 0.002
    found = verdict(tmp_path, town, "money", days=7)
    assert not found.ok
    assert found.found == "alice earns 0.48 and spends 0.72 a day, has -0.66 left after 7.0 days"


def long_house(count: int, things: str) -> dict[str, Any]:
    """`count` beds in a row, an aisle, and `things` below it."""
    width = max(count, len(things))
    rows = ["#" * (width + 2), "#" + "b" * count + "." * (width - count) + "#", *["#" + "." * width + "#"] * 2]
    rows += ["#" + things + "." * (width - len(things)) + "#", "#" * (width + 2)]
    town = tree()
    town["jobs"] = {}
    town["economy"] = {"first_wallet": 100.0, "stock": {"stove": 1000}}
    town["scenario"].update(
        map="\n".join(rows),
        buildings={"house": {"at": [1, 1], "size": [width, 3]}},
        residents=[{"id": f"r{i}", "home": "house"} for i in range(count)],
    )
    return town


def test_capacity_fails_when_thirty_share_a_shower(tmp_path: Path) -> None:
    """30 × 40.32 ticks in the 1440 − 374.3 that sleep leaves; nobody works here."""
    found = verdict(tmp_path, long_house(30, "s" + "o.t." * 7), "capacity")
    assert not found.ok
    assert found.found == "use_shower is busy 114 % of the time off sleep and work (1 for 30)"


def test_capacity_fails_when_the_stoves_run_out_of_stock(tmp_path: Path) -> None:
    town = long_house(10, "s.s.o.t.t.f")
    town["economy"]["stock"] = {"stove": 24}
    found = verdict(tmp_path, town, "capacity")
    assert not found.ok
    assert found.found == "29 of the 24 meals of a day are needed"


def new_kind_of_stove(town: dict[str, Any]) -> dict[str, Any]:
    """The town's stoves are ovens: the affordance file knows them, nobody gave them a stock."""
    specs = load_config("town_day").affordances.model_dump(mode="json")["specs"]
    for spec in specs:
        spec["objects"] = ["oven" if kind == "stove" else kind for kind in spec["objects"]]
    town["affordances"] = {"specs": specs}
    town["scenario"]["legend"]["o"] = "oven"
    return town


def test_stock_fails_when_a_new_kind_of_stove_has_none_and_everybody_starves(tmp_path: Path) -> None:
    town = new_kind_of_stove(tree())
    report = lint(load(tmp_path, town), days=7)
    assert [one.name for one in report.verdicts if not one.ok] == ["stock", "capacity", "starvation"]
    found = next(one for one in report.verdicts if one.name == "stock")
    assert found.found == "cook_meal uses stock, and oven_1 has none"
    assert found.remedy == "set economy.stock.oven or a stock in scenario.objects"
    assert not live_a_week(load(tmp_path, town)).lives
    town["economy"] = {"stock": {"oven": 24}}
    assert lint(load(tmp_path, town), days=7).ok
    assert live_a_week(load(tmp_path, town)).lives


def test_stock_of_each_object_is_part_of_the_sums(tmp_path: Path) -> None:
    """A stove with a stock of 3 cooks two meals, once; one with 0 or 1 cooks nothing and is no stove."""
    town = long_house(4, "s.s.o.t.t.f")
    town["economy"]["stock"] = {"stove": 3}
    assert verdict(tmp_path, town, "capacity").found == "12 of the 2 meals of a day are needed"
    for stock in (0, 1):
        town["economy"]["stock"] = {"stove": stock}
        assert "there is no food" in verdict(tmp_path, town, "starvation").found
    town["scenario"]["map"] = town["scenario"]["map"].replace("o", ".")
    town["scenario"]["objects"] = [{"kind": "stove", "at": [5, 4], "stock": 8}, {"kind": "stove", "at": [6, 4]}]
    assert verdict(tmp_path, town, "capacity").found == "12 of the 8 meals of a day are needed"


def test_money_counts_what_the_late_lose(tmp_path: Path) -> None:
    """Alice walks 14 ticks; who may not set out before the shift earns (240 − 14) × 0.0035 − 0.05 instead of 240 × 0.0035."""
    town = tree()
    assert verdict(tmp_path, town, "money").found.startswith("alice earns 0.84 ")
    town["employment"] = {"work_ahead": 0}
    assert verdict(tmp_path, town, "money").found.startswith("alice earns 0.74 ")


def test_starvation_fails_when_the_last_in_the_queue_is_too_late(tmp_path: Path) -> None:
    found = verdict(tmp_path, long_house(20, "s.s.s.o.t.t.t.t"), "starvation")
    assert not found.ok
    assert "hunger allows 400" in found.found


def test_starvation_fails_without_food_when_the_episode_is_long(tmp_path: Path) -> None:
    """From 0.8 to 0.03 at 0.001 a tick, and 30 ticks more."""
    town = long_house(2, "s.s")
    found = verdict(tmp_path, town, "starvation")
    assert not found.ok
    assert "no food; the first collapse comes after 800 ticks" in found.found


def test_memory_is_stated_and_fails_above_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdict(tmp_path, tree(), "memory")
    assert found.ok
    assert "KB per town (residents " in found.found
    monkeypatch.setattr("townlet.scenarios.lint.LIMIT", 1000)
    assert not verdict(tmp_path, tree(), "memory").ok


def test_a_schedule_that_names_an_object_which_is_not_there_fails() -> None:
    config = load_config("kitchen_breakfast")
    residents = [
        one.model_copy(update={"schedule": tuple(step.model_copy(update={"object": "stove_9"}) for step in one.schedule)})
        for one in config.scenario.residents
    ]
    scenario = config.scenario.model_copy(update={"residents": tuple(residents)})
    report = lint(config.model_copy(update={"scenario": scenario}))
    found = next(one for one in report.verdicts if not one.ok)
    assert found.found.endswith("names the object 'stove_9', which is not there")
    assert found.remedy == "did you mean 'stove_1'?"
