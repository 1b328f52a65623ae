"""Somebody else's trainer: PPO of RLlib's new stack with masks, one policy for all residents (pip install 'ray[rllib]')."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module import MultiRLModuleSpec, RLModuleSpec
from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule
from ray.tune.registry import register_env

import townlet


class Town(ParallelPettingZooEnv):  # type: ignore[misc]
    """RLlib's own wrapper; its masking module looks for `observations` and a mask of floats."""

    def __init__(self, **options: Any) -> None:
        super().__init__(townlet.parallel_env("town_day", infos="numeric", map="none", **options))
        env, self.illegal = self.par_env, 0
        self.agents, self.possible_agents = list(env.agents), list(env.possible_agents)
        mask = spaces.Box(0.0, 1.0, (env.vec.num_actions,))
        one = spaces.Dict({"observations": env.sight.row, "action_mask": mask})
        self.observation_spaces, self.action_spaces = dict.fromkeys(self.possible_agents, one), env.action_spaces
        self.observation_space, self.action_space = spaces.Dict(self.observation_spaces), spaces.Dict(self.action_spaces)

    def _renamed(self, seen: dict[str, Any]) -> dict[str, Any]:
        return {a: {"observations": o["observation"], "action_mask": o["action_mask"].astype("f4")} for a, o in seen.items()}

    def reset(self, **options: Any) -> Any:
        seen, infos = super().reset(**options)
        return self._renamed(seen), infos

    def step(self, actions: dict[str, int]) -> Any:
        seen, *rest, infos = super().step(actions)
        assert not any(info["illegal"] for info in infos.values()), "an illegal action"
        self.agents = list(self.par_env.agents)
        return self._renamed(seen), *rest, infos


def main(rounds: int = 2, batch: int = 576) -> float:
    register_env("town", lambda config: Town())
    module = RLModuleSpec(module_class=ActionMaskingTorchRLModule, model_config={"head_fcnet_hiddens": [64]})
    config = (
        PPOConfig()
        .environment("town")
        .env_runners(num_env_runners=0)
        .multi_agent(policies={"resident"}, policy_mapping_fn=lambda agent, *_, **__: "resident")
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={"resident": module}))
        .training(train_batch_size=batch, minibatch_size=288, num_epochs=2)
    )
    algorithm = config.build_algo()
    result = [algorithm.train() for _ in range(rounds)][-1]
    steps = result["env_runners"]["num_env_steps_sampled_lifetime"]
    print(f"{steps} decisions of the town, return {result['env_runners'].get('episode_return_mean')}, illegal actions 0")
    return float(steps)


if __name__ == "__main__":
    main()
