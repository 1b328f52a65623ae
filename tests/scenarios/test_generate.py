"""Towns from a few numbers, random towns, and plans written out as scenarios."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from townlet.config.loader import load_config
from townlet.scenarios.compile import compile_plan, compile_town, read_plan
from townlet.scenarios.generate import HOME, Block
from townlet.scenarios.lint import lint
from townlet.scenarios.random_town import drawn_town, feasible_town, picture, template, written_out
from townlet.world.layout import neighbours, walkable


def test_a_block_of_twelve_has_three_rows_of_six_pieces() -> None:
    """Eight by eight inside street and wall: rows 0, 4 and 5, without the two columns of the way through."""
    slots = Block(HOME, 0, 0, 12).slots()
    assert len(slots) == 18
    assert Counter(y for _, y in slots) == {2: 6, 6: 6, 7: 6}
    assert {x for x, _ in slots} == {2, 3, 4, 7, 8, 9}


def test_every_bed_of_a_generated_home_has_a_tile_of_its_own() -> None:
    plan = read_plan(load_config("market_square"))
    walk = walkable(plan.tiles)
    beside = [neighbours(walk, one.x, one.y)[0] for one in plan.objects if one.kind == "bed"]
    assert len(set(beside)) == len(beside) == 200


def test_a_generated_town_has_as_many_things_as_its_numbers_say() -> None:
    config = load_config("market_square")
    plan = read_plan(config)
    things = Counter(one.kind for one in plan.objects)
    assert things["bed"] == 200
    assert things["shower"] == 29  # 200 / 7, rounded up
    assert things["stove"] == things["table"] == 34
    assert max(Counter(one.home for one in plan.residents).values()) == 23


@pytest.mark.parametrize("seed", [0, 3, 11])
def test_a_town_written_out_compiles_to_the_same_tables(seed: int, tmp_path: Path) -> None:
    config = feasible_town(seed)
    path = tmp_path / "town.yaml"
    path.write_text(written_out(config))
    written, made = compile_town(load_config(path)), compile_town(config)
    for name, one, other in zip(made.layout._fields, written.layout, made.layout):
        assert one.tobytes() == other.tobytes(), name
    assert written.resident_ids == made.resident_ids
    assert written.object_ids == made.object_ids


def test_a_seed_always_draws_the_same_town_and_another_seed_another() -> None:
    assert written_out(feasible_town(5)) == written_out(feasible_town(5))
    assert picture(read_plan(feasible_town(5))) != picture(read_plan(feasible_town(6)))


def test_some_drawn_towns_cannot_live_and_a_feasible_one_always_can() -> None:
    verdicts = [lint(drawn_town(seed), days=7).ok for seed in range(12)]
    assert True in verdicts
    assert False in verdicts
    assert all(lint(feasible_town(seed), days=7).ok for seed in range(4))


def test_the_template_is_a_town_that_passes_the_linter(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(template("mine"))
    assert lint(load_config(path), days=7).ok


@pytest.mark.slow
def test_metropolis_has_ten_thousand_residents_in_at_most_four_hundred_buildings() -> None:
    config = load_config("metropolis")
    town = compile_plan(read_plan(config), config)
    assert len(town.resident_ids) == 10_000
    assert len(town.building_ids) <= 400
    assert town.layout.tiles.shape == (400, 400)
