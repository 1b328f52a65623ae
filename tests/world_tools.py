"""One town, told what to do by name: for rules that are worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from townlet.config.models import SimulationConfig
from townlet.envs.vector import VectorTown
from townlet.world.state import EVENTS, TERMS


class Play:
    """A single town whose residents do as they are told; everybody else waits."""

    def __init__(self, config: SimulationConfig, **options: Any) -> None:
        self.vec = VectorTown(config, 1, **options)
        self.slot = {name: i for i, name in enumerate(self.vec.town_of(0).resident_ids)}
        self.log: list[Any] = []  # every event so far
        self.last: list[Any] = []  # those of the last step

    def __getitem__(self, name: str) -> Any:
        return self.vec.state.residents[0, self.slot[name]]

    @property
    def town(self) -> Any:
        return self.vec.state.towns[0]

    def thing(self, name: str) -> Any:
        return self.vec.state.objects[0, self.index(name)]

    def index(self, name: str) -> int:
        return self.vec.object_ids(0).index(name)

    def go(self, ticks: int = 1, **orders: str) -> Play:
        """The same orders for some decisions; `use_shower` means `use_shower:near`, `use_shower@shower_2` names the object."""
        actions = np.zeros((1, self.vec.num_residents), np.int64)
        targets = np.full_like(actions, -1)
        for name, order in orders.items():
            verb, _, thing = order.partition("@")
            actions[0, self.slot[name]] = self.vec.catalogue.index(verb)
            if thing:
                targets[0, self.slot[name]] = self.index(thing)
        for _ in range(ticks):
            self.vec.step(actions, targets)
            self.last = [row.copy() for row in self.vec.events()]
            self.log += self.last
        return self

    def until(self, kind: str, most: int = 400, **orders: str) -> Any:
        """Go on until an event of the kind is told, and return it."""
        for _ in range(most):
            self.go(**orders)
            found = self.told(kind, self.last)
            if found:
                return found[0]
        raise AssertionError(f"no {kind} within {most} decisions")

    def told(self, kind: str, events: Sequence[Any] | None = None) -> list[Any]:
        number = EVENTS.index(kind)
        return [row for row in (self.log if events is None else events) if row["kind"] == number]

    def term(self, name: str, term: str) -> float:
        """A term of the last step's reward."""
        return float(self.vec.terms[0, self.slot[name], TERMS.index(term)])

    def reward(self, name: str) -> float:
        return float(self.vec.rewards[0, self.slot[name]])

    def may(self, name: str, action: str) -> bool:
        return bool(self.vec.masks[0, self.slot[name], self.vec.catalogue.index(action)])

    def sees(self, name: str, feature: str) -> float:
        return float(self.vec.features[0, self.slot[name], self.vec.spec.offsets[feature]])

    def tie(self, name: str, other: str) -> Any:
        """The record of a tie, or None."""
        ties = self.vec.state.ties[0, self.slot[name]]
        found = np.flatnonzero(ties["other"] == self.slot[other])
        return ties[found[0]] if len(found) else None

    def put(self, name: str, x: int, y: int) -> None:
        """Set somebody down on a free tile."""
        me, grid = self[name], self.vec.state.grid[0]["occupant"]
        assert grid[y, x] < 0
        assert me["below"] < 0
        grid[me["y"], me["x"]] = -1
        me["x"], me["y"] = x, y
        grid[y, x] = self.slot[name]


def people(**where: tuple[int, int]) -> list[dict[str, Any]]:
    """Entries of residents who begin on the given tiles."""
    return [{"id": name, "position": list(tile)} for name, tile in where.items()]
