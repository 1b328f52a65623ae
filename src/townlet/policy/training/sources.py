"""Where PPO's batches come from: a rollout just made, or stored samples. Arrays are views wherever the layout allows it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from townlet.config.learning import PPOConfig
from townlet.errors import ReplayError
from townlet.observations.spec import ObservationSpec
from townlet.policy.replay import ReplayBatch, ReplayDataset
from townlet.policy.training.batches import CloningBatch, ObservedBatch, PPOBatch
from townlet.policy.training.collect import Rollout
from townlet.policy.training.learner import PPOLearner
from townlet.policy.training.numerics import gae
from townlet.world.actions import Catalogue

Array = NDArray[Any]


def flat(array: Array) -> Array:
    """(T, E, N, …) as (T, E·N, …), without a copy."""
    return array.reshape(array.shape[0], array.shape[1] * array.shape[2], *array.shape[3:])


def rollout_batch(rollout: Rollout, ppo: PPOConfig) -> PPOBatch:
    """Advantages over everybody's decisions; only the rows whose action the network chose are learned from."""
    active = flat(rollout.active[:-1])
    values, last = flat(rollout.values[:-1]), rollout.values[-1].ravel()
    rewards, terminated, truncated = flat(rollout.rewards), flat(rollout.terminated), flat(rollout.truncated)
    advantages, returns = gae(rewards, values, last, terminated, truncated, active, gamma=ppo.gamma, gae_lambda=ppo.gae_lambda)
    return PPOBatch(
        **_seen(rollout, flat(rollout.learning)),
        actions=flat(rollout.actions),
        log_probs=flat(rollout.log_probs),
        values=values,
        rewards=rewards,
        advantages=advantages,
        returns=returns,
    )


def script_batch(rollout: Rollout, returns: Array | None = None) -> CloningBatch:
    """What the script would have done at every decision, whoever made it."""
    asked = flat((rollout.active[:-1] != 0) & (rollout.expert >= 0))
    return CloningBatch(**_seen(rollout, asked), experts=np.maximum(flat(rollout.expert), 0), returns=returns)


def _seen(rollout: Rollout, active: Array) -> dict[str, Any]:
    return {
        "features": flat(rollout.features[:-1]),
        "maps": None if rollout.maps is None else flat(rollout.maps[:-1]),
        "masks": flat(rollout.masks[:-1]),
        "active": active,
        "starts": flat(rollout.starts),
        "state": flat(rollout.state[None])[0],
    }


def replay_observed(batch: ReplayBatch, actions: int, *, maps: bool, last: bool = False) -> dict[str, Any]:
    """The observations of stored samples, time first; a sample without masks allows everything.

    With `last` the one after the last action is a row more, which takes no decision, where the samples hold it (1.2).
    """
    samples, steps = batch.actions.shape
    masks = np.ones((samples, steps, actions), np.uint8) if batch.action_mask is None else batch.action_mask
    features, window, mask = (batch.last_features, batch.last_maps, batch.last_mask) if last else (None, None, None)
    rows = steps + (features is not None)
    starts, active = np.zeros((rows, samples), np.uint8), np.zeros((rows, samples), np.uint8)
    starts[0], active[:steps] = 1, 1
    return {
        "features": _time_first(batch.features, features),
        "maps": _time_first(batch.maps, window) if maps and batch.maps is not None else None,
        "masks": _time_first(masks, mask),
        "active": active,
        "starts": starts,
    }


def replay_batch(batch: ReplayBatch, learner: PPOLearner) -> PPOBatch:
    """Stored log-probs make the ratios; values of a policy without a critic are the learner's own on the stored observations.

    So is the value of the observation after the last action; samples from before 1.2 lack it, the last decision's stands in.
    """
    ppo, steps = learner.ppo, batch.actions.shape[1]
    seen = replay_observed(batch, learner.spec.actions, maps=learner.spec.sees_map, last=True)
    values = _time_first(batch.value_preds[:, :steps]).astype(np.float32)
    last = batch.value_preds[:, steps] if batch.value_preds.shape[1] > steps else values[-1]
    blind = np.array([meta.generation == 1 or meta.policy.values == "none" for meta in batch.metadata])  # (B,)
    if blind.any():
        own = learner.evaluate(ObservedBatch(**seen))[1]  # (T, B) or (T + 1, B)
        values = np.where(blind, own[:steps], values)
        last = np.where(blind, own[-1], last)
    rewards, dones, truncated = _time_first(batch.rewards), _time_first(batch.dones), _time_first(batch.truncated)
    advantages, returns = gae(rewards, values, last, dones, truncated, gamma=ppo.gamma, gae_lambda=ppo.gae_lambda)
    seen |= {name: rows[:steps] for name, rows in seen.items() if rows is not None}
    return PPOBatch(
        **seen,
        actions=_time_first(batch.actions),
        log_probs=_time_first(batch.old_log_probs),
        values=values.astype(np.float32),
        rewards=rewards,
        advantages=advantages,
        returns=returns,
    )


def _time_first(array: Array, last: Array | None = None) -> Array:
    """(B, T, …) as (T, B, …), or as (T + 1, B, …) with `last` (B, …)."""
    if last is None:
        return np.ascontiguousarray(array.swapaxes(0, 1))
    out = np.empty((array.shape[1] + 1, len(array), *array.shape[2:]), array.dtype)
    out[:-1], out[-1] = array.swapaxes(0, 1), last
    return out


def check_samples(data: ReplayDataset, actions: Catalogue, spec: ObservationSpec, *, needs_map: bool) -> None:
    """Refuse, by name, a sample that this config's network could not read."""
    for i, meta in enumerate(data.metas):
        name = data.config.entries[i].sample if data.config.entries else meta.sample_id
        if meta.feature_names != spec.feature_names:
            odd = sorted(set(meta.feature_names) ^ set(spec.feature_names))[:3] or ["their order"]
            raise ReplayError(
                f"{name} has {len(meta.feature_names)} features, the network of this config has {len(spec.feature_names)} "
                f"(they differ in {', '.join(odd)}); capture it again with this config, or train with its own"
            )
        if meta.action_catalogue_hash != actions.hash:
            raise ReplayError(
                f"{name} has the action catalogue {meta.action_catalogue_hash or 'of the first generation'} "
                f"({meta.action_dim} actions), the network of this config has {actions.hash} ({len(actions)} actions); "
                "capture it again with this config"
            )
        if needs_map and tuple(meta.map_shape) != spec.map_shape:
            raise ReplayError(
                f"{name} has maps of {tuple(meta.map_shape)}, the network of this config reads {spec.map_shape}; "
                "capture it again, or set policy.network.map_encoder=none"
            )
