"""What a run did, on one screen: latest, extremes and trend of every number, conflicts, anneal state, drift.

One pass over the log, in memory that does not grow with it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as member
from pathlib import Path

import numpy as np

from townlet.telemetry.drawing import pipes, short, sparkline, table
from townlet.telemetry.drift import Delta, finite
from townlet.telemetry.ndjson import read_records
from townlet.telemetry.schema import FIELDS, RIVALRY_BINS, field
from townlet.telemetry.series import batched, number, series_of
from townlet.types import Doubles, Record

SKETCH = 64  # points kept for a sparkline
HIDDEN = ("telemetry_version", "epoch", "log_stream_offset", "cycle_id", "anneal_cycle")  # told in the head of a summary
NUMBERS = tuple(item.name for item in FIELDS if item.numeric and item.name not in HIDDEN)
ANNEAL = tuple(item.name for item in FIELDS if item.name.startswith("anneal_"))


class Sketch:
    """A curve in at most `SKETCH` means of equally many neighbours; when it is full, neighbours are joined."""

    def __init__(self) -> None:
        self.points: Doubles = np.empty(0)
        self._each = 1  # values per point
        self._rest: Doubles = np.empty(0)  # fewer values than a point needs

    def add(self, values: Doubles) -> None:
        waiting = np.concatenate((self._rest, values))
        whole = len(waiting) // self._each * self._each
        self.points = np.concatenate((self.points, waiting[:whole].reshape(-1, self._each).mean(axis=1)))
        self._rest = waiting[whole:]
        while len(self.points) > SKETCH:
            odd = self.points[len(self.points) & ~1 :]
            self.points = self.points[: len(self.points) & ~1].reshape(-1, 2).mean(axis=1)
            self._rest = np.concatenate((np.repeat(odd, self._each), self._rest))
            self._each *= 2

    def curve(self) -> Doubles:
        return np.append(self.points, self._rest.mean()) if self._rest.size else self.points


@dataclass(slots=True)
class FieldSummary:
    """One number over the run. The trend is the slope of a line fitted over the record number, times the number of records."""

    name: str
    count: int = 0
    first: float = math.nan
    latest: float = math.nan
    low: float = math.inf
    low_epoch: float = math.nan
    high: float = -math.inf
    high_epoch: float = math.nan
    mean: float = 0.0
    _x: float = 0.0
    _xx: float = 0.0
    _xy: float = 0.0
    _yy: float = 0.0
    sketch: Sketch = member(default_factory=Sketch)

    def add(self, values: Doubles, places: Doubles, epochs: Doubles) -> None:
        """Some finite values (n,), the numbers of their records and their epochs. Sums of squares are joined pairwise."""
        if self.count == 0:
            self.first = float(values[0])
        self.latest = float(values[-1])
        lowest, highest = int(values.argmin()), int(values.argmax())
        if values[lowest] < self.low:
            self.low, self.low_epoch = float(values[lowest]), float(epochs[lowest])
        if values[highest] > self.high:
            self.high, self.high_epoch = float(values[highest]), float(epochs[highest])
        n, old = len(values), self.count
        x, y = float(places.mean()), float(values.mean())
        gap_x, gap_y, share = x - self._x, y - self.mean, old * n / (old + n)
        self._xx += float(((places - x) ** 2).sum()) + gap_x * gap_x * share
        self._xy += float(((places - x) * (values - y)).sum()) + gap_x * gap_y * share
        self._yy += float(((values - y) ** 2).sum()) + gap_y * gap_y * share
        self.count = old + n
        self._x += gap_x * n / self.count
        self.mean += gap_y * n / self.count
        self.sketch.add(values)

    @property
    def std(self) -> float:
        return math.sqrt(max(self._yy, 0.0) / (self.count - 1)) if self.count > 1 else 0.0

    @property
    def trend(self) -> float:
        """Fitted change from the first to the last record."""
        return self._xy / self._xx * (self.count - 1) if self.count > 1 and self._xx else 0.0

    def as_dict(self) -> Record:
        return {
            "unit": field(self.name).unit,
            "count": self.count,
            "first": self.first,
            "latest": self.latest,
            "min": self.low,
            "min_epoch": finite(self.low_epoch),
            "max": self.high,
            "max_epoch": finite(self.high_epoch),
            "mean": self.mean,
            "std": self.std,
            "trend": self.trend,
        }


@dataclass(slots=True)
class Summary:
    path: str
    records: int = 0
    batches: int = 0
    runs: list[str] = member(default_factory=list)
    versions: Counter[str] = member(default_factory=Counter)
    modes: Counter[str] = member(default_factory=Counter)
    epoch: float = math.nan
    cycle: float = math.nan
    steps: float = math.nan
    seconds: float = 0.0
    columns: dict[str, FieldSummary] = member(default_factory=dict)
    reasons: Counter[str] = member(default_factory=Counter)
    rivalry: list[float] | None = None  # histogram of the latest record that has one
    anneal: Record = member(default_factory=dict)
    stages: dict[str, str] = member(default_factory=dict)  # anneal cycle → stage, and whether a guard fired
    drift: list[Delta] = member(default_factory=list)

    def as_dict(self) -> Record:
        plain: Record = {
            "path": self.path,
            "records": self.records,
            "batches": self.batches,
            "runs": self.runs,
            "versions": dict(self.versions),
            "modes": dict(self.modes),
            "epoch": finite(self.epoch),
            "cycle": finite(self.cycle),
            "steps": finite(self.steps),
            "seconds": self.seconds,
            "reasons": dict(self.reasons),
            "rivalry": self.rivalry,
            "anneal": self.anneal,
            "stages": self.stages,
        }
        plain["metrics"] = {name: column.as_dict() for name, column in self.columns.items()}
        plain["drift"] = [delta.as_record() for delta in self.drift]
        return plain


def summarise(path: Path | str, *, baseline: Mapping[str, float] | None = None) -> Summary:
    return summarise_records(read_records(path), str(path), baseline=baseline)


def summarise_records(
    records: Iterable[Mapping[str, object]], path: str = "-", *, baseline: Mapping[str, float] | None = None
) -> Summary:
    summary = Summary(path)
    for chunk in batched(records):
        epochs = [record for record in chunk if record.get("kind") != "batch"]
        summary.batches += len(chunk) - len(epochs)
        if epochs:
            with np.errstate(over="ignore", invalid="ignore"):  # numbers near the largest there are
                _add_numbers(summary, epochs)
            for record in epochs:
                _add(summary, record)
    if baseline is not None:
        for name, expected in baseline.items():
            column = summary.columns.get(name) or summary.columns.get("baseline_" + name)
            if column is not None:
                summary.drift.append(Delta(column.name, column.mean, expected))
    return summary


def _add_numbers(summary: Summary, records: Sequence[Mapping[str, object]]) -> None:
    series = series_of(records, ("epoch", *NUMBERS))
    places = np.arange(summary.records, summary.records + len(records), dtype=np.float64)
    for name in NUMBERS:
        values = series.columns[name]
        there = np.isfinite(values)
        if there.any():
            summary.columns.setdefault(name, FieldSummary(name)).add(values[there], places[there], series.columns["epoch"][there])


def _add(summary: Summary, record: Mapping[str, object]) -> None:
    summary.records += 1
    version = number(record.get("telemetry_version"))
    summary.versions["unknown" if math.isnan(version) else f"{version:g}"] += 1
    if "data_mode" in record:
        summary.modes[str(record["data_mode"])] += 1
    run = record.get("run_id")
    if isinstance(run, str) and run not in summary.runs and len(summary.runs) < SKETCH:
        summary.runs.append(run)
    summary.epoch, summary.cycle = number(record.get("epoch")), number(record.get("cycle_id"))
    summary.steps = number(record.get("steps"))
    seconds = number(record.get("epoch_duration_sec"))
    summary.seconds += 0.0 if math.isnan(seconds) else seconds
    reasons = record.get("conflict_reasons")
    if isinstance(reasons, dict):
        for reason, count in reasons.items():
            summary.reasons[reason] += int(count)
    histogram = record.get("rivalry_histogram")
    if isinstance(histogram, list) and len(histogram) == RIVALRY_BINS:
        summary.rivalry = histogram
    state = {name: record[name] for name in ANNEAL if record.get(name) is not None}
    if state:
        summary.anneal = state
        fired = [name.removeprefix("anneal_").removesuffix("_flag") for name in state if name.endswith("_flag") and state[name]]
        label = str(state.get("anneal_stage", "?")) + (f" (guard: {', '.join(fired)})" if fired else "")
        summary.stages[f"{number(state.get('anneal_cycle')):g}"] = label


# --- as text ---------------------------------------------------------------------------------------------------------

HEAD = ("metric", "latest", "mean", "min", "at", "max", "at", "trend")


def _moving(summary: Summary) -> list[FieldSummary]:
    return [column for column in summary.columns.values() if column.low < column.high]


def _constants(summary: Summary) -> str:
    return ", ".join(f"{c.name} {short(c.latest)}" for c in summary.columns.values() if c.low == c.high)


def _rows(summary: Summary) -> list[tuple[str, ...]]:
    figures = ((c.name, (c.latest, c.mean, c.low, c.low_epoch, c.high, c.high_epoch, c.trend)) for c in _moving(summary))
    return [(name, *map(short, row)) for name, row in figures]


def _facts(summary: Summary) -> list[tuple[str, str]]:
    def counts(counter: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {count}" for name, count in counter.items())

    facts = [
        ("log", summary.path),
        ("records", f"{summary.records}" + (f" and {summary.batches} of batches" if summary.batches else "")),
        ("version", counts(summary.versions)),
        ("data", counts(summary.modes)),
        ("run", ", ".join(summary.runs)),
        ("last", f"epoch {short(summary.epoch)}, cycle {short(summary.cycle)}, {short(summary.steps)} steps"),
        ("training time", f"{summary.seconds:,.1f} s" if summary.seconds else ""),
        ("conflicts by reason", counts(summary.reasons)),
        (
            "rivalry now",
            sparkline(summary.rivalry, RIVALRY_BINS) + "  (share of decisions, rivalry 0 … 1)" if summary.rivalry else "",
        ),
    ]
    facts += [("anneal", f"cycle {cycle}: {stage}") for cycle, stage in summary.stages.items()]
    if "anneal_bc_accuracy" in summary.anneal:
        gate = summary.anneal.get("anneal_bc_threshold")
        passed = "yes" if summary.anneal.get("anneal_bc_passed") else "no"
        facts.append(("cloning", f"accuracy {short(summary.anneal['anneal_bc_accuracy'])}, gate {gate}, passed: {passed}"))
    return [(name, text) for name, text in facts if text]


def as_text(summary: Summary, width: int | None = None) -> str:
    """The facts and the table; where the table is wider than `width`, without extremes and trend."""
    facts = _facts(summary)
    wide = max(len(name) for name, _ in facts)
    lines = [f"{name:<{wide}}  {text}" for name, text in facts]
    curves = [column.sketch.curve() for column in _moving(summary)]
    rows = [(*row, sparkline(curve, 32)) for row, curve in zip(_rows(summary), curves)]
    drawn = table((*HEAD, "curve"), rows, left=(0, len(HEAD)))
    if width is not None and len(drawn[1]) > width:
        drawn = table((*HEAD[:3], "curve"), [(*row[:3], sparkline(curve, 16)) for row, curve in zip(rows, curves)], left=(0, 3))
        drawn.append("a wider terminal, a file and --format markdown also show min, max and trend")
    lines += ["", *drawn]
    if constants := _constants(summary):
        lines += ["", "the same in every record: " + constants]
    if summary.drift:
        lines += ["", "drift against the baseline", *table(*_drift(summary))]
    return "\n".join(lines) + "\n"


def as_markdown(summary: Summary) -> str:
    lines = ["# Training summary", "", *(f"- **{name}**: {text}" for name, text in _facts(summary)), ""]
    lines += pipes(HEAD, _rows(summary), right=range(1, len(HEAD)))
    if constants := _constants(summary):
        lines += ["", "The same in every record: " + constants + "."]
    if summary.drift:
        head, rows = _drift(summary)
        lines += ["", "## Drift against the baseline", "", *pipes(head, rows, right=range(1, len(head)))]
    return "\n".join(lines) + "\n"


def _drift(summary: Summary) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    head = ("metric", "mean", "baseline", "difference", "relative")
    return head, [(d.name, short(d.value), short(d.baseline), short(d.absolute), f"{d.relative:+.2%}") for d in summary.drift]
