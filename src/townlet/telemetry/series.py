"""A log as columns: one float array per field, NaN where a record has no number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from townlet.errors import TelemetryError
from townlet.telemetry.ndjson import read_records
from townlet.telemetry.schema import FIELDS, RIVALRY_BINS
from townlet.types import Doubles

CHUNK = 2048  # records held at a time
NUMERIC = tuple(item.name for item in FIELDS if item.numeric)


@dataclass(frozen=True)
class LogSeries:
    """The epoch records of one log, oldest first."""

    path: Path
    label: str
    columns: dict[str, Doubles]  # name → (T,)
    histogram: Doubles  # (T, RIVALRY_BINS), NaN where absent
    reasons: dict[str, Doubles]  # conflicts by reason → (T,)

    def __len__(self) -> int:
        return len(self.histogram)

    def column(self, name: str) -> Doubles:
        return self.columns.get(name, np.full(len(self), np.nan))

    def has(self, name: str) -> bool:
        return name in self.columns and bool(np.isfinite(self.columns[name]).any())


def read_series(path: Path | str, names: Sequence[str] = NUMERIC, *, label: str = "") -> LogSeries:
    path = Path(path)
    series = series_of(read_records(path), names, path=path, label=label)
    if not len(series):
        raise TelemetryError(f"{path} holds no epoch record; give the log of a training run")
    return series


def series_of(
    records: Iterable[Mapping[str, object]], names: Sequence[str] = NUMERIC, *, path: Path | None = None, label: str = ""
) -> LogSeries:
    columns: dict[str, list[Doubles]] = {name: [] for name in names}
    histograms: list[Doubles] = []
    reasons: dict[str, list[Doubles]] = {}
    count = 0
    for chunk in batched(record for record in records if record.get("kind") != "batch"):
        for name, parts in columns.items():
            parts.append(_numbers([record.get(name) for record in chunk]))
        histograms.append(_histograms(chunk))
        counted = [record.get("conflict_reasons") or {} for record in chunk]
        for reason in {reason for each in counted if isinstance(each, dict) for reason in each} - reasons.keys():
            reasons[reason] = [np.zeros(count)]
        for reason, parts in reasons.items():
            parts.append(_numbers([each.get(reason, 0.0) if isinstance(each, dict) else 0.0 for each in counted]))
        count += len(chunk)
    where = path or Path("-")
    return LogSeries(
        where,
        label or label_of(where),
        {name: np.concatenate([np.empty(0), *parts]) for name, parts in columns.items()},
        np.concatenate([np.empty((0, RIVALRY_BINS)), *histograms]),
        {reason: np.concatenate(parts) for reason, parts in sorted(reasons.items())},
    )


def batched(records: Iterable[Mapping[str, object]]) -> Iterator[list[Mapping[str, object]]]:
    source = iter(records)
    while chunk := list(islice(source, CHUNK)):
        yield chunk


def _numbers(values: list[object]) -> Doubles:
    """The values as floats, NaN for null. (One by one only where NumPy refuses them.)"""
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        return np.array([number(value) for value in values])


def _histograms(chunk: list[Mapping[str, object]]) -> Doubles:
    nothing = [np.nan] * RIVALRY_BINS
    rows = [record.get("rivalry_histogram") for record in chunk]
    return np.array([row if isinstance(row, list) and len(row) == RIVALRY_BINS else nothing for row in rows], dtype=np.float64)


def number(value: object) -> float:
    """The value as a float; NaN when it is absent, null or no number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return np.nan


def label_of(path: Path) -> str:
    """A short name for a legend: the run folder when the file has a common name, else the file's stem."""
    return path.resolve().parent.name if path.stem in ("ppo", "ppo_log", "telemetry", "log") else path.stem
