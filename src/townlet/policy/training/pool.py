"""Several rollout workers as one collector: each holds a share of the towns, and their rollouts are joined.

Workers act without torch, with the same compiled passes as the learner: however the towns are split, the bytes they collect are
those of one collector. (A recurrent network, or one with convolutions, acts in NumPy, close to the learner's own numbers.) Every
rollout comes with the state of its worker: checkpoints are made of it, and a worker that dies is replaced and repeats its share.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from townlet.config.models import SimulationConfig
from townlet.errors import UsageError
from townlet.observations.spec import ObservationSpec
from townlet.policy.fused_network import FusedNetwork, can_fuse
from townlet.policy.inference import NumpyPolicy
from townlet.policy.jobs import ATTEMPTS, open_engine
from townlet.policy.network import NetworkSpec
from townlet.policy.training.collect import Collector, Rollout, side_by_side
from townlet.policy.training.services import RolloutCaptureService
from townlet.policy.workers import Worker, WorkerDied
from townlet.types import Array

log = logging.getLogger("townlet.training")


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
        partners = config.training.partners
        self.collector = Collector(vec, config.seed, maps=spec.sees_map, state_width=spec.state_width, partners=partners)
        self.spec, self.fused = spec, can_fuse(spec) and config.ppo.update == "fused"

    def world(self) -> dict[str, Array]:
        return self.collector.world()

    def collect(
        self, weights: Mapping[str, Array], world: Mapping[str, Array] | None, horizon: int, options: Mapping[str, Any]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """A rollout from `world` (where it differs from where this share stands), and where it ended; plain arrays."""
        if world is not None:
            self.collector.restore_world(world)
        network = FusedNetwork.of_arrays(self.spec, weights) if self.fused else NumpyPolicy(self.spec, weights)
        rollout = self.collector.collect(network, horizon, **options)
        return rollout.arrays(), self.collector.world()


class CollectorPool:
    """Drop-in for `Collector`; the workers are started when they are first needed."""

    def __init__(self, config: SimulationConfig, spec: NetworkSpec) -> None:
        training = config.training
        self._engine = open_engine(training)
        workers = training.workers or min(training.towns, self._engine.cores())
        if training.towns < workers:
            raise UsageError(f"{workers} workers share {training.towns} towns; give each at least one (training.towns)")
        edges = np.linspace(0, training.towns, workers + 1).astype(int).tolist()
        self.spec = ObservationSpec.of(config)
        self._shares = [(config, spec, first, last - first) for first, last in pairwise(edges)]
        self._workers: list[Worker] = []
        self._worlds: list[Mapping[str, Array]] = []
        self._moved: list[bool] = []  # the worker stands elsewhere than `_worlds` says

    def world(self) -> dict[str, Array]:
        """As one collector of all the towns would tell it."""
        self._start()
        return {name: np.concatenate([world[name] for world in self._worlds]) for name in self._worlds[0]}

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        """Bytes of the world and of a decision, by one town built here: it also finds out whether the scenario compiles."""
        config, spec, *_ = self._shares[0]
        one, towns = PoolShare(config, spec, 0, 1).collector, config.training.towns
        return one.world_bytes() * towns, one.decision_bytes * towns

    def world_bytes(self) -> int:
        return self._sizes[0]

    @property
    def decision_bytes(self) -> int:
        return self._sizes[1]

    def restore_world(self, arrays: Mapping[str, Array]) -> None:
        """All arrays have the towns first: each worker gets its own."""
        self._start()
        self._worlds = [
            {name: array[first : first + towns] for name, array in arrays.items()} for _, _, first, towns in self._shares
        ]
        self._moved = [True] * len(self._workers)

    def _start(self) -> None:
        if self._workers:
            return
        self._workers = [self._engine.worker(PoolShare, *share) for share in self._shares]
        self._moved = [False] * len(self._workers)
        self._worlds = [copied(world) for world in self._ask(lambda k: self._workers[k].begin(PoolShare.world))]
        self._moved = [False] * len(self._workers)

    def collect(self, actor: HasNetwork, horizon: int, **options: Any) -> Rollout:
        self._start()
        weights = self._engine.share(actor.network.arrays())

        def begin(k: int) -> None:
            world = self._worlds[k] if self._moved[k] else None
            self._workers[k].begin(PoolShare.collect, weights, world, horizon, options)

        parts = []
        for k, (rollout, world) in enumerate(self._ask(begin)):
            self._worlds[k], self._moved[k] = copied(world), False
            parts.append(rollout)
        return side_by_side(parts)

    def close(self) -> None:
        for worker in self._workers:
            worker.close()
        self._workers = []

    def _ask(self, begin: Callable[[int], None]) -> Iterator[Any]:
        """Ask all workers at once; what each gives, in order."""
        for k in range(len(self._workers)):
            begin(k)
        return (self._answer(k, begin) for k in range(len(self._workers)))

    def _answer(self, k: int, begin: Callable[[int], None]) -> Any:
        """What the worker gives; one that died is replaced, and asked again."""
        for _ in range(ATTEMPTS - 1):
            try:
                return self._workers[k].result()
            except WorkerDied as error:
                log.warning("the share of worker %d of %d is made again: %s", k + 1, len(self._workers), error)
                self._workers[k].close()
                self._workers[k] = self._engine.worker(PoolShare, *self._shares[k])
                self._moved[k] = True
                begin(k)
        return self._workers[k].result()


def copied(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Copies: an engine's arrays may lie in a store that keeps the whole answer alive as long as one of them is used."""
    return {name: array.copy() for name, array in arrays.items()}
