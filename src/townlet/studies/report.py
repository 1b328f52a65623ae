"""A study's report as Markdown: the baselines, the arms, and every contrast with its interval."""

from __future__ import annotations

from townlet.dto.evaluation import MEASURES
from townlet.dto.studies import Contrast, StudyReport
from townlet.evaluation.table import COLUMNS, percent


def report_text(report: StudyReport) -> str:
    lines = [f"# {report.study}", "", f"`{report.command}`", ""]
    budget = f"{report.minutes:g} minutes" if report.minutes is not None else "a fixed number of epochs"
    towns = report.results[0].towns if report.results else 0
    lines += [f"{len(report.results)} jobs of {budget} each on `{report.config}`, measured in {towns} held-out towns.", ""]
    if report.older:
        lines += [f"{report.older} of them are of another config or version of Townlet; the command trains those again.", ""]
    lines += ["| arm | seed | " + " | ".join(COLUMNS) + " |", "| --- | --- | " + " | ".join("---:" for _ in COLUMNS) + " |"]
    for name, measures in report.baselines.items():
        cells = " | ".join(_figure(measures[key].mean, key) for key in COLUMNS)
        lines.append(f"| {name} | | {cells} |")
    for result in sorted(report.results, key=lambda one: (one.arm, one.seed)):
        cells = " | ".join(_figure(result.measures[key].mean, key) for key in COLUMNS)
        lines.append(f"| {result.arm} | {result.seed} | {cells} |")
    lines += [
        *_times(report),
        "",
        f"| contrast | measure | difference | {percent(report.level)} interval | p, corrected | Cohen's d | seeds |",
        "| --- | --- | ---: | --- | ---: | ---: | ---: |",
    ]
    lines += [_contrast(row) for row in report.contrasts if row.measure in COLUMNS]
    return "\n".join(lines)


def _times(report: StudyReport) -> list[str]:
    """How long the training of each arm took, on one core."""
    lines = []
    for arm in sorted({result.arm for result in report.results}):
        used = [one.processor_seconds for one in report.results if one.arm == arm and one.processor_seconds is not None]
        if used:
            lines.append(f"- {arm}: {min(used):.0f} to {max(used):.0f} seconds of processor time per training, {len(used)} known")
    return ["", *lines] if lines else []


def _contrast(row: Contrast) -> str:
    interval = "one seed" if row.low is None or row.high is None else f"{row.low:+.3f} … {row.high:+.3f}"
    d = "" if row.cohens_d is None else f"{row.cohens_d:+.2f}"
    p = "" if row.p is None else "< 0.001" if row.p < 0.001 else f"{row.p:.3f}"
    return f"| {row.arm} − {row.against} | {row.measure} | {row.difference:+.3f} | {interval} | {p} | {d} | {row.seeds} |"


def _figure(value: float | None, key: str) -> str:
    return "" if value is None else f"{value:.{MEASURES[key].decimals}f}"
