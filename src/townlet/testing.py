"""Checks for what others add to Townlet: a scenario, a policy, a training strategy, a sink. Each raises AssertionError.

Beside them `CHARACTERS`, ten ways of life from saint to shirker: does a reward still tell them apart?

from townlet.testing import check_policy, tiny_town
check_policy(MyPolicy())
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from townlet.config import SimulationConfig
from townlet.config.loader import default_config
from townlet.dto.policy import TrainingResult
from townlet.envs.vector import Scenario, VectorTown
from townlet.policy.characters import CHARACTERS as CHARACTERS
from townlet.policy.characters import MUST_FAIL as MUST_FAIL
from townlet.policy.characters import CharacterPolicy as CharacterPolicy
from townlet.policy.runtime import Policy, make_policy
from townlet.policy.training.contexts import RunOptions
from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator
from townlet.policy.training.strategies import STRATEGY_OF_MODE
from townlet.policy.training.strategies.base import TrainingStrategy
from townlet.ports import Decided, TelemetrySink
from townlet.sim.loop import SimulationLoop
from townlet.sim.probes import Probe
from townlet.types import Array
from townlet.world.invariants import problems

TINY_MAP = """\
############
#bbbb#s...s#
#....+.....#
#....#ot..f#
##+#####+###
#.........n#
#....c.....#
#.....+....#
############
"""
TINY_NAMES = ("alice", "bob", "carol", "dave")


def tiny_town(
    *overrides: str, residents: int | Sequence[Mapping[str, object]] = 2, scenario: Mapping[str, object] | None = None
) -> SimulationConfig:
    """Up to four residents, one house, two showers, stove, table, fridge, café, bench and an office (clerks, 09:00 to 13:00).

    `residents` is a number or their entries (`{"id": "alice", "position": [6, 2], …}`; home and job are filled in), `scenario`
    overrides entries of the scenario, `overrides` are `a.b=c`. A decision is one tick.
    """
    people = [{"id": name} for name in TINY_NAMES[:residents]] if isinstance(residents, int) else residents
    tree = {
        "name": "tiny",
        "start": "06:00",
        "map": TINY_MAP,
        "legend": {"b": "bed", "s": "shower", "o": "stove", "t": "table", "f": "fridge", "c": "cafe_counter", "n": "bench"},
        "buildings": {"house": {"at": [1, 1], "size": [4, 3]}, "office": {"at": [7, 7], "size": [4, 1]}},
        "residents": [{"home": "house", "job": "clerk", **entry} for entry in people],
        **(scenario or {}),
    }
    jobs = {"clerk": {"site": "office", "start": "09:00", "end": "13:00"}}
    fixed = ("config_id=tiny", "policy.decision_interval=1", f"jobs={json.dumps(jobs)}", f"scenario={json.dumps(tree)}")
    return default_config((*fixed, *overrides))


def check_scenario(scenario: Scenario, *, decisions: int = 60, towns: int = 2) -> None:
    """A scenario runs under scripted and random residents without breaking an invariant or losing an event."""
    for name in ("scripted", "random"):
        vec = VectorTown(scenario, towns)
        if vec.primitive and name == "scripted":
            continue
        SimulationLoop(vec, make_policy(name, vec), [_Invariants(f"{name} residents")]).run_decisions(decisions)
        assert vec.events_lost == 0, f"{vec.events_lost} events did not fit; raise world.event_capacity"
        assert (vec.state.towns["tick"] > 0).any() or vec.interval > vec.config.scenario.episode_ticks


def check_policy(policy: Policy, scenario: Scenario | None = None, *, decisions: int = 20, towns: int = 2) -> None:
    """A policy keeps to the mask, reports finite log-probabilities and values, and is the same after the same reset."""
    told = [_play(policy, tiny_town() if scenario is None else scenario, decisions, towns) for _ in range(2)]
    for step, (first, second) in enumerate(zip(*told)):
        assert (first == second).all(), f"decision {step} differs between two runs from the same reset; draw from vec.draws"


def _play(policy: Policy, scenario: Scenario, decisions: int, towns: int) -> list[Array]:
    vec = VectorTown(scenario, towns)
    policy.reset(vec)
    told = _Decisions(policy.kind)
    SimulationLoop(vec, policy, [told]).run_decisions(decisions)
    return told.actions


class _Invariants(Probe):
    """No invariant of the town is broken after any decision."""

    def __init__(self, who: str) -> None:
        self.who, self.step = who, 0

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        found = problems(world)
        assert not found, f"{self.who}, decision {self.step}: " + "; ".join(found[:5])
        self.step += 1


class _Decisions(Probe):
    """Every decision is well-formed and allowed; the actions are kept."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.actions: list[Array] = []

    def before_step(self, world: VectorTown, decision: Decided) -> None:
        shape, where = (world.num_towns, world.num_residents), f"{self.kind}, decision {len(self.actions)}"
        assert decision.actions.shape == shape, f"{where}: actions have shape {decision.actions.shape}, expected {shape}"
        assert decision.actions.dtype.kind in "iu", f"{where}: actions are {decision.actions.dtype}, expected whole numbers"
        inside = (decision.actions >= 0) & (decision.actions < world.num_actions)
        assert inside.all(), f"{where}: an action is outside the catalogue of {world.num_actions}"
        legal = np.take_along_axis(world.masks, decision.actions[..., None].astype(np.int64), axis=-1)[..., 0]
        assert legal[world.active == 1].all(), f"{where}: an action is not allowed by the mask"
        for name, values in (("log_probs", decision.log_probs), ("values", decision.values)):
            assert values.shape == shape, f"{where}: {name} have shape {values.shape}, expected {shape}"
            assert np.isfinite(values[world.active == 1]).all(), f"{where}: {name} are not all finite"
        assert (decision.log_probs[world.active == 1] <= 1e-6).all(), f"{where}: a log-probability is above 0"
        self.actions.append(decision.actions.copy())


