"""Replay datasets: samples bucketed by shape, shuffled by seed and epoch, from memory or streamed by a prefetch thread.

Axes: T decisions, B samples, F features, A actions, C map channels, H and W the map window, K event types.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from townlet import files
from townlet.errors import ReplayError, UsageError
from townlet.npz import npz_bytes
from townlet.observations.spec import CONFLICT, TOLD_WEIGHT, ObservationSpec
from townlet.policy.capture_events import EventTable, read_event_records
from townlet.policy.manifest import (
    MANIFEST_LIMIT,
    MANIFEST_SUFFIX,
    METRICS_SUFFIX,
    ReplayEntry,
    check_listed,
    dataset_hash,
    find_manifest,
    hash_of_data,
    read_manifest,
)
from townlet.policy.prefetch import prefetched
from townlet.policy.sample import (
    FirstGenerationWarning,
    ReplaySample,
    SampleMeta,
    assemble,
    interpret,
    meta_bytes,
    read_arrays,
    read_meta,
)
from townlet.policy.sample_metrics import RIVALRY_FIELDS, conflict_stats, differing
from townlet.policy.trajectory import Trajectory, to_disk
from townlet.types import Array
from townlet.world.actions import affordances_of

__all__ = [
    "ConflictNormalizer",
    "FirstGenerationWarning",
    "ReplayBatch",
    "ReplayDataset",
    "ReplayDatasetConfig",
    "ReplayEntry",
    "ReplaySample",
    "SampleMeta",
    "conflict_stats",
]

Metrics = Mapping[str, Any]


def conflict_columns(meta: SampleMeta) -> tuple[str, ...]:
    """Names of the conflict group of a sample's features; for unknown layouts the two every sample has."""
    names = meta.action_names
    affordances = affordances_of(meta.action_level, names)
    needs = tuple(name.removeprefix("need_") for name in meta.feature_names if name.startswith("need_"))
    spec = ObservationSpec(meta.variant, names, affordances, needs, TOLD_WEIGHT in meta.feature_names)
    if spec.feature_names != meta.feature_names:
        return RIVALRY_FIELDS
    return tuple(spec.feature_names[i] for i in spec.columns(CONFLICT))


class ConflictNormalizer(NamedTuple):
    """Mean and deviation of the conflict features of one dataset."""

    names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]  # 1 where a feature never changes

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
        return cls(names, tuple(mean.tolist()), tuple(std.tolist()))

    def apply(self, features: Array, feature_names: Sequence[str]) -> None:
        """Normalise the conflict columns of features (…, F) in place."""
        columns = [feature_names.index(name) for name in self.names]
        mean, std = np.asarray(self.mean, np.float32), np.asarray(self.std, np.float32)
        features[..., columns] = (features[..., columns] - mean) / std


@dataclass(frozen=True)
class ReplayDatasetConfig:
    """What to read and how to batch it. `events` is the NDJSON whose events are counted per step."""

    entries: tuple[ReplayEntry, ...] = ()
    batch_size: int = 16
    shuffle: bool = False
    seed: int = 0
    drop_last: bool = False
    streaming: bool = False
    prefetch: int = 2
    metrics_map: Mapping[str, Metrics] = field(default_factory=dict)  # sample_id -> metrics
    label: str = "replay"
    source: Path | None = None  # the manifest, capture folder or sample that the entries are from
    events: Path | None = None
    normalize_conflict_features: bool = False

    def __post_init__(self) -> None:
        for name, low in (("batch_size", 1), ("prefetch", 1), ("seed", 0)):
            if self.__dict__[name] < low:
                raise UsageError(f"{name} is {self.__dict__[name]}, expected {low} or more")

    @classmethod
    def from_manifest(cls, path: Path | str, **options: object) -> Self:
        """The samples of a manifest file, JSON or YAML, in any of its three forms."""
        manifest = read_manifest(Path(path))
        given: dict[str, Any] = {"label": Path(path).stem, "source": Path(path)} | options
        return cls(entries=manifest.entries, **given)

    @classmethod
    def from_capture_dir(cls, folder: Path | str, **options: object) -> Self:
        """The samples of a capture folder with their metrics; the recorded hashes of its small files are checked at once."""
        folder = Path(folder)
        path = find_manifest(folder)
        manifest = read_manifest(path)
        check_listed(folder, manifest)
        given: dict[str, Any] = {"label": folder.name, "source": folder, "metrics_map": read_metrics_table(path)} | options
        return cls(entries=manifest.entries, **given)


