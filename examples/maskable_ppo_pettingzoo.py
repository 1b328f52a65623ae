"""Somebody else's trainer through PettingZoo: MaskablePPO on all residents, wired by SuperSuit as its users do (`bench` extra).

SuperSuit refuses agents that appear later, hence no newcomers; it knows no masks, hence the two small wrappers.
"""

from __future__ import annotations

from typing import Any

import supersuit
from pettingzoo.utils import BaseParallelWrapper
from sb3_contrib import MaskablePPO
from stable_baselines3.common.vec_env import VecEnvWrapper

import townlet


class WithoutMask(BaseParallelWrapper):  # type: ignore[misc]
    """Observations as plain rows; the mask is asked for beside them."""

    def observation_space(self, agent: str) -> Any:
        return self.env.observation_space(agent)["observation"]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        seen, infos = self.env.reset(seed=seed, options=options)
        return {agent: one["observation"] for agent, one in seen.items()}, infos

    def step(self, actions: dict[str, int]) -> Any:
        seen, *rest = self.env.step(actions)
        return ({agent: one["observation"] for agent, one in seen.items()}, *rest)


class Masks(VecEnvWrapper):
    """Answers MaskablePPO's `env_method("action_masks")` from the towns below, and gives each town a seed of its own."""

    def __init__(self, venv: Any) -> None:
        super().__init__(venv)
        self.first_seed: int | None = None
        self.towns = [one.par_env.unwrapped.vec for one in venv.venv.vec_envs]

    def seed(self, seed: int | None = None) -> list[int | None]:
        self.first_seed = seed
        return [seed] * self.num_envs

    def reset(self) -> Any:
        seen, _ = self.venv.venv.reset(seed=self.first_seed)  # SuperSuit counts on from it, town by town
        return seen

    def step_wait(self) -> Any:
        return self.venv.step_wait()

    def has_attr(self, attr_name: str) -> bool:
        return attr_name == "action_masks"

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        if attr_name != "render_mode":
            raise AttributeError(attr_name)
        return [None] * self.num_envs

    def env_method(self, method_name: str, *args: Any, **kwargs: Any) -> list[Any]:
        if method_name != "action_masks":
            raise AttributeError(method_name)
        return [row for vec in self.towns for row in vec.masks[0].astype(bool)]


def make_env(towns: int) -> Masks:
    town = WithoutMask(townlet.parallel_env("town_day", overrides=["lifecycle.newcomers_per_day=0"]))
    vec = supersuit.pettingzoo_env_to_vec_env_v1(supersuit.black_death_v3(town))
    return Masks(supersuit.concat_vec_envs_v1(vec, towns, num_cpus=1, base_class="stable_baselines3"))


def main(towns: int = 2, steps: int = 2048) -> int:
    env = make_env(towns)
    model = MaskablePPO("MlpPolicy", env, n_steps=32, batch_size=128, n_epochs=2, seed=0)
    model.learn(steps)
    illegal = sum(int(vec.illegal.sum()) for vec in env.towns)
    print(f"{model.num_timesteps} decisions of {env.num_envs} residents, {illegal} of the last ones outside the mask")
    env.close()
    return illegal


if __name__ == "__main__":
    main()
