"""From a scenario to tables: ids, beds, desks, first tiles, ties, what is scheduled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scenario_towns import load, tree
from townlet.config.loader import load_config, shipped_configs
from townlet.scenarios.compile import compile_town
from townlet.world.layout import UNREACHABLE, walkable
from townlet.world.state import FAR, PERTURBATIONS, TILES

SMALL = [name for name in shipped_configs("scenarios") if name != "metropolis"]


def test_objects_are_named_in_reading_order_and_beds_stand_last_building_by_building(tmp_path: Path) -> None:
    town = compile_town(load(tmp_path, tree()))
    assert town.object_ids == ("shower_1", "stove_1", "table_1", "fridge_1", "bed_1", "bed_2")
    assert town.kinds == ("bed", "bench", "cafe_counter", "fridge", "shower", "stove", "table")
    house = town.layout.buildings[town.building_ids.index("house")]
    assert (house["first_bed"], house["beds"]) == (4, 2)
    assert town.layout.objects["building"].tolist() == [-1, -1, -1, -1, 0, 0]


def test_the_stock_of_an_object_is_its_own_or_that_of_its_kind(tmp_path: Path) -> None:
    bent = tree()
    bent["scenario"]["objects"] = [{"kind": "stove", "at": [10, 1], "stock": 7, "id": "old_stove"}]
    town = compile_town(load(tmp_path, bent))
    stock = dict(zip(town.object_ids, town.layout.objects["stock"].tolist()))
    assert stock["old_stove"] == 7
    assert stock["stove_1"] == 24
    assert stock["shower_1"] == -1


def test_a_bed_field_counts_the_steps_to_the_bed_by_hand(tmp_path: Path) -> None:
    """Bed 1 stands on (1, 1) with bed 2 to its right: only (1, 2) is beside it. From (4, 3) that is 3 steps west and 1 north."""
    layout = compile_town(load(tmp_path, tree())).layout
    bed = layout.objects[4]
    field = layout.bed_steps[bed["field"] : bed["field"] + bed["w"] * bed["h"]].reshape(bed["h"], bed["w"])
    assert (bed["x"], bed["y"]) == (1, 1)
    assert field[1, 0] == 0
    assert field[2, 3] // 8 == 4
    assert bed["depth"] == 3  # from (4, 2), beside the door


def test_every_worker_has_a_tile_of_the_site_of_its_own_far_from_the_door(tmp_path: Path) -> None:
    """The office is the row (1..10, 7) and its door lies above (4, 7): the far end is (10, 7), six steps in."""
    town = compile_town(load(tmp_path, tree()))
    residents = town.layout.residents
    assert list(zip(residents["desk_x"].tolist(), residents["desk_y"].tolist())) == [(10, 7), (9, 7)]
    assert town.layout.jobs[0]["workers"] == 2
    assert town.layout.workers.tolist() == [0, 1]


def test_ties_go_both_ways_unless_they_say_otherwise_and_a_named_one_wins_over_a_circle(tmp_path: Path) -> None:
    bent = tree()
    scenario = bent["scenario"]
    scenario["buildings"]["cot"] = {"at": [6, 2], "size": [5, 1]}
    scenario["objects"] = [{"kind": "bed", "at": [10, 2]}]
    scenario["residents"].append({"id": "carol", "home": "cot"})
    scenario["ties"] = [{"a": "alice", "b": "carol", "rivalry": 0.8, "mutual": False}, {"a": "alice", "b": "bob", "trust": 0.6}]
    scenario["circles"] = [{"among": ["alice", "bob", "carol"], "rivalry": 0.5}]
    ties = compile_town(load(tmp_path, bent)).layout.ties
    found = {(n, int(tie["other"])): float(tie["rivalry"]) for n in range(3) for tie in ties[n] if tie["other"] >= 0}
    assert found == {(0, 2): 0.8, (0, 1): 0.0, (1, 0): 0.0, (1, 2): 0.5, (2, 0): 0.5, (2, 1): 0.5}
    assert ties[0]["peak"][0] == ties[0]["rivalry"][0]  # above the avoidance line from the start


def test_what_is_scheduled_keeps_its_clock_time_and_day(tmp_path: Path) -> None:
    bent = tree()
    bent["perturbations"] = {"events": [{"at": "18:00", "kind": "blackout", "duration": 30}]}
    bent["lifecycle"] = {"exits": [{"at": "12:00", "resident": "bob", "day": 2}]}
    rows = compile_town(load(tmp_path, bent)).layout.scheduled
    assert rows["day"].tolist() == [-1, 2]
    assert rows["minute"].tolist() == [1080, 720]
    assert rows["resident"].tolist() == [-1, 1]
    assert rows["kind"][0] == PERTURBATIONS.index("blackout")


def test_a_town_by_size_has_walls_doors_and_objects_where_they_are_put(tmp_path: Path) -> None:
    bent = tree()
    bent["jobs"] = {}
    bent["scenario"] = {
        "size": [8, 6],
        "walls": [{"at": [0, 0], "size": [5, 5]}],
        "doors": [[2, 4]],
        "buildings": {"hut": {"at": [1, 1], "size": [3, 3]}},
        "objects": [{"kind": "bed", "at": [1, 1]}],
        "residents": [{"id": "alice", "home": "hut"}],
    }
    tiles = compile_town(load(tmp_path, bent)).layout.tiles
    assert ["".join(".#+=o"[tile] for tile in row) for row in tiles] == [
        "#####...",
        "#o..#...",
        "#...#...",
        "#...#...",
        "##+##...",
        "........",
    ]


@pytest.mark.parametrize("name", SMALL)
def test_in_every_shipped_town_everyone_starts_on_free_ground_and_can_walk_to_everything(name: str) -> None:
    town = compile_town(load_config(name))
    layout = town.layout
    walk = walkable(layout.tiles)
    first = set(zip(layout.residents["x"].tolist(), layout.residents["y"].tolist()))
    assert len(first) == len(town.resident_ids)
    assert all(walk[y, x] for x, y in first)
    offered = set(layout.objects["kind"].tolist())
    for a, spec in enumerate(town.config.affordances.specs):
        here = [kind for kind in spec.objects if town.kinds.index(kind) in offered]
        if here and not spec.own_home:
            assert (layout.nearest[:, :, a, 0]["object"][walk & (layout.towards[0] != UNREACHABLE)] >= 0).all()
    home_way = layout.towards[layout.residents["home"]].astype(np.int64) // 8  # (N, H, W)
    sites = {int(job["site"]) for job in layout.jobs}
    for n in range(len(town.resident_ids)):
        for site in sites:
            desk = (layout.buildings[site]["y0"], layout.buildings[site]["x0"])
            assert home_way[n][desk] < FAR or layout.tiles[desk] in (TILES.index("wall"), TILES.index("object"))


def test_compiling_twice_gives_the_same_bytes() -> None:
    first, second = (compile_town(load_config("market_square")) for _ in range(2))
    for one, other in zip(first.layout, second.layout):
        assert one.tobytes() == other.tobytes()
    assert first.resident_ids == second.resident_ids
