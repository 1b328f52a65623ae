"""`townlet report RUN`: a training run as one HTML file that needs nothing beside itself."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from townlet.config.models import SimulationConfig
from townlet.dto.evaluation import CaseCard, Scorecard
from townlet.dto.policy import AnnealSummary
from townlet.dto.promotion import PromotionDecision
from townlet.errors import DamagedFileError, first_problem
from townlet.evaluation.compare import load_scorecard
from townlet.evaluation.scorecard import Progress, evaluate
from townlet.evaluation.suites import Case
from townlet.evaluation.table import percent
from townlet.observer.charts import Series, heat_strip, line_chart
from townlet.observer.scoreboard import measure_notes, scoreboard
from townlet.observer.style import page
from townlet.policy.checkpoint import RUN_CHECKPOINTS
from townlet.policy.runtime import locate
from townlet.policy.training.run_folder import RunCard, RunEnvironment, RunFolder, RunSummary
from townlet.promotion.ledger import read_ledger
from townlet.telemetry.ndjson import epoch_records
from townlet.types import Record

SCORECARD = "scorecard.json"
Part = TypeVar("Part")
LEARNING = (  # title, unit, telemetry fields
    ("Return", "per resident-day", ("return_per_resident_day",)),
    ("Policy and value loss", "", ("loss_policy", "loss_value")),
    ("KL to the policy before", "k3", ("kl_k3",)),
    ("Entropy", "nats", ("batch_entropy_mean",)),
    ("Explained variance", "", ("explained_variance",)),
    ("Throughput", "decisions/s", ("steps_per_second",)),
)
CONFLICT = (
    ("Conflicts", "per resident-day", ("conflicts_per_resident_day",)),
    ("Conflict intensity", "sum per epoch", ("queue_conflict_intensity_sum",)),
    ("Rivalry seen", "mean of the highest", ("conflict.rivalry_max_mean_avg",)),
    ("Waits", "mean ticks", ("queue_wait_mean",)),
    ("Inequality of waits", "Gini", ("queue_wait_gini",)),
    ("Exits", "per resident-day", ("exits_per_resident_day",)),
    ("Shifts", "share", ("late_share", "attendance")),
)


@dataclass(frozen=True)
class RunRecord:
    """What a run left behind, as far as it is there."""

    name: str
    run: RunCard | None
    config: SimulationConfig | None
    environment: RunEnvironment | None
    summary: RunSummary | None
    records: tuple[Record, ...]  # telemetry, an anneal run's stages one after the other
    scorecard: Scorecard | None
    promotion: PromotionDecision | None = None  # the last one that a ledger has of this run
    damaged: tuple[str, ...] = ()  # a sentence for each part that could not be read


def read_run(folder: Path, log: Path | None = None) -> RunRecord:
    """`log` is the one that the run kept elsewhere, if it did. What is damaged is named, the rest is read. The ledger is the one
    that the run's config names, below the current folder."""
    kept, card, damaged = RunFolder(folder), folder / SCORECARD, list[str]()
    if not kept.exists:
        raise DamagedFileError(f"{folder} is not a run folder (it has no run.json); give the folder that `townlet train` printed")

    def part(name: str, read: Callable[[], Part], nothing: Part) -> Part:
        try:
            return read() if (folder / name).is_file() else nothing
        except DamagedFileError as error:
            damaged.append(str(error))
            return nothing

    run, summary = part("run.json", kept.card, None), part("summary.json", kept.summary, None)
    records: list[Record] = []
    log = log or kept.find_log(None if run is None else run.telemetry)
    if log is not None:
        try:
            records.extend(epoch_records(log))
        except DamagedFileError as error:  # what stands before it is kept
            damaged.append(str(error))
    config, judged = part("config.json", kept.resolved_config, None), list[PromotionDecision]()
    if run is not None and config is not None:
        try:
            entries = read_ledger(Path(config.promotion.ledger))
            judged = [one.decision for one in entries if one.decision and one.evidence and one.evidence.run_id == run.run_id]
        except DamagedFileError as error:
            damaged.append(str(error))
    return RunRecord(
        name=folder.resolve().name,
        run=run,
        config=config,
        environment=part("environment.json", kept.environment, None),
        summary=summary,
        records=tuple(records),
        scorecard=part(SCORECARD, lambda: load_scorecard(card), None),
        promotion=judged[-1] if judged else None,
        damaged=tuple(damaged),
    )


