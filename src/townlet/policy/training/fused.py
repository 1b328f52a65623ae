"""Mini-batches turned into gradients by `policy.passes`: feed-forward networks, no graph, no temporary, all cores.

A mini-batch is cut into as many shards as the config says, whatever the number of threads. Each has a gradient of its own, and
they are added in order. So one thread and four give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from townlet.config.learning import PPOConfig
from townlet.envs.threads import Call
from townlet.policy import passes
from townlet.policy.fused_network import FusedNetwork, Observations, Workspace, zeros_together
from townlet.policy.network import NetworkSpec
from townlet.policy.training.batches import Coefficients, check_observed
from townlet.policy.training.numerics import STD_FLOOR, Optimizer, Parameters
from townlet.policy.trajectory import Trajectory
from townlet.types import Array, Doubles, Floats

NOTHING = np.zeros(0, np.float32)


@dataclass(frozen=True)
class Rows:
    """R decisions that count."""

    seen: Observations
    masks: NDArray[np.bool_]  # (R, A + 1 padded): the value and what is padding are never masked
    columns: Mapping[str, Array]  # (R, …)


class Part(NamedTuple):
    """A mini-batch: rows order[begin:end]."""

    rows: Rows
    order: NDArray[np.int64]
    begin: int
    end: int


class Fused:
    """Gradients are added to the optimiser's; its vector holds the weights."""

    def __init__(
        self, spec: NetworkSpec, names: list[str], optimizer: Optimizer, statistics: Mapping[str, Array], ppo: PPOConfig,
        *, threads: int, shards: int,
    ) -> None:  # fmt: skip
        self.spec, self.ppo, self.shards = spec, ppo, shards
        self.network = FusedNetwork(spec, names, threads)
        self._statistics = statistics
        self._vector, self._gradient = optimizer.vector.numpy(), optimizer.gradient.numpy()
        self._gradients = zeros_together(shards * self.network.layout.wide)[0].reshape(shards, -1)

    def refresh(self) -> FusedNetwork:
        """The network with the weights and statistics as they are now."""
        self.network.load(self._vector, self._statistics)
        return self.network

    # --- acting -----------------------------------------------------------------------------------------------------
    def forward(self, features: Floats, maps: Array | None, state: Floats) -> tuple[Floats, Floats, Floats]:
        out = self.refresh().outputs(features, maps)
        return out[:, :-1], out[:, -1], state

    def evaluate(self, batch: Trajectory) -> tuple[Floats, Floats]:
        check_observed(self.spec, batch)
        steps, width = batch.features.shape[:2]
        out = self.refresh().outputs(batch.features, batch.maps)
        log_probs, masks = np.empty((len(out), self.spec.actions), np.float32), np.asarray(batch.masks)
        passes.settle(out, np.require(masks.reshape(log_probs.shape), np.bool_, ["C", "W"]), log_probs)
        return log_probs.reshape(steps, width, -1), out[:, -1].reshape(steps, width)

    # --- data -------------------------------------------------------------------------------------------------------
    def data(self, batch: Trajectory, active: NDArray[np.bool_] | None, columns: Mapping[str, Array]) -> Rows:
        check_observed(self.spec, batch)
        chosen = None if active is None or active.all() else np.flatnonzero(active)
        room = "cloning" if "expert" in columns else "ppo"
        seen = self.refresh().observed(batch.features, batch.maps, chosen, room=room)

        def rows(array: Array) -> Array:
            flat = array.reshape(-1, *array.shape[2:])
            return np.require(flat if chosen is None else flat.take(chosen, axis=0), requirements=["C", "W"])

        masks = np.ones((len(seen.x), self.network.layout.out.padded), np.bool_)
        masks[:, : self.spec.actions] = rows(np.asarray(batch.masks))
        return Rows(seen, masks, {name: rows(array) for name, array in columns.items()})

    def size(self, data: Rows) -> tuple[int, int]:
        return len(data.masks), 1

    def parts(self, data: Rows, order: NDArray[np.int64], parts: int, room: str) -> Iterator[Part]:
        for begin, end in pairwise(np.linspace(0, len(order), parts + 1).astype(int).tolist()):
            yield Part(data, order, begin, end)

    # --- gradients --------------------------------------------------------------------------------------------------
    def ppo_terms(self, part: Part, with_: Coefficients, weight: float) -> list[float]:
        columns, count = part.rows.columns, part.end - part.begin
        adv_mean, adv_std = passes.moments(columns["advantages"], part.order, part.begin, part.end)
        mean, inverse = (adv_mean, 1.0 / (adv_std + STD_FLOOR)) if self.ppo.advantage_normalization else (0.0, 1.0)
        numbers = [mean, inverse, with_.clip, with_.value, with_.entropy, with_.value_clip or 0.0, weight / count]
        given = [columns[name] for name in ("actions", "log_probs", "advantages", "returns", "values")]
        sums = self._learn(passes.learn_ppo, part, len(passes.PPO_SUMS), *given, np.array(numbers, np.float32))
        policy, value, spread, *others = (sums / count).tolist()
        loss = policy + with_.value * value - with_.entropy * spread
        return [policy, value, spread, *others, adv_mean, adv_std, loss]

    def cloning_terms(self, part: Part, value_coef: float, weight: float) -> list[float]:
        columns, count = part.rows.columns, part.end - part.begin
        returns = columns["returns"] if value_coef > 0 and "returns" in columns else NOTHING
        given = [columns["expert"], returns, np.float32(value_coef), np.float32(weight / count)]
        sums = self._learn(passes.learn_cloning, part, len(passes.CLONING_SUMS), *given)
        crossed, error, hits = (sums / count).tolist()
        return [crossed, error, hits, float(count), crossed + value_coef * error]

    def _learn(self, learn: Any, part: Part, terms: int, *given: Any) -> Doubles:
        """Every shard by one of the threads; their gradients and sums in order."""
        network, layout, gradients = self.refresh(), self.network.layout, self._gradients
        (seen, masks), sums = (part.rows.seen, part.rows.masks), np.zeros((self.shards, terms))
        edges = part.begin + (part.end - part.begin) * np.arange(self.shards + 1) // self.shards
        threads = min(network.threads, self.shards)

        def calls(space: Workspace, first: int) -> list[Call]:
            return [Call(learn, (
                layout.plan, space.wide, space.turned, space.act, space.grad, *space.learning, *seen,
                layout.places, part.order, edges, first, threads, masks, *given, gradients, sums,
            ))]  # fmt: skip

        network.run(calls, threads)
        passes.collect(gradients, layout.runs, self._gradient)
        return np.asarray(sums.sum(axis=0))

    def weight(self, part: Part) -> float:
        return float(part.end - part.begin)

    def watched(self, part: Part) -> Array:
        return np.asarray(part.rows.columns["watched"][part.order[part.begin : part.end]])


class FusedOptimizer(Optimizer):
    """The same steps, each a call."""

    def __init__(self, parameters: Parameters, kind: str, epsilon: float) -> None:
        super().__init__(parameters, kind, epsilon)
        self._arrays = [each.numpy() for each in (self.vector, self.gradient, self.first, self.second)]

    def step(self, rate: float, bound: float, decay: float = 0.0) -> float:
        vector, gradient, first, second = self._arrays
        decoupled, (of_first, of_second), steps = self.kind == "adamw", self.BETAS, self.steps + 1
        lost = np.float32(rate * decay if decoupled else decay)
        norm: float = passes.descend(
            vector, gradient, first, second, bound, rate, lost, decoupled, self.kind != "sgd", self.BETAS,
            np.float32(self.epsilon), 1.0 - of_first**steps, 1.0 - of_second**steps,
        )  # fmt: skip
        self.steps += math.isfinite(norm)
        return norm
