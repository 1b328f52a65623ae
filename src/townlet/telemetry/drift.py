"""Has a run drifted from a baseline? Deltas per metric with intervals, distances between histograms, change points.

Two logs are compared epoch by epoch over the later half, so that the common trend of learning cancels; the interval of the mean
difference comes from a block bootstrap, because neighbouring epochs resemble each other: the more they do, the longer the blocks.
An alarm needs both: an interval clear of zero (at `level`, shared among all metrics compared) and a difference of at least
`min_effect` of the baseline's mean or spread, whichever is larger. `drift_scale` of the schema widens `min_effect` for fields
that settle at different levels when only the seed differs, which no interval from inside one run can show.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from dataclasses import field as member
from operator import mul
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from townlet.errors import TelemetryError, UsageError
from townlet.files import read_bytes
from townlet.statistics import ChangePoint, change_point, student_quantile, total_variation
from townlet.telemetry.ndjson import UNREADABLE, epoch_records
from townlet.telemetry.schema import FIELDS, field
from townlet.telemetry.series import LogSeries, number, read_series
from townlet.types import Doubles, Record

DRIFT_NAMES = tuple(item.name for item in FIELDS if item.drift)
OF_TRAINING = "batch_entropy_mean"  # a number in the log of whatever learns
MAX_BASELINE = 64 << 20
DRAWS = 2000
ROUNDING = 1e-12

Moment = tuple[float, float]  # stage of an anneal schedule (−1 outside one) and epoch, which starts again with every stage


class Delta(NamedTuple):
    name: str
    value: float
    baseline: float

    @property
    def absolute(self) -> float:
        """value − baseline; 0 where they differ in nothing but the order in which the same numbers were added."""
        return 0.0 if math.isclose(self.value, self.baseline, rel_tol=ROUNDING) else self.value - self.baseline

    @property
    def relative(self) -> float:
        """(value − baseline) / |baseline|; infinite when something appeared out of nothing."""
        if self.absolute == 0.0:
            return 0.0
        return self.absolute / abs(self.baseline) if self.baseline else math.copysign(math.inf, self.absolute)

    def size(self, relative: bool) -> float:
        return abs(self.relative if relative else self.absolute)

    def as_record(self) -> Record:
        return self._asdict() | {"absolute": self.absolute, "relative": finite(self.relative)}


def finite(value: float) -> float | None:
    """The number, or None when it is NaN or infinite: JSON has neither."""
    return value if math.isfinite(value) else None


# --- a baseline of single numbers: `validate --baseline`, `summary --baseline` ---------------------------------------


def read_baseline(path: Path | str) -> dict[str, float]:
    """Metric → number, from a JSON object of numbers, a capture's metrics file (means over its samples) or a telemetry log."""
    path = Path(path)
    if path.suffix != ".json":
        return means(epoch_records(path))
    try:
        value = msgspec.json.decode(read_bytes(path, limit=MAX_BASELINE, error=TelemetryError))
    except UNREADABLE as error:
        raise TelemetryError(
            f"{path} is not JSON ({error}); give a JSON object of metrics or a telemetry log (.jsonl)"
        ) from error
    if isinstance(value, dict) and "telemetry_version" in value:
        return means([value])
    if not isinstance(value, dict):
        raise TelemetryError(f"{path} holds no JSON object; give an object of metric: number, or a telemetry log")
    samples = value.get("samples", value)
    rows = [row for row in (samples.values() if isinstance(samples, dict) else samples) if isinstance(row, dict)]
    flat = {name: float(entry) for name, entry in value.items() if not math.isnan(number(entry))}
    found = flat or capture_baseline([row.get("metrics", row) for row in rows])
    if not found:
        raise TelemetryError(f"{path} holds no number to compare with; give an object of metric: number, or a telemetry log")
    return found


