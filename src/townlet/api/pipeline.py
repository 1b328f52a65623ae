"""The pipeline as functions: what the commands of the same names do."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from townlet.api.results import Capture, Run, Scores
from townlet.config.loader import load_config
from townlet.config.models import SimulationConfig
from townlet.envs.vector import VectorTown, checked_actions
from townlet.errors import UsageError, whole_number
from townlet.evaluation.scorecard import PolicySource
from townlet.evaluation.scorecard import evaluate as measure
from townlet.evaluation.suites import Case
from townlet.observer.living import file_parts
from townlet.observer.open_take import open_takes
from townlet.observer.standalone import write_page
from townlet.observer.studio import Studio
from townlet.policy.capture import CaptureOptions
from townlet.policy.capture import capture as run_capture
from townlet.policy.runtime import Decision, locate, make_policy
from townlet.policy.training.contexts import Progress, RunOptions
from townlet.policy.training.orchestrator import REPLAY_MODES, PolicyTrainingOrchestrator
from townlet.policy.training.run_folder import next_free
from townlet.types import Array

Scenario = str | Path | SimulationConfig


def train(
    scenario: Scenario = "town_day",
    *,
    mode: str | None = None,
    recipe: str | None = None,
    epochs: int | None = None,
    data: Path | str | None = None,
    run_dir: Path | str | None = None,
    resume: bool = False,
    start_from: Path | str | None = None,
    overrides: Sequence[str] = (),
    progress: Progress | None = None,
) -> Run:
    """Train residents in the town of a scenario (a shipped name, a file or a config) and keep the run in a folder.

    `mode` is rollout (PPO in the town), bc (cloning the script), anneal (first bc, then PPO), replay or mixed (PPO on `data`, a
    capture folder or manifest); by default what the scenario says. `recipe="demo"` takes the settings of the demo. `run_dir` is
    a new folder, by default the next free one under runs/; with `resume` it is the folder of a run that goes on, bit for bit.
    Needs torch.

        run = townlet.train("town_day", mode="anneal", overrides=["ppo.learning_rate=1e-4"])
        run.plot().save("curves.png")
    """
    if resume:
        if run_dir is None:
            raise UsageError("resume goes on with a run; name its folder with run_dir")
        if overrides or any(given is not None for given in (mode, recipe, epochs, data)):
            raise UsageError("a resumed run keeps its settings; leave out mode, recipe, epochs, data and overrides")
        run = Run(run_dir)
        config, mode = run.config, run.card.mode
    else:
        if data is not None:
            overrides = (*overrides, f"training.{'capture_dir' if Path(data).is_dir() else 'replay_manifest'}={data}")
        config = _config(scenario, overrides, recipe)
        mode = mode or (config.training.source if data is None else "replay")
        if data is not None and mode not in REPLAY_MODES:
            raise UsageError(f"the mode {mode} does not read data; use mode replay or mixed, or override training.bc.manifest")
        run_dir = run_dir or next_free(config.config_id, mode)
    options = RunOptions(
        epochs=epochs,
        run_dir=Path(run_dir),
        resume=resume,
        start_from=None if start_from is None else Path(start_from),
        command=("townlet.train",),
    )
    if progress is not None and not isinstance(progress, Progress):
        raise UsageError(f"progress is {progress!r:.60}, expected an object with begin, advance and say, or None")
    PolicyTrainingOrchestrator(config, progress=progress).run(mode, options)
    return Run(run_dir)


def evaluate(
    policies: AnyPolicy | Mapping[str, AnyPolicy],
    scenarios: Scenario | Sequence[Scenario] | None = None,
    *,
    towns: int = 16,
    days: int = 1,
    neighbours: str | None = None,
    baseline: str | None = None,
    window: int = 0,
    threads: int = 1,
    overrides: Sequence[str] = (),
) -> Scores:
    """Measure policies in the same towns, on seeds that training never sees.

    A policy is "scripted", "random", "schedule", a checkpoint folder, a run, or a function that makes one for a batch of towns
    (`townlet.own_policy` turns a function of observations into one). Several go by name; effects are paired with `baseline`.
    With `neighbours` the first resident alone follows the policy. `scenarios` are by default the town of the first run among the
    policies, else town_day.

        first_legal = townlet.own_policy(lambda town: town.masks.argmax(-1))
        print(townlet.evaluate({"scripted": "scripted", "mine": first_legal}, towns=4))
    """
    named = dict(policies) if isinstance(policies, Mapping) else {_name(policies): policies}
    if scenarios is None:
        scenarios = next((policy.path for policy in named.values() if isinstance(policy, Run)), "town_day")
    towns_of = [scenarios] if isinstance(scenarios, str | Path | SimulationConfig) else list(scenarios)
    cases = [_case(one, towns, days, neighbours, overrides) for one in towns_of]
    sources = {name: _source(policy) for name, policy in named.items()}
    return Scores(measure(sources, cases, baseline=baseline, window=window, threads=threads))


def capture(scenario: Scenario, output: Path | str, *, overrides: Sequence[str] = (), **options: Any) -> Capture:
    """Run a scenario and keep one replay sample per resident and life in a new folder.

    `options` are those of `townlet.policy.capture.CaptureOptions`: ticks, towns, seed, start, policy, epsilon, overwrite, …

        demonstrations = townlet.capture("town_day", "runs/demos", policy="scripted", epsilon=0.05, towns=8)
    """
    run_capture([_config(scenario, overrides)], Path(output), CaptureOptions(**options))
    return Capture(output)


def save_page(
    what: str | Path | Run,
    path: Path | str,
    *,
    policy: str | None = None,
    vs: str | None = None,
    seed: int | None = None,
    overrides: Sequence[str] = (),
) -> Path:
    """Write a day as one HTML file that opens in a browser without a server, as `townlet observe --save` does.

    `what` is a scenario, a run (its best checkpoint plays), a take or a snapshot; `vs` is a second policy beside the first.

        townlet.save_page(run, "town.html", vs="scripted")
    """
    studio = Studio()
    named = str(what.path if isinstance(what, Run) else what)
    takes = open_takes(studio, named, policy=policy, vs=vs, seed=seed, overrides=tuple(overrides))
    write_page(Path(path), *file_parts(studio, takes))
    return Path(path)


class OwnPolicy:
    """Somebody's function as a policy of the towns it was made for."""

    has_values = False

    def __init__(self, choose: Callable[[VectorTown], Array], kind: str) -> None:
        self.choose, self.kind = choose, kind

    def reset(self, vec: VectorTown) -> None:
        pass

    def act(self, vec: VectorTown) -> Decision:
        actions = checked_actions(self.choose(vec), vec.active.shape, f"the policy {self.kind} gave")
        if ((actions < 0) | (actions >= vec.num_actions))[vec.active != 0].any():
            found = f"from {actions.min()} to {actions.max()}"
            raise UsageError(f"the policy {self.kind} gave actions {found}, expected 0 to {vec.num_actions - 1}")
        nothing = np.zeros(actions.shape, np.float32)
        return Decision(actions, nothing, nothing)


