"""Leaving and arriving: collapse, eviction, scheduled exits, and the newcomer who takes over home and job."""

from __future__ import annotations

import numpy as np

from townlet.world import rng
from townlet.world._jit import kernel, leaf
from townlet.world.events import EXIT, NEWCOMER, emit
from townlet.world.state import EXITS, MAX_EDGES, TERMS, Town
from townlet.world.systems.employment import POST_SHIFT
from townlet.world.systems.movement import lift, place, walkable
from townlet.world.systems.queues import leave_queue, release
from townlet.world.systems.relationships import find, forget

COLLAPSE, EVICTION, SCHEDULED_EXIT = range(len(EXITS))
TERMINAL = TERMS.index("terminal")


@kernel
def leave_town(t: Town, i: int, kind: int) -> None:
    """The exit itself; the resident is taken off the map by `depart` once its last reward is worked out."""
    me, clock, rules = t.residents[i], t.clock, t.rules
    me["leaving"] = 1
    me["exit_kind"] = kind
    clock["departures"] += 1
    emit(t, EXIT, i, -1, -1, kind, 0.0)
    if kind == COLLAPSE:
        t.terms[i, TERMINAL] += rules["terminal_collapse"]
    elif kind == EVICTION:
        t.terms[i, TERMINAL] += rules["terminal_eviction"]
        clock["evictions_today"] += 1
        clock["last_eviction"] = clock["tick"]


@kernel
def foresee(t: Town, i: int, kind: int, ticks: int) -> None:
    me = t.residents[i]
    if me["exit_at"] < 0:
        me["exit_kind"] = kind
        me["exit_at"] = t.clock["tick"] + ticks


@leaf
def doomed(t: Town, i: int) -> bool:
    """The exit is known: from now on nothing is rewarded."""
    me, rules = t.residents[i], t.rules
    for k in range(rules["deadly"]):
        if me["starving"][k] >= rules["deadly_ticks"][k] - rules["exit_warning"]:
            return True
    return bool(me["exit_at"] >= 0)


@leaf
def collapses(t: Town, i: int) -> bool:
    """Count the ticks at the bottom of every need that ends there; one has lasted too long."""
    me, rules, over = t.residents[i], t.rules, False
    for k in range(rules["deadly"]):
        me["starving"][k] = me["starving"][k] + 1 if me["needs"][rules["deadly_need"][k]] <= rules["deadly_below"][k] else 0
        over = over or me["starving"][k] >= rules["deadly_ticks"][k]
    return over


@kernel
def may_evict(t: Town) -> bool:
    clock, rules = t.clock, t.rules
    pending = 0
    for i in range(t.residents.shape[0]):
        if t.residents[i]["exit_at"] >= 0 and t.residents[i]["exit_kind"] == EVICTION:
            pending += 1
    apart = clock["last_eviction"] < 0 or clock["tick"] - clock["last_eviction"] >= rules["eviction_gap"]
    return bool(pending == 0 and apart and clock["evictions_today"] < rules["evictions_per_day"])


@leaf
def lifecycle(t: Town, scheduled: np.ndarray) -> None:
    rules, clock = t.rules, t.clock
    tick = clock["tick"]
    if clock["minute"] == 0:
        clock["evictions_today"] = 0
        clock["newcomers_today"] = 0
    for s in range(scheduled.shape[0]):
        event = scheduled[s]
        who = int(event["resident"])
        ahead = (event["day"] - clock["day"]) * rules["ticks_per_day"] + event["minute"] - clock["minute"]
        if who >= 0 and ahead == rules["exit_warning"]:
            if t.residents[who]["present"] == 1 and t.residents[who]["life"] == 0:
                foresee(t, who, SCHEDULED_EXIT, int(rules["exit_warning"]))
    room = may_evict(t)
    for i in range(t.residents.shape[0]):
        me = t.residents[i]
        if me["present"] == 0:
            continue
        if collapses(t, i):
            leave_town(t, i, COLLAPSE)
        elif me["exit_at"] >= 0:
            if tick >= me["exit_at"]:
                leave_town(t, i, int(me["exit_kind"]))
        elif room and (me["notice"] == 1 or me["unpaid_days"] >= rules["unpaid_days"]):
            foresee(t, i, EVICTION, int(rules["exit_warning"]))
            room = False  # one at a time


