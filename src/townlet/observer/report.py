"""`townlet report RUN`: a training run as one HTML file that needs nothing beside itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from townlet.dto.evaluation import CaseCard, Scorecard
from townlet.errors import DamagedFileError
from townlet.evaluation.compare import load_scorecard
from townlet.files import read_json
from townlet.observer.charts import Series, heat_strip, line_chart, picture
from townlet.observer.scoreboard import measure_notes, scoreboard
from townlet.observer.style import page
from townlet.telemetry.ndjson import read_records

JSON_LIMIT = 16 << 20
TELEMETRY = "telemetry.ndjson"
SCORECARD = "scorecard.json"
LEARNING = (  # title, unit, telemetry fields
    ("Return per episode", "", ("episode_return_mean",)),
    ("Policy and value loss", "", ("loss_policy", "loss_value")),
    ("KL to the policy before", "k3", ("kl_k3",)),
    ("Entropy", "nats", ("batch_entropy_mean",)),
    ("Explained variance", "", ("explained_variance",)),
    ("Throughput", "decisions/s", ("steps_per_second",)),
)
CONFLICT = (
    ("Conflict events", "per epoch", ("queue_conflict_events",)),
    ("Conflict intensity", "sum per epoch", ("queue_conflict_intensity_sum",)),
    ("Rivalry seen", "mean of the highest", ("conflict.rivalry_max_mean_avg",)),
    ("Waits", "mean ticks", ("queue_wait_mean",)),
    ("Inequality of waits", "Gini", ("queue_wait_gini",)),
    ("Exits", "per epoch", ("exits",)),
)


@dataclass(frozen=True)
class RunRecord:
    """What a run left behind, as far as it is there."""

    name: str
    run: Mapping[str, Any]
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    summary: Mapping[str, Any]
    stages: tuple[tuple[str, tuple[Mapping[str, Any], ...]], ...]  # telemetry records of each stage, in order
    scorecard: Scorecard | None


def read_run(folder: Path) -> RunRecord:
    if not (folder / "run.json").is_file():
        raise DamagedFileError(f"{folder} is no run folder (it has no run.json); give the folder that `townlet train` printed")
    logs = [(stage.name, stage / TELEMETRY) for stage in _stages(folder)] or [("", folder / TELEMETRY)]
    stages = tuple((name, tuple(read_records(log))) for name, log in logs if log.is_file())
    card = folder / SCORECARD
    return RunRecord(
        name=folder.resolve().name,
        run=_mapping(folder / "run.json"),
        config=_mapping(folder / "config.json"),
        environment=_mapping(folder / "environment.json"),
        summary=_mapping(folder / "summary.json"),
        stages=stages,
        scorecard=load_scorecard(card) if card.is_file() else None,
    )


def render_report(record: RunRecord, *, town: NDArray[Any] | None = None, commands: Sequence[str] = ()) -> str:
    """The page; `town` is an RGB picture (H, W, 3)."""
    parts = [f"<h1>{escape(record.name)}</h1>", f'<p class="soft">{escape(_subtitle(record))}</p>']
    if record.scorecard is not None:
        parts.append(f'<p class="lead">{escape(verdict(record.scorecard))}</p>')
        parts += [scoreboard(record.scorecard), measure_notes()]
    curves, conflict = _charts(record, LEARNING), _charts(record, CONFLICT) + _rivalry(record)
    if curves:
        parts.append(f'<h2>Learning</h2><div class="grid2">{curves}</div>')
    if conflict:
        parts.append(f'<h2>Conflict while learning</h2><div class="grid2">{conflict}</div>')
    if town is not None:
        parts.append(f"<h2>The town</h2>{picture(town, f'The town of {record.name}, seen from above')}")
    parts.append(_provenance(record))
    if commands:
        parts.append(f"<h2>Make it again</h2><pre>{escape(chr(10).join(commands))}</pre>")
    return page(f"Townlet: {escape(record.name)}", "".join(parts))


def verdict(card: Scorecard) -> str:
    """The first case in a sentence or two: the last policy against the baseline."""
    case, name = card.cases[0], card.policies[-1]
    mine = case.policy(name).measures["return"]
    if mine.mean is None or card.baseline is None or card.baseline == name:
        return f"{name} on {case.name}: return {_figure(case, name, 'return')} per resident-day."
    effect = case.policy(name).effects["return"]
    relation = "above" if effect.low > 0 else "below" if effect.high < 0 else "not told apart from"
    return (
        f"On {case.name}, {name} earns {_figure(case, name, 'return')} per resident-day, {relation} {card.baseline} at "
        f"{_figure(case, card.baseline, 'return')} (difference {effect.difference:+.2f}, 95 % interval {effect.low:+.2f} … "
        f"{effect.high:+.2f}), with {_figure(case, name, 'exits')} exits against {_figure(case, card.baseline, 'exits')} and "
        f"{_figure(case, name, 'conflicts')} conflicts against {_figure(case, card.baseline, 'conflicts')}."
    )


def _figure(case: CaseCard, policy: str, measure: str) -> str:
    value = case.policy(policy).measures[measure].mean
    return "no figure" if value is None else f"{value:.2f}"


def _subtitle(record: RunRecord) -> str:
    """Mode, config and seed, as far as the run says."""
    config_id = record.config.get("config_id", "")
    parts = [str(record.run.get("mode", "")), str(config_id), f"seed {record.config['seed']}" if "seed" in record.config else ""]
    return " · ".join(part for part in parts if part)


def _charts(record: RunRecord, table: Sequence[tuple[str, str, tuple[str, ...]]]) -> str:
    return "".join(line_chart(title, _series(record, fields), unit=unit) for title, unit, fields in table)


def _series(record: RunRecord, fields: Sequence[str]) -> list[Series]:
    """One line per field; the stages of an anneal run follow each other on one axis."""
    lines = []
    for name in fields:
        ys = [_number(entry.get(name)) for _, entries in record.stages for entry in entries]
        lines.append(Series(name.replace("_", " "), list(range(1, len(ys) + 1)), ys))
    return lines


def _rivalry(record: RunRecord) -> str:
    found = [
        (number, entry["rivalry_histogram"])
        for number, entry in enumerate((entry for _, entries in record.stages for entry in entries), start=1)
        if entry.get("rivalry_histogram")
    ]
    return heat_strip("Rivalry seen by residents", [row for _, row in found], x=[n for n, _ in found], unit="share of decisions")


def _provenance(record: RunRecord) -> str:
    flat = {key: value for key, value in record.run.items() if isinstance(value, str | int | float)}
    versions = record.environment.get("versions", {})
    shown = ", ".join(f"{name} {number}" for name, number in versions.items()) if isinstance(versions, dict) else ""
    policies = (
        {} if record.scorecard is None else {p.name: p.policy_hash for case in record.scorecard.cases for p in case.policies}
    )
    rows = [*flat.items(), ("versions", shown), *((f"policy {name}", value) for name, value in policies.items())]
    listed = "".join(f"<dt>{escape(str(key))}</dt><dd>{escape(str(value))}</dd>" for key, value in rows if value != "")
    config = escape(json.dumps(record.config, indent=2, sort_keys=True))
    return f"<h2>Config and hashes</h2><dl>{listed}</dl><details><summary>Resolved config</summary><pre>{config}</pre></details>"


def _stages(folder: Path) -> list[Path]:
    stages = folder / "stages"
    return sorted(path for path in stages.iterdir() if (path / TELEMETRY).is_file()) if stages.is_dir() else []


def _mapping(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    found = read_json(path, limit=JSON_LIMIT)
    if not isinstance(found, dict):
        raise DamagedFileError(f"{path} holds a {type(found).__name__}, expected a JSON object; make the run again")
    return found


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
