"""When an anneal stage has gone wrong: one-sided bounds against the last good stage, outside its interval. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import fmean, variance

from townlet.config.learning import AnnealGuardsConfig
from townlet.dto.policy import (
    BCTrainingResult,
    EpochFigures,
    EvaluationPoint,
    MeasureInterval,
    PPOTrainingResult,
    TrainingResult,
)
from townlet.policy.training.tracker import Tracker

RISES = {"conflicts": "conflicts per resident-day", "intensity": "conflict intensity per resident-day"}
LEAST_EPOCHS = 4  # on either side, before the flags of epochs say anything
CLEAR = 4.0  # standard errors of the difference of two means
FALLS = {"return": "return per resident-day", "self_sufficiency": "self-sufficiency"}


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
    """What is worse on the validation seed than the last good stage allows, a sentence each; a single town proves nothing.

    Conflict is measured against the script too, where that has more of it: a clone that gets little done has few conflicts,
    and a stage that quarrels no more than what it imitates is not at fault.
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
