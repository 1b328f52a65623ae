"""Somebody else's trainer: MAPPO of BenchMARL on its own PettingZoo task, masks on (pip install benchmarl)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarl.algorithms import MappoConfig
from benchmarl.environments.pettingzoo.common import PettingZooClass
from benchmarl.experiment import Experiment, ExperimentConfig
from benchmarl.models import MlpConfig
from tensordict import TensorDict
from torch import nn
from torchrl.envs.libs.pettingzoo import PettingZooWrapper

import townlet

towns: list[townlet.TownParallelEnv] = []  # all that were made, to count actions outside the mask


class Town(PettingZooClass):  # type: ignore[misc]
    def get_env_fun(self, num_envs: int, continuous_actions: bool, seed: int | None, device: Any) -> Callable[[], Any]:
        def make() -> PettingZooWrapper:
            towns.append(townlet.parallel_env(agents="fixed", names="numbered", infos="none", map="none", **self.config))
            return PettingZooWrapper(env=towns[-1], categorical_actions=True, device=device, return_state=True)

        return make

    def has_state(self) -> bool:
        return True

    supports_discrete_actions = has_state


def main(frames: int = 1440, batch: int = 720, cycles: int = 72, place: str = ".", scenario: str = "town_day") -> tuple[int, Any]:
    config = ExperimentConfig.get_from_yaml()
    config.lr, config.gamma, config.max_n_frames, config.on_policy_collected_frames_per_batch = 3e-4, 0.99, frames, batch
    config.on_policy_n_envs_per_worker, config.on_policy_minibatch_size, config.on_policy_n_minibatch_iters = 2, 144, 2
    config.evaluation, config.loggers, config.create_json, config.save_folder = False, [], False, place
    model = MlpConfig(num_cells=[64, 64], activation_class=nn.Tanh, layer_class=nn.Linear)
    task = Town("TOWN", {"scenario": scenario, "max_cycles": cycles})
    experiment = Experiment(task, MappoConfig.get_from_yaml(), model, seed=0, config=config, critic_model_config=model)
    list(experiment.policy.parameters())[-1].data[towns[0].vec.catalogue.names.index("work")] += 4  # chance rarely finds it
    experiment.run()
    illegal = sum(town.illegal for town in towns)
    print(f"{experiment.total_frames} decisions of the town, mean return {experiment.mean_return:.2f}, {illegal} illegal")

    def scores(rows: Any, masks: Any) -> Any:
        seen = TensorDict({"observation": {"observation": rows}, "action_mask": masks}, rows.shape[:-1])
        return experiment.policy(TensorDict({"resident": seen}, rows.shape[:-2]))["resident", "logits"]

    return illegal, scores


if __name__ == "__main__":
    main()
