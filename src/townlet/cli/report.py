"""`townlet report`: a run as one HTML page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from townlet.cli.common import DAYS, PAGE, PATH, TOWNS, emit, evaluating, json_option, note
from townlet.errors import StorageError

if TYPE_CHECKING:
    from townlet.policy.training.run_folder import RunCard


@click.command()
@click.argument("run", type=PATH)
@click.option("--output", type=PAGE, help="Where to write it; by default RUN/report.html.")
@click.option("--log", type=PATH, help="Telemetry log, when the run kept it outside its folder (--ppo-log).")
@click.option("--scorecard", type=PATH, help="Scorecard to show; by default RUN/scorecard.json, made now if it is missing.")
@click.option("--seeds", type=TOWNS, default=16, show_default=True, help="Towns, when the scorecard is made now.")
@click.option("--days", type=DAYS, default=28, show_default=True, help="Days per town, when the scorecard is made now.")
@json_option
def report(
    run: Path, output: Path | None, log: Path | None, scorecard: Path | None, seeds: int, days: int, as_json: bool
) -> None:
    """Write one self-contained HTML page of a training RUN: scoreboard, curves, the town, config and hashes.

    \b
    Example:
      townlet report runs/demo --output runs/demo/report.html
    """
    from townlet.evaluation.compare import load_scorecard, save_scorecard
    from townlet.files import write_text
    from townlet.observer.report import SCORECARD, measure_run, read_run, render_report
    from townlet.observer.town import town_picture
    from townlet.policy.training.run_folder import RunFolder

    target = output or run / "report.html"
    record = read_run(run, log)
    for sentence in record.damaged:
        note(f"damaged: {sentence}")
    if scorecard is not None:
        record = replace(record, scorecard=load_scorecard(scorecard))
    elif record.scorecard is None:
        with evaluating("evaluating", None) as progress:
            card = measure_run(run, towns=seeds, days=days, progress=progress)
        record = replace(record, scorecard=card)
        try:
            save_scorecard(card, run / SCORECARD)
            note(f"scorecard written to {run / SCORECARD}")
        except StorageError as error:  # somebody else's run: the page can still be written elsewhere
            note(f"the scorecard is not kept: {error}")
    folder = RunFolder(run)
    write_text(
        target, render_report(record, town=town_picture(folder.resolved_config()), commands=commands_of(folder.card(), run))
    )
    emit({"report": str(target)}, f"report written to {target}", as_json)


def commands_of(card: RunCard, folder: Path) -> list[str]:
    """What makes the run and this page again."""
    train = f"townlet train {folder}/config.json --mode {card.mode}"
    return [train, f"townlet evaluate random scripted trained={folder}", f"townlet report {folder}"]