def read_metrics_table(manifest: Path) -> dict[str, Metrics]:
    """The table of metrics beside a capture's manifest; empty when there is none."""
    path = manifest.with_name(manifest.name.replace(MANIFEST_SUFFIX, METRICS_SUFFIX))
    metrics = files.read_json(path, limit=MANIFEST_LIMIT, error=ReplayError) if path.exists() else {}
    if not isinstance(metrics, dict) or not all(isinstance(value, dict) for value in metrics.values()):
        raise ReplayError(f"{path}: is not a table of metrics; expected an object of sample ids, capture it again")
    return metrics


def entries_of(path: Path) -> tuple[ReplayEntry, ...]:
    """What a path means: one sample, a manifest, or a capture folder."""
    if not os.path.exists(path):
        raise ReplayError(f"{path} does not exist; name a sample (.npz), a manifest or a capture folder")
    if path.is_dir():
        return ReplayDatasetConfig.from_capture_dir(path).entries
    if path.suffix == ".npz":
        return (ReplayEntry.of(path),)
    return read_manifest(path).entries


def samples_of(path: Path) -> Iterator[ReplaySample]:
    """Every sample of a path, one at a time."""
    for entry in entries_of(path):
        yield entry.read()


class BatchShape(NamedTuple):
    """What samples of one batch share."""

    timesteps: int
    value_pred_steps: int
    expert: bool
    last: bool  # the observation after the last action is known


@dataclass(frozen=True, eq=False, kw_only=True)
class ReplayBatch(Trajectory):
    """Samples of one shape side by side, (T, B, …). First-generation batches have no mask."""

    metadata: tuple[SampleMeta, ...]  # B
    conflict_stats: Mapping[str, float]
    events: Array | None = None  # (T, B, K) counts of `world.state.EVENTS`


