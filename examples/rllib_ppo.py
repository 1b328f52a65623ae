"""Somebody else's trainer: PPO of RLlib's new stack; masks on, residents come and go (pip install 'ray[rllib]')."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module import MultiRLModuleSpec, RLModuleSpec
from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule
from ray.tune.registry import register_env

from townlet.envs.rllib import TownMultiAgentEnv


def main(rounds: Iterable[int] = range(2), batch: int = 576, scenario: str = "town_day") -> tuple[int, Any]:
    towns: list[TownMultiAgentEnv] = []

    def make(config: object) -> TownMultiAgentEnv:
        towns.append(TownMultiAgentEnv(scenario))
        return towns[-1]

    class Resident(ActionMaskingTorchRLModule):  # type: ignore[misc]
        def setup(self) -> None:
            super().setup()
            list(self.pi.parameters())[-1].data[work] += 4  # chance hardly finds that work pays

    register_env("town", make)
    work = make(None).env.vec.catalogue.names.index("work")
    module = RLModuleSpec(module_class=Resident, model_config={"head_fcnet_hiddens": [64]})
    config = (
        PPOConfig()
        .environment("town", disable_env_checking=True)  # the check acts at random, against the mask
        .env_runners(num_env_runners=0)
        .multi_agent(policies={"resident"}, policy_mapping_fn=lambda agent, *_, **__: "resident")
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs={"resident": module}))
        .training(lr=3e-4, train_batch_size=batch, minibatch_size=min(batch, 288), num_epochs=2)
    )
    algorithm = config.build_algo()
    figures = [algorithm.train()["env_runners"] for _ in rounds][-1]
    illegal = sum(town.env.illegal for town in towns)
    print(f"{figures['num_env_steps_sampled_lifetime']} steps, return {figures.get('episode_return_mean')}, {illegal} illegal")
    resident = algorithm.get_module("resident")

    def scores(rows: Any, masks: Any) -> Any:
        seen = {"observations": rows, "action_mask": masks.float()}
        return resident.forward_inference({"obs": seen})["action_dist_inputs"]

    return illegal, scores


if __name__ == "__main__":
    main()