def policies_of(folder: Path) -> dict[str, str]:
    """Checkpoints of a run worth comparing: `bc`, the imitation an anneal run began with, and `trained`, the best of the run."""
    found: dict[str, str] = {}
    imitations = [stage for stage in sorted((folder / "stages").glob("*bc*")) if (stage / RUN_CHECKPOINTS).is_dir()]
    if imitations:
        found["bc"] = locate(str(imitations[0]))
    if os.path.lexists(folder / RUN_CHECKPOINTS):
        found["trained"] = locate(str(folder))
    return found


def measure_run(folder: Path, *, towns: int = 16, days: int = 28, progress: Progress | None = None) -> Scorecard:
    """Random, both scripts, imitation and trained (drawing its actions) in the run's own town."""
    config = RunFolder(folder).resolved_config()
    case = Case(config.config_id, config.config_id, towns=towns, days=days, config=config)
    known = {name: name for name in ("random", "scripted_plain", "scripted", config.evaluation.baseline)}
    return evaluate(known | policies_of(folder), [case], progress=progress)


def render_report(record: RunRecord, *, town: str = "", commands: Sequence[str] = ()) -> str:
    """The page; `town` is a figure of the town as HTML."""
    parts = [f"<h1>{escape(record.name)}</h1>", f'<p class="soft">{escape(_subtitle(record))}</p>']
    parts += [f'<p class="lead">Damaged: {escape(sentence)}</p>' for sentence in record.damaged]
    if record.scorecard is not None:
        parts.append(f'<p class="lead">{escape(verdict(record.scorecard))}</p>')
        parts += [scoreboard(record.scorecard), measure_notes()]
    parts.append(_anneal(record.summary, record.promotion))
    curves, conflict = _held_out(record) + _charts(record, LEARNING), _charts(record, CONFLICT) + _rivalry(record)
    if curves:
        parts.append(f'<h2>Learning</h2><div class="grid2">{curves}</div>')
    if conflict:
        parts.append(f'<h2>Conflict while learning</h2><div class="grid2">{conflict}</div>')
    if town:
        parts.append(f"<h2>The town</h2>{town}")
    parts.append(_provenance(record))
    if commands:
        parts.append(f"<h2>Make it again</h2><pre>{escape(chr(10).join(commands))}</pre>")
    return page(f"Townlet: {escape(record.name)}", "".join(parts))


def _anneal(summary: RunSummary | None, promotion: PromotionDecision | None) -> str:
    """What an anneal run came to, and what promotion said of it: at its end, or later."""
    if summary is None or summary.strategy != "anneal" or summary.status is None:
        return ""
    try:
        result = AnnealSummary.model_validate_json(summary.model_dump_json(exclude_unset=True))
        told = (result if promotion is None else result.model_copy(update={"promotion": promotion})).told()
    except ValidationError as error:
        told = (f"summary.json does not tell what the stages came to ({first_problem(error)})",)
    lines = "".join(f"<li>{escape(line.strip())}</li>" for line in told)
    return f"<h2>Verdict</h2><ul>{lines}</ul>"


