"""The conflict in a dataset: rivalry statistics of batches and the optional normalisation of conflict features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from pydantic import Field

from townlet.dto import Frozen
from townlet.errors import ReplayError
from townlet.observations.spec import CONFLICT, TOLD_WEIGHT, ObservationSpec
from townlet.policy.sample import ReplaySample, SampleMeta
from townlet.policy.sample_metrics import RIVALRY_FIELDS
from townlet.types import Array
from townlet.world.actions import affordances_of

QUEUE_COUNTS = ("queue_conflict_events", "queue_conflict_intensity_sum", "wait_count", "wait_sum")


def conflict_stats(features: Array, feature_names: Sequence[str], metrics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean and maximum of `rivalry_max` and `rivalry_avoid_count` over features (…, F), and the sums of the queue counts that
    every sample's `metrics` holds."""
    stats = {}
    for name in RIVALRY_FIELDS:
        column = features[..., feature_names.index(name)]
        stats[f"{name}_mean"] = float(column.mean(dtype=np.float64))
        stats[f"{name}_max"] = float(column.max())
    known = [name for name in QUEUE_COUNTS if metrics and all(name in each for each in metrics)]
    return stats | {name: float(sum(each[name] for each in metrics)) for name in known}


def conflict_columns(meta: SampleMeta) -> tuple[str, ...]:
    """Names of the conflict group of a sample's features; for unknown layouts the two every sample has."""
    names = meta.action_names
    affordances = affordances_of(meta.action_level, names)
    needs = tuple(name.removeprefix("need_") for name in meta.feature_names if name.startswith("need_"))
    spec = ObservationSpec(meta.variant, names, affordances, needs, TOLD_WEIGHT in meta.feature_names)
    if spec.feature_names != meta.feature_names:
        return RIVALRY_FIELDS
    return tuple(spec.feature_names[i] for i in spec.columns(CONFLICT))


class ConflictNormalizer(Frozen):
    """Mean and deviation of the conflict features of one dataset; stored beside what was trained with them."""

    names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]  # 1 where a feature never changes
    count: int = Field(ge=1)

    @classmethod
    def fit(cls, samples: Iterable[ReplaySample]) -> Self:
        """One pass over the samples, in float64: Σx and Σx² of every conflict column."""
        names: tuple[str, ...] = ()
        columns: list[int] = []
        total, squares, count = np.zeros(0), np.zeros(0), 0
        for sample in samples:
            if not names:
                names = conflict_columns(sample.meta)
                columns = [sample.meta.feature_names.index(name) for name in names]
                total, squares = np.zeros(len(names)), np.zeros(len(names))
            x = sample.features[: sample.steps, columns].astype(np.float64)  # (T, K)
            total += x.sum(axis=0)
            squares += (x * x).sum(axis=0)
            count += len(x)
        mean = total / count
        std = np.sqrt(np.maximum(squares / count - mean * mean, 0.0))
        std[std < 1e-6] = 1.0
        return cls(names=names, mean=tuple(mean.tolist()), std=tuple(std.tolist()), count=count)

    def apply(self, features: Array, feature_names: Sequence[str]) -> None:
        """Normalise the conflict columns of features (…, F) in place."""
        missing = sorted(set(self.names) - set(feature_names))
        if missing:
            raise ReplayError(f"the stored normalisation knows {missing[0]!r}, which the features lack; fit it on this dataset")
        columns = [feature_names.index(name) for name in self.names]
        mean, std = np.asarray(self.mean, np.float32), np.asarray(self.std, np.float32)
        features[..., columns] = (features[..., columns] - mean) / std
