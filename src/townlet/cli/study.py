"""`townlet study`: arms × seeds of an experiment."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from townlet.cli.common import PATH, TEXT, Whole, emit, json_option, note, options, spread_over
from townlet.errors import UsageError

if TYPE_CHECKING:
    from townlet.config.learning import TrainingConfig
    from townlet.dto.studies import Contrast, StudyReport
    from townlet.studies.spec import StudySpec

results_option = click.option(
    "--results", type=PATH, default=Path("benchmarks/learning/results"), show_default=True, help="Folder of finished jobs."
)
runs_option = click.option(
    "--runs", type=PATH, default=Path("runs/studies"), show_default=True, help="Folder of the training runs."
)
job_options = options(
    click.option("--engine", default="process", show_default=True, metavar="NAME", help="Where jobs run: process, ray or local."),
    click.option(
        "--processes",
        "--workers",
        "workers",
        type=Whole(0, 4096),
        default=2,
        show_default=True,
        help="Jobs at once, of one thread each; 0: as many as there are cores.",
    ),
    click.option("--address", metavar="HOST:PORT", help="A running Ray cluster, with --engine ray."),
)


report_option = click.option("--output", type=TEXT, help="Write the report: .json for data, anything else for markdown.")


@click.command()
@click.argument("spec", type=PATH)
@click.option("--job", metavar="ARM:SEED", help="Run this one job here and now, and nothing else.")
@click.option("--report-only", is_flag=True, help="Run nothing; report on what is finished.")
@results_option
@runs_option
@job_options
@report_option
@json_option
def study(
    spec: Path,
    job: str | None,
    report_only: bool,
    results: Path,
    runs: Path,
    engine: str,
    workers: int,
    address: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Run every arm of SPEC on every seed, keep finished jobs, report the contrasts. Run it again to continue after a stop.

    \b
    A study file:
      name: two_bathrooms_sight
      config: two_bathrooms
      minutes: 4
      seeds: 5
      arms: {sighted: [], blind: ["observations.blind=[conflict]"]}
      contrasts: [[sighted, blind]]

    \b
    Example:
      townlet study benchmarks/learning/two_bathrooms_sight.yaml
    """
    from townlet.studies.runner import report_study, results_file, run_job, run_study
    from townlet.studies.spec import load_spec

    plan = load_spec(spec)
    if job is not None:
        arm, _, seed = job.rpartition(":")
        if not arm or not seed.isdigit():
            raise UsageError(f"--job {job!r} is not ARM:SEED; write, for instance, {next(iter(plan.arms))}:0")
        result = run_job(plan, arm, int(seed), results=results, runs=runs)
        emit(result.model_dump(mode="json"), f"{arm}, seed {seed}: kept in {results_file(plan, results)}", as_json)
        return
    found = (
        report_study(plan, results=results)
        if report_only
        else run_study(plan, results=results, runs=runs, where=where_of(plan, engine, workers, address), say=note)
    )
    publish(found, output, as_json)


def where_of(plan: StudySpec, engine: str, workers: int, address: str | None) -> TrainingConfig:
    """On which engine, with what the first arm says of a cluster."""
    from townlet.studies.spec import job_of

    return spread_over(job_of(plan, next(iter(plan.arms)), 0).config, engine, workers, address)


def publish(report: StudyReport, output: Path | None, as_json: bool) -> None:
    from townlet.files import write_json, write_text

    if output is not None and output.suffix == ".json":
        write_json(output, report.model_dump(mode="json"))
    elif output is not None:
        write_text(output, report_text(report) + "\n")
    if output is not None:
        note(f"report written to {output}")
    emit(report.model_dump(mode="json"), lambda: (narrow_text if sys.stdout.isatty() else report_text)(report), as_json)


def _opening(report: StudyReport) -> list[str]:
    budget = f"{report.minutes:g} minutes" if report.minutes is not None else "a fixed number of epochs"
    towns = report.results[0].towns if report.results else 0
    lines = [f"# {report.study}", "", f"`{report.command}`", ""]
    lines += [f"{len(report.results)} jobs of {budget} each on `{report.config}`, measured in {towns} held-out towns.", ""]
    if report.older:
        lines += [f"{report.older} of them are of another config or version of Townlet; the command trains those again.", ""]
    return lines


