"""CartPole-v1 through the update that trains the town: at least 475 over 20 greedy episodes, 3 of 3 seeds, 100k steps.

python benchmarks/learning/cartpole.py [--seeds 0 1 2] [--output benchmarks/learning/results/cartpole.json]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gymnasium as gym
from harness import Job, run_seeds

from townlet import files
from townlet.config.learning import PPOConfig
from townlet.policy.network import NetworkSpec

BAR = 475.0
PPO = PPOConfig(  # rl-zoo's for CartPole-v1: 8 environments × 32 steps, learning rate and clip fall in a straight line
    learning_rate=1e-3,
    lr_anneal=True,
    clip_param=0.2,
    clip_anneal=True,
    gamma=0.98,
    gae_lambda=0.8,
    num_epochs=20,
    mini_batch_size=256,
    entropy_coef=0.0,
    value_loss_coef=0.5,
    max_grad_norm=0.5,
    value_clip=None,
)
SPEC = NetworkSpec(features=4, actions=2, feature_size=64, trunk_sizes=(64,), activation="tanh")
JOB = Job(make=lambda: gym.make("CartPole-v1", disable_env_checker=True), spec=SPEC, ppo=PPO, steps=100_000, horizon=32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "cartpole.json")
    parser.add_argument("--kept", type=Path, default=Path("runs/learning"), help="folder of finished seeds")
    given = parser.parse_args()
    rows = run_seeds(JOB, given.seeds, given.kept)
    passed = all(row["mean"] >= BAR for row in rows)
    result = {"benchmark": "CartPole-v1", "steps": JOB.steps, "bar": BAR, "ok": passed}
    files.write_json(given.output, {**result, "ppo": PPO.model_dump(), "network": SPEC.to_json(), "seeds": rows})
    print(f"{'ok' if passed else 'NOT OK'}: {[round(row['mean'], 1) for row in rows]}, bar {BAR}")
    raise SystemExit(0 if passed else 1)


if __name__ == "__main__":
    main()
