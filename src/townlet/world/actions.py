"""The catalogue of actions: what a policy may choose, in a fixed order, the same in every run of a config."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from townlet.config.models import SimulationConfig
from townlet.config.scenario import OPTION_VERBS, PLACE_VERBS
from townlet.world.state import CANDIDATES

# Leading entries of the option catalogue, in order; affordances follow as `X:near`, `X:calm`. The catalogue `candidates` begins
# alike; affordances follow as `X:1` … `X:K`, the nearest objects in turn, and after them what one does about a place in a queue.
WAIT, WORK, HOME, CHAT, LEAVE, FIRST_AFFORDANCE = range(6)
WAYS = {"option": ("near", "calm"), "candidates": tuple(str(k + 1) for k in range(CANDIDATES))}
LEVELS = (*WAYS, "primitive")  # of actions
RESERVE, YIELD = range(2)  # counted from behind the last affordance
# Leading entries of the primitive catalogue; affordances follow as `interact:X`.
MOVE_NORTH, P_LEAVE, P_CHAT, FIRST_INTERACT = 1, 5, 6, 7
PRIMITIVE_VERBS = ("wait", "move_north", "move_east", "move_south", "move_west", "leave", "chat")
STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))  # north, east, south, west as (dx, dy)


@dataclass(frozen=True)
class Catalogue:
    """Action names of one level over the affordances of one file, and their hash."""

    level: str
    affordances: tuple[str, ...]

    @classmethod
    def of(cls, config: SimulationConfig) -> Catalogue:
        return cls(config.policy.action_level, config.affordances.ids)

    @property
    def names(self) -> tuple[str, ...]:
        if self.level == "primitive":
            return PRIMITIVE_VERBS + tuple(f"interact:{name}" for name in self.affordances)
        named = OPTION_VERBS + tuple(f"{name}:{how}" for name in self.affordances for how in WAYS[self.level])
        return named + PLACE_VERBS if self.level == "candidates" else named

    @property
    def per_affordance(self) -> int:
        """Actions that lead to one affordance; they are consecutive."""
        return 1 if self.level == "primitive" else len(WAYS[self.level])

    @property
    def hash(self) -> str:
        return hashlib.sha256("\n".join((self.level, *self.names)).encode()).hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: str) -> int:
        """Catalogue index of a name; a bare affordance means its `near` option, or its first candidate."""
        if self.level != "primitive" and name in self.affordances:
            name = f"{name}:{WAYS[self.level][0]}"
        return self.names.index(name)


def affordances_of(level: str, names: Sequence[str]) -> tuple[str, ...]:
    """The affordances that a catalogue of these action names is over."""
    if level == "primitive":
        return tuple(name.removeprefix("interact:") for name in names[FIRST_INTERACT:])
    first = f":{WAYS.get(level, WAYS['option'])[0]}"
    return tuple(name.removesuffix(first) for name in names[FIRST_AFFORDANCE:] if name.endswith(first))
