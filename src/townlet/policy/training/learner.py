"""The learner: one network, one optimiser, one update. It knows arrays, not towns; CartPole goes through the same code."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from townlet.config.learning import PPOConfig
from townlet.errors import CheckpointError, DivergedError, UsageError
from townlet.policy.fused_network import can_fuse
from townlet.policy.inference import Acted, Acting
from townlet.policy.models import ConflictAwarePolicyNetwork
from townlet.policy.network import VARIANCE_FLOOR, NetworkSpec
from townlet.policy.training import estimates, numerics
from townlet.policy.training.autograd import Autograd, check_device
from townlet.policy.training.batches import (
    PPO_TERMS,
    CloningStats,
    Coefficients,
    LearnerState,
    UpdateStats,
    decisions_of,
    legal_rows,
    permutation,
    summary,
    watched_figures,
)
from townlet.policy.training.bfloat16 import check_precision
from townlet.policy.training.fused import Fused, FusedOptimizer
from townlet.policy.trajectory import Trajectory
from townlet.types import Array, Doubles, Floats, Record

MINIBATCH = (*PPO_TERMS, "loss_total", "transitions", "grad_norm")
PPO_STREAM, CLONING_STREAM, AUXILIARY_STREAM = 1, 2, 3
VALUE_HORIZON = 10  # statistics of returns look back over about this many batches


Data = TypeVar("Data")
Part = TypeVar("Part")


class Passes(Protocol[Data, Part]):
    """What turns mini-batches into gradients, in its own form of the data; values are in units of the running statistics."""

    def forward(self, features: Floats, maps: Array | None, state: Floats) -> tuple[Floats, Floats, Floats]: ...
    def evaluate(self, batch: Trajectory) -> tuple[Floats, Floats]: ...
    def data(self, batch: Trajectory, active: NDArray[np.bool_] | None, columns: Mapping[str, Array]) -> Data: ...
    def size(self, data: Data) -> tuple[int, int]: ...  # things to shuffle, decisions in each
    def parts(self, data: Data, order: NDArray[np.int64], parts: int, room: str) -> Iterator[Part]: ...
    def weight(self, part: Part) -> float: ...  # decisions that count
    def watched(self, part: Part) -> Array: ...

    # Both add weight × the gradient of the loss to the optimiser's, and give the numbers of PPO_TERMS, or cross-entropy, value
    # loss, accuracy and rows; then the loss.
    def ppo_terms(self, part: Part, with_: Coefficients, weight: float) -> list[float]: ...
    def cloning_terms(self, part: Part, value_coef: float, weight: float) -> list[float]: ...


def is_fused(spec: NetworkSpec, ppo: PPOConfig, device: str = "cpu") -> bool:
    """Whether an update is made by the compiled passes: where the config asks for them and they know the network."""
    return ppo.update == "fused" and device == "cpu" and can_fuse(spec) and not ppo.compile and not ppo.bf16


class PPOLearner(Acting):
    """`workers` threads share the shards of a mini-batch; how many there are changes no bit, the number of shards does."""

    def __init__(
        self,
        spec: NetworkSpec,
        ppo: PPOConfig,
        *,
        seed: int = 0,
        threads: int = 1,
        workers: int = 1,
        shards: int = 4,
        device: str = "cpu",
    ) -> None:
        check_device(device)
        check_precision(ppo)
        torch.set_num_threads(threads)
        self.spec, self.ppo, self.seed = spec, ppo, seed
        self.network = ConflictAwarePolicyNetwork(spec, seed, device)
        self.minibatches: list[Record] = []  # MINIBATCH of each mini-batch of the last update, and what is `watched`
        self.updates = 0  # calls of update and clone: the key of every permutation
        self.gradient_steps = 0
        self.fused = is_fused(spec, ppo, device)
        named, kind = dict(self.network.named_parameters()), FusedOptimizer if self.fused else numerics.Optimizer
        self.optimizer = kind(list(named.values()), ppo.optimizer, ppo.adam_epsilon)
        self._statistics = {name: buffer.numpy() for name, buffer in self.network.named_buffers()}  # they share the memory
        self.passes: Passes[Any, Any] = Autograd(self.network, ppo)
        if self.fused:
            self.passes = Fused(
                spec, list(named), self.optimizer, self._statistics, ppo, threads=min(workers, shards), shards=shards
            )

    @property
    def recurrent(self) -> bool:
        return self.spec.recurrent != "none"

    # --- acting -----------------------------------------------------------------------------------------------------
    def act(
        self,
        features: Floats,
        maps: Array | None,
        masks: Array,
        *,
        draws: Doubles | None = None,
        state: Floats | None = None,
        starts: Array | None = None,
    ) -> Acted:
        if isinstance(self.passes, Fused):
            return self.passes.refresh().act(features, maps, masks, draws=draws)
        return super().act(features, maps, masks, draws=draws, state=state, starts=starts)

    def answer(self, features: Floats, maps: Array | None, state: Floats) -> tuple[Floats, Floats, Floats]:
        logits, values, carried = self.passes.forward(features, maps, state)
        return logits, self._in_units_of_return(values), carried

    def evaluate(self, batch: Trajectory) -> tuple[Floats, Floats]:
        """Masked log-probabilities (T, B, A) and values (T, B) of every row, active or not, also of what follows the last."""
        log_probs, values = self.passes.evaluate(batch)
        return log_probs, self._in_units_of_return(values)

    # --- learning ---------------------------------------------------------------------------------------------------
    def update(
        self, batch: Trajectory, *, progress: float = 0.0, bc_batch: Trajectory | None = None, bc_weight: float = 0.0
    ) -> UpdateStats:
        """`num_epochs` passes over the active rows in mini-batches; `progress` in [0, 1] moves the schedules."""
        ppo, batch = self.ppo, decisions_of(batch)
        if batch.masks is None or batch.advantages is None or batch.returns is None:
            raise UsageError("the batch lacks masks, advantages or returns; `sources.with_advantages` works them out")
        active, illegal = legal_rows(batch.active, batch.masks, batch.actions)
        if not active.any():
            raise UsageError("the batch has no active row with a legal action; nothing can be learned from it")
        lr, coefficients = self._scheduled(progress)
        chosen = np.flatnonzero(active)
        values, returns, rewards, advantages = (
            column.reshape(-1)[chosen] for column in (batch.values, batch.returns, batch.rewards, batch.advantages)
        )
        seen = self._sums("observation", batch.features, chosen) if self.spec.normalize_observations else None
        if seen is not None:
            self._require_finite([float(seen[1].sum())], "a feature")
        if ppo.normalize_values:
            self.track_returns(returns)
        columns = {"actions": batch.actions, "log_probs": batch.log_probs, "advantages": batch.advantages}
        columns |= {"returns": self._normalised(batch.returns), "values": self._normalised(batch.values)}
        if batch.watched is not None:
            columns["watched"] = batch.watched
        data = self.passes.data(batch, active, columns)
        cloning = None
        if bc_batch is not None and bc_weight > 0.0 and bc_batch.rows > 0:
            cloning = self._cloning_data(decisions_of(bc_batch))

        length, parts = self._split(data, ppo.mini_batch_size, ppo.num_mini_batches)
        orders = [permutation(self.seed, PPO_STREAM, self.updates, epoch, length) for epoch in range(ppo.num_epochs)]
        table: list[list[float]] = []
        grads: list[float] = []
        epoch, stopped = 0, False
        self.minibatches = []
        for epoch, order in enumerate(orders):
            examples = self._auxiliary(cloning, epoch, parts)
            waiting = 0.0  # weight of the mini-batches whose gradients wait for a step
            for index, part in enumerate(self.passes.parts(data, order, parts, "ppo")):
                weight = 1.0 if ppo.grad_accumulation == 1 else self.passes.weight(part)
                *terms, loss = self.passes.ppo_terms(part, coefficients, weight)
                example = next(examples, None)
                extra = [0.0, 0.0]
                if example is not None:
                    crossed, _, accuracy, *_ = self.passes.cloning_terms(example, 0.0, bc_weight * weight)
                    loss, extra = loss + bc_weight * crossed, [crossed, accuracy]
                numbers = [*terms, loss, *extra]
                self._require_finite(numbers, "the loss")
                table.append(numbers)
                row: Record = dict(zip(MINIBATCH, [*terms, loss, self.passes.weight(part), 0.0]))
                self.minibatches.append(row if batch.watched is None else row | watched_figures(self.passes.watched(part)))
                if ppo.target_kl is not None and numbers[PPO_TERMS.index("kl_k3")] > ppo.target_kl:
                    stopped = True
                    break
                waiting += weight
                if (index + 1) % ppo.grad_accumulation == 0 or index == parts - 1:
                    grads.append(self._step(waiting, lr))
                    waiting = 0.0
                    for row in self.minibatches[-(index % ppo.grad_accumulation + 1) :]:
                        row["grad_norm"] = grads[-1]
            if stopped:
                self.optimizer.gradient.zero_()
                break
        if seen is not None:
            self._take_in("observation", *seen)
        self.updates += 1
        rows = len(chosen)
        return UpdateStats(
            updates=len(grads),
            minibatches=len(table),
            epochs=epoch + 1,
            transitions=rows,
            stopped_early=stopped,
            explained_variance=estimates.explained_variance(values, returns),
            reward_advantage_corr=estimates.correlation(rewards, advantages),
            mask_fill_mean=(np.count_nonzero(batch.masks) - np.count_nonzero(batch.masks[~active]))
            / (rows * batch.masks.shape[-1]),
            illegal_actions=illegal,
            lr=lr,
            clip_param=coefficients.clip,
            entropy_coef=coefficients.entropy,
            bc_weight=bc_weight,
            **summary(np.array(table), np.array(grads)),
        )

    def clone(
        self,
        batch: Trajectory,
        *,
        learning_rate: float,
        batch_size: int,
        weight_decay: float = 0.0,
        value_coef: float = 0.5,
    ) -> CloningStats:
        """One pass of behaviour cloning: masked cross-entropy on the expert's choice + value_coef × value regression."""
        batch = decisions_of(batch)
        if batch.rows == 0:
            raise UsageError("the demonstrations have no active row; nothing can be learned from them")
        if batch.returns is not None and self.ppo.normalize_values:
            self.track_returns(batch.returns[batch.active.astype(bool)])
        data = self._cloning_data(batch)
        length, parts = self._split(data, batch_size, 1)
        order = permutation(self.seed, CLONING_STREAM, self.updates, 0, length)
        table: list[list[float]] = []
        grads: list[float] = []
        for part in self.passes.parts(data, order, parts, "ppo"):
            table.append(self.passes.cloning_terms(part, value_coef, 1.0))
            self._require_finite(table[-1], "the cloning loss")
            grads.append(self._step(1.0, learning_rate, weight_decay))
        self.updates += 1
        numbers = np.array(table)
        crossed, error, accuracy = (numbers[:, :3] * numbers[:, 3:4]).sum(0) / numbers[:, 3].sum()
        return CloningStats(len(grads), batch.rows, float(crossed), float(error), float(accuracy), float(np.mean(grads)))

    def assess_cloning(self, batch: Trajectory) -> tuple[CloningStats, NDArray[np.int64]]:
        """The same measures without learning, and the greedy choices (T, B)."""
        batch = decisions_of(batch)
        log_probs, values = self.evaluate(batch)
        active = batch.active.astype(bool)
        choices = log_probs.argmax(-1)
        if not active.any():
            return CloningStats(0, 0, 0.0, 0.0, 0.0, 0.0), choices
        chosen = np.take_along_axis(log_probs, batch.experts[..., None], -1)[..., 0]
        error = 0.0
        if batch.returns is not None:
            gap = (values - batch.returns)[active].astype(np.float64) / self._value_scale()[1]
            error = float((gap**2).mean())
        loss = -float(chosen[active].mean(dtype=np.float64))
        return CloningStats(0, batch.rows, loss, error, float((choices == batch.expert)[active].mean()), 0.0), choices

    # --- statistics that live with the weights ----------------------------------------------------------------------
    def track_observations(self, rows: Floats) -> None:
        """Take feature rows (R, F) into the running statistics that normalise observations."""
        self._take_in("observation", *self._sums("observation", rows.reshape(-1, self.spec.features)))

    def track_returns(self, returns: Floats) -> None:
        """Take returns (R,) into the value statistics. The value head is rescaled so that no predicted value changes; the first
        returns ever seen instead give the untrained head its units."""
        network = self.network
        sums = self._sums("value", returns.reshape(-1, 1))
        self._require_finite([float(sums[1][0])], "a return")
        first = float(network.value_count[0]) == 0.0
        old_mean, old_scale = self._value_scale()
        self._take_in("value", *sums, limit=VALUE_HORIZON * returns.size)
        if first:
            return
        mean, scale = self._value_scale()
        with torch.no_grad():
            network.value.weight.mul_(old_scale / scale)
            network.value.bias.mul_(old_scale / scale).add_((old_mean - mean) / scale)

    def _sums(self, prefix: str, rows: Floats, chosen: NDArray[np.int64] | None = None) -> tuple[Doubles, Doubles, int]:
        """What rows (…, width), all or those chosen, add to the statistics of that prefix, and how many they are."""
        tracked, flat = estimates.RunningMeanStd.from_arrays(self._statistics, prefix), rows.reshape(-1, rows.shape[-1])
        return *tracked.sums(flat, chosen), len(flat if chosen is None else chosen)

    def _take_in(self, prefix: str, first: Array, second: Array, added: int, limit: float = math.inf) -> None:
        tracked = estimates.RunningMeanStd.from_arrays(self._statistics, prefix)
        tracked.take_in(first, second, added, limit)
        for name, array in tracked.arrays(prefix).items():
            self._statistics[name][...] = array

    def _value_scale(self) -> tuple[float, float]:
        return float(self.network.value_mean[0]), math.sqrt(float(self.network.value_var[0]) + VARIANCE_FLOOR)

    def _in_units_of_return(self, values: Floats) -> Floats:
        mean, scale = self._value_scale()
        return (values * scale + mean).astype(np.float32)

    def _normalised(self, returns: Floats) -> Floats:
        mean, scale = self._value_scale()
        return ((returns - mean) / scale).astype(np.float32)

    def _scheduled(self, progress: float) -> tuple[float, Coefficients]:
        """The learning rate and what weighs in the loss, at this point of the run."""
        ppo = self.ppo
        entropy_end = ppo.entropy_coef if ppo.entropy_final is None else ppo.entropy_final
        no_units = ppo.normalize_values and float(self.network.value_count[0]) == 0.0  # before the first statistics
        return estimates.linear_schedule(ppo.learning_rate, 0.0 if ppo.lr_anneal else ppo.learning_rate, progress), Coefficients(
            clip=estimates.linear_schedule(ppo.clip_param, 0.0 if ppo.clip_anneal else ppo.clip_param, progress),
            entropy=estimates.linear_schedule(ppo.entropy_coef, entropy_end, progress),
            value=ppo.value_loss_coef,
            value_clip=None if no_units else ppo.value_clip,
        )

    # --- data -------------------------------------------------------------------------------------------------------
    def _cloning_data(self, batch: Trajectory) -> Any:
        columns = {"expert": batch.experts}
        if batch.returns is not None:
            columns["returns"] = self._normalised(batch.returns)
        return self.passes.data(batch, batch.active.astype(bool), columns)

    def _split(self, data: Any, size: int | None, parts: int) -> tuple[int, int]:
        """How many things are shuffled, and in how many mini-batches."""
        length, per_item = self.passes.size(data)
        if size is not None:
            parts = -(-length // max(1, size // per_item))
        return length, min(parts, length)

    def _auxiliary(self, data: Any | None, epoch: int, parts: int) -> Iterator[Any]:
        if data is None:
            return iter(())
        length, parts = self._split(data, None, parts)
        order = permutation(self.seed, AUXILIARY_STREAM, self.updates, epoch, length)
        return self.passes.parts(data, order, parts, "cloning")

    # --- steps ------------------------------------------------------------------------------------------------------
    def _step(self, weight: float, rate: float, decay: float = 0.0) -> float:
        """One optimiser step on the gradients of mini-batches of this weight together; their norm before the clip."""
        if weight != 1.0:
            self.optimizer.gradient /= weight
        norm = self.optimizer.step(rate, self.ppo.max_grad_norm, decay)
        self._require_finite([norm], "the gradient")
        self.gradient_steps += 1
        return norm

    def _require_finite(self, numbers: Sequence[float], what: str) -> None:
        if not all(math.isfinite(number) for number in numbers):
            self.optimizer.gradient.zero_()
            raise DivergedError(
                f"{what} of update {self.updates} is not a finite number; the weights are those of the last good step; "
                "lower the learning rate or go back to the last checkpoint"
            )

    # --- saving -----------------------------------------------------------------------------------------------------
    def state(self) -> LearnerState:
        optimizer = self.optimizer
        moments = {name: tensor.cpu().numpy().copy() for name, tensor in optimizer.moments().items()}
        meta: Record = {"updates": self.updates, "gradient_steps": self.gradient_steps, "seed": self.seed}
        meta |= {"optimizer": optimizer.kind, "optimizer_steps": optimizer.steps}
        meta |= {"threads": torch.get_num_threads(), "torch": str(torch.__version__)}
        return LearnerState(self.network.arrays(), moments, meta)

    def load_state(self, state: LearnerState) -> None:
        """Go on where `state` was taken. (`network.load_arrays` takes over the weights alone.)"""
        optimizer, meta = self.optimizer, state.meta
        if meta["optimizer"] != optimizer.kind:
            raise CheckpointError(
                f"the checkpoint was made with {meta['optimizer']}, the config asks for {optimizer.kind}; "
                "set ppo.optimizer to the one of the checkpoint"
            )
        moments = optimizer.moments()
        kept = {name: array for name, array in state.optimizer.items() if name in moments}  # beside a critic's, which it may hold
        found, expected = ({name: tuple(array.shape) for name, array in part.items()} for part in (kept, moments))
        if found != expected:
            raise CheckpointError(f"the optimiser state holds {found}; this network needs {expected}; use its own checkpoint")
        self.network.load_arrays(state.weights)
        for name, tensor in moments.items():
            tensor.copy_(torch.from_numpy(np.array(kept[name])))
        optimizer.steps = int(meta["optimizer_steps"])
        self.updates, self.gradient_steps, self.seed = int(meta["updates"]), int(meta["gradient_steps"]), int(meta["seed"])
