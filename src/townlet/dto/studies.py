"""Results of studies: counterfactuals, arms × seeds, acceptance cycles."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from townlet.dto.evaluation import Effect, Frozen, Measure


class ForkEffect(Frozen):
    """One measure over all futures, as it was and with the edit."""

    before: Measure
    after: Measure
    effect: Effect


class ForkResult(Frozen):
    """What an edit changes in the futures of one moment."""

    config_hash: str
    edits: tuple[str, ...]
    tick: int
    ticks: int
    futures: int
    policy: str
    effects: dict[str, ForkEffect]


class ArmResult(Frozen):
    """One finished job of a study: an arm trained on one seed and measured in held-out towns."""

    schema_version: Literal[1] = 1
    study: str
    arm: str
    seed: int
    job: str = Field(description="hash of everything the result depends on; the file's name")
    config_hash: str
    policy_hash: str
    overrides: tuple[str, ...]
    minutes: float | None
    training_seconds: float
    transitions: int
    evaluation_seed: int
    towns: int
    measures: dict[str, Measure]
    versions: dict[str, str]


class Contrast(Frozen):
    """One arm minus another in one measure: means per seed paired, Student's interval."""

    measure: str
    arm: str
    against: str
    difference: float
    low: float | None = Field(description="null with fewer than two seeds")
    high: float | None
    cohens_d: float | None
    seeds: int


class StudyReport(Frozen):
    study: str
    config: str
    minutes: float | None
    results: tuple[ArmResult, ...]
    baselines: dict[str, dict[str, Measure]] = Field(description="scripted and random in the same towns")
    contrasts: tuple[Contrast, ...]
    command: str
