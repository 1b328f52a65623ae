"""`townlet runs list | compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from townlet.cli.common import emit, json_option

FOLDER = click.Path(path_type=Path)
MEASURES = ("loss_value", "kl_k3", "episode_return_mean", "queue_conflict_events", "accuracy", "change_accuracy")


@click.group(short_help="List and compare training runs.")
def runs() -> None:
    """Look at the folders that `townlet train` leaves.

    \b
    Examples:
      townlet runs list
      townlet runs compare runs/town_day_anneal_001 runs/town_day_rollout_001
    """


@runs.command("list")
@click.argument("folder", type=FOLDER, default=Path("runs"))
@json_option
def list_runs(folder: Path, as_json: bool) -> None:
    """List the runs in FOLDER (by default runs/), with what each has reached."""
    from townlet.policy.training.run_folder import find_runs

    rows = [_row(run) for run in find_runs(folder)]
    text = _table(rows, ("run", "mode", "config", "state", "epochs", "return", "checkpoint")) if rows else f"no runs in {folder}"
    emit(rows, text, as_json)


@runs.command()
@click.argument("folders", type=FOLDER, nargs=-1, required=True, metavar="RUN...")
@json_option
def compare(folders: tuple[Path, ...], as_json: bool) -> None:
    """Put runs side by side: what they reached, and the config keys in which they differ."""
    from townlet.policy.training.run_folder import RunFolder, config_differences

    found = [RunFolder(folder) for folder in folders]
    results = {str(run.path): _row(run) | _measures(run) for run in found}
    differences = config_differences([run.config() for run in found])
    names = list(dict.fromkeys(name for row in results.values() for name in row if name != "run"))
    rows = [{"": name} | {path: row.get(name) for path, row in results.items()} for name in names]
    rows += [{"": key} | {str(run.path): value for run, value in zip(found, values)} for key, values in differences.items()]
    columns = ("", *results)
    emit({"runs": results, "config": differences}, lambda: _table(rows, columns), as_json)


def _row(run: Any) -> dict[str, Any]:
    card, summary, latest = run.card(), run.summary(), run.latest()
    best = max((p["measures"]["return"]["value"] for p in (summary or {}).get("evaluations", ())), default=None)
    return {
        "run": str(run.path),
        "mode": card["mode"],
        "config": card["config_id"],
        "state": (summary or {}).get("status", "finished") if summary else "unfinished",
        "epochs": (summary or {}).get("epochs", int(latest.name) if latest is not None else 0),
        "return": best if best is not None else (summary or {}).get("episode_return_mean"),
        "checkpoint": None if latest is None else str(latest),
    }


def _measures(run: Any) -> dict[str, Any]:
    summary = run.summary() or {}
    return {name: summary[name] for name in (*MEASURES, "duration_sec") if summary.get(name) is not None}


def _table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> str:
    cells = [list(columns)] + [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
