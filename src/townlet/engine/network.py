"""A feed-forward policy as a kernel: additions and multiplications in a fixed order, without BLAS or libm.

So every machine, and the page, rounds alike: the same weights and draws give the same decisions, bit for bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from townlet.errors import UsageError
from townlet.policy.inference import Acted, NumpyPolicy
from townlet.policy.network import OBSERVATION_CLIP, VARIANCE_FLOOR, NetworkSpec
from townlet.types import Array
from townlet.world._jit import entry, kernel, leaf

CLIP = np.float32(OBSERVATION_CLIP)
ZERO = np.float32(0.0)
LINEAR, RELU, TANH = range(3)
NORMALISED, PLAIN, CONFLICT, WIDE, NARROW, ACTIVATION, CRITIC, TRUNK = range(8)  # places in `sizes`


class KernelWeights(NamedTuple):
    """Weights in the order in which the kernel reads them."""

    sizes: Array  # (TRUNK + layers,) i8
    order: Array  # (F,) i8: plain columns first, those of the conflict encoder last
    weight: Array  # (X,) f4: mean (F,), scale (F,), then of each layer W (inputs, outputs), bias; last scale and mean of a value
    work: Array  # (3, widest) f4 to calculate in


def runs_in_the_kernel(spec: NetworkSpec) -> bool:
    return spec.recurrent == "none" and not spec.sees_map


def make_network(policy: NumpyPolicy) -> KernelWeights:
    spec, weights = policy.spec, policy.weights
    if not runs_in_the_kernel(spec):
        raise UsageError("the kernel runs feed-forward policies without a map; play this one's recorded decisions instead")
    critic = spec.town_size == 0  # a central critic sees the whole town
    layers = [
        "feature",
        *(["conflict"] if spec.has_conflict_encoder else []),
        *(f"trunk.{k}" for k in range(len(spec.trunk_sizes))),
    ]
    parts = []
    if spec.normalize_observations:
        parts += [weights["observation_mean"], np.sqrt(weights["observation_var"] + VARIANCE_FLOOR)]
    for name in (*layers, "policy", *(["value"] if critic else [])):
        parts += [np.ascontiguousarray(weights[f"{name}.weight"].T).ravel(), weights[f"{name}.bias"]]
    parts += [np.sqrt(weights["value_var"] + VARIANCE_FLOOR), weights["value_mean"]]
    sizes = np.zeros(TRUNK + len(spec.trunk_sizes), np.int64)
    sizes[NORMALISED], sizes[CRITIC] = spec.normalize_observations, critic
    sizes[CONFLICT] = len(spec.conflict_columns) if spec.has_conflict_encoder else 0
    sizes[PLAIN], sizes[WIDE], sizes[NARROW] = spec.features - sizes[CONFLICT], spec.feature_size, spec.conflict_size
    sizes[ACTIVATION] = RELU if spec.activation == "relu" else TANH
    sizes[TRUNK:] = spec.trunk_sizes
    widest = max(spec.features, spec.feature_size + spec.conflict_size, spec.actions, *spec.trunk_sizes)
    weight = np.concatenate([part.astype(np.float32) for part in parts])
    return KernelWeights(sizes, np.array(spec.column_order, np.int64), weight, np.zeros((3, widest), np.float32))


@leaf
def exponential(x: float) -> float:
    """exp, from + and × alone, to two units in the last place."""
    if x < -745.0:
        return 0.0
    if x > 709.0:
        return 8.218407461554972e307
    k = int(np.floor(x * 1.4426950408889634 + 0.5))
    r = (x - k * 0.6931471803691238) - k * 1.9082149292705877e-10  # ln 2 in two parts
    series = 1.0
    for i in range(13, 0, -1):
        series = 1.0 + r * series / i
    scale, base, power = 1.0, 2.0, abs(k)
    if k < 0:
        base = 0.5
    while power > 0:
        if power & 1:
            scale *= base
        base *= base
        power >>= 1
    return series * scale


@leaf
def hyperbolic_tangent(x: float) -> float:
    if abs(x) > 20.0:
        return 1.0 if x > 0 else -1.0
    e = exponential(2.0 * abs(x))
    y = (e - 1.0) / (e + 1.0)
    return y if x > 0 else -y


@leaf
def add_four(y: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray, x: np.ndarray, k: int) -> None:
    """y += x[k] a + x[k + 1] b + …, one after the other: side by side over j changes no order of a sum."""
    p, q, r, s = x[k], x[k + 1], x[k + 2], x[k + 3]
    for j in range(y.shape[0]):
        y[j] = (((y[j] + p * a[j]) + q * b[j]) + r * c[j]) + s * d[j]


@kernel
def dense(x: np.ndarray, weight: np.ndarray, start: int, inputs: int, y: np.ndarray, activation: int) -> int:
    """y = activation(x[:inputs] W + bias), W at `start` of the weights; sums run over the inputs in order. Where W's end is."""
    outputs: int = y.shape[0]
    w = weight[start : start + inputs * outputs]
    bias = weight[start + inputs * outputs : start + (inputs + 1) * outputs]
    for j in range(outputs):
        y[j] = ZERO
    whole = inputs - inputs % 4
    for k in range(0, whole, 4):
        at = k * outputs
        one, two = w[at : at + outputs], w[at + outputs : at + 2 * outputs]
        three, four = w[at + 2 * outputs : at + 3 * outputs], w[at + 3 * outputs : at + 4 * outputs]
        add_four(y, one, two, three, four, x, k)
    for k in range(whole, inputs):
        v, row = x[k], w[k * outputs : (k + 1) * outputs]
        for j in range(outputs):
            y[j] += v * row[j]
    for j in range(outputs):
        v = y[j] + bias[j]
        if activation == RELU:
            v = max(v, ZERO)
        elif activation == TANH:
            v = np.float32(hyperbolic_tangent(float(v)))
        y[j] = v
    return start + (inputs + 1) * outputs


