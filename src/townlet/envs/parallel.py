"""The town as a PettingZoo ParallelEnv: every resident an agent, one step a decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from townlet.config.base import DAY
from townlet.envs.events import step_records
from townlet.envs.flat import Sight, one_town, reward_terms
from townlet.envs.render import ansi, picture
from townlet.envs.scene import look
from townlet.envs.vector import Scenario, VectorTown
from townlet.errors import UsageError
from townlet.types import Array
from townlet.world.state import TERMS

RENDER_MODES = ("rgb_array", "ansi")


def parallel_env(
    scenario: Scenario = "town_day",
    *,
    overrides: Sequence[str] = (),
    seed: int | None = None,
    town: int = 0,
    start: str | None = None,
    map: str = "flat",
    render_mode: str | None = None,
) -> TownParallelEnv:
    """One town for PettingZoo. `overrides` are config keys such as `lifecycle.newcomers_per_day=0`; `map` is of `Sight`.

    Without a `seed` one is drawn, as Gymnasium does: no two copies are twins, and `env.vec.seed` tells which it is.
    """
    return TownParallelEnv(one_town(scenario, overrides, seed, start, town), map_layout=map, render_mode=render_mode)


class TownParallelEnv(ParallelEnv):  # type: ignore[misc]
    """Observations are `{"observation", "action_mask"}` as `Sight` says; actions are indices of `vec.catalogue.names`.

    Agents are the founders, then `newcomer_1`, `newcomer_2`, … as they arrive; an id that has left does not come back.
    An action outside the mask, or for nobody, acts as `wait`; `infos[agent]["illegal"]` tells. Infos hold besides the tick,
    the option under way, the breakdown of the reward and the events of the step that concern the agent.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "townlet_v0", "render_modes": list(RENDER_MODES), "is_parallelizable": True}

    def __init__(self, vec: VectorTown, *, map_layout: str = "flat", render_mode: str | None = None) -> None:
        if render_mode not in (None, *RENDER_MODES):
            raise UsageError(f"render_mode is {render_mode!r}, expected {' or '.join(RENDER_MODES)} or None")
        self.vec = vec
        self.sight = Sight(vec.spec, map_layout)
        self.render_mode = render_mode
        self.possible_agents = [*vec.town_of(0).resident_ids, *(f"newcomer_{k + 1}" for k in range(most_newcomers(vec)))]
        self.observation_spaces = {agent: self.sight.space() for agent in self.possible_agents}
        self.action_spaces = {agent: spaces.Discrete(vec.num_actions) for agent in self.possible_agents}
        size = vec.num_residents * len(vec.spec.feature_names)
        self.state_space = spaces.Box(-1.0, 1.0, (size,), np.float32)
        self.agents: list[str] = []
        self._slots: dict[str, int] = {}
        self._actions = np.zeros((1, vec.num_residents), np.int64)
        self._fresh = True  # the town stands at the start of its first episode

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, dict[str, Array]], dict[str, dict[str, Any]]]:
        """With a seed the first episode of that seed; without one the next episode of the town."""
        if seed is not None:
            self.vec.reset(seed)
        elif not self._fresh:
            self._next_episode()
        self._fresh = False
        self._slots = self._residents()
        self.agents = list(self._slots)
        return self._observations(self._slots), {agent: self._info(slot, []) for agent, slot in self._slots.items()}

    def step(
        self, actions: Mapping[str, int]
    ) -> tuple[dict[str, dict[str, Array]], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        if not self.agents:
            raise UsageError("the episode is over (nobody is left to act); call reset first")
        self._actions[:] = 0
        for agent, action in actions.items():
            if agent in self._slots:
                self._actions[0, self._slots[agent]] = int(action)
        before = self._slots
        self.vec.step(self._actions)
        events: dict[str, list[dict[str, Any]]] = {}
        for record in step_records(self.vec):
            for who in {record.get("actor"), record.get("rival")} - {None}:
                events.setdefault(str(who), []).append(record)
        gone = {agent for agent, slot in before.items() if self.vec.terminated[0, slot]}
        told = dict(before)
        seen = self._observations(before)
        infos = {agent: self._info(slot, events.get(agent, [])) for agent, slot in before.items()}
        rewards = {agent: float(self.vec.rewards[0, slot]) for agent, slot in before.items()}
        if len(gone) == len(before):
            self._wait_for_somebody()
        over = bool(self.vec.state.towns[0]["over"])
        after = {} if over else self._residents()
        for agent, slot in after.items():
            if agent not in told:  # a newcomer: it has done nothing yet
                told[agent] = slot
                seen[agent], infos[agent], rewards[agent] = self.sight.dict_of(self.vec, slot), self._info(slot, []), 0.0
                infos[agent]["events"] = events.get(agent, [])
        self._slots = after
        self.agents = list(after)
        terminations = {agent: agent in gone for agent in told}
        truncations = dict.fromkeys(told, over)  # also who died in the last step: libraries ask whether *all* are truncated
        return seen, rewards, terminations, truncations, infos

    def state(self) -> Array:
        """What everybody knows, slot after slot; an empty slot is zero.  # (N · F,) f4"""
        present = self.vec.state.residents[0]["present"][:, None]
        return np.asarray((self.vec.features[0] * present).ravel())

    def render(self) -> Array | str | None:
        if self.render_mode is None:
            return None
        scene = look(self.vec)
        return picture(scene) if self.render_mode == "rgb_array" else ansi(scene)

    def close(self) -> None:
        """Nothing is held open."""

    # --- parts ------------------------------------------------------------------------------------------------------

    def _residents(self) -> dict[str, int]:
        present = np.flatnonzero(self.vec.state.residents[0]["present"])
        return {self.vec.resident_id(0, int(slot)): int(slot) for slot in present}

    def _observations(self, slots: Mapping[str, int]) -> dict[str, dict[str, Array]]:
        return {agent: self.sight.dict_of(self.vec, slot) for agent, slot in slots.items()}

    def _info(self, slot: int, events: list[dict[str, Any]]) -> dict[str, Any]:
        vec = self.vec
        return {
            "tick": int(vec.state.towns[0]["tick"]),
            "option": vec.catalogue.names[int(vec.state.residents[0, slot]["action"])],
            "reward_terms": reward_terms(vec.terms[0, slot], TERMS),
            "illegal": bool(vec.illegal[0, slot]),
            "events": events,
        }

    def _wait_for_somebody(self) -> None:
        """Everybody has left: time passes until a newcomer arrives or the episode is over."""
        nobody = np.zeros_like(self._actions)
        while not (self.vec.state.towns[0]["over"] or self.vec.state.residents[0]["present"].any()):
            self.vec.step(nobody)

    def _next_episode(self) -> None:
        self.vec.state.towns["over"] = 1
        self.vec.step(np.zeros_like(self._actions))


def most_newcomers(vec: VectorTown) -> int:
    """Newcomers an episode can have: so many a day, for every calendar day it touches."""
    first = DAY - 1 if vec.tables.rules[0]["random_start"] else vec.start_minute
    days = (first + vec.config.scenario.episode_ticks - 1) // DAY + 1
    return int(days * vec.config.lifecycle.newcomers_per_day)
