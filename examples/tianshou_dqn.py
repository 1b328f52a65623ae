"""Somebody else's trainer: DQN of Tianshou 2 on one resident, masks in the observation (pip install 'tianshou>=2')."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium as gym
from tianshou.algorithm import DQN
from tianshou.algorithm.algorithm_base import policy_within_training_step
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import Net

import townlet.envs  # noqa: F401  (registers Townlet/*)


class Masked(gym.ObservationWrapper):  # type: ignore[type-arg]
    """The row and the mask under the names that Tianshou looks for."""

    def observation(self, observation: Any) -> dict[str, Any]:
        return {"obs": observation, "mask": self.unwrapped.action_masks()}  # type: ignore[attr-defined]


def main(rounds: Iterable[int] = range(10), towns: int = 4, scenario: str = "town_day") -> tuple[int, Any]:
    make = lambda: Masked(gym.make("Townlet/TownDay-v0", scenario=scenario, map="none", infos="numeric"))  # noqa: E731
    envs, one = DummyVectorEnv([make] * towns), make()
    net = Net(state_shape=one.observation_space.shape, action_shape=one.action_space.n, hidden_sizes=[128, 128])
    list(net.parameters())[-1].data[one.unwrapped.vec.catalogue.names.index("work")] += 4  # chance hardly finds that work pays
    policy = DiscreteQLearningPolicy(model=net, action_space=one.action_space, eps_training=0.2)
    dqn = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), n_step_return_horizon=3, target_update_freq=200)
    buffer = VectorReplayBuffer(20_000, towns)
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
