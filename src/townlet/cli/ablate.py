"""`townlet ablate`: what a sense is worth."""

from __future__ import annotations

from pathlib import Path

import click

from townlet.cli.common import COUNT, POSITIVE, TOWNS, Whole, days_option, json_option, note, set_option
from townlet.cli.study import job_options, publish, report_option, results_option, runs_option, where_of


@click.command()
@click.argument("config")
@click.option("--blind", type=click.Choice(["conflict"]), default="conflict", show_default=True, help="Group of fields to hide.")
@click.option("--seeds", type=Whole(1, 1000), default=5, show_default=True, help="Training seeds per arm.")
@click.option("--minutes", type=POSITIVE, default=4.0, show_default=True, help="Training per job.")
@click.option("--epochs", type=COUNT, help="A fixed number of epochs per job instead of minutes.")
@click.option("--towns", type=TOWNS, default=64, show_default=True, help="Held-out towns measured in.")
@days_option
@click.option("--mode", help="Training mode; by default that of the config.")
@results_option
@runs_option
@job_options
@report_option
@set_option
@json_option
def ablate(
    config: str,
    blind: str,
    seeds: int,
    minutes: float,
    epochs: int | None,
    towns: int,
    days: int,
    mode: str | None,
    results: Path,
    runs: Path,
    engine: str,
    workers: int,
    address: str | None,
    output: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Train CONFIG with and without some of what residents see, and report the difference with its interval.

    Every arm has the same budget and the same seeds.

    \b
    Example:
      townlet ablate two_bathrooms --blind conflict --seeds 5 --minutes 4
    """
    from townlet.studies.runner import run_study
    from townlet.studies.spec import ablation

    words = (*overrides, *(() if epochs is None else (f"training.epochs={epochs}",)))
    budget = None if epochs is not None else minutes
    spec = ablation(config, blind, seeds=seeds, minutes=budget, mode=mode, overrides=words, towns=towns, days=days)
    report = run_study(spec, results=results, runs=runs, where=where_of(spec, engine, workers, address), say=note)
    command = f"townlet ablate {config} --blind {blind} --seeds {seeds} " + (
        f"--minutes {minutes:g}" if epochs is None else f"--epochs {epochs}"
    )
    publish(report.model_copy(update={"command": command}), output, as_json)
