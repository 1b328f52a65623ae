"""The town as a PettingZoo ParallelEnv: every resident an agent, one step a decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from townlet.config.base import DAY
from townlet.envs.events import step_records
from townlet.envs.render import rendered
from townlet.envs.spaces import INFOS, Info, Sight, info_of, make_towns, write_action
from townlet.envs.vector import Scenario, VectorTown, checked_actions
from townlet.errors import UsageError
from townlet.types import Array, Record

RENDER_MODES = ("human", "rgb_array", "ansi")
NAMES = ("own", "numbered")


def parallel_env(
    scenario: Scenario = "town_day",
    *,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    town: int = 0,
    start: str | None = None,
    map: str = "flat",
    agents: str = "living",
    names: str = "own",
    infos: str = "full",
    rewards: str = "own",
    max_cycles: int | None = None,
    render_mode: str | None = None,
) -> TownParallelEnv:
    """One town for PettingZoo. `overrides` are config keys such as `lifecycle.newcomers_per_day=0`; `map` is of `Sight`.

    agents      "living" come and go as residents do; "fixed" are the places of the town, all there from reset to the last step,
                for libraries that cannot lose or gain an agent
    names       "own", or "numbered" (`resident_0`, `resident_1`, …) for libraries that group agents by name
    infos       "full", "numeric" (numbers and the mask only), or "none", which costs nothing
    rewards     each its "own", or the mean of the "team"
    max_cycles  decisions of an episode, by default as many as the scenario says

    Without a `seed` one is drawn, as Gymnasium does: no two copies are twins, and `env.vec.seed` tells which it is.
    """
    kinds = {"living": TownParallelEnv, "fixed": FixedParallelEnv}
    _check("agents", agents, tuple(kinds))
    _check("names", names, NAMES)
    _check("infos", infos, INFOS)
    _check("rewards", rewards, ("own", "team"))
    vec = make_towns(scenario, 1, overrides, seed=seed, max_cycles=max_cycles, start=start, first_town=town)
    numbered, team = names == "numbered", rewards == "team"
    return kinds[agents](vec, map_layout=map, numbered=numbered, infos=infos, team=team, render_mode=render_mode)


def _check(what: str, found: str, known: tuple[str, ...]) -> None:
    if found not in known:
        raise UsageError(f"{what} is {found!r}, expected {' or '.join(known)}")


class TownParallelEnv(ParallelEnv):  # type: ignore[misc]
    """Observations are `{"observation", "action_mask"}` as `Sight` says; actions are indices of `vec.catalogue.names`.

    Agents are the founders, then `newcomer_1`, `newcomer_2`, … as they arrive; an id that has left does not come back.
    An agent without an action waits, and so does one whose action is outside the mask; `infos[agent]["illegal"]` tells. Infos
    hold besides the mask, the tick, the option under way, the breakdown of the reward and the events of the step that concern
    the agent.
    """

    metadata: ClassVar[Record] = {"name": "townlet_v0", "render_modes": list(RENDER_MODES), "is_parallelizable": True}

    def __init__(
        self,
        vec: VectorTown,
        *,
        map_layout: str = "flat",
        numbered: bool = False,
        infos: str = "full",
        team: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, *RENDER_MODES):
            raise UsageError(f"render_mode is {render_mode!r}, expected {' or '.join(RENDER_MODES)} or None")
        self.vec = vec
        self.sight = Sight(vec.spec, map_layout)
        self.render_mode = render_mode
        self.infos, self.team = infos, team
        ids = self._ids()
        self._agent_of = {who: f"resident_{k}" if numbered else who for k, who in enumerate(ids)}
        self.possible_agents = list(self._agent_of.values())
        self.observation_spaces = {agent: self.sight.space() for agent in self.possible_agents}
        self.action_spaces = {agent: spaces.Discrete(vec.num_actions) for agent in self.possible_agents}
        size = vec.num_residents * len(vec.spec.feature_names)
        self.state_space = spaces.Box(-1.0, 1.0, (size,), np.float32)
        self.agents: list[str] = []
        self.illegal = 0  # actions outside the mask, so far
        self._slots: dict[str, int] = {}
        self._actions = np.zeros((1, vec.num_residents), np.int64)
        self._fresh = True  # the town stands at the start of its first episode

    def __repr__(self) -> str:
        return f"<TownParallelEnv {self.vec.config.config_id}: {len(self.agents)} of {len(self.possible_agents)} agents here>"

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, dict[str, Array]], dict[str, Info]]:
        """With a seed the first episode of that seed; without one the next episode of the town."""
        if seed is not None:
            self.vec.reset(seed)
        elif not self._fresh:
            self._next_episode()
        self._fresh = False
        self._slots = self._present()
        self.agents = list(self._slots)
        self._show()
        return self._observations(self._slots), {agent: self._info(slot, []) for agent, slot in self._slots.items()}

    def step(
        self, actions: Mapping[str, int]
    ) -> tuple[dict[str, dict[str, Array]], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Info]]:
        if not self.agents:
            raise UsageError("the episode is over (nobody is left to act); call reset first")
        if not isinstance(actions, Mapping):
            raise UsageError(f"actions are {type(actions).__name__}, expected a dict from agents to whole numbers")
        self._actions[:] = 0
        for agent, action in actions.items():
            if agent in self._slots:
                write_action(self._actions[0], self._slots[agent], action, agent)
            elif agent not in self.action_spaces:
                raise UsageError(f"there is no agent {agent!r:.60}; those here now are {', '.join(self.agents[:20])}")
        before = self._slots
        who = {agent: self.vec.resident_id(0, slot) for agent, slot in before.items()}
        deciding = [slot for slot in before.values() if self.vec.active[0, slot]]
        self.vec.step(self._actions)
        self.illegal += int(self.vec.illegal.sum())
        events = self._events()
        gone = self._gone(before)
        told = dict(before)
        seen = self._observations(before)
        infos = {agent: self._info(slot, events.get(who[agent], [])) for agent, slot in before.items()}
        rewards = {agent: float(self.vec.rewards[0, slot]) for agent, slot in before.items()}
        if self.team:
            rewards = dict.fromkeys(before, float(self.vec.rewards[0, deciding].mean()) if deciding else 0.0)
        if len(gone) == len(before):
            self._wait_for_somebody()
        over = bool(self.vec.state.towns[0]["over"])
        after = {} if over else self._present()
        for agent, slot in after.items():
            if agent not in told:  # a newcomer: it has done nothing yet
                told[agent] = slot
                seen[agent], infos[agent] = self._see(slot), self._info(slot, events.get(self.vec.resident_id(0, slot), []))
                rewards[agent] = 0.0
        self._slots = after
        self.agents = list(after)
        self._show()
        terminations = {agent: agent in gone for agent in told}
        truncations = dict.fromkeys(told, over)  # also who died in the last step: libraries ask whether *all* are truncated
        return seen, rewards, terminations, truncations, infos

    def state(self) -> Array:
        """What everybody knows, slot after slot; an empty slot is zero.  # (N · F,) f4"""
        present = self.vec.state.residents[0]["present"][:, None]
        return np.asarray((self.vec.features[0] * present).ravel())

    def render(self) -> Array | str | None:
        """A picture or a text; for people ("human") it is printed after every step, and nothing is given back."""
        return rendered(self.vec, self.render_mode)

    def close(self) -> None:
        """Nothing is held open."""

    # --- parts ------------------------------------------------------------------------------------------------------

    def _ids(self) -> list[str]:
        """Everybody who can become an agent."""
        return [*self.vec.town_of(0).resident_ids, *(f"newcomer_{k + 1}" for k in range(most_newcomers(self.vec)))]

    def _present(self) -> dict[str, int]:
        """Agents that act next, with their slots."""
        present = np.flatnonzero(self.vec.state.residents[0]["present"])
        return {self._agent_of[self.vec.resident_id(0, int(slot))]: int(slot) for slot in present}

    def _gone(self, before: Mapping[str, int]) -> set[str]:
        """Agents that end with this step."""
        return {agent for agent, slot in before.items() if self.vec.terminated[0, slot]}

    def _see(self, slot: int) -> dict[str, Array]:
        return self.sight.dict_of(self.vec, slot)

    def _observations(self, slots: Mapping[str, int]) -> dict[str, dict[str, Array]]:
        return {agent: self._see(slot) for agent, slot in slots.items()}

    def _show(self) -> None:
        if self.render_mode == "human":
            self.render()

    def _events(self) -> dict[str, list[Record]]:
        """The events of the step by the residents they concern."""
        found: dict[str, list[Record]] = {}
        if self.infos == "full":
            for record in step_records(self.vec):
                for who in {record.get("actor"), record.get("rival")} - {None}:
                    found.setdefault(str(who), []).append(record)
        return found

    def _info(self, slot: int, events: list[Record]) -> Info:
        info = info_of(self.vec, slot, self.infos)
        return info | {"events": events} if self.infos == "full" else info

    def _wait_for_somebody(self) -> None:
        """Everybody has left: time passes until a newcomer arrives or the episode is over."""
        nobody = np.zeros_like(self._actions)
        while not (self.vec.state.towns[0]["over"] or self.vec.state.residents[0]["present"].any()):
            self.vec.step(nobody)

    def _next_episode(self) -> None:
        self.vec.state.towns["over"] = 1
        self.vec.step(np.zeros_like(self._actions))


