"""Memory: CartPole-v1 without its velocities, 300k steps. At least 400 with a GRU in 3 of 3 seeds, below 200 without.

python benchmarks/learning/recurrence.py [--seeds 0 1 2] [--output benchmarks/learning/results/recurrence.json]
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TransformObservation
from harness import Job, run_seeds

from townlet import files
from townlet.config.learning import PPOConfig
from townlet.policy.network import NetworkSpec

GRU_BAR, PLAIN_BAR = 400.0, 200.0
PPO = PPOConfig(  # rl-zoo's for CartPoleNoVel-v1, with 10 passes of 2 mini-batches and normalised observations
    learning_rate=1e-3,
    lr_anneal=True,
    clip_param=0.2,
    clip_anneal=True,
    gamma=0.98,
    gae_lambda=0.8,
    num_epochs=10,
    num_mini_batches=2,
    entropy_coef=0.0,
    value_loss_coef=0.5,
    max_grad_norm=0.5,
    value_clip=None,
    recurrent="gru",
    normalize_observations=True,
)
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "recurrence.json")
    parser.add_argument("--kept", type=Path, default=Path("runs/learning"), help="folder of finished seeds")
    given = parser.parse_args()
    arms = {"gru": run_seeds(GRU, given.seeds, given.kept), "plain": run_seeds(PLAIN, given.seeds, given.kept)}
    means = {name: [row["mean"] for row in rows] for name, rows in arms.items()}
    passed = min(means["gru"]) >= GRU_BAR and max(means["plain"]) < PLAIN_BAR
    result = {"benchmark": "CartPole-v1 without velocities", "steps": GRU.steps, "means": means}
    result |= {"bars": {"gru_at_least": GRU_BAR, "plain_below": PLAIN_BAR}, "ok": passed}
    files.write_json(given.output, {**result, "ppo": PPO.model_dump(), "network": SPEC.to_json(), **arms})
    print(f"{'ok' if passed else 'NOT OK'}: {means}")
    raise SystemExit(0 if passed else 1)


if __name__ == "__main__":
    main()
