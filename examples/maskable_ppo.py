"""Somebody else's trainer: MaskablePPO of sb3-contrib on one resident among scripted neighbours (needs the `bench` extra)."""

from __future__ import annotations

import gymnasium as gym
from sb3_contrib import MaskablePPO

import townlet.envs  # noqa: F401  (registers Townlet/*)


def main(steps: int = 2048) -> float:
    env = gym.make("Townlet/TownDay-v0")
    model = MaskablePPO("MlpPolicy", env, n_steps=144, batch_size=72, seed=0)
    model.learn(steps)
    observation, info = env.reset(seed=1)
    total, over = 0.0, False
    while not over:
        action, _ = model.predict(observation, action_masks=info["action_mask"], deterministic=True)
        observation, reward, terminated, truncated, info = env.step(int(action))
        total, over = total + float(reward), terminated or truncated
    print(f"return of a day after {steps} decisions: {total:.1f}")
    return total


if __name__ == "__main__":
    main()
