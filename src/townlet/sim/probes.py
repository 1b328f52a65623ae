"""Hooks of the loop: events into a file, counts, digests, snapshots on the way, a film, one resident followed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from townlet.sim.mask_reasons import why_masked
from townlet.sim.snapshot import save_snapshot, take_snapshot
from townlet.sim.tally import EventTally
from townlet.types import Array
from townlet.world.actions import WAYS
from townlet.world.state import TERMS

MOST_FRAMES = 600


class Probe:
    """A hook that does nothing yet."""

    def before_decision(self, world: VectorTown) -> None:
        """The moment a decision is made in: its observation is there, nothing is chosen yet."""

    def before_step(self, world: VectorTown, decision: Decided) -> None:
        """Before the decision happens."""

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        """After its ticks."""

    def finish(self, world: VectorTown) -> None:
        """At the end of the run."""


class EventLog(Probe):
    """Every event as a line of NDJSON. A file that is there is refused, or replaced with `overwrite`."""

    def __init__(self, path: Path, run_id: str | None = None, *, overwrite: bool = False) -> None:
        if path.is_dir():
            raise UsageError(f"{path} is a folder; name a file")
        check_free(path, overwrite)
        if path.exists():
            remove(path)
        self.path, self.run_id, self.written = path, run_id, 0
        self._log = AppendLog(path)
        self._encode = msgspec.json.Encoder().encode

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        for record in step_records(world, self.run_id or run_id_of(world)):
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
    """A snapshot every so many ticks: FILE, FILE with the tick before its suffix, on the way."""

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


class Film(Probe):
    """A picture every so many decisions; of a long run every second one is dropped again and again."""

    def __init__(self, every: int = 1) -> None:
        self.every, self.frames, self._steps = every, [], 0

    frames: list[Array]

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        if self._steps % self.every == 0:
            self.frames.append(picture(look(world)))
            if len(self.frames) == MOST_FRAMES:
                self.frames, self.every = self.frames[::2], self.every * 2
        self._steps += 1

    def finish(self, world: VectorTown) -> None:
        self.frames.append(picture(look(world)))


class Follow(Probe):
    """One resident's decisions: what it wanted, what it saw, what was masked and why, and what came of it."""

    def __init__(self, resident: str, vec: VectorTown, say: Callable[[str], None]) -> None:
        known = vec.town_of(0).resident_ids
        if resident not in known and not resident.startswith("newcomer_"):
            raise UsageError(f"there is no resident {resident!r} to follow; this town has {', '.join(known[:20])}")
        self.resident, self.say = resident, say
        self.rows: list[dict[str, object]] = []
        self._slot = -1

    def before_step(self, world: VectorTown, decision: Decided) -> None:
        self._slot = self._find(world)
        if self._slot < 0 or not world.active[0, self._slot]:
            self._slot = -1
            return
        now, slot = world.state.towns[0], self._slot
        seen = dict(zip(world.spec.feature_names, world.features[0, slot].tolist()))
        wanted = world.catalogue.names[int(decision.actions[0, slot])]
        self.rows.append(
            {
                "tick": int(now["tick"]),
                "time": clock(int(now["minute"])),
                "wanted": wanted,
                "needs": {need: round(seen[f"need_{need}"], 3) for need in world.spec.needs},
                "rivalry_max": round(seen["rivalry_max"], 3),
                "sees": _sees(seen, world.catalogue.affordances, wanted),
                "legal": [world.catalogue.names[a] for a in np.flatnonzero(world.masks[0, slot])],
                "masked": why_masked(world, slot),
            }
        )

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        if self._slot < 0:
            return
        row = self.rows[-1]
        happened = [record for record in step_records(world) if self.resident in (record.get("actor"), record.get("rival"))]
        row["reward"] = round(float(world.terms[0, self._slot].sum()), 4)
        row["events"] = [record["type"] for record in happened]
        row["illegal"] = bool(world.illegal[0, self._slot])
        self.say(follow_text(self.resident, row))

    def _find(self, world: VectorTown) -> int:
        slots = np.flatnonzero(world.state.residents[0]["present"])
        return next((int(slot) for slot in slots if world.resident_id(0, int(slot)) == self.resident), -1)


def _sees(seen: dict[str, float], affordances: tuple[str, ...], wanted: str) -> dict[str, dict[str, float]]:
    """The candidates of the affordance that was chosen, as the observation shows them."""
    name = wanted.partition(":")[0] if not wanted.startswith("interact:") else wanted.removeprefix("interact:")
    if name not in affordances:
        return {}
    return {
        how: {field: round(seen[f"{name}_{how}_{field}"], 3) for field in ("distance", "queue", "busy", "rivalry")}
        for ways in WAYS.values()
        for how in ways
        if f"{name}_{how}_distance" in seen
    }


def follow_text(resident: str, row: dict[str, Any]) -> str:
    needs = ", ".join(f"{name} {level:.2f}" for name, level in row["needs"].items())
    lines = [f"{row['time']} {resident} wants {row['wanted']}{' (not allowed: waits)' if row['illegal'] else ''} — {needs}"]
    for how, field in row["sees"].items():
        told = ", ".join(f"{name} {value:.2f}" for name, value in field.items())
        lines.append(f"      sees {how}: {told}")
    reasons: dict[str, list[str]] = {}
    for action, reason in row["masked"].items():
        reasons.setdefault(reason, []).append(
            action.partition(":")[0] if ":" in action and not action.startswith("interact:") else action
        )
    for reason, actions in reasons.items():
        lines.append(f"      masked {', '.join(dict.fromkeys(actions))}: {reason}")
    lines.append(f"      reward {row['reward']:+.3f}{': ' + ', '.join(row['events']) if row['events'] else ''}")
    return "\n".join(lines)
