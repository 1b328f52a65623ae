"""The shipped scenarios at a glance: facts read from their configs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from townlet.config.loader import shipped_configs
from townlet.config.models import SimulationConfig
from townlet.scenarios.compile import read_plan
from townlet.scenarios.plan import Plan

FOUNDING = ("kitchen_breakfast", "queue_conflict", "employment_punctuality", "rivalry_decay", "observation_baseline")


@dataclass(frozen=True)
class ScenarioFacts:
    name: str
    description: str
    residents: int
    rows: int
    columns: int
    start: int
    ticks: int
    objects: dict[str, int]
    jobs: int
    scheduled: int  # residents with orders of their own


def facts_of(config: SimulationConfig, plan: Plan | None = None) -> ScenarioFacts:
    """The facts of one scenario."""
    plan = read_plan(config) if plan is None else plan
    rows, columns = plan.tiles.shape
    return ScenarioFacts(
        name=config.town_name,
        description=config.scenario.description,
        residents=len(plan.residents),
        rows=int(rows),
        columns=int(columns),
        start=config.scenario.start,
        ticks=config.scenario.episode_ticks,
        objects=dict(sorted(Counter(one.kind for one in plan.objects).items())),
        jobs=len(plan.jobs),
        scheduled=sum(1 for one in config.scenario.residents if one.schedule),
    )


def ordered_names() -> list[str]:
    """Shipped scenarios, the founding five first."""
    rest = [name for name in shipped_configs("scenarios") if name not in FOUNDING]
    return [*FOUNDING, *rest]
