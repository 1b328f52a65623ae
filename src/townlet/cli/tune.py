"""`townlet tune`: find the best numbers of the script for a town."""

from __future__ import annotations

import click

from townlet.cli.common import DAYS, SEED, TOWNS, Whole, emit, json_option, note, set_option


@click.command()
@click.argument("scenario")
@click.option("--tries", type=Whole(1, 100_000), default=200, show_default=True, help="Moves tried.")
@click.option("--towns", type=TOWNS, default=8, show_default=True, help="Towns in which each setting is tried.")
@click.option("--days", type=DAYS, default=7, show_default=True, help="Days for which each setting is tried.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Training seed, and seed of the search.")
@set_option
@json_option
def tune(scenario: str, tries: int, towns: int, days: int, seed: int, overrides: tuple[str, ...], as_json: bool) -> None:
    """Tune the nine numbers of the script for SCENARIO, on training seeds. The same command gives the same numbers.

    \b
    Example:
      townlet tune two_bathrooms --tries 200

    Put the block that is printed into the scenario's file: `scripted` then decides by it; `scripted_plain` keeps the numbers from
    before any tuning.
    """
    from townlet.config.loader import load_config
    from townlet.studies.tuning import numbers_of
    from townlet.studies.tuning import tune as search

    config = load_config(scenario, overrides)
    found = search(config, tries=tries, towns=towns, days=days, seed=seed, say=note)
    numbers = numbers_of(found.behavior, config)
    value = {"scenario": scenario, "tries": tries, "before": found.before, "after": found.value, "numbers": numbers}
    emit(value, lambda: _block(numbers), as_json)


def _block(numbers: dict[str, float]) -> str:
    """The `behavior` block of a scenario file."""
    lines = ", ".join(f"{name.partition('.')[2]}: {value:g}" for name, value in numbers.items() if "." in name)
    rest = ", ".join(f"{name}: {value:g}" for name, value in numbers.items() if "." not in name)
    return f"behavior: {{meet_below: {{{lines}}}, {rest}}}"
