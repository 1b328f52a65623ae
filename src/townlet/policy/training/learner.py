"""The learner: one network, one optimiser, one update. It knows arrays, not towns; CartPole goes through the same code."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.config.learning import PPOConfig
from townlet.errors import CheckpointError, DivergedError, UsageError
from townlet.policy.inference import Acted, check_inputs, choose_actions
from townlet.policy.models import ConflictAwarePolicyNetwork
from townlet.policy.network import VARIANCE_FLOOR, NetworkSpec
from townlet.policy.training import numerics
from townlet.policy.training.batches import (
    PPO_TERMS,
    CloningStats,
    UpdateStats,
    decisions_of,
    legal_rows,
    permutation,
    summary,
)
from townlet.policy.training.bfloat16 import check_precision
from townlet.policy.training.numerics import Tensors, shuffled, slice_of
from townlet.policy.trajectory import Trajectory
from townlet.types import Array, Doubles, Floats

MINIBATCH = (*PPO_TERMS, "loss_total", "transitions", "grad_norm")
PPO_STREAM, CLONING_STREAM, AUXILIARY_STREAM = 1, 2, 3
VALUE_HORIZON = 10  # statistics of returns look back over about this many batches
EVALUATION_ROWS = 16384


class LearnerState(NamedTuple):
    """All that is needed to go on bit for bit: two flat maps of arrays for safetensors, one small map for JSON."""

    weights: dict[str, Array]
    optimizer: dict[str, Array]
    meta: dict[str, Any]


class PPOLearner:
    def __init__(self, spec: NetworkSpec, ppo: PPOConfig, *, seed: int = 0, threads: int = 1) -> None:
        check_precision(ppo)
        torch.set_num_threads(threads)
        self.spec, self.ppo, self.seed = spec, ppo, seed
        self.network = ConflictAwarePolicyNetwork(spec, seed)
        self.optimizer = numerics.Optimizer(list(self.network.parameters()), ppo.optimizer, ppo.adam_epsilon)
        self.minibatches: list[dict[str, Any]] = []  # MINIBATCH of each mini-batch of the last update, and what is `watched`
        self.updates = 0  # calls of update and clone: the key of every permutation
        self.gradient_steps = 0
        self._scratch: Tensors = {}
        self._auxiliary_scratch: Tensors = {}
        self._terms = torch.compile(_loss, dynamic=True) if ppo.compile else _loss

    @property
    def recurrent(self) -> bool:
        return self.spec.recurrent != "none"

    # --- acting -----------------------------------------------------------------------------------------------------
    def initial_state(self, rows: int) -> Floats:
        return np.zeros((rows, self.spec.state_width), np.float32)

    def act(
        self,
        features: Floats,  # (B, F)
        maps: Array | None,  # (B, C, H, W)
        masks: Array,  # (B, A)
        *,
        draws: Doubles | None = None,  # (B,) uniform in [0, 1); None chooses greedily
        state: Floats | None = None,  # (B, S)
        starts: Array | None = None,  # (B,): rows whose state is reset first
    ) -> Acted:
        logits, values, next_state = self.forward(features, maps, state=state, starts=starts)
        actions, log_probs = choose_actions(logits, masks, draws)
        return Acted(actions, log_probs, values, next_state)

    @torch.inference_mode()
    def forward(
        self,
        features: Floats,
        maps: Array | None = None,
        *,
        state: Floats | None = None,
        starts: Array | None = None,
    ) -> tuple[Floats, Floats, Floats]:
        """Unmasked logits (B, A), values (B,) in units of the return, next state (B, S)."""
        check_inputs(self.spec, features, maps)
        if state is None:
            state = self.initial_state(len(features))
        elif starts is not None:
            state = np.where(starts.astype(bool)[:, None], np.float32(0), state)
        grids = torch.from_numpy(maps) if maps is not None and self.spec.sees_map else None
        logits, values, carried = self.network.step(torch.from_numpy(features), grids, torch.from_numpy(state))
        return logits.numpy(), self._in_units_of_return(values), carried.numpy()

    @torch.inference_mode()
    def evaluate(self, batch: Trajectory) -> tuple[Floats, Floats]:
        """Masked log-probabilities (T, B, A) and values (T, B) of every row, active or not, also of what follows the last."""
        steps, width = batch.features.shape[:2]
        data = self._data(batch, None)
        axis = 1 if self.recurrent else 0
        size = max(1, EVALUATION_ROWS // steps) if self.recurrent else EVALUATION_ROWS
        length = width if self.recurrent else steps * width
        log_probs, values = [], []
        for begin in range(0, length, size):
            part = slice_of(data, axis, begin, min(begin + size, length))
            logits, value = self.network.outputs(part)
            log_probs.append(numerics.masked_log_softmax(logits, part["masks"]))
            values.append(value)
        return (
            torch.cat(log_probs, axis).reshape(steps, width, -1).numpy(),
            self._in_units_of_return(torch.cat(values, axis).reshape(steps, width)),
        )

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
        lr = numerics.linear_schedule(ppo.learning_rate, 0.0 if ppo.lr_anneal else ppo.learning_rate, progress)
        clip = numerics.linear_schedule(ppo.clip_param, 0.0 if ppo.clip_anneal else ppo.clip_param, progress)
        entropy_end = ppo.entropy_coef if ppo.entropy_final is None else ppo.entropy_final
        entropy_coef = numerics.linear_schedule(ppo.entropy_coef, entropy_end, progress)
        coefficients = torch.tensor([clip, entropy_coef, ppo.value_loss_coef])
        value_clip = ppo.value_clip
        if self.spec.normalize_observations:
            self._require_finite([float(batch.features.sum())], "a feature")
        if ppo.normalize_values:
            if float(self.network.value_count[0]) == 0.0:
                value_clip = None  # values from before the first statistics are in no units
            self.track_returns(batch.returns[active])
        data = self._data(batch, active)
        plain = {"actions": batch.actions, "log_probs": batch.log_probs, "advantages": batch.advantages}
        data |= {name: self._column(array, active) for name, array in plain.items()}
        scaled = {"returns": batch.returns, "values": batch.values}
        data |= {name: self._column(self._normalised(array), active) for name, array in scaled.items()}
        if batch.watched is not None:
            data["watched"] = self._column(batch.watched, active)
        cloning = None
        if bc_batch is not None and bc_weight > 0.0 and bc_batch.rows > 0:
            cloning = self._cloning_data(decisions_of(bc_batch))

        axis, length, parts = self._split(data["features"], ppo.mini_batch_size, ppo.num_mini_batches)
        table: list[list[float]] = []
        grads: list[float] = []
        epoch, stopped = 0, False
        self.minibatches = []
        for epoch in range(ppo.num_epochs):
            order = permutation(self.seed, PPO_STREAM, self.updates, epoch, length)
            examples = self._auxiliary(cloning, epoch, parts)
            waiting = 0.0  # weight of the mini-batches whose gradients wait for a step
            for index, part in enumerate(shuffled(data, axis, order, parts, self._scratch)):
                with self._precision():
                    loss, stats = self._terms(self.network, part, coefficients, value_clip, ppo.advantage_normalization)
                    example = next(examples, None)
                    extra = [0.0, 0.0]
                    if example is not None:
                        cloning_loss, cloning_stats = numerics.cloning_terms(*self.network.outputs(example), example, 0.0)
                        loss = loss + bc_weight * cloning_loss
                        extra = [float(cloning_stats[0]), float(cloning_stats[2])]
                numbers = [*stats.tolist(), float(loss.detach()), *extra]
                self._require_finite(numbers, "the loss")
                table.append(numbers)
                self.minibatches.append(dict(zip(MINIBATCH, [*numbers[: len(PPO_TERMS) + 1], _weight(part), 0.0])))
                if "watched" in part:
                    self.minibatches[-1]["watched"] = _watched(part)
                if ppo.target_kl is not None and numbers[PPO_TERMS.index("kl_k3")] > ppo.target_kl:
                    stopped = True
                    break
                weight = 1.0 if ppo.grad_accumulation == 1 else _weight(part)
                (loss if weight == 1.0 else loss * weight).backward()  # type: ignore[no-untyped-call]
                waiting += weight
                if (index + 1) % ppo.grad_accumulation == 0 or index == parts - 1:
                    grads.append(self._step(waiting, lr))
                    waiting = 0.0
                    for row in self.minibatches[-(index % ppo.grad_accumulation + 1) :]:
                        row["grad_norm"] = grads[-1]
            if stopped:
                self.optimizer.gradient.zero_()
                break
        if self.spec.normalize_observations:
            self.track_observations(batch.features[active])
        self.updates += 1
        return UpdateStats(
            updates=len(grads),
            minibatches=len(table),
            epochs=epoch + 1,
            transitions=int(active.sum()),
            stopped_early=stopped,
            explained_variance=numerics.explained_variance(batch.values[active], batch.returns[active]),
            reward_advantage_corr=numerics.correlation(batch.rewards[active], batch.advantages[active]),
            mask_fill_mean=float(batch.masks[active].mean(dtype=np.float64)),
            illegal_actions=illegal,
            lr=lr,
            clip_param=clip,
            entropy_coef=entropy_coef,
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
        axis, length, parts = self._split(data["features"], batch_size, 1)
        order = permutation(self.seed, CLONING_STREAM, self.updates, 0, length)
        table: list[list[float]] = []
        grads: list[float] = []
        for part in shuffled(data, axis, order, parts, self._scratch):
            with self._precision():
                loss, stats = numerics.cloning_terms(*self.network.outputs(part), part, value_coef)
            table.append(stats.tolist())
            self._require_finite([*table[-1], float(loss.detach())], "the cloning loss")
            loss.backward()  # type: ignore[no-untyped-call]
            grads.append(self._step(1.0, learning_rate, weight_decay))
        self.updates += 1
        numbers = np.array(table)
        crossed, error, accuracy = (numbers[:, :3] * numbers[:, 3:]).sum(0) / numbers[:, 3].sum()
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
        self._take_in("observation", rows.reshape(-1, self.spec.features))

    def track_returns(self, returns: Floats) -> None:
        """Take returns (R,) into the value statistics. The value head is rescaled so that no predicted value changes; the first
        returns ever seen instead give the untrained head its units."""
        network = self.network
        self._require_finite([float(returns.sum(dtype=np.float64))], "a return")
        first = float(network.value_count[0]) == 0.0
        old_mean, old_scale = self._value_scale()
        self._take_in("value", returns.reshape(-1, 1), limit=VALUE_HORIZON * returns.size)
        if first:
            return
        mean, scale = self._value_scale()
        with torch.no_grad():
            network.value.weight.mul_(old_scale / scale)
            network.value.bias.mul_(old_scale / scale).add_((old_mean - mean) / scale)

    def _take_in(self, prefix: str, rows: Floats, limit: float = math.inf) -> None:
        buffers = {name: buffer.numpy() for name, buffer in self.network.named_buffers()}
        tracked = numerics.RunningMeanStd.from_arrays(buffers, prefix)
        tracked.update(rows, limit)
        for name, array in tracked.arrays(prefix).items():
            self.network.get_buffer(name).copy_(torch.from_numpy(array))

    def _value_scale(self) -> tuple[float, float]:
        return float(self.network.value_mean[0]), math.sqrt(float(self.network.value_var[0]) + VARIANCE_FLOOR)

    def _in_units_of_return(self, values: Tensor) -> Floats:
        mean, scale = self._value_scale()
        return (values.numpy() * scale + mean).astype(np.float32)

    def _normalised(self, returns: Floats) -> Floats:
        mean, scale = self._value_scale()
        return ((returns - mean) / scale).astype(np.float32)

    # --- data -------------------------------------------------------------------------------------------------------
    def _data(self, batch: Trajectory, active: NDArray[np.bool_] | None) -> Tensors:
        """Observations as tensors: active rows (R, ...), or whole sequences (T, B, ...) for a network with memory."""
        check_inputs(self.spec, batch.features[0], None if batch.maps is None else batch.maps[0])
        if batch.masks is None:
            raise UsageError("the batch has no masks; without them the network would learn what nobody may do")
        if batch.masks.shape[2] != self.spec.actions:
            raise UsageError(f"masks have {batch.masks.shape[2]} actions; the network has {self.spec.actions}")
        with torch.no_grad():
            data = {"features": self.network.ordered(self._column(batch.features, active))}
            towns = self.network.towns(self.network.ordered(torch.from_numpy(batch.features))) if self.spec.town_size else None
        if towns is not None:
            data["town"] = self._column(towns.numpy(), active)
        data["masks"] = self._column(np.asarray(batch.masks, np.uint8).view(bool), active)
        if self.spec.sees_map and batch.maps is not None:
            data["maps"] = self._column(batch.maps, active)
        if self.recurrent:
            steps, width = batch.features.shape[:2]
            starts = np.zeros((steps, width), bool)
            if batch.starts is not None:
                starts[: len(batch.starts)] = batch.starts
            state = self.initial_state(width) if batch.state is None else batch.state
            data |= {"starts": torch.from_numpy(starts), "state": torch.from_numpy(state)}
            if active is not None:
                data["active"] = torch.from_numpy(active)
        return data

    def _cloning_data(self, batch: Trajectory) -> Tensors:
        active = batch.active.astype(bool)
        data = self._data(batch, active) | {"expert": self._column(batch.experts, active)}
        if batch.returns is not None:
            data["returns"] = self._column(self._normalised(batch.returns), active)
        return data

    def _column(self, array: Array, active: NDArray[np.bool_] | None) -> Tensor:
        if self.recurrent:
            if active is not None and array.ndim == 2:  # whatever stands in absent rows stays out of the arithmetic
                array = np.where(active, array, array.dtype.type(0))
            return torch.from_numpy(np.ascontiguousarray(array))
        if active is None or active.all():
            return torch.from_numpy(np.ascontiguousarray(array).reshape(-1, *array.shape[2:]))
        return torch.from_numpy(array[active])

    def _split(self, features: Tensor, size: int | None, parts: int) -> tuple[int, int, int]:
        """Axis that is shuffled, its length and the number of mini-batches. Sequences are split over residents, not over time."""
        axis = 1 if self.recurrent else 0
        length = features.shape[axis]
        if size is not None:
            per_item = features.shape[0] if self.recurrent else 1
            parts = -(-length // max(1, size // per_item))
        return axis, length, min(parts, length)

    def _auxiliary(self, data: Tensors | None, epoch: int, parts: int) -> Iterator[Tensors]:
        if data is None:
            return iter(())
        axis, length, parts = self._split(data["features"], None, parts)
        order = permutation(self.seed, AUXILIARY_STREAM, self.updates, epoch, length)
        return shuffled(data, axis, order, parts, self._auxiliary_scratch)

    # --- steps ------------------------------------------------------------------------------------------------------
    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast("cpu", dtype=torch.bfloat16) if self.ppo.bf16 else nullcontext()

    def _step(self, weight: float, rate: float, decay: float = 0.0) -> float:
        """One optimiser step on the gradients of mini-batches of this weight together; their norm before the clip."""
        if weight != 1.0:
            self.optimizer.gradient /= weight
        norm = self.optimizer.clip(self.ppo.max_grad_norm)
        self._require_finite([norm], "the gradient")
        self.optimizer.step(rate, decay)
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
        moments = {name: tensor.numpy().copy() for name, tensor in optimizer.moments().items()}
        meta: dict[str, Any] = {"updates": self.updates, "gradient_steps": self.gradient_steps, "seed": self.seed}
        meta |= {"optimizer": optimizer.kind, "optimizer_steps": optimizer.steps}
        meta |= {"threads": torch.get_num_threads(), "torch": str(torch.__version__)}
        return LearnerState(self.network.arrays(), moments, meta)

    def load_state(self, state: LearnerState) -> None:
        """Go on where `state` was taken. (`network.load_arrays` takes over the weights alone.)"""
        optimizer, meta = self.optimizer, state.meta
        if meta["optimizer"] != optimizer.kind:
            raise CheckpointError(
                f"the checkpoint was made with {meta['optimizer']}, the config asks for {optimizer.kind}; "
                "set ppo.optimizer to the former"
            )
        moments = optimizer.moments()
        found, expected = ({name: tuple(array.shape) for name, array in part.items()} for part in (state.optimizer, moments))
        if found != expected:
            raise CheckpointError(f"the optimiser state holds {found}; this network needs {expected}; use its own checkpoint")
        self.network.load_arrays(state.weights)
        for name, tensor in moments.items():
            tensor.copy_(torch.from_numpy(np.array(state.optimizer[name])))
        optimizer.steps = int(meta["optimizer_steps"])
        self.updates, self.gradient_steps, self.seed = int(meta["updates"]), int(meta["gradient_steps"]), int(meta["seed"])


def _loss(
    network: ConflictAwarePolicyNetwork, part: Tensors, coefficients: Tensor, value_clip: float | None, normalize: bool
) -> tuple[Tensor, Tensor]:
    return numerics.ppo_terms(*network.outputs(part), part, coefficients, value_clip, normalize)


def _watched(part: Tensors) -> list[tuple[float, float]]:
    """Mean and largest of each watched figure over the rows that count."""
    rows = part["watched"][part["active"]] if "active" in part else part["watched"]  # (R, K)
    return list(zip(rows.double().mean(0).tolist(), rows.amax(0).tolist()))


def _weight(part: Tensors) -> float:
    return float(part["active"].sum()) if "active" in part else float(len(part["features"]))
