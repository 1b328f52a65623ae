"""Somebody else's trainer: DQN of Tianshou 2 on one resident, masks in the observation (pip install 'tianshou>=2')."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import gymnasium as gym
from tianshou.algorithm import DQN
from tianshou.algorithm.algorithm_base import policy_within_training_step
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import Net

import townlet.envs  # registers Townlet/*


class Masked(gym.ObservationWrapper):  # type: ignore[type-arg]
    """The row and the mask under the names that Tianshou looks for."""

    def observation(self, observation: Any) -> dict[str, Any]:
        return {"obs": observation, "mask": self.unwrapped.action_masks()}  # type: ignore[attr-defined]


def main(rounds: Iterable[int] = range(10), towns: int = 8, scenario: str = "town_day") -> tuple[int, Any]:
    def make(resident: str) -> Masked:
        return Masked(gym.make("Townlet/TownDay-v0", scenario=scenario, resident=resident, map="none", infos="numeric"))

    town = townlet.make_vec(scenario, 1)
    envs = DummyVectorEnv([partial(make, name) for name in town.town_of(0).resident_ids[:towns]])  # in each somebody else learns
    net = Net(state_shape=town.features.shape[-1:], action_shape=town.num_actions, hidden_sizes=[128, 128])
    list(net.parameters())[-1].data[town.catalogue.names.index("work")] += 4  # chance hardly finds that work pays
    policy = DiscreteQLearningPolicy(model=net, action_space=envs.action_space[0], eps_training=0.2)
    dqn = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), n_step_return_horizon=3, target_update_freq=200)
    buffer = VectorReplayBuffer(20_000, envs.env_num)
    collector = Collector(dqn, envs, buffer, exploration_noise=True)
    collector.reset()
    for _ in rounds:
        with policy_within_training_step(dqn.policy):
            collector.collect(n_step=200)
            for _ in range(20):
                dqn.update(buffer=buffer, sample_size=128)
    illegal = int(buffer.info.illegal.sum())
    print(f"reward per decision {buffer.rew[: len(buffer)].mean():.3f}, illegal actions {illegal}")
    return illegal, lambda rows, masks: net(rows.flatten(0, -2))[0]


if __name__ == "__main__":
    main()
