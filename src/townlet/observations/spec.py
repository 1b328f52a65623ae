"""Every observed number by name: group, unit, meaning, bounds, offset. Encoder, network, replay files and pages read this table.

Fields come in blocks: one field, or a row of like ones (a need each, an affordance each). The encoder writes a block from the
column at which it begins (`COLUMNS`) and a map channel into its plane (`CHANNELS`); it counts nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from townlet.config.models import SimulationConfig
from townlet.files import short_hash
from townlet.types import Array
from townlet.world.actions import WAYS, Catalogue
from townlet.world.state import (
    HALF_DISTANCE,
    HALF_OFFSET,
    HALF_QUEUE,
    HALF_WAIT,
    HALF_WEIGHT,
    MAX_EDGES,
    MAX_MEALS,
    PERTURBATIONS,
    SHIFT_STATES,
)

CONFLICT = "conflict"
TOLD_WEIGHT = "conflict_weight"
FLAG, COINS, PEOPLE = "0 or 1", "coins, half 1", f"people, half {HALF_QUEUE:g}"
OFFSET = f"tiles, half {HALF_OFFSET:g}"


class FieldTemplate(NamedTuple):
    """A number that is seen of each of several things."""

    unit: str
    meaning: str
    low: float = 0.0
    conflict: bool = False  # of the group `conflict`


WAY_FIELDS = {
    "dx": FieldTemplate("step", "first step there, east is 1", -1.0),
    "dy": FieldTemplate("step", "first step there, south is 1", -1.0),
    "distance": FieldTemplate(f"tiles, half {HALF_DISTANCE:g}", "walking distance; 1 when there is none"),
}
CANDIDATE_FIELDS = WAY_FIELDS | {
    "queue": FieldTemplate(PEOPLE, "people in its queue", conflict=True),
    "busy": FieldTemplate(FLAG, "in use", conflict=True),
    "rivalry": FieldTemplate("rivalry", "highest rivalry you feel for its user or its queue", conflict=True),
}
CHOICE_FIELDS = CANDIDATE_FIELDS | {  # of a candidate that the policy itself chooses among
    "wait": FieldTemplate(f"minutes, half {HALF_WAIT:g}", "until it would be free for you", conflict=True),
    "mine": FieldTemplate(FLAG, "the one you are on the way to, or wait for"),
}
PLACE_FIELDS = WAY_FIELDS | {"at": FieldTemplate(FLAG, "you are there")}
PLACES = {"work": "workplace", "home": "home"}
SOCIAL_FIELDS = {
    "trust": FieldTemplate("trust", "your trust", -1.0),
    "familiarity": FieldTemplate("familiarity", "how well you know each other", -1.0),
    "rivalry": FieldTemplate("rivalry", "your rivalry", conflict=True),
    "dx": FieldTemplate(OFFSET, "tiles to the east", -1.0),
    "dy": FieldTemplate(OFFSET, "tiles to the south", -1.0),
    "filled": FieldTemplate(FLAG, "there is such a person"),
}
SOCIAL_SLOTS = {
    "friend_1": "the person you like most",
    "friend_2": "the second",
    "rival_1": "your worst rival",
    "rival_2": "the second",
}
MAPS = {  # variant -> (channels, window)
    "hybrid": (("self", "agents", "objects", "reservations"), 11),
    "full": (("self", "agents", "objects", "reservations", "rivals", "walkable"), 11),
    "compact": ((), 0),
    "compact_map": (("self", "agents", "objects", "reservations", "walkable"), 7),
}


@dataclass(frozen=True)
class ObservationField:
    name: str
    group: str
    unit: str
    meaning: str
    low: float = 0.0
    high: float = 1.0

    @classmethod
    def of(cls, name: str, group: str, template: FieldTemplate, whose: str = "") -> ObservationField:
        return cls(name, CONFLICT if template.conflict else group, template.unit, whose + template.meaning, template.low)


@dataclass(frozen=True)
class ObservationSpec:
    """Names and shapes of one variant over one action catalogue and the needs of a town."""

    variant: str
    action_names: tuple[str, ...]
    affordances: tuple[str, ...]
    needs: tuple[str, ...]
    told_weight: bool = False  # they see what conflict weighs

    @classmethod
    def of(cls, config: SimulationConfig) -> ObservationSpec:
        """What residents of a config see."""
        variant: str = config.features.systems.observations
        if variant == "compact" and config.observations.compact_map:
            variant = "compact_map"
        actions, told = Catalogue.of(config), config.observations.conflict_weight is not None
        return cls(variant, actions.names, actions.affordances, tuple(config.needs), told)

    @cached_property
    def blocks(self) -> dict[str, list[ObservationField]]:
        return _blocks(self.action_names, self.affordances, self.needs, self.told_weight)

    @cached_property
    def fields(self) -> tuple[ObservationField, ...]:
        return tuple(field for block in self.blocks.values() for field in block)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @cached_property
    def offsets(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.feature_names)}

    @property
    def hash(self) -> str:
        """Of the variant, all names and the shape of the map: what a network must agree with."""
        words = (self.variant, *self.feature_names, *map(str, self.map_shape))
        return short_hash("\n".join(words))

    @property
    def map_channels(self) -> tuple[str, ...]:
        return MAPS[self.variant][0]

    @property
    def map_shape(self) -> tuple[int, int, int]:
        channels, window = MAPS[self.variant]
        return (len(channels), window, window)

    def first_columns(self) -> Array:
        """Where each block begins.  # (1,) COLUMNS"""
        sizes = [len(block) for block in self.blocks.values()]
        return np.array([tuple(np.cumsum([0, *sizes[:-1]]).tolist())], dtype=COLUMNS)

    def planes(self) -> Array:
        """The plane of each channel, -1 where the variant has none.  # (1,) CHANNELS"""
        shown = self.map_channels
        return np.array([tuple(shown.index(name) if name in shown else -1 for name in CHANNELS.names or ())], dtype=CHANNELS)

    def columns(self, group: str) -> tuple[int, ...]:
        """Offsets of all fields of a group (`self`, `town`, `candidates`, `places`, `social`, `conflict`)."""
        return tuple(i for i, field in enumerate(self.fields) if field.group == group)


