"""Recording trajectories: a hook of the loop fills arrays that are allocated once; `samples` cuts them into lives.

Axes: T decisions, E towns, N resident slots. A town is reset in the step after its end: the row after an end is its true last
observation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from townlet.envs.vector import VectorTown
from townlet.observations.spec import ObservationSpec
from townlet.policy.manifest import PREFIX
from townlet.policy.replay import ReplayDataset
from townlet.policy.runtime import Decision, PolicyRuntime, values_of
from townlet.policy.sample import SCHEMA_VERSION, CaptureNote, PolicyNote, ReplaySample, SampleMeta
from townlet.policy.sample_metrics import sample_metrics
from townlet.policy.trajectory import FIELDS, Trajectory, allocate, to_disk
from townlet.ports import Decided, Hook
from townlet.sim.loop import SimulationLoop
from townlet.sim.probes import Probe
from townlet.types import Array, Record
from townlet.world.actions import Catalogue
from townlet.world.state import EVENT, TERMS

NOBODY_ASKED = -1  # in the column `expert`


def next_sample_id(prefix: str, agent_id: str, numbers: dict[str, int]) -> str:
    """`<prefix>_<resident>_<number>`; `numbers` holds the next number of each resident id."""
    number = numbers.get(agent_id, 0)
    numbers[agent_id] = number + 1
    return f"{prefix}_{agent_id}_{number:03d}"


@dataclass(frozen=True)
class SampleSource:
    """What all samples of a rollout have in common, and how many each resident id has had so far."""

    template: Record
    policy: PolicyNote
    capture: CaptureNote
    prefix: str
    numbers: dict[str, int]

    @classmethod
    def describe(
        cls,
        spec: ObservationSpec,
        catalogue: Catalogue,
        interval: int,
        policy: PolicyNote,
        capture: CaptureNote,
        prefix: str = PREFIX,
    ) -> Self:
        template = {
            "schema_version": SCHEMA_VERSION,
            "variant": spec.variant,
            "map_shape": spec.map_shape if spec.map_shape[0] else (),
            "map_channels": spec.map_channels,
            "feature_names": spec.feature_names,
            "action_names": catalogue.names,
            "action_catalogue_hash": catalogue.hash,
            "action_dim": len(catalogue),
            "action_level": catalogue.level,
            "decision_interval": interval,
        }
        return cls(template, policy, capture, prefix, {})


class Life(NamedTuple):
    """Whose trajectory it is, and where it began."""

    agent_id: str
    town: int
    episode: int
    life: int  # 0 for a founder, k for newcomer_k
    first_tick: int


def frames_to_replay_sample(frames: Trajectory, who: Life, source: SampleSource, sample_id: str, events: Array) -> ReplaySample:
    """A validated sample from the trajectory of one life and the events its resident was the actor of (K,) EVENT."""
    if source.policy.values != "critic":
        frames = replace(frames, values=np.zeros_like(frames.values))
    arrays, template = to_disk(frames), source.template
    terms = np.zeros(len(TERMS)) if frames.terms is None else frames.terms.sum(axis=0, dtype=np.float64)
    meta = SampleMeta(
        **template,
        training_arrays=tuple(arrays),
        timesteps=frames.steps,
        value_pred_steps=len(frames.values),
        agent_id=who.agent_id,
        sample_id=sample_id,
        frame_count=frames.steps,
        first_tick=who.first_tick,
        policy=source.policy,
        capture=source.capture.model_copy(update={"town": who.town, "episode": who.episode, "life": who.life}),
        metrics=sample_metrics(arrays, template["feature_names"], template["action_names"], terms, events),
    )
    return ReplaySample.of(arrays, meta)


class TrajectoryRecorder(Probe):
    """Fills a trajectory decision by decision: each of its columns from the moment, from the decision or from the step."""

    def __init__(self, vec: VectorTown, capacity: int, leave_out: Sequence[str] = ()) -> None:
        channels, height, width = vec.spec.map_shape
        sizes = {"F": vec.features.shape[2], "A": vec.num_actions, "R": len(TERMS)}
        sizes |= {"C": channels, "H": height, "W": width}
        absent = set(leave_out) | (set() if vec.maps is not None else {"maps"})
        names = [name for name, about in FIELDS.items() if about.origin and name not in absent]
        self.vec, self.capacity, self.steps = vec, capacity, 0
        self.data = allocate(capacity, (vec.num_towns, vec.num_residents), sizes, names)
        self._columns = self.data.columns()

    @property
    def full(self) -> bool:
        return self.steps >= self.capacity

    def before_step(self, world: VectorTown, decision: Decided) -> None:
        if not isinstance(decision, Decision):
            raise TypeError(f"a trajectory is recorded from a Decision, which has log_probs; {type(decision).__name__} is none")
        self._take(self._moment(world))
        self._take(decision._asdict())

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        self._take(self._told(world, "step"))
        self.steps += 1

    def bootstrap(self, values: Array) -> None:
        """The observation after the last step and its values (E, N): the bootstrap of every life that goes on."""
        seen = self._moment(self.vec) | {"values": values}
        self._take({name: value for name, value in seen.items() if FIELDS[name].after})

    def _moment(self, vec: VectorTown) -> dict[str, Array]:
        return self._told(vec, "moment") | ({"starts": vec.starts} if "starts" in self._columns else {})

    def _told(self, vec: VectorTown, origin: str) -> dict[str, Array]:
        """The buffers of the towns that are columns of this origin."""
        buffers = vec.buffers._asdict()
        return {name: buffers[name] for name in self._columns if FIELDS[name].origin == origin and name in buffers}

    def _take(self, found: Mapping[str, Array | None]) -> None:
        for name, value in found.items():
            if name in self._columns:
                absent = NOBODY_ASKED if name == "expert" else 0
                self._columns[name][self.steps] = absent if value is None else value


class Span(NamedTuple):
    """Decisions start to stop of one resident in one town of a buffer."""

    town: int
    slot: int
    start: int
    stop: int


class RolloutBuffer(TrajectoryRecorder):
    """What residents saw, did and got, for up to `capacity` decisions of every town, and the events of those."""

    def __init__(self, vec: VectorTown, capacity: int) -> None:
        super().__init__(vec, capacity, leave_out=("starts", "scripted"))
        T, E, N = capacity, vec.num_towns, vec.num_residents
        self.lives = np.empty((T, E, N), np.int64)
        self.ticks = np.empty((T, E), np.int64)
        self.episodes = np.empty((T, E), np.int64)
        self.has_expert = False
        self._events: list[Array] = []

    @property
    def nbytes(self) -> int:
        own = (self.lives, self.ticks, self.episodes, *self._columns.values())
        return sum(array.nbytes for array in own)

    def before_step(self, world: VectorTown, decision: Decided) -> None:
        super().before_step(world, decision)
        t = self.steps
        self.has_expert = decision.expert is not None
        self.lives[t] = world.state.residents["life"]
        self.ticks[t], self.episodes[t] = world.state.towns["tick"], world.state.towns["episode"]

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        super().after_step(world, decision)
        self._events.append(world.events())

    def clear(self) -> None:
        """Use the same memory again."""
        self.steps, self._events = 0, []

    def spans(self) -> list[Span]:
        """Every life in the buffer, by town, slot and time: runs of true decisions that no end, newcomer or new day divides."""
        T = self.steps
        if T == 0:
            return []
        active = self.data.active[:T]
        fresh = active.copy()  # (T, E, N): first decision of a run
        ended = self.data.terminated[: T - 1] | self.data.truncated[: T - 1]
        other = (self.lives[1:T] != self.lives[: T - 1]) | (self.episodes[1:T] != self.episodes[: T - 1])[:, :, None]
        fresh[1:] &= ~active[: T - 1] | ended | other
        town, slot, start = np.nonzero(np.moveaxis(fresh, 0, -1))
        runs = np.moveaxis(active, 0, -1)[town, slot]  # (L, T)
        lives = []
        for k, (e, n, t0) in enumerate(zip(town.tolist(), slot.tolist(), start.tolist())):
            same = k + 1 < len(town) and town[k + 1] == e and slot[k + 1] == n
            limit = int(start[k + 1]) if same else T
            gaps = np.flatnonzero(~runs[k, t0:limit])
            lives.append(Span(e, n, t0, t0 + int(gaps[0]) if len(gaps) else limit))
        return lives

    def events(self) -> tuple[Array, Array]:
        """All events by town, then in their order, and the episode each belongs to. (K,) EVENT, (K,) i8"""
        first = int(self.vec.state.towns["id"][0])
        episodes = [self.episodes[t, rows["town"] - first] for t, rows in enumerate(self._events)]
        rows = np.concatenate([np.empty(0, EVENT), *self._events])
        order = np.argsort(rows["town"], kind="stable")
        return rows[order], np.concatenate([np.empty(0, np.int64), *episodes])[order]

    def frames(self, span: Span) -> Trajectory:
        """The trajectory of one life, copied out of the buffer."""
        e, n, start, stop = span.town, span.slot, span.start, span.stop
        columns = {name: array[start : stop + FIELDS[name].after, e, n].copy() for name, array in self._columns.items()}
        if self.data.terminated[stop - 1, e, n]:
            columns["values"][-1] = 0.0
        if not self.has_expert:
            del columns["expert"]
        return Trajectory(**columns)

    def life(self, span: Span) -> Life:
        e, n, start = span.town, span.slot, span.start
        number = int(self.lives[start, e, n])
        return Life(
            agent_id=self.vec.resident_name(e, n, number),
            town=int(self.vec.state.towns["id"][e]),
            episode=int(self.episodes[start, e]),
            life=number,
            first_tick=int(self.ticks[start, e]),
        )

    def samples(self, source: SampleSource) -> Iterator[ReplaySample]:
        """One sample per resident and life; numbers run over town and life of each resident id."""
        events, episodes = self.events()
        by_town: dict[tuple[int, int], Array] = {}
        keys = np.stack([events["town"], episodes], axis=1)
        for town, episode in np.unique(keys, axis=0).tolist():
            by_town[town, episode] = events[(keys[:, 0] == town) & (keys[:, 1] == episode)]
        for span in self.spans():
            who = self.life(span)
            rows = by_town.get((who.town, who.episode), events[:0])
            last = self.ticks[span.stop - 1, span.town] + self.vec.interval
            own = (rows["actor"] == span.slot) & (rows["actor_life"] == who.life)
            own &= (rows["tick"] >= who.first_tick) & (rows["tick"] < last)
            name = next_sample_id(source.prefix, who.agent_id, source.numbers)
            yield frames_to_replay_sample(self.frames(span), who, source, name, rows[own])

    def build_dataset(self, policy: PolicyRuntime, **options: Any) -> ReplayDataset:
        """The same interface as a dataset read from files, without files."""
        source = source_of(self.vec, policy, ticks=self.steps * self.vec.interval)
        return ReplayDataset.of(tuple(self.samples(source)), **options)


def source_of(vec: VectorTown, acting: PolicyRuntime, *, ticks: int, prefix: str = PREFIX) -> SampleSource:
    """What the samples of a running town have in common."""
    policy = PolicyNote(
        kind=acting.kind, hash=acting.hash, values="critic" if acting.has_values else "none", epsilon=acting.epsilon
    )
    capture = CaptureNote(
        config_id=vec.config.config_id,
        config_hash=vec.config_hash,
        scenario=vec.config.town_name,
        seed=vec.seed,
        ticks=ticks,
    )
    return SampleSource.describe(vec.spec, vec.catalogue, vec.interval, policy, capture, prefix)


def collect(
    policy: PolicyRuntime,
    buffer: RolloutBuffer,
    hooks: Sequence[Hook[VectorTown]] = (),
    *,
    stop: Callable[[], bool] | None = None,
) -> int:
    """Step the buffer's towns until it is full or `stop` says so; what follows the last step is filled in. Returns steps made."""
    before, loop = buffer.steps, SimulationLoop(buffer.vec, policy, [buffer, *hooks])
    while not buffer.full and not (stop is not None and stop()):
        loop.step()
    buffer.bootstrap(values_of(policy, buffer.vec))
    return buffer.steps - before
