"""Scenarios that cannot work are refused in one sentence: which config, what was found where, what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scenario_towns import load, redraw, tree
from townlet.errors import ConfigError
from townlet.scenarios.compile import compile_town

Bend = Callable[[dict[str, Any]], None]


def bend_rows(rows: dict[int, str]) -> Bend:
    return lambda town: town["scenario"].update(map=redraw(rows))


def bend_map(row: int, text: str) -> Bend:
    return bend_rows({row: text})


def bend_generate(size: tuple[int, int] = (48, 48), **changes: Any) -> Bend:
    def bend(town: dict[str, Any]) -> None:
        town["jobs"] = {}
        how = {"residents": 20, "block": 12, "residents_per_home": 10, "workers_per_site": 20, **changes}
        town["scenario"] = {"size": list(size), "generate": how}

    return bend


def bend_scenario(**changes: Any) -> Bend:
    return lambda town: town["scenario"].update(changes)


def bend_residents(*residents: dict[str, Any]) -> Bend:
    return lambda town: town["scenario"].update(residents=list(residents))


ALICE = {"id": "alice", "home": "house", "job": "clerk"}

CASES: dict[str, tuple[Bend, tuple[str, ...]]] = {
    "a row too short": (bend_map(2, "#....+....#"), ("row 2 has 11 columns", "row 0 has 12", "add 1")),
    "a row too long": (bend_map(2, "#....+......#"), ("row 2 has 13 columns", "take away 1")),
    "a mark without meaning": (bend_map(2, "#....+...X.#"), ("row 2, column 9", "'X'", "scenario.legend")),
    "a legend entry of two characters": (bend_scenario(legend={"bb": "bed"}), ("'bb' is 2 characters", "expected one")),
    "an unknown kind in the legend": (
        bend_scenario(legend={"b": "bed", "s": "showr", "o": "stove", "t": "table", "f": "fridge"}),
        ("'showr'", "did you mean 'shower'?"),
    ),
    "an unknown kind of object": (
        bend_scenario(objects=[{"kind": "stov", "at": [7, 2]}]),
        ("'stov'", "row 2, column 7", "did you mean 'stove'?"),
    ),
    "two objects on a tile": (
        bend_scenario(objects=[{"kind": "table", "at": [8, 1]}]),
        ("two objects stand on row 1, column 8", "a shower and a table", "move one"),
    ),
    "an object outside the map": (
        bend_scenario(objects=[{"kind": "table", "at": [12, 1]}]),
        ("row 1, column 12 is outside", "9 rows and 12 columns", "move it inside"),
    ),
    "two objects of one name": (
        bend_scenario(objects=[{"kind": "table", "at": [7, 2], "id": "t"}, {"kind": "table", "at": [9, 2], "id": "t"}]),
        ("two objects are called 't'", "ids must differ"),
    ),
    "an unreachable bed": (
        bend_rows({1: "#b#b.#..s..#", 2: "#.#..+.....#", 3: "###..#o.t.f#"}),
        ("'bed_1' at row 1, column 1 cannot be reached from row 1, column 4", "take away what is between them"),
    ),
    "a sealed house": (
        bend_map(2, "#....#.....#"),
        ("the shower 'shower_1' at row 1, column 8 cannot be reached from 'house'", "open a door"),
    ),
    "furniture with no free side": (
        bend_scenario(objects=[{"kind": "table", "at": at} for at in ([7, 1], [9, 1], [8, 2])]),
        ("'shower_1' at row 1, column 8 has no free tile beside it", "clear one of its four sides"),
    ),
    "a bed outside every building": (
        bend_scenario(objects=[{"kind": "bed", "at": [7, 2]}]),
        ("row 2, column 7 stands in no building", "scenario.buildings"),
    ),
    "a building off the map": (
        bend_scenario(buildings={"house": {"at": [1, 1], "size": [4, 3]}, "office": {"at": [1, 7], "size": [12, 1]}}),
        ("scenario.buildings.office", "row 7, column 1", "leaves the map"),
    ),
    "a building of walls": (
        bend_scenario(buildings={"house": {"at": [1, 1], "size": [4, 3]}, "office": {"at": [0, 8], "size": [12, 1]}}),
        ("scenario.buildings.office", "no tile to stand on"),
    ),
    "an empty building": (
        bend_scenario(buildings={"house": {"at": [1, 1], "size": [4, 3]}, "office": {"at": [1, 7], "size": [0, 1]}}),
        ("scenario.buildings.office", "is empty"),
    ),
    "nobody": (bend_residents(), ("0 residents", "expected at least 1", "scenario.residents")),
    "too few beds": (
        bend_residents(ALICE, {**ALICE, "id": "bob"}, {**ALICE, "id": "carol"}),
        ("'house' at row 1, column 1 has 2 beds", "'carol' finds none", "add a bed"),
    ),
    "no home": (bend_residents({"id": "alice"}), ("'alice' has no home", "name one of scenario.buildings")),
    "an unknown home": (bend_residents({"id": "alice", "home": "castle"}), ("scenario.residents[0].home: 'castle'", "house")),
    "an unknown job": (bend_residents({**ALICE, "job": "king"}), ("scenario.residents[0].job: 'king'", "clerk")),
    "a first tile in a wall": (bend_residents({**ALICE, "position": [0, 0]}), ("row 0, column 0", "choose floor")),
    "one first tile for two": (
        bend_residents({**ALICE, "position": [3, 2]}, {**ALICE, "id": "bob", "position": [3, 2]}),
        ("'bob' starts at row 2, column 3", "somebody stands already"),
    ),
    "a site with too few tiles": (
        bend_scenario(buildings={"house": {"at": [1, 1], "size": [4, 3]}, "office": {"at": [1, 7], "size": [1, 1]}}),
        ("'office' at row 7, column 1 has 1 tiles", "1 too few", "enlarge it"),
    ),
    "two ties for one pair": (
        bend_scenario(ties=[{"a": "alice", "b": "bob", "rivalry": 0.5}, {"a": "bob", "b": "alice", "trust": 0.5}]),
        ("'bob' has two ties to 'alice'", "keep one"),
    ),
    "a circle with a stranger": (
        bend_scenario(circles=[{"among": ["alice", "bop"], "rivalry": 0.5}]),
        ("scenario.circles[0].among[1]: 'bop'", "did you mean 'bob'?"),
    ),
    "neither map nor size": (bend_scenario(map=""), ("neither a map nor a size", "draw scenario.map")),
    "a million residents": (
        bend_generate(size=(400, 400), residents=1_000_000),
        ("1,000,000 residents", "GB per town", "expected at most 2.0 GB", "take fewer residents"),
    ),
    "more residents than tiles": (
        bend_generate(size=(24, 24), residents=1_000),
        ("1,000 residents have no room", "576 tiles", "larger map"),
    ),
    "too few blocks": (
        bend_generate(size=(24, 24), residents=90),
        ("90 residents need", "has 4 blocks of 12", "enlarge scenario.size"),
    ),
    "beds that do not fit a block": (
        bend_generate(residents_per_home=90),
        ("a block of 12 has room for 18 pieces of furniture, not for 90 beds", "raise block"),
    ),
    "workers that do not fit a block": (bend_generate(workers_per_site=90), ("a block of 12 has 64 tiles", "90 workers")),
    "a map of two thousand columns": (bend_scenario(map="." * 2000), ("1 rows and 2000 columns", "expected 1 to 1024")),
}


def refused(folder: Path, bend: Bend) -> str:
    town = tree()
    bend(town)
    with pytest.raises(ConfigError) as caught:
        compile_town(load(folder, town))
    return str(caught.value)


@pytest.mark.parametrize("case", CASES)
def test_a_scenario_that_cannot_work_is_refused_with_what_was_found_and_what_to_do(case: str, tmp_path: Path) -> None:
    bend, words = CASES[case]
    message = refused(tmp_path, bend)
    assert "bent" in message
    for word in words:
        assert word in message
    assert "\n" not in message
