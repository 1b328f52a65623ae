"""Hooks of the loop: events into a file, counts, digests, snapshots on the way, a film."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from townlet.config.base import clock
from townlet.envs.events import run_id_of, step_records
from townlet.envs.render import picture
from townlet.envs.scene import look
from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.files import AppendLog, check_free, remove
from townlet.ports import Decided
from townlet.sim.snapshot import save_snapshot, take_snapshot
from townlet.sim.tally import EventTally
from townlet.types import Array
from townlet.world.state import TERMS

MOST_FRAMES = 600


class Probe:
    """A hook that does nothing yet."""

    def before_decision(self, world: VectorTown) -> None:
        """Before a decision is made: the observation is there, nothing is chosen yet."""

    def before_step(self, world: VectorTown, decision: Decided) -> None:
        """After the decision was made, before its ticks."""

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        """After the ticks of the decision."""

    def finish(self, world: VectorTown) -> None:
        """At the end of the run."""


class EventLog(Probe):
    """Every event as a line of NDJSON. A file that is there is refused, or replaced with `overwrite`."""

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        if path.is_dir():
            raise UsageError(f"{path} is a folder; name a file")
        check_free(path, overwrite)
        if path.exists():
            remove(path)
        self.path, self.written = path, 0
        self._log = AppendLog(path)
        self._encode = msgspec.json.Encoder().encode

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        for record in step_records(world, run_id_of(world)):
            self._log.write(self._encode(record))
            self.written += 1

    def finish(self, world: VectorTown) -> None:
        self._log.sync()
        self._log.close()


class Counts(Probe):
    """What happened so far: events, rewards by term, decisions and illegal ones."""

    def __init__(self) -> None:
        self.events = EventTally()
        self.reward = np.zeros(len(TERMS))
        self.decisions = self.illegal = 0

    def before_step(self, world: VectorTown, decision: Decided) -> None:
        self.decisions += int(world.active.sum())

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        self.events.add(world.events())
        self.reward += world.terms.sum(axis=(0, 1))
        self.illegal += int(world.illegal.sum())


class Exits(Probe):
    """Who left the first town, when and why."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        town, length = world.state.towns[0], world.config.world.ticks_per_day
        for record in step_records(world):
            if record["type"] == "exit" and record["town"] == town["id"]:
                now = int(town["day"]) * length + int(town["minute"]) - (int(town["tick"]) - record["tick"])
                when = {"day": now // length + 1, "time": clock(now % length)}
                self.rows.append({"resident": record["actor"], "episode": record["episode"], **when, "reason": record["reason"]})


class Digests(Probe):
    """The digest after every decision: two runs are the same as long as these are."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, str]] = []  # episode, tick, digest

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        town = world.state.towns[0]
        self.rows.append((int(town["episode"]), int(town["tick"]), world.digest()))


class SnapshotEvery(Probe):
    """A snapshot every `ticks` ticks, beside the one of the end: FILE-EPISODE-TICK with the suffix of FILE."""

    def __init__(self, path: Path, ticks: int, policy: str = "") -> None:
        self.path, self.ticks, self.policy = path, ticks, policy
        self.written: list[Path] = []
        self._next = ticks

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        town = world.state.towns[0]
        if town["tick"] == 0:
            self._next = self.ticks
        elif town["tick"] >= self._next:
            self._next += self.ticks
            name = f"{self.path.stem}-{int(town['episode'])}-{int(town['tick'])}{self.path.suffix}"
            target = self.path.with_name(name)
            save_snapshot(take_snapshot(world, policy=self.policy), target, compress=world.config.snapshot.compress)
            self.written.append(target)


class PictureEvery(Probe):
    """A picture of every decision. Of a long run fewer are kept: at MOST_FRAMES every second one is dropped."""

    def __init__(self) -> None:
        self.every, self._steps = 1, 0
        self.frames: list[Array] = []

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        if self._steps % self.every == 0:
            self.frames.append(picture(look(world)))
            if len(self.frames) == MOST_FRAMES:
                self.frames, self.every = self.frames[::2], self.every * 2
        self._steps += 1

    def finish(self, world: VectorTown) -> None:
        self.frames.append(picture(look(world)))
