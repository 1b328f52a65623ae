"""Counterfactuals: many futures of one moment, each lived twice, as it was and with an edit, on the same random draws.

Future k continues the town under the id `id + k`, so that its draws are its own and the same in both arms; future 0 is what
would have happened anyway. Residents make their first decision on what they saw before the edit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from townlet.config.loader import load_config
from townlet.config.models import SimulationConfig, config_hash
from townlet.dto.evaluation import MEASURES
from townlet.dto.studies import ForkEffect, ForkResult
from townlet.envs.vector import VectorTown
from townlet.errors import ConfigError, UsageError
from townlet.evaluation.compare import effect_of, summarise
from townlet.evaluation.measures import Tally
from townlet.policy.runtime import make_policy
from townlet.scenarios.compile import CompiledTown, compile_town
from townlet.sim.loop import SimulationLoop
from townlet.sim.snapshot import load_snapshot, open_town

Arrays = Mapping[str, NDArray[Any]]
_ADD = re.compile(r"objects\s*\+=\s*([a-z][a-z0-9_]*)\s*@\s*(\d+)\s*,\s*(\d+)")
_REMOVE = re.compile(r"objects\s*-=\s*([a-z][a-z0-9_]*)")
_SET = re.compile(r"([a-z_][a-z0-9_.]*)\s*=\s*(.+)")
GRAMMAR = "write `objects += shower@5,10`, `objects -= shower_1` or `conflict.quarrel_ticks = 10`"
POINTERS = ("target", "request", "using", "queued", "called", "blocked_by", "meet_at")  # residents' fields that index objects
AT_THE_OBJECT = ("using", "affordance", "ticks_left", "stalled_by_quarrel")
IN_ITS_QUEUE = ("queued", "ahead", "behind", "queued_since", "overtakes", "called", "called_since", "affordance")


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
    config = load_config(scenario, overrides)
    if at >= config.scenario.episode_ticks:
        raise UsageError(f"the episode of {scenario} ends at tick {config.scenario.episode_ticks}; fork it before, not at {at}")
    vec = VectorTown(config, 1)
    if at > 0:
        SimulationLoop(vec, make_policy(policy, vec)).run(at)
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
    resamples: int = 2000,
) -> ForkResult:
    """The effect of the edits on every measure, paired by future."""
    if futures < 1:
        raise UsageError(f"{futures} futures were asked for, expected at least 1")
    left = moment.config.scenario.episode_ticks - moment.tick
    length = left if ticks is None else ticks
    if length < 1:
        raise UsageError(f"the moment is tick {moment.tick}, the end of its episode; give --ticks to look beyond it")
    as_it_was = _until(moment.config, moment.tick + length)
    edited = apply_edits(as_it_was, edits)
    rows = [_live(config, moment, futures, policy) for config in (as_it_was, edited)]
    effects = {}
    for name in MEASURES:
        effect = effect_of(rows[1][name], rows[0][name], resamples)
        if effect is not None:
            effects[name] = ForkEffect(
                before=summarise(rows[0][name], resamples), after=summarise(rows[1][name], resamples), effect=effect
            )
    return ForkResult(
        config_hash=config_hash(moment.config),
        edits=tuple(edits),
        tick=moment.tick,
        ticks=length,
        futures=futures,
        policy=policy,
        effects=effects,
    )


def apply_edits(config: SimulationConfig, edits: Sequence[str]) -> SimulationConfig:
    for text in edits:
        config = _apply(config, text.strip())
    return config


def _apply(config: SimulationConfig, text: str) -> SimulationConfig:
    if match := _ADD.fullmatch(text):
        return _add_object(config, match[1], int(match[2]), int(match[3]))
    if match := _REMOVE.fullmatch(text):
        return _remove_object(config, match[1])
    if match := _SET.fullmatch(text):
        return _set(config, match[1], match[2])
    raise UsageError(f"the edit {text!r} is not understood; {GRAMMAR}")


def _add_object(config: SimulationConfig, kind: str, x: int, y: int) -> SimulationConfig:
    tree = config.model_dump(mode="json")
    tree["scenario"]["objects"].append({"kind": kind, "at": [x, y]})
    return _checked(tree, f"objects += {kind}@{x},{y}")


def _remove_object(config: SimulationConfig, name: str) -> SimulationConfig:
    town = compile_town(config)
    if name not in town.object_ids:
        raise UsageError(f"there is no object {name!r} to remove; this town has {', '.join(town.object_ids)}")
    row = town.layout.objects[town.object_ids.index(name)]
    x, y = int(row["x"]), int(row["y"])
    tree = config.model_dump(mode="json")
    scenario = tree["scenario"]
    scenario["objects"] = [one for one in scenario["objects"] if one["at"] != [x, y]]
    if scenario["map"]:
        lines = scenario["map"].split("\n")
        lines[y] = lines[y][:x] + "." + lines[y][x + 1 :]
        scenario["map"] = "\n".join(lines)
    return _checked(tree, f"objects -= {name}")


def _set(config: SimulationConfig, path: str, value: str) -> SimulationConfig:
    tree = config.model_dump(mode="json")
    branch: Any = tree
    names = path.split(".")
    for name in names:
        if not isinstance(branch, dict) or name not in branch:
            raise ConfigError(f"the edit names {path!r}, but there is no config key {name!r} there; {GRAMMAR}")
        branch, parent = branch[name], branch
    try:
        parent[names[-1]] = json.loads(value)
    except ValueError:
        parent[names[-1]] = value.strip()
    return _checked(tree, f"{path} = {value}")


def _checked(tree: dict[str, Any], text: str) -> SimulationConfig:
    try:
        return SimulationConfig.model_validate_json(json.dumps(tree))
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise ConfigError(f"the edit {text!r} gives a config that cannot be used: {where}: {problem['msg']}") from error


def _until(config: SimulationConfig, tick: int) -> SimulationConfig:
    return config.model_copy(update={"scenario": config.scenario.model_copy(update={"episode_ticks": tick})})


def _live(config: SimulationConfig, moment: Moment, futures: int, policy: str) -> dict[str, list[float | None]]:
    vec = VectorTown(config, futures)
    old = compile_town(moment.config)
    vec.restore(_transplant(vec, old, moment))
    tally = Tally(vec)
    loop = SimulationLoop(vec, make_policy(policy, vec), [tally])
    while tally.open.any():
        loop.step()
    return tally.row()


def _transplant(vec: VectorTown, old: CompiledTown, moment: Moment) -> dict[str, NDArray[Any]]:
    """The moment, once per future, with its objects found again by place in the edited town."""
    futures, town = vec.num_towns, vec.towns[0]
    fresh = vec.save()
    kept: dict[str, NDArray[Any]] = {
        name: np.repeat(array[moment.town : moment.town + 1], futures, axis=0)
        for name, array in moment.arrays.items()
        if name in fresh
    }
    moved = _same_place(old, town)  # (M_old,) index in the edited town, -1 where it was removed
    objects = fresh["objects"].copy()
    there = moved >= 0
    objects[:, moved[there]] = kept["objects"][:, there]
    residents = kept["residents"]
    _clear(residents, fresh["residents"], moved, "using", AT_THE_OBJECT)
    _clear(residents, fresh["residents"], moved, "queued", IN_ITS_QUEUE)
    _clear(residents, fresh["residents"], moved, "called", ("called", "called_since"))
    for name in (*POINTERS, "cooldown_object"):
        residents[name] = np.where(residents[name] >= 0, moved[residents[name]], residents[name])
    residents["bed"] = fresh["residents"]["bed"]
    _refuse_occupied(town, there, moved, kept["grid"]["occupant"][0])
    grid = fresh["grid"].copy()
    grid["occupant"] = kept["grid"]["occupant"]
    kept["towns"]["id"] += np.arange(futures)
    kept["towns"]["layout"] = kept["towns"]["cut"] = 0
    return {**kept, "objects": objects, "grid": grid}


def _same_place(old: CompiledTown, new: CompiledTown) -> NDArray[np.int64]:
    where = {(int(o["x"]), int(o["y"]), new.kinds[o["kind"]]): i for i, o in enumerate(new.layout.objects)}
    return np.array([where.get((int(o["x"]), int(o["y"]), old.kinds[o["kind"]]), -1) for o in old.layout.objects], dtype=np.int64)


def _clear(residents: NDArray[Any], fresh: NDArray[Any], moved: NDArray[np.int64], pointer: str, fields: Sequence[str]) -> None:
    """Whoever points at an object that is gone forgets it: those fields are as at the start of a life."""
    gone = (residents[pointer] >= 0) & (moved[residents[pointer]] < 0)
    for name in fields:
        residents[name][gone] = fresh[name][gone]


def _refuse_occupied(town: CompiledTown, there: NDArray[np.bool_], moved: NDArray[np.int64], occupant: NDArray[Any]) -> None:
    known = set(moved[there].tolist())
    for index, row in enumerate(town.layout.objects):
        if index not in known and occupant[row["y"], row["x"]] >= 0:
            raise UsageError(
                f"somebody stands on column {row['x']}, row {row['y']} at that moment, where {town.object_ids[index]} would be; "
                "choose another tile"
            )
