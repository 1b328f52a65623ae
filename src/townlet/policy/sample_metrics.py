"""The metrics of a sample: the same keys in its metadata, in the capture's table of metrics and in the goldens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from townlet.sim.tally import EventTally
from townlet.telemetry.schema import RIVALRY_BINS
from townlet.types import Array, Record
from townlet.world.events import QUEUE_CONFLICT
from townlet.world.state import TERMS

RIVALRY_FIELDS = ("rivalry_max", "rivalry_avoid_count")
WAIT_EDGES = (1, 5, 10, 20, 40, 80, 160)  # ticks; the last bin is open
QUEUE_COUNTS = ("queue_conflict_events", "queue_conflict_intensity_sum", "wait_count", "wait_sum")
TOLERANCE = 1e-6  # of a sum that was added up in another order


def sample_metrics(
    arrays: Mapping[str, Array], feature_names: Sequence[str], action_names: Sequence[str], terms: Array, events: Array
) -> Record:
    """All metrics of a life. `events` (K,) EVENT are those its resident was the actor of, so that sums count each event once."""
    known = array_metrics(arrays, feature_names, action_names)
    return known | {"reward_terms": dict(zip(TERMS, terms.tolist()))} | _happened(events)


def array_metrics(arrays: Mapping[str, Array], feature_names: Sequence[str], action_names: Sequence[str]) -> Record:
    """The metrics that follow from the arrays alone: a reader checks them."""
    rewards, features = arrays["rewards"], arrays["features"]
    steps = len(rewards)
    reward_sum = float(rewards.sum(dtype=np.float64))
    whole = bool(arrays["dones"][-1] or arrays["truncated"][-1])
    metrics: Record = {
        "timesteps": steps,
        "reward_sum": reward_sum,
        "reward_mean": reward_sum / steps,
        "episode_return": reward_sum if whole else None,  # of a life that was seen to its end
        "log_prob_mean": float(arrays["old_log_probs"].mean(dtype=np.float64)),
        "value_pred_last": float(arrays["value_preds"][-1]),
    }
    metrics |= rivalry_stats(features, feature_names)
    metrics["rivalry_histogram"] = histogram(features[:, feature_names.index("rivalry_max")])
    if "lateness_counter" in feature_names:
        metrics["lateness_mean"] = float(features[:, feature_names.index("lateness_counter")].mean(dtype=np.float64))
    return metrics | _actions(arrays["actions"], action_names)


def rivalry_stats(features: Array, feature_names: Sequence[str]) -> dict[str, float]:
    """Mean and maximum of both RIVALRY_FIELDS over features (…, F)."""
    stats = {}
    for name in RIVALRY_FIELDS:
        column = features[..., feature_names.index(name)]
        stats[f"{name}_mean"] = float(column.mean(dtype=np.float64))
        stats[f"{name}_max"] = float(column.max())
    return stats


def conflict_stats(features: Array, feature_names: Sequence[str], metrics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The rivalry in a batch of features (…, F), and the sums of the queue counts that every sample's `metrics` holds."""
    known = [name for name in QUEUE_COUNTS if metrics and all(name in each for each in metrics)]
    return rivalry_stats(features, feature_names) | {name: float(sum(each[name] for each in metrics)) for name in known}


def total(metrics: Iterable[Mapping[str, object]], name: str) -> float:
    """The sum of a metric over the samples that have it."""
    return sum(value for each in metrics if isinstance(value := each.get(name), int | float))


def differing(told: Mapping[str, object], true: Mapping[str, object]) -> list[tuple[str, object, object]]:
    """The metrics of both that differ, each with what is told and what is true."""
    return [(name, told[name], value) for name, value in true.items() if name in told and not _same(told[name], value)]


def _same(told: object, true: object) -> bool:
    if isinstance(true, float) and isinstance(told, int | float):
        return abs(told - true) <= TOLERANCE * max(1.0, abs(true))
    return told == true


def histogram(share: Array) -> list[int]:
    """Counts of numbers in [0, 1] over ten equal bins; 1 belongs to the last."""
    bins = np.clip(share * RIVALRY_BINS, 0, RIVALRY_BINS - 1).astype(np.int64)
    return [int(count) for count in np.bincount(bins, minlength=RIVALRY_BINS)]


def _actions(actions: Array, names: Sequence[str]) -> Record:
    counts = np.bincount(actions, minlength=len(names))
    share = counts[counts > 0] / len(actions)
    return {
        "action_total": len(actions),
        "action_entropy": float(-(share * np.log(share)).sum()) + 0.0,
        **{f"action_{name}_count": count for name, count in zip(names, counts.tolist())},
    }


def _happened(events: Array) -> Record:
    """Conflicts and waits; the edges of the histogram of waits are WAIT_EDGES."""
    tally = EventTally()
    tally.add(events)
    waited = tally.waits()[:, 3]
    bins = np.searchsorted(WAIT_EDGES, waited, side="right") - 1
    return {
        "queue_conflict_events": tally.count(QUEUE_CONFLICT),
        "queue_conflict_intensity_sum": tally.intensity,
        **{f"conflict_{reason}_count": count for reason, count in tally.by_reason().items()},
        "wait_count": len(waited),
        "wait_sum": int(waited.sum()),
        "wait_histogram": np.bincount(bins, minlength=len(WAIT_EDGES)).tolist(),
    }
