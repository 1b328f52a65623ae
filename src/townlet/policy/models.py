"""The policy network in torch: encoders for features, conflict and map, one shared ReLU trunk, policy and value heads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from townlet.errors import CheckpointError
from townlet.policy.inference import town_means
from townlet.policy.network import CELLS, CNN_KERNEL, OBSERVATION_CLIP, VARIANCE_FLOOR, NetworkSpec
from townlet.types import Array, Doubles

HIDDEN_GAIN = math.sqrt(2)
GAINS = {"policy.weight": 0.01, "value.weight": 1.0, "cell.weight_ih_l0": 1.0, "cell.weight_hh_l0": 1.0}


class ConflictAwarePolicyNetwork(nn.Module):
    """Rows (R, F) → logits (R, A) and values (R,), the latter in units of the running return statistics.

    Statistics of observations and returns are buffers: they are saved with the weights, in float64, and stay on the processor,
    where observations are normalised, whatever the device of the weights.
    """

    observation_mean: Tensor
    observation_var: Tensor
    observation_count: Tensor
    value_mean: Tensor
    value_var: Tensor
    value_count: Tensor

    def __init__(self, spec: NetworkSpec, seed: int = 0, device: str = "cpu") -> None:
        super().__init__()
        self.spec = spec
        with torch.random.fork_rng(devices=[]):  # torch draws weights of its own, which are not used
            self._build()
        draws = np.random.Philox(key=seed)
        for name, parameter in self.named_parameters():
            gain = GAINS.get(name, HIDDEN_GAIN)
            first = _orthogonal(parameter.shape, gain, draws) if parameter.dim() > 1 else np.zeros(parameter.shape)
            parameter.data = torch.from_numpy(first).float().to(device)
        self._order = np.array(spec.column_order)
        self._reorders = spec.column_order != tuple(range(spec.features))
        self._plain = len(spec.plain_columns)
        self._active = torch.relu_ if spec.activation == "relu" else torch.tanh_  # of fresh layers only

    @property
    def device(self) -> torch.device:
        return self.feature.weight.device

    def _build(self) -> None:
        spec = self.spec
        self.feature = nn.Linear(len(spec.plain_columns), spec.feature_size)
        if spec.has_conflict_encoder:
            self.conflict = nn.Linear(len(spec.conflict_columns), spec.conflict_size)
        if spec.map_encoder == "cnn":
            channels = (spec.window[0], *spec.map_channels)
            steps = zip(channels, channels[1:], spec.cnn_strides)
            self.conv = nn.ModuleList(nn.Conv2d(c, k, CNN_KERNEL, stride) for c, k, stride in steps)
        if spec.sees_map:
            self.map = nn.Linear(spec.map_inputs, spec.map_size)
        widths = (spec.encoded_width, *spec.trunk_sizes)
        self.trunk = nn.ModuleList(nn.Linear(widths[i], widths[i + 1]) for i in range(len(spec.trunk_sizes)))
        if spec.recurrent != "none":
            self.cell = (nn.GRU if spec.recurrent == "gru" else nn.LSTM)(widths[-1], spec.recurrent_size)
        if spec.town_size:
            self.town = nn.Linear(spec.features, spec.feature_size)
        self.policy = nn.Linear(spec.hidden_width, spec.actions)
        self.value = nn.Linear(spec.critic_width, 1)
        for prefix, size in (("observation", spec.features), ("value", 1)):
            self.register_buffer(f"{prefix}_mean", torch.zeros(size, dtype=torch.float64))
            self.register_buffer(f"{prefix}_var", torch.ones(size, dtype=torch.float64))
            self.register_buffer(f"{prefix}_count", torch.zeros(1, dtype=torch.float64))

    # --- forward ----------------------------------------------------------------------------------------------------
    def ordered(self, features: Tensor) -> Tensor:
        """Features (..., F) normalised and with the conflict columns last, as the encoders slice them."""
        if self._reorders:
            features = torch.from_numpy(np.take(features.numpy(), self._order, axis=-1))  # three times as fast as index_select
        if not self.spec.normalize_observations:
            return features
        mean = self.observation_mean[self._order].float()
        scale = (self.observation_var[self._order] + VARIANCE_FLOOR).sqrt().float()
        return (features - mean).div_(scale).clamp_(-OBSERVATION_CLIP, OBSERVATION_CLIP)

    def hidden(self, ordered: Tensor, maps: Tensor | None) -> Tensor:
        """Rows (R, F) in `ordered` form and maps (R, C, H, W) through encoders and trunk, (R, W)."""
        parts = [self._active(self.feature(ordered[:, : self._plain]))]
        if self.spec.has_conflict_encoder:
            parts.append(self._active(self.conflict(ordered[:, self._plain :])))
        if maps is not None and self.spec.sees_map:
            grid = maps.float()
            if self.spec.map_encoder == "cnn":
                for convolution in self.conv:
                    grid = self._active(convolution(grid))
            parts.append(self._active(self.map(grid.flatten(1))))
        if not self.trunk:
            return torch.cat(parts, dim=1)
        x = self._active(_of_parts(cast(nn.Linear, self.trunk[0]), parts))
        for layer in self.trunk[1:]:
            x = self._active(layer(x))
        return x

    def towns(self, ordered: Tensor) -> Tensor | None:
        """What a central critic sees beside a row of (..., B, F): the mean over its town."""
        return torch.from_numpy(town_means(ordered.numpy(), self.spec.town_size)) if self.spec.town_size else None

    def heads(self, x: Tensor, town: Tensor | None) -> tuple[Tensor, Tensor]:
        if town is not None:
            return self.policy(x), self.value(torch.cat([x, self._active(self.town(town))], dim=1)).squeeze(-1)
        weight = torch.cat([self.policy.weight, self.value.weight])
        out = functional.linear(x, weight, torch.cat([self.policy.bias, self.value.bias]))
        return out[:, :-1], out[:, -1]

    def rows(self, ordered: Tensor, maps: Tensor | None, town: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Logits (R, A) and values (R,) of a network without memory."""
        return self.heads(self.hidden(ordered, maps), town)

    def step(self, features: Tensor, maps: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One decision of B residents: logits (B, A), values (B,), next state (B, S)."""
        ordered, device = self.ordered(features), self.device
        x = self.hidden(ordered.to(device), None if maps is None else maps.to(device))
        if self.spec.recurrent != "none":
            out, carried = self.cell(x.unsqueeze(0), self._unpack_state(state.to(device)))
            x, state = out[0], self._pack_state(carried)
        towns = self.towns(ordered)
        logits, values = self.heads(x, None if towns is None else towns.to(device))
        return logits, values, state

    def sequences(
        self, ordered: Tensor, maps: Tensor | None, starts: Tensor, state: Tensor, town: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Whole sequences of B residents, (T, B, F) → logits (T, B, A) and values (T, B).

        A start (T, B) resets that resident's state before the decision, so no life is carried into the next.
        """
        steps, width = starts.shape
        grids = maps.flatten(0, 1) if maps is not None else None
        x = self.hidden(ordered.flatten(0, 1), grids)  # (T·B, W)
        kept = (~starts).to(x.dtype).unsqueeze(-1).unbind(0)  # T of (B, 1)
        run = self._gru if self.spec.recurrent == "gru" else self._lstm
        out = run(x.reshape(steps, width, -1), kept, state)  # (T·B, H)
        logits, values = self.heads(out, None if town is None else town.flatten(0, 1))
        return logits.reshape(steps, width, -1), values.reshape(steps, width)

    # torch's own loop over a sequence slices its input at every step, and the gradient of each slice is as large as the whole
    # sequence; here the products with the input are made at once and split at once.
    def _gru(self, x: Tensor, kept: Sequence[Tensor], state: Tensor) -> Tensor:
        h, out = state, []
        for of_x, keep in zip(self._of_input(x).unbind(0), kept):
            h = h * keep
            (x_r, x_z, x_n), (h_r, h_z, h_n) = of_x.chunk(3, dim=1), self._of_state(h).chunk(3, dim=1)
            n = torch.tanh(x_n + torch.sigmoid(x_r + h_r) * h_n)
            h = torch.lerp(n, h, torch.sigmoid(x_z + h_z))
            out.append(h)
        return torch.cat(out)

    def _lstm(self, x: Tensor, kept: Sequence[Tensor], state: Tensor) -> Tensor:
        (h, c), out = state.chunk(2, dim=1), []
        for of_x, keep in zip(self._of_input(x).unbind(0), kept):
            i, f, g, o = (of_x + self._of_state(h * keep)).chunk(4, dim=1)
            c = torch.sigmoid(f) * (c * keep) + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            out.append(h)
        return torch.cat(out)

    def _of_input(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.cell.get_parameter("weight_ih_l0"), self.cell.get_parameter("bias_ih_l0"))

    def _of_state(self, h: Tensor) -> Tensor:
        return functional.linear(h, self.cell.get_parameter("weight_hh_l0"), self.cell.get_parameter("bias_hh_l0"))

    def outputs(self, part: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Logits (..., A) and values (...,) of a mini-batch whose features are `ordered`; with `starts`, of its sequences."""
        if "starts" in part:
            logits, values = self.sequences(part["features"], part.get("maps"), part["starts"], part["state"], part.get("town"))
        else:
            logits, values = self.rows(part["features"], part.get("maps"), part.get("town"))
        return logits.float(), values.float()

    def _unpack_state(self, state: Tensor) -> Any:
        parts = tuple(part.unsqueeze(0).contiguous() for part in state.chunk(CELLS[self.spec.recurrent], dim=1))
        return parts[0] if self.spec.recurrent == "gru" else parts

    def _pack_state(self, carried: Any) -> Tensor:
        return carried[0] if self.spec.recurrent == "gru" else torch.cat([part[0] for part in carried], dim=1)

    # --- weights ----------------------------------------------------------------------------------------------------
    def arrays(self) -> dict[str, Array]:
        """A copy of every weight and statistic, by name."""
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.state_dict().items()}

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        expected = {name: tuple(tensor.shape) for name, tensor in self.state_dict().items()}
        found = {name: array.shape for name, array in arrays.items()}
        if found != expected:
            apart = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
            raise CheckpointError(
                f"the weights do not fit the network: {', '.join(apart[:4])} differ "
                f"(found {[found.get(name) for name in apart[:4]]}, expected {[expected.get(name) for name in apart[:4]]}); "
                "train with the network sizes and observations of the checkpoint"
            )
        self.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})


def _orthogonal(shape: Sequence[int], gain: float, draws: np.random.Philox) -> Doubles:
    """Orthogonal rows or columns times the gain, by Gram and Schmidt in float64.

    Only operations that round the same way on every processor, in a fixed order: the first weights are the same everywhere.
    A product of matrices, the logarithm behind a normal draw and LAPACK's QR are not. A normal draw is a sum of twelve even ones.
    """
    rows, columns = shape[0], math.prod(shape[1:])
    even = (draws.random_raw(12 * rows * columns) >> np.uint64(11)).reshape(12, rows, columns) / 2.0**53
    drawn: Doubles = even[0] - 6.0
    for one in even[1:]:
        drawn += one
    rest: Doubles = drawn.T.copy() if rows < columns else drawn  # (long, short)
    for i in range(rest.shape[1]):
        unit = rest[:, i] / np.sqrt(_column_sums(rest[:, i : i + 1] ** 2))
        rest[:, i] = unit
        rest[:, i + 1 :] -= unit[:, None] * _column_sums(unit[:, None] * rest[:, i + 1 :])
    weights: Doubles = gain * (rest.T if rows < columns else rest).reshape(shape)
    return weights


def _column_sums(terms: Doubles) -> Doubles:
    """Halves added to halves, so that no library chooses the order."""
    while len(terms) > 1:
        half = len(terms) // 2
        terms = np.concatenate([terms[:half] + terms[half : 2 * half], terms[2 * half :]])
    total: Doubles = terms[0]
    return total


def _of_parts(layer: nn.Linear, parts: Sequence[Tensor]) -> Tensor:
    """A layer over parts (R, W_k) that stand side by side, without putting them there: the copy costs as much as the product."""
    pieces = torch.split(layer.weight, [part.shape[1] for part in parts], dim=1)
    out = functional.linear(parts[0], pieces[0], layer.bias)
    for part, piece in zip(parts[1:], pieces[1:]):
        out = torch.addmm(out, part, piece.t())
    return out
