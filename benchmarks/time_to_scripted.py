"""Processor seconds of training until the policy earns what the scripted townspeople earn, on evaluation seeds: the schedule
of the demo (imitate, then improve) against MaskablePPO with its defaults. Evaluations stand outside the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

from sb3_contrib import MaskablePPO

from townlet.bench.rows import row
from townlet.config.models import SimulationConfig
from townlet.envs.sb3 import TownVecEnv
from townlet.envs.spaces import Sight
from townlet.envs.vector import VectorTown
from townlet.policy.runtime import Decision, NetworkPolicy
from townlet.policy.training.collect import Collector
from townlet.policy.training.demonstrations import watch_script
from townlet.policy.training.learner import PPOLearner
from townlet.policy.training.services import EvaluationService, RolloutCaptureService
from townlet.policy.training.session import network_spec
from townlet.policy.training.sources import rollout_batch, script_batch
from townlet.policy.training.strategies.bc import DEMONSTRATION_TOWNS, cloning_rate, fit_observation_statistics

BAR = 3.0
LOOK_EVERY = 5  # epochs of ours between two evaluations; MaskablePPO is looked at after every one of its own


class MaskedModel:
    """MaskablePPO's model as a policy that can be evaluated."""

    kind, has_values, epsilon, hash = "network", False, 0.0, ""

    def __init__(self, model: MaskablePPO) -> None:
        self.model = model

    def reset(self, vec: VectorTown) -> None:
        self.sight = Sight(vec.spec, "flat")

    def act(self, vec: VectorTown) -> Decision:
        rows, shape = vec.active.size, vec.active.shape
        seen, masks = self.sight.rows(vec).reshape(rows, -1), vec.masks.reshape(rows, -1).astype(bool)
        actions, _ = self.model.predict(seen, action_masks=masks, deterministic=False)
        zeros = vec.rewards * 0.0
        return Decision(actions.reshape(shape), zeros, zeros)


def ours(config: SimulationConfig) -> Iterator[PPOLearner]:
    """The learner after cloning, then after every PPO epoch of the schedule."""
    towns, bc, spec = RolloutCaptureService(config), config.training.bc, network_spec(config)
    learner = PPOLearner(spec, config.ppo, seed=config.seed)
    day = -(-config.scenario.episode_ticks // config.policy.interval)
    script = Collector(towns.towns(bc.towns, index=DEMONSTRATION_TOWNS), config.seed, maps=spec.sees_map)
    shown, _ = watch_script(script, day, epsilon=bc.epsilon, gamma=config.ppo.gamma).split(bc.validation_fraction, config.seed)
    fit_observation_statistics(learner, shown)
    collector = Collector(towns.towns(config.training.towns, stagger=True), config.seed, maps=spec.sees_map)
    before = 1.0
    for stage in config.training.anneal_schedule:
        for epoch in range(stage.epochs):
            progress = epoch / stage.epochs
            if stage.mode == "bc":
                rate = cloning_rate(bc, epoch, stage.epochs)
                learner.clone(shown, learning_rate=rate, batch_size=bc.batch_size, value_coef=bc.value_coef)
                continue
            weight = before + (stage.bc_weight - before) * progress
            share = stage.scripted_share
            rollout = collector.collect(
                learner, config.training.horizon, ask_script=weight > 0, scripted_share=share, epsilon=bc.epsilon
            )
            examples = script_batch(rollout) if weight > 0 else None
            learner.update(rollout_batch(rollout, config.ppo), progress=progress, bc_batch=examples, bc_weight=weight)
            yield learner
        before = stage.bc_weight
        if stage.mode == "bc":
            yield learner


def theirs() -> Iterator[MaskablePPO]:
    """MaskablePPO on one town, everything by default, after each of its iterations of 2,048 steps × 8 residents."""
    model = MaskablePPO("MlpPolicy", TownVecEnv("town_day", 1, start="random"), device="cpu", seed=0)
    while True:
        model.learn(model.n_envs * model.n_steps, reset_num_timesteps=False)
        yield model


def race(
    steps: Iterator[Any], score: Callable[[Any], float], bar: float, *, every: int, limit: float
) -> tuple[float, float, bool]:
    """Processor seconds of the steps until a score reaches the bar (or the limit passes), the best score, whether it did."""
    spent, best = 0.0, float("-inf")
    begin = process_time()
    for count, state in enumerate(steps):
        spent += process_time() - begin
        if count % every == 0:
            best = max(best, score(state))
            if best >= bar:
                return spent, best, True
        if spent > limit:
            break
        begin = process_time()
    return spent, best, False


def race_row(config: SimulationConfig, *, say: Callable[[str], None]) -> dict[str, Any]:
    judge = EvaluationService(config)

    def score(source: Any) -> float:
        value = judge.score(source)["return"].mean
        say(f"return {value:.2f}")
        return float(value)

    bar = score("scripted")
    say(f"time to the scripted return, {bar:.2f}: ours")
    mine, reached, arrived = race(
        ours(config), lambda learner: score(lambda vec: NetworkPolicy(learner, 0)), bar, every=LOOK_EVERY, limit=600.0
    )
    say(f"time to the scripted return: MaskablePPO, at most {1.05 * BAR * mine:.0f} s")
    other, came_to, there = race(
        theirs(), lambda model: score(lambda vec: MaskedModel(model)), bar, every=1, limit=1.05 * BAR * mine
    )
    more = {"scripted_return": bar, "ours_seconds": mine, "ours_return": reached, "theirs_seconds": other}
    more |= {"theirs_return": came_to, "theirs_arrived": there}
    name = "time to the scripted return, MaskablePPO's over ours" + ("" if there else " (at least: it had not arrived)")
    return row(name, other / mine if arrived else 0.0, "×", BAR, **more)
