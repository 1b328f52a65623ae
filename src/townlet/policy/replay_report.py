"""Looking at replay data: everything that is wrong with it in one report, its figures, its histograms."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from townlet import files
from townlet.config.base import DAY
from townlet.dto.town import ObservationBatchDTO, ObservationDTO, RewardBreakdownDTO
from townlet.errors import ReplayError, UsageError
from townlet.policy.capture_events import read_event_records
from townlet.policy.manifest import EVENTS_NAME, MANIFEST_SUFFIX, ReplayEntry, find_manifest, survey_manifest
from townlet.policy.replay import (
    ReplayDataset,
    ReplayDatasetConfig,
    entries_of,
    misfits,
    read_metrics_table,
    samples_of,
    table_problems,
)
from townlet.policy.sample import (
    FirstGenerationWarning,
    ReplaySample,
    SampleMeta,
    interpret,
    problems,
    read_arrays,
    read_meta,
    read_sample,
)
from townlet.policy.sample_metrics import QUEUE_COUNTS, histogram, total
from townlet.types import Array


@dataclass
class ReplayReport:
    """The verdict on a sample, a manifest or a capture folder: all problems, and what is worth knowing."""

    path: str
    samples: int = 0
    transitions: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems


def validate(path: Path) -> ReplayReport:
    """Every check of every sample, and of the samples together; nothing stops at the first problem."""
    report = ReplayReport(str(path))
    if not path.exists():
        raise ReplayError(f"{path} does not exist; name a sample (.npz), a manifest or a capture folder")
    try:
        entries = _survey(path, report)
    except ReplayError as error:
        report.problems.append(str(error))
        return report
    known: list[tuple[ReplayEntry, SampleMeta]] = []
    for entry in entries:
        report.samples += 1
        try:
            arrays = read_arrays(entry.sample, entry.sha256)
            meta = interpret(read_meta(entry.meta, entry.meta_sha256), arrays, entry.meta)
        except ReplayError as error:
            report.problems.append(str(error))
            continue
        report.problems += [f"{entry.sample}: {problem}" for problem in problems(arrays, meta)]
        if entry.frame_count is not None and entry.frame_count != meta.frame_count:
            report.problems.append(f"{entry.meta}: frame_count is {meta.frame_count} but the manifest says {entry.frame_count}")
        if meta.generation == 1:
            report.notes.append(f"{entry.sample}: of the first generation, read-only; capture it again to train on it")
        known.append((entry, meta))
        report.transitions += meta.timesteps
    _compare(known, report)
    if path.is_dir():
        _check_table(path, known, report)
    return report


def _survey(path: Path, report: ReplayReport) -> tuple[ReplayEntry, ...]:
    if path.suffix == ".npz":
        return (ReplayEntry.of(path),)
    manifest = find_manifest(path) if path.is_dir() else path
    entries, wrong = survey_manifest(manifest)
    report.problems += wrong
    if path.is_dir() and ((path / files.SUMS).exists() or any(entry.sha256 for entry in entries)):
        _check_folder(path, manifest, entries, report)
    return entries


def _check_folder(folder: Path, manifest: Path, entries: tuple[ReplayEntry, ...], report: ReplayReport) -> None:
    """Every file against SHA256SUMS, both ways, and the events line by line."""
    sums = files.read_sums(folder, error=ReplayError)
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {files.SUMS, files.PUBLISHING}
    report.problems += [f"{folder / name}: is missing, though {files.SUMS} lists it" for name in sorted(set(sums) - there)]
    report.problems += [f"{folder / name}: is not listed in {files.SUMS}" for name in sorted(there - set(sums))]
    hashed = {entry.sample for entry in entries} | {entry.meta for entry in entries}
    for name in sorted(there & set(sums)):
        path = files.safe_join(folder, name, error=ReplayError)
        if files.sha256_file(path, error=ReplayError) != sums[name]:
            report.problems.append(f"{path}: is not what was written (its SHA-256 differs from {files.SUMS}); capture it again")
        elif name.endswith(".npz") and path not in hashed and manifest.name.endswith(MANIFEST_SUFFIX):
            report.problems.append(f"{path}: is a sample that {manifest.name} does not list")
    if (folder / EVENTS_NAME).exists():
        try:
            for _ in read_event_records(folder / EVENTS_NAME):
                pass
        except ReplayError as error:
            report.problems.append(str(error))


def _check_table(folder: Path, known: list[tuple[ReplayEntry, SampleMeta]], report: ReplayReport) -> None:
    """The capture's table of metrics against the metadata of its samples."""
    try:
        table = read_metrics_table(find_manifest(folder))
    except ReplayError as error:
        report.problems.append(str(error))
        return
    for entry, meta in known:
        name = entry.sample.relative_to(folder).with_suffix("").as_posix()
        report.problems += table_problems(entry.sample, table.get(name, {}), meta)


