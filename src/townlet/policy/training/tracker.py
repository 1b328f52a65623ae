"""The anneal tracker: the state of a schedule between its stages; it survives a stop."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from townlet import files
from townlet.dto.policy import AnnealStageResult, EpochFigures, EvaluationPoint, MeasureInterval
from townlet.errors import CheckpointError
from townlet.sealed import read_sealed, write_sealed

TRACKER = "anneal.json"


class Tracker(BaseModel):
    """How far the schedule has come, kept on disk between stages: a resume starts with the first unfinished one."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    done: list[AnnealStageResult] = Field(default_factory=list)
    random: dict[str, MeasureInterval] = Field(default_factory=dict)
    scripted: dict[str, MeasureInterval] = Field(default_factory=dict)
    good: str | None = None  # checkpoint of the last good stage
    good_score: EvaluationPoint | None = None
    good_value_loss: float | None = None
    good_epochs: tuple[EpochFigures, ...] = ()  # the last ones of the last good PPO stage
    mix: tuple[float, float] | None = None  # bc_weight and scripted_share of the last good PPO stage, or what it began with
    frozen: bool = False
    strikes: int = 0
    steps: int = 0
    cycle: int = -1
    notes: dict[str, float | bool | str | None] = Field(default_factory=dict)
    log: dict[str, Any] = Field(default_factory=dict)  # position of the telemetry log after the last stage

    @classmethod
    def read(cls, folder: Path) -> Tracker:
        """The tracker of a run folder; a new one before its first stage has ended."""
        if not (folder / TRACKER).is_file():
            return cls()
        remedy = "restore the state of the anneal run, or start it again"
        tracker = read_sealed(folder / TRACKER, cls, remedy=remedy, error=CheckpointError)
        if tracker.good is not None:
            tracker.good = str(files.safe_join(folder, tracker.good, error=CheckpointError))
        return tracker

    def write(self, folder: Path) -> None:
        """Kept as seen from the folder, which may be moved before it is read again."""
        good = None if self.good is None else os.path.relpath(self.good, folder)
        write_sealed(folder / TRACKER, self.model_dump(mode="json") | {"good": good})
