"""`townlet runs list | compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from townlet.cli.common import PATH, Group, emit, json_option, note
from townlet.errors import TownletError
from townlet.types import Record

if TYPE_CHECKING:
    from townlet.dto.policy import AnnealStageResult
    from townlet.policy.training.run_folder import RunFolder

MEASURES = ("loss_value", "kl_k3", "return_per_resident_day", "queue_conflict_events", "accuracy", "change_accuracy", "guards")


@click.group(cls=Group)
def runs() -> None:
    """Look at the folders that `townlet train` leaves.

    \b
    Examples:
      townlet runs list
      townlet runs compare runs/town_day_anneal_001 runs/town_day_rollout_001
    """


@runs.command("list")
@click.argument("folder", type=PATH, default=Path("runs"))
@json_option
def list_runs(folder: Path, as_json: bool) -> None:
    """List the runs in FOLDER and what each has reached. By default runs/.

    The return is per resident-day, in the best evaluation; without evaluations, in the last epoch.

    \b
    Example:
      townlet runs list
    """
    from townlet.policy.training.run_folder import find_runs

    rows = [_row_or_problem(run) for run in find_runs(folder)]
    columns = ("run", "mode", "config", "state", "stages", "epochs", "return", "latest")
    shown = [
        row | {"epochs": f"{row['epochs']}/{row['planned']}", "latest": Path(str(row["checkpoint"] or "–")).name}
        if "problem" not in row
        else row
        for row in rows
    ]
    text = _table(shown, columns) if rows else f"no runs in {folder}; `townlet train town_day` makes one"
    emit(rows, text, as_json)
    for row in rows:
        if "problem" in row:
            note(f"{row['run']} is damaged: {row['problem']}")


@runs.command()
@click.argument("folders", type=PATH, nargs=-1, required=True, metavar="RUN...")
@json_option
def compare(folders: tuple[Path, ...], as_json: bool) -> None:
    """Compare runs: what they reached, and how their configs differ.

    \b
    Example:
      townlet runs compare runs/first runs/second
    """
    from townlet.config.differences import differences
    from townlet.policy.training.run_folder import RunFolder

    found = [RunFolder(folder) for folder in folders]
    results = {str(run.path): _row(run) | _measures(run) for run in found}
    apart = differences([run.resolved_config() for run in found])
    names = list(dict.fromkeys(name for row in results.values() for name in row if name != "run"))
    short = {path: row | {"checkpoint": Path(str(row["checkpoint"] or "–")).name} for path, row in results.items()}  # of that run
    rows = [{"": name} | {path: row.get(name) for path, row in short.items()} for name in names]
    rows += [{"": key} | {str(run.path): value for run, value in zip(found, values)} for key, values in apart.items()]
    columns = ("", *results)
    emit({"runs": results, "config": apart}, lambda: _table(rows, columns), as_json)


def _row_or_problem(run: RunFolder) -> dict[str, object]:
    """One damaged run does not hide the others."""
    try:
        return _row(run)
    except TownletError as error:
        return {"run": str(run.path), "state": "damaged", "problem": str(error)}


def _row(run: RunFolder) -> dict[str, object]:
    card, summary, latest, stages = run.card(), run.summary(), run.latest(), _stages(run)
    points = [stage.evaluation for stage in stages if stage.evaluation]
    points += [] if summary is None else summary.evaluations
    best = max((point.episode_return for point in points if "return" in point.measures), default=None)
    if best is None and summary is not None:
        best = summary.return_per_resident_day
    number = "" if latest is None else latest.name
    made = sum(stage.epochs_made for stage in stages) if stages else int(number) if number.isdecimal() else 0
    return {
        "run": str(run.path),
        "mode": card.mode,
        "config": card.config_id,
        "state": "unfinished" if summary is None else summary.state,
        "stages": len(stages) if card.mode == "anneal" else None,
        "epochs": made if summary is None or summary.epochs is None else summary.epochs,
        "planned": card.epochs,
        "return": best,
        "checkpoint": None if latest is None else str(latest),
    }


def _stages(run: RunFolder) -> list[AnnealStageResult]:
    """The stages that an anneal run has done; none for another."""
    from townlet.policy.training.anneal import Tracker

    return Tracker.read(run.path).done


def _measures(run: RunFolder) -> dict[str, object]:
    """What a run came to; of an anneal run, what its last stages did."""
    found: Record = {}
    for stage in _stages(run):
        for result in (stage.bc, stage.ppo):
            found |= {} if result is None else result.model_dump()
        found["guards"] = found.get("guards", 0) + len(stage.guards)
    summary = run.summary()
    found |= {} if summary is None else summary.as_record()
    return {name: found[name] for name in (*MEASURES, "duration_sec") if found.get(name) is not None}


def _table(rows: list[dict[str, object]], columns: tuple[str, ...]) -> str:
    from townlet.telemetry.drawing import table

    return "\n".join(table(columns, [[_cell(row.get(name)) for name in columns] for row in rows], left=range(len(columns))))


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
