"""Which towns a policy is measured in, and on which seeds. All seeds are drawn here, so that no two purposes ever meet."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Literal, get_args

import numpy as np

from townlet.config.learning import EvaluationConfig
from townlet.config.loader import load_config
from townlet.config.models import SimulationConfig
from townlet.errors import UsageError
from townlet.types import Array

WINDOWS = 500_000  # windows of each purpose; two seeds apart, so a range of a million
Purpose = Literal["training", "validation", "evaluation", "promotion"]
PURPOSES: tuple[Purpose, ...] = get_args(Purpose)


def draw_seed(purpose: Purpose, index: int, evaluation: EvaluationConfig | None = None) -> int:
    """The seed of the index-th window. Those of training are even; the others are odd, each purpose in a range of its own.

    validation  1 …                          periodic evaluation, `best`, guards
    evaluation  evaluation.first_seed …      scorecards, reports, studies
    promotion   evaluation.first_seed + 10⁶ …  windows a candidate is judged on
    """
    if purpose not in PURPOSES:
        raise UsageError(f"seeds are drawn for {', '.join(PURPOSES)}, not for {purpose!r}")
    if index < 0:
        raise UsageError(f"the number of a window is 0 or more, not {index}")
    if purpose == "training":
        return 2 * index
    if index >= WINDOWS:
        raise UsageError(f"window {index} of {purpose} does not exist; they are numbered from 0 to {WINDOWS - 1}")
    first = (evaluation or EvaluationConfig()).first_seed
    return {"validation": 1, "evaluation": first, "promotion": first + 2 * WINDOWS}[purpose] + 2 * index


@dataclass(frozen=True)
class Case:
    """One town and one way of filling it."""

    name: str
    scenario: str
    learners: str = "all"  # whose residents the evaluated policy controls: all, first, half (every other one), newcomers
    neighbours: str | None = None  # policy of the others; None: the evaluated policy itself
    towns: int = 16
    days: int | None = 28  # None: as long as the scenario's episode
    overrides: tuple[str, ...] = ()
    config: SimulationConfig | None = field(default=None, compare=False)  # instead of loading the scenario

    def own(self) -> SimulationConfig:
        """The config as it was written."""
        return self.config if self.config is not None else load_config(self.scenario, self.overrides)

    def town(self, evaluation: EvaluationConfig | None = None) -> SimulationConfig:
        """The config to run: its own rules, measured as its own `evaluation` section says, or as the one given does."""
        config = self.own()
        if evaluation is not None:
            config = config.model_copy(update={"evaluation": evaluation})
        config = config.model_copy(update={"rewards": config.evaluation.rewards, "needs": config.measured_needs()})
        return config if self.days is None else config.lasting(self.days * config.world.ticks_per_day)


def learner_slots(learners: str, residents: int) -> Array:
    """Which of the founders the evaluated policy controls.  # (N,) bool"""
    slot = np.arange(residents)
    return np.asarray({"all": slot >= 0, "first": slot == 0, "half": slot % 2 == 0, "newcomers": slot < 0}[learners])


def suite_cases(
    name: str,
    evaluation: EvaluationConfig | None = None,
    *,
    towns: int | None = None,
    days: int | None = None,
    release: str | None = None,
) -> tuple[Case, ...]:
    """The cases of a suite of `evaluation.suites`.

    With neighbours "same" everybody follows the policy. Otherwise each scenario gives four cases: everybody the same; one
    learned resident among the neighbours; the newcomer among them, where the scenario brings one; and the first resident
    among residents of the release, when there is one.
    """
    evaluation = evaluation or EvaluationConfig()
    if name not in evaluation.suites:
        raise UsageError(f"there is no suite {name!r}; choose from {', '.join(evaluation.suites)}")
    suite = evaluation.suites[name]
    cases: list[Case] = []
    for scenario in suite.scenarios:
        case = partial(Case, scenario=scenario, towns=towns or suite.seeds, days=days or suite.days)
        cases.append(case(scenario))
        if suite.neighbours == "same":
            continue
        others = suite.neighbours
        cases.append(case(f"{scenario}/alone among {others}", learners="first", neighbours=others))
        if load_config(scenario).lifecycle.exits:
            cases.append(case(f"{scenario}/newcomer among {others}", learners="newcomers", neighbours=others))
        if release is not None:
            cases.append(case(f"{scenario}/alone among the release", learners="first", neighbours=release))
    return tuple(cases)
