"""The script's nine numbers for a town: a repeatable random search on training seeds.

A try changes some of the best numbers so far, and is kept when the founders of the same towns earn more over the same days. Money
counts twice: spending costs reward, and a fall of the savings is subtracted, so that no script lives beyond its means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from townlet.config.models import SimulationConfig
from townlet.config.town import BehaviorConfig
from townlet.envs.vector import VectorTown
from townlet.evaluation.measures import Tally
from townlet.evaluation.suites import Case, draw_seed
from townlet.policy.runtime import ScriptedPolicy
from townlet.sim.loop import SimulationLoop
from townlet.world.state import MONEY

SAVINGS = 5.0  # what a coin less in the wallet at the end costs per day, in reward
MOVED = 0.4  # share of the numbers that a try moves


class Dial(NamedTuple):
    low: float
    high: float
    step: float
    digits: int


DIALS = {
    "meet_below.hunger": Dial(0.2, 0.9, 0.1, 3),
    "meet_below.hygiene": Dial(0.2, 0.9, 0.1, 3),
    "meet_below.energy": Dial(0.2, 0.84, 0.1, 3),
    "sleep_below": Dial(0.3, 0.98, 0.08, 3),
    "leave_above": Dial(0.85, 0.999, 0.03, 3),
    "meals_in_hand": Dial(0, 4, 0.7, 0),
    "look_ahead": Dial(20, 300, 40, 0),
    "wake_before": Dial(10, 160, 25, 0),
    "work_margin": Dial(2, 40, 6, 0),
}


class Tuned(NamedTuple):
    behavior: BehaviorConfig
    value: float  # return per resident-day on the training seed, less the savings lost
    before: float  # of the numbers it began with
    tries: int


def numbers_of(behavior: BehaviorConfig, config: SimulationConfig) -> dict[str, float]:
    """The nine numbers, `meet_below` filled in."""
    own = behavior.model_dump()
    lines = {name: need.act_below for name, need in config.needs.items()} | behavior.meet_below
    own |= {f"meet_below.{name}": line for name, line in lines.items()}
    return {name: float(own[name]) for name in DIALS}


def with_numbers(behavior: BehaviorConfig, numbers: dict[str, float]) -> BehaviorConfig:
    plain: dict[str, object] = {name: round(value) if DIALS[name].digits == 0 else value for name, value in numbers.items()}
    lines = {name.partition(".")[2]: plain.pop(name) for name in list(plain) if name.startswith("meet_below.")}
    return BehaviorConfig.model_validate({**behavior.model_dump(), **plain, "meet_below": {**behavior.meet_below, **lines}})


def tune(
    config: SimulationConfig,
    *,
    tries: int = 200,
    towns: int = 8,
    days: int = 7,
    seed: int = 0,
    say: Callable[[str], None] = lambda line: None,
) -> Tuned:
    """The best of `tries` moves from the config's own numbers; the same arguments find the same numbers."""
    case = Case(config.config_id, config.config_id, towns=towns, days=days, config=config)
    vec = VectorTown(case.town(), towns, seed=draw_seed("training", seed))
    rng = np.random.default_rng(seed)
    best = config.behavior
    value = before = worth(vec, best)
    say(f"0: {value:.3f}")
    for number in range(1, tries + 1):
        trial = moved(best, config, rng)
        found = worth(vec, trial)
        if found > value:
            best, value = trial, found
            say(f"{number}: {value:.3f} {numbers_of(trial, config)}")
    return Tuned(best, value, before, tries)


def moved(behavior: BehaviorConfig, config: SimulationConfig, rng: np.random.Generator) -> BehaviorConfig:
    """The same script with some of its numbers moved a step or so."""
    numbers = {
        name: round(float(np.clip(now + rng.normal() * dial.step * (rng.random() < MOVED), dial.low, dial.high)), dial.digits)
        for (name, now), dial in zip(numbers_of(behavior, config).items(), DIALS.values())
    }
    return with_numbers(behavior, numbers)


def worth(vec: VectorTown, behavior: BehaviorConfig) -> float:
    """Return per resident-day of the script with these numbers, less what its savings fell by."""
    vec.reset()
    policy = ScriptedPolicy(behavior=behavior)
    policy.reset(vec)
    first = float(vec.state.residents["wallet"].mean()) / MONEY
    tally = Tally(vec)
    loop = SimulationLoop(vec, policy, [tally])
    while tally.open.any():
        loop.step()
    row = tally.row()
    earned, wallet = (np.mean([value for value in row[name] if value is not None]) for name in ("return", "wallet"))
    days = vec.config.days
    return float(earned - SAVINGS * max(0.0, first - float(wallet)) / days)