class ReplayDataset:
    """Batches of a dataset. Opening it checks every sample's metadata; in memory also every array, streamed when it is read."""

    def __init__(self, config: ReplayDatasetConfig, samples: Sequence[ReplaySample] | None = None) -> None:
        self.config = config
        self.epoch = 0
        self._samples: list[ReplaySample] | None = None
        if samples is not None:
            self._entries: tuple[ReplayEntry, ...] = ()
            self._samples = list(samples)
            self.metas = tuple(sample.meta for sample in samples)
        else:
            self._entries = config.entries
            self.metas = tuple(_read_metas(config.entries))
        if not self.metas:
            raise ReplayError(f"{config.label}: the dataset has no samples; capture some with `townlet capture`")
        self._check_alike()
        for i, meta in enumerate(self.metas):
            if wrong := table_problems(self._name(i), config.metrics_map.get(meta.sample_id, {}), meta):
                raise ReplayError(wrong[0])
        if self._samples is None and not config.streaming:
            self._samples = [self._read(i) for i in range(len(self.metas))]
        self._events = None if config.events is None else EventTable(read_event_records(config.events), str(config.events))
        self.normalizer = ConflictNormalizer.fit(self.samples()) if config.normalize_conflict_features else None
        self._buckets = self._bucket()

    @classmethod
    def of(cls, samples: Sequence[ReplaySample], **options: Any) -> Self:
        """Of samples in memory; `options` are those of `ReplayDatasetConfig`."""
        return cls(ReplayDatasetConfig(**{"label": "rollout", **options}), samples)

    @property
    def transitions(self) -> int:
        return sum(meta.timesteps for meta in self.metas)

    @property
    def hash(self) -> str:
        """Of the files (`dataset_hash`), or of samples in memory by the bytes that would be written."""
        if self._entries:
            return dataset_hash(self._entries)
        encoded = ((npz_bytes(to_disk(sample)), meta_bytes(sample.meta)) for sample in self.samples())
        return hash_of_data((files.sha256_bytes(arrays), files.sha256_bytes(meta)) for arrays, meta in encoded)

    def __len__(self) -> int:
        """Batches of an epoch."""
        size = self.config.batch_size
        return sum(len(b) // size if self.config.drop_last else -(-len(b) // size) for b in self._buckets.values())

    def set_epoch(self, epoch: int) -> None:
        """The epoch the next iteration shuffles by; each iteration moves on by one."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[ReplayBatch]:
        plan = self._plan(self.epoch)
        self.epoch += 1
        if self._samples is None:
            return prefetched((partial(self._batch, rows) for rows in plan), self.config.prefetch)
        return (self._batch(rows) for rows in plan)

    def samples(self) -> Iterator[ReplaySample]:
        """Every sample in the order of the manifest, one at a time when streaming."""
        return (self._read(i) for i in range(len(self.metas)))

    def baseline_metrics(self) -> dict[str, float]:
        """Reward and log-probability of the data itself, over all transitions; `reward_sum_mean` is per sample."""
        sums = np.array([self._summary(i) for i in range(len(self.metas))])  # (S, 3): timesteps, reward, log-prob
        steps, reward, log_prob = sums.sum(axis=0)
        return {
            "sample_count": float(len(sums)),
            "reward_mean": float(reward / steps),
            "reward_sum": float(reward),
            "reward_sum_mean": float(sums[:, 1].mean()),
            "log_prob_mean": float(log_prob / steps),
        }

    def _summary(self, i: int) -> tuple[float, float, float]:
        meta = self.metas[i]
        metrics = self.metrics(meta)
        if "reward_sum" in metrics and "log_prob_mean" in metrics:
            return meta.timesteps, float(metrics["reward_sum"]), float(metrics["log_prob_mean"]) * meta.timesteps
        sample = self._read(i)
        return meta.timesteps, float(sample.rewards.sum(dtype=np.float64)), float(sample.log_probs.sum(dtype=np.float64))

    def metrics(self, meta: SampleMeta) -> Metrics:
        """Of a sample: from the capture's table, else what the sample says itself."""
        return self.config.metrics_map.get(meta.sample_id, meta.metrics)

    def _name(self, i: int) -> str:
        return str(self._entries[i].sample) if self._entries else self.metas[i].sample_id

    def _read(self, i: int) -> ReplaySample:
        if self._samples is not None:
            return self._samples[i]
        entry = self._entries[i]
        return assemble(read_arrays(entry.sample, entry.sha256), self.metas[i], entry.sample)

    def _check_alike(self) -> None:
        """Everything one network or one batch needs in common; lengths may differ and are batched apart."""
        wrong = next(misfits([(self._name(i), meta) for i, meta in enumerate(self.metas)]), None)
        if wrong is not None:
            raise ReplayError(wrong)

    def _bucket(self) -> dict[BatchShape, list[int]]:
        buckets: dict[BatchShape, list[int]] = {}
        for i, meta in enumerate(self.metas):
            shape = BatchShape(meta.timesteps, meta.value_pred_steps, meta.has_expert, meta.sees_end)
            buckets.setdefault(shape, []).append(i)
        return buckets

    def _plan(self, epoch: int) -> list[list[int]]:
        """The samples of each batch of an epoch: shuffled inside every bucket, then the batches over all buckets."""
        size = self.config.batch_size
        rng = np.random.default_rng((self.config.seed, epoch))
        plan = []
        for rows in self._buckets.values():
            order = rng.permutation(rows).tolist() if self.config.shuffle else rows
            batches = [order[k : k + size] for k in range(0, len(order), size)]
            if self.config.drop_last and len(batches[-1]) < size:
                batches.pop()
            plan += batches
        return [plan[k] for k in rng.permutation(len(plan))] if self.config.shuffle else plan

    def _batch(self, rows: Sequence[int]) -> ReplayBatch:
        """Samples copied one by one into the arrays of a batch, so that no second copy of it ever stands in memory."""
        stacked: dict[str, Array] = {}
        for k, i in enumerate(rows):
            for name, array in self._read(i).columns().items():
                if k == 0:
                    stacked[name] = np.empty((len(array), len(rows), *array.shape[1:]), array.dtype)
                if array.dtype != stacked[name].dtype:
                    raise ReplayError(
                        f"{self._name(rows[0])} and {self._name(i)} do not fit into one dataset: their {name} are "
                        f"{stacked[name].dtype.name} and {array.dtype.name}; put them into separate datasets"
                    )
                stacked[name][:, k] = array
        metas = tuple(self.metas[i] for i in rows)
        steps, names = metas[0].timesteps, metas[0].feature_names
        stacked["active"] = np.ones((steps, len(rows)), np.bool_)
        stacked["starts"] = np.zeros((steps, len(rows)), np.bool_)
        stacked["starts"][0] = True
        stats = conflict_stats(stacked["features"][:steps], names, [self.metrics(meta) for meta in metas])
        if self.normalizer is not None:
            self.normalizer.apply(stacked["features"], names)
        events = None if self._events is None else np.stack([self._events.counts(meta) for meta in metas], axis=1)
        return ReplayBatch(**stacked, metadata=metas, conflict_stats=stats, events=events)


ALIKE = {
    "generation": "their generations differ",
    "variant": "the observation variant differs",
    "feature_names": "the features differ",
    "map_shape": "the map window differs",
    "action_level": "the action level differs",
    "action_catalogue_hash": "the action catalogue differs",
    "action_dim": "the number of actions differs",
}


def misfits(named: Sequence[tuple[object, SampleMeta]]) -> Iterator[str]:
    """A sentence for each field of ALIKE in which a sample differs from the first."""
    for other, meta in named[1:]:
        for name in ALIKE:
            if (found := _difference(named[0][1], meta, name)) is not None:
                yield f"{named[0][0]} and {other} do not fit into one dataset: {found}"


def _difference(one: SampleMeta, other: SampleMeta, name: str) -> str | None:
    told = [attrgetter(name)(meta) for meta in (one, other)]
    if told[0] == told[1]:
        return None
    if name == "generation":
        told = [f"schema {meta.schema_version}" if meta.generation == 2 else "first" for meta in (one, other)]
    if name == "feature_names":
        told = [f"{len(meta.feature_names)} names" for meta in (one, other)]
    return f"{ALIKE[name]} ({told[0]} against {told[1]}); put them into separate datasets"


def table_problems(name: object, row: Metrics, meta: SampleMeta) -> list[str]:
    """Where the capture's table of metrics differs from what a sample says itself, which is checked against its arrays."""
    return [
        f"{name}: the metric {metric} is {told} in the capture's table, but {value} in its metadata; capture it again"
        for metric, told, value in differing(row, meta.metrics)
    ]


def _read_metas(entries: Sequence[ReplayEntry]) -> Iterator[SampleMeta]:
    """Metadata of every entry; equal lists of names are kept once."""
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    for entry in entries:
        found = read_meta(entry.meta, entry.meta_sha256)
        arrays = {} if "schema_version" in found else read_arrays(entry.sample, entry.sha256)
        meta = interpret(found, arrays, entry.meta)
        if entry.frame_count is not None and entry.frame_count != meta.frame_count:
            raise ReplayError(f"{entry.meta}: frame_count is {meta.frame_count} but the manifest says {entry.frame_count}")
        names = known.setdefault(meta.feature_names, meta.feature_names)
        actions = known.setdefault(meta.action_names, meta.action_names)
        yield meta.model_copy(update={"feature_names": names, "action_names": actions})