@kernel
def depart(t: Town, i: int) -> None:
    """Take a resident out: queue, object, tile, ties of others, wallet to the purse. The slot stays empty for a while."""
    me, clock, rules = t.residents[i], t.clock, t.rules
    if me["using"] >= 0:
        release(t, i, False)
    leave_queue(t, i)
    lift(t, i)
    clock["purse"] += me["wallet"]
    me["wallet"] = 0
    me["debt"] = 0  # nobody is left to pay it
    me["present"] = 0
    me["leaving"] = 0
    me["working"] = 0
    me["exit_at"] = -1  # nothing is pending in an empty slot
    for k in range(len(TERMS)):
        t.terms[i, k] = 0.0
    for s in range(MAX_EDGES):
        forget(t, i, s)
    for j in range(t.residents.shape[0]):
        back = find(t, j, i)
        if back >= 0:
            forget(t, j, back)
        if t.residents[j]["replaced_by"] == i:
            t.residents[j]["replaced_by"] = -1
    gone, interval = clock["tick"] + 1, rules["interval"]
    spread = rng.below(rng.now(clock, rng.SPAWN), i, rng.NEWCOMER_DELAY, int(rules["newcomer_spread"]) + 1)
    due = gone + 1 + rules["newcomer_delay_min"] + spread
    whole = ((gone + interval - 1) // interval + 1) * interval  # the slot is empty for a whole decision at least
    me["arrives_at"] = max(due, whole)


@kernel
def free_tile_at_home(t: Town, i: int) -> int:
    """A free floor tile of the home as y × W + x, or any of its floor tiles when all are taken."""
    home, width = t.buildings[t.residents[i]["home"]], t.grid.shape[1]
    any_tile = -1
    for y in range(home["y0"], home["y0"] + home["h"]):
        for x in range(home["x0"], home["x0"] + home["w"]):
            if walkable(t, x, y) and t.towards[t.residents[i]["home"], y, x] < 8:
                if t.grid[y, x]["occupant"] < 0:
                    return int(y * width + x)
                any_tile = int(y * width + x)
    return any_tile


@kernel
def arrive(t: Town, i: int, start: np.ndarray) -> None:
    """A newcomer takes over home, bed and job; personality, needs and wallet are its own."""
    me, clock, rules = t.residents[i], t.clock, t.rules
    clock["newcomers"] += 1
    clock["newcomers_today"] += 1
    t.residents[i] = start[i]
    me["present"] = 1
    me["life"] = clock["newcomers"]
    me["born"] = clock["tick"]
    me["wallet"] = rules["first_wallet"]
    clock["purse"] -= rules["first_wallet"]
    me["meals"] = rules["newcomer_meals"]
    profile = rng.below(rng.now(clock, rng.SPAWN), i, rng.NEWCOMER_PROFILE, int(rules["newcomer_profiles"]))
    me["extroversion"] = rules["profiles"][profile, 0]
    me["forgiveness"] = rules["profiles"][profile, 1]
    me["ambition"] = rules["profiles"][profile, 2]
    for need in range(rules["needs"]):
        me["needs"][need] = rules["newcomer_need"]
        me["weights"][need] = rules["profile_weights"][profile, need]
    me["chat_ready"] = clock["tick"]
    me["shift"] = POST_SHIFT  # the shift under way is not its own
    tile = free_tile_at_home(t, i)
    width = t.grid.shape[1]
    if t.grid[tile // width, tile % width]["occupant"] >= 0:
        clock["bumps"] += 2
    place(t, i, tile % width, tile // width)
    emit(t, NEWCOMER, i, -1, -1, -1, 0.0)


@kernel
def arrivals(t: Town, start: np.ndarray) -> None:
    """At a decision boundary: newcomers who are due and still allowed today."""
    clock, rules = t.clock, t.rules
    for i in range(t.residents.shape[0]):
        me = t.residents[i]
        due = me["present"] == 0 and me["arrives_at"] >= 0 and clock["tick"] >= me["arrives_at"]
        if due and clock["newcomers_today"] < rules["newcomers_per_day"]:
            arrive(t, i, start)
