"""The town for Stable-Baselines3: every slot of every town is one environment of a VecEnv, all steps through one VectorTown.

A slot whose resident has left stays in the batch until its newcomer comes: it may only wait and its reward is 0. Episodes end
together; the reset follows in the same step, and the last observation stands in `info["terminal_observation"]`, as
Stable-Baselines3 has it. `env_method("action_masks")` serves MaskablePPO.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from townlet.envs.sight import Sight, configured
from townlet.envs.vector import Scenario, VectorTown
from townlet.optional import require

require("stable_baselines3", "the town as a VecEnv")

from stable_baselines3.common.vec_env import VecEnv  # noqa: E402

Array = NDArray[Any]


class TownVecEnv(VecEnv):
    def __init__(
        self,
        scenario: Scenario = "town_day",
        num_towns: int = 8,
        *,
        overrides: Sequence[str] = (),
        seed: int | None = None,
        start: str | None = None,
        map: str = "flat",
        threads: int = 1,
    ) -> None:
        self.vec = VectorTown(configured(scenario, overrides), num_towns, seed=seed, start=start, threads=threads)
        self.sight = Sight(self.vec.spec, map)
        self.render_mode = None
        self._actions = np.zeros((num_towns, self.vec.num_residents), np.int64)
        self._returns = np.zeros(self._actions.shape)
        self._lengths = np.zeros(self._actions.shape, np.int64)
        super().__init__(num_towns * self.vec.num_residents, self.sight.row, spaces.Discrete(self.vec.num_actions))

    def _observations(self) -> Array:
        return self.sight.rows(self.vec).reshape(self.num_envs, -1)

    def reset(self) -> Array:
        seed = self._seeds[0]
        self.vec.reset(seed)
        self._reset_seeds()
        self._reset_options()
        self._returns[:] = 0.0
        self._lengths[:] = 0
        return self._observations()

    def step_async(self, actions: Array) -> None:
        self._actions[...] = np.asarray(actions).reshape(self._actions.shape)

    def step_wait(self) -> tuple[Array, Array, Array, list[dict[str, Any]]]:
        vec = self.vec
        present = vec.active.astype(np.bool_)  # (E, N) who decided in this step
        vec.step(self._actions)
        rewards, truncated = vec.rewards.ravel().copy(), vec.truncated.ravel().astype(np.bool_)
        dones = truncated | vec.terminated.ravel().astype(np.bool_)
        seen = self._observations()
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        self._returns += vec.rewards
        self._lengths += present
        for index in np.flatnonzero(dones):
            town, slot = divmod(int(index), vec.num_residents)
            infos[index] = {
                "terminal_observation": seen[index],
                "TimeLimit.truncated": not vec.terminated[town, slot],
                "episode": {"r": float(self._returns[town, slot]), "l": int(self._lengths[town, slot]), "t": 0.0},
            }
            self._returns[town, slot] = 0.0
            self._lengths[town, slot] = 0
        if vec.state.towns["over"].any():  # all towns have episodes of one length, so they end together
            vec.step(np.zeros_like(self._actions))
            seen = self._observations()
            self._returns[:] = 0.0
            self._lengths[:] = 0
        return seen, rewards, dones, infos

    def action_masks(self) -> Array:
        """What everybody may do now.  # (E · N, A) bool"""
        return np.asarray(self.vec.masks.reshape(self.num_envs, -1).astype(np.bool_))

    def close(self) -> None:
        """Nothing is held open."""

    def get_attr(self, attr_name: str, indices: int | Iterable[int] | None = None) -> list[Any]:
        known = {**vars(self), "action_masks": self.action_masks}  # by its presence MaskablePPO knows that there are masks
        if attr_name not in known:
            raise AttributeError(f"the residents of a town have no attribute {attr_name!r}")
        return [known[attr_name] for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: int | Iterable[int] | None = None) -> None:
        raise AttributeError(f"{attr_name} is the same for all residents; set it on the config instead")

    def env_method(self, method_name: str, *args: Any, indices: int | Iterable[int] | None = None, **kwargs: Any) -> list[Any]:
        if method_name != "action_masks":
            raise AttributeError(f"the residents of a town have no method {method_name!r}; expected action_masks")
        masks = self.action_masks()
        return [masks[index] for index in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: int | Iterable[int] | None = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]
