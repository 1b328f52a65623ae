"""A feed-forward network as compiled passes over tiles of rows: forward, losses, backward, descent. Nothing is allocated.

A tile of activations is one flat array of blocks, each of TILE rows: observations, maps, what each layer makes of them, outputs.
Gradients have an array of the same shape. A line of `plan` is a layer (`PlannedLayer`): where its inputs and outputs begin, and
how far it is from one row of theirs to the next.

Every number is a function of its row, and every sum runs in one order: over inputs one after the other, over the rows of a tile
one after the other, then tile after tile.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from townlet.policy.arithmetic import (
    BLOCK,
    LANES,
    ONE,
    STRIP,
    TANH,
    TWO,
    ZERO,
    biases_product,
    copy,
    exp32,
    exp64,
    inputs_product,
    log64,
    mask,
    outputs_product,
    tanh32,
    turn,
    weights_product,
)
from townlet.types import Array
from townlet.world._jit import entry, kernel, leaf


class PlannedLayer(NamedTuple):
    """A line of `plan`: where a layer reads and writes in a tile, and where its parameters stand."""

    input: int  # its first column in the first row
    inputs: int
    inputs_padded: int
    output: int
    outputs: int
    outputs_padded: int
    weights: int  # in `wide`, as the bias
    bias: int
    turned: int  # the weights again, in `turned`
    active: int  # 0, RELU or TANH
    seen: int  # 1: the inputs are observations, nothing is passed on to them
    input_row: int  # from one row of the inputs to the next
    output_row: int


PLAN = np.dtype((np.record, [(name, np.int64) for name in PlannedLayer._fields]))
TILE = 96  # rows: activations, gradients and weights stay in the second cache
PPO_SUMS = ("policy", "value", "entropy", "clipped", "kl_k1", "kl_k3")  # over rows, of `learn_ppo`
CLONING_SUMS = ("crossed", "error", "hits")  # and of `learn_cloning`
TOPS, TOTALS, SPREADS, GAINS, RETURNS, VALUES, ERRORS = range(0, 7 * TILE, TILE)  # where each begins in `lanes`, by row of a tile

LEAST = np.float32(-87.0)  # exp of it is the smallest that is exact to the last bits
ALLOWED = np.float32(-1e20)  # what every logit is above that may be chosen
NEVER = np.float32(-1e9)  # the log-probability of one that may not


# --- a tile ----------------------------------------------------------------------------------------------------------
@leaf
def _arrange(
    features: Array, row: int, place: Array, mean: Array, scale: Array, bound: np.float32, scratch: Array, out: Array, at: int,
) -> None:  # fmt: skip
    """A row of features to out[at + place], normalised where the bound is above 0. scratch (F,) f4"""
    count = place.shape[0]
    if bound > ZERO:
        for j in range(count):
            z = (features[row, j] - mean[j]) / scale[j]
            z = -bound if z < -bound else z
            scratch[j] = bound if z > bound else z
        for j in range(count):
            out[at + place[j]] = scratch[j]
    else:
        for j in range(count):
            out[at + place[j]] = features[row, j]


@leaf
def _load_map(maps: Array, row: int, act: Array, at: int) -> None:
    for j in range(maps.shape[1]):
        act[at + j] = np.float32(maps[row, j])


@kernel
def _load(x: Array, maps: Array, places: tuple[int, int, int], order: Array, begin: int, rows: int, act: Array) -> None:
    """Rows order[begin:begin + rows] of the observations into the tile; `places`: their stride, the first map, its stride."""
    seen = x.shape[1]
    for r in range(rows):
        row = order[begin + r]
        copy(act, r * places[0], x, row * seen, seen)
        _load_map(maps, row, act, places[1] + r * places[2])


@kernel
def _forward(
    plan: Array, wide: Array, turned: Array, act: Array, rows: int, x: Array, order: Array, ahead: int, last: int
) -> None:
    """Meanwhile rows order[ahead] to order[last] of x, which the next tile will load, are called up from memory, one by each of
    the blocks."""
    rows += rows % 2  # there is room; nobody reads it
    for k in range(plan.shape[0]):
        layer = plan[k]
        y, y_row, padded, active = layer.output, layer.output_row, layer.outputs_padded, layer.active
        pace = (x.shape[1] + layer.inputs - 1) // layer.inputs
        for j in range(0, padded, STRIP):
            for i in range(0, rows, BLOCK):
                called = order[min(ahead, last)] * x.shape[1]
                ahead += 1
                outputs_product(
                    act, i * y_row + y + j, y_row, act, i * layer.input_row + layer.input, layer.input_row, 1,
                    turned, layer.turned + j, padded, layer.inputs, wide, layer.bias + j,
                    min(BLOCK, rows - i), min(STRIP, padded - j), active, x, called, pace,
                )  # fmt: skip
        if active == TANH:
            for r in range(rows):
                for j in range(layer.outputs):
                    act[r * y_row + y + j] = tanh32(act[r * y_row + y + j])


@kernel
def _backward(plan: Array, wide: Array, act: Array, grad: Array, rows: int, ones: Array, total: Array) -> None:
    """From the gradients of the last segment those of all weights, added to `total`, which is laid out like `wide`."""
    even = rows + rows % 2
    for k in range(plan.shape[0] - 1, -1, -1):
        layer = plan[k]
        x, x_row, padded, outputs = layer.input, layer.input_row, layer.inputs_padded, layer.outputs
        y, y_row, width = layer.output, layer.output_row, layer.outputs_padded
        for j in range(0, padded, STRIP):
            weights_product(
                total, layer.weights + j, padded, grad, y, 1, y_row, act, x + j, x_row, rows, act, 0, outputs + outputs % 2,
                min(STRIP, padded - j), 0, ones, 0, 0,
            )  # fmt: skip
        for j in range(0, width, STRIP):
            biases_product(
                total, layer.bias + j, 0, ones, 0, 0, 0, grad, y + j, y_row, rows, act, 0, 1, min(STRIP, width - j), 0, ones, 0, 0
            )
        if layer.seen:
            continue
        active = plan[0].active  # of every hidden layer, and the inputs of this one are hidden
        for j in range(0, padded, STRIP):
            inputs_product(
                grad, x + j, x_row, grad, y, y_row, 1, wide, layer.weights + j, padded, outputs, act, x + j, even,
                min(STRIP, padded - j), active, ones, 0, 0,
            )  # fmt: skip


@kernel
def _softmax(
    act: Array, last: int, stride: int, actions: int, rows: int, masks: Array, order: Array, begin: int, chances: Array,
    logs: Array, lanes: Array,
) -> None:  # fmt: skip
    """p and log p of what the masks allow (p is 0 elsewhere) and the entropies, then the values as they are: action by action,
    the rows of the tile side by side. A logit that is no number makes none of them one.  # masks (R, A + 1 padded)"""
    width = masks.shape[1]
    for r in range(rows):
        row, at = order[begin + r], r * stride + last
        for j in range(0, width, LANES):
            mask(act, at + j, masks, row * width + j)
    for r in range(0, rows, LANES):
        for j in range(0, width, LANES):
            turn(logs, j * TILE + r, TILE, act, r * stride + last + j, stride)
    for r in range(TILE):
        lanes[TOPS + r], lanes[TOTALS + r], lanes[SPREADS + r] = logs[r], ZERO, ZERO
    for j in range(1, actions):
        for r in range(TILE):
            z = logs[j * TILE + r]
            lanes[TOPS + r] = z if z > lanes[TOPS + r] else lanes[TOPS + r]
    for j in range(actions):
        for r in range(TILE):
            z = logs[j * TILE + r] - lanes[TOPS + r]
            e = exp32(z if z > LEAST else LEAST)
            e = e if z > ALLOWED else ZERO
            logs[j * TILE + r], chances[j * TILE + r] = z, e
            lanes[TOTALS + r] += e + z * ZERO
    for r in range(TILE):
        lanes[TOPS + r] = np.float32(log64(np.float64(lanes[TOTALS + r]))) + lanes[TOTALS + r] * ZERO
        lanes[TOTALS + r] = ONE / lanes[TOTALS + r]
    for j in range(actions):
        for r in range(TILE):
            log, p = logs[j * TILE + r] - lanes[TOPS + r], chances[j * TILE + r] * lanes[TOTALS + r]
            logs[j * TILE + r], chances[j * TILE + r] = log, p
            lanes[SPREADS + r] -= p * log


