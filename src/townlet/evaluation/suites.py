"""Which towns a policy is measured in, and on which seeds. Training draws its seeds here too, so that the two never meet."""

from __future__ import annotations

from dataclasses import dataclass, field

from townlet.config.loader import load_config
from townlet.config.models import EvaluationConfig, SimulationConfig
from townlet.errors import UsageError

FIRST_EVALUATION_SEED = 1_000_001


def draw_seed(purpose: str, index: int) -> int:
    """The index-th seed: even for `training`, odd and above 10⁶ for `evaluation`."""
    if purpose not in ("training", "evaluation"):
        raise UsageError(f"seeds are drawn for training or evaluation, not for {purpose!r}")
    if index < 0:
        raise UsageError(f"the number of a seed is 0 or more, not {index}")
    return 2 * index if purpose == "training" else FIRST_EVALUATION_SEED + 2 * index


@dataclass(frozen=True)
class Case:
    """One town and one way of filling it."""

    name: str
    scenario: str
    learners: str = "all"  # whose residents the evaluated policy controls: all, first, newcomers
    neighbours: str | None = None  # policy of the others; None: the evaluated policy itself
    towns: int = 16
    days: int | None = 1  # None: as long as the scenario's episode
    overrides: tuple[str, ...] = ()
    config: SimulationConfig | None = field(default=None, compare=False)  # instead of loading the scenario

    def town(self) -> SimulationConfig:
        """The config to run: its own rules, but measured with the committed reward weights."""
        config = self.config if self.config is not None else load_config(self.scenario, self.overrides)
        changes: dict[str, object] = {"rewards": config.evaluation.rewards, "needs": config.measured_needs()}
        if self.days is not None:
            changes["scenario"] = config.scenario.model_copy(update={"episode_ticks": self.days * config.world.ticks_per_day})
        return config.model_copy(update=changes)


def suite_cases(
    name: str, evaluation: EvaluationConfig | None = None, *, towns: int | None = None, release: str | None = None
) -> tuple[Case, ...]:
    """The cases of a suite of `evaluation.suites`.

    With neighbours "same" everybody follows the policy. Otherwise each scenario gives four cases: everybody the same; one
    learned resident among the neighbours; the newcomer among them, where the scenario brings one; and the first resident
    among residents of the release, when there is one.
    """
    evaluation = evaluation or EvaluationConfig()
    if name not in evaluation.suites:
        raise UsageError(f"there is no suite {name!r}; known are {', '.join(evaluation.suites)}")
    suite = evaluation.suites[name]
    cases: list[Case] = []
    for scenario in suite.scenarios:
        common = {"scenario": scenario, "towns": towns or suite.seeds, "days": suite.days}
        cases.append(Case(scenario, **common))  # type: ignore[arg-type]
        if suite.neighbours == "same":
            continue
        others = suite.neighbours
        cases.append(Case(f"{scenario}/alone among {others}", learners="first", neighbours=others, **common))  # type: ignore[arg-type]
        if load_config(scenario).lifecycle.exits:
            cases.append(Case(f"{scenario}/newcomer among {others}", learners="newcomers", neighbours=others, **common))  # type: ignore[arg-type]
        if release is not None:
            cases.append(Case(f"{scenario}/alone among the release", learners="first", neighbours=release, **common))  # type: ignore[arg-type]
    return tuple(cases)