@kernel
def pick(logits: np.ndarray, mask: np.ndarray, draw: float) -> int:
    """The first allowed action at which the distribution function passes the draw."""
    best = -1
    for a in range(mask.shape[0]):
        if mask[a] != 0 and (best < 0 or logits[a] > logits[best]):
            best = a
    top, total = float(logits[best]), 0.0
    for a in range(mask.shape[0]):
        if mask[a] != 0:
            total += exponential(float(logits[a]) - top)
    mark, passed = draw * total, 0.0
    for a in range(mask.shape[0]):
        if mask[a] != 0:
            best = a
            passed += exponential(float(logits[a]) - top)
            if mark < passed:
                break
    return best


@entry
def choose_by_network(
    features: np.ndarray,
    masks: np.ndarray,
    draws: np.ndarray,
    network: KernelWeights,
    logits: np.ndarray,
    values: np.ndarray,
    out: np.ndarray,
) -> None:
    """features (B, F), masks (B, A), draws (B,) in [0, 1) → logits (B, A), values (B,) in units of the return, out (B,)."""
    sizes, weight = network.sizes, network.weight
    plain, conflict = sizes[PLAIN], sizes[CONFLICT]
    columns = plain + conflict
    one, two, three = network.work[0], network.work[1], network.work[2]
    for b in range(features.shape[0]):
        for k in range(columns):
            c = network.order[k]
            v = features[b, c]
            if sizes[NORMALISED] == 1:
                v = min(max((v - weight[c]) / weight[columns + c], -CLIP), CLIP)
            if k < plain:
                one[k] = v
            else:
                three[k - plain] = v
        at = 2 * columns if sizes[NORMALISED] == 1 else 0
        width = sizes[WIDE]
        at = dense(one, weight, at, plain, two[:width], sizes[ACTIVATION])
        if conflict > 0:
            at = dense(three, weight, at, conflict, two[width : width + sizes[NARROW]], sizes[ACTIVATION])
            width += sizes[NARROW]
        for layer in range(TRUNK, sizes.shape[0]):
            at = dense(two, weight, at, width, one[: sizes[layer]], sizes[ACTIVATION])
            width = sizes[layer]
            for j in range(width):
                two[j] = one[j]
        at = dense(two, weight, at, width, logits[b], LINEAR)
        values[b] = ZERO
        if sizes[CRITIC] == 1:
            at = dense(two, weight, at, width, values[b : b + 1], LINEAR)
            values[b] = values[b] * weight[at] + weight[at + 1]
        out[b] = pick(logits[b], masks[b], draws[b])


class KernelNetwork:
    """What `NumpyPolicy` is, by the kernel: for `NetworkPolicy`."""

    def __init__(self, policy: NumpyPolicy) -> None:
        self.spec, self.network = policy.spec, make_network(policy)

    def initial_state(self, rows: int) -> Array:
        return np.zeros((rows, 0), np.float32)

    def act(
        self,
        features: Array,
        maps: Array | None,
        masks: Array,
        *,
        draws: Array | None = None,
        state: Array | None = None,
        starts: Array | None = None,
    ) -> Acted:
        rows = len(features)
        logits, values, actions = np.zeros(masks.shape, np.float32), np.zeros(rows, np.float32), np.zeros(rows, np.int64)
        luck = np.zeros(rows) if draws is None else draws
        choose_by_network(features, masks, luck, self.network, logits, values, actions)
        scores = np.where(masks != 0, logits.astype(np.float64), -np.inf)
        scores -= scores.max(axis=1, keepdims=True)
        if draws is None:
            actions = scores.argmax(axis=1)
        chosen = np.take_along_axis(scores, actions[:, None], axis=1)[:, 0] - np.log(np.exp(scores).sum(axis=1))
        return Acted(actions, chosen.astype(np.float32), values, self.initial_state(rows))
