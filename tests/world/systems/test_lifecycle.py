"""Leaving and arriving: collapse, scheduled exits, the guard of the last ticks, newcomers; and disturbances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from townlet.envs.vector import VectorTown
from townlet.testing import tiny_town
from townlet.world.invariants import problems
from townlet.world.state import EXITS, HUNGER, PERTURBATIONS, TERMS
from world_tools import Play, people


def test_thirty_hungry_ticks_are_a_collapse_and_the_last_ten_are_guarded() -> None:
    """Hunger at 0 from the start: from the 20th tick gains are zeroed, with the 30th Alice goes and pays 1."""
    play = Play(tiny_town(residents=people(alice=(2, 2), bob=(8, 2))))
    play["alice"]["needs"][HUNGER] = 0.0205
    for tick in range(30):
        play.go()
        guarded = tick + 1 >= 20
        worth = max(0.0205 - 0.001 * (tick + 1), 0.0) / 0.2  # below 0.2 hunger scales the tick
        assert play.term("alice", "exit_guard") == pytest.approx(-0.05 * worth if guarded else 0.0), tick
        assert play.term("alice", "terminal") == (-1.0 if tick == 29 else 0.0)
        assert play.term("bob", "exit_guard") == 0.0
        if tick < 29:
            assert play.sees("alice", "exit_near") == guarded
            assert (play.reward("alice") > 0.0) != guarded
    (left,) = play.told("exit")
    assert (left["tick"], EXITS[left["reason"]]) == (29, "collapse")
    assert play.vec.terminated[0].tolist() == [1, 0]
    assert play.vec.active[0].tolist() == [0, 1]
    assert play.sees("alice", "need_hunger") < 0.03  # the last observation stays
    assert play.reward("alice") == -1.0


def test_a_bite_in_time_resets_the_count() -> None:
    play = Play(tiny_town(residents=people(alice=(2, 2))))
    play["alice"]["needs"][HUNGER] = 0.02
    play.go(25)
    play["alice"]["needs"][HUNGER] = 0.5
    play.go()
    assert not play["alice"]["starving"].any()
    play["alice"]["needs"][HUNGER] = 0.0
    play.go(29)
    assert play.told("exit") == []


def leaving(*overrides: str, at: str = "06:05", interval: int = 10) -> Play:
    ties = [{"a": "alice", "b": "bob", "trust": 0.5, "rivalry": 0.2}, {"a": "carol", "b": "bob", "trust": 0.3, "mutual": False}]
    exits = f"lifecycle.exits=[{{resident: bob, at: '{at}'}}]"
    return Play(
        tiny_town(
            exits,
            "lifecycle.exit_warning=4",
            f"policy.decision_interval={interval}",
            *overrides,
            residents=people(alice=(6, 2), bob=(7, 2), carol=(8, 2)),
            scenario={"ties": ties},
        )
    )


def test_a_scheduled_exit_empties_the_slot_and_clears_the_ties() -> None:
    play = leaving("lifecycle.newcomers_per_day=0")
    wallets = play.vec.state.residents["wallet"].sum()
    play.go()
    (left,) = play.told("exit")
    assert (left["actor"], left["tick"], EXITS[left["reason"]]) == (1, 5, "scheduled")
    assert play.vec.terminated[0].tolist() == [0, 1, 0]
    assert play["bob"]["present"] == 0
    assert play.tie("alice", "bob") is None
    assert play.tie("carol", "bob") is None
    assert play.vec.state.residents["wallet"].sum() == wallets - 10_000
    assert play.vec.masks[0, 1].tolist() == [1] + [0] * (play.vec.num_actions - 1)
    assert play.term("bob", "survival") == pytest.approx(6 * 0.05)  # the ticks it lived
    assert play.term("bob", "terminal") == 0.0
    play.go()
    assert play.reward("bob") == 0.0
    assert play.vec.terminated.sum() == 0
    assert not play.vec.features[0, 1].any()


def test_the_newcomer_comes_at_a_decision_after_a_whole_empty_one() -> None:
    """Bob is gone at tick 6: 10 to 20 ticks later is tick 17 to 27, the next decision is tick 20 or 30."""
    play = leaving()
    arrival = play.until("newcomer", 10)
    assert arrival["tick"] in (20, 30)
    assert play.town["tick"] == arrival["tick"]
    assert play.vec.active[0].tolist() == [1, 1, 1]
    me = play["bob"]
    assert play.vec.resident_id(0, 1) == "newcomer_1"
    assert (me["life"], me["born"], me["wallet"], me["meals"]) == (1, arrival["tick"], 10_000, 1)
    assert (play.vec.state.ties[0, 1]["other"] == -1).all()
    assert play.sees("bob", "ctx_reset_flag") == 1.0
    assert play.sees("bob", "at_home") == 1.0
    assert play.reward("bob") == 0.0
    play.go()
    assert play.sees("bob", "ctx_reset_flag") == 0.0
    assert play.reward("bob") > 0.0


def test_a_long_decision_leaves_the_slot_empty_for_one_of_them() -> None:
    play = leaving(interval=60)
    play.go()
    assert play.vec.terminated[0, 1] == 1
    assert play.vec.active[0, 1] == 0
    play.go()
    assert play.vec.active[0, 1] == 1


def test_an_exit_just_after_midnight_is_known_the_day_before() -> None:
    exits = "lifecycle.exits=[{resident: bob, at: '00:02', day: 1}]"
    play = Play(tiny_town(exits, residents=2, scenario={"start": "23:45"}))
    left = play.until("exit", 40)
    assert left["tick"] == 17
    assert [row["actor"] for row in play.told("exit")] == [1]


def test_no_more_newcomers_than_a_day_allows() -> None:
    exits = "lifecycle.exits=[{resident: alice, at: '06:05'}, {resident: bob, at: '06:06'}, {resident: carol, at: '06:07'}]"
    overrides = (exits, "lifecycle.exit_warning=2", "lifecycle.newcomers_per_day=2", "policy.decision_interval=10")
    play = Play(tiny_town(*overrides, residents=3))
    play.go(12)
    assert play.town["newcomers"] == 2
    assert sorted(play.vec.state.residents["life"][0]) == [0, 1, 2]
    assert play.vec.active.sum() == 2


def test_who_leaves_in_the_middle_of_a_use_frees_the_object_for_the_next() -> None:
    play = leaving(interval=1)
    play.go(2, bob="use_shower").go(alice="use_shower", bob="use_shower")
    assert play["bob"]["using"] == 0
    play.until("exit", 20, alice="use_shower")
    assert play.thing("shower_1")["user"] == -1
    play.go(3, alice="use_shower")
    assert play["alice"]["using"] == 0
    assert problems(play.vec) == []


# --- disturbances ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "barred", "spot"), [("blackout", "cook_meal", (6, 2)), ("outage", "use_shower", (6, 2))])
def test_a_disturbance_bars_new_starts_and_lets_a_running_use_end(kind: str, barred: str, spot: tuple[int, int]) -> None:
    """At 08:05 for 30 ticks: barred from the next tick on, free again after thirty."""
    events = f"perturbations.events=[{{at: '08:05', kind: {kind}, duration: 30}}]"
    config = tiny_town(events, residents=people(alice=spot, bob=(8, 2)), scenario={"start": "08:00"})
    play = Play(config).go(5, alice=barred)
    assert play["alice"]["using"] >= 0
    free = {name: play.may("bob", f"{name}:near") for name in ("use_shower", "cook_meal", "eat_meal", "sit")}
    assert all(free.values())
    play.go()
    (struck,) = play.told("perturbation")
    assert (PERTURBATIONS[struck["reason"]], struck["tick"], struck["amount"]) == (kind, 5, 30.0)
    for _ in range(30):
        for name in free:
            assert play.may("bob", f"{name}:near") == (name != barred), name
        assert play.sees("bob", f"town_{kind}") == 1.0
        play.go()
    assert play.may("bob", f"{barred}:near")
    assert play.sees("bob", f"town_{kind}") == 0.0
    assert [row["amount"] for row in play.told("use_end")] == [1.0]


def test_who_waits_for_the_barred_gives_up() -> None:
    events = "perturbations.events=[{at: '08:05', kind: outage, duration: 30}]"
    config = tiny_town(events, residents=people(alice=(6, 2), bob=(7, 2)), scenario={"start": "08:00"})
    play = Play(config).go(2, alice="use_shower").go(3, bob="use_shower")
    assert play["bob"]["queued"] == 0
    play.go(2)
    assert play["bob"]["queued"] == -1
    assert len(play.told("queue_leave")) == 1


def test_top_rivals_are_led_to_one_bench_for_the_duration() -> None:
    events = "perturbations.events=[{at: '08:02', kind: arranged_meet, duration: 20}]"
    ties: list[dict[str, Any]] = [{"a": "alice", "b": "carol", "rivalry": 0.9}, {"a": "alice", "b": "bob", "rivalry": 0.3}]
    config = tiny_town(
        events, residents=people(alice=(2, 2), bob=(3, 2), carol=(2, 5)), scenario={"start": "08:00", "ties": ties}
    )
    play = Play(config).go(3)
    (met,) = play.told("perturbation")
    assert {int(met["actor"]), int(met["rival"])} == {0, 2}
    bench = play.index("bench_1")
    assert [play[name]["meet_at"] for name in ("alice", "bob", "carol")] == [bench, -1, bench]
    assert play.may("alice", "home")
    play.go(15, alice="home", carol="home")
    o = play.thing("bench_1")
    assert abs(play["carol"]["x"] - o["x"]) + abs(play["carol"]["y"] - o["y"]) == 1
    play.go(6)
    assert play["alice"]["meet_at"] == -1


def test_chance_strikes_at_its_rate() -> None:
    """Half the days over 200 towns: 100 ± 7 (one standard deviation); duration as configured; the same town, the same day."""
    overrides = ("perturbations.outage={probability_per_day: 0.5, duration: 40}", "policy.decision_interval=60")
    vec = VectorTown(tiny_town(*overrides, residents=1, scenario={"start": "00:00"}), 200)
    struck = np.zeros(200, int)
    for _ in range(24):
        vec.step(np.zeros((200, 1), int))
        told = vec.events()
        told = told[told["reason"] == PERTURBATIONS.index("outage")]
        assert (told["amount"] == 40.0).all()
        np.add.at(struck, told["town"], 1)
    assert struck.max() == 1
    assert 72 <= struck.sum() <= 128


def test_terms_are_named() -> None:
    assert TERMS.index("terminal") == len(TERMS) - 1
