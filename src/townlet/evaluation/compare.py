"""Measures over towns with their intervals, differences to a baseline, and scorecards to and from files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from townlet.config.learning import EvaluationConfig
from townlet.dto.evaluation import MEASURES, SCORECARD_LIMIT, SCORECARD_VERSION, Effect, Measure, PolicyCard, Scorecard
from townlet.files import read_bytes
from townlet.sealed import parse_sealed, write_sealed
from townlet.statistics import Interval, cohens_d, iqm, mean_interval, paired_difference
from townlet.types import Doubles


def summarise(values: Sequence[float | None], rules: EvaluationConfig) -> Measure:
    """A measure from its values per town; None where a town has none."""
    known = np.array([value for value in values if value is not None])
    if not known.size:
        return Measure(values=tuple(values), count=0, mean=None, iqm=None, low=None, high=None)
    found = mean_interval(known, level=rules.level, resamples=rules.resamples)
    low, high = interval_ends(found)
    return Measure(values=tuple(values), count=int(known.size), mean=found.value, iqm=iqm(known), low=low, high=high)


def interval_ends(interval: Interval) -> tuple[float, float] | tuple[None, None]:
    """Both ends, or neither: a single value has no interval."""
    return (interval.low, interval.high) if np.isfinite(interval.high) else (None, None)


def effect_of(values: Sequence[float | None], base: Sequence[float | None], rules: EvaluationConfig) -> Effect | None:
    """Paired by position; pairs in which either is missing are left out, and without any pair there is no effect."""
    pairs = np.array([(a, b) for a, b in zip(values, base, strict=True) if a is not None and b is not None])
    if not pairs.size:
        return None
    a, b = pairs.T
    return effect_with(paired_difference(a, b, level=rules.level, resamples=rules.resamples), a, b)


def effect_with(interval: Interval, a: Doubles, b: Doubles) -> Effect:
    """Of a − b, whose interval that is."""
    d, (low, high) = cohens_d(a, b), interval_ends(interval)
    return Effect(difference=interval.value, low=low, high=high, cohens_d=d if np.isfinite(d) else None, pairs=len(a))


def effects_of(card: PolicyCard, base: PolicyCard, names: Iterable[str], rules: EvaluationConfig) -> dict[str, Effect]:
    """How a policy differs from another in the same towns, by measure."""
    found = {name: effect_of(card.measures[name].values, base.measures[name].values, rules) for name in names}
    return {name: effect for name, effect in found.items() if effect is not None}


def with_effects(cards: list[PolicyCard], baseline: str | None, rules: EvaluationConfig) -> list[PolicyCard]:
    """The cards of a case, all but the baseline's with their effects against it."""
    base = next((card for card in cards if card.name == baseline), None)
    if base is None:
        return cards
    effects = (effects_of(card, base, () if card is base else MEASURES, rules) for card in cards)
    return [card.model_copy(update={"effects": found}) for card, found in zip(cards, effects)]


def save_scorecard(scorecard: Scorecard, path: Path) -> None:
    write_sealed(path, scorecard.model_dump(mode="json"))


def load_scorecard(path: Path) -> Scorecard:
    return parse_scorecard(read_bytes(path, limit=SCORECARD_LIMIT), path)


def parse_scorecard(data: bytes, path: Path) -> Scorecard:
    remedy = f"expected a scorecard of version {SCORECARD_VERSION}, make it again with `townlet evaluate`"
    return parse_sealed(data, path, Scorecard, remedy=remedy)