@leaf
def _back_to_rows(chances: Array, grad: Array, last: int, stride: int, width: int, rows: int) -> None:
    """Gradients that lie action by action, into the last block of a tile."""
    for r in range(0, rows, LANES):
        for j in range(0, width, LANES):
            turn(grad, r * stride + last + j, stride, chances, j * TILE + r, TILE)


# --- what Python calls -----------------------------------------------------------------------------------------------
@entry
def arrange(
    features: Array, rows: Array, begin: int, end: int, place: Array, mean: Array, scale: Array, bound: np.float32,
    scratch: Array, out: Array,
) -> None:  # fmt: skip
    """Rows begin to end of features[rows] as `_load` reads them.  # features (·, F), out (R, X) f4"""
    flat, width = out.reshape(-1), out.shape[1]
    for r in range(begin, end):
        _arrange(features, rows[r], place, mean, scale, bound, scratch, flat, r * width)


@entry
def renew(known: Array, vector: Array) -> bool:
    """Whether the vector is another than what is known of it; it is known then."""
    other = False
    for i in range(vector.shape[0]):
        other |= vector[i] != known[i]
    if other:
        copy(known, 0, vector, 0, vector.shape[0])
    return other


@entry
def spread(vector: Array, plan: Array, runs: Array, wide: Array, turned: Array) -> None:
    """All parameters as one vector into the two layouts that the products read, outputs × inputs and turned.
    # runs (·, 3): begin in the vector, begin in `wide`, length"""
    for k in range(runs.shape[0]):
        copy(wide, runs[k, 1], vector, runs[k, 0], runs[k, 2])
    for k in range(plan.shape[0]):
        layer = plan[k]
        inputs, outputs = layer.inputs_padded, layer.outputs_padded
        for i in range(0, outputs, LANES):
            for j in range(0, inputs, LANES):
                turn(turned, layer.turned + j * outputs + i, outputs, wide, layer.weights + i * inputs + j, inputs)


