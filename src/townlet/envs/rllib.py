"""The town for RLlib's new stack: newcomers may come, and masks have the names that RLlib expects.

RLlib's `ParallelPettingZooEnv` knows only the agents of the first reset, so a newcomer would have no space; its masking module
wants `observations` and a mask of floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from townlet.envs.parallel import parallel_env
from townlet.envs.spaces import Info
from townlet.envs.vector import Scenario
from townlet.errors import MissingPackageError
from townlet.optional import installed
from townlet.types import Array

if not installed("ray"):
    raise MissingPackageError("the town for RLlib needs ray, which is not installed; install it with: pip install 'ray[rllib]'")

from ray.rllib.env.multi_agent_env import MultiAgentEnv


class TownMultiAgentEnv(MultiAgentEnv):
    """`parallel_env` with its options; agents come and go."""

    def __init__(self, scenario: Scenario = "town_day", **options: Any) -> None:
        super().__init__()
        self.env = parallel_env(scenario, **({"infos": "numeric", "map": "none"} | options))
        self.possible_agents = list(self.env.possible_agents)
        self.agents: list[str] = []
        mask = spaces.Box(0.0, 1.0, (self.env.vec.num_actions,), np.float32)
        seen = spaces.Dict({"observations": self.env.sight.row, "action_mask": mask})
        self.observation_spaces: dict[str, spaces.Space[Any]] = dict.fromkeys(self.possible_agents, seen)
        self.action_spaces: dict[str, spaces.Space[Any]] = dict(self.env.action_spaces)
        self.observation_space, self.action_space = spaces.Dict(self.observation_spaces), spaces.Dict(self.action_spaces)

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, object] | None = None
    ) -> tuple[dict[str, Info], dict[str, Info]]:
        seen, infos = self.env.reset(seed)
        self.agents = list(self.env.agents)
        return self._renamed(seen), infos

    def step(self, action_dict: Mapping[str, int]) -> tuple[Mapping[str, object], ...]:
        seen, rewards, terminated, truncated, infos = self.env.step(action_dict)
        self.agents = list(self.env.agents)
        over = not self.env.agents
        ends = terminated | {"__all__": over and all(terminated.values())}
        return self._renamed(seen), rewards, ends, truncated | {"__all__": over}, infos

    def _renamed(self, seen: Mapping[str, Mapping[str, Array]]) -> dict[str, Info]:
        return {
            agent: {"observations": parts["observation"], "action_mask": parts["action_mask"].astype(np.float32)}
            for agent, parts in seen.items()
        }
