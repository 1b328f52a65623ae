"""The arithmetic of training over torch tensors, as pure functions: masked distributions, losses, the optimiser.

Shapes: T decisions, B residents (towns × slots, flattened), A actions; losses take any leading shape.
Every mean is a masked mean, Σ mask·x / Σ mask: a resident that is gone is not a zero, it is absent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Parameter

from townlet.policy.inference import MASKED_LOGIT

# Rows of a network without memory are (R, ...), R over active rows only; with memory they are sequences (T, B, ...) and
# `active` (T, B) says which rows count. `state` (B, S) then goes with the residents.
Parameters = Sequence[Parameter]
Tensors = dict[str, Tensor]
STD_FLOOR = 1e-8
LEAST_LOG_PROB = -80.0  # below it exp leaves the normal numbers, where it takes eight times as long


# --- masked distributions --------------------------------------------------------------------------------------------
def masked_log_softmax(logits: Tensor, masks: Tensor | None) -> Tensor:
    """log softmax over the allowed actions, (..., A); a masked action has probability exactly 0 and passes no gradient."""
    if masks is not None:
        logits = logits.masked_fill(~masks, MASKED_LOGIT)
    return torch.log_softmax(logits, dim=-1)


def taken(log_probs: Tensor, actions: Tensor) -> Tensor:
    """log π(a | s) of the actions taken, (...,)."""
    return log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def entropy(log_probs: Tensor) -> Tensor:
    """H = −Σ_a p log p, (...,). Masked actions add nothing that a float32 shows: e⁻⁸⁰ · 80 each, and no gradient."""
    bounded = log_probs.clamp_min(LEAST_LOG_PROB)
    return -(bounded.exp() * bounded).sum(-1)


def masked_mean(x: Tensor, mask: Tensor | None) -> Tensor:
    """Σ mask·x / Σ mask, 0 over nothing."""
    if mask is None:
        return x.mean()
    weight = mask.to(x.dtype)
    return (x * weight).sum() / weight.sum().clamp_min(1.0)


def normalized(advantages: Tensor, mask: Tensor | None = None) -> Tensor:
    """(A − mean) / (std + 1e-8) over the rows of the mask, std with n − 1 (1 over fewer than two rows)."""
    mean, std = masked_moments(advantages, mask)
    scaled = (advantages - mean) / (std + STD_FLOOR)
    return scaled if mask is None else scaled * mask


def masked_moments(x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (n − 1); std is 1 over fewer than two rows."""
    if mask is None:
        return x.mean(), x.std() if x.numel() > 1 else torch.ones_like(x[0])
    weight = mask.to(x.dtype)
    count = weight.sum()
    mean = (x * weight).sum() / count.clamp_min(1.0)
    if count < 2:
        return mean, torch.ones_like(mean)
    return mean, (((x - mean) ** 2 * weight).sum() / (count - 1.0)).sqrt()


