"""Two checks of a town that need the simulator: does it reward what it should (pay), and is looking ahead worth it (sight)?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from townlet.config.base import DAY
from townlet.config.models import SimulationConfig
from townlet.envs.vector import VectorTown
from townlet.evaluation.measures import Tally
from townlet.evaluation.suites import draw_seed
from townlet.policy.characters import CHARACTERS, MUST_FAIL, CharacterPolicy
from townlet.policy.runtime import make_policy
from townlet.scenarios.compile import compile_town
from townlet.scenarios.lint import Verdict
from townlet.sim.loop import SimulationLoop
from townlet.statistics import Interval, paired_difference
from townlet.types import Array

# --- pay: ten ways of life, from saint to shirker, must come out in that order ---------------------------------------

VIRTUE = {
    "never_works": "working",
    "never_washes": "washing",
    "spender": "keeping one's savings",
    "always_late": "being on time",
    "chat_farmer": "doing more than chat",
}
SHARE = 0.5  # of what the plain script earns above a shirker; who fails in a duty must stay below
MONTH = 28


def earnings(
    config: SimulationConfig, names: Sequence[str] = tuple(CHARACTERS), *, days: int = MONTH, towns: int = 2
) -> dict[str, float]:
    """What each way of life earns the founders per resident-day, with the rewards of the config."""
    ticks = days * config.world.ticks_per_day
    vec = VectorTown(config.lasting(ticks), towns, seed=draw_seed("validation", 0, config.evaluation))
    return {name: _earned(vec, name, ticks) for name in names}


def _earned(vec: VectorTown, name: str, ticks: int) -> float:
    vec.reset()
    policy, tally = CharacterPolicy(name), Tally(vec)
    policy.reset(vec)
    loop = SimulationLoop(vec, policy, [tally])
    loop.step()
    while tally.open.any() and not tally.gone[tally.watched].all():  # who is gone earns nothing to the end
        loop.step()
    return float(tally.reward.sum() / tally.watched.sum() / (ticks / vec.config.world.ticks_per_day))


def pay_verdict(config: SimulationConfig, *, days: int = MONTH) -> Verdict:
    """Neglecting a duty must cost something on the first day, and over a month more than half of what the plain script earns
    above a shirker."""
    names = ("plain", *MUST_FAIL, "shirker")
    day, month = (earnings(config, names, days=span, towns=1) for span in (1, days))
    told = []
    for name in MUST_FAIL:
        if day[name] == day["plain"] and month[name] == month["plain"]:
            continue  # there is no such duty here
        for span, earned in ((1, day), (days, month)):
            share = (earned[name] - earned["shirker"]) / max(earned["plain"] - earned["shirker"], 1e-9)
            if share >= (1.0 if span == 1 else SHARE):
                why = f"over {span} days {name} earns {earned[name]:.1f} a day, the script {earned['plain']:.1f}"
                told.append(f"{VIRTUE[name]} does not pay in this town: {why}")
                break
    if not told:
        worst = max(month[name] for name in MUST_FAIL)
        found = (
            f"residents who neglect a duty earn at most {worst:.1f} a day over {days} days, the script earns {month['plain']:.1f}"
        )
        return Verdict("pay", True, found)
    remedy = "raise rewards of work or lower what pays instead (`rewards`, `employment`)"
    evicted, residents = config.lifecycle.evictions_per_day * days, len(compile_town(config).resident_ids)
    if evicted < residents:
        few = f"only {evicted} of {residents} residents can be evicted in that time"
        remedy = f"{few}: raise lifecycle.evictions_per_day, or {remedy}"
    return Verdict("pay", False, "; ".join(told), remedy)


# --- sight: scripted residents who take the calm object against those who take the near one --------------------------
SIGHT_DAYS = 64


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
