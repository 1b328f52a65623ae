"""The compiled step of a batch of towns: decisions, the ticks of an interval, rewards summed, observations written."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from townlet.observations.encode import observe
from townlet.world._jit import kernel
from townlet.world.rng import POLICY, key, uniform
from townlet.world.state import TERMS, Array, State, Tables, Town
from townlet.world.tick import begin_episode, boundary, decisions, departures, tick, view


class Buffers(NamedTuple):
    """What a caller owns and a step writes."""

    features: Array  # (E, N, F) f4
    maps: Array  # (E, N, C, H, W) u1; C = 0 for a variant without a map
    masks: Array  # (E, N, A) u1
    active: Array  # (E, N) u1: the row takes a true decision now
    rewards: Array  # (E, N) f4
    terms: Array  # (E, N, T) f8
    terminated: Array  # (E, N) u1
    truncated: Array  # (E, N) u1
    illegal: Array  # (E, N) u1


@kernel
def observe_town(t: Town, tables: Tables, b: Buffers, e: int, conflict: np.ndarray, primitive: bool) -> None:
    over = t.clock[0]["over"]
    for i in range(t.residents.shape[0]):
        b.active[e, i] = 1 if t.residents[i]["present"] == 1 and over == 0 else 0
        if b.terminated[e, i] == 0 or t.residents[i]["present"] == 1:  # who left keeps its last observation
            observe(t, i, tables.circle, conflict, primitive, b.features[e, i], b.maps[e, i], b.masks[e, i])


@kernel
def count_tick(t: Town, b: Buffers, e: int) -> None:
    """Add a tick's terms to the step's and clear them."""
    for i in range(t.residents.shape[0]):
        for k in range(len(TERMS)):
            b.terms[e, i, k] += t.terms[i, k]
            t.terms[i, k] = 0.0


@kernel
def step_reward(b: Buffers, e: int, i: int) -> float:
    """The reward of a step is the sum of its terms, in order."""
    reward = 0.0
    for k in range(len(TERMS)):
        reward += b.terms[e, i, k]
    return reward


@kernel
def last_sights(t: Town, tables: Tables, b: Buffers, e: int, conflict: np.ndarray, primitive: bool) -> None:
    """Whoever leaves with this tick: terminated, and its last observation."""
    for i in range(t.residents.shape[0]):
        if t.residents[i]["leaving"] == 1:
            b.terminated[e, i] = 1
            observe(t, i, tables.circle, conflict, primitive, b.features[e, i], b.maps[e, i], b.masks[e, i])
            b.masks[e, i, :] = 0
            b.masks[e, i, 0] = 1


@kernel
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
    first: int,
    last: int,
) -> None:
    """One decision for the towns [first, last); a town that was over begins its next episode instead."""
    n = s.residents.shape[1]
    for e in range(first, last):
        t = view(s, tables, e)
        clock = t.clock[0]
        clock["events"] = 0
        b.terms[e] = 0.0
        b.terminated[e] = 0
        b.truncated[e] = 0
        b.illegal[e] = 0
        if clock["over"] == 1:
            clock["episode"] += 1
            begin_episode(t, tables.start_ties[clock["layout"]], start_minute)
        else:
            decisions(t, choices[e], targets[e], primitive)
            for i in range(n):
                b.illegal[e, i] = t.residents[i]["illegal"]
            for _ in range(t.rules[0]["interval"]):
                tick(t, primitive)
                count_tick(t, b, e)
                if clock["departures"] > 0:
                    last_sights(t, tables, b, e, conflict, primitive)
                    departures(t)
            boundary(t)
        for i in range(n):
            b.rewards[e, i] = step_reward(b, e, i)
            if clock["over"] == 1 and t.residents[i]["present"] == 1:
                b.truncated[e, i] = 1
        if sights:
            observe_town(t, tables, b, e, conflict, primitive)


@kernel
def reset_towns(
    s: State,
    tables: Tables,
    b: Buffers,
    conflict: np.ndarray,
    primitive: bool,
    start_minute: int,
    first: int,
    last: int,
) -> None:
    for e in range(first, last):
        t = view(s, tables, e)
        begin_episode(t, tables.start_ties[t.clock[0]["layout"]], start_minute)
        b.terms[e] = 0.0
        b.rewards[e] = 0.0
        b.terminated[e] = 0
        b.truncated[e] = 0
        b.illegal[e] = 0
        observe_town(t, tables, b, e, conflict, primitive)


@kernel
def draw_uniform(s: State, index: int, out: np.ndarray) -> None:
    """One policy draw per town and resident for the coming decision: ``out (E, N)`` float64."""
    for e in range(out.shape[0]):
        clock = s.towns[e]
        k = key(clock["seed"], clock["id"], POLICY, clock["episode"] * 1000003 + clock["tick"])
        for i in range(out.shape[1]):
            out[e, i] = uniform(k, i, index)
