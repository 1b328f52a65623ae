"""CartPole-v1 through the update that trains the town: at least 475 over 20 greedy episodes, 3 of 3 seeds, 100k steps.

python benchmarks/learning/cartpole.py [--seeds 0 1 2] [--output benchmarks/learning/results/cartpole.json]
"""

from __future__ import annotations

import gymnasium as gym
from harness import ZOO, Job, asked, publish, run_seeds

from townlet.config.learning import PPOConfig
from townlet.policy.network import NetworkSpec

BAR = 475.0
PPO = PPOConfig(**ZOO, num_epochs=20, mini_batch_size=256)  # 8 environments × 32 steps
SPEC = NetworkSpec(features=4, actions=2, feature_size=64, trunk_sizes=(64,), activation="tanh")
JOB = Job(make=lambda: gym.make("CartPole-v1", disable_env_checker=True), spec=SPEC, ppo=PPO, steps=100_000, horizon=32)


def main() -> None:
    given = asked(__doc__, "cartpole")
    rows = run_seeds(JOB, given.seeds, given.kept)
    result = {"benchmark": "CartPole-v1", "steps": JOB.steps, "bar": BAR, "ok": all(row["mean"] >= BAR for row in rows)}
    publish(given.output, JOB, result, {"seeds": rows}, f"{[round(row['mean'], 1) for row in rows]}, bar {BAR}")


if __name__ == "__main__":
    main()
