"""Movement: one tile a tick to a free neighbour; after some refusals one ghost step onto a taken tile."""

from __future__ import annotations

from townlet.world import rng
from townlet.world._jit import leaf
from townlet.world.events import BUMP, emit
from townlet.world.state import OBJECT_TILE, WALL, Town


@leaf
def place(t: Town, i: int, x: int, y: int) -> None:
    """Stand on a tile, on top of whoever is there."""
    me = t.residents[i]
    me["x"] = x
    me["y"] = y
    me["below"] = t.grid[y, x]["occupant"]
    t.grid[y, x]["occupant"] = i


@leaf
def lift(t: Town, i: int) -> None:
    """Take a resident off its tile."""
    me = t.residents[i]
    top = int(t.grid[me["y"], me["x"]]["occupant"])
    if top == i:
        t.grid[me["y"], me["x"]]["occupant"] = me["below"]
    else:
        while t.residents[top]["below"] != i:
            top = int(t.residents[top]["below"])
        t.residents[top]["below"] = me["below"]
    me["below"] = -1


@leaf
def walkable(t: Town, x: int, y: int) -> bool:
    height, width = t.grid.shape
    if x < 0 or y < 0 or x >= width or y >= height:
        return False
    return bool(t.grid[y, x]["tile"] != WALL and t.grid[y, x]["tile"] != OBJECT_TILE)


@leaf
def shares_tile(t: Town, i: int) -> bool:
    me = t.residents[i]
    return bool(me["below"] >= 0 or t.grid[me["y"], me["x"]]["occupant"] != i)


@leaf
def step_x(step: int) -> int:
    return 1 if step == 1 else (-1 if step == 3 else 0)


@leaf
def step_y(step: int) -> int:
    return -1 if step == 0 else (1 if step == 2 else 0)


@leaf
def way_out(t: Town, i: int) -> int:
    """A step to a free neighbouring tile, or -1."""
    me = t.residents[i]
    for step in range(4):
        x, y = me["x"] + step_x(step), me["y"] + step_y(step)
        if walkable(t, x, y) and t.grid[y, x]["occupant"] < 0:
            return step
    return -1


@leaf
def movement(t: Town) -> None:
    """Steps of this tick, slot after slot from one that is drawn; the queues keep to that order."""
    n = t.residents.shape[0]
    rules, clock = t.rules, t.clock
    first = rng.below(rng.now(clock, rng.WORLD), 0, rng.TURN, n)
    clock["first"] = first
    if clock["bumps"] > 0:  # whoever shares a tile leaves it, unless it is busy or every neighbour is taken
        shared = 0
        for i in range(n):
            me = t.residents[i]
            if me["present"] == 1 and shares_tile(t, i):
                shared += 1
                if me["move"] < 0 and me["using"] < 0 and (me["request"] < 0 or me["queued"] >= 0):
                    me["move"] = way_out(t, i)
        clock["bumps"] = shared
    for turn in range(n):
        i = first + turn
        if i >= n:
            i -= n
        me = t.residents[i]
        step = me["move"]
        if step < 0:
            me["blocked"] = 0
            continue
        x, y = me["x"] + step_x(step), me["y"] + step_y(step)
        if not walkable(t, x, y):
            continue
        if t.grid[y, x]["occupant"] >= 0:
            if me["blocked"] < rules["ghost_step_after"]:
                me["blocked"] += 1
                continue
            emit(t, BUMP, i, int(t.grid[y, x]["occupant"]), -1, -1, 0.0)
            clock["bumps"] += 2
        me["blocked"] = 0
        me["acted"] = 1
        lift(t, i)
        place(t, i, x, y)