def verdict(card: Scorecard) -> str:
    """The first case in a sentence or two: the last policy against the baseline."""
    case, name = card.cases[0], card.policies[-1]
    mine = case.policy(name).measures["return"]
    if mine.mean is None or card.baseline is None or card.baseline == name:
        return f"{name} on {case.name}: return {_figure(case, name, 'return')} per resident-day."
    effect = case.policy(name).effects["return"]
    relation = {1: "more than", -1: "less than", 0: "not clearly different from"}[effect.sign]
    ends = "one town" if effect.low is None else f"{percent(card.level)} interval {effect.low:+.2f} … {effect.high:+.2f}"
    return (
        f"In {case.name}, {name} earns {_figure(case, name, 'return')} per resident-day, {relation} {card.baseline} with "
        f"{_figure(case, card.baseline, 'return')} (difference {effect.difference:+.2f}, {ends}). "
        f"Exits per resident-day: {_figure(case, name, 'exits')} against {_figure(case, card.baseline, 'exits')}. "
        f"Conflicts: {_figure(case, name, 'conflicts')} against {_figure(case, card.baseline, 'conflicts')}."
    )


def _figure(case: CaseCard, policy: str, measure: str) -> str:
    value = case.policy(policy).measures[measure].mean
    return "no figure" if value is None else f"{value:.2f}"


def _subtitle(record: RunRecord) -> str:
    """Mode, config and seed, as far as the run says."""
    parts = [] if record.run is None else [record.run.mode]
    parts += [] if record.config is None else [record.config.config_id, f"seed {record.config.seed}"]
    return " · ".join(parts)


def _held_out(record: RunRecord) -> str:
    """Periodic evaluations and the ends of stages on held-out seeds, against the scripted level."""
    points = [] if record.summary is None else record.summary.all_evaluations()
    x = list(range(1, len(points) + 1))
    scripted = None
    if record.scorecard is not None and "scripted" in record.scorecard.policies:
        scripted = record.scorecard.cases[0].policy("scripted").measures["return"].mean
    found = [point.measures.get("return") for point in points]
    ends = [(None, None, None) if one is None else (one.value, one.low, one.high) for one in found]
    lines = [Series(name, x, [end[k] for end in ends]) for k, name in enumerate(("mean", "low", "high"))]
    return line_chart("Return on held-out seeds", lines, unit="dashed: scripted", x_label="evaluation", level=scripted)


def _charts(record: RunRecord, table: Sequence[tuple[str, str, tuple[str, ...]]]) -> str:
    return "".join(line_chart(title, _series(record, fields), unit=unit) for title, unit, fields in table)


def _series(record: RunRecord, fields: Sequence[str]) -> list[Series]:
    """One line per field, over the records in the order they were written."""
    lines = []
    for name in fields:
        ys = [_number(entry.get(name)) for entry in record.records]
        lines.append(Series(name.replace("_", " "), list(range(1, len(ys) + 1)), ys))
    return lines


def _rivalry(record: RunRecord) -> str:
    found = [
        (number, entry["rivalry_histogram"])
        for number, entry in enumerate(record.records, start=1)
        if entry.get("rivalry_histogram")
    ]
    return heat_strip("Rivalry seen by residents", [row for _, row in found], x=[n for n, _ in found], unit="share of decisions")


def _provenance(record: RunRecord) -> str:
    flat = {} if record.run is None else record.run.model_dump(exclude_none=True)
    versions = {} if record.environment is None else record.environment.versions
    shown = ", ".join(f"{name} {number}" for name, number in versions.items())
    policies = (
        {} if record.scorecard is None else {p.name: p.policy_hash for case in record.scorecard.cases for p in case.policies}
    )
    rows = [*flat.items(), ("versions", shown), *((f"policy {name}", value) for name, value in policies.items())]
    listed = "".join(f"<dt>{escape(str(key))}</dt><dd>{escape(str(value))}</dd>" for key, value in rows if value != "")
    resolved = {} if record.config is None else record.config.model_dump(mode="json")
    config = escape(json.dumps(resolved, indent=2, sort_keys=True))
    return f"<h2>Config and hashes</h2><dl>{listed}</dl><details><summary>Resolved config</summary><pre>{config}</pre></details>"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
