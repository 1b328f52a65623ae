"""`townlet telemetry`: validate, watch, summarise, compare, draw and export the NDJSON log of a training run."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from townlet.cli.common import (
    COUNT,
    LOG,
    NUMBER,
    PATH,
    PICTURE,
    TEXT,
    Group,
    Number,
    Whole,
    dumps,
    emit,
    fit,
    json_option,
    leave,
    note,
)
from townlet.cli.telemetry_watch import watch
from townlet.errors import TelemetryError, UsageError

if TYPE_CHECKING:
    from townlet.telemetry.drift import DriftReport, LogDrift
    from townlet.telemetry.validate import Report

LOGS = click.argument("logs", nargs=-1, required=True, type=LOG, metavar="LOG...")


@click.group(cls=Group)
def telemetry() -> None:
    """Validate, watch, summarise, compare, draw and export training logs: a LOG is an NDJSON file or the folder of a run.

    \b
    Examples:
      townlet telemetry watch runs/demo
      townlet telemetry summary runs/demo --format markdown
    """


telemetry.add_command(watch)


# --- validate --------------------------------------------------------------------------------------------------------


@telemetry.command()
@LOGS
@click.option(
    "--baseline", type=LOG, help="JSON of metrics, capture metrics or another log (epoch by epoch) to measure drift against."
)
@click.option("--drift-threshold", type=NUMBER, help="Fail when a metric of any epoch is further than this from the baseline.")
@click.option("--relative", is_flag=True, help="Measure drift in shares of the baseline instead of absolutely.")
@click.option("--limit", type=COUNT, default=100, show_default=True, help="Problems shown; all are counted.")
@json_option
def validate(
    logs: tuple[Path, ...], baseline: Path | None, drift_threshold: float | None, relative: bool, limit: int, as_json: bool
) -> None:
    """Check logs and show every problem. Versions 1 to 1.4, rotated parts included; each problem with its line and key.

    Without --baseline, --relative and --drift-threshold compare each epoch with the first. Exits with 1 when something is wrong.

    \b
    Examples:
      townlet telemetry validate runs/demo
      townlet telemetry validate runs/new --baseline runs/old --relative
    """
    from townlet.telemetry.drift import log_drift, read_baseline, read_epochs
    from townlet.telemetry.validate import validate_log, whole_logs

    report = validate_log(logs, limit=limit)
    drift = None
    if report.ok and (baseline is not None or drift_threshold is not None or relative):
        expected = None if baseline is None else read_baseline(baseline)
        epochs = None if baseline is None else read_epochs(baseline)
        drift = log_drift(whole_logs(logs), expected, epochs=epochs, threshold=drift_threshold, relative=relative, limit=limit)
    ok = report.ok and (drift is None or drift.ok)
    value = report.as_dict() | {"ok": ok, "drift": drift and drift.as_dict()}
    emit(value, lambda: "\n".join([*report_lines(report), *([] if drift is None else drift_lines(drift))]), as_json)
    leave(0 if ok else 1)


def report_lines(report: Report) -> list[str]:
    lines = [str(problem) for problem in report.problems]
    if report.problem_count > len(report.problems):
        lines.append(f"… and {report.problem_count - len(report.problems)} more (--limit)")
    lines += [f"note: {remark}" for remark in report.notes]
    versions = ", ".join(f"{count} of version {version}" for version, count in sorted(report.versions.items()))
    batches = f" and {report.batches} batch records" if report.batches else ""
    verdict = "valid" if report.ok else f"{report.problem_count} problem{'s' * (report.problem_count > 1)}"
    parts = f" in {len(report.files)} files" if len(report.files) > 1 else ""
    of_versions = f" ({versions})" if versions else ""
    lines.append(f"{verdict}: {report.records} records{batches}{parts}{of_versions}")
    bare = report.records + report.batches - report.sealed
    if bare > 0:
        lines.append(f"{bare} of them have no seal, so a changed number in them would not be noticed")
    return lines


def drift_lines(drift: LogDrift) -> list[str]:
    from townlet.telemetry.drawing import short

    lines = []
    for epoch, delta in drift.beyond:
        how = f"{delta.relative:+.2%}" if drift.relative else f"{delta.absolute:+.6g}"
        lines.append(
            f"drift in epoch {short(epoch)}: {delta.name} is {short(delta.value)}, baseline {short(delta.baseline)} ({how})"
        )
    if drift.beyond_count > len(drift.beyond):
        lines.append(f"… and {drift.beyond_count - len(drift.beyond)} more (--limit)")
    lines.append(f"drift in total over {drift.records} records:")
    for delta in drift.total:
        epoch, worst = drift.worst[delta.name]
        lines.append(
            f"  {delta.name}: mean {short(delta.value)}, baseline {short(delta.baseline)}, "
            f"{delta.absolute:+.6g} ({delta.relative:+.2%}); "
            f"furthest in epoch {short(epoch)}: {worst.absolute:+.6g} ({worst.relative:+.2%})"
        )
    return lines


# --- summary, drift, plot, export ------------------------------------------------------------------------------------


@telemetry.command()
@click.argument("log", type=LOG)
@click.option("--baseline", type=LOG, help="JSON of metrics, capture metrics or another log to compare with.")
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "markdown", "json")),
    default="text",
    show_default=True,
    help="How to write it.",
)
@click.option("--output", type=TEXT, help="Write here instead of to the screen.")
@json_option
def summary(log: Path, baseline: Path | None, form: str, output: Path | None, as_json: bool) -> None:
    """Summarise a log: latest values, extremes, trends, drift. Its memory does not grow with the log.

    \b
    Example:
      townlet telemetry summary runs/demo --format markdown > summary.md
    """
    from townlet.files import write_text
    from townlet.telemetry.drift import read_baseline
    from townlet.telemetry.summary import as_markdown, as_text, summarise

    found = summarise(log, baseline=None if baseline is None else read_baseline(baseline))
    if not found.records:
        raise TelemetryError(f"{log} holds no epoch record; give the log of a training run")
    form = "json" if as_json else form
    width = shutil.get_terminal_size((80, 24)).columns if output is None and sys.stdout.isatty() else None
    if form == "text":
        text = as_text(found, width)
    else:
        text = as_markdown(found) if form == "markdown" else dumps(found.as_dict()) + "\n"
    if output is None:
        click.echo(fit(text, sys.stdout) if form == "text" else text, nl=False)
    else:
        write_text(output, text)


@telemetry.command()
@click.argument("log", type=LOG)
@click.option("--baseline", type=LOG, required=True, help="The log to compare with.")
@click.option("--metric", "metrics", multiple=True, help="Compare these fields instead of the default ones.")
@click.option("--window", type=NUMBER, default=0.5, show_default=True, help="Share of the epochs compared, from the end.")
@click.option(
    "--level",
    type=Number(0, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="Confidence over all metrics together.",
)
@click.option("--min-effect", type=NUMBER, default=0.05, show_default=True, help="Smallest relative difference that alarms.")
@click.option("--max-distance", type=NUMBER, default=0.1, show_default=True, help="Largest distance between histograms.")
@json_option
def drift(log: Path, baseline: Path, metrics: tuple[str, ...], as_json: bool, **options: float) -> None:
    """Compare two logs, epoch by epoch. Differences with bootstrap intervals, distances of histograms, change points.

    Exits with 1 when a metric has drifted.

    \b
    Example:
      townlet telemetry drift runs/new --baseline runs/release
    """
    from townlet.telemetry.drift import DRIFT_NAMES, compare_logs
    from townlet.telemetry.schema import declared, field

    for name in metrics:
        if not declared(name) or not field(name).numeric:
            raise UsageError(f"--metric {name} is not a numeric field; docs/telemetry/REFERENCE.md lists the fields")
    report = compare_logs(log, baseline, metrics or DRIFT_NAMES, **options)
    emit(report.as_dict(), lambda: comparison_text(report), as_json)
    leave(1 if report.alarms else 0)


def comparison_text(report: DriftReport) -> str:
    from townlet.telemetry.drawing import short, table

    rows = []
    for row in report.metrics:
        change = f"at {row.change.at}" if row.change is not None and row.change.p_value < 0.01 else "–"
        interval = f"{short(row.low)} … {short(row.high)}"
        verdict = "DRIFT" if row.alarm else ""
        figures = (short(row.value), short(row.baseline), f"{row.relative:+.1%}", verdict)
        rows.append((row.name, *figures, short(row.absolute), interval, change))
    for mix in report.mixes:
        verdict = "DRIFT" if mix.alarm else ""
        rows.append((mix.name, "", "", f"{mix.distance:.1%}", verdict, f"{mix.distance:.3f}", f"p = {mix.p_value:.3f}", ""))
    head = ("metric", "value", "baseline", "relative", "verdict", "difference", "interval", "change")
    drawn = table(head, rows, left=(0, 4))
    if sys.stdout.isatty() and len(drawn[1]) > shutil.get_terminal_size((80, 24)).columns:
        drawn = table(head[:5], [row[:5] for row in rows], left=(0, 4))
        drawn.append("a wider terminal, a file and --json also show difference, interval and change")
    verdict = f"drifted: {', '.join(report.alarms)}" if report.alarms else "no drift"
    return "\n".join([f"{report.current} against {report.baseline}", "", *drawn, "", verdict])


@telemetry.command()
@LOGS
@click.option("--output", "-o", type=PICTURE, help="A .png or .svg; without it the curves are drawn in the terminal.")
@click.option("--label", "labels", multiple=True, help="Name of a log in the legend, one per log.")
@click.option("--title", default="", help="Title of the figure.")
@click.option("--width", type=Whole(30, 400), default=80, show_default=True, help="Columns of the terminal drawing.")
@json_option
def plot(logs: tuple[Path, ...], output: Path | None, labels: tuple[str, ...], title: str, width: int, as_json: bool) -> None:
    """Draw the curves of one or more logs. Losses, KL, entropy, returns, conflicts, waits, rivalry, throughput.

    \b
    Example:
      townlet telemetry plot runs/a runs/b --output curves.svg
    """
    from townlet.telemetry.plot import plot_logs, read_runs, terminal
    from townlet.telemetry.validate import whole_logs

    paths = whole_logs(logs)
    if output is None:
        drawn = terminal(read_runs(paths, labels), width=width)
        emit({"drawing": drawn.splitlines()}, drawn, as_json)
        return
    plot_logs(paths, output, labels=labels, title=title)
    if as_json:
        click.echo(dumps({"output": str(output)}))
    else:
        note(f"{output} written")


@telemetry.command()
@click.argument("log", type=LOG)
@click.option("--format", "form", required=True, help="tensorboard, csv, parquet, wandb, mlflow or prometheus.")
@click.option("--output", "-o", type=PATH, required=True, help="File, or folder for TensorBoard, W&B and MLflow.")
@click.option("--overwrite", is_flag=True, help="Replace existing output (a folder is moved aside).")
@json_option
def export(log: Path, form: str, output: Path, overwrite: bool, as_json: bool) -> None:
    """Write a log for other tools.

    \b
    Example:
      townlet telemetry export runs/demo --format csv --output demo.csv
    """
    from townlet.telemetry.export import export as write

    write(log, output, form, overwrite=overwrite)
    if as_json:
        click.echo(dumps({"output": str(output), "format": form}))
    else:
        note(f"{output} written")
