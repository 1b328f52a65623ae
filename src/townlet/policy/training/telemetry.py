"""Training records: what happened in the town during one epoch, and the flat record the log keeps of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from townlet.policy.sample_metrics import RIVALRY_FIELDS
from townlet.policy.training.batches import UpdateStats
from townlet.sim.tally import EventTally
from townlet.statistics import gini
from townlet.telemetry.schema import BATCH_FIELDS, CURRENT, FIELDS, RIVALRY_BINS
from townlet.types import Array, Record
from townlet.world.events import CHAT_SUCCESS, EXIT, QUEUE_CONFLICT, SHIFT_ABSENT, SHIFT_LATE
from townlet.world.state import CONFLICT_REASONS, EVENTS

NOT_ADDED = (
    *("queue_wait_mean", "queue_wait_gini", "chat_quality_mean"),
    *("conflicts_per_resident_day", "exits_per_resident_day", "late_share", "attendance"),
)
COUNTED = tuple(  # a field KIND_events counts the events of that kind
    kind
    for item in FIELDS
    if item.name.endswith("_events") and (kind := item.name.removesuffix("_events")) in EVENTS and kind != "queue_conflict"
)
RIVALRY_FIGURES = tuple(f"{name}_{part}" for name in RIVALRY_FIELDS for part in ("mean", "max"))
TOWN_FIELDS = (
    *("queue_conflict_events", "queue_conflict_intensity_sum", "conflict_reasons", "queue_wait_mean", "queue_wait_gini"),
    *(f"{name}_events" for name in COUNTED),
    *("chat_quality_mean", "exits", "conflicts_per_resident_day", "exits_per_resident_day", "late_share", "attendance"),
)


def town_record(tally: EventTally, resident_days: float) -> Record:
    """The town fields of an epoch; `resident_days` is the sum of the days that its residents lived."""
    due, waits = tally.shifts_due(), tally.waits()
    per_resident = np.bincount(np.unique(waits[:, :3], axis=0, return_inverse=True)[1].ravel(), waits[:, 3])
    conflicts, exits, chats = tally.count(QUEUE_CONFLICT), tally.count(EXIT), tally.count(CHAT_SUCCESS)
    return {
        "queue_conflict_events": float(conflicts),
        "queue_conflict_intensity_sum": tally.intensity,
        "conflict_reasons": tally.by_reason(),
        **{f"{name}_events": float(tally.count(EVENTS.index(name))) for name in COUNTED},
        "chat_quality_mean": tally.chat_quality / chats if chats else None,
        "queue_wait_mean": float(waits[:, 3].mean()) if len(waits) else 0.0,
        "queue_wait_gini": float(gini(per_resident)) if len(waits) else 0.0,
        "exits": exits,
        **per_resident_day(conflicts, exits, resident_days),
        "late_share": tally.count(SHIFT_LATE) / due if due else None,
        "attendance": 1.0 - tally.count(SHIFT_ABSENT) / due if due else None,
    }


def per_resident_day(conflicts: float | None, exits: int, days: float) -> dict[str, float | None]:
    counts = {"conflicts_per_resident_day": conflicts, "exits_per_resident_day": exits}
    return {name: count / days if days and count is not None else None for name, count in counts.items()}


@dataclass
class RivalryTally:
    """The four conflict averages and the histogram over the batches of one epoch, the same for replay and rollout data."""

    batches: list[tuple[float, float, float, float]] = field(default_factory=list)
    histogram: Array = field(default_factory=lambda: np.zeros(RIVALRY_BINS, np.int64))  # decisions by highest rivalry

    def add(self, rivalry_max: Array, avoid_count: Array) -> None:
        """One batch: values of `rivalry_max` and `rivalry_avoid_count` of its true decisions, any shape."""
        if not rivalry_max.size:
            return
        self.batches.append(
            (float(rivalry_max.mean()), float(rivalry_max.max()), float(avoid_count.mean()), float(avoid_count.max()))
        )
        self.histogram += np.histogram(rivalry_max, RIVALRY_BINS, (0.0, 1.0))[0]

    def record(self) -> Record:
        means = np.asarray(self.batches, np.float64).mean(axis=0) if self.batches else np.zeros(4)
        return {
            **{f"conflict.{name}_avg": float(value) for name, value in zip(RIVALRY_FIGURES, means)},
            "rivalry_histogram": [float(n) / max(int(self.histogram.sum()), 1) for n in self.histogram],
        }


@dataclass
class EpochData:
    """What one epoch saw and did; a mixed epoch is the sum of a replay and a rollout part."""

    updates: list[UpdateStats] = field(default_factory=list)
    minibatches: list[Record] = field(default_factory=list)
    rivalry: RivalryTally = field(default_factory=RivalryTally)
    town: Record = field(default_factory=lambda: dict.fromkeys(TOWN_FIELDS))
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    dataset_returns: list[float] = field(default_factory=list)  # of the lives in replay data
    resident_days: float = 0.0  # that the town fields were counted over
    earned: float = 0.0  # reward of the residents that learn
    earning_days: float = 0.0  # that they lived
    ticks: int = 0
    simulated: int = 0  # decisions
    sim_seconds: float = 0.0
    masked: bool = True  # every row had an action mask
    baseline: dict[str, float] = field(default_factory=dict)

    def add(self, other: EpochData) -> None:
        self.updates += other.updates
        self.minibatches += other.minibatches
        self.rivalry.batches += other.rivalry.batches
        self.rivalry.histogram += other.rivalry.histogram
        self.town = other.town if all(value is None for value in self.town.values()) else sum_known(self.town, other.town)
        self.returns += other.returns
        self.lengths += other.lengths
        self.dataset_returns += other.dataset_returns
        self.resident_days += other.resident_days
        self.earned += other.earned
        self.earning_days += other.earning_days
        self.ticks += other.ticks
        self.simulated += other.simulated
        self.sim_seconds += other.sim_seconds
        self.masked = self.masked and other.masked
        self.baseline = self.baseline or other.baseline


def sum_known(a: Record, b: Record) -> Record:
    """The town fields of two parts of an epoch: counts are added; means, shares and rates are those of the later part."""
    total = {}
    for name in TOWN_FIELDS:
        if a.get(name) is None or b.get(name) is None or name in NOT_ADDED:
            total[name] = b.get(name)
        elif name == "conflict_reasons":
            total[name] = {reason: a[name].get(reason, 0) + count for reason, count in b[name].items()}
        else:
            total[name] = a[name] + b[name]
    return total


def replay_town(metrics: Sequence[Mapping[str, Any]], exits: int, resident_days: float) -> Record:
    """The town fields of stored samples, from their capture metrics; null where a sample does not have them."""
    town: Record = dict.fromkeys(TOWN_FIELDS)
    town |= {"exits": exits} | per_resident_day(None, exits, resident_days)
    if not metrics or any("queue_conflict_events" not in each for each in metrics):
        return town
    waits, counts = (np.array([float(each.get(name, 0.0)) for each in metrics]) for name in ("wait_sum", "wait_count"))
    reasons = {name: sum(int(each.get(f"conflict_{name}_count", 0)) for each in metrics) for name in CONFLICT_REASONS}
    conflicts = float(sum(each["queue_conflict_events"] for each in metrics))
    return town | {
        **per_resident_day(conflicts, exits, resident_days),
        "queue_conflict_events": conflicts,
        "queue_conflict_intensity_sum": float(sum(each.get("queue_conflict_intensity_sum", 0.0) for each in metrics)),
        "conflict_reasons": reasons,
        "queue_wait_mean": float(waits.sum() / counts.sum()) if counts.sum() > 0 else 0.0,
        "queue_wait_gini": float(gini(waits)) if waits.sum() > 0 else 0.0,
    }


SUMS = ("updates", "transitions", "clip_triggered_minibatches", "adv_zero_std_batches", "illegal_actions")
LARGEST = ("clip_fraction_max", "grad_norm_max", "kl_divergence_max")
LATEST = ("lr", "entropy_coef")
LEARNERS_NAMES = {"loss_entropy": "entropy", "kl_divergence": "kl_k1"}  # field of a batch record -> what the learner calls it
MEANS = (
    *("loss_policy", "loss_value", "loss_total", "clip_fraction", "adv_mean", "adv_std", "grad_norm", "kl_divergence", "kl_k3"),
    *("loss_entropy", "batch_entropy_mean", "explained_variance", "reward_advantage_corr", "mask_fill_mean"),
)


def merge_updates(updates: Sequence[UpdateStats]) -> Record:
    """One epoch's figures from its updates: sums, extremes, and means weighted by mini-batches."""
    rows = [asdict(update) for update in updates]
    weights = np.array([float(row["minibatches"]) for row in rows])
    merged: Record = {name: sum(row[name] for row in rows) for name in SUMS}
    merged |= {name: max(row[name] for row in rows) for name in LARGEST}
    merged |= {name: rows[-1][name] for name in LATEST}
    merged["adv_min_std"] = min(row["adv_min_std"] for row in rows)
    for name in MEANS:
        merged[name] = float(np.average([row[name] for row in rows], weights=weights))
    means, stds = (np.array([row[f"batch_entropy_{part}"] for row in rows]) for part in ("mean", "std"))
    within, between = (
        np.average(stds**2, weights=weights),
        np.average((means - merged["batch_entropy_mean"]) ** 2, weights=weights),
    )
    merged["batch_entropy_std"] = float(np.sqrt(within + between))
    for name in ("explained_variance", "reward_advantage_corr"):  # exactly 0 says that nothing varied
        merged[name] = merged[name] or None
    return merged


