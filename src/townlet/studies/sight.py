"""What is it worth to see a conflict coming? Scripted residents who take the calm object against those who take the near one.

Both live the same days: same towns, same seeds, same draws. The difference is per resident-day.
"""

from __future__ import annotations

import numpy as np

from townlet.config.base import DAY
from townlet.config.models import SimulationConfig
from townlet.envs.vector import VectorTown
from townlet.scenarios.lint import Verdict
from townlet.statistics import Interval, paired_difference
from townlet.world.state import Array
from townlet.world.townspeople import choose_scripted, habits, scripted_columns, scripted_options

SIGHT_DAYS = 64


def scripted_returns(config: SimulationConfig, *, calm: bool, days: int = SIGHT_DAYS) -> Array:
    """Mean return per resident-day of each of `days` towns over one episode.  # (days,)"""
    vec = VectorTown(config, num_towns=days)
    towns, residents = vec.num_towns, vec.num_residents
    columns, options = scripted_columns(vec.spec.feature_names), scripted_options(vec.catalogue.names)
    habit = habits(config, calm=calm)
    choices = np.zeros(towns * residents, dtype=np.int64)
    returns = np.zeros(towns)
    vec.reset()
    for _ in range(-(-config.scenario.episode_ticks // vec.interval)):
        features = vec.features.reshape(towns * residents, -1)
        choose_scripted(features, vec.masks.reshape(towns * residents, -1), columns, options, habit, choices)
        vec.step(choices.reshape(towns, residents))
        returns += vec.rewards.sum(axis=1, dtype=np.float64)
    per_day: Array = returns / residents * (DAY / config.scenario.episode_ticks)
    return per_day


def value_of_sight(config: SimulationConfig, *, days: int = SIGHT_DAYS) -> Interval:
    """Scripted calm − scripted near per resident-day, with a 95 % interval over the towns."""
    calm = scripted_returns(config, calm=True, days=days)
    near = scripted_returns(config, calm=False, days=days)
    return paired_difference(calm, near)


def sight_verdict(config: SimulationConfig, *, days: int = SIGHT_DAYS) -> Verdict:
    """Against `scenario.sight_bar`; without one it is enough that looking ahead does no harm."""
    worth = value_of_sight(config, days=days)
    bar = config.scenario.sight_bar
    found = f"{worth.value:+.2f} per resident-day ({worth.low:+.2f} to {worth.high:+.2f}) over {days} days"
    if bar is None:
        return Verdict("sight", worth.high >= 0.0, found, "residents who look ahead do worse; see whether detours are too long")
    remedy = f"expected at least {bar:+.2f}: make the near object more contested or the calm one nearer"
    return Verdict("sight", worth.value >= bar, found, remedy)
