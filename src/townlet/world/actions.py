"""The catalogue of actions: what a policy may choose, in a fixed order, the same in every run of a config."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

# Leading entries of the option catalogue, in order; affordances follow as `X:near`, `X:calm`.
WAIT, WORK, HOME, CHAT, LEAVE, FIRST_AFFORDANCE = range(6)
OPTION_VERBS = ("wait", "work", "home", "chat", "leave")
# Leading entries of the primitive catalogue; affordances follow as `interact:X`.
MOVE_NORTH, P_LEAVE, P_CHAT, FIRST_INTERACT = 1, 5, 6, 7
PRIMITIVE_VERBS = ("wait", "move_north", "move_east", "move_south", "move_west", "leave", "chat")
STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))  # north, east, south, west as (dx, dy)


@dataclass(frozen=True)
class Catalogue:
    """Action names of one level over the affordances of one file, and their hash."""

    level: str
    affordances: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        if self.level == "primitive":
            return PRIMITIVE_VERBS + tuple(f"interact:{name}" for name in self.affordances)
        return OPTION_VERBS + tuple(f"{name}:{how}" for name in self.affordances for how in ("near", "calm"))

    @property
    def hash(self) -> str:
        return hashlib.sha256("\n".join((self.level, *self.names)).encode()).hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: str) -> int:
        """Catalogue index of a name; a bare affordance means its `near` option."""
        if self.level == "option" and name in self.affordances:
            name = f"{name}:near"
        return self.names.index(name)


def catalogue(level: str, affordances: Sequence[str]) -> Catalogue:
    return Catalogue(level, tuple(affordances))