def capture_baseline(samples: Sequence[Mapping[str, object]]) -> dict[str, float]:
    """The `baseline_*` metrics of captured samples, as a training run computes them."""

    def values(name: str) -> list[float]:
        return [number(sample.get(name)) for sample in samples if not math.isnan(number(sample.get(name)))]

    sums, steps, log_probs = values("reward_sum"), values("timesteps"), values("log_prob_mean")
    if not sums:
        return {}
    found = {
        "baseline_sample_count": float(len(samples)),
        "baseline_reward_sum": math.fsum(sums),
        "baseline_reward_sum_mean": math.fsum(sums) / len(sums),
    }
    if len(steps) == len(sums) and any(steps):
        found["baseline_reward_mean"] = math.fsum(sums) / math.fsum(steps)
        if len(log_probs) == len(steps):  # every decision counts once, as in training
            found["baseline_log_prob_mean"] = math.fsum(map(mul, log_probs, steps)) / math.fsum(steps)
    return found


def read_epochs(path: Path | str) -> dict[Moment, dict[str, float]]:
    """The numbers of every epoch, when the baseline is a log; nothing for a JSON file."""
    if Path(path).suffix == ".json":
        return {}
    return {moment(record): means([record]) for record in epoch_records(path)}


def moment(record: Mapping[str, object]) -> Moment:
    stage = number(record.get("anneal_cycle"))
    return (-1.0 if math.isnan(stage) else stage), number(record.get("epoch"))


def means(records: Iterable[Mapping[str, object]], names: Sequence[str] = DRIFT_NAMES) -> dict[str, float]:
    """Means over epochs, each counting once."""
    sums = dict.fromkeys(names, 0.0)
    counts = dict.fromkeys(names, 0)
    for record in records:
        for name in names:
            value = number(record.get(name))
            if not math.isnan(value):
                sums[name] += value
                counts[name] += 1
    return {name: sums[name] / counts[name] for name in names if counts[name]}


def deltas(record: Mapping[str, object], baseline: Mapping[str, float]) -> Iterator[Delta]:
    """What a record says against the baseline; `reward_mean` in a baseline stands for `baseline_reward_mean` too."""
    for name, expected in baseline.items():
        for key in (name, "baseline_" + name):
            value = number(record.get(key))
            if not math.isnan(value):
                yield Delta(key, value, expected)
                break


