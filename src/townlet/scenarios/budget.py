"""What a day asks of a resident: uses, ticks and coins, from the rates of the config alone."""

from __future__ import annotations

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


def day_of(config: SimulationConfig, kinds: set[str]) -> Day:
    """Every need kept level over a day: `decay × 1440 = effect × uses`, meals cooked before they are eaten.

    Sleep s solves `s × rate = decay × (1440 − s) + what the other uses cost`. A need the town has nothing for is left out here;
    the starvation bound and the time budget speak of that.
    """
    decay = config.world.need_decay
    specs = offered(config, kinds)
    uses: dict[str, float] = {}
    cooking = next((spec for spec in specs if spec.gives_meals), None)
    eating = next((spec for spec in specs if spec.takes_meals and spec.effects.hunger > 0), None)
    buying = next((spec for spec in specs if not spec.takes_meals and spec.effects.hunger > 0), None)
    if eating is not None and cooking is not None:
        uses[eating.id] = decay.hunger * DAY / eating.effects.hunger
        uses[cooking.id] = uses[eating.id] * eating.takes_meals / cooking.gives_meals
    elif buying is not None:
        uses[buying.id] = decay.hunger * DAY / buying.effects.hunger
    washing = next((spec for spec in specs if spec.effects.hygiene > 0), None)
    if washing is not None:
        uses[washing.id] = decay.hygiene * DAY / washing.effects.hygiene
    sleeping = next((spec for spec in specs if spec.asleep), None)
    if sleeping is not None and sleeping.effects.energy > 0:
        spent = sum(-spec.effects.energy * uses.get(spec.id, 0.0) for spec in specs if spec.effects.energy < 0)
        rate = sleeping.effects.energy / sleeping.ticks
        uses[sleeping.id] = (decay.energy * DAY + spent) / (rate + decay.energy) / sleeping.ticks
    ticks = {spec.id: uses[spec.id] * spec.ticks for spec in specs if spec.id in uses}
    return Day(uses, ticks, sum(spec.price * uses.get(spec.id, 0.0) for spec in specs))
