"""Orders of a scenario: `{at | after, do, object?, until?}` turned into the option and object of each decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from townlet.config.scenario import ScheduleStep
from townlet.envs.vector import VectorTown
from townlet.errors import ScenarioError
from townlet.scenarios.compile import check_orders
from townlet.types import Array
from townlet.world.actions import FIRST_AFFORDANCE, WAIT
from townlet.world.events import CHAT_FAILURE, CHAT_SUCCESS, USE_END
from townlet.world.state import SHIFT_STATES

_LAST_OF_DAY = SHIFT_STATES.index("post_shift")


@dataclass
class _Order:
    """Where one resident stands in its schedule. `day` is that of the chain of steps under way."""

    day: int = -1
    step: int = -1
    running: bool = False
    moment: int = 0  # minutes since the first midnight at which the step began, or ended when it is not running
    until: int | None = None  # the same clock
    left: bool = False  # the last decision left a use that was not this step's: its end is not the step's end


class Schedules:
    """The schedules of a batch of towns; they begin anew with every episode. Residents without orders are left alone."""

    def __init__(self, vec: VectorTown) -> None:
        if vec.primitive:
            raise ScenarioError(f"schedules give options, but policy.action_level is {vec.catalogue.level!r}; set it to 'option'")
        self._ways = vec.catalogue.per_affordance
        self._day = vec.config.world.ticks_per_day
        self._leave = vec.catalogue.index("leave")
        self._verbs = {name: vec.catalogue.index(name) for name in ("work", "home", "chat", "wait", "leave")}
        for e in range(vec.num_towns):
            check_orders(vec.config, vec.object_ids(e))
        self._steps: dict[int, tuple[tuple[ScheduleStep, int], ...]] = {}  # slot -> steps with their catalogue index
        for slot, resident in enumerate(vec.config.scenario.residents):
            if resident.schedule:
                self._steps[slot] = tuple((step, self._option(vec, resident.id, step)) for step in resident.schedule)
        self._objects = [{name: i for i, name in enumerate(vec.object_ids(e))} for e in range(vec.num_towns)]
        self._orders: dict[tuple[int, int], _Order] = {}
        self._episodes = np.full(vec.num_towns, -1, np.int64)

    def memory(self) -> dict[str, Array]:
        """Where everybody stands in its schedule: `orders` (K, 8) i8 and `episodes` (E,) i8."""
        rows = [
            (e, slot, o.day, o.step, o.running, o.moment, -1 if o.until is None else o.until, o.left)
            for (e, slot), o in self._orders.items()
        ]
        return {"orders": np.array(rows, np.int64).reshape(-1, 8), "episodes": self._episodes.copy()}

    def recall(self, memory: Mapping[str, Array]) -> None:
        """Stand where `memory` stood."""
        self._episodes[...] = memory["episodes"]
        self._orders = {
            (e, slot): _Order(day, step, bool(running), moment, None if until < 0 else until, bool(left))
            for e, slot, day, step, running, moment, until, left in memory["orders"].tolist()
        }

    @staticmethod
    def _option(vec: VectorTown, resident: str, step: ScheduleStep) -> int:
        try:
            return vec.catalogue.index(step.do.removesuffix(":near") if vec.catalogue.level == "candidates" else step.do)
        except ValueError:
            known = ", ".join(vec.catalogue.names)
            raise ScenarioError(f"the schedule of {resident!r} says do: {step.do!r}; expected one of {known}") from None

    def order(self, vec: VectorTown, actions: Array, targets: Array) -> None:
        """Write the ordered option and object of every scheduled founder into actions and targets (E, N)."""
        towns, residents = vec.state.towns, vec.state.residents
        fresh = towns["episode"] != self._episodes
        ended = self._ended_uses(vec)
        for e in range(vec.num_towns):
            if fresh[e]:
                self._episodes[e] = towns["episode"][e]
                for slot in self._steps:
                    self._orders[e, slot] = _Order()
            now = int(towns["day"][e]) * self._day + int(towns["minute"][e])
            for slot, steps in self._steps.items():
                if not vec.active[e, slot] or residents["life"][e, slot] != 0:
                    continue  # a newcomer is free
                order = self._orders[e, slot]
                timed_out = False
                done = (e, slot) in ended and not order.left
                if order.running and self._over(order, steps[order.step][1], now, vec, e, slot, done):
                    timed_out = order.until is not None
                    order.running, order.moment, order.until = False, now, None
                self._begin(order, steps, now)
                actions[e, slot], targets[e, slot] = self._now(order, steps, timed_out, vec, e, slot)
                order.left = actions[e, slot] == self._leave

    @staticmethod
    def _ended_uses(vec: VectorTown) -> set[tuple[int, int]]:
        """(town, slot) of the uses and chats that ended in the last step."""
        events = vec.events()
        events = events[np.isin(events["kind"], (USE_END, CHAT_SUCCESS, CHAT_FAILURE))]
        index = {int(name): e for e, name in enumerate(vec.state.towns["id"])}
        return {(index[int(event["town"])], int(event["actor"])) for event in events}

    def _over(self, order: _Order, action: int, now: int, vec: VectorTown, e: int, slot: int, ended: bool) -> bool:
        """A step is over at its `until`; without one when its use or chat has ended, the shift is done, home is reached."""
        if order.until is not None:
            return now >= order.until
        if now <= order.moment:
            return False
        if action == self._verbs["work"]:
            return bool(vec.state.residents["shift"][e, slot] == _LAST_OF_DAY)
        if action == self._verbs["home"]:
            return not vec.masks[e, slot, action]
        if action in (self._verbs["wait"], self._verbs["leave"]):
            return True
        return ended

    def _begin(self, order: _Order, steps: tuple[tuple[ScheduleStep, int], ...], now: int) -> None:
        """The latest clock time of today that has come begins its step; else the next one that follows the step before."""
        today, minute = divmod(now, self._day)
        due = [
            (step.at, i)
            for i, (step, _) in enumerate(steps)
            if step.at is not None and step.at <= minute and step.day in (None, today)
        ]
        if due and (today, max(due)[1]) > (order.day, order.step):
            order.day, order.step = today, max(due)[1]
        else:
            following = order.step + 1
            if order.running or order.step < 0 or following >= len(steps):
                return
            after = steps[following][0].after
            if after is None or now < order.moment + after:
                return
            order.step = following
        order.running, order.moment = True, now
        until = steps[order.step][0].until
        order.until = None if until is None else now + (until - minute) % self._day

    def _now(
        self, order: _Order, steps: tuple[tuple[ScheduleStep, int], ...], timed_out: bool, vec: VectorTown, e: int, slot: int
    ) -> tuple[int, int]:
        """Option and object of this decision: a use the order means goes on, another one is left first."""
        mask = vec.masks[e, slot]
        if not order.running:
            return (self._leave if timed_out and mask[self._leave] else WAIT), -1
        step, action = steps[order.step]
        target = self._target(step, e)
        resident = vec.state.residents[e, slot]
        if resident["using"] >= 0:
            meant = action >= FIRST_AFFORDANCE and resident["affordance"] == (action - FIRST_AFFORDANCE) // self._ways
            return (WAIT if meant and target in (-1, resident["using"]) else self._leave), -1
        if vec.catalogue.level == "candidates" and action >= FIRST_AFFORDANCE:
            ways = mask[action : action + self._ways]  # the first one that there is; a named object is gone to in any case
            action += int(ways.argmax())
        return (action, target) if mask[action] else (WAIT, -1)

    def _target(self, step: ScheduleStep, e: int) -> int:
        return -1 if step.object is None else self._objects[e][step.object]
