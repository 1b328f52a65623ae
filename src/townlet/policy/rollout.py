"""Frames as they happen: pre-allocated arrays, then one validated sample per resident and life.

Axes: T decisions, E towns, N resident slots, F features, A actions, C map channels, H and W the map window.
Row t holds the observation *before* action t and what came of it; row T the observation after the last action and its value,
which bootstraps what was cut off. A town is reset in the step after its end: the row after an end is its true last observation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from townlet.envs.vector import VectorTown
from townlet.policy.frames import Frames, Life
from townlet.policy.manifest import PREFIX
from townlet.policy.replay import ReplayDataset, ReplayDatasetConfig
from townlet.policy.runtime import PolicyRuntime, values_of
from townlet.policy.sample import Array, CaptureNote, PolicyNote, ReplaySample
from townlet.policy.source import Source, frames_to_replay_sample
from townlet.ports import Decided, Hook
from townlet.sim.loop import SimulationLoop
from townlet.sim.probes import Probe
from townlet.world.state import EVENT, TERMS

__all__ = ["RolloutBuffer", "collect", "frames_to_replay_sample", "source_of"]


class RolloutBuffer(Probe):
    """What residents saw, did and got, for up to `capacity` decisions of every town: a hook of the loop."""

    def __init__(self, vec: VectorTown, capacity: int) -> None:
        T, E, N, A = capacity, vec.num_towns, vec.num_residents, vec.num_actions
        self.vec, self.capacity, self.steps = vec, capacity, 0
        self.features = np.empty((T + 1, E, N, vec.features.shape[2]), np.float32)
        self.maps = None if vec.maps is None else np.empty((T + 1, *vec.maps.shape), np.uint8)  # (T + 1, E, N, C, H, W)
        self.masks = np.empty((T + 1, E, N, A), np.bool_)
        self.active = np.empty((T, E, N), np.bool_)
        self.actions = np.empty((T, E, N), np.int64)
        self.log_probs = np.empty((T, E, N), np.float32)
        self.values = np.zeros((T + 1, E, N), np.float32)
        self.expert = np.empty((T, E, N), np.int64)
        self.rewards = np.empty((T, E, N), np.float32)
        self.terms = np.empty((T, E, N, len(TERMS)), np.float32)
        self.terminated = np.empty((T, E, N), np.bool_)
        self.truncated = np.empty((T, E, N), np.bool_)
        self.lives = np.empty((T, E, N), np.int64)
        self.ticks = np.empty((T, E), np.int64)
        self.episodes = np.empty((T, E), np.int64)
        self.has_expert = False
        self._events: list[Array] = []

    @property
    def full(self) -> bool:
        return self.steps >= self.capacity

    @property
    def nbytes(self) -> int:
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, np.ndarray))

    def before_step(self, world: VectorTown, decision: Decided) -> None:
        """The observation and the decision it led to, before the towns are stepped."""
        t, vec = self.steps, world
        self._observe(vec)
        self.active[t] = vec.active
        self.actions[t], self.log_probs[t], self.values[t] = decision.actions, decision.log_probs, decision.values
        self.has_expert = decision.expert is not None
        if decision.expert is not None:
            self.expert[t] = decision.expert
        self.lives[t] = vec.state.residents["life"]
        self.ticks[t], self.episodes[t] = vec.state.towns["tick"], vec.state.towns["episode"]

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        """What the step brought."""
        t, vec = self.steps, world
        self.rewards[t], self.terms[t] = vec.rewards, vec.terms
        self.terminated[t], self.truncated[t] = vec.terminated, vec.truncated
        self._events.append(vec.events())
        self.steps = t + 1

    def bootstrap(self, values: Array) -> None:
        """The observation after the last step and its values (E, N): the bootstrap of every life that goes on."""
        self._observe(self.vec)
        self.values[self.steps] = values

    def _observe(self, vec: VectorTown) -> None:
        t = self.steps
        self.features[t], self.masks[t] = vec.features, vec.masks
        if self.maps is not None:
            self.maps[t] = vec.maps

    def clear(self) -> None:
        """Use the same memory again."""
        self.steps, self._events = 0, []

    def spans(self) -> list[Life]:
        """Every life in the buffer, by town, slot and time: runs of true decisions that no end, newcomer or new day divides."""
        T = self.steps
        if T == 0:
            return []
        active = self.active[:T]
        fresh = active.copy()  # (T, E, N): first decision of a run
        ended = self.terminated[: T - 1] | self.truncated[: T - 1]
        other = (self.lives[1:T] != self.lives[: T - 1]) | (self.episodes[1:T] != self.episodes[: T - 1])[:, :, None]
        fresh[1:] &= ~active[: T - 1] | ended | other
        town, slot, start = np.nonzero(np.moveaxis(fresh, 0, -1))
        runs = np.moveaxis(active, 0, -1)[town, slot]  # (L, T)
        lives = []
        for k, (e, n, t0) in enumerate(zip(town.tolist(), slot.tolist(), start.tolist())):
            same = k + 1 < len(town) and town[k + 1] == e and slot[k + 1] == n
            limit = int(start[k + 1]) if same else T
            gaps = np.flatnonzero(~runs[k, t0:limit])
            lives.append(Life(e, n, t0, t0 + int(gaps[0]) if len(gaps) else limit))
        return lives

    def events(self) -> tuple[Array, Array]:
        """All events by town, then in their order, and the episode each belongs to. (K,) EVENT, (K,) i8"""
        first = int(self.vec.state.towns["id"][0])
        episodes = [self.episodes[t, rows["town"] - first] for t, rows in enumerate(self._events)]
        rows = np.concatenate([np.empty(0, EVENT), *self._events])
        order = np.argsort(rows["town"], kind="stable")
        return rows[order], np.concatenate([np.empty(0, np.int64), *episodes])[order]

    def frames(self, life: Life) -> Frames:
        """The frames of one life, copied out of the buffer."""
        e, n, span = life.town, life.slot, slice(life.start, life.stop)
        last = life.stop - 1
        bootstrap = 0.0 if self.terminated[last, e, n] else self.values[life.stop, e, n]
        return Frames(
            agent_id=self.agent_id(life),
            town=int(self.vec.state.towns["id"][e]),
            episode=int(self.episodes[life.start, e]),
            life=int(self.lives[life.start, e, n]),
            first_tick=int(self.ticks[life.start, e]),
            features=self.features[span, e, n].copy(),
            maps=None if self.maps is None else self.maps[span, e, n].copy(),
            masks=self.masks[span, e, n].copy(),
            last_features=self.features[life.stop, e, n].copy(),
            last_map=None if self.maps is None else self.maps[life.stop, e, n].copy(),
            last_mask=self.masks[life.stop, e, n].copy(),
            actions=self.actions[span, e, n].copy(),
            log_probs=self.log_probs[span, e, n].copy(),
            values=np.append(self.values[span, e, n], np.float32(bootstrap)),
            rewards=self.rewards[span, e, n].copy(),
            terms=self.terms[span, e, n].sum(axis=0, dtype=np.float64),
            terminated=self.terminated[span, e, n].copy(),
            truncated=self.truncated[span, e, n].copy(),
            expert=self.expert[span, e, n].copy() if self.has_expert else None,
        )

    def agent_id(self, life: Life) -> str:
        number = int(self.lives[life.start, life.town, life.slot])
        return self.vec.resident_name(life.town, life.slot, number)

    def samples(self, source: Source) -> Iterator[ReplaySample]:
        """One sample per resident and life; numbers run over town and life of each resident id."""
        events, episodes = self.events()
        by_town: dict[tuple[int, int], Array] = {}
        keys = np.stack([events["town"], episodes], axis=1)
        for town, episode in np.unique(keys, axis=0).tolist():
            by_town[town, episode] = events[(keys[:, 0] == town) & (keys[:, 1] == episode)]
        for life in self.spans():
            frames = self.frames(life)
            number = source.numbers.get(frames.agent_id, 0)
            source.numbers[frames.agent_id] = number + 1
            rows = by_town.get((frames.town, frames.episode), events[:0])
            first, last = self.ticks[life.start, life.town], self.ticks[life.stop - 1, life.town] + self.vec.interval
            own = (
                (rows["actor"] == life.slot)
                & (rows["actor_life"] == frames.life)
                & (rows["tick"] >= first)
                & (rows["tick"] < last)
            )
            yield frames_to_replay_sample(frames, source, f"{source.prefix}_{frames.agent_id}_{number:03d}", rows[own])

    def build_dataset(self, policy: PolicyRuntime, **options: Any) -> ReplayDataset:
        """The same interface as a dataset read from files, without files."""
        samples = list(self.samples(source_of(self.vec, policy, ticks=self.steps * self.vec.interval)))
        return ReplayDataset(ReplayDatasetConfig(**({"label": "rollout"} | options)), samples)


def source_of(vec: VectorTown, acting: PolicyRuntime, *, ticks: int, prefix: str = PREFIX) -> Source:
    """What the samples of a running town have in common."""
    policy = PolicyNote(
        kind=acting.kind, hash=acting.hash, values="critic" if acting.has_values else "none", epsilon=acting.epsilon
    )
    capture = CaptureNote(
        config_id=vec.config.config_id,
        config_hash=vec.config_hash,
        scenario=vec.config.scenario.name or vec.config.config_id,
        seed=vec.seed,
        ticks=ticks,
    )
    return Source.describe(vec.spec, vec.catalogue, vec.interval, policy, capture, prefix)


def collect(
    policy: PolicyRuntime, buffer: RolloutBuffer, hooks: Sequence[Hook] = (), *, stop: Callable[[], bool] | None = None
) -> int:
    """Step the buffer's towns until it is full or `stop` says so; what follows the last step is filled in. Returns steps made."""
    before, loop = buffer.steps, SimulationLoop(buffer.vec, policy, [buffer, *hooks])
    while not buffer.full and not (stop is not None and stop()):
        loop.step()
    buffer.bootstrap(values_of(policy, buffer.vec))
    return buffer.steps - before
