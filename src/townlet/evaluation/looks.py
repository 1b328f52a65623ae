"""Does a network look at conflict? It is measured a second time, shown at every decision the conflict fields of somebody else.

What a policy loses by that is what its sight of conflict is worth to it; a policy that never looked loses nothing.
"""

from __future__ import annotations

import numpy as np

from townlet.envs.vector import VectorTown
from townlet.observations.spec import CONFLICT
from townlet.policy.runtime import Decision, NetworkPolicy
from townlet.types import Array
from townlet.world.rng import SHUFFLE

CONFLICT_CHANNELS = ("reservations", "rivals")


class ShuffledConflict:
    """A network in the same towns with the same draws, but with the conflict fields and map channels of other residents."""

    has_values = True

    def __init__(self, policy: NetworkPolicy) -> None:
        self.policy, self.kind = policy, policy.kind

    def reset(self, vec: VectorTown) -> None:
        self.policy.reset(vec)
        self._columns = np.array(vec.spec.columns(CONFLICT))
        shown = vec.spec.map_channels
        self._planes = [shown.index(name) for name in CONFLICT_CHANNELS if name in shown]

    def act(self, vec: VectorTown) -> Decision:
        features, maps = vec.features, vec.maps
        rows = np.flatnonzero(vec.active)
        others = rows[np.argsort(vec.draws(SHUFFLE, self.policy.seed).ravel()[rows], kind="stable")]
        vec.features = _swapped(features, rows, others, self._columns)
        if maps is not None and self._planes:
            vec.maps = _swapped(maps, rows, others, np.array(self._planes))
        try:
            return self.policy.act(vec)
        finally:
            vec.features, vec.maps = features, maps


def _swapped(seen: Array, rows: Array, others: Array, columns: Array) -> Array:
    """A copy of (E, N, C, …) whose rows have these columns of the others."""
    copy = seen.copy()
    flat = copy.reshape(-1, *copy.shape[2:])
    flat[np.ix_(rows, columns)] = seen.reshape(flat.shape)[np.ix_(others, columns)]
    return copy
