"""A stage: the town of one take, that can be put at any of its decisions and shot from there.

Changes cut a take into stretches of one config each; between them the town is carried over by place. Objects of all stretches
have one index in the film. On the way the stage keeps stations (worlds put away), so that no moment is far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import NamedTuple

import numpy as np

from townlet.config.models import SimulationConfig
from townlet.envs.vector import VectorTown
from townlet.errors import InterruptedRun, UsageError
from townlet.policy.runtime import Decision, RememberingPolicy
from townlet.sim.edits import (
    ConfigEdit,
    Force,
    WorldEdit,
    apply_edits,
    change_world,
    parse_edit,
    schedule_perturbations,
    slot_of,
    transplant,
)
from townlet.sim.loop import SimulationLoop
from townlet.sim.recorder import NOBODY, Decisions
from townlet.types import Array
from townlet.world.state import MONEY

CLOSE = 60  # ticks between stations, where there is room for them
STATION_BYTES = 256 << 20
MakePolicy = Callable[[VectorTown], RememberingPolicy]


class Shot(NamedTuple):
    """One decision of everybody and the ticks that followed it."""

    tick: int
    film: Array  # (ticks, film_bytes) u1, objects by their index in the take
    events: Array  # (K,) EVENT, objects likewise
    active: Array  # (N,) bool
    actions: Array  # (N,) i8
    targets: Array | None  # (N,) i8
    values: Array  # (N,) f4
    rewards: Array  # (N,) f4
    terms: Array  # (N, T) f8
    illegal: Array  # (N,) bool
    wallets: Array  # (N,) f8 coins, before the decision
    lives: Array  # (N,) i4


@dataclass(frozen=True)
class TakeObject:
    """An object of the take, in whichever stretch it stands."""

    id: str
    kind: str
    x: int
    y: int
    affordance: str
    first: int  # tick
    last: int | None  # tick from which it is gone


class _Station(NamedTuple):
    stretch: int
    arrays: Mapping[str, Array]
    checked: Array
    events: Array
    memory: Mapping[str, Array]


class Directed:
    """A policy with some of its decisions given."""

    def __init__(self, policy: RememberingPolicy, forced: Mapping[int, Mapping[str, str]]) -> None:
        self.policy, self.forced = policy, forced  # tick → resident → option
        self.kind, self.has_values = policy.kind, policy.has_values

    def reset(self, vec: VectorTown) -> None:
        self.policy.reset(vec)

    def act(self, vec: VectorTown) -> Decision:
        decision = self.policy.act(vec)
        forced = self.forced.get(int(vec.state.towns[0]["tick"]))
        if not forced:
            return decision
        actions, targets = decision.actions.copy(), None if decision.targets is None else decision.targets.copy()
        for name, option in forced.items():
            slot = slot_of(vec, name)
            if option not in vec.catalogue.names:
                raise UsageError(f"there is no option {option!r} to force; expected one of {', '.join(vec.catalogue.names)}")
            actions[0, slot] = vec.catalogue.index(option)
            if targets is not None:
                targets[0, slot] = -1
        return decision._replace(actions=actions, targets=targets)

    def memory(self) -> dict[str, Array]:
        return self.policy.memory()

    def recall(self, memory: Mapping[str, Array]) -> None:
        self.policy.recall(memory)


class Performed(Directed):
    """A take played in an ordinary town: what it changes of the world changes there as well, before the decision of that tick."""

    def __init__(self, policy: RememberingPolicy, vec: VectorTown, changes: Sequence[tuple[int, str]]) -> None:
        edits, interval = [(at, parse_edit(text)) for at, text in changes], vec.interval
        config = next((edit.text for _, edit in edits if isinstance(edit, ConfigEdit)), None)
        if config is not None:
            raise UsageError(f"the take changes its rules on the way ({config!r}); capture a take of one town")
        due: dict[int, list[WorldEdit]] = {}
        forced: dict[int, dict[str, str]] = {}
        for at, edit in edits:
            tick = -(-at // interval) * interval
            if isinstance(edit, Force):
                forced.setdefault(tick, {})[edit.name] = edit.option
            elif isinstance(edit, WorldEdit):
                due.setdefault(tick, []).append(edit)
        super().__init__(policy, forced)
        self.due = due
        schedule_perturbations(vec, edits)

    def act(self, vec: VectorTown) -> Decision:
        for edit in self.due.get(int(vec.state.towns[0]["tick"]), ()):
            change_world(vec, edit)
        decision = super().act(vec)
        return decision._replace(expert=decision.actions)  # what was played is what there is to imitate


class Stage:
    def __init__(
        self,
        config: SimulationConfig,
        seed: int,
        policy: MakePolicy,
        changes: Sequence[tuple[int, str]] = (),
        start: Mapping[str, Array] | None = None,
    ) -> None:
        self._edits = [(at, parse_edit(text)) for at, text in changes]
        vec = VectorTown(config, 1, seed=seed)
        if start is not None:
            vec.restore(start)
        self.first, self.interval = int(vec.state.towns[0]["tick"]), vec.interval
        self.start_minute, self.start_day = int(vec.state.towns[0]["minute"]), int(vec.state.towns[0]["day"])
        self.ticks = config.scenario.episode_ticks - self.first
        self.decisions = -(-self.ticks // self.interval)
        self._begin: list[int] = [0]  # decision with which each stretch begins
        self._vecs = [vec]
        self._make_stretches(config)
        self.things, self._places = self._union()
        forced: dict[int, dict[str, str]] = {}
        for at, edit in self._edits:
            if isinstance(edit, Force):
                forced.setdefault(self.first + self.decision_of(at) * self.interval, {})[edit.name] = edit.option
        self.policy = Directed(policy(vec), forced)
        self._perturbed: set[int] = set()
        self._perturb(0)
        for one in self._vecs:
            one.start_filming()
        self.vec, self._stretch, self.at = vec, 0, 0
        self._loop = SimulationLoop(vec, self.policy)
        self.closing = Event()  # of its studio
        self._stations: dict[int, _Station] = {}
        self._arrive()
        self.nbytes = 0
        size = self._keep(0)
        self._every = max(-(-CLOSE // self.interval), -(-self.decisions * size // STATION_BYTES))

    # --- moving -------------------------------------------------------------------------------------------------------

    def go(self, decision: int) -> None:
        """Stand before a decision."""
        if not 0 <= decision < self.decisions:
            raise UsageError(f"the take has {self.decisions} decisions, numbered from 0; there is no decision {decision}")
        near = max(k for k in self._stations if k <= decision)
        if self.at > decision or near > self.at:
            self._restore(near)
        while self.at < decision:
            self.shoot()

    def shoot(self) -> Shot:
        """Let the decision happen that the stage stands before."""
        if self.closing.is_set():
            raise InterruptedRun("the server ends; start it again to see the town")
        vec, now = self.vec, self.vec.state.towns[0]
        tick, active = int(now["tick"]), vec.active[0] != 0
        wallets = vec.state.residents[0]["wallet"] / MONEY
        lives = vec.state.residents[0]["life"].copy()
        decision = self._loop.decide()
        self._loop.step()
        place = self._places[self._stretch]
        shot = Shot(
            tick=tick,
            film=self._placed(vec.film[0], place),
            events=_placed_events(vec.events(), place),
            active=active,
            actions=decision.actions[0].copy(),
            targets=None if decision.targets is None else decision.targets[0].copy(),
            values=decision.values[0].copy(),
            rewards=vec.rewards[0].copy(),
            terms=vec.terms[0].copy(),
            illegal=vec.illegal[0] != 0,
            wallets=wallets,
            lives=lives,
        )
        self.at += 1
        if self.at < self.decisions:
            self._arrive()
            if self.at % self._every == 0 and self.at not in self._stations:
                self._keep(self.at)
        return shot

    def tick_of(self, decision: int) -> int:
        return self.first + decision * self.interval

    def under_way(self, tick: int) -> int:
        """The decision whose ticks a tick is among."""
        return (tick - self.first) // self.interval

    # --- changes ------------------------------------------------------------------------------------------------------

    def decision_of(self, tick: int) -> int:
        """The first decision at or after a tick."""
        return max(0, -(-(tick - self.first) // self.interval))

    def _make_stretches(self, config: SimulationConfig) -> None:
        base = self._vecs[0]
        for at, edit in self._edits:
            if not self.first <= at < self.first + self.ticks:
                raise UsageError(
                    f"a change at tick {at} is outside the take, which has ticks {self.first} to {self.first + self.ticks - 1}"
                )
            if not isinstance(edit, ConfigEdit):
                continue
            config, k = apply_edits(config, [edit]), self.decision_of(at)
            vec = VectorTown(config, 1, seed=base.seed)
            same = (vec.num_residents, vec.catalogue, vec.spec.hash, vec.interval) == (
                base.num_residents, base.catalogue, base.spec.hash, base.interval
            )  # fmt: skip
            if not same or config.scenario.episode_ticks != base.config.scenario.episode_ticks:
                raise UsageError(
                    f"the change {edit.text!r} makes another town (people, options, hours); open that as a take of its own"
                )
            if self._begin[-1] == k and k > 0:
                self._vecs[-1] = vec
            else:
                self._begin.append(k)
                self._vecs.append(vec)

    def _perturb(self, stretch: int) -> None:
        """Once a stretch, when the town first comes to it: its clock tells which minutes the ticks are."""
        if stretch not in self._perturbed:
            self._perturbed.add(stretch)
            schedule_perturbations(self._vecs[stretch], self._edits)

    def _arrive(self) -> None:
        """What is to change before the decision the stage has come to."""
        while self._stretch + 1 < len(self._begin) and self._begin[self._stretch + 1] == self.at:
            old, memory = self.vec, self.policy.memory()
            self._stretch += 1
            self.vec = self._vecs[self._stretch]
            self.vec.restore(transplant(self.vec, old.towns[0], old.save()))
            self._perturb(self._stretch)
            self._loop = SimulationLoop(self.vec, self.policy)
            self.policy.reset(self.vec)
            self.policy.recall(memory)
        for at, edit in self._edits:
            if self.decision_of(at) == self.at and isinstance(edit, WorldEdit):
                change_world(self.vec, edit)

    # --- stations -----------------------------------------------------------------------------------------------------

    def _keep(self, decision: int) -> int:
        vec = self.vec
        station = _Station(
            self._stretch,
            vec.save(),
            vec.state.checked.copy(),
            vec.events(),
            {k: v.copy() for k, v in self.policy.memory().items()},
        )
        self._stations[decision] = station
        size = sum(
            array.nbytes for array in (*station.arrays.values(), station.checked, station.events, *station.memory.values())
        )
        self.nbytes += size
        return size

    def _restore(self, decision: int) -> None:
        station = self._stations[decision]
        if station.stretch != self._stretch:
            self._stretch, self.vec = station.stretch, self._vecs[station.stretch]
            self.policy.reset(self.vec)
        self.vec.restore(station.arrays)
        self.vec.state.checked[...] = station.checked
        self.vec.state.events[0, : len(station.events)] = station.events
        self.vec.state.towns["events"] = len(station.events)
        self.policy.recall(station.memory)
        self._loop = SimulationLoop(self.vec, self.policy)
        self.at = decision

    # --- objects of several stretches ---------------------------------------------------------------------------------

    def _union(self) -> tuple[list[TakeObject], list[Array]]:
        """All objects in the order in which they come, and where those of each stretch are among them."""
        index: dict[tuple[int, int, str], int] = {}
        found: list[TakeObject] = []
        names: set[str] = set()
        places = []
        ends = [self.first + k * self.interval for k in self._begin[1:]] + [None]
        for vec, begin, end in zip(self._vecs, self._begin, ends):
            town, here = vec.towns[0], []
            for name, row in zip(town.object_ids, vec.state.objects[0]):
                key = int(row["x"]), int(row["y"]), town.kinds[row["kind"]]
                affordance = vec.config.affordances.specs[int(row["affordance"])].id
                if key not in index:
                    index[key] = len(found)
                    own = name if name not in names else f"{name}_at_{key[0]}_{key[1]}"  # without one, the others are renumbered
                    names.add(own)
                    found.append(TakeObject(own, key[2], key[0], key[1], affordance, self.first + begin * self.interval, None))
                k = index[key]
                found[k] = replace(found[k], last=end)
                here.append(k)
            places.append(np.array(here, np.int64))
        return found, places

    def _placed(self, film: Array, place: Array) -> Array:
        """A step's film with objects by their index in the take."""
        m, n = len(self.things), self.vec.num_residents
        if len(place) == m and (place == np.arange(m)).all():
            return film.copy()
        edge, things = film.shape[1] - 3 - 4 * len(place), np.zeros((len(film), 4, m), np.uint8)
        things[:, :, place] = film[:, edge:-3].reshape(len(film), 4, len(place))
        out = np.concatenate([film[:, :edge], things.reshape(len(film), -1), film[:, -3:]], axis=1)
        thing = film[:, 6 * n : 7 * n].astype(np.int64) | film[:, 7 * n : 8 * n].astype(np.int64) << 8
        moved = np.concatenate([[0], place + 1])[thing]
        out[:, 6 * n : 7 * n], out[:, 7 * n : 8 * n] = moved & 255, moved >> 8
        return out