class FixedParallelEnv(TownParallelEnv):
    """Agents are the places of the town: all of them are there from reset to the last step, which truncates them together.

    Nobody is terminated. While a place is empty its agent sees zeros, may only wait and earns nothing, and
    `infos[agent]["active"]` is false; when a newcomer takes the place, the agent goes on as the newcomer.
    """

    def _ids(self) -> list[str]:
        return list(self.vec.town_of(0).resident_ids)

    def _present(self) -> dict[str, int]:
        return {agent: slot for slot, agent in enumerate(self.possible_agents)}

    def _gone(self, before: Mapping[str, int]) -> set[str]:
        return set()

    def _see(self, slot: int) -> dict[str, Array]:
        seen = super()._see(slot)
        if not self.vec.state.residents[0, slot]["present"]:
            for array in seen.values():
                array[...] = 0
            seen["action_mask"][0] = 1
        return seen


def parallel_vec(
    scenario: Scenario = "town_day",
    num_envs: int = 8,
    *,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    start: str | None = None,
    map: str = "flat",
    names: str = "own",
    infos: str = "numeric",
    max_cycles: int | None = None,
) -> TownParallelVec:
    """Many towns behind one PettingZoo-like environment: what `parallel_env` gives per agent, with a first axis of towns.

    The agents are those of `agents="fixed"`. The step after a town's end starts its next episode, as in Gymnasium's vector
    environments. Much faster than copies in processes: all towns are stepped by one compiled call. `infos` are "numeric" or
    "none".
    """
    _check("names", names, NAMES)
    _check("infos", infos, ("none", "numeric"))
    vec = make_towns(scenario, num_envs, overrides, seed=seed, max_cycles=max_cycles, start=start)
    return TownParallelVec(vec, map_layout=map, numbered=names == "numbered", infos=infos)


