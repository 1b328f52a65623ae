"""`townlet bound`: what no policy can exceed."""

from __future__ import annotations

import click

from townlet.cli.common import days_option, emit, json_option, set_option


@click.command()
@click.argument("scenario")
@days_option
@set_option
@json_option
def bound(scenario: str, days: int, overrides: tuple[str, ...], as_json: bool) -> None:
    """Compute a return per resident-day that no policy can exceed in SCENARIO.

    Each resident lives as if alone, without walking, queues or conflicts.

    \b
    Example:
      townlet bound town_day --days 28
    """
    from townlet.evaluation.suites import Case
    from townlet.studies.bound import bound as highest

    found = highest(Case(scenario, scenario, days=days, overrides=overrides).town())
    value = {"scenario": scenario, "days": days, "bound": found.mean, "residents": found.residents}
    emit(value, f"{scenario}, {days} days: no policy earns more than {found.mean:.3f} per resident-day", as_json)
