"""Every observed number, by name: group, offset and bounds. The encoder, the network and the replay files read this table."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from townlet.world.state import NEEDS, PERTURBATIONS, SHIFT_STATES

CONFLICT = "conflict"
CANDIDATE_FIELDS = ("dx", "dy", "distance", "queue", "busy", "rivalry")
SOCIAL_SLOTS = ("friend_1", "friend_2", "rival_1", "rival_2")
SOCIAL_FIELDS = ("trust", "familiarity", "rivalry", "dx", "dy", "filled")
MAPS = {  # variant -> (channels, window)
    "hybrid": (("self", "agents", "objects", "reservations"), 11),
    "full": (("self", "agents", "objects", "reservations", "rivals", "walkable"), 11),
    "compact": ((), 0),
    "compact_map": (("self", "agents", "objects", "reservations", "walkable"), 7),
}


@dataclass(frozen=True)
class Field:
    name: str
    group: str
    low: float = 0.0
    high: float = 1.0


@dataclass(frozen=True)
class ObservationSpec:
    """Names and shapes of one variant over one action catalogue."""

    variant: str
    action_names: tuple[str, ...]
    affordances: tuple[str, ...]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return tuple(_fields(self.action_names, self.affordances))

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
        return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]

    @property
    def map_channels(self) -> tuple[str, ...]:
        return MAPS[self.variant][0]

    @property
    def map_shape(self) -> tuple[int, int, int]:
        channels, window = MAPS[self.variant]
        return (len(channels), window, window)

    def columns(self, group: str) -> tuple[int, ...]:
        """Offsets of all fields of a group (`self`, `town`, `candidates`, `places`, `social`, `conflict`)."""
        return tuple(i for i, field in enumerate(self.fields) if field.group == group)


def _fields(action_names: Sequence[str], affordances: Sequence[str]) -> list[Field]:
    own: list[Field] = [Field(f"need_{need}", "self") for need in NEEDS]
    own += [Field(name, "self") for name in ("wallet", "meals", "lateness_counter", "wages_withheld", "on_shift")]
    own += [Field(name, "town", -1.0) for name in ("time_sin", "time_cos")]
    own += [Field(name, "self") for name in ("time_to_shift", "shift_left", "attendance_ratio")]
    own += [Field(f"shift_{state}", "self") for state in SHIFT_STATES]
    own += [Field("embedding_slot_norm", "self"), Field("ctx_reset_flag", "self"), Field("episode_progress", "town")]
    own += [Field("rivalry_max", CONFLICT), Field("rivalry_avoid_count", CONFLICT)]
    own += [Field(f"last_action_{name}", "self") for name in action_names]
    own += [Field(name, "self") for name in ("last_action_success", "reservation_active", "in_queue")]
    own += [Field("queue_position", CONFLICT), Field("ticks_left", "self")]
    own += [Field(f"using_{name}", "self") for name in affordances]
    own += [Field(f"waiting_{name}", "self") for name in affordances]
    own += [Field(name, "self") for name in ("exit_near", "notice", "rent_unpaid")]
    own += [Field(f"town_{name}", "town") for name in PERTURBATIONS]
    for name in affordances:
        for how in ("near", "calm"):
            for field in CANDIDATE_FIELDS:
                group = CONFLICT if field in ("queue", "busy", "rivalry") else "candidates"
                own.append(Field(f"{name}_{how}_{field}", group, -1.0 if field in ("dx", "dy") else 0.0))
    for place in ("work", "home"):
        own += [Field(f"{place}_{axis}", "places", -1.0) for axis in ("dx", "dy")]
        own += [Field(f"{place}_distance", "places"), Field(f"at_{place}", "places")]
    own += [Field(name, "self", -1.0) for name in ("extroversion", "forgiveness", "ambition")]
    for slot in SOCIAL_SLOTS:
        for field in SOCIAL_FIELDS:
            group = CONFLICT if field == "rivalry" else "social"
            own.append(Field(f"{slot}_{field}", group, 0.0 if field in ("rivalry", "filled") else -1.0))
    own += [Field("ties_filled", "social"), Field("trust_mean", "social", -1.0), Field("familiarity_mean", "social", -1.0)]
    own.append(Field("rivalry_mean", CONFLICT))
    return own