@entry
def collect(shards: Array, runs: Array, gradient: Array) -> None:
    """The gradients of all shards (S, ·), one after the other, added to the vector's."""
    for k in range(runs.shape[0]):
        begin, at, count = runs[k, 0], runs[k, 1], runs[k, 2]
        total = gradient[begin : begin + count]
        for s in range(shards.shape[0]):
            added = shards[s, at : at + count]
            for i in range(count):
                total[i] += added[i]


@entry
def answer(
    plan: Array, wide: Array, turned: Array, act: Array, features: Array, place: Array, mean: Array, scale: Array,
    bound: np.float32, scratch: Array, town: Array, town_at: int, maps: Array, places: tuple[int, int, int], begin: int,
    end: int, out: Array,
) -> None:  # fmt: skip
    """Logits and value of rows begin to end, observations arranged on the way.  # town (R, F | 0), out (R, A + 1) f4"""
    last, stride = plan[-1].output, plan[-1].output_row
    for at in range(begin, end, TILE):
        rows = min(TILE, end - at)
        for r in range(rows):
            _arrange(features, at + r, place, mean, scale, bound, scratch, act, r * places[0])
            for j in range(town.shape[1]):
                act[r * places[0] + town_at + j] = town[at + r, j]
            _load_map(maps, at + r, act, places[1] + r * places[2])
        _forward(plan, wide, turned, act, rows, features, place, 0, 0)
        for r in range(rows):
            for j in range(out.shape[1]):
                out[at + r, j] = act[r * stride + last + j]