def _compare(known: list[tuple[ReplayEntry, SampleMeta]], report: ReplayReport) -> None:
    if not known:
        return
    report.problems += misfits([(entry.sample, meta) for entry, meta in known])
    lengths = Counter(meta.timesteps for _, meta in known)
    if len(lengths) > 1:
        told = ", ".join(f"{count} of {length} decisions" for length, count in sorted(lengths.items()))
        report.notes.append(f"windows of {len(lengths)} lengths ({told}): they are batched apart, never padded")


# --- figures -------------------------------------------------------------------------------------------------------------

BAR = 40  # characters of the longest bar
DRAWN = ("rivalry_max", "rivalry_avoid_count", "queue_position", "queue_ahead")  # the last: the longest queue in sight


@dataclass(frozen=True)
class ReplayStats:
    label: str
    samples: int
    transitions: int
    residents: int
    scenarios: tuple[str, ...]
    bytes: int
    resident_days: float
    baseline: dict[str, float]
    conflict: dict[str, float]
    actions: dict[str, int]
    histograms: dict[str, list[int]]  # ten equal bins of [0, 1]

    @property
    def bytes_per_resident_day(self) -> float:
        return self.bytes / self.resident_days


def stats(path: Path) -> ReplayStats:
    """The figures of a dataset in one pass, one sample in memory at a time."""
    entries = entries_of(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FirstGenerationWarning)
        dataset = ReplayDataset(ReplayDatasetConfig(entries=entries, streaming=True, label=path.name))
        counts: dict[str, Array] = {}
        actions: Counter[str] = Counter()
        for sample in dataset.samples():
            for name, column in _drawn_columns(sample).items():
                counts[name] = counts.get(name, 0) + np.array(histogram(column))
            names = sample.meta.action_names or tuple(str(i) for i in range(sample.meta.action_dim))
            actions.update(names[i] for i in sample.actions)
        baseline = dataset.baseline_metrics()
    metas = dataset.metas
    ticks = sum(meta.timesteps * meta.decision_interval for meta in metas)
    return ReplayStats(
        label=path.name,
        samples=len(metas),
        transitions=dataset.transitions,
        residents=len({meta.agent_id for meta in metas}),
        scenarios=tuple(sorted({meta.capture.scenario for meta in metas})),
        bytes=sum(entry.sample.stat().st_size + entry.meta.stat().st_size for entry in entries),
        resident_days=ticks / DAY,
        baseline=baseline,
        conflict={name: float(total((meta.metrics for meta in metas), name)) for name in QUEUE_COUNTS},
        actions=dict(actions.most_common()),
        histograms={name: [int(count) for count in counts[name]] for name in DRAWN if name in counts},
    )


def _drawn_columns(sample: ReplaySample) -> dict[str, Array]:
    names = sample.meta.feature_names
    columns = {name: np.clip(sample.feature(name), 0.0, 1.0) for name in DRAWN if name in names}
    queues = [i for i, name in enumerate(names) if name.endswith("_queue") and name != "in_queue"]
    if queues:
        columns["queue_ahead"] = np.clip(sample.features[: sample.steps, queues].max(axis=1), 0.0, 1.0)
    return columns


def draw_histogram(name: str, counts: list[int]) -> list[str]:
    """A histogram of [0, 1] for a terminal, one line per bin that holds something."""
    total, top = max(1, sum(counts)), max(1, max(counts))
    lines = [name]
    for k, count in enumerate(counts):
        low, high = k / len(counts), (k + 1) / len(counts)
        bar = "█" * round(BAR * count / top) or "▏"
        if count:
            lines.append(f"  {low:.1f}–{high:.1f} {bar:<{BAR}} {count:>8} {100 * count / total:5.1f} %")
    return lines


def stats_text(found: ReplayStats) -> str:
    base, conflict = found.baseline, found.conflict
    where = ", ".join(found.scenarios) or "unknown scenarios"
    lines = [
        f"{found.label}: {found.samples} samples of {found.residents} residents in {where}",
        f"  {found.transitions} decisions, {found.resident_days:.2f} resident-days, {found.bytes / 1e6:.2f} MB, "
        f"{found.bytes_per_resident_day / 1e3:.1f} kB per resident-day",
        f"  reward {base['reward_sum_mean']:.3f} per sample, {base['reward_mean']:.5f} per decision; "
        f"log-prob {base['log_prob_mean']:.4f}",
        f"  {conflict['queue_conflict_events']:.0f} conflicts of intensity {conflict['queue_conflict_intensity_sum']:.2f}, "
        f"{conflict['wait_count']:.0f} waits of {conflict['wait_sum']:.0f} ticks in all",
        "  actions: " + ", ".join(f"{name} {count}" for name, count in list(found.actions.items())[:8]),
    ]
    for name, counts in found.histograms.items():
        lines += draw_histogram(name, counts)
    return "\n".join(lines)