# --- losses ----------------------------------------------------------------------------------------------------------
def surrogate_loss(
    log_ratio: Tensor, advantages: Tensor, clip: float | Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """−mean min(ρ A, clip(ρ, 1 ± ε) A) with ρ = exp(log π − log π_old), and the share of rows with |ρ − 1| > ε."""
    ratio, bound = log_ratio.exp(), torch.as_tensor(clip)
    loss = -masked_mean(torch.minimum(ratio * advantages, ratio.clamp(1.0 - bound, 1.0 + bound) * advantages), mask)
    with torch.no_grad():
        clipped = masked_mean(((ratio - 1.0).abs() > clip).to(ratio.dtype), mask)
    return loss, clipped


def value_loss(
    values: Tensor, returns: Tensor, old_values: Tensor | None = None, clip: float | None = None, mask: Tensor | None = None
) -> Tensor:
    """mean (V − R)²; with a clip c: mean max((V − R)², (V_old + clip(V − V_old, ±c) − R)²)."""
    squared = (values - returns) ** 2
    if clip is not None and old_values is not None:
        held = old_values + (values - old_values).clamp(-clip, clip)
        squared = torch.maximum(squared, (held - returns) ** 2)
    return masked_mean(squared, mask)


def kl_k1(log_ratio: Tensor, mask: Tensor | None = None) -> Tensor:
    """mean(log π_old − log π): unbiased, may be negative."""
    return masked_mean(-log_ratio, mask)


def kl_k3(log_ratio: Tensor, mask: Tensor | None = None) -> Tensor:
    """mean((ρ − 1) − log ρ): unbiased, never negative, of small variance."""
    return masked_mean(torch.expm1(log_ratio) - log_ratio, mask)


def cloning_loss(log_probs: Tensor, experts: Tensor, mask: Tensor | None = None) -> Tensor:
    """Behaviour cloning: −mean log π(a_expert | s) from masked log-probabilities (..., A)."""
    return -masked_mean(taken(log_probs, experts), mask)


# --- descent ---------------------------------------------------------------------------------------------------------
class Optimizer:
    """Adam, AdamW or plain descent (`sgd`) over all parameters as one vector w, their gradients gathered in another, g.

        m' = β₁ m + (1 − β₁) g     v' = β₂ v + (1 − β₂) g²     w' = w − lr m̂ / (√v̂ + ε),  m̂ = m'/(1 − β₁ᵗ),  v̂ = v'/(1 − β₂ᵗ)

    Weight decay adds λw to g; AdamW instead takes lr λw off w. Parameters become views of the vector, so a step is a handful
    of operations however many layers there are: 77 µs for 20,000 parameters and 158 for 60,000 on one core, where torch.optim's
    Adam takes 119 and 172 in its fused form on the same vector, 286 and 377 in its other.
    """

    BETAS = (0.9, 0.999)

    def __init__(self, parameters: Parameters, kind: str, epsilon: float) -> None:
        self.kind, self.epsilon, self.steps = kind, epsilon, 0
        self.vector = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        self.gradient = torch.zeros_like(self.vector)
        self.first, self.second = torch.zeros_like(self.vector), torch.zeros_like(self.vector)
        begin = 0
        for parameter in parameters:
            end = begin + parameter.numel()
            parameter.data = self.vector[begin:end].view_as(parameter)
            parameter.grad = self.gradient[begin:end].view_as(parameter)
            begin = end

    def moments(self) -> Tensors:
        """What a step depends on beside weights, gradient and number of steps."""
        return {} if self.kind == "sgd" else {"first": self.first, "second": self.second}

    def step(self, rate: float, bound: float, decay: float = 0.0) -> float:
        """One step along the gradient, scaled down to the bound where its norm is above; then it is zero. The norm as it was; no
        step is made where that is not finite."""
        norm = float(self.gradient.norm())
        if not math.isfinite(norm):
            return norm
        if norm > bound:
            self.gradient.mul_(bound / (norm + 1e-6))
        self.steps += 1
        if decay > 0.0 and self.kind == "adamw":
            self.vector.mul_(1.0 - rate * decay)
        elif decay > 0.0:
            self.gradient.add_(self.vector, alpha=decay)
        if self.kind == "sgd":
            self.vector.add_(self.gradient, alpha=-rate)
        else:
            of_first, of_second = self.BETAS
            self.first.lerp_(self.gradient, 1.0 - of_first)
            self.second.mul_(of_second).addcmul_(self.gradient, self.gradient, value=1.0 - of_second)
            scale = (self.second.sqrt() / math.sqrt(1.0 - of_second**self.steps)).add_(self.epsilon)
            self.vector.addcdiv_(self.first, scale, value=-rate / (1.0 - of_first**self.steps))
        self.gradient.zero_()
        return norm


# --- mini-batches ----------------------------------------------------------------------------------------------------
def shuffled(data: Tensors, axis: int, order: NDArray[np.int64], parts: int, scratch: Tensors) -> Iterator[Tensors]:
    """Mini-batches of as equal a size as can be, slices of one permuted copy. The copy is made in `scratch`, which is kept:
    fresh memory of that size costs more than filling it."""
    index = torch.from_numpy(order).to(next(iter(data.values())).device)
    copy = {}
    for name, tensor in data.items():
        place = scratch.get(name)
        if place is None or place.shape != tensor.shape or place.dtype != tensor.dtype:
            place = scratch[name] = torch.empty_like(tensor, memory_format=torch.contiguous_format)
        copy[name] = torch.index_select(tensor, 0 if name == "state" else axis, index, out=place)
    edges = np.linspace(0, len(order), parts + 1).astype(int).tolist()
    for begin, end in pairwise(edges):
        yield slice_of(copy, axis, begin, end)


def slice_of(data: Tensors, axis: int, begin: int, end: int) -> Tensors:
    return {name: tensor.narrow(0 if name == "state" else axis, begin, end - begin) for name, tensor in data.items()}


def ppo_terms(
    logits: Tensor,  # (..., A)
    values: Tensor,  # (...,) in the units of part["returns"]
    part: Tensors,
    coefficients: Tensor,  # clip range, entropy weight, value weight: tensors, so that a compiled update is not built anew
    value_clip: float | None,
    normalize_advantages: bool,
) -> tuple[Tensor, Tensor]:
    """L = L_policy + c_v L_value − c_e H, and the numbers of PPO_TERMS."""
    clip, entropy_coef, value_coef = coefficients.unbind()
    active = part.get("active")
    log_probs = masked_log_softmax(logits, part["masks"])
    advantages = part["advantages"]
    adv_mean, adv_std = masked_moments(advantages, active)
    if normalize_advantages:
        advantages = normalized(advantages, active)
    log_ratio = taken(log_probs, part["actions"]) - part["log_probs"]
    policy, clipped = surrogate_loss(log_ratio, advantages, clip, active)
    value = value_loss(values, part["returns"], part["values"], value_clip, active)
    spread = masked_mean(entropy(log_probs), active)
    loss = policy + value_coef * value - entropy_coef * spread
    with torch.no_grad():
        k1, k3 = kl_k1(log_ratio, active), kl_k3(log_ratio, active)
        stats = torch.stack([policy, value, spread, clipped, k1, k3, adv_mean, adv_std]).detach()
    return loss, stats


def cloning_terms(logits: Tensor, values: Tensor, part: Tensors, value_coef: float) -> tuple[Tensor, Tensor]:
    """L = cross-entropy + value_coef · value regression; cross-entropy, value loss, accuracy and number of rows beside it."""
    active = part.get("active")
    log_probs = masked_log_softmax(logits, part["masks"])
    loss = crossed = cloning_loss(log_probs, part["expert"], active)
    error = crossed.new_zeros(())
    if value_coef > 0 and "returns" in part:
        error = value_loss(values, part["returns"], mask=active)
        loss = crossed + value_coef * error
    with torch.no_grad():
        hits = (log_probs.argmax(-1) == part["expert"]).float()
        rows = crossed.new_tensor(float(hits.numel())) if active is None else active.float().sum()
        stats = torch.stack([crossed, error, masked_mean(hits, active), rows]).detach()
    return loss, stats