@entry
def learn_ppo(
    plan: Array, wide: Array, turned: Array, act: Array, grad: Array, ones: Array, chances: Array, logs: Array, lanes: Array,
    ratios: Array, x: Array, maps: Array, places: tuple[int, int, int], order: Array, edges: Array, first: int, step: int,
    masks: Array, actions: Array, old: Array, advantages: Array, returns: Array, values: Array, numbers: Array,
    gradients: Array, sums: Array,
) -> None:  # fmt: skip
    """Of every step-th shard from the first on, rows order[edges[k]:edges[k + 1]]: gradients of the PPO loss in gradients[k],
    PPO_SUMS added to sums[k].

    L = 1/n Σ −min(ρ A, clip(ρ, 1 ± ε) A) + c_v max((V − R)², (V_old + clip(V − V_old, ±c) − R)²) − c_e H

    `numbers`: mean and 1/std of the advantages, ε, c_v, c_e, c (0 for no clip), weight / n. `ratios` (2 TILE,) f8 is scratch.
    """
    mean, inverse, clip, of_value = numbers[0], numbers[1], np.float64(numbers[2]), numbers[3]
    of_spread, held_within, share = numbers[4] * numbers[6], numbers[5], numbers[6]
    last, stride, count = plan[-1].output, plan[-1].output_row, plan[-1].outputs - 1
    for k in range(first, gradients.shape[0], step):
        _clear(gradients[k])
        for at in range(edges[k], edges[k + 1], TILE):
            rows = min(TILE, edges[k + 1] - at)
            _load(x, maps, places, order, at, rows, act)
            _forward(plan, wide, turned, act, rows, x, order, at + rows, min(at + rows + TILE, edges[k + 1]) - 1)
            _softmax(act, last, stride, count, rows, masks, order, at, chances, logs, lanes)
            for r in range(rows):
                row = order[at + r]
                ratios[r] = np.float64(logs[actions[row] * TILE + r]) - np.float64(old[row])
                lanes[GAINS + r] = (advantages[row] - mean) * inverse
                lanes[RETURNS + r], lanes[VALUES + r] = returns[row], values[row]
            for r in range(TILE):
                ratio, gain = exp64(ratios[r]), np.float64(lanes[GAINS + r])
                free, bound = ratio * gain, min(max(ratio, 1.0 - clip), 1.0 + clip) * gain
                inside = (ratio > 1.0 - clip) & (ratio < 1.0 + clip)
                lanes[TOPS + r] = np.float32(-free) * share if (free <= bound) | inside else ZERO
                ratios[TILE + r] = ratio
            for r in range(TILE):
                value, goal, before = logs[count * TILE + r], lanes[RETURNS + r], lanes[VALUES + r]
                error, moved = value - goal, value - before
                held = before + min(max(moved, -held_within), held_within) - goal
                clipped = (held_within > ZERO) & (held * held > error * error)
                of_held = TWO * held if (moved > -held_within) & (moved < held_within) else ZERO
                lanes[ERRORS + r] = held * held if clipped else error * error
                chances[count * TILE + r] = of_value * (of_held if clipped else TWO * error) * share
            _add_sums(lanes, ratios, rows, clip, sums[k])
            for j in range(count):
                for r in range(TILE):
                    p = chances[j * TILE + r]
                    tilt = of_spread * p * (logs[j * TILE + r] + lanes[SPREADS + r])
                    chances[j * TILE + r] = tilt - lanes[TOPS + r] * p
            for r in range(rows):
                chances[actions[order[at + r]] * TILE + r] += lanes[TOPS + r]
            _back_to_rows(chances, grad, last, stride, masks.shape[1], rows)
            _backward(plan, wide, act, grad, rows, ones, gradients[k])


@leaf
def _clear(gradient: Array) -> None:
    """By the thread that adds to it: where another core has cleared it, it must be fetched from there."""
    for i in range(gradient.shape[0]):
        gradient[i] = ZERO