HEAD = ("sample", "agent", "scenario", "decisions", "reward", "log-prob", "rivalry mean", "rivalry max", "conflicts", "end")


class SampleView(BaseModel):
    """One decision of a sample, and what the sample as a whole says."""

    model_config = ConfigDict(frozen=True)

    sample_id: str
    schema_version: str
    timesteps: int
    step: int
    seen: ObservationBatchDTO
    action: str
    expert_action: str | None
    log_prob: float
    value: float | None
    reward: float
    terminated: bool
    truncated: bool
    reward_terms: RewardBreakdownDTO | None
    metrics: dict[str, object]


def sample_view(path: Path, step: int) -> SampleView:
    sample = read_sample(path)
    meta = sample.meta
    if step >= sample.steps:
        raise UsageError(f"{path} has {sample.steps} decisions, expected a step of 0 to {sample.steps - 1}, found {step}")
    legal = () if sample.masks is None else sample.masks[step].nonzero()[0].tolist()
    observation = ObservationDTO(
        agent_id=meta.agent_id,
        tick=meta.first_tick + step * meta.decision_interval,
        features=dict(zip(meta.feature_names, sample.features[step].tolist())),
        legal_actions=tuple(_action(sample, index) for index in legal),
        map_shape=() if sample.maps is None else sample.maps.shape[1:],
    )
    terms = meta.metrics.get("reward_terms")
    return SampleView(
        sample_id=meta.sample_id,
        schema_version=meta.schema_version,
        timesteps=sample.steps,
        step=step,
        seen=ObservationBatchDTO(
            variant=meta.variant,
            action_level=meta.action_level,
            decision_interval=meta.decision_interval,
            observations=(observation,),
        ),
        action=_action(sample, int(sample.actions[step])),
        expert_action=None if sample.expert is None else _action(sample, int(sample.expert[step])),
        log_prob=float(sample.log_probs[step]),
        value=None if meta.policy.values == "none" else float(sample.values[step]),
        reward=float(sample.rewards[step]),
        terminated=bool(sample.terminated[step]),
        truncated=bool(sample.truncated[step]),
        reward_terms=RewardBreakdownDTO(**terms) if isinstance(terms, dict) else None,
        metrics=dict(meta.metrics),
    )


def _action(sample: ReplaySample, index: int) -> str:
    return sample.meta.action_names[index] if sample.meta.action_names else str(index)


def view_text(view: SampleView) -> str:
    (seen,) = view.seen.observations
    shown = [f"{name} {value:.3f}" for name, value in seen.features.items() if abs(value) > 5e-4]
    columns = [shown[i : i + 3] for i in range(0, len(shown), 3)]
    lines = [
        f"{view.sample_id}: schema {view.schema_version}, {view.seen.variant}, {view.timesteps} decisions of {seen.agent_id}",
        f"decision {view.step}, tick {seen.tick}: {view.action}"
        + (f" (the script: {view.expert_action})" if view.expert_action not in (None, view.action) else "")
        + f", log-prob {view.log_prob:.4f}, reward {view.reward:+.4f}"
        + (", terminated" if view.terminated else ", truncated" if view.truncated else ""),
        f"legal: {', '.join(seen.legal_actions) or 'unknown'}",
        "seen (what is not zero):",
        *("  " + "".join(f"{cell:<36}" for cell in row).rstrip() for row in columns),
    ]
    if view.reward_terms is not None:
        told = ", ".join(f"{name} {value:+.3f}" for name, value in view.reward_terms.model_dump().items() if value)
        lines.append(f"reward of the life {view.reward_terms.total:+.3f}: {told}")
    return "\n".join(lines)


def dataset_table(path: Path) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Head and rows, one per sample."""
    rows: list[tuple[object, ...]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FirstGenerationWarning)
        for sample in samples_of(path):
            rivalry = sample.feature("rivalry_max")
            end = "terminated" if sample.terminated[-1] else "truncated" if sample.truncated[-1] else "cut"
            conflicts = sample.meta.metrics.get("queue_conflict_events", "–")
            figures = [sample.rewards.sum(dtype="f8"), sample.log_probs.mean(dtype="f8"), rivalry.mean(dtype="f8")]
            shown = (round(float(figure), 3) for figure in (*figures, rivalry.max()))
            meta = sample.meta
            rows.append((meta.sample_id, meta.agent_id, meta.capture.scenario, sample.steps, *shown, conflicts, end))
    return HEAD, rows
