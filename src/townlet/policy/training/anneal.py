"""What an anneal run knows between its stages, kept on disk, and when a stage has gone wrong.

The guards are pure functions: one-sided bounds against the last good stage, outside its interval.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, variance

from pydantic import BaseModel, ConfigDict, Field

from townlet import files
from townlet.config.learning import AnnealGuardsConfig, AnnealStage
from townlet.dto.policy import (
    AnnealStageResult,
    BCTrainingResult,
    EpochFigures,
    EvaluationPoint,
    MeasureInterval,
    PPOTrainingResult,
    TrainingResult,
)
from townlet.errors import CheckpointError
from townlet.sealed import read_sealed, write_sealed

TRACKER = "anneal.json"
RISES = {"conflicts": "conflicts per resident-day", "intensity": "conflict intensity per resident-day"}
LEAST_EPOCHS = 4  # on either side, before the flags of epochs say anything
CLEAR = 4.0  # standard errors of the difference of two means
FALLS = {"return": "return per resident-day", "self_sufficiency": "self-sufficiency"}


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
    log: dict[str, int | str] = Field(default_factory=dict)  # position of the telemetry log after the last stage

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

    def add_stage(
        self,
        stage: AnnealStage,
        mix: tuple[float, float],
        result: TrainingResult | None,
        point: EvaluationPoint | None,
        guards: tuple[str, ...],
    ) -> None:
        """Keep the stage as the last good one, or freeze the mix and go back to the one before it."""
        bc = result if isinstance(result, BCTrainingResult) else None
        ppo = result if isinstance(result, PPOTrainingResult) else None
        if guards:
            self.frozen, self.strikes = True, self.strikes + 1
        else:
            self.strikes = 0
            self.mix = mix if ppo is not None else self.mix
            self.good = result.checkpoint if result is not None and result.checkpoint is not None else self.good
            self.good_score = point or self.good_score
        if bc is not None:
            self.notes["anneal_dataset"] = bc.dataset
            self.notes["anneal_bc_accuracy"] = bc.accuracy
            self.notes["anneal_bc_threshold"] = bc.accuracy_threshold
            self.notes["anneal_bc_passed"] = bc.passed
        if ppo is not None:
            self.steps, self.cycle = max(self.steps, ppo.steps), self.cycle + ppo.epochs
            if not guards:
                self.good_value_loss, self.good_epochs = ppo.loss_value, ppo.recent
                self.notes |= baselines(ppo.recent)
        self.done.append(
            AnnealStageResult(
                cycle=stage.cycle,
                mode=stage.mode,
                bc_weight=mix[0],
                scripted_share=mix[1],
                epochs=stage.epochs,
                bc=bc,
                ppo=ppo,
                evaluation=point,
                guards=guards,
                rolled_back_to=self.good if guards else None,
            )
        )


def stage_guards(result: TrainingResult, point: EvaluationPoint, tracker: Tracker, bounds: AnnealGuardsConfig) -> tuple[str, ...]:
    """Every guard of a PPO stage that fired, a sentence each; cloning has a gate instead."""
    if not isinstance(result, PPOTrainingResult):
        return ()
    fired = update_guards(result, tracker.good_value_loss, bounds)
    if tracker.good_score is not None:
        fired = score_guards(point, tracker.good_score, tracker.random, tracker.scripted, bounds) + fired
    return fired


def cloning_gate(bc: BCTrainingResult) -> str:
    """What cloning reached, beside its gates."""
    change = "none" if bc.change_accuracy is None else f"{bc.change_accuracy:.3f}"
    return (
        f"cloning reached {bc.accuracy:.3f} (gate {bc.accuracy_threshold:g}) and {change} on changes "
        f"(gate {bc.change_accuracy_threshold:g})"
    )


def score_guards(
    now: EvaluationPoint,
    good: EvaluationPoint,
    random: Mapping[str, MeasureInterval],
    scripted: Mapping[str, MeasureInterval],
    bounds: AnnealGuardsConfig,
) -> tuple[str, ...]:
    """A sentence for each measure that is worse on the validation seed than the last good stage allows. A single town has no
    interval, and proves nothing.

    Conflicts are compared with those of the last good stage or of the script, whichever has more: a clone that gets little done
    has few conflicts, and a stage that has no more of them than the script is not at fault.
    """
    fired = []
    for name, label in RISES.items():
        if name not in now.measures or name not in good.measures:
            continue
        value = now.measures[name].value
        base = max(good.measures[name], scripted.get(name, good.measures[name]), key=lambda interval: interval.value)
        most = base.value * (1.0 + bounds.conflict_rise)
        if base.high is not None and value > most and value > base.high:
            fired.append(f"{label} rose to {value:.2f}, more than {bounds.conflict_rise:.0%} above {base.value:.2f}")
    for name, label in FALLS.items():
        if name not in now.measures or name not in good.measures or name not in random:
            continue
        value, base = now.measures[name].value, good.measures[name]
        least = base.value - bounds.return_fall * max(base.value - random[name].value, 0.0)
        if base.low is not None and value < least and value < base.low:
            fired.append(f"{label} fell from {base.value:.2f} to {value:.2f}, below {least:.2f}")
    return tuple(fired)


def update_guards(now: PPOTrainingResult, good_value_loss: float | None, bounds: AnnealGuardsConfig) -> tuple[str, ...]:
    """What is wrong with the updates themselves."""
    fired = []
    if good_value_loss is not None and now.loss_value > bounds.value_loss_factor * good_value_loss:
        fired.append(f"value loss is {now.loss_value:.3f}, more than {bounds.value_loss_factor:g} × {good_value_loss:.3f}")
    if now.kl_k3 > bounds.kl_bound:
        fired.append(f"kl_k3 is {now.kl_k3:.3f}, above {bounds.kl_bound:g}")
    return tuple(fired)


def baselines(epochs: Sequence[EpochFigures]) -> dict[str, float | None]:
    """The anneal_*_baseline fields: means per epoch."""
    columns = {
        "loss": [each.loss_value for each in epochs],
        "queue": [each.conflicts for each in epochs if each.conflicts is not None],
        "intensity": [each.intensity for each in epochs if each.intensity is not None],
    }
    return {f"anneal_{name}_baseline": fmean(values) if values else None for name, values in columns.items()}


def epoch_flags(recent: Sequence[EpochFigures], good: Sequence[EpochFigures], bounds: AnnealGuardsConfig) -> dict[str, bool]:
    """The anneal_*_flag fields of a record: the last epochs of this stage against the last ones of the last good stage."""
    if not good:
        return {}
    factors = (bounds.value_loss_factor, 1.0 + bounds.conflict_rise, 1.0 + bounds.conflict_rise)
    columns = zip(_columns(recent), _columns(good), factors)
    return {f"anneal_{name}_flag": risen(*each) for name, each in zip(("loss", "queue", "intensity"), columns)}


def _columns(epochs: Sequence[EpochFigures]) -> list[list[float]]:
    """Value loss, conflicts and intensity per resident-day of epochs that have them."""
    lived = [each for each in epochs if each.resident_days > 0]
    return [
        [each.loss_value for each in epochs],
        [each.conflicts / each.resident_days for each in lived if each.conflicts is not None],
        [each.intensity / each.resident_days for each in lived if each.intensity is not None],
    ]


def risen(now: Sequence[float], before: Sequence[float], factor: float) -> bool:
    """Is the mean of now above `factor` × the mean before, and the rise clear of what single epochs vary by?"""
    if min(len(now), len(before)) < LEAST_EPOCHS:
        return False
    rise = fmean(now) - fmean(before)
    error = sqrt(variance(now) / len(now) + variance(before) / len(before))
    return rise > (factor - 1.0) * fmean(before) and rise > CLEAR * error
