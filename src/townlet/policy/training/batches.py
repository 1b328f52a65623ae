"""The figures of an update, and what an update needs of a batch: checks, permutations, rows that count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from townlet.errors import UsageError
from townlet.policy.inference import check_inputs
from townlet.policy.network import NetworkSpec
from townlet.policy.trajectory import Trajectory
from townlet.types import Array, Doubles, Record

Flags = Array  # uint8 or bool
PPO_TERMS = ("loss_policy", "loss_value", "entropy", "clip_fraction", "kl_k1", "kl_k3", "adv_mean", "adv_std")
ZERO_STD = 1e-6


class Coefficients(NamedTuple):
    """What weighs in the loss of PPO, as its schedules stand."""

    clip: float
    entropy: float
    value: float
    value_clip: float | None


@dataclass(frozen=True)
class UpdateStats:
    """One PPO update: means over its mini-batches unless the name says otherwise."""

    updates: int  # optimiser steps made
    minibatches: int  # mini-batches evaluated
    epochs: int  # passes begun
    transitions: int  # active rows in the batch
    stopped_early: bool  # the KL bound ended the passes
    loss_policy: float
    loss_value: float
    loss_entropy: float  # mean entropy; the total subtracts entropy_coef times it
    loss_total: float
    clip_fraction: float
    clip_fraction_max: float
    clip_triggered_minibatches: int
    adv_mean: float
    adv_std: float
    adv_min_std: float
    adv_zero_std_batches: int
    grad_norm: float
    grad_norm_max: float
    kl_divergence: float  # mean(old − new log-prob)
    kl_divergence_max: float
    kl_k3: float
    kl_k3_max: float
    batch_entropy_mean: float
    batch_entropy_std: float
    explained_variance: float  # of the values that were acted on
    reward_advantage_corr: float
    mask_fill_mean: float  # share of allowed actions
    illegal_actions: int  # actions outside their mask, left out of the update
    lr: float
    clip_param: float
    entropy_coef: float
    bc_weight: float
    bc_loss: float
    bc_accuracy: float


@dataclass(frozen=True)
class CloningStats:
    """One pass of behaviour cloning, or one evaluation of it."""

    updates: int
    transitions: int
    loss: float  # cross-entropy
    loss_value: float
    accuracy: float
    grad_norm: float


def decisions_of(batch: Trajectory) -> Trajectory:
    """The T decisions of a batch (T, B, …), without the row after the last. Columns that do not fit each other are refused."""
    if batch.features.ndim != 3:
        raise UsageError(f"features have shape {batch.features.shape}; a batch needs (steps, residents, features)")
    decisions = batch.decisions()
    leading = decisions["features"].shape[:2]
    for name, array in decisions.items():
        if array.shape[:2] != leading:
            raise UsageError(f"{name} has shape {array.shape}; with these features it must begin with {leading}")
    return Trajectory(**decisions, state=batch.state)


def check_observed(spec: NetworkSpec, batch: Trajectory) -> None:
    """Refuse observations that the network cannot read."""
    check_inputs(spec, batch.features[0], None if batch.maps is None else batch.maps[0])
    if batch.masks is None:
        raise UsageError("the batch has no masks; without them the network would learn what nobody may do")
    if batch.masks.shape[2] != spec.actions:
        raise UsageError(f"masks have {batch.masks.shape[2]} actions; the network has {spec.actions}")


def permutation(seed: int, stream: int, update: int, epoch: int, length: int) -> NDArray[np.int64]:
    """An order of `length` things, drawn from a counter keyed by what it is for: no generator state to save."""
    words = np.array([seed % 2**64, stream], np.uint64)
    counter = np.array([0, 0, update, epoch], np.uint64)
    return np.random.Generator(np.random.Philox(key=words, counter=counter)).permutation(length)


def summary(table: Doubles, grads: Doubles) -> Record:
    """Fields of UpdateStats from the mini-batches: columns PPO_TERMS, total loss, cloning loss, cloning accuracy."""
    column = {name: table[:, i] for i, name in enumerate((*PPO_TERMS, "loss_total", "bc_loss", "bc_accuracy"))}
    means = {name: float(values.mean()) for name, values in column.items()}
    return {
        "loss_policy": means["loss_policy"],
        "loss_value": means["loss_value"],
        "loss_entropy": means["entropy"],
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


def watched_figures(watched: Array) -> Record:
    """The field `watched` of a mini-batch: mean and largest of each of the figures (R, K)."""
    means = watched.mean(axis=0, dtype=np.float64)
    return {"watched": list(zip(means.tolist(), watched.max(axis=0).tolist()))}


def legal_rows(active: Flags, masks: Flags, actions: NDArray[np.int64]) -> tuple[NDArray[np.bool_], int]:
    """Active rows whose action the mask allows (T, B), and how many active rows had another."""
    live = active.astype(bool)
    allowed = np.take_along_axis(masks, actions[..., None], axis=2)[..., 0].astype(bool)
    legal = live & allowed
    return legal, int(np.count_nonzero(live) - np.count_nonzero(legal))


class LearnerState(NamedTuple):
    """Everything that a run needs to go on bit for bit: two flat maps of arrays for safetensors, one small map for JSON."""

    weights: dict[str, Array]
    optimizer: dict[str, Array]
    meta: Record
