"""What behaviour cloning learns from: stored samples or the script watched in memory, split into episodes kept and held out.

Axes: T decisions, B columns (a life, or a resident slot of a town), F features, A actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from townlet.errors import ReplayError
from townlet.policy.network import NetworkSpec
from townlet.policy.replay import ReplayDataset
from townlet.policy.training.batches import permutation
from townlet.policy.training.collect import Collector
from townlet.policy.training.estimates import returns_of_data
from townlet.policy.training.sources import observed
from townlet.policy.trajectory import Trajectory, joined, padded
from townlet.types import Array

SPLIT_STREAM = 11
SHOWN = ("features", "maps", "masks", "active", "starts", "actions", "expert")  # columns that a network is shown


@dataclass(frozen=True)
class Demonstrations:
    """Lives side by side with the expert's choices and returns, and the episode each belongs to."""

    lives: Trajectory  # (T, B, …)
    episodes: Array  # (B,) number of the episode of a life
    label: str

    @property
    def decisions(self) -> int:
        return int(np.count_nonzero(self.lives.active))

    def split(self, fraction: float, seed: int) -> tuple[Trajectory, Trajectory | None]:
        """Training and held-out lives, divided by episode; nothing is held out of a single episode."""
        names, held = np.unique(self.episodes), self.held_out(fraction)
        chosen = names[permutation(seed, SPLIT_STREAM, 0, 0, len(names))[:held]]
        out = np.isin(self.episodes, chosen)
        return self.lives.lives(~out), self.lives.lives(out) if held else None

    def held_out(self, fraction: float) -> int:
        """Episodes held out: at least one, at most all but one."""
        episodes = len(np.unique(self.episodes))
        return min(max(round(fraction * episodes), 1), episodes - 1) if fraction > 0 else 0


def watch_script(collector: Collector, decisions: int, *, epsilon: float, gamma: float) -> Demonstrations:
    """The script, ε-soft, in every town of a batch for this many decisions; a town is an episode."""
    rollout = collector.collect(None, decisions, epsilon=epsilon)
    towns, slots = rollout.actions.shape[1:]
    seen, lives = rollout.flat().decisions(), {}
    for name in SHOWN:
        if name in seen:
            lives[name] = seen[name].copy()
    lives["expert"] = np.maximum(lives["expert"], 0)
    rows = (seen["rewards"], seen["active"], seen["terminated"], seen["truncated"])
    lives["returns"] = returns_of_data(*rows, gamma=gamma)
    state = np.zeros((towns * slots, collector.state.shape[2]), np.float32)
    return Demonstrations(Trajectory(**lives, state=state), np.repeat(np.arange(towns), slots), "scripted townspeople")


def read_samples(data: ReplayDataset, spec: NetworkSpec, *, gamma: float) -> Demonstrations:
    """Samples with the expert's choice; each is an episode, shorter ones are filled up with rows that do not count."""
    parts, longest = [], max(meta.timesteps for meta in data.metas)
    for batch in data:
        if batch.expert is None:
            raise ReplayError(
                f"{batch.metadata[0].sample_id} has no expert_action, so there is nothing to imitate; "
                "capture with the scripted or schedule policy"
            )
        seen = observed(batch, spec).decisions()
        truncated = batch.truncated.copy()
        truncated[-1] |= ~batch.terminated[-1]
        shown = {name: seen[name] for name in SHOWN if name in seen}
        shown["returns"] = returns_of_data(batch.rewards, seen["active"], batch.terminated, truncated, gamma=gamma)
        parts.append(Trajectory(**{name: padded(array, longest) for name, array in shown.items()}))
    lives = joined(parts)
    lives["masks"][..., 0] |= ~lives["active"]  # a row that does not count still needs something it may do
    count = lives["actions"].shape[1]
    state = np.zeros((count, spec.state_width), np.float32)
    return Demonstrations(Trajectory(**lives, state=state), np.arange(count), data.config.label)


class Imitation(NamedTuple):
    """How often a choice is the expert's, beside two baselines: the commonest action, and the expert's last choice again."""

    accuracy: float
    change_accuracy: float | None
    majority: float
    repeat: float


def imitation(batch: Trajectory, choices: Array, majority: int) -> Imitation:
    """`choices` (T, B) against the expert: overall, where the expert changes its mind, and for both baselines."""
    active, experts = batch.active, batch.experts
    starts = np.zeros_like(active) if batch.starts is None else batch.starts
    follows = active[1:] & active[:-1] & ~starts[1:]  # (T-1, B): a decision with one before it in the same life
    changes = follows & (experts[1:] != experts[:-1])
    right = choices == experts
    return Imitation(
        accuracy=float(right[active].mean()),
        change_accuracy=float(right[1:][changes].mean()) if changes.any() else None,
        majority=float((experts[active] == majority).mean()),
        repeat=float(1.0 - changes.sum() / follows.sum()) if follows.any() else 0.0,
    )
