"""Every observed number, by name: group, offset and bounds. The encoder, the network and the replay files read this table.

Fields come in blocks: one field, or a row of like ones (a need each, an affordance each). The encoder writes a block from the
column at which it begins (`COLUMNS`) and a map channel into its plane (`CHANNELS`); it counts nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from townlet.config.models import SimulationConfig
from townlet.files import short_hash
from townlet.types import Array
from townlet.world.actions import WAYS, Catalogue
from townlet.world.state import PERTURBATIONS, SHIFT_STATES

CONFLICT = "conflict"
TOLD_WEIGHT = "conflict_weight"
WAY_FIELDS = ("dx", "dy", "distance")
CANDIDATE_FIELDS = (*WAY_FIELDS, "queue", "busy", "rivalry")
CHOICE_FIELDS = (*CANDIDATE_FIELDS, "wait", "mine")  # of a candidate that the policy itself chooses among
PLACE_FIELDS = (*WAY_FIELDS, "at")
SOCIAL_SLOTS = ("friend_1", "friend_2", "rival_1", "rival_2")
SOCIAL_FIELDS = ("trust", "familiarity", "rivalry", "dx", "dy", "filled")
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
    low: float = 0.0
    high: float = 1.0


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

    def one(group: str, *names: str, low: float = 0.0) -> None:
        rows.update({name: [ObservationField(name, group, low)] for name in names})

    rows["needs"] = [ObservationField(f"need_{need}", "self") for need in needs]
    one("self", "wallet", "debt", "meals", "lateness_counter", "wages_withheld", "on_shift")
    one("town", "time_sin", "time_cos", low=-1.0)
    one("self", "time_to_shift", "shift_left", "attendance_ratio")
    rows["shift"] = [ObservationField(f"shift_{state}", "self") for state in SHIFT_STATES]
    one("self", "embedding_slot_norm", "ctx_reset_flag")
    one("town", "episode_progress")
    one(CONFLICT, "rivalry_max", "rivalry_avoid_count")
    rows["last_action"] = [ObservationField(f"last_action_{name}", "self") for name in action_names]
    one("self", "last_action_success", "reservation_active", "in_queue")
    one(CONFLICT, "queue_position")
    one("self", "ticks_left")
    rows["using"] = [ObservationField(f"using_{name}", "self") for name in affordances]
    rows["waiting"] = [ObservationField(f"waiting_{name}", "self") for name in affordances]
    one("self", "exit_near", "notice", "rent_unpaid")
    rows["town"] = [ObservationField(f"town_{name}", "town") for name in PERTURBATIONS]
    chooses = f"{affordances[0]}:{WAYS['candidates'][0]}" in action_names if affordances else False
    rows["candidates"] = [
        ObservationField(
            f"{name}_{how}_{field}",
            CONFLICT if field in ("queue", "busy", "wait", "rivalry") else "candidates",
            -1.0 if field in ("dx", "dy") else 0.0,
        )
        for name in affordances
        for how in WAYS["candidates" if chooses else "option"]
        for field in (CHOICE_FIELDS if chooses else CANDIDATE_FIELDS)
    ]
    for place in ("work", "home"):
        rows[place] = [
            ObservationField(
                f"at_{place}" if field == "at" else f"{place}_{field}", "places", -1.0 if field in ("dx", "dy") else 0.0
            )
            for field in PLACE_FIELDS
        ]
    one("self", "extroversion", "forgiveness", "ambition", low=-1.0)
    for slot in SOCIAL_SLOTS:
        rows[slot] = [
            ObservationField(
                f"{slot}_{field}",
                CONFLICT if field == "rivalry" else "social",
                0.0 if field in ("rivalry", "filled") else -1.0,
            )
            for field in SOCIAL_FIELDS
        ]
    one("social", "ties_filled")
    one("social", "trust_mean", "familiarity_mean", low=-1.0)
    one(CONFLICT, "rivalry_mean")
    rows[TOLD_WEIGHT] = [ObservationField(TOLD_WEIGHT, "town")] * told_weight  # last: without it the row ends before
    return rows


COLUMNS = np.dtype([(name, "u4") for name in _blocks((), (), ())])
CHANNELS = np.dtype([(name, "i8") for name in dict.fromkeys(name for channels, _ in MAPS.values() for name in channels)])
