"""A policy that decides what was decided before: a recorded run again, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.policy.runtime import Decision
from townlet.sim.recorder import NOBODY, Decisions

Array = NDArray[Any]


class RecordedDecisions:
    """The decisions of one town, by tick; past their end everybody waits."""

    kind, has_values = "recorded", False

    def __init__(self, decisions: Decisions) -> None:
        self.decisions = decisions

    def reset(self, vec: VectorTown) -> None:
        if vec.num_towns != 1 or vec.num_residents != self.decisions.actions.shape[1]:
            raise UsageError(
                f"the decisions are of one town with {self.decisions.actions.shape[1]} residents, "
                f"this is {vec.num_towns} with {vec.num_residents}; play them in the town they were recorded in"
            )

    def act(self, vec: VectorTown) -> Decision:
        recorded, shape = self.decisions, vec.active.shape
        k = (int(vec.state.towns[0]["tick"]) - recorded.first) // vec.interval
        actions, targets = np.zeros(shape, np.int64), None
        if 0 <= k < len(recorded.actions):
            row = recorded.actions[k].astype(np.int64)
            actions[0] = np.where(row == NOBODY, 0, row)
            if recorded.targets is not None:
                targets = recorded.targets[k].astype(np.int64)[None] - 1
        return Decision(actions, np.zeros(shape, np.float32), np.zeros(shape, np.float32), None, targets)

    def memory(self) -> dict[str, Array]:
        return {}

    def recall(self, memory: Mapping[str, Array]) -> None:
        """It reads the clock and remembers nothing."""
