"""One mini-batch: slices of the data, the outputs of the network on them, the loss and the numbers that describe it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.policy.models import ConflictAwarePolicyNetwork
from townlet.policy.training import numerics

# Rows of a network without memory are (R, ...), R over active rows only; with memory they are sequences (T, B, ...) and
# `active` (T, B) says which rows count. `state` (B, S) then goes with the residents.
Tensors = dict[str, Tensor]
PPO_TERMS = ("loss_policy", "loss_value", "entropy", "clip_fraction", "kl_k1", "kl_k3", "adv_mean", "adv_std")
ZERO_STD = 1e-6


def shuffled(data: Tensors, axis: int, order: NDArray[np.int64], parts: int, scratch: Tensors) -> Iterator[Tensors]:
    """Mini-batches of as equal a size as can be, slices of one permuted copy. The copy is made in `scratch`, which is kept:
    fresh memory of that size costs more than filling it."""
    index = torch.from_numpy(order)
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


def outputs(network: ConflictAwarePolicyNetwork, part: Tensors) -> tuple[Tensor, Tensor]:
    """Logits (..., A) and values (...,) in normalised units."""
    if "starts" in part:
        logits, values = network.sequences(part["features"], part.get("maps"), part["starts"], part["state"])
    else:
        logits, values = network.rows(part["features"], part.get("maps"))
    return logits.float(), values.float()


def ppo_terms(
    network: ConflictAwarePolicyNetwork,
    part: Tensors,
    coefficients: Tensor,  # clip range, entropy weight, value weight: tensors, so that a compiled update is not built anew
    value_clip: float | None,
    normalize_advantages: bool,
) -> tuple[Tensor, Tensor]:
    """L = L_policy + c_v L_value − c_e H, and the numbers of PPO_TERMS."""
    clip, entropy_coef, value_coef = coefficients.unbind()
    active = part.get("active")
    logits, values = outputs(network, part)
    log_probs = numerics.masked_log_softmax(logits, part["masks"])
    advantages = part["advantages"]
    adv_mean, adv_std = numerics.masked_moments(advantages, active)
    if normalize_advantages:
        advantages = numerics.normalized(advantages, active)
    log_ratio = numerics.taken(log_probs, part["actions"]) - part["log_probs"]
    policy, clipped = numerics.surrogate_loss(log_ratio, advantages, clip, active)
    value = numerics.value_loss(values, part["returns"], part["values"], value_clip, active)
    entropy = numerics.masked_mean(numerics.entropy(log_probs), active)
    loss = policy + value_coef * value - entropy_coef * entropy
    with torch.no_grad():
        k1, k3 = numerics.kl_k1(log_ratio, active), numerics.kl_k3(log_ratio, active)
        stats = torch.stack([policy, value, entropy, clipped, k1, k3, adv_mean, adv_std]).detach()
    return loss, stats


def cloning_terms(network: ConflictAwarePolicyNetwork, part: Tensors, value_coef: float) -> tuple[Tensor, Tensor]:
    """L = cross-entropy + value_coef · value regression; cross-entropy, value loss, accuracy and number of rows beside it."""
    active = part.get("active")
    logits, values = outputs(network, part)
    log_probs = numerics.masked_log_softmax(logits, part["masks"])
    loss = crossed = numerics.cloning_loss(log_probs, part["experts"], active)
    error = torch.zeros(())
    if value_coef > 0 and "returns" in part:
        error = numerics.value_loss(values, part["returns"], mask=active)
        loss = crossed + value_coef * error
    with torch.no_grad():
        hits = (log_probs.argmax(-1) == part["experts"]).float()
        rows = torch.tensor(float(hits.numel())) if active is None else active.float().sum()
        stats = torch.stack([crossed, error, numerics.masked_mean(hits, active), rows]).detach()
    return loss, stats


def summary(table: NDArray[np.float64], grads: NDArray[np.float64]) -> dict[str, Any]:
    """Fields of UpdateStats from the mini-batches: columns PPO_TERMS, total loss, cloning loss, cloning accuracy."""
    column = {name: table[:, i] for i, name in enumerate((*PPO_TERMS, "loss_total", "bc_loss", "bc_accuracy"))}
    means = {name: float(values.mean()) for name, values in column.items()}
    return {
        "loss_policy": means["loss_policy"],
        "loss_value": means["loss_value"],
        "loss_entropy": -means["entropy"],
        "loss_total": means["loss_total"],
        "clip_fraction": means["clip_fraction"],
        "clip_fraction_max": float(column["clip_fraction"].max()),
        "clip_triggered_minibatches": int((column["clip_fraction"] > 0).sum()),
        "adv_mean": means["adv_mean"],
        "adv_std": means["adv_std"],
        "adv_min_std": float(column["adv_std"].min()),
        "adv_zero_std_batches": int((column["adv_std"] < ZERO_STD).sum()),
        "grad_norm": float(grads.mean()) if len(grads) else 0.0,
        "grad_norm_max": float(grads.max()) if len(grads) else 0.0,
        "kl_divergence": means["kl_k1"],
        "kl_divergence_max": float(column["kl_k1"].max()),
        "kl_k3": means["kl_k3"],
        "kl_k3_max": float(column["kl_k3"].max()),
        "batch_entropy_mean": means["entropy"],
        "batch_entropy_std": float(column["entropy"].std()),
        "bc_loss": means["bc_loss"],
        "bc_accuracy": means["bc_accuracy"],
    }