@dataclass(slots=True)
class LogDrift:
    """A log against single numbers, record by record and in total. `beyond` keeps the first `limit` deltas over the threshold."""

    threshold: float | None
    relative: bool
    limit: int = 100
    records: int = 0
    beyond: list[tuple[float, Delta]] = member(default_factory=list)  # (epoch, delta)
    beyond_count: int = 0
    worst: dict[str, tuple[float, Delta]] = member(default_factory=dict)
    total: list[Delta] = member(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.beyond_count == 0

    def exceeds(self, delta: Delta) -> bool:
        return self.threshold is not None and delta.size(self.relative) > self.threshold

    def as_dict(self) -> Record:
        def row(delta: Delta, epoch: float | None = None) -> Record:
            found = delta.as_record() | {"exceeds": self.exceeds(delta)}
            return found if epoch is None else {"epoch": epoch} | found

        return {
            "ok": self.ok,
            "records": self.records,
            "threshold": self.threshold,
            "relative": self.relative,
            "beyond_count": self.beyond_count,
            "beyond": [row(delta, epoch) for epoch, delta in self.beyond],
            "worst": [row(delta, epoch) for epoch, delta in self.worst.values()],
            "total": [row(delta) for delta in self.total],
        }


def log_drift(
    paths: Sequence[Path | str],
    baseline: Mapping[str, float] | None,
    *,
    epochs: Mapping[Moment, Mapping[str, float]] | None = None,
    threshold: float | None = None,
    relative: bool = False,
    limit: int = 100,
) -> LogDrift:
    """Compare every record, and the mean of all, with the baseline; without one, with the first record.

    When the baseline is a log, each record is compared with the same one of its `epochs`, where it has it.
    """
    if threshold is not None and not threshold >= 0:
        raise UsageError(f"the drift threshold is {threshold}; it must be at least 0")
    found = LogDrift(threshold, relative, limit)
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    expected: dict[str, float] = {}
    for record in (record for path in paths for record in epoch_records(path)):
        baseline = means([record]) if baseline is None else baseline
        found.records += 1
        epoch = number(record.get("epoch"))
        for delta in deltas(record, baseline):
            sums[delta.name] = sums.get(delta.name, 0.0) + delta.value
            counts[delta.name] = counts.get(delta.name, 0) + 1
            expected[delta.name] = delta.baseline
        for delta in deltas(record, (epochs or {}).get(moment(record), baseline)):
            name = delta.name
            if name not in found.worst or delta.size(relative) > found.worst[name][1].size(relative):
                found.worst[name] = (epoch, delta)
            if found.exceeds(delta):
                found.beyond_count += 1
                if len(found.beyond) < limit:
                    found.beyond.append((epoch, delta))
    found.total = [Delta(name, sums[name] / counts[name], expected[name]) for name in sums]
    return found


# --- log against log -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MetricDrift:
    name: str
    value: float
    baseline: float
    absolute: float
    relative: float
    low: float  # interval of the absolute difference
    high: float
    epochs: int
    alarm: bool
    change: ChangePoint | None


@dataclass(frozen=True, slots=True)
class MixDrift:
    """Distance between two histograms: total variation."""

    name: str
    distance: float
    p_value: float
    alarm: bool


@dataclass(frozen=True, slots=True)
class DriftReport:
    current: str
    baseline: str
    metrics: tuple[MetricDrift, ...]
    mixes: tuple[MixDrift, ...]

    @property
    def alarms(self) -> list[str]:
        return [row.name for row in self.metrics if row.alarm] + [row.name for row in self.mixes if row.alarm]

    def as_dict(self) -> Record:
        def row(metric: MetricDrift) -> Record:
            return asdict(metric) | {"change": metric.change and metric.change._asdict()}

        return {
            "ok": not self.alarms,
            "current": self.current,
            "baseline": self.baseline,
            "alarms": self.alarms,
            "metrics": [row(metric) for metric in self.metrics],
            "mixes": [asdict(mix) for mix in self.mixes],
        }


def persistence(x: Doubles) -> float:
    """Correlation of neighbouring values, at least 0; corrected for the series being short, where it comes out too small."""
    deviation = x - x.mean()
    total = float(deviation @ deviation)
    if x.size < 4 or total == 0.0:
        return 0.0
    found = float(deviation[1:] @ deviation[:-1]) / total
    return min(max(found + (1 + 3 * found) / x.size, 0.0), 0.95)


def block_length(count: int, correlation: float = 0.0) -> int:
    """Epochs per block: over how many a series of this correlation resembles itself, at most a third of them all."""
    return max(1, min(math.ceil((1 + correlation) / (1 - correlation)), count // 3))


def block_bootstrap(x: Doubles, *, level: float, resamples: int = DRAWS, seed: int = 0) -> tuple[float, float]:
    """Interval of the mean of a series: mean ± t × spread of the means of series resampled in circular blocks.

    Student's t for the number of blocks, because a handful of them is far from a normal distribution.
    """
    count = x.size
    length = block_length(count, persistence(x))
    blocks = -(-count // length)
    if blocks < 2:
        return -math.inf, math.inf
    starts = np.random.default_rng(seed).integers(0, count, (resamples, blocks))
    index = ((starts[:, :, None] + np.arange(length)) % count).reshape(resamples, -1)[:, :count]
    half = student_quantile(0.5 + level / 2, blocks - 1) * float(x[index].mean(axis=1).std())
    centre = float(x.mean())
    return centre - half, centre + half


def aligned(current: Doubles, baseline: Doubles, window: float) -> tuple[Doubles, Doubles]:
    """The last share of the epochs both have, pair by pair, where both have a number."""
    count = min(current.size, baseline.size)
    start = count - max(1, round(count * window))
    a, b = current[start:count], baseline[start:count]
    both = np.isfinite(a) & np.isfinite(b)
    return a[both], b[both]


def compare(
    current: LogSeries,
    baseline: LogSeries,
    names: Sequence[str] = DRIFT_NAMES,
    *,
    window: float = 0.5,
    level: float = 0.95,
    min_effect: float = 0.05,
    max_distance: float = 0.1,
) -> DriftReport:
    """Compare two logs over the later `window` of their common epochs."""
    if not 0 < window <= 1:
        raise UsageError(f"the window is {window}; it must be a share of the epochs, above 0 and at most 1")
    pairs = [(name, *aligned(current.column(name), baseline.column(name), window)) for name in names]
    pairs = [(name, a, b) for name, a, b in pairs if a.size]
    mixes = [(name, a, b) for name, a, b in _mixes(current, baseline, window) if len(a) and len(b)]
    tests = max(1, len(pairs) + len(mixes))
    shared_level = 1 - (1 - level) / tests
    learns = current.has(OF_TRAINING) and baseline.has(OF_TRAINING)
    metrics = tuple(
        _metric(name, a, b, shared_level, min_effect * (field(name).drift_scale if learns else 1.0)) for name, a, b in pairs
    )
    distances = tuple(_mix(name, a, b, (1 - level) / tests, max_distance) for name, a, b in mixes)
    return DriftReport(current.label, baseline.label, metrics, distances)


def _metric(name: str, a: Doubles, b: Doubles, level: float, min_effect: float) -> MetricDrift:
    delta = Delta(name, float(a.mean()), float(b.mean()))
    low, high = block_bootstrap(a - b, level=level)
    clear = low > 0 or high < 0
    change = change_point(a) if a.size >= 8 and np.ptp(a) > 0 else None
    scale = max(abs(delta.baseline), float(b.std()))  # a mean near zero is no measure of size
    alarm = clear and abs(delta.absolute) >= min_effect * scale
    return MetricDrift(name, delta.value, delta.baseline, delta.absolute, delta.relative, low, high, a.size, alarm, change)


def _mixes(current: LogSeries, baseline: LogSeries, window: float) -> Iterator[tuple[str, Doubles, Doubles]]:
    def tail(rows: Doubles) -> Doubles:
        rows = rows[len(rows) - max(1, round(len(rows) * window)) :]
        return rows[np.isfinite(rows).all(axis=1)]

    yield "rivalry_histogram", tail(current.histogram), tail(baseline.histogram)
    reasons = sorted(current.reasons | baseline.reasons)
    if current.reasons and baseline.reasons:
        a, b = (
            np.stack([series.reasons.get(reason, np.zeros(len(series))) for reason in reasons], axis=1)
            for series in (current, baseline)
        )
        yield "conflict_reasons", tail(a), tail(b)


def _mix(name: str, a: Doubles, b: Doubles, alpha: float, max_distance: float) -> MixDrift:
    """Distance of the mean histograms; its p-value by dealing the epochs' blocks out to both sides at random."""
    distance = total_variation(a.sum(axis=0), b.sum(axis=0))
    length = max(1, round(math.cbrt(min(len(a), len(b)))))  # the usual rule for resampling a series
    chunks = [part.sum(axis=0) for rows in (a, b) for part in np.array_split(rows, max(1, len(rows) // length))]
    stack = np.stack(chunks)  # (blocks, bins)
    mine = max(1, len(a) // length)
    order = np.random.default_rng(0).permuted(np.tile(np.arange(len(stack)), (DRAWS, 1)), axis=1)  # (draws, blocks)
    left = (order < mine).astype(np.float64) @ stack  # (draws, bins)
    right = stack.sum(axis=0) - left
    dealt = 0.5 * np.abs(_shares(left) - _shares(right)).sum(axis=1)
    p_value = float(((dealt >= distance * (1 - 1e-12)).sum() + 1) / (DRAWS + 1))
    return MixDrift(name, distance, p_value, p_value < alpha and distance >= max_distance)


def _shares(rows: Doubles) -> Doubles:
    total = rows.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(rows, total, out=np.zeros_like(rows), where=total > 0), dtype=np.float64)


def compare_logs(current: Path | str, baseline: Path | str, names: Sequence[str] = DRIFT_NAMES, **options: float) -> DriftReport:
    known = (*names, OF_TRAINING)
    return compare(read_series(current, known), read_series(baseline, known), names, **options)
