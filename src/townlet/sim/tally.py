"""One tally of events: how often each thing happened, conflicts by reason, waits, shifts. All counting uses it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from townlet.types import Array
from townlet.world.events import CHAT_SUCCESS, QUEUE_CONFLICT, QUEUE_LEAVE, SHIFT_ABSENT, SHIFT_LATE, SHIFT_ON_TIME, USE_START
from townlet.world.state import CONFLICT_REASONS, EVENTS

SHIFTS = (SHIFT_ON_TIME, SHIFT_LATE, SHIFT_ABSENT)
CONFLICT, CHAT, END_OF_WAIT, SHIFT = range(1, 5)  # what a kind of event is to a tally; 0 is nothing but counted
ROLES = np.zeros(len(EVENTS), np.int8)
ROLES[QUEUE_CONFLICT], ROLES[CHAT_SUCCESS] = CONFLICT, CHAT
ROLES[[USE_START, QUEUE_LEAVE]], ROLES[list(SHIFTS)] = END_OF_WAIT, SHIFT
WAIT_FIELDS, SHIFT_FIELDS = ("town", "actor", "actor_life", "waited"), ("town", "actor", "actor_life", "kind")


@dataclass
class EventTally:
    """Sums over rows of `VectorTown.events()`, step after step. However the towns are split, the sums are the same to the bit."""

    kinds: Array = field(default_factory=lambda: np.zeros(len(EVENTS), np.int64))
    reasons: Array = field(default_factory=lambda: np.zeros(len(CONFLICT_REASONS), np.int64))
    _intensities: list[Array] = field(default_factory=list)  # of conflicts
    _qualities: list[Array] = field(default_factory=list)  # of chats that went well
    _waits: list[Array] = field(default_factory=list)
    _shifts: list[Array] = field(default_factory=list)

    def add(self, events: Array) -> None:
        if not len(events):
            return
        kinds = events["kind"]
        self.kinds += np.bincount(kinds, minlength=len(EVENTS))
        role = ROLES[kinds]
        conflicts, chats, shifts = ((role == kind).nonzero()[0] for kind in (CONFLICT, CHAT, SHIFT))
        if len(conflicts):
            self.reasons += np.bincount(events["reason"][conflicts], minlength=len(CONFLICT_REASONS))
            self._intensities.append(events["intensity"][conflicts])
        if len(chats):
            self._qualities.append(events["amount"][chats])
        ended = ((role == END_OF_WAIT) & (events["waited"] > 0)).nonzero()[0]
        if len(ended):
            self._waits.append(np.stack([events[name][ended] for name in WAIT_FIELDS], axis=1))
        if len(shifts):
            self._shifts.append(np.stack([events[name][shifts] for name in SHIFT_FIELDS], axis=1))

    def merge(self, other: EventTally) -> None:
        self.kinds += other.kinds
        self.reasons += other.reasons
        self._intensities += other._intensities
        self._qualities += other._qualities
        self._waits += other._waits
        self._shifts += other._shifts

    def arrays(self) -> dict[str, Array]:
        """All of it as plain arrays, for another process; `of_arrays` is the way back."""
        lists = {"intensities": self._intensities, "qualities": self._qualities}
        flat = {name: np.concatenate([np.zeros(0), *rows]) for name, rows in lists.items()}
        return {"kinds": self.kinds, "reasons": self.reasons, **flat, "waits": self.waits(), "shifts": self.shifts()}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array]) -> EventTally:
        kinds, reasons = arrays["kinds"].copy(), arrays["reasons"].copy()
        return cls(kinds, reasons, *([arrays[name]] for name in ("intensities", "qualities", "waits", "shifts")))

    @property
    def intensity(self) -> float:
        """Of all conflicts together; rounded once, so that no order of adding matters."""
        return math.fsum(value for rows in self._intensities for value in rows.tolist())

    @property
    def chat_quality(self) -> float:
        return math.fsum(value for rows in self._qualities for value in rows.tolist())

    def count(self, kind: int) -> int:
        """Of a kind of `world.events`."""
        return int(self.kinds[kind])

    def by_kind(self) -> dict[str, int]:
        """What happened at all, by name."""
        return {name: int(count) for name, count in zip(EVENTS, self.kinds) if count}

    def by_reason(self) -> dict[str, int]:
        """Conflicts by reason, also those that never came."""
        return {name: int(count) for name, count in zip(CONFLICT_REASONS, self.reasons)}

    def waits(self) -> Array:
        """Waits that ended, in a use or by leaving the queue: (K, 4) rows of WAIT_FIELDS."""
        return np.concatenate(self._waits) if self._waits else np.zeros((0, len(WAIT_FIELDS)), np.int64)

    def shifts(self) -> Array:
        """Events of shifts: (K, 4) rows of SHIFT_FIELDS."""
        return np.concatenate(self._shifts) if self._shifts else np.zeros((0, len(SHIFT_FIELDS)), np.int64)

    def shifts_due(self) -> int:
        """Shifts that have an event. Each is on time or late once; an absence without either before it belongs to a shift that
        began before these events."""
        rows = self.shifts()
        rows = rows[np.lexsort(rows[:, 2::-1].T)]  # by town, actor and life, each as they came
        absent = rows[:, 3] == SHIFT_ABSENT
        begun = np.zeros(len(rows), bool)
        begun[1:] = (rows[1:, :3] == rows[:-1, :3]).all(axis=1) & ~absent[:-1]
        return int((~absent | ~begun).sum())
