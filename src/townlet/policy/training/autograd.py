"""Mini-batches turned into gradients by torch: the reference, which knows every network, device and precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.config.learning import PPOConfig
from townlet.errors import DeviceNotAvailableError, UsageError
from townlet.policy.models import ConflictAwarePolicyNetwork
from townlet.policy.training import numerics
from townlet.policy.training.batches import Coefficients, check_observed
from townlet.policy.training.numerics import Tensors, shuffled, slice_of
from townlet.policy.trajectory import Trajectory
from townlet.types import Array, Floats

EVALUATION_ROWS = 16384


def check_device(name: str) -> None:
    """Refuse a device that torch does not have here, with what it lacks."""
    if name == "cpu":
        return
    kind, _, number = name.partition(":")
    if kind != "cuda" or (number and not number.isdecimal()):
        raise UsageError(f"training.device is {name!r}; it must be cpu, cuda or cuda:N")
    if torch.version.cuda is None:
        lacks = f"torch {torch.__version__} is built without CUDA; install one that is"
    elif not torch.cuda.is_available():
        lacks = "torch finds no CUDA device or driver (`nvidia-smi` tells); make one visible"
    elif int(number or 0) >= torch.cuda.device_count():
        lacks = f"there are {torch.cuda.device_count()} CUDA devices, counted from 0; name one of them"
    else:
        return
    raise DeviceNotAvailableError(f"training.device is {name!r}, but {lacks}, or set it to cpu")


class Autograd:
    """Gradients are added to those of the network's parameters, on their device."""

    def __init__(self, network: ConflictAwarePolicyNetwork, ppo: PPOConfig) -> None:
        self.network, self.ppo, self.spec = network, ppo, network.spec
        self.device, self.recurrent = network.device, self.spec.recurrent != "none"
        self._scratch: dict[str, Tensors] = {}
        self._terms = torch.compile(_loss, dynamic=True) if ppo.compile else _loss

    # --- acting -----------------------------------------------------------------------------------------------------
    @torch.inference_mode()
    def forward(self, features: Floats, maps: Array | None, state: Floats) -> tuple[Floats, Floats, Floats]:
        grids = torch.from_numpy(maps) if maps is not None and self.spec.sees_map else None
        logits, values, carried = self.network.step(torch.from_numpy(features), grids, torch.from_numpy(state))
        return logits.cpu().numpy(), values.cpu().numpy(), carried.cpu().numpy()

    @torch.inference_mode()
    def evaluate(self, batch: Trajectory) -> tuple[Floats, Floats]:
        steps, width = batch.features.shape[:2]
        data = self.data(batch, None, {})
        axis = 1 if self.recurrent else 0
        size = max(1, EVALUATION_ROWS // steps) if self.recurrent else EVALUATION_ROWS
        length = width if self.recurrent else steps * width
        log_probs, values = [], []
        for begin in range(0, length, size):
            part = slice_of(data, axis, begin, min(begin + size, length))
            logits, value = self.network.outputs(part)
            log_probs.append(numerics.masked_log_softmax(logits, part["masks"]))
            values.append(value)
        logs, thought = torch.cat(log_probs, axis).cpu(), torch.cat(values, axis).cpu()
        return logs.reshape(steps, width, -1).numpy(), thought.reshape(steps, width).numpy()

    # --- data -------------------------------------------------------------------------------------------------------
    def data(self, batch: Trajectory, active: NDArray[np.bool_] | None, columns: Mapping[str, Array]) -> Tensors:
        """Observations and columns as tensors: active rows (R, ...), or whole sequences (T, B, ...) for a network with memory."""
        check_observed(self.spec, batch)
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
            state = np.zeros((width, self.spec.state_width), np.float32) if batch.state is None else batch.state
            data |= {"starts": torch.from_numpy(starts), "state": torch.from_numpy(state)}
            if active is not None:
                data["active"] = torch.from_numpy(active)
        data |= {name: self._column(array, active) for name, array in columns.items()}
        return {name: tensor.to(self.device) for name, tensor in data.items()}

    def _column(self, array: Array, active: NDArray[np.bool_] | None) -> Tensor:
        if self.recurrent:
            if active is not None and array.ndim == 2:  # whatever stands in absent rows stays out of the arithmetic
                array = np.where(active, array, array.dtype.type(0))
            return torch.from_numpy(np.ascontiguousarray(array))
        if active is None or active.all():
            return torch.from_numpy(np.ascontiguousarray(array).reshape(-1, *array.shape[2:]))
        return torch.from_numpy(array[active])

    def size(self, data: Tensors) -> tuple[int, int]:
        """How many things are shuffled, and decisions in each: rows, or whole sequences of residents."""
        features = data["features"]
        return (features.shape[1], features.shape[0]) if self.recurrent else (len(features), 1)

    def parts(self, data: Tensors, order: NDArray[np.int64], parts: int, room: str) -> Iterator[Tensors]:
        return shuffled(data, 1 if self.recurrent else 0, order, parts, self._scratch.setdefault(room, {}))

    # --- gradients --------------------------------------------------------------------------------------------------
    def ppo_terms(self, part: Tensors, with_: Coefficients, weight: float) -> list[float]:
        scalars = torch.tensor([with_.clip, with_.entropy, with_.value], device=self.device)
        with self._precision():
            loss, stats = self._terms(self.network, part, scalars, with_.value_clip, self.ppo.advantage_normalization)
        (loss if weight == 1.0 else loss * weight).backward()  # type: ignore[no-untyped-call]
        return [*stats.tolist(), float(loss.detach())]

    def cloning_terms(self, part: Tensors, value_coef: float, weight: float) -> list[float]:
        with self._precision():
            loss, stats = numerics.cloning_terms(*self.network.outputs(part), part, value_coef)
        (loss if weight == 1.0 else loss * weight).backward()  # type: ignore[no-untyped-call]
        return [*stats.tolist(), float(loss.detach())]

    def weight(self, part: Tensors) -> float:
        """Decisions that count."""
        return float(part["active"].sum()) if "active" in part else float(len(part["features"]))

    def watched(self, part: Tensors) -> Array:
        """Figures of the rows that count.  # (R, K)"""
        rows = part["watched"][part["active"]] if "active" in part else part["watched"]
        return rows.cpu().numpy()

    def _precision(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, dtype=torch.bfloat16) if self.ppo.bf16 else nullcontext()


def _loss(
    network: ConflictAwarePolicyNetwork, part: Tensors, coefficients: Tensor, value_clip: float | None, normalize: bool
) -> tuple[Tensor, Tensor]:
    return numerics.ppo_terms(*network.outputs(part), part, coefficients, value_clip, normalize)
