"""What one sees of a town at a tick: a row of bytes, written by a kernel before every tick of a step.

A row holds, column after column, the residents' (each N bytes a plane, the low byte first), the objects' (M) and the town's.
Row k of a step is the town at the k-th of its ticks, decisions already taken up; a quarrel of that very tick is marked in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from townlet.types import Array
from townlet.world._jit import kernel
from townlet.world.actions import CHAT, FIRST_AFFORDANCE, FIRST_INTERACT, HOME, LEAVE, P_CHAT, P_LEAVE, WORK
from townlet.world.events import QUARREL
from townlet.world.state import MAX_EDGES, PERTURBATIONS, Town
from townlet.world.systems.relationships import rivalry_now


class FilmColumn(NamedTuple):
    """A value is `number × scale`; a signed number is a two's complement of its bytes."""

    name: str
    bytes: int
    signed: bool = False
    scale: float = 1.0


RESIDENT_COLUMNS = (  # the needs follow
    FilmColumn("x", 2),
    FilmColumn("y", 2),
    FilmColumn("action", 1),  # index into the catalogue: the decision under way
    FilmColumn("doing", 1),  # index into DOING; + QUARRELS while it quarrels
    FilmColumn("thing", 2),  # object used, called to, queued for or walked to, + 1; 0 = none
    FilmColumn("rivalry", 1, scale=1 / 255),  # the highest of its ties
)
OBJECT_COLUMNS = (
    FilmColumn("user", 2),  # slot + 1
    FilmColumn("waiting", 1),  # the queue, and the one who was called
    FilmColumn("stock", 1),  # ENDLESS = unlimited
)
TOWN_COLUMNS = (FilmColumn("minute", 2), FilmColumn("troubles", 1))  # bit k: PERTURBATIONS[k] is in force
DOING = ("absent", "idle", "walks", "uses", "queues", "called", "works", "to_work", "to_home", "to_chat", "leaves")
ABSENT, IDLE, WALKS, USES, QUEUES, CALLED, WORKS, TO_WORK, TO_HOME, TO_CHAT, LEAVES = range(len(DOING))
QUARRELS = 128
ENDLESS = 255
_DOING_PLANE, _NEEDS_PLANE, _OBJECT_PLANES = 5, 9, 4


def film_bytes(residents: int, objects: int, needs: int) -> int:
    """Length of a row."""
    return (_NEEDS_PLANE + needs) * residents + _OBJECT_PLANES * objects + 3


def need_columns(needs: Sequence[str]) -> tuple[FilmColumn, ...]:
    return tuple(FilmColumn(need, 1, scale=1 / 255) for need in needs)


def read_row(row: Array, residents: int, needs: Sequence[str]) -> tuple[dict[str, Array], dict[str, Array]]:
    """A row again as columns: of the residents, `x (N,)`, … and their needs, and of the objects, `user (M,)`, …"""
    split = (_NEEDS_PLANE + len(needs)) * residents
    own = _columns(row[:split], (*RESIDENT_COLUMNS, *need_columns(needs)), residents)
    return own, _columns(row[split:-3], OBJECT_COLUMNS, (len(row) - split - 3) // _OBJECT_PLANES)


def _columns(planes: Array, table: Sequence[FilmColumn], width: int) -> dict[str, Array]:
    found, at = {}, 0
    for name, size, _, scale in table:
        parts = planes[at : at + size * width].reshape(size, width).astype(np.int64)
        whole = (parts << (8 * np.arange(size))[:, None]).sum(axis=0)
        found[name] = whole if scale == 1.0 else whole * scale
        at += size * width
    return found


@kernel
def doing(t: Town, i: int, primitive: bool) -> int:
    me = t.residents[i]
    if me["using"] >= 0:
        return USES
    if me["called"] >= 0:
        return CALLED
    if me["queued"] >= 0:
        return QUEUES
    if me["working"] == 1:
        return WORKS
    action = me["action"]
    if primitive:
        if action == P_LEAVE:
            return LEAVES
        if action == P_CHAT:
            return TO_CHAT
        return WALKS if 0 < action < FIRST_INTERACT else IDLE
    if action == WORK:
        return TO_WORK
    if action == HOME:
        return TO_HOME
    if action == CHAT:
        return TO_CHAT
    if action == LEAVE:
        return LEAVES
    return WALKS if action >= FIRST_AFFORDANCE and me["target"] >= 0 else IDLE


@kernel
def thing_of(t: Town, i: int) -> int:
    me = t.residents[i]
    if me["using"] >= 0:
        return int(me["using"])
    if me["called"] >= 0:
        return int(me["called"])
    if me["queued"] >= 0:
        return int(me["queued"])
    return int(me["target"])


@kernel
def as_byte(level: float) -> int:
    """A level in [0, 1] as a byte."""
    return int(min(max(level, 0.0), 1.0) * 255.0 + 0.5)


@kernel
def film_town(t: Town, row: np.ndarray, primitive: bool) -> None:
    """The town now, as a row (`film_bytes`,) u1."""
    n, m = t.residents.shape[0], t.objects.shape[0]
    for i in range(n):
        me = t.residents[i]
        if me["present"] == 0:
            for k in range((row.shape[0] - _OBJECT_PLANES * m - 3) // n):
                row[k * n + i] = 0
            continue
        row[i] = me["x"] & 255
        row[n + i] = me["x"] >> 8
        row[2 * n + i] = me["y"] & 255
        row[3 * n + i] = me["y"] >> 8
        row[4 * n + i] = me["action"]
        row[5 * n + i] = doing(t, i, primitive) + (QUARRELS if me["stalled_by_quarrel"] > 0 else 0)
        thing = thing_of(t, i) + 1
        row[6 * n + i] = thing & 255
        row[7 * n + i] = thing >> 8
        worst = 0.0
        for s in range(MAX_EDGES):
            if t.ties[i, s]["other"] >= 0:
                worst = max(worst, rivalry_now(t, i, s))
        row[8 * n + i] = as_byte(worst)
        for k in range(t.rules["needs"]):
            row[(_NEEDS_PLANE + k) * n + i] = as_byte(me["needs"][k])
    at = row.shape[0] - _OBJECT_PLANES * m - 3
    for o in range(m):
        thing = t.objects[o]
        row[at + o] = (thing["user"] + 1) & 255
        row[at + m + o] = (thing["user"] + 1) >> 8
        row[at + 2 * m + o] = min(thing["waiting"] + (1 if thing["holder"] >= 0 else 0), 255)
        row[at + 3 * m + o] = ENDLESS if thing["full"] < 0 else min(thing["stock"], ENDLESS - 1)
    at += _OBJECT_PLANES * m
    clock = t.clock
    row[at] = clock["minute"] & 255
    row[at + 1] = clock["minute"] >> 8
    bits = 0
    for k in range(len(PERTURBATIONS)):
        if clock["active_until"][k] > clock["tick"]:
            bits += 1 << k
    row[at + 2] = bits


@kernel
def mark_quarrels(t: Town, row: np.ndarray, first: int) -> None:
    """Mark the quarrels of the last tick, whose events begin with row `first`, in that tick's row."""
    n = t.residents.shape[0]
    for k in range(first, t.clock["events"]):
        event = t.events[k]
        if event["kind"] == QUARREL:
            row[_DOING_PLANE * n + event["actor"]] |= QUARRELS
            if event["rival"] >= 0:
                row[_DOING_PLANE * n + event["rival"]] |= QUARRELS