def check_strategy(
    load: Callable[[], TrainingStrategy], config: SimulationConfig, folder: Path, *, mode: str = "rollout", epochs: int = 1
) -> TrainingResult:
    """A training strategy says its name, writes nothing while it prepares, and reports what it did."""
    strategy = load()
    assert strategy.name.isidentifier(), f"the name {strategy.name!r} is not a plain word"
    assert isinstance(strategy.requires_torch, bool), f"requires_torch is {strategy.requires_torch!r}, expected True or False"
    trainer = PolicyTrainingOrchestrator(config, strategies={STRATEGY_OF_MODE.get(mode, mode): load})
    before = sorted(folder.rglob("*"))
    trainer.run(mode, RunOptions(run_dir=folder / "dry", epochs=epochs, dry_run=True))
    assert sorted(folder.rglob("*")) == before, "something was written while the strategy prepared"
    result = trainer.run(mode, RunOptions(run_dir=folder / "run", epochs=epochs))
    assert result.strategy == strategy.name, f"the result is of {result.strategy!r}, expected {strategy.name!r}"
    assert json.loads(result.model_dump_json())["duration_sec"] >= 0.0
    return result


def check_sink(make: Callable[[], TelemetrySink], read: Callable[[], list[dict[str, object]]]) -> None:
    """A sink keeps records in order, leaves the caller's record alone and may be closed twice; `read` gives what it kept."""
    sink = make()
    assert isinstance(sink, TelemetrySink), f"{type(sink).__name__} has no write or close"
    records = [{"kind": "epoch", "cycle": number, "loss": 0.5 * number} for number in range(3)]
    for record in records:
        given = dict(record)
        sink.write(given)
        assert given == record, f"the sink changed the record it was given: {given}"
    sink.close()
    sink.close()
    kept = read()
    assert len(kept) == len(records), f"{len(records)} records were written, {len(kept)} were kept"
    for record, one in zip(records, kept):
        assert {name: one.get(name) for name in record} == record, f"{record} was kept as {one}"