def _blocks(
    action_names: Sequence[str], affordances: Sequence[str], needs: Sequence[str], told_weight: bool = False
) -> dict[str, list[ObservationField]]:
    """The table itself: blocks in the order in which they are seen."""
    rows: dict[str, list[ObservationField]] = {}

    def one(group: str, name: str, unit: str, meaning: str, low: float = 0.0) -> None:
        rows[name] = [ObservationField(name, group, unit, meaning, low)]

    def each(group: str, block: str, names: Sequence[str], meaning: str) -> None:
        rows[block] = [ObservationField(f"{block}_{name}", group, FLAG, meaning) for name in names]

    rows["needs"] = [ObservationField(f"need_{need}", "self", "share", "level of the need; 1 is full") for need in needs]
    one("self", "wallet", COINS, "coins in hand")
    one("self", "debt", COINS, "coins owed")
    one("self", "meals", f"of {MAX_MEALS}", "meals in hand")
    one("self", "lateness_counter", "shifts, half 1", "late shifts in this life")
    one("self", "wages_withheld", COINS, "wages lost")
    one("self", "on_shift", FLAG, "at work, within the shift")
    one("town", "time_sin", "sine", "time of day as an angle", low=-1.0)
    one("town", "time_cos", "cosine", "time of day as an angle", low=-1.0)
    one("self", "time_to_shift", "days", "until the next shift; 0 during a shift, 1 without a job")
    one("self", "shift_left", "days", "what is left of the running shift")
    one("self", "attendance_ratio", "share", "time at work in the last three shifts; 1 before the first")
    each("self", "shift", SHIFT_STATES, "state of the shift; exactly one of the six is 1")
    one("self", "embedding_slot_norm", "share", "place in the list of residents, which tells them apart")
    one("self", "ctx_reset_flag", FLAG, "first observation of this life")
    one("town", "episode_progress", "share", "how much of the episode is over")
    one(CONFLICT, "rivalry_max", "rivalry", "highest rivalry you feel for anybody")
    one(CONFLICT, "rivalry_avoid_count", f"of {MAX_EDGES}", "people you avoid")
    each("self", "last_action", action_names, "what you chose last; exactly one is 1")
    one("self", "last_action_success", FLAG, "that choice was possible")
    one("self", "reservation_active", FLAG, "you use an object, or have been called to one")
    one("self", "in_queue", FLAG, "you wait in a queue, or have been called")
    one(CONFLICT, "queue_position", PEOPLE, "your place in the queue, the first is 1; 0 outside one")
    one("self", "ticks_left", "share", "what is left of the use")
    each("self", "using", affordances, "what you are using")
    each("self", "waiting", affordances, "what you are waiting for")
    one("self", "exit_near", FLAG, "you will have to leave the town soon")
    one("self", "notice", FLAG, "you have missed so many shifts that you will lose your home")
    one("self", "rent_unpaid", "days, half 1", "days of unpaid rent")
    each("town", "town", PERTURBATIONS, "this disturbance is on")
    chooses = f"{affordances[0]}:{WAYS['candidates'][0]}" in action_names if affordances else False
    rows["candidates"] = [
        ObservationField.of(f"{name}_{how}_{field}", "candidates", template)
        for name in affordances
        for how in WAYS["candidates" if chooses else "option"]
        for field, template in (CHOICE_FIELDS if chooses else CANDIDATE_FIELDS).items()
    ]
    for place, told in PLACES.items():
        rows[place] = [
            ObservationField.of(f"at_{place}" if field == "at" else f"{place}_{field}", "places", template, f"{told}: ")
            for field, template in PLACE_FIELDS.items()
        ]
    one("self", "extroversion", "trait", "personality", low=-1.0)
    one("self", "forgiveness", "trait", "personality", low=-1.0)
    one("self", "ambition", "trait", "personality", low=-1.0)
    for slot, told in SOCIAL_SLOTS.items():
        rows[slot] = [
            ObservationField.of(f"{slot}_{field}", "social", template, f"{told}: ") for field, template in SOCIAL_FIELDS.items()
        ]
    one("social", "ties_filled", f"of {MAX_EDGES}", "people you have feelings about")
    one("social", "trust_mean", "trust", f"sum over your ties / {MAX_EDGES}", low=-1.0)
    one("social", "familiarity_mean", "familiarity", f"sum over your ties / {MAX_EDGES}", low=-1.0)
    one(CONFLICT, "rivalry_mean", "rivalry", f"sum over your ties / {MAX_EDGES}")
    one("town", TOLD_WEIGHT, f"weight, half {HALF_WEIGHT:g}", "what a conflict weighs in the reward of this town")
    if not told_weight:
        rows[TOLD_WEIGHT] = []  # last: without it the row ends before
    return rows


COLUMNS = np.dtype([(name, "u4") for name in _blocks((), (), ())])
CHANNELS = np.dtype([(name, "i8") for name in dict.fromkeys(name for channels, _ in MAPS.values() for name in channels)])
