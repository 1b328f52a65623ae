"""Masks in acting and in the loss: sb3-contrib's InvalidActionEnvDiscrete(dim 80, 60 invalid), 20k steps.

Share of the best return (100 per episode) of greedy episodes: at least 90 % with masks, below 50 % without. The share of the last
training episodes, in which actions are drawn, stands beside it.

    python benchmarks/learning/masking.py [--seeds 0 1 2] [--output benchmarks/learning/results/masking.json]
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import FlattenObservation
from harness import Job, asked, publish, run_seeds
from numpy.typing import NDArray
from sb3_contrib.common.envs import InvalidActionEnvDiscrete

from townlet.config.learning import PPOConfig
from townlet.policy.network import NetworkSpec

ACTIONS, INVALID, BEST = 80, 60, 100.0
MASKED_BAR, UNMASKED_BAR = 0.9, 0.5
PPO = PPOConfig(  # MaskablePPO's defaults but for λ and the step: what is chosen does not change what comes
    gamma=0.4,
    gae_lambda=0.0,
    learning_rate=1e-3,
    num_epochs=10,
    mini_batch_size=64,
    entropy_coef=0.0,
    value_clip=None,
    normalize_values=False,
)
SPEC = NetworkSpec(features=ACTIONS, actions=ACTIONS, feature_size=64, trunk_sizes=(64,), activation="tanh")


class Seeded(gym.Wrapper[Any, Any, Any, Any]):
    """The environment draws from two generators that its `reset(seed=…)` does not seed."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.env.action_space.seed(seed)
            np.random.seed(seed % 2**32)
        return self.env.reset(seed=seed, options=options)


def make() -> gym.Env[Any, Any]:
    return FlattenObservation(Seeded(InvalidActionEnvDiscrete(dim=ACTIONS, n_invalid_actions=INVALID)))


def true_masks(envs: SyncVectorEnv) -> NDArray[np.uint8]:
    return np.array([env.unwrapped.action_masks() for env in envs.envs], np.uint8)


MASKED = Job(make=make, spec=SPEC, ppo=PPO, steps=20_000, horizon=32, masks=true_masks)
UNMASKED = replace(MASKED, masks=None)


def main() -> None:
    given = asked(__doc__, "masking")
    arms = {"masked": run_seeds(MASKED, given.seeds, given.kept), "unmasked": run_seeds(UNMASKED, given.seeds, given.kept)}
    share = {name: [row["mean"] / BEST for row in rows] for name, rows in arms.items()}
    passed = min(share["masked"]) >= MASKED_BAR and max(share["unmasked"]) < UNMASKED_BAR
    drawn = {name: [row["curve"][-1]["return"] / BEST for row in rows] for name, rows in arms.items()}
    result: dict[str, Any] = {
        "benchmark": "InvalidActionEnvDiscrete(80, 60 invalid)",
        "steps": MASKED.steps,
        "share_of_best": share,
        "drawn": drawn,
    }
    result |= {"bars": {"masked_at_least": MASKED_BAR, "unmasked_below": UNMASKED_BAR}, "ok": passed}
    publish(given.output, MASKED, result, arms, str(share))


if __name__ == "__main__":
    main()
