"""What a study is: arms × seeds of one training config, a budget, and which arms are compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field, ValidationError, model_validator

from townlet import __version__
from townlet.config.base import Many, Section
from townlet.config.loader import find_config, load_config, read_tree
from townlet.config.models import SimulationConfig, config_hash
from townlet.config.problems import sentences
from townlet.config.tree import plain
from townlet.errors import ConfigError
from townlet.files import short_hash
from townlet.names import Name, name_from

SIGHTED, UNTOLD, BLIND = "sighted", "fields_hidden", "blind"  # arms of an ablation
Words = Annotated[tuple[str, ...], Many]
Pair = Annotated[tuple[str, str], Many]


class StudySpec(Section):
    """The file `townlet study` reads (YAML or JSON)."""

    name: Name = Field(description="Name; results and report are filed under it.")
    config: str = Field(min_length=1, description="Training config or scenario every arm starts from.")
    recipe: str | None = Field(None, description="Shipped training config, such as demo, whose settings replace the town's.")
    mode: str | None = Field(None, description="Training mode; by default training.source of the config.")
    minutes: float | None = Field(None, gt=0, description="Minutes of PPO per job; null leaves it to training.epochs.")
    seeds: int = Field(5, ge=1, le=1000, description="Training seeds per arm.")
    towns: int = Field(64, ge=1, le=10_000, description="Held-out towns every trained policy is measured in.")
    days: int | None = Field(28, ge=1, le=365, description="Days per town; null: the scenario's episode.")
    scenario: str | None = Field(None, description="Measure in this town instead of the one trained in.")
    overrides: Words = Field((), description="Config overrides of every arm, as a.b=c.")
    arms: dict[Name, Words] = Field(min_length=1, description="Arm → its own overrides.")
    contrasts: Annotated[tuple[Pair, ...], Many] = Field((), description="Pairs of arms: the first minus the second.")

    @model_validator(mode="after")
    def _known_arms(self) -> StudySpec:
        for pair in self.contrasts:
            for arm in pair:
                if arm not in self.arms:
                    raise ValueError(f"contrasts names the arm {arm!r}; choose from {', '.join(self.arms)}")
        return self


class StudyJob(NamedTuple):
    """One arm on one seed. `hash` covers everything that its result depends on: a finished job is never run twice. `training`
    covers the training alone: a study that measures it in another way does not train it again."""

    arm: str
    seed: int
    config: SimulationConfig
    hash: str
    training: str


def load_spec(path: Path) -> StudySpec:
    tree = read_tree(path)
    try:
        return StudySpec.model_validate_json(json.dumps(plain(tree)))
    except ValidationError as error:
        raise ConfigError(f"{sentences(error, StudySpec, tree)}; see `townlet study --help` for the fields") from None


def ablation(
    config: str,
    blind: str,
    *,
    seeds: int = 5,
    minutes: float | None = 4.0,
    mode: str | None = None,
    overrides: Sequence[str] = (),
    towns: int = 64,
    days: int = 28,
) -> StudySpec:
    """What it is worth to see conflict: the same training with its fields, without them, and without the ranking of `calm` too;
    three arms, paired by seed."""
    return StudySpec(
        name=f"{name_from(find_config(config).stem)[:64]}_blind_{blind}",
        config=config,
        mode=mode,
        minutes=minutes,
        seeds=seeds,
        towns=towns,
        days=days,
        overrides=tuple(overrides),
        arms={
            SIGHTED: (),
            UNTOLD: (f"observations.blind=[{blind}_fields]",),
            BLIND: (f"observations.blind=[{blind}]",),
        },
        contrasts=((SIGHTED, UNTOLD), (UNTOLD, BLIND), (SIGHTED, BLIND)),
    )


def jobs_of(spec: StudySpec) -> list[StudyJob]:
    """All jobs, seed by seed, so that a stopped study has whole pairs."""
    return [job_of(spec, arm, seed) for seed in range(spec.seeds) for arm in spec.arms]


def job_of(spec: StudySpec, arm: str, seed: int) -> StudyJob:
    if arm not in spec.arms:
        raise ConfigError(f"the study {spec.name} has no arm {arm!r}; choose from {', '.join(spec.arms)}")
    one_thread = ("training.threads=1", "training.workers=1", "training.engine=local")
    words = [*spec.overrides, *spec.arms[arm], f"seed={seed}", *one_thread]
    if spec.minutes is not None:
        words.append(f"training.time_limit={spec.minutes}")
    config = load_config(spec.config, words, recipe=spec.recipe)
    learned = config_hash(config, without=["promotion"])  # by what gates a policy is released changes nothing in it
    trained = [__version__, learned, spec.mode]
    facts = [*trained, spec.towns, spec.days, spec.scenario]
    return StudyJob(arm, seed, config, short_hash(json.dumps(facts)), short_hash(json.dumps(trained)))
