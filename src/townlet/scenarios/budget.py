"""What a town offers, and what a day asks of a resident: uses, ticks, coins; from the map and the rates of the config alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from townlet.config.affordances import AffordanceSpec
from townlet.config.base import DAY
from townlet.config.models import SimulationConfig
from townlet.scenarios.spec import PlacedObject, Plan, full_stock


@dataclass(frozen=True)
class Offer:
    """The objects of one affordance that can be used at all."""

    spec: AffordanceSpec
    count: int
    uses: float  # that their stocks allow in a day, together

    @property
    def open(self) -> int:
        """Ticks of a day in which a use may start."""
        hours = self.spec.hours
        return DAY if hours is None else (hours[1] - hours[0]) % DAY or DAY


def uses_of_stock(spec: AffordanceSpec, one: PlacedObject, config: SimulationConfig) -> float:
    """Uses a day that an object's stock allows."""
    return max(0, full_stock(one, config)) // max(spec.gives_meals, 1) if spec.uses_stock else inf


def offers_of(plan: Plan, config: SimulationConfig) -> tuple[Offer, ...]:
    """Affordances that some object of the town gives; one whose stock is too small for a single use gives nothing."""
    offers = []
    for spec in config.affordances.specs:
        uses = [uses_of_stock(spec, one, config) for one in plan.objects if one.kind in spec.objects]
        able = [count for count in uses if count > 0]
        if able:
            offers.append(Offer(spec, len(able), sum(able)))
    return tuple(offers)


def mainstay(offers: tuple[Offer, ...], need: str) -> Offer | None:
    """What a need is met with day by day: meals where they can be cooked, else what is open longest, of those the first."""
    cooked = any(one.spec.gives_meals for one in offers)
    raising = [one for one in offers if one.spec.effects.get(need, 0.0) > 0]
    own = [one for one in raising if one.spec.takes_meals and cooked]
    open_longest = sorted((one for one in raising if not one.spec.takes_meals), key=lambda one: -one.open)
    return next(iter([*own, *open_longest]), None)


@dataclass(frozen=True)
class Food:
    """Where meals come from: they are cooked and then eaten; in a town without a kitchen they are bought ready."""

    cooking: Offer | None
    eating: Offer

    @property
    def offers(self) -> tuple[Offer, ...]:
        return (self.eating,) if self.cooking is None else (self.cooking, self.eating)

    @property
    def stock(self) -> float:
        """Meals that can be had in a day."""
        return self.eating.uses if self.cooking is None else self.cooking.uses * self.cooking.spec.gives_meals


def food_of(offers: tuple[Offer, ...]) -> Food | None:
    """A café beside a kitchen does not count: whoever lives on it is soon out of coins, and at night it is closed."""
    eating = mainstay(offers, "hunger")
    if eating is None:
        return None
    return Food(next(one for one in offers if one.spec.gives_meals) if eating.spec.takes_meals else None, eating)


@dataclass(frozen=True)
class Day:
    """Uses of a day per affordance, ticks they take, coins they cost, for one resident who meets all its needs at home."""

    uses: dict[str, float]
    ticks: dict[str, float]
    coins: float  # without rent


def day_of(config: SimulationConfig, offers: tuple[Offer, ...]) -> Day:
    """Every need kept level over a day: `decay × 1440 = effect × uses`, meals cooked before they are eaten.

    Sleep s solves `s × rate = decay × (1440 − s) + what the other uses cost`. A need the town has nothing for is left out here;
    the starvation bound and the time budget speak of that.
    """
    specs = [one.spec for one in offers]
    uses: dict[str, float] = {}
    for name, need in config.needs.items():
        using = mainstay(offers, name)
        if name != "energy" and using is not None:
            uses[using.spec.id] = max(uses.get(using.spec.id, 0.0), need.decay * DAY / using.spec.effects[name])
    cooking = next((spec for spec in specs if spec.gives_meals), None)
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
