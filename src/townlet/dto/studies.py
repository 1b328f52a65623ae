"""Results of studies: counterfactuals, arms × seeds, acceptance cycles."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from townlet.dto import FrozenStrict
from townlet.dto.evaluation import Effect, Measure, Measures
from townlet.names import Name


class ForkEffect(FrozenStrict):
    """One measure over all futures, as it was and with the edit."""

    before: Measure
    after: Measure
    effect: Effect


class ForkResult(FrozenStrict):
    """What an edit changes in the futures of one moment."""

    config_hash: str
    edits: tuple[str, ...]
    tick: int
    ticks: int
    futures: int
    policy: str
    level: float = Field(description="of the intervals, `evaluation.level`")
    effects: dict[str, ForkEffect]


class ArmResult(FrozenStrict):
    """One finished job of a study: an arm trained on one seed and measured in held-out towns."""

    schema_version: Literal[1] = 1
    study: Name
    arm: Name
    seed: int
    job: Name = Field(description="hash of everything the result depends on: a finished job is found by it")
    config_hash: str
    policy_hash: str
    overrides: tuple[str, ...]
    minutes: float | None
    training_seconds: float
    processor_seconds: float | None = Field(None, description="of the training; null where it was stopped or done before")
    transitions: int
    evaluation_seed: int
    towns: int
    measures: Measures
    versions: dict[str, str]


class Contrast(FrozenStrict):
    """One arm minus another in one measure: means per seed paired, Student's interval."""

    measure: str
    arm: str
    against: str
    difference: float
    low: float | None = Field(description="null with fewer than two seeds")
    high: float | None
    cohens_d: float | None
    p: float | None = Field(None, description="Student's p-value, corrected for the number of contrasts (Holm)")
    seeds: int


class StudyReport(FrozenStrict):
    study: str
    config: str
    minutes: float | None
    level: float = Field(description="of the intervals, `evaluation.level`")
    results: tuple[ArmResult, ...]
    older: int = Field(description="of the results: those of another config or version than the present one")
    baselines: dict[str, dict[str, Measure]] = Field(description="`evaluation.baseline` and random in the same towns")
    contrasts: tuple[Contrast, ...]
    command: str


class SoakCycle(FrozenStrict):
    """One capture and the update on it: the network goes on where the cycle before left it."""

    cycle: int
    samples: int
    captured: int = Field(description="transitions captured")
    capture_hash: str = Field(description="SHA-256 of the capture's SHA256SUMS")
    weights_before: str
    weights_after: str
    transitions: int = Field(description="transitions trained on, replayed and fresh")
    loss_value: float
    kl_k3: float
    conflict_events: float | None
    conflict_intensity: float | None
    memory_mb: float = Field(description="resident memory of the process after the cycle")


class SoakResult(FrozenStrict):
    """All cycles of one scenario and what the telemetry tools said about them."""

    scenario: str
    config_hash: str
    cycles: tuple[SoakCycle, ...]
    residents: int
    records: int
    positions: tuple[tuple[int, int, int], ...] = Field(description="epoch, cycle_id and log_stream_offset of every record")
    runs: int = Field(description="different run ids in the log")
    problems: tuple[str, ...] = Field(description="of the validator")
    alerts: tuple[str, ...] = Field(description="of the watcher")
    baseline: dict[str, Measure] = Field(description="scripted residents on evaluation seeds")
    files: dict[str, str] = Field(description="artefact → SHA-256")
    seconds: float


class Criterion(FrozenStrict):
    name: str
    met: bool
    evidence: str


class Acceptance(FrozenStrict):
    """What `townlet accept` ran and found."""

    accepted: bool
    criteria: tuple[Criterion, ...]
    soaks: tuple[SoakResult, ...]
    versions: dict[str, str]
    command: str
