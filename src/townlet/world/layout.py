"""Breadth-first tables of a map: first steps and walking distances, so that walking is a look-up whatever the size of the town.

Steps are 0 north, 1 east, 2 south, 3 west; among several shortest ways the lowest step wins. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from townlet.types import Array
from townlet.world.actions import STEPS
from townlet.world.state import CANDIDATES, DOOR, FAR, FLOOR, IN_VIEW, NEAR, ROAD, VIEW

UNREACHABLE = FAR * 8


def walkable(tiles: Array) -> Array:
    """Tiles a resident may stand on: floor, door and road.  # (H, W) u1 -> (H, W) bool"""
    return np.isin(tiles, (FLOOR, DOOR, ROAD))


def neighbours(walk: Array, x: int, y: int) -> list[int]:
    """Flat indices of the walkable tiles beside (x, y), north first: where an object on (x, y) is used from."""
    height, width = walk.shape
    spots = [(x + dx, y + dy) for dx, dy in STEPS]
    return [v * width + u for u, v in spots if 0 <= u < width and 0 <= v < height and walk[v, u]]


def step_fields(walk: Array, goals: Sequence[Sequence[int]]) -> Array:
    """Per set of goal tiles (flat indices) the packed way there from every tile: ``distance * 8 + step + 1``.  # (B, H, W) u2

    Goals that are not walkable are passed over; what cannot be reached holds ``FAR * 8``.
    """
    height, width = walk.shape
    padded = width + 2
    plane = (height + 2) * padded
    block = np.zeros((height + 2, padded), dtype=bool)
    block[1:-1, 1:-1] = walk
    field = np.where(
        np.tile(block.reshape(-1), len(goals)), np.uint16(UNREACHABLE), np.uint16(0)
    )  # 0 also bars what is no ground
    starts = [b * plane + (tile // width + 1) * padded + tile % width + 1 for b, tiles in enumerate(goals) for tile in tiles]
    front = np.unique(np.asarray(starts, dtype=np.int64))
    front = front[field[front] == UNREACHABLE]
    field[front] = 0
    distance = 0
    while front.size:
        distance += 1
        if distance >= FAR:
            break
        reached = []
        for step, (dx, dy) in enumerate(STEPS):  # a tile whose `step` leads to the front lies on the front's other side
            tiles = front - (dy * padded + dx)
            tiles = tiles[field[tiles] == UNREACHABLE]
            field[tiles] = distance * 8 + step + 1
            reached.append(tiles)
        front = np.concatenate(reached)
    cut = field.reshape(len(goals), height + 2, padded)[:, 1:-1, 1:-1].copy()
    cut[:, ~walk] = UNREACHABLE
    return cut


def nearest_objects(walk: Array, reach: Sequence[tuple[int, Sequence[int]]]) -> Array:
    """For every tile the K nearest objects by (walking distance, object).  # (H, W, K) NEAR

    `reach` pairs an object with the tiles (flat indices) it is used from. A shortest way to one of the K passes only tiles that
    have it among their K, at no worse a rank: what is ahead of it one step on was ahead of it before. So each tile hands on
    only what it keeps.
    """
    height, width = walk.shape
    padded = width + 2
    size = (height + 2) * padded
    ground = np.zeros((height + 2, padded), dtype=bool)
    ground[1:-1, 1:-1] = walk
    open_tile = ground.reshape(-1)
    held = np.full((size, CANDIDATES), -1, dtype=np.int64)
    distances = np.zeros((size, CANDIDATES), dtype=np.int64)
    kept = np.zeros(size, dtype=np.int64)
    pairs = [((tile // width + 1) * padded + tile % width + 1, item) for item, tiles in reach for tile in tiles]
    tiles, items = (np.asarray(column, dtype=np.int64) for column in zip(*pairs)) if pairs else (np.zeros(0, np.int64),) * 2
    distance = 0
    span = int(items.max()) + 1 if items.size else 1
    while tiles.size:
        tiles, items = _admit(tiles, items, span, open_tile, held, distances, kept, distance)
        tiles, items = np.concatenate([tiles - (dy * padded + dx) for dx, dy in STEPS]), np.tile(items, 4)
        distance += 1
    table = np.zeros((size, CANDIDATES), dtype=NEAR)
    table["object"], table["distance"], table["step"] = held, distances, -1
    for step in (3, 2, 1, 0):
        dx, dy = STEPS[step]
        ahead = np.arange(size) + dy * padded + dx
        inside = (ahead >= 0) & (ahead < size)
        ahead = np.where(inside, ahead, 0)
        there, far = held[ahead], distances[ahead]
        for k in range(CANDIDATES):
            closer = ((there == held[:, k, None]) & (far == distances[:, k, None] - 1)).any(axis=1)
            table["step"][:, k] = np.where(closer & inside & (held[:, k] >= 0), step, table["step"][:, k])
    return table.reshape(height + 2, padded, CANDIDATES)[1:-1, 1:-1].copy()


def object_views(walk: Array, objects: Array, window: int) -> tuple[Array, Array]:
    """Which objects a square map of side `window` around each walkable tile shows, and in which of its cells.

    VIEW rows (H, W) point into IN_VIEW rows, ordered by tile, then by object.
    """
    height, width = walk.shape
    half = window // 2
    views = np.zeros((height, width), dtype=VIEW)
    offsets = np.arange(-half, half + 1) if window else np.zeros(0, np.int64)
    x, y = (objects[axis].astype(np.int64)[:, None, None] for axis in "xy")  # (M, 1, 1)
    u, v = np.broadcast_arrays(x + offsets[None, None, :], y + offsets[None, :, None])  # (M, window, window): who sees it
    inside = (u >= 0) & (u < width) & (v >= 0) & (v < height)
    inside[inside] = walk[v[inside], u[inside]]
    thing = np.broadcast_to(np.arange(len(objects))[:, None, None], inside.shape)[inside]
    tile = (v * width + u)[inside]
    cell = ((y - v + half) * window + x - u + half)[inside]
    order = np.lexsort((thing, tile))
    rows = np.zeros(len(order), dtype=IN_VIEW)
    rows["object"], rows["cell"] = thing[order], cell[order]
    count = np.bincount(tile, minlength=height * width)
    views["count"] = count.reshape(height, width)
    views["first"] = (np.cumsum(count) - count).reshape(height, width)
    return views, rows


def _admit(
    tiles: Array, items: Array, span: int, ground: Array, held: Array, distances: Array, kept: Array, distance: int
) -> tuple[Array, Array]:
    """Enter the pairs of one distance into the tables, lowest object first, and return those that found room."""
    fits = ground[tiles] & (kept[tiles] < held.shape[1])
    tiles, items = tiles[fits], items[fits]
    new = ~(held[tiles] == items[:, None]).any(axis=1)
    key = np.unique(tiles[new] * span + items[new])
    tiles, items = key // span, key % span
    first = np.flatnonzero(np.r_[True, tiles[1:] != tiles[:-1]]) if tiles.size else np.zeros(0, np.int64)
    place = np.arange(tiles.size) - np.repeat(first, np.diff(np.r_[first, tiles.size])) + kept[tiles]
    room = place < held.shape[1]
    tiles, items, place = tiles[room], items[room], place[room]
    held[tiles, place] = items
    distances[tiles, place] = distance
    np.add.at(kept, tiles, 1)
    return tiles, items
