"""What a day asks of a resident: uses, ticks and coins, from the rates of the config alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from townlet.config.affordances import AffordanceSpec
from townlet.config.base import DAY
from townlet.config.models import SimulationConfig


@dataclass(frozen=True)
class Day:
    """Uses of a day per affordance, ticks they take, coins they cost, for one resident who meets all its needs at home."""

    uses: dict[str, float]
    ticks: dict[str, float]
    coins: float  # without rent


def offered(config: SimulationConfig, kinds: set[str]) -> tuple[AffordanceSpec, ...]:
    """Affordances that some object of the town gives."""
    return tuple(spec for spec in config.affordances.specs if kinds & set(spec.objects))


def mainstay(specs: Iterable[AffordanceSpec], need: str, *, cooked: bool) -> AffordanceSpec | None:
    """What a need is met with day by day: meals where they can be cooked, else what is open longest, of those the first."""
    raising = [spec for spec in specs if spec.effects.get(need, 0.0) > 0]
    own = [spec for spec in raising if spec.takes_meals and cooked]
    open_longest = sorted((spec for spec in raising if not spec.takes_meals), key=lambda spec: -opening(spec))
    return next(iter([*own, *open_longest]), None)


def opening(spec: AffordanceSpec) -> int:
    """Ticks of a day at which a use may start."""
    return DAY if spec.hours is None else (spec.hours[1] - spec.hours[0]) % DAY or DAY


def day_of(config: SimulationConfig, kinds: set[str]) -> Day:
    """Every need kept level over a day: `decay × 1440 = effect × uses`, meals cooked before they are eaten.

    Sleep s solves `s × rate = decay × (1440 − s) + what the other uses cost`. A need the town has nothing for is left out here;
    the starvation bound and the time budget speak of that.
    """
    specs = offered(config, kinds)
    uses: dict[str, float] = {}
    cooking = next((spec for spec in specs if spec.gives_meals), None)
    for name, need in config.needs.items():
        using = mainstay(specs, name, cooked=cooking is not None)
        if name != "energy" and using is not None:
            uses[using.id] = max(uses.get(using.id, 0.0), need.decay * DAY / using.effects[name])
    eaten = sum(uses[spec.id] * spec.takes_meals for spec in specs if spec.id in uses)
    if cooking is not None and eaten:
        uses[cooking.id] = eaten / cooking.gives_meals
    sleeping = next((spec for spec in specs if spec.asleep), None)
    if sleeping is not None and sleeping.effects.get("energy", 0.0) > 0:
        decay = config.needs["energy"].decay
        spent = sum(-spec.effects["energy"] * uses.get(spec.id, 0.0) for spec in specs if spec.effects.get("energy", 0.0) < 0)
        rate = sleeping.effects["energy"] / sleeping.ticks
        uses[sleeping.id] = (decay * DAY + spent) / (rate + decay) / sleeping.ticks
    ticks = {spec.id: uses[spec.id] * spec.ticks for spec in specs if spec.id in uses}
    return Day(uses, ticks, sum(spec.price * uses.get(spec.id, 0.0) for spec in specs))
