"""A log as columns: one float array per field, NaN where a record has no number."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from townlet.errors import TelemetryError
from townlet.telemetry.ndjson import read_records
from townlet.telemetry.schema import FIELDS, RIVALRY_BINS

Floats = NDArray[np.float64]
NUMERIC = tuple(item.name for item in FIELDS if item.numeric)


@dataclass(frozen=True)
class LogSeries:
    """The epoch records of one log, oldest first."""

    path: Path
    label: str
    columns: dict[str, Floats]  # name → (T,)
    histogram: Floats  # (T, RIVALRY_BINS), NaN where absent
    reasons: dict[str, Floats]  # conflicts by reason → (T,)

    def __len__(self) -> int:
        return len(self.histogram)

    def column(self, name: str) -> Floats:
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
    records: Iterable[Mapping[str, Any]], names: Sequence[str] = NUMERIC, *, path: Path | None = None, label: str = ""
) -> LogSeries:
    columns = {name: array("d") for name in names}
    bins = array("d")
    reasons: dict[str, array[float]] = {}
    nothing = [np.nan] * RIVALRY_BINS
    count = 0
    for record in records:
        if record.get("kind") == "batch":
            continue
        for name, column in columns.items():
            column.append(number(record.get(name)))
        histogram = record.get("rivalry_histogram")
        bins.extend(histogram if isinstance(histogram, list) and len(histogram) == RIVALRY_BINS else nothing)
        by_reason = record.get("conflict_reasons")
        if isinstance(by_reason, dict):
            for reason, times in by_reason.items():
                reasons.setdefault(reason, array("d", [0.0] * count)).append(number(times))
        count += 1
        for column in reasons.values():
            if len(column) < count:
                column.append(0.0)
    where = path or Path("-")
    return LogSeries(
        where,
        label or label_of(where),
        {name: np.frombuffer(column, dtype=np.float64) if count else np.empty(0) for name, column in columns.items()},
        np.array(bins, dtype=np.float64).reshape(-1, RIVALRY_BINS),
        {reason: np.array(column) for reason, column in sorted(reasons.items())},
    )


def number(value: Any) -> float:
    """The value as a float; NaN when it is absent, null or no number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return np.nan


def label_of(path: Path) -> str:
    """A short name for a legend: the run folder when the file has a common name, else the file's stem."""
    return path.resolve().parent.name if path.stem in ("ppo", "ppo_log", "telemetry", "log") else path.stem
