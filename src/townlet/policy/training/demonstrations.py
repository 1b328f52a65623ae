"""What behaviour cloning learns from: stored samples or the script watched in memory, split into episodes kept and held out.

Axes: T decisions, B columns (a life, or a resident slot of a town), F features, A actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from townlet.errors import ReplayError
from townlet.policy.replay import ReplayDataset
from townlet.policy.training.batches import CloningBatch, permutation
from townlet.policy.training.collect import Collector
from townlet.policy.training.numerics import discounted_returns
from townlet.policy.training.sources import flat, replay_observed

Array = NDArray[Any]
SPLIT_STREAM = 11


@dataclass(frozen=True)
class Demonstrations:
    """All columns side by side, and the episode each belongs to."""

    arrays: dict[str, Any]  # of CloningBatch, (T, B, …); `state` (B, S)
    episodes: Array  # (B,) number of the episode of a column
    label: str

    @property
    def decisions(self) -> int:
        return int(np.count_nonzero(self.arrays["active"]))

    def split(self, fraction: float, seed: int) -> tuple[CloningBatch, CloningBatch | None]:
        """Training and held-out columns, divided by episode; nothing is held out of a single episode."""
        names, held = np.unique(self.episodes), self.held_out(fraction)
        chosen = names[permutation(seed, SPLIT_STREAM, 0, 0, len(names))[:held]]
        out = np.isin(self.episodes, chosen)
        return self._columns(~out), self._columns(out) if held else None

    def held_out(self, fraction: float) -> int:
        """Episodes held out: at least one, at most all but one."""
        episodes = len(np.unique(self.episodes))
        return min(max(round(fraction * episodes), 1), episodes - 1) if fraction > 0 else 0

    def _columns(self, keep: Array) -> CloningBatch:
        picked: dict[str, Any] = {
            name: None if array is None else array[keep] if name == "state" else array[:, keep]
            for name, array in self.arrays.items()
        }
        return CloningBatch(**picked)


def watched(collector: Collector, decisions: int, *, epsilon: float, gamma: float) -> Demonstrations:
    """The script, ε-soft, in every town of a batch for so many decisions; a town is an episode."""
    rollout = collector.collect(None, decisions, epsilon=epsilon)
    active, towns, slots = flat(rollout.active[:-1]), rollout.actions.shape[1], rollout.actions.shape[2]
    arrays = {
        "features": flat(rollout.features[:-1]).copy(),
        "maps": None if rollout.maps is None else flat(rollout.maps[:-1]).copy(),
        "masks": flat(rollout.masks[:-1]).copy(),
        "active": active.copy(),
        "starts": flat(rollout.starts).copy(),
        "state": np.zeros((towns * slots, rollout.state.shape[2]), np.float32),
        "experts": np.maximum(flat(rollout.expert), 0),
        "returns": _returns(flat(rollout.rewards), active, flat(rollout.terminated), flat(rollout.truncated), gamma),
    }
    return Demonstrations(arrays, np.repeat(np.arange(towns), slots), "scripted townspeople")


def stored(data: ReplayDataset, *, actions: int, state_width: int, gamma: float, maps: bool) -> Demonstrations:
    """Samples with `expert_action`; each is an episode, shorter ones are filled up with rows that do not count."""
    parts, longest = [], max(meta.timesteps for meta in data.metas)
    for batch in data:
        if batch.expert_action is None:
            raise ReplayError(
                f"{batch.metadata[0].sample_id} has no expert_action, so there is nothing to imitate; "
                "capture with the scripted or schedule policy"
            )
        seen = replay_observed(batch, actions, maps=maps)
        truncated = batch.truncated.swapaxes(0, 1).copy()
        truncated[-1] |= ~batch.dones[:, -1]
        rewards, dones = batch.rewards.swapaxes(0, 1), batch.dones.swapaxes(0, 1)
        seen["experts"] = batch.expert_action.swapaxes(0, 1)
        seen["returns"] = _returns(rewards, seen["active"], dones, truncated, gamma)
        parts.append({name: None if array is None else _padded(array, longest) for name, array in seen.items()})
    joined: dict[str, Any] = {
        name: None if parts[0][name] is None else np.concatenate([p[name] for p in parts], axis=1) for name in parts[0]
    }
    columns = joined["features"].shape[1]
    joined["masks"][..., 0] |= joined["active"] == 0  # a row that does not count still needs something it may do
    joined["state"] = np.zeros((columns, state_width), np.float32)
    return Demonstrations(joined, np.arange(columns), data.config.label)


def _padded(array: Array, steps: int) -> Array:
    return np.concatenate([array, np.zeros((steps - len(array), *array.shape[1:]), array.dtype)]) if len(array) < steps else array


def _returns(rewards: Array, active: Array, terminated: Array, truncated: Array, gamma: float) -> Array:
    """Discounted returns; what comes after a cut is taken to be the data's mean reward for ever after."""
    mean = float(rewards[active != 0].mean(dtype=np.float64)) if np.any(active) else 0.0
    ahead = np.full(rewards.shape, mean / max(1.0 - gamma, 1e-3))
    return discounted_returns(rewards, terminated, truncated, ahead, gamma=gamma)


class Imitation(NamedTuple):
    """How often a choice is the expert's, beside what proves nothing."""

    accuracy: float
    change_accuracy: float | None
    majority: float
    repeat: float


def imitation(batch: CloningBatch, choices: Array, majority: int) -> Imitation:
    """`choices` (T, B) against the expert: overall, where the expert changes its mind, and for the two empty strategies."""
    active, experts = batch.active.astype(bool), batch.experts
    starts = np.zeros_like(active) if batch.starts is None else batch.starts.astype(bool)
    follows = active[1:] & active[:-1] & ~starts[1:]  # (T-1, B): a decision with one before it in the same life
    changes = follows & (experts[1:] != experts[:-1])
    right = choices == experts
    return Imitation(
        accuracy=float(right[active].mean()),
        change_accuracy=float(right[1:][changes].mean()) if changes.any() else None,
        majority=float((experts[active] == majority).mean()),
        repeat=float(1.0 - changes.sum() / follows.sum()) if follows.any() else 0.0,
    )