def _placed_events(rows: Array, place: Array) -> Array:
    rows = rows.copy()
    rows["object"] = np.where(rows["object"] >= 0, place[rows["object"]], -1)
    return rows


class RecordedDecisions:
    """The decisions of one town, by tick; past their end everybody waits."""

    kind, has_values = "recorded", False

    def __init__(self, decisions: Decisions) -> None:
        self.decisions = decisions

    def reset(self, vec: VectorTown) -> None:
        if vec.num_towns != 1 or vec.num_residents != self.decisions.actions.shape[1]:
            raise UsageError(
                f"the decisions are of one town with {self.decisions.actions.shape[1]} residents, "
                f"this is {vec.num_towns} with {vec.num_residents}; play them in the town they were recorded in"
            )

    def act(self, vec: VectorTown) -> Decision:
        recorded, shape = self.decisions, vec.active.shape
        k = (int(vec.state.towns[0]["tick"]) - recorded.first) // vec.interval
        actions, targets = np.zeros(shape, np.int64), None
        if 0 <= k < len(recorded.actions):
            row = recorded.actions[k].astype(np.int64)
            actions[0] = np.where(row == NOBODY, 0, row)
            if recorded.targets is not None:
                targets = recorded.targets[k].astype(np.int64)[None] - 1
        return Decision(actions, np.zeros(shape, np.float32), np.zeros(shape, np.float32), None, targets)

    def memory(self) -> dict[str, Array]:
        return {}

    def recall(self, memory: Mapping[str, Array]) -> None:
        """It reads the clock and remembers nothing."""
