"""When an anneal stage has gone wrong: one-sided bounds against the last good stage, outside its interval. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from townlet.config.learning import AnnealGuardsConfig
from townlet.dto.policy import EvaluationPoint, Interval, PPOTrainingResult

RISES = {"conflicts": "conflicts per resident-day", "intensity": "conflict intensity per resident-day"}
FALLS = {"return": "return per resident-day", "self_sufficiency": "self-sufficiency"}


def score_guards(
    now: EvaluationPoint,
    good: EvaluationPoint,
    random: Mapping[str, Interval],
    scripted: Mapping[str, Interval],
    bounds: AnnealGuardsConfig,
) -> tuple[str, ...]:
    """What is worse on evaluation seeds than the last good stage allows, a sentence each.

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
        if value > most and value > base.high:
            fired.append(f"{label} rose to {value:.2f}, more than {bounds.conflict_rise:.0%} above {base.value:.2f}")
    for name, label in FALLS.items():
        if name not in now.measures or name not in good.measures or name not in random:
            continue
        value, base = now.measures[name].value, good.measures[name]
        least = base.value - bounds.return_fall * max(base.value - random[name].value, 0.0)
        if value < least and value < base.low:
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


def epoch_flags(record: Mapping[str, Any], notes: Mapping[str, Any], bounds: AnnealGuardsConfig) -> dict[str, bool]:
    """The anneal_*_flag fields of a record: the epoch's own figures against the baselines in its notes."""
    limits = {
        "loss": ("loss_value", bounds.value_loss_factor),
        "queue": ("queue_conflict_events", 1.0 + bounds.conflict_rise),
        "intensity": ("queue_conflict_intensity_sum", 1.0 + bounds.conflict_rise),
    }
    flags = {}
    for name, (source, factor) in limits.items():
        base, value = notes.get(f"anneal_{name}_baseline"), record.get(source)
        if base is not None and value is not None:
            flags[f"anneal_{name}_flag"] = bool(value > factor * float(base))
    return flags
