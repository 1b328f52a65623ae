"""What looking ahead is worth in a town: scripted residents who take the calm object against those who take the near one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from townlet.config.base import DAY
from townlet.config.models import SimulationConfig
from townlet.envs.vector import VectorTown
from townlet.policy.runtime import make_policy
from townlet.scenarios.lint import Verdict
from townlet.sim.loop import SimulationLoop
from townlet.statistics import Interval, paired_difference
from townlet.types import Array


def play(config: SimulationConfig, policy: str, *, towns: int, ticks: int | None = None) -> Iterator[VectorTown]:
    """The towns after each decision, over one episode (of `ticks` instead of the scenario's own length)."""
    if ticks is not None:
        config = config.lasting(ticks)
    vec = VectorTown(config, num_towns=towns)
    vec.reset()
    loop = SimulationLoop(vec, make_policy(policy, vec, seed=vec.seed))
    for _ in range(-(-config.scenario.episode_ticks // vec.interval)):
        loop.step()
        yield vec


SIGHT_DAYS = 64


def daily_returns(config: SimulationConfig, policy: str, *, days: int = SIGHT_DAYS) -> Array:
    """Mean return per resident-day of each of `days` towns over one episode.  # (days,)"""
    returns: Array = np.zeros(days)
    for vec in play(config, policy, towns=days):
        returns += vec.rewards.mean(axis=1, dtype=np.float64)
    return returns * (DAY / config.scenario.episode_ticks)


def _looking(config: SimulationConfig, ahead: bool) -> SimulationConfig:
    return config.model_copy(update={"behavior": config.behavior.model_copy(update={"avoid_rivals": ahead})})


def value_of_sight(config: SimulationConfig, *, days: int = SIGHT_DAYS) -> Interval:
    """Scripted calm − scripted near per resident-day, with its interval over the towns."""
    calm, near = (daily_returns(_looking(config, ahead), "scripted", days=days) for ahead in (True, False))
    return paired_difference(calm, near, level=config.evaluation.level, resamples=config.evaluation.resamples)


def sight_verdict(config: SimulationConfig, *, days: int = SIGHT_DAYS) -> Verdict:
    """Against `scenario.sight_bar`; without one it is enough that looking ahead does no harm."""
    worth = value_of_sight(config, days=days)
    bar = config.scenario.sight_bar
    found = f"{worth.value:+.2f} per resident-day ({worth.low:+.2f} to {worth.high:+.2f}) over {days} days"
    if bar is None:
        return Verdict("sight", worth.high >= 0.0, found, "residents who look ahead do worse; see whether detours are too long")
    remedy = f"expected at least {bar:+.2f}: make the near object more contested or the calm one nearer"
    return Verdict("sight", worth.value >= bar, found, remedy)
