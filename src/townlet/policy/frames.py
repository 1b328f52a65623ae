"""One life as it was recorded, before it becomes a sample.

Axes: T decisions, F features, A actions, C map channels, H and W the map window.
"""

from __future__ import annotations

from typing import NamedTuple

from townlet.policy.sample import Array


class Life(NamedTuple):
    """Decisions start to stop of one resident in one town of a buffer."""

    town: int
    slot: int
    start: int
    stop: int


class Frames(NamedTuple):
    """One life, decision by decision; `values` has the bootstrap value last."""

    agent_id: str
    town: int
    episode: int
    life: int
    first_tick: int
    features: Array  # (T, F) f4
    maps: Array | None  # (T, C, H, W) u1
    masks: Array  # (T, A) bool
    last_features: Array  # (F,) f4: the observation after the last action
    last_map: Array | None  # (C, H, W) u1
    last_mask: Array  # (A,) bool
    actions: Array  # (T,) i8
    log_probs: Array  # (T,) f4
    values: Array  # (T + 1,) f4
    rewards: Array  # (T,) f4
    terms: Array  # (10,) f8, summed over the life
    terminated: Array  # (T,) bool
    truncated: Array  # (T,) bool
    expert: Array | None  # (T,) i8
