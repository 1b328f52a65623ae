"""Memory: CartPole-v1 without its velocities, 300k steps. At least 400 with a GRU in 3 of 3 seeds, below 200 without.

python benchmarks/learning/recurrence.py [--seeds 0 1 2] [--output benchmarks/learning/results/recurrence.json]
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TransformObservation
from harness import ZOO, Job, asked, publish, run_seeds

from townlet.config.learning import PPOConfig
from townlet.policy.network import NetworkSpec

GRU_BAR, PLAIN_BAR = 400.0, 200.0
PPO = PPOConfig(**ZOO, num_epochs=10, num_mini_batches=2, recurrent="gru", normalize_observations=True)
SPEC = NetworkSpec(
    features=2,
    actions=2,
    feature_size=64,
    trunk_sizes=(64,),
    activation="tanh",
    recurrent="gru",
    recurrent_size=64,
    normalize_observations=True,
)


def make() -> gym.Env[Any, Any]:
    space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    return TransformObservation(gym.make("CartPole-v1", disable_env_checker=True), lambda seen: seen[[0, 2]], space)


GRU = Job(make=make, spec=SPEC, ppo=PPO, steps=300_000, horizon=32, environments=32)
PLAIN = replace(GRU, spec=replace(SPEC, recurrent="none"), ppo=PPO.model_copy(update={"recurrent": "none"}))


def main() -> None:
    given = asked(__doc__, "recurrence")
    arms = {"gru": run_seeds(GRU, given.seeds, given.kept), "plain": run_seeds(PLAIN, given.seeds, given.kept)}
    means = {name: [row["mean"] for row in rows] for name, rows in arms.items()}
    passed = min(means["gru"]) >= GRU_BAR and max(means["plain"]) < PLAIN_BAR
    result = {"benchmark": "CartPole-v1 without velocities", "steps": GRU.steps, "means": means}
    result |= {"bars": {"gru_at_least": GRU_BAR, "plain_below": PLAIN_BAR}, "ok": passed}
    publish(given.output, GRU, result, arms, str(means))


if __name__ == "__main__":
    main()
