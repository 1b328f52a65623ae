"""Somebody else's trainer on `VectorTown`: MaskablePPO on every resident of several towns in one batch (`bench` extra)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sb3_contrib import MaskablePPO

from townlet.envs.sb3 import LivingRolloutBuffer, TownVecEnv

Callback = Callable[..., bool] | None  # as `learn` takes it


def main(towns: int = 8, steps: int = 8192, callback: Callback = None, scenario: str = "town_day") -> tuple[float, Any]:
    env = TownVecEnv(scenario, towns, start="random", map="none")  # a VecEnv of towns × residents; masks through env_method
    options = {"rollout_buffer_class": LivingRolloutBuffer}  # learns from residents, not from slots that wait for a newcomer
    model = MaskablePPO("MlpPolicy", env, n_steps=64, batch_size=512, n_epochs=4, seed=0, **options)
    model.policy.action_net.bias.data[env.vec.catalogue.names.index("work")] += 4  # chance hardly finds that work pays
    model.learn(steps, callback)
    seen, total = env.reset(), 0.0
    for _ in range(144):  # a day of decisions
        actions, _ = model.predict(seen, action_masks=env.action_masks())
        seen, rewards, _, _ = env.step(actions)
        total += float(rewards.sum())
    print(f"return of a resident's day after {model.num_timesteps} decisions: {total / env.num_envs:.1f}")
    flat = lambda rows, masks: (rows.flatten(0, -2), masks.flatten(0, -2).numpy())  # noqa: E731
    return total / env.num_envs, lambda rows, masks: model.policy.get_distribution(*flat(rows, masks)).distribution.logits


if __name__ == "__main__":
    main()