@leaf
def _add_sums(lanes: Array, ratios: Array, rows: int, clip: float, sums: Array) -> None:
    """PPO_SUMS of the rows of a tile, one row after the other."""
    policy, value, spread, clipped, k1, k3 = sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]
    for r in range(rows):
        log_ratio, ratio, gain = ratios[r], ratios[TILE + r], np.float64(lanes[GAINS + r])
        policy -= min(ratio * gain, min(max(ratio, 1.0 - clip), 1.0 + clip) * gain)
        value += lanes[ERRORS + r]
        spread += lanes[SPREADS + r]
        clipped += 1.0 if abs(ratio - 1.0) > clip else 0.0
        k1 -= log_ratio
        k3 += ratio - 1.0 - log_ratio
    sums[0], sums[1], sums[2], sums[3], sums[4], sums[5] = policy, value, spread, clipped, k1, k3


@entry
def learn_cloning(
    plan: Array, wide: Array, turned: Array, act: Array, grad: Array, ones: Array, chances: Array, logs: Array, lanes: Array,
    ratios: Array, x: Array, maps: Array, places: tuple[int, int, int], order: Array, edges: Array, first: int, step: int,
    masks: Array, experts: Array, returns: Array, of_value: float, share: float, gradients: Array, sums: Array,
) -> None:  # fmt: skip
    """Gradients of the cloning loss, 1/n Σ −log π(expert) + c_v (V − R)², likewise; the latter where there are returns."""
    last, stride, count = plan[-1].output, plan[-1].output_row, plan[-1].outputs - 1
    for k in range(first, gradients.shape[0], step):
        _clear(gradients[k])
        for at in range(edges[k], edges[k + 1], TILE):
            rows = min(TILE, edges[k + 1] - at)
            _load(x, maps, places, order, at, rows, act)
            _forward(plan, wide, turned, act, rows, x, order, at + rows, min(at + rows + TILE, edges[k + 1]) - 1)
            _softmax(act, last, stride, count, rows, masks, order, at, chances, logs, lanes)
            for r in range(rows):
                row, best = order[at + r], 0
                for j in range(1, count):
                    best = j if logs[j * TILE + r] > logs[best * TILE + r] else best
                sums[k, 0] -= max(logs[experts[row] * TILE + r], NEVER)
                sums[k, 2] += 1.0 if best == experts[row] else 0.0
                chances[count * TILE + r] = ZERO
                if returns.shape[0] > 0:
                    error = logs[count * TILE + r] - returns[row]
                    sums[k, 1] += error * error
                    chances[count * TILE + r] = of_value * TWO * error * share
            for j in range(count):
                for r in range(TILE):
                    chances[j * TILE + r] *= share
            for r in range(rows):
                chances[experts[order[at + r]] * TILE + r] -= share
            _back_to_rows(chances, grad, last, stride, masks.shape[1], rows)
            _backward(plan, wide, act, grad, rows, ones, gradients[k])


@entry
def moments(x: Array, order: Array, begin: int, end: int) -> tuple[float, float]:
    """Mean and standard deviation (n − 1) of x[order[begin:end]]; 1 over fewer than two."""
    n, total = end - begin, 0.0
    for i in range(begin, end):
        total += np.float64(x[order[i]])
    mean, squares = total / n, 0.0
    for i in range(begin, end):
        gap = np.float64(x[order[i]]) - mean
        squares += gap * gap
    return mean, np.sqrt(squares / (n - 1.0)) if n > 1 else 1.0


@entry
def advance(
    rewards: Array, values: Array, at_limit: Array, dead: Array, cut: Array, live: Array, next_value: Array,
    next_advantage: Array, gamma: float, decay: float, advantages: Array, returns: Array,
) -> None:  # fmt: skip
    """`estimates.gae` of (T, B), f8 and bool; `decay` is γ λ. What comes next (B,) is at first what comes after the last row.
    The two that are written are f4 and zero."""
    for t in range(rewards.shape[0] - 1, -1, -1):
        for b in range(rewards.shape[1]):
            if live[t, b]:
                bootstrap = 0.0 if dead[t, b] else at_limit[t, b] if cut[t, b] else next_value[b]
                carried = 0.0 if dead[t, b] or cut[t, b] else next_advantage[b]
                next_advantage[b] = rewards[t, b] + gamma * bootstrap - values[t, b] + decay * carried
                next_value[b] = values[t, b]
                advantages[t, b], returns[t, b] = next_advantage[b], next_advantage[b] + next_value[b]


