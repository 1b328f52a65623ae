"""Scorecards and checkpoint folders made by hand, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from townlet.config.learning import EvaluationConfig
from townlet.dto.evaluation import MEASURES, CaseCard, Measure, PolicyCard, Scorecard
from townlet.evaluation.compare import effect_of, summarise
from townlet.evaluation.suites import draw_seed
from townlet.policy.checkpoint import Checkpoint, save_checkpoint, weights_hash

TYPICAL = {"return": 55.0, "self_sufficiency": 0.95, "attendance": 0.95, "conflicts": 3.0, "intensity": 2.0, "wait_mean": 12.0}
FEW = EvaluationConfig(resamples=10)
SPREAD = {"return": 3.0, "self_sufficiency": 0.05, "attendance": 0.01, "conflicts": 0.4, "intensity": 0.3, "wait_mean": 2.0}


def town_days(seed: int, towns: int, shift: Mapping[str, float] | None = None) -> dict[str, list[float | None]]:
    """Plausible values per measure and town; `shift` moves the mean of some."""
    rng = np.random.default_rng(seed)
    rows: dict[str, list[float | None]] = {"lead": [None] * towns}  # nobody has planned these towns
    for name in [name for name in MEASURES if name not in rows]:
        values = TYPICAL.get(name, 0.0) + SPREAD.get(name, 0.0) * rng.normal(size=towns) + (shift or {}).get(name, 0.0)
        rows[name] = [float(value) for value in values]
    return rows


def measured(values: Sequence[float | None]) -> Measure:
    return summarise(values, FEW)


def bare(values: Sequence[float | None]) -> Measure:
    """Values alone: all that gates read."""
    return Measure(values=tuple(values), count=len(values), mean=None, iqm=None, low=None, high=None)


def policy_card(
    name: str,
    rows: Mapping[str, Sequence[float | None]],
    *,
    policy_hash: str | None = None,
    base: Mapping[str, Sequence[float | None]] | None = None,
    actions: Sequence[int] = (70, 20, 10),
    intervals: bool = True,
) -> PolicyCard:
    effects = {} if base is None else {key: effect_of(rows[key], base[key], FEW) for key in MEASURES}
    return PolicyCard(
        name=name,
        source=name,
        policy_hash=policy_hash or name,
        kind=name,
        measures={key: measured(values) if intervals else bare(values) for key, values in rows.items()},
        effects={key: effect for key, effect in effects.items() if effect is not None},
        actions=dict(zip(("wait", "work", "use_shower:calm"), actions)),
        rivalry_histogram=(5, 3, 1, 1, 0, 0, 0, 0, 0, 0),
        decisions=sum(actions),
        steps_per_second=1.0,
    )


def scorecard(
    policies: Sequence[PolicyCard], *, suite: str = "standard", window: int = 0, baseline: str | None = None
) -> Scorecard:
    case = CaseCard(
        name="town_day",
        scenario="town_day",
        overrides=(),
        learners="all",
        neighbours=None,
        config_id="town_day",
        config_hash="0123456789abcdef",
        seed=draw_seed("evaluation", window),
        towns=len(policies[0].measures["return"].values),
        residents=8,
        days=1.0,
        policies=tuple(policies),
    )
    return Scorecard(
        suite=suite,
        baseline=baseline,
        policies=tuple(card.name for card in policies),
        rewards_hash="fedcba9876543210",
        versions={"townlet": "0"},
        cases=(case,),
    )


def duel(
    seed: int,
    shift: Mapping[str, float] | None = None,
    *,
    towns: int = 48,
    candidate: str = "candidate",
    champion: str = "scripted",
    window: int = 0,
    intervals: bool = True,
) -> Scorecard:
    """A candidate that differs from the champion by `shift`, each with its own luck in every town."""
    mine = policy_card("candidate", town_days(2 * seed + 1, towns, shift), policy_hash=candidate, intervals=intervals)
    base = policy_card("champion", town_days(2 * seed, towns), policy_hash=champion, intervals=intervals)
    return scorecard([mine, base], window=window)


def checkpoint_folder(folder: Path, content: str) -> str:
    """A checkpoint of no network in particular; its weight hash."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    checkpoint = Checkpoint({"name": np.frombuffer(content.encode(), np.uint8)}, {"network": {}})
    save_checkpoint(folder, checkpoint)
    return weights_hash(checkpoint.weights)