def own_policy(choose: Callable[[VectorTown], Array], name: str = "own") -> Callable[[VectorTown], OwnPolicy]:
    """A policy of one's own for `evaluate`: a function from a batch of towns to actions.

    `choose` sees `town.features` (E, N, F), `town.maps` (E, N, C, H, W), `town.masks` (E, N, A) and gives whole numbers (E, N).

        townlet.evaluate({"first legal": townlet.own_policy(lambda town: town.masks.argmax(-1))}, towns=2)
    """
    if not callable(choose):
        raise UsageError(f"own_policy was given {choose!r:.60}, expected a function from towns to actions")
    return lambda vec: OwnPolicy(choose, name)


class LoadedPolicy:
    """A stored policy as a function from a batch of towns to actions; other towns than before are begun anew."""

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self._town: VectorTown | None = None

    def __repr__(self) -> str:
        return f"<LoadedPolicy {self.spec}>"

    def __call__(self, vec: VectorTown) -> Array:
        if vec is not self._town:
            self._town, self._policy = vec, make_policy(self.spec, vec, seed=vec.seed)
        return self._policy.act(vec).actions


AnyPolicy = PolicySource | Path | Run | LoadedPolicy


def load_policy(policy: str | Path | Run) -> LoadedPolicy:
    """A policy for a loop of yours, or for neighbours in Gymnasium: "scripted", "random", a checkpoint folder or a run.

    For example:

        neighbours = townlet.load_policy("runs/first")
        vec = townlet.make_vec("queue_conflict", 2)
        vec.step(neighbours(vec))
    """
    return LoadedPolicy(locate(str(_source(policy))))


def _config(scenario: Scenario, overrides: Sequence[str], recipe: str | None = None) -> SimulationConfig:
    if not isinstance(scenario, SimulationConfig):
        return load_config(scenario, overrides, recipe=recipe)
    if overrides or recipe is not None:
        raise UsageError(
            "overrides and recipes are for configs that are read from a file; this one is already loaded, change it instead"
        )
    return scenario


def _case(scenario: Scenario, towns: int, days: int, neighbours: str | None, overrides: Sequence[str]) -> Case:
    config = _config(scenario, overrides)
    file = None if isinstance(scenario, SimulationConfig) or Path(scenario).is_dir() else Path(scenario)  # else: loaded, or a run
    named = config.config_id if file is None else file.stem
    learners = "all" if neighbours is None else "first"
    towns, days = whole_number("towns", towns, 1), whole_number("days", days, 1)
    return Case(named, named, learners, neighbours, towns, days, tuple(overrides), config)


def _name(policy: AnyPolicy) -> str:
    if isinstance(policy, Run):
        return policy.path.name
    return Path(policy).name if isinstance(policy, str | Path) else "own"


def _source(policy: AnyPolicy) -> PolicySource:
    if isinstance(policy, LoadedPolicy):
        return policy.spec
    if not isinstance(policy, Run):
        return os.fspath(policy) if isinstance(policy, Path) else policy
    if policy.checkpoint is None:
        raise UsageError(f"{policy.path} has no checkpoint yet; train it first")
    return os.fspath(policy.checkpoint)