@entry
def column_sums(rows: Array, order: Array, about: Array, first: Array, second: Array) -> None:
    """Σ (x − about) and Σ (x − about)² of each column over rows[order], in float64."""
    for i in range(order.shape[0]):
        row = order[i]
        for j in range(about.shape[0]):
            gap = rows[row, j] - about[j]
            first[j] += gap
            second[j] += gap * gap


@entry
def descend(
    vector: Array, gradient: Array, first: Array, second: Array, bound: float, rate: float, decay: np.float32, decoupled: bool,
    adam: bool, betas: tuple[float, float], epsilon: np.float32, steps_first: float, steps_second: float,
) -> Any:  # fmt: skip
    """One step of `numerics.Optimizer`; `steps_…` are 1 − βᵗ."""
    total = 0.0
    for i in range(gradient.shape[0]):
        total += np.float64(gradient[i]) * np.float64(gradient[i])
    norm = np.sqrt(total)
    if not norm < np.inf:
        return norm
    shrink = np.float32(bound / (norm + 1e-6)) if norm > bound else ONE
    one, other = np.float32(1.0 - betas[0]), np.float32(1.0 - betas[1])
    kept, root, pace = np.float32(betas[1]), np.float32(np.sqrt(steps_second)), np.float32(rate / steps_first)
    for i in range(vector.shape[0]):
        g, w = gradient[i] * shrink, vector[i]
        if decoupled:
            w -= w * decay
        else:
            g += w * decay
        if adam:
            m = first[i] + (g - first[i]) * one
            v = second[i] * kept + g * g * other
            first[i], second[i] = m, v
            w -= pace * m / (np.sqrt(v) / root + epsilon)
        else:
            w -= np.float32(rate) * g
        vector[i] = w
        gradient[i] = ZERO
    return norm


@entry
def choose(
    out: Array, masks: Array, draws: Array, weights: Array, begin: int, end: int, actions: Array, log_probs: Array,
) -> None:  # fmt: skip
    """`inference.choose_actions`: by a draw, or, where that is below 0, the most probable. `weights` is scratch, (A,) f8."""
    count = masks.shape[1]
    for r in range(begin, end):
        top, best, total, chosen = np.float32(-np.inf), 0, 0.0, -1
        for j in range(count):
            if masks[r, j] and out[r, j] > top:
                top, best = out[r, j], j
        for j in range(count):
            weights[j] = exp64(np.float64(out[r, j]) - np.float64(top)) if masks[r, j] else 0.0
            total += weights[j]
        if draws[r] < 0.0:
            chosen = best
        else:
            reached, goal = 0.0, draws[r] * total
            for j in range(count):
                if masks[r, j] and (chosen < 0 or reached <= goal):
                    reached += weights[j]
                    chosen = j
        actions[r] = max(chosen, 0)
        log_probs[r] = np.float32(np.float64(out[r, actions[r]]) - np.float64(top) - log64(total))


@entry
def settle(out: Array, masks: Array, log_probs: Array) -> None:
    """log softmax over the allowed actions, (R, A); −10⁹ elsewhere."""
    count = masks.shape[1]
    for r in range(out.shape[0]):
        top, total = np.float32(-np.inf), 0.0
        for j in range(count):
            if masks[r, j] and out[r, j] > top:
                top = out[r, j]
        for j in range(count):
            if masks[r, j]:
                total += exp64(np.float64(out[r, j]) - np.float64(top))
        log_total = log64(total) + np.float64(top)
        for j in range(count):
            log_probs[r, j] = np.float32(np.float64(out[r, j]) - log_total) if masks[r, j] else NEVER
