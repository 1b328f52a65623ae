"""Who decides for whom: policies by resident, the same for a whole batch of towns."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.policy.runtime import Decision, Policy

NOBODY = -1


class Seating:
    """A policy made of policies: the first pattern that fits a resident's id decides for it (`alice`, `newcomer_*`, `*`)."""

    has_values = False

    def __init__(self, vec: VectorTown, policies: Mapping[str, Policy]) -> None:
        if "*" not in policies:
            raise UsageError(f"nobody decides for the residents beside {', '.join(policies)}; add '*=scripted' or another policy")
        order = sorted(policies, key=lambda pattern: (pattern == "*", "*" in pattern))
        self.patterns = tuple(order)
        self.policies = tuple(policies[pattern] for pattern in order)
        self.kind = "+".join(dict.fromkeys(policy.kind for policy in self.policies))
        self.reset(vec)
        ids = {vec.resident_id(0, slot) for slot in range(vec.num_residents)}
        for pattern in order:
            if "*" not in pattern and not pattern.startswith("newcomer_") and pattern not in ids:
                raise UsageError(f"no resident is called {pattern!r}; this town has {', '.join(sorted(ids))}")

    def reset(self, vec: VectorTown) -> None:
        for policy in self.policies:
            policy.reset(vec)
        self.seat = np.full((vec.num_towns, vec.num_residents), NOBODY, dtype=np.int64)  # index into policies
        self.life: NDArray[Any] = np.full(self.seat.shape, NOBODY, dtype=np.int64)

    def act(self, vec: VectorTown) -> Decision:
        self._take_seats(vec)
        decisions = [policy.act(vec) for policy in self.policies]
        actions = np.choose(self.seat, [decision.actions for decision in decisions])
        log_probs = np.choose(self.seat, [decision.log_probs for decision in decisions])
        targets = None
        if any(decision.targets is not None for decision in decisions):
            none = np.full(actions.shape, NOBODY, dtype=np.int64)
            targets = np.choose(self.seat, [none if d.targets is None else d.targets for d in decisions])
        return Decision(actions, log_probs, np.zeros(actions.shape, dtype=np.float32), None, targets)

    def _take_seats(self, vec: VectorTown) -> None:
        """Only lives that have changed since the last decision are looked up by name."""
        life = vec.state.residents["life"]
        for town, slot in np.argwhere(life != self.life):
            name = vec.resident_id(int(town), int(slot))
            fits = (i for i, pattern in enumerate(self.patterns) if fnmatchcase(name, pattern))
            self.seat[town, slot] = next(fits)
        self.life = life.copy()