def narrow_text(report: StudyReport) -> str:
    """The report for a terminal: a row per measure, the lowest and the highest seed of each arm, then every contrast."""
    from townlet.evaluation.table import COLUMNS, percent
    from townlet.telemetry.drawing import table

    per_arm: dict[str, list[list[str]]] = {}
    for key in COLUMNS:
        for arm in dict.fromkeys(one.arm for one in report.results):
            found = [mean for one in report.results if one.arm == arm and (mean := one.measures[key].mean) is not None]
            cells = [_figure(base[key].mean, key) for base in report.baselines.values()]
            ends = [_figure(value, key) for value in (sum(found) / len(found), min(found), max(found))] if found else [""] * 3
            per_arm.setdefault(arm, []).append([key, *cells, *ends])
    lines = _opening(report)
    for arm, rows in per_arm.items():
        lines += [*table(("measure", *report.baselines, arm, "lowest seed", "highest seed"), rows), ""]
    head = ("measure", "difference", f"{percent(report.level)} interval", "p, corrected")
    for pair in dict.fromkeys((row.arm, row.against) for row in report.contrasts):
        chosen = [row for row in report.contrasts if (row.arm, row.against) == pair and row.measure in COLUMNS]
        rows = [[str(cell) for cell in _contrast(row)[1 : 1 + len(head)]] for row in chosen]
        lines += [f"{' − '.join(pair)}, {max(row.seeds for row in chosen)} seeds", *table(head, rows), ""]
    return "\n".join([*lines, "A file or a pipe gets every seed, as Markdown; --json gives everything."])


def report_text(report: StudyReport) -> str:
    """A study's report as Markdown: the baselines, the arms, and every contrast with its interval."""
    from townlet.evaluation.table import COLUMNS, percent
    from townlet.telemetry.drawing import pipes

    lines = _opening(report)
    measured = [((name, ""), measures) for name, measures in report.baselines.items()]
    trained = sorted(report.results, key=lambda one: (one.arm, one.seed))
    measured += [((result.arm, str(result.seed)), result.measures) for result in trained]
    rows = [(*whose, *(_figure(measures[key].mean, key) for key in COLUMNS)) for whose, measures in measured]
    lines += [*pipes(("arm", "seed", *COLUMNS), rows, right=range(2, 2 + len(COLUMNS))), *_times(report), ""]
    head = ("contrast", "measure", "difference", f"{percent(report.level)} interval", "p, corrected", "Cohen's d", "seeds")
    contrasts = [_contrast(row) for row in report.contrasts if row.measure in COLUMNS]
    return "\n".join(lines + pipes(head, contrasts, right=(2, 4, 5, 6)))


def _times(report: StudyReport) -> list[str]:
    """How long the training of each arm took, on one core."""
    lines = []
    for arm in sorted({result.arm for result in report.results}):
        used = [one.processor_seconds for one in report.results if one.arm == arm and one.processor_seconds is not None]
        if used:
            lines.append(f"- {arm}: {min(used):.0f} to {max(used):.0f} seconds of processor time per training, {len(used)} known")
    return ["", *lines] if lines else []


def _contrast(row: Contrast) -> tuple[object, ...]:
    interval = "one seed" if row.low is None or row.high is None else f"{row.low:+.3f} … {row.high:+.3f}"
    d = "" if row.cohens_d is None else f"{row.cohens_d:+.2f}"
    p = "" if row.p is None else "< 0.001" if row.p < 0.001 else f"{row.p:.3f}"
    return f"{row.arm} − {row.against}", row.measure, f"{row.difference:+.3f}", interval, p, d, row.seeds


def _figure(value: float | None, key: str) -> str:
    from townlet.dto.evaluation import MEASURES

    return "" if value is None else f"{value:z.{MEASURES[key].decimals}f}"
