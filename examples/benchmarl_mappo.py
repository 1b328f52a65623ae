"""Somebody else's trainer: MAPPO of BenchMARL, all residents one group, masks on (pip install benchmarl)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarl.algorithms import MappoConfig
from benchmarl.environments.pettingzoo.common import PettingZooClass
from benchmarl.experiment import Experiment, ExperimentConfig
from benchmarl.models import MlpConfig
from torchrl.envs.libs.pettingzoo import PettingZooWrapper

import townlet


class Town(PettingZooClass):  # type: ignore[misc]
    """BenchMARL's own PettingZoo task, with another environment."""

    def get_env_fun(self, num_envs: int, continuous_actions: bool, seed: int | None, device: Any) -> Callable[[], Any]:
        options = {"agents": "fixed", "names": "numbered", "infos": "none", "map": "none", **self.config}
        return lambda: PettingZooWrapper(
            env=townlet.parallel_env("town_day", seed=seed, **options), categorical_actions=True, device=device, return_state=True
        )

    def supports_discrete_actions(self) -> bool:
        return True

    def has_state(self) -> bool:
        return True

    def has_render(self, env: Any) -> bool:
        return False


def main(frames: int = 1440, cycles: int = 72) -> int:
    config = ExperimentConfig.get_from_yaml()
    config.max_n_frames, config.on_policy_collected_frames_per_batch = frames, frames // 2
    config.on_policy_n_envs_per_worker, config.on_policy_minibatch_size, config.on_policy_n_minibatch_iters = 2, 144, 2
    config.evaluation, config.loggers, config.create_json, config.save_folder = False, [], False, "."
    task = Town("TOWN_DAY", {"max_cycles": cycles})
    model = MlpConfig(num_cells=[64, 64], activation_class=__import__("torch").nn.Tanh, layer_class=__import__("torch").nn.Linear)
    experiment = Experiment(task, MappoConfig.get_from_yaml(), model, seed=0, config=config, critic_model_config=model)
    experiment.run()
    print(f"{experiment.total_frames} decisions of the town, mean return {experiment.mean_return:.2f}")
    return int(experiment.total_frames)


if __name__ == "__main__":
    main()
