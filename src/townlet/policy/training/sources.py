"""Where PPO's batches come from: a rollout just made, or stored samples. Arrays are views wherever the layout allows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from townlet.config.learning import PPOConfig
from townlet.config.models import SimulationConfig
from townlet.errors import ReplayError, UsageError
from townlet.observations.spec import ObservationSpec
from townlet.policy.network import NetworkSpec
from townlet.policy.replay import ReplayBatch, ReplayDataset
from townlet.policy.training.collect import Rollout
from townlet.policy.training.estimates import gae, team_rewards
from townlet.policy.trajectory import FIELDS, Trajectory, padded
from townlet.world.actions import Catalogue

if TYPE_CHECKING:
    from townlet.policy.training.learner import PPOLearner


def rollout_batch(rollout: Rollout, ppo: PPOConfig) -> Trajectory:
    """Advantages over everybody's decisions; only the rows whose action the network chose are learned from."""
    lives, learning = rollout.flat(), rollout.learning
    if ppo.team_share > 0:
        shared = team_rewards(rollout.rewards, rollout.active[: rollout.steps], ppo.team_share)
        lives = replace(lives, rewards=shared.reshape(lives.rewards.shape))
    return replace(with_advantages(lives, ppo), active=learning.reshape(lives.actions.shape))


def script_batch(rollout: Rollout) -> Trajectory:
    """What the script would have done at every decision, whoever made it."""
    lives = rollout.flat()
    return replace(lives, active=lives.active[: lives.steps] & (lives.experts >= 0), expert=np.maximum(lives.experts, 0))


def with_advantages(lives: Trajectory, ppo: PPOConfig) -> Trajectory:
    """Advantages and returns of (T, B, …); where no bootstrap value is known the last decision's stands in."""
    values, steps = lives.values, lives.steps
    last = values[steps] if len(values) > steps else values[-1]
    rows = (lives.rewards, values[:steps], last, lives.terminated, lives.truncated, lives.active[:steps])
    advantages, returns = gae(*rows, gamma=ppo.gamma, gae_lambda=ppo.gae_lambda)
    return replace(lives, advantages=advantages, returns=returns)


def replay_batch(batch: ReplayBatch, learner: PPOLearner) -> Trajectory:
    """Stored log-probs make the ratios; values of a policy without a critic are the learner's own on the stored observations.

    So is the value of the observation after the last action; samples from before 1.2 lack it.
    """
    lives = observed(batch, learner.spec)
    blind = np.array([meta.generation == 1 or meta.policy.values == "none" for meta in batch.metadata])  # (B,)
    if blind.any():
        own = learner.evaluate(lives)[1]  # (T, B) or (T + 1, B)
        stored = lives.values
        if len(stored) < len(own):
            stored = np.concatenate([stored, stored[-1:]])
        lives = replace(lives, values=np.where(blind, own, stored[: len(own)]).astype(np.float32))
    return with_advantages(lives, learner.ppo)


def observed(batch: ReplayBatch, spec: NetworkSpec) -> Trajectory:
    """The columns of stored samples that a network learns from; a sample without masks allows everything."""
    masks = np.ones((*batch.features.shape[:2], spec.actions), np.bool_) if batch.masks is None else batch.masks
    kept = batch.columns() | {"masks": masks}
    return Trajectory(**{name: array for name, array in kept.items() if spec.sees_map or name != "maps"})


def check_samples(data: ReplayDataset, config: SimulationConfig, *, needs_map: bool) -> None:
    """Refuse, by name, a sample that this config's network could not read."""
    spec = ObservationSpec.of(config)
    actions = Catalogue(config.policy.action_level, spec.affordances)
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


class Lives(NamedTuple):
    """Stored lives side by side. Observations and masks have one more row, (T + 1, B, …): what the last decision led to."""

    seen: Trajectory  # (T, B, …), (T + 1, B, …)
    known: NDArray[np.bool_]  # (T, B): the row's next observation was stored, or its life ended


def lives_of(batches: Iterator[Trajectory]) -> Lives:
    """Lives of any length side by side, padded with rows that do not count. Where the observation after a life's last decision
    was not stored, the decision's own stands in for it, and no value is backed up from there (`known`)."""
    parts, known = [], []
    for batch in batches:
        columns, steps = batch.columns(), batch.steps
        sees_end = batch.sees_end
        for name in AFTER:
            if name in columns and len(columns[name]) == steps:
                columns[name] = np.concatenate([columns[name], columns[name][-1:]])
        columns["truncated"] = columns["truncated"].copy()
        columns["truncated"][-1] |= ~columns["terminated"][-1]
        if "expert" not in columns:
            columns["expert"] = np.full(columns["actions"].shape, -1)
        found = np.ones(columns["actions"].shape, np.bool_)
        found[-1] = sees_end | columns["terminated"][-1]
        parts.append(Trajectory(**{name: columns[name] for name in USED if name in columns}))
        known.append(found)
    if not parts:
        raise UsageError("the data hold no batch to learn from; lower training.replay.batch_size, or do not drop the last batch")
    longest = max(part.steps for part in parts)
    seen = {
        name: np.concatenate([padded(part.columns()[name], longest + (name in AFTER)) for part in parts], axis=1)
        for name in parts[0].columns()
    }
    seen["masks"][..., 0] |= ~seen["masks"].any(-1)  # a row that does not count still needs something it may do
    return Lives(Trajectory(**seen), np.concatenate([padded(rows, longest) for rows in known], axis=1))


USED = ("features", "maps", "masks", "actions", "log_probs", "rewards", "terminated", "truncated", "active", "expert")
AFTER = tuple(name for name, about in FIELDS.items() if about.last)  # the observation, which has one more row


def refuse_memory(spec: NetworkSpec, algorithm: str) -> None:
    """Refuse a recurrent network, which learns from whole sequences."""
    if spec.recurrent != "none":
        raise UsageError(
            f"ppo.recurrent is {spec.recurrent!r}, but {algorithm} learns from single decisions; set it to none, "
            "or take training.algorithm=ppo"
        )
