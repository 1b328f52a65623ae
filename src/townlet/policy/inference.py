"""A trained policy in plain NumPy, from the same checkpoint: a trained town runs without torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from townlet.errors import CheckpointError, UsageError
from townlet.policy.checkpoint import load_checkpoint
from townlet.policy.network import CNN_KERNEL, OBSERVATION_CLIP, VARIANCE_FLOOR, NetworkSpec
from townlet.types import Array, Doubles, Floats

MASKED_LOGIT = -1e9  # exp of it is exactly 0, and 0 × it is a number


class Acted(NamedTuple):
    """One decision for each of B rows."""

    actions: NDArray[np.int64]  # (B,)
    log_probs: Floats  # (B,)
    values: Floats  # (B,)
    state: Floats  # (B, S)


def choose_actions(logits: Array, masks: Array, draws: Doubles | None) -> tuple[NDArray[np.int64], Floats]:
    """Actions (B,) and their log-probabilities (B,) from logits (B, A) under masks (B, A).

    With draws u (B,) in [0, 1): the inverse of the distribution function, the first a with u < Σ_{i≤a} p_i, so a row's
    choice depends on its own draw and on nothing else in the batch. Without: the most probable action.
    A masked action has probability 0 and is never chosen.
    """
    allowed = masks.astype(bool)  # (B, A)
    scores = np.where(allowed, logits, MASKED_LOGIT).astype(np.float64)
    scores -= scores.max(axis=1, keepdims=True)
    weights = np.exp(scores, out=np.zeros_like(scores), where=allowed)  # (B, A)
    cumulative = weights.cumsum(axis=1)
    total = cumulative[:, -1]
    if draws is None:
        actions = scores.argmax(axis=1)
    else:
        actions = (cumulative <= (draws * total)[:, None]).sum(axis=1)
        last_allowed = allowed.shape[1] - 1 - allowed[:, ::-1].argmax(axis=1)
        np.minimum(actions, last_allowed, out=actions)  # u·total may round up to total
    log_probs = np.take_along_axis(scores, actions[:, None], axis=1)[:, 0] - np.log(total)
    return actions.astype(np.int64), log_probs.astype(np.float32)


class Acting(ABC):
    """A network that decides for rows of observations. A subclass gives the forward pass, `answer`."""

    spec: NetworkSpec

    @abstractmethod
    def answer(self, features: Floats, maps: Array | None, state: Floats) -> tuple[Floats, Floats, Floats]:
        """Unmasked logits (B, A), values in the units of the return (B,), next state (B, S)."""

    def initial_state(self, rows: int) -> Floats:
        return np.zeros((rows, self.spec.state_width), np.float32)

    def forward(
        self, features: Floats, maps: Array | None = None, *, state: Floats | None = None, starts: Array | None = None
    ) -> tuple[Floats, Floats, Floats]:
        """`answer` to observations that fit the network; rows that start have no state yet."""
        check_inputs(self.spec, features, maps)
        if state is None:
            state = self.initial_state(len(features))
        elif starts is not None:
            state = np.where(starts.astype(bool)[:, None], np.float32(0), state)
        return self.answer(features, maps, state)

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


class NumpyPolicy(Acting):
    """Forward pass of `ConflictAwarePolicyNetwork`, every kind of it, over (B, ...) arrays."""

    def __init__(self, spec: NetworkSpec, weights: Mapping[str, Array], about: Mapping[str, object] | None = None) -> None:
        self.spec, self.about = spec, dict(about or {})
        self.weights = {name: np.ascontiguousarray(array) for name, array in weights.items()}
        for name, shape in weight_shapes(spec).items():
            if name not in self.weights:
                raise CheckpointError(f"the checkpoint has no weights {name!r}; it is not one of this network")
            if self.weights[name].shape != shape:
                raise CheckpointError(f"weights {name!r} have shape {self.weights[name].shape}; the network needs {shape}")
        order = np.array(spec.column_order)
        self._plain, self._conflict = order[: len(spec.plain_columns)], order[len(spec.plain_columns) :]

    @classmethod
    def load(cls, folder: Path | str) -> NumpyPolicy:
        checkpoint = load_checkpoint(Path(folder), with_optimizer=False, with_world=False)
        return cls(NetworkSpec.from_json(checkpoint.state["network"]), checkpoint.weights, checkpoint.state)

    def answer(self, features: Floats, maps: Array | None, state: Floats) -> tuple[Floats, Floats, Floats]:
        rows = self._normalised(features.astype(np.float32, copy=False))
        hidden = self._encode(rows, maps)
        for layer in range(len(self.spec.trunk_sizes)):
            hidden = self._active(self._dense(f"trunk.{layer}", hidden))
        if self.spec.recurrent == "gru":
            hidden = state = self._gru(hidden, state)
        elif self.spec.recurrent == "lstm":
            hidden, state = self._lstm(hidden, state)
        seen = hidden
        if self.spec.town_size:
            town = town_means(rows[:, np.array(self.spec.column_order)], self.spec.town_size)
            seen = np.concatenate([hidden, self._active(self._dense("town", town))], axis=1)
        values = self._dense("value", seen)[:, 0]
        scale = np.sqrt(self.weights["value_var"][0] + VARIANCE_FLOOR)
        values = (values * scale + self.weights["value_mean"][0]).astype(np.float32)
        return self._dense("policy", hidden), values, state

    def _normalised(self, features: Floats) -> Floats:
        if not self.spec.normalize_observations:
            return features
        mean = self.weights["observation_mean"].astype(np.float32)
        scale = np.sqrt(self.weights["observation_var"] + VARIANCE_FLOOR).astype(np.float32)
        out: Floats = np.clip((features - mean) / scale, -OBSERVATION_CLIP, OBSERVATION_CLIP)
        return out

    def _encode(self, features: Floats, maps: Array | None) -> Floats:
        parts = [self._active(self._dense("feature", features[:, self._plain]))]
        if self.spec.has_conflict_encoder:
            parts.append(self._active(self._dense("conflict", features[:, self._conflict])))
        if maps is not None and self.spec.sees_map:
            grid = maps.astype(np.float32)  # (B, C, H, W)
            if self.spec.map_encoder == "cnn":
                for layer, stride in enumerate(self.spec.cnn_strides):
                    grid = self._active(
                        _convolve(grid, self.weights[f"conv.{layer}.weight"], self.weights[f"conv.{layer}.bias"], stride)
                    )
            parts.append(self._active(self._dense("map", grid.reshape(len(grid), -1))))
        return np.concatenate(parts, axis=1)

    def _active(self, x: Floats) -> Floats:
        return np.maximum(x, np.float32(0)) if self.spec.activation == "relu" else np.tanh(x)

    def _dense(self, name: str, x: Floats) -> Floats:
        out: Floats = x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]
        return out

    def _gates(self, x: Floats, h: Floats) -> tuple[Floats, Floats]:
        w = self.weights
        return (
            x @ w["cell.weight_ih_l0"].T + w["cell.bias_ih_l0"],
            h @ w["cell.weight_hh_l0"].T + w["cell.bias_hh_l0"],
        )

    def _gru(self, x: Floats, h: Floats) -> Floats:
        """r, z = σ(…); n = tanh(W_n x + r (U_n h)); h' = (1 − z) n + z h, gates in torch's order r, z, n."""
        of_x, of_h = self._gates(x, h)
        width = self.spec.recurrent_size
        r = _sigmoid(of_x[:, :width] + of_h[:, :width])
        z = _sigmoid(of_x[:, width : 2 * width] + of_h[:, width : 2 * width])
        n = np.tanh(of_x[:, 2 * width :] + r * of_h[:, 2 * width :])
        out: Floats = (1 - z) * n + z * h
        return out

    def _lstm(self, x: Floats, state: Floats) -> tuple[Floats, Floats]:
        """i, f, o = σ(…), g = tanh(…); c' = f c + i g; h' = o tanh c', gates in torch's order i, f, g, o."""
        width = self.spec.recurrent_size
        h, c = state[:, :width], state[:, width:]
        of_x, of_h = self._gates(x, h)
        gates = of_x + of_h
        i, f, g, o = (gates[:, k * width : (k + 1) * width] for k in range(4))
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        return h, np.concatenate([h, c], axis=1)


def town_means(rows: Floats, town_size: int) -> Floats:
    """For each row (..., B, F) the mean over its town, B being towns × slots. Rows that are not whole towns are alone."""
    width = rows.shape[-2]
    if width % town_size:
        return rows
    towns = rows.reshape(*rows.shape[:-2], width // town_size, town_size, rows.shape[-1])
    means = towns.mean(axis=-2, keepdims=True, dtype=np.float32)
    return np.repeat(means, town_size, axis=-2).reshape(rows.shape)


def check_inputs(spec: NetworkSpec, features: Array, maps: Array | None) -> None:
    if features.ndim != 2 or features.shape[1] != spec.features:
        raise UsageError(f"features have shape {features.shape}; the policy was trained on (rows, {spec.features})")
    if spec.sees_map and (maps is None or maps.shape != (len(features), *(spec.map_shape or ()))):
        found = "no map" if maps is None else f"shape {maps.shape}"
        raise UsageError(f"the policy was trained with maps {(len(features), *(spec.map_shape or ()))} and got {found}")


def weight_shapes(spec: NetworkSpec) -> dict[str, tuple[int, ...]]:
    """Every array that the forward pass reads, by name."""
    dense: dict[str, tuple[int, int]] = {"feature": (spec.feature_size, len(spec.plain_columns))}
    if spec.has_conflict_encoder:
        dense["conflict"] = (spec.conflict_size, len(spec.conflict_columns))
    if spec.sees_map:
        dense["map"] = (spec.map_size, spec.map_inputs)
    width = spec.encoded_width
    for layer, size in enumerate(spec.trunk_sizes):
        dense[f"trunk.{layer}"] = (size, width)
        width = size
    shapes: dict[str, tuple[int, ...]] = {}
    if spec.recurrent != "none":
        rows = (3 if spec.recurrent == "gru" else 4) * spec.recurrent_size
        shapes |= {"cell.weight_ih_l0": (rows, width), "cell.weight_hh_l0": (rows, spec.recurrent_size)}
        shapes |= {"cell.bias_ih_l0": (rows,), "cell.bias_hh_l0": (rows,)}
    dense |= {"policy": (spec.actions, spec.hidden_width), "value": (1, spec.critic_width)}
    if spec.town_size:
        dense["town"] = (spec.feature_size, spec.features)
    for name, shape in dense.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    if spec.map_encoder == "cnn":
        channels = spec.window[0]
        for layer, size in enumerate(spec.map_channels):
            shapes |= {f"conv.{layer}.weight": (size, channels, CNN_KERNEL, CNN_KERNEL), f"conv.{layer}.bias": (size,)}
            channels = size
    if spec.normalize_observations:
        shapes |= {"observation_mean": (spec.features,), "observation_var": (spec.features,)}
    return shapes | {"value_mean": (1,), "value_var": (1,)}


def _sigmoid(x: Floats) -> Floats:
    half = np.float32(0.5)
    out: Floats = half * np.tanh(half * x) + half  # no overflow at either end
    return out


def _convolve(x: Floats, weight: Floats, bias: Floats, stride: int) -> Floats:
    """Valid 2-D cross-correlation, (B, C, H, W) → (B, K, H', W')."""
    windows = sliding_window_view(x, weight.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]  # (B, C, H', W', 3, 3)
    out: Floats = np.tensordot(windows, weight, axes=((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2) + bias[:, None, None]
    return out