class TownParallelVec:
    """`reset` and `step` as a ParallelEnv has them; every array has the towns first (E, …).

    Rows whose `infos[agent]["active"]` is 0 (an empty place, a town that begins anew) take no decision and belong in no mean.
    """

    def __init__(self, vec: VectorTown, *, map_layout: str = "flat", numbered: bool = False, infos: str = "numeric") -> None:
        self.vec, self.num_envs, self.infos = vec, vec.num_towns, infos
        self.sight = Sight(vec.spec, map_layout)
        founders = vec.town_of(0).resident_ids
        self.possible_agents = [f"resident_{k}" for k in range(len(founders))] if numbered else list(founders)
        self.agents = list(self.possible_agents)
        self._actions = np.zeros((vec.num_towns, vec.num_residents), np.int64)

    def __repr__(self) -> str:
        return f"<TownParallelVec {self.vec.config.config_id}: {self.num_envs} towns × {len(self.agents)} agents>"

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Of one row."""
        return self.sight.space()

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Of one row."""
        return spaces.Discrete(self.vec.num_actions)

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, dict[str, Array]], dict[str, dict[str, Array]]]:
        self.vec.reset(seed)
        return self._seen(), self._told()

    def step(self, actions: Mapping[str, Array]) -> tuple[dict[str, Any], ...]:
        """Observations, rewards, terminations, truncations, infos; `actions` are whole numbers (E,) per agent."""
        if not isinstance(actions, Mapping) or set(actions) != set(self.agents):
            raise UsageError(f"actions are of {', '.join(map(str, actions))[:200]}; expected a dict of {', '.join(self.agents)}")
        for slot, agent in enumerate(self.agents):
            self._actions[:, slot] = checked_actions(actions[agent], (self.num_envs,), f"the actions of {agent} are")
        vec = self.vec
        vec.step(self._actions)
        rewards = self._rows(vec.rewards.copy())
        return self._seen(), rewards, self._rows(vec.terminated != 0), self._rows(vec.truncated != 0), self._told()

    def close(self) -> None:
        """Nothing is held open."""

    def _rows(self, array: Array) -> dict[str, Array]:
        """(E, N, …) → by agent (E, …)"""
        return {agent: array[:, slot] for slot, agent in enumerate(self.agents)}

    def _seen(self) -> dict[str, dict[str, Array]]:
        parts = {"observation": self.sight.rows(self.vec), "action_mask": self.vec.masks.astype(np.int8)}
        if self.sight.apart and self.vec.maps is not None:
            parts["map"] = self.vec.maps.copy()
        return {agent: {name: array[:, slot] for name, array in parts.items()} for slot, agent in enumerate(self.agents)}

    def _told(self) -> dict[str, dict[str, Array]]:
        if self.infos == "none":
            return {agent: {} for agent in self.agents}
        active, illegal = self._rows(self.vec.active.copy()), self._rows(self.vec.illegal.copy())
        return {agent: {"active": active[agent], "illegal": illegal[agent]} for agent in self.agents}


def most_newcomers(vec: VectorTown) -> int:
    """Newcomers an episode can have: those of a day, times the calendar days it touches."""
    first = DAY - 1 if vec.tables.rules[0]["random_start"] else vec.start_minute
    days = (first + vec.config.scenario.episode_ticks - 1) // DAY + 1
    return int(days * vec.config.lifecycle.newcomers_per_day)
