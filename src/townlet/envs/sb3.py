"""The town for Stable-Baselines3: every slot of every town is one environment of a VecEnv, all steps through one VectorTown.

A slot whose resident has left stays in the batch until its newcomer comes. Its rows are empty: they see zeros, may only wait,
earn 0 and are done, so that nothing is carried through them; `info["active"]` is False, and `LivingRolloutBuffer` leaves them out
of what is learned from. At a town's end every slot is done; the reset follows in the same step, and the last observation stands
in `info["terminal_observation"]`, as Stable-Baselines3 has it. `env_method("action_masks")` serves MaskablePPO.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from gymnasium import spaces

from townlet.envs.spaces import Info, Sight, make_towns
from townlet.envs.vector import Scenario
from townlet.errors import UsageError
from townlet.optional import require
from townlet.types import Array

require("stable_baselines3", "the town as a VecEnv")

from stable_baselines3.common.monitor import Monitor  # noqa: E402
from stable_baselines3.common.vec_env import VecEnv  # noqa: E402

if find_spec("sb3_contrib") is not None:  # its buffer holds the masks; PPO without masks takes it as well
    from sb3_contrib.common.maskable.buffers import MaskableRolloutBuffer as AnyRolloutBuffer
else:
    from stable_baselines3.common.buffers import RolloutBuffer as AnyRolloutBuffer


class Ends(np.ndarray[Any, np.dtype[np.bool_]]):
    """The ends of a step, and who decides next. Stable-Baselines3 gives its buffer each row with the ends of the step before."""

    active: Array  # (E · N,) bool

    @classmethod
    def of(cls, ends: Array, active: Array) -> Ends:
        made = ends.view(cls)
        made.active = active
        return made


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
        self.vec = make_towns(scenario, num_towns, overrides, seed=seed, start=start, threads=threads)
        self.sight = Sight(self.vec.spec, map)
        self.render_mode = None
        self._actions = np.zeros((num_towns, self.vec.num_residents), np.int64)
        self._returns = np.zeros(self._actions.size)
        self._lengths = np.zeros(self._actions.size, np.int64)
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

    def step_wait(self) -> tuple[Array, Array, Array, list[Info]]:
        vec = self.vec
        decided = self._active()
        vec.step(self._actions)
        left, cut = vec.terminated.ravel() != 0, vec.truncated.ravel() != 0
        ended = decided & (left | cut)
        rewards = np.where(decided, vec.rewards.ravel(), np.float32(0.0))
        seen = self._observations()
        infos: list[Info] = [{"active": bool(here)} for here in decided]
        self._returns += rewards
        self._lengths += decided
        for index in np.flatnonzero(ended):
            infos[index] |= {
                "terminal_observation": seen[index].copy(),
                "TimeLimit.truncated": bool(cut[index] and not left[index]),
                "episode": {"r": float(self._returns[index]), "l": int(self._lengths[index]), "t": 0.0},
            }
        self._returns[ended] = 0.0
        self._lengths[ended] = 0
        if vec.state.towns["over"].any():  # all towns have episodes of one length, so they end together
            vec.step(np.zeros_like(self._actions))
            seen = self._observations()
        active = self._active()
        seen[~active] = 0.0  # who just left is told in the infos
        return seen, rewards, Ends.of(ended | ~decided, active), infos

    def _active(self) -> Array:
        """Whose rows take a decision now.  # (E · N,) bool"""
        return np.asarray(self.vec.active.ravel() != 0)

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
        """As if by Monitor: `info["episode"]` has the return and the length of a life, and only of lives."""
        return [wrapper_class is Monitor for _ in self._get_indices(indices)]


class LivingRolloutBuffer(AnyRolloutBuffer):
    """The rows of residents, without those of empty slots: for PPO and MaskablePPO as their `rollout_buffer_class`."""

    def reset(self) -> None:
        self.active = np.ones((self.buffer_size, self.n_envs), np.bool_)  # (T, E · N); at a reset everybody is there
        super().reset()

    def add(self, *args: Any, **kwargs: Any) -> None:
        starts = args[3]  # after observations, actions and rewards
        if isinstance(starts, Ends):
            self.active[self.pos] = starts.active
        elif not starts.all():
            raise UsageError("the ends of the steps do not tell who is there; LivingRolloutBuffer needs a TownVecEnv")
        super().add(*args, **kwargs)

    def get(self, batch_size: int | None = None) -> Generator[Any, None, None]:
        if not self.generator_ready:
            next(super().get(1))  # brings the arrays into the order of their indices: environment by environment
        rows = np.random.permutation(np.flatnonzero(self.active.T))
        for part in np.array_split(rows, -(-len(rows) // (batch_size or len(rows)))):  # no last one of a row or two
            yield self._get_samples(part)
