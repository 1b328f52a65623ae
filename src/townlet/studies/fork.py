"""Counterfactuals: many futures of one moment, each simulated with and without an edit, on the same random draws.

Future k continues the town under the id `id + k`, so that its draws are its own and the same in both arms; future 0 is what
would have happened anyway. Residents make their first decision on what they saw before the edit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from townlet.config.loader import load_config
from townlet.config.models import SimulationConfig, config_hash
from townlet.dto.evaluation import MEASURES
from townlet.dto.studies import ForkEffect, ForkResult
from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.evaluation.compare import effect_of, summarise
from townlet.evaluation.measures import Tally
from townlet.policy.runtime import fitted, make_policy
from townlet.scenarios.compile import compile_town
from townlet.sim.edits import Edit, Force, WorldEdit, apply_edits, change_world, parse_edit, schedule_perturbations, transplant
from townlet.sim.loop import SimulationLoop
from townlet.sim.snapshot import load_snapshot, open_town
from townlet.types import Array

Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Moment:
    """A town at one tick: its config, and the arrays of a `VectorTown.save` with the position of the town in the batch."""

    config: SimulationConfig
    arrays: Arrays
    town: int = 0

    @property
    def tick(self) -> int:
        return int(self.arrays["towns"]["tick"][self.town])


def moment_of_scenario(scenario: str, at: int, policy: str = "scripted", overrides: Sequence[str] = ()) -> Moment:
    """A scenario's town after `at` ticks (rounded up to a decision) under a policy."""
    config = fitted(load_config(scenario, overrides), policy)
    if at >= config.scenario.episode_ticks:
        raise UsageError(f"the episode of {scenario} ends at tick {config.scenario.episode_ticks}; fork it before, not at {at}")
    vec = VectorTown(config, 1)
    if at > 0:
        SimulationLoop(vec, make_policy(policy, vec, seed=vec.seed)).run(at)
    return Moment(config, vec.save())


def moment_of_snapshot(path: Path, town: int = 0) -> Moment:
    """A town of a snapshot file, checked against its digest."""
    snapshot = load_snapshot(path)
    if not 0 <= town < snapshot.header.num_towns:
        raise UsageError(f"{path} holds {snapshot.header.num_towns} towns, numbered from 0; there is no town {town}")
    return Moment(snapshot.config, open_town(snapshot).save(), town)


def fork(
    moment: Moment,
    edits: Sequence[str],
    *,
    futures: int = 64,
    ticks: int | None = None,
    policy: str = "scripted",
    begin: Callable[[], object] = lambda: None,
) -> ForkResult:
    """The effect of the edits on every measure, paired by future. `begin` is called when nothing is left to be refused."""
    if futures < 1:
        raise UsageError(f"{futures} futures were asked for, expected at least 1")
    left = moment.config.scenario.episode_ticks - moment.tick
    length = left if ticks is None else ticks
    if length < 1:
        raise UsageError(f"the moment is tick {moment.tick}, the end of its episode; give --ticks to look beyond it")
    as_it_was = moment.config.lasting(moment.tick + length)
    parsed = [parse_edit(text) for text in edits]
    if any(isinstance(edit, Force) for edit in parsed):
        raise UsageError("a fork edits the town; a decision is forced in a take (`townlet observe`)")
    edited = apply_edits(as_it_was, parsed)
    _open_futures(edited, moment, 1, policy, parsed)
    begin()
    before = _measure(*_open_futures(as_it_was, moment, futures, policy, ()))
    after = _measure(*_open_futures(edited, moment, futures, policy, parsed)) if parsed else before
    effects, rules = {}, moment.config.evaluation
    for name in MEASURES:
        effect = effect_of(after[name], before[name], rules)
        if effect is not None:
            was, became = summarise(before[name], rules), summarise(after[name], rules)
            effects[name] = ForkEffect(before=was, after=became, effect=effect)
    return ForkResult(
        config_hash=config_hash(moment.config),
        edits=tuple(edits),
        tick=moment.tick,
        ticks=length,
        futures=futures,
        policy=policy,
        level=rules.level,
        effects=effects,
    )


def _open_futures(
    config: SimulationConfig, moment: Moment, futures: int, policy: str, edits: Sequence[Edit]
) -> tuple[SimulationLoop, Tally]:
    vec = VectorTown(config, futures)
    old = compile_town(moment.config)
    vec.restore(transplant(vec, old, moment.arrays, moment.town))
    schedule_perturbations(vec, [(moment.tick, edit) for edit in edits])
    for edit in edits:
        if isinstance(edit, WorldEdit):
            for town in range(futures):
                change_world(vec, edit, town)
    tally = Tally(vec)
    return SimulationLoop(vec, make_policy(policy, vec, seed=vec.seed), [tally]), tally


def _measure(loop: SimulationLoop, tally: Tally) -> dict[str, list[float | None]]:
    while tally.open.any():
        loop.step()
    return tally.row()