def epoch_record(data: EpochData, ids: Mapping[str, object], seconds: float) -> Record:
    """A record of version 1.4. `ids` holds epoch, cycle, steps, hashes and the anneal fields."""
    merged = merge_updates(data.updates)
    if not data.masked:
        merged["mask_fill_mean"] = merged["illegal_actions"] = None
    return {
        "telemetry_version": CURRENT,
        **merged,
        **data.rivalry.record(),
        **data.town,
        **{f"baseline_{name}": value for name, value in data.baseline.items()},
        "episode_return_mean": float(np.mean(data.returns)) if data.returns else None,
        "episode_length_mean": float(np.mean(data.lengths)) if data.lengths else None,
        "dataset_return": float(np.mean(data.dataset_returns)) if data.dataset_returns else None,
        "return_per_resident_day": data.earned / data.earning_days if data.earning_days else None,
        "rollout_ticks": data.ticks,
        "epoch_duration_sec": seconds,
        "steps_per_second": merged["transitions"] / max(seconds, 1e-9),
        "sim_steps_per_second": data.simulated / max(data.sim_seconds, 1e-9) if data.simulated else None,
        **ids,
    }


def batch_records(minibatches: Sequence[Mapping[str, Any]], ids: Mapping[str, Any], lr: float) -> list[Record]:
    """A record of kind `batch` for each mini-batch of one epoch; of its figures those that the schema declares."""
    shared = {"kind": "batch", "telemetry_version": CURRENT}
    shared |= {name: ids[name] for name in ("run_id", "epoch", "cycle_id", "steps")} | {"lr": lr}
    own = {item.name: LEARNERS_NAMES.get(item.name, item.name) for item in BATCH_FIELDS}
    records = []
    for number, row in enumerate(minibatches):
        figures = {name: row[learners] for name, learners in own.items() if learners in row}
        figures["transitions"] = int(figures["transitions"])
        rivalry = zip(RIVALRY_FIGURES, (value for pair in row["watched"] for value in pair))
        records.append({**shared, "batch": number, **figures, **{f"conflict.{name}": value for name, value in rivalry}})
    return records


def diverged_record(last: Mapping[str, object], ids: Mapping[str, object]) -> Record:
    """The record of an epoch whose loss was not a number: the log names the fields that are not finite under `nonfinite`."""
    blank: Record = {item.name: last.get(item.name, 0) for item in FIELDS if item.required and not item.volatile}
    losses = dict.fromkeys(("loss_policy", "loss_value", "loss_total", "grad_norm"), float("nan"))
    clock = {"epoch_duration_sec": 0.0, "steps_per_second": 0.0, "sim_steps_per_second": None}
    return {**blank, "telemetry_version": CURRENT, **clock, **losses, **ids, "nonfinite": sorted(losses)}
