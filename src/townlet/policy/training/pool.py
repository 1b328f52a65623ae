"""Several rollout workers as one collector: each holds a share of the towns, and their rollouts are joined.

Workers act without torch, by the passes that the learner acts with: however the towns are split, they collect the bytes that one
collector would. (A recurrent network, or one with convolutions, acts in NumPy, near the learner's own numbers.) The state of
every worker comes back with its rollout: checkpoints are made of it, and a worker that dies is replaced and makes the lost
rollout again.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from townlet.config.models import SimulationConfig
from townlet.errors import UsageError
from townlet.observations.spec import ObservationSpec
from townlet.policy.fused import FusedNetwork, can_fuse
from townlet.policy.inference import NumpyPolicy
from townlet.policy.network import NetworkSpec
from townlet.policy.training.collect import Collector, Rollout
from townlet.policy.training.services import RolloutCaptureService
from townlet.policy.trajectory import joined
from townlet.policy.workers import ENGINES, RolloutWorker, WorkerDied, worker_count
from townlet.sim.tally import EventTally
from townlet.types import Array

ATTEMPTS = 3  # times a rollout is tried before the run ends


class HasWeights(Protocol):
    def arrays(self) -> dict[str, Array]: ...


class HasNetwork(Protocol):
    """Whatever acts with a network whose weights can be sent."""

    @property
    def network(self) -> HasWeights: ...


class PoolShare:
    """What lives in a worker: its towns, their collector, and the network as it was last sent."""

    def __init__(self, config: SimulationConfig, spec: NetworkSpec, first_town: int, towns: int) -> None:
        vec = RolloutCaptureService(config).towns(towns, first_town=first_town, stagger=True)
        self.collector = Collector(vec, config.seed, maps=spec.sees_map, state_width=spec.state_width)
        self.spec, self.fused = spec, can_fuse(spec) and config.ppo.update == "fused"

    def world(self) -> dict[str, Array]:
        return self.collector.world()

    def collect(
        self, weights: Mapping[str, Array], world: Mapping[str, Array] | None, horizon: int, options: Mapping[str, Any]
    ) -> tuple[Rollout, dict[str, Array]]:
        """A rollout from `world` (where it differs from where this share stands), and where it ended."""
        if world is not None:
            self.collector.restore_world(world)
        network = FusedNetwork.of_arrays(self.spec, weights) if self.fused else NumpyPolicy(self.spec, weights)
        rollout = self.collector.collect(network, horizon, **options)
        return rollout, self.collector.world()


class CollectorPool:
    """Drop-in for `Collector`; the workers are started when they are first needed."""

    def __init__(self, config: SimulationConfig, spec: NetworkSpec, observed: ObservationSpec) -> None:
        training = config.training
        workers = worker_count(training)
        if training.towns < workers:
            raise UsageError(f"{workers} workers share {training.towns} towns; give each at least one (training.towns).")
        edges = np.linspace(0, training.towns, workers + 1).astype(int).tolist()
        self.spec = observed
        self._make = ENGINES[training.engine]
        self._shares = [(config, spec, first, last - first) for first, last in pairwise(edges)]
        self._workers: list[RolloutWorker] = []
        self._worlds: list[dict[str, Array]] = []
        self._moved: list[bool] = []  # the worker stands elsewhere than `_worlds` says

    def world(self) -> dict[str, Array]:
        self._start()
        return {f"w{k}_{name}": array for k, world in enumerate(self._worlds) for name, array in world.items()}

    def world_bytes(self) -> int:
        """By one town, built here: it also finds out whether the scenario can be compiled."""
        config, spec, *_ = self._shares[0]
        return PoolShare(config, spec, 0, 1).collector.world_bytes() * config.training.towns

    def restore_world(self, arrays: Mapping[str, Array]) -> None:
        self._start()
        for k in range(len(self._workers)):
            mark = f"w{k}_"
            self._worlds[k] = {n.removeprefix(mark): a for n, a in arrays.items() if n.startswith(mark)}
            self._moved[k] = True

    def _start(self) -> None:
        if self._workers:
            return
        self._workers = [self._make(PoolShare, *share) for share in self._shares]
        for worker in self._workers:
            worker.begin(PoolShare.world)
        self._worlds = [worker.result() for worker in self._workers]
        self._moved = [False] * len(self._workers)

    def collect(self, actor: HasNetwork, horizon: int, **options: Any) -> Rollout:
        self._start()
        weights = actor.network.arrays()
        for k in range(len(self._workers)):
            self._ask(k, weights, horizon, options)
        parts = [self._answer(k, weights, horizon, options) for k in range(len(self._workers))]
        return parts[0] if len(parts) == 1 else side_by_side(parts)

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
        self._workers = []

    def _ask(self, k: int, weights: Mapping[str, Array], horizon: int, options: Mapping[str, object]) -> None:
        self._workers[k].begin(PoolShare.collect, weights, self._worlds[k] if self._moved[k] else None, horizon, options)

    def _answer(self, k: int, weights: Mapping[str, Array], horizon: int, options: Mapping[str, object]) -> Rollout:
        for attempt in range(ATTEMPTS):
            try:
                answer: tuple[Rollout, dict[str, Array]] = self._workers[k].result()
                self._worlds[k], self._moved[k] = answer[1], False
                return answer[0]
            except WorkerDied:
                if attempt == ATTEMPTS - 1:
                    raise
                self._workers[k].close()
                self._workers[k] = self._make(PoolShare, *self._shares[k])
                self._moved[k] = True
                self._ask(k, weights, horizon, options)
        raise AssertionError("unreachable")


def side_by_side(parts: list[Rollout]) -> Rollout:
    """Rollouts of different towns as one, towns in order."""
    tally = EventTally()
    for part in parts:
        tally.merge(part.tally)
    returns = [value for part in parts for value in part.life_returns]
    lengths = [value for part in parts for value in part.life_lengths]
    return Rollout(**joined(parts), tally=tally, life_returns=returns, life_lengths=lengths)
