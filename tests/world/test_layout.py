"""The breadth-first tables against hand-drawn maps and a slow twin."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from townlet.world.actions import STEPS
from townlet.world.layout import UNREACHABLE, nearest_objects, neighbours, step_fields, walkable
from townlet.world.state import CANDIDATES, TILES


def ground(*rows: str) -> np.ndarray:
    return np.array([[mark == "." for mark in row] for row in rows])


def flood(walk: np.ndarray, starts: list[int]) -> dict[int, int]:
    """Distances by a plain queue: the slow twin."""
    height, width = walk.shape
    seen = dict.fromkeys(starts, 0)
    queue = deque(starts)
    while queue:
        tile = queue.popleft()
        for dx, dy in STEPS:
            x, y = tile % width + dx, tile // width + dy
            if 0 <= x < width and 0 <= y < height and walk[y, x] and y * width + x not in seen:
                seen[y * width + x] = seen[tile] + 1
                queue.append(y * width + x)
    return seen


def random_town(seed: int) -> tuple[np.ndarray, list[tuple[int, list[int]]]]:
    rng = np.random.default_rng(seed)
    height, width = int(rng.integers(3, 14)), int(rng.integers(3, 14))
    walk = rng.random((height, width)) > 0.25
    spots = rng.permutation(height * width)[: int(rng.integers(1, 9))]
    for spot in spots:
        walk[spot // width, spot % width] = False
    reach = [(i, neighbours(walk, int(s % width), int(s // width))) for i, s in enumerate(spots)]
    return walk, reach


def test_residents_walk_on_floor_door_and_road_only() -> None:
    tiles = np.arange(len(TILES), dtype=np.uint8)[None]
    assert dict(zip(TILES, walkable(tiles)[0].tolist())) == {
        "floor": True,
        "wall": False,
        "door": True,
        "road": True,
        "object": False,
    }


def test_a_field_by_hand() -> None:
    """From the far corner the way round the wall is 4 steps: south, south, west, west; a sealed tile has no way."""
    field = step_fields(ground("..#", "#..", ".#."), [[0]])[0]
    assert field[0, 0] == 0
    assert field[0, 1] == 1 * 8 + 3 + 1  # west
    assert field[1, 1] == 2 * 8 + 0 + 1  # north
    assert field[1, 2] == 3 * 8 + 3 + 1
    assert field[2, 2] == 4 * 8 + 0 + 1
    assert field[2, 0] == UNREACHABLE
    assert field[0, 2] == UNREACHABLE  # a wall


def test_of_two_shortest_ways_the_lower_step_is_taken() -> None:
    field = step_fields(ground("..", ".."), [[0]])[0]
    assert field[1, 1] == 2 * 8 + 0 + 1  # north before west


@pytest.mark.parametrize("seed", range(12))
def test_fields_equal_the_slow_twin_and_every_step_comes_closer(seed: int) -> None:
    walk, reach = random_town(seed)
    height, width = walk.shape
    fields = step_fields(walk, [tiles for _, tiles in reach])
    for field, (_, tiles) in zip(fields, reach):
        distances = flood(walk, list(tiles))
        for y in range(height):
            for x in range(width):
                packed = int(field[y, x])
                expected = distances.get(y * width + x)
                assert packed // 8 == (UNREACHABLE // 8 if expected is None else expected)
                if expected:
                    dx, dy = STEPS[packed % 8 - 1]
                    assert distances[(y + dy) * width + x + dx] == expected - 1


@pytest.mark.parametrize("seed", range(12))
def test_the_nearest_four_are_ordered_by_distance_then_object_and_walking_never_worsens_a_rank(seed: int) -> None:
    walk, reach = random_town(seed)
    height, width = walk.shape
    table = nearest_objects(walk, reach)
    distances = {item: flood(walk, list(tiles)) for item, tiles in reach}
    walked = 0
    for y in range(height):
        for x in range(width):
            tile = y * width + x
            ranked = sorted((d[tile], item) for item, d in distances.items() if tile in d) if walk[y, x] else []
            rows = table[y, x]
            found = [(int(row["distance"]), int(row["object"])) for row in rows if row["object"] >= 0]
            assert found == ranked[:CANDIDATES]
            for rank, row in enumerate(rows[: len(found)]):
                if row["distance"] == 0:
                    assert row["step"] == -1
                    continue
                dx, dy = STEPS[row["step"]]
                after = table[y + dy, x + dx]["object"].tolist()
                assert row["object"] in after[: rank + 1]
                walked += 1
    assert walked > 0


def test_an_object_in_a_corner_is_used_from_its_two_free_sides() -> None:
    assert neighbours(ground("#..", "..."), 0, 0) == [1, 3]


def test_no_objects_give_an_empty_table() -> None:
    assert (nearest_objects(ground("..", ".."), [])["object"] == -1).all()
