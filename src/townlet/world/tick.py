"""One tick of one town, the decision around it, and the start of an episode.

The order of a tick is the order of `TICK_ORDER`; `tick` calls the systems in that order.
"""

from __future__ import annotations

import numpy as np

from townlet.world import rng
from townlet.world._jit import kernel, leaf
from townlet.world.decisions import decide
from townlet.world.options import control, shift_phase
from townlet.world.state import MAX_EDGES, PERTURBATIONS, Tables, Town
from townlet.world.systems.conflict import conflict
from townlet.world.systems.economy import economy
from townlet.world.systems.employment import AWAIT_START, POST_SHIFT, PRE_SHIFT, employment
from townlet.world.systems.lifecycle import arrivals, depart, lifecycle
from townlet.world.systems.movement import movement, place
from townlet.world.systems.needs import needs
from townlet.world.systems.perturbations import perturbations
from townlet.world.systems.queues import affordances, queues
from townlet.world.systems.relationships import relationships
from townlet.world.systems.rewards import rewards

TICK_ORDER = (
    "actions", "movement", "queues", "affordances", "conflict", "employment",
    "economy", "relationships", "needs", "perturbations", "lifecycle", "rewards",
)  # fmt: skip


@leaf
def actions(t: Town, primitive: bool) -> None:
    """What each resident tries in this tick."""
    for i in range(t.residents.shape[0]):
        control(t, i, primitive)


@leaf
def tick(t: Town, scheduled: np.ndarray, primitive: bool) -> None:
    """All systems, in TICK_ORDER; then the clock moves on. Terms add up until the caller has counted them."""
    actions(t, primitive)
    movement(t)
    queues(t)
    affordances(t)
    conflict(t)
    employment(t)
    economy(t)
    relationships(t)
    needs(t)
    perturbations(t, scheduled)
    lifecycle(t, scheduled)
    rewards(t)
    clock = t.clock
    clock["tick"] += 1
    clock["minute"] += 1
    if clock["minute"] == t.rules["ticks_per_day"]:
        clock["minute"] = 0
        clock["day"] += 1


@leaf
def decisions(t: Town, choices: np.ndarray, targets: np.ndarray, primitive: bool) -> None:
    """Take up everybody's decision, in slot order; `choices (N,)`, `targets (N,)` (-1: the option's own object)."""
    for i in range(t.residents.shape[0]):
        decide(t, i, int(choices[i]), int(targets[i]), primitive)


@kernel
def departures(t: Town) -> None:
    """Take those who left in the last tick off the map; the events of that belong to that tick."""
    clock = t.clock
    if clock["departures"] > 0:
        clock["tick"] -= 1
        for i in range(t.residents.shape[0]):
            if t.residents[i]["leaving"] == 1:
                depart(t, i)
        clock["tick"] += 1
        clock["departures"] = 0


@leaf
def boundary(t: Town, start: np.ndarray) -> None:
    """Between two decisions: newcomers arrive; at the end of an episode the town is over."""
    arrivals(t, start)
    if t.clock["tick"] + t.clock["cut"] >= t.rules["episode_ticks"]:
        t.clock["over"] = 1


@kernel
def first_shift_state(t: Town, i: int) -> int:
    """State of the shift at the start of an episode; one that is already under way is excused."""
    phase = shift_phase(t, i)
    if phase < 0:
        return PRE_SHIFT
    rules, length = t.rules, t.jobs[t.residents[i]["job"]]["length"]
    if phase == 0 or phase >= rules["ticks_per_day"] - rules["work_ahead"]:
        return AWAIT_START
    return POST_SHIFT if t.clock["minute"] >= t.jobs[t.residents[i]["job"]]["start"] or phase < length else PRE_SHIFT


@kernel
def begin_episode(t: Town, tables: Tables, start_minute: int) -> None:
    """Put a town back to its start; the clock time, and the length of the first episode, may be drawn, in whole decisions."""
    rules, clock = t.rules, t.clock
    clock["tick"] = 0
    clock["day"] = 0
    clock["cut"] = 0
    if rules["stagger"] == 1 and clock["episode"] == 0:
        steps = (rules["episode_ticks"] + rules["interval"] - 1) // rules["interval"]
        decisions = 1 + rng.below(rng.now(clock, rng.SPAWN), 0, rng.FIRST_DECISIONS, steps)
        clock["cut"] = max(rules["episode_ticks"] - decisions * rules["interval"], 0)
    clock["minute"] = start_minute
    if rules["random_start"] == 1:
        steps = rules["ticks_per_day"] // rules["interval"]
        clock["minute"] = rng.below(rng.now(clock, rng.SPAWN), 0, rng.START_MINUTE, steps) * rules["interval"]
    for field in range(len(PERTURBATIONS)):
        clock["active_until"][field] = 0
        clock["cooldown_until"][field] = 0
    clock["newcomers"] = 0
    clock["newcomers_today"] = 0
    clock["evictions_today"] = 0
    clock["last_eviction"] = -1
    clock["events"] = 0
    clock["events_total"] = 0
    clock["over"] = 0
    clock["departures"] = 0
    clock["bumps"] = 0
    clock["first"] = 0
    k = clock["layout"]
    for m in range(t.objects.shape[0]):
        t.objects[m] = tables.objects[k, m]
        t.checked[m] = -1
    for y in range(t.grid.shape[0]):
        for x in range(t.grid.shape[1]):
            t.grid[y, x] = tables.grid[k, y, x]
    t.terms[:] = 0.0
    wealth = 0
    for i in range(t.residents.shape[0]):
        t.residents[i] = tables.start[k, i]
        for s in range(MAX_EDGES):
            t.ties[i, s] = tables.start_ties[k, i, s]
        me = t.residents[i]
        if rules["wallet_low"] >= 0:
            spread = rng.below(rng.now(clock, rng.SPAWN), i, rng.FIRST_WALLET, int(rules["wallet_spread"]) + 1)
            me["wallet"] = rules["wallet_low"] + spread
        wealth += me["wallet"]
        if me["present"] == 1:
            if t.grid[me["y"], me["x"]]["occupant"] >= 0:
                clock["bumps"] += 2
            place(t, i, int(me["x"]), int(me["y"]))
        me["shift"] = first_shift_state(t, i)
    clock["purse"] = -wealth  # money is only moved, never made: wallets + purse = 0
