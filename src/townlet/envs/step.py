"""The compiled step of a batch of towns: decisions, the ticks of an interval, rewards summed, observations written."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from townlet.observations.encode import observe
from townlet.types import Array
from townlet.world._jit import entry, kernel, leaf
from townlet.world.film import film_town, mark_quarrels
from townlet.world.state import TERMS, State, Tables, Town
from townlet.world.systems.rewards import total
from townlet.world.tick import begin_episode, boundary, decisions, departures, tick


class Buffers(NamedTuple):
    """What a caller owns and a step writes."""

    features: Array  # (E, N, F) f4
    maps: Array  # (E, N, C, H, W) u1, for the kernels (E, N, C × H × W); C = 0 for a variant without a map
    masks: Array  # (E, N, A) u1
    active: Array  # (E, N) u1: the row takes a true decision now
    rewards: Array  # (E, N) f4
    terms: Array  # (E, N, T) f8
    terminated: Array  # (E, N) u1
    truncated: Array  # (E, N) u1: the episode ended with this step, for every slot; whoever died in it is terminated as well
    illegal: Array  # (E, N) u1


@kernel
def observe_town(t: Town, b: Buffers, e: int, tables: Tables, conflict: np.ndarray, primitive: bool, leaving: bool) -> None:
    """Observations of a whole town; or, within a step, the last ones of those who leave with this tick."""
    over = t.clock["over"]
    for i in range(t.residents.shape[0]):
        me = t.residents[i]
        if leaving:
            if me["leaving"] == 0:
                continue
            b.terminated[e, i] = 1
        else:
            b.active[e, i] = 1 if me["present"] == 1 and over == 0 else 0
            if b.terminated[e, i] == 1 and me["present"] == 0:
                continue  # who left keeps its last observation
        observe(t, i, tables, conflict, primitive, b.features[e, i], b.maps[e, i], b.masks[e, i])
        if leaving:
            b.masks[e, i, :] = 0
            b.masks[e, i, 0] = 1


@leaf
def count_tick(t: Town, b: Buffers, e: int) -> None:
    """Add a tick's terms to the step's and clear them."""
    for i in range(t.residents.shape[0]):
        for k in range(len(TERMS)):
            b.terms[e, i, k] += t.terms[i, k]
            t.terms[i, k] = 0.0


@entry
def gather_events(events: np.ndarray, towns: np.ndarray, out: np.ndarray) -> None:
    """The events of every town (E, K), one town after the other.  # out (Σ events,)"""
    at = 0
    for e in range(towns.shape[0]):
        for k in range(towns[e]["events"]):
            out[at] = events[e, k]
            at += 1


@entry
def add_rewards(
    active: np.ndarray,
    rewards: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    returns: np.ndarray,
    lengths: np.ndarray,
) -> bool:
    """Add a step to the returns and lengths of the lives under way; whether one of them ended.  # all (E, N)"""
    ended = False
    for e in range(active.shape[0]):
        for i in range(active.shape[1]):
            if active[e, i] != 0:
                returns[e, i] += rewards[e, i]
                lengths[e, i] += 1
                ended = ended or terminated[e, i] != 0 or truncated[e, i] != 0
    return ended


@entry
def step_towns(
    s: State,
    tables: Tables,
    b: Buffers,
    choices: np.ndarray,
    targets: np.ndarray,
    conflict: np.ndarray,
    primitive: bool,
    sights: bool,
    start_minute: int,
    film: np.ndarray,
    first: int,
    last: int,
) -> None:
    """One decision for the towns [first, last); a town that was over begins its next episode instead.

    `film (E, ticks of a step, film_bytes) u1` is written tick by tick where it is not empty.
    """
    n = s.residents.shape[1]
    for e in range(first, last):
        at = s.towns[e]["layout"]
        t = Town(  # Numba cannot return a record, so no function can make it
            s.residents[e], s.ties[e], s.objects[e], s.towns[e], s.grid[e], s.events[e], s.terms[e], s.checked[e],
            tables.nearest[at], tables.towards[at], tables.bed_steps[at], tables.buildings[at], tables.jobs[at],
            tables.affordances, tables.rules[e % tables.rules.shape[0]],
        )  # fmt: skip
        clock = t.clock
        clock["events"] = 0
        for i in range(n):
            for k in range(len(TERMS)):
                b.terms[e, i, k] = 0.0
            b.terminated[e, i] = 0
            b.illegal[e, i] = 0
        if clock["over"] == 1:
            clock["episode"] += 1
            begin_episode(t, tables, start_minute)
        else:
            decisions(t, choices[e], targets[e], primitive)
            for i in range(n):
                b.illegal[e, i] = t.residents[i]["illegal"]
            for k in range(t.rules["interval"]):
                before = clock["events"]
                if film.shape[0] > 0:
                    film_town(t, film[e, k], primitive)
                tick(t, tables.scheduled[at], primitive)
                if film.shape[0] > 0:
                    mark_quarrels(t, film[e, k], before)
                count_tick(t, b, e)
                if clock["departures"] > 0:
                    observe_town(t, b, e, tables, conflict, primitive, True)
                    departures(t)
            boundary(t, tables.start[at])
        for i in range(n):
            b.rewards[e, i] = total(b.terms[e, i])
            b.truncated[e, i] = clock["over"]
        if sights:
            observe_town(t, b, e, tables, conflict, primitive, False)
