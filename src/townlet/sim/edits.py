"""Changes of a town: a grammar of one line each, and what they do to a config, to a world, to a decision.

`objects += shower@5,10`, `objects -= shower_1` and `conflict.quarrel_ticks = 10` give another config; a world is carried over
by place. The others change the world itself (`perturb`, `residents -= alice`, which `exit alice` says too, `newcomer`, `tie`,
`resident`) or one decision (`force`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from townlet.config.models import SimulationConfig
from townlet.envs.vector import VectorTown
from townlet.errors import ConfigError, UsageError, did_you_mean, first_problem
from townlet.scenarios.compile import CompiledTown, compile_town
from townlet.types import Array
from townlet.world.rules import money
from townlet.world.state import EXITS, MAX_EDGES, MAX_MEALS, PERTURBATIONS, SCHEDULED

Arrays = Mapping[str, Array]
LONGEST = 400  # characters of a change
NAME = r"[a-z][a-z0-9_]{0,31}"
NUMBER = r"[-+]?\d{1,9}(?:\.\d{1,9})?"
_ADD = re.compile(r"objects\s*\+=\s*([a-z][a-z0-9_]*)\s*@\s*(\d{1,6})\s*,\s*(\d{1,6})")
_REMOVE = re.compile(r"objects\s*-=\s*([a-z][a-z0-9_]*)")
_SET = re.compile(r"([a-z_][a-z0-9_.]*)\s*=\s*(.+)")
_PERTURB = re.compile(rf"perturb\s+({NAME})\s+(\d{{1,6}})")
_EXIT = re.compile(rf"(?:exit\s+|residents\s*-=\s*)({NAME})")
_TIE = re.compile(rf"tie\s+({NAME})\s*~\s*({NAME})\s+({NAME})\s*=\s*({NUMBER})")
_RESIDENT = re.compile(rf"resident\s+({NAME})\.({NAME})\s*=\s*({NUMBER})")
_FORCE = re.compile(rf"force\s+({NAME})\s+([a-z][a-z0-9_:]{{0,63}})")
GRAMMAR = (
    "write `objects += shower@5,10`, `objects -= shower_1`, `conflict.quarrel_ticks = 10`, `residents -= alice`, `newcomer`, "
    "`perturb blackout 60`, `tie alice~bob rivalry = 0`, `resident alice.wallet = 20` or `force alice use_shower:calm`"
)
TIE_FIELDS = {"trust": (-1.0, 1.0), "familiarity": (-1.0, 1.0), "rivalry": (0.0, 1.0)}
RICHEST = 100_000  # coins
POINTERS = ("target", "request", "using", "queued", "called", "blocked_by", "meet_at")  # residents' fields that index objects
AT_THE_OBJECT = ("using", "affordance", "ticks_left", "stalled_by_quarrel")
IN_ITS_QUEUE = ("queued", "ahead", "behind", "queued_since", "overtakes", "called", "called_since", "affordance")


@dataclass(frozen=True)
class ConfigEdit:
    """The town goes on under another config."""

    text: str


@dataclass(frozen=True)
class Perturb:
    kind: int  # index into PERTURBATIONS
    ticks: int


@dataclass(frozen=True)
class Exit:
    name: str


@dataclass(frozen=True)
class Newcomer:
    """The newcomer of an empty place arrives at the next decision."""


@dataclass(frozen=True)
class SetTie:
    """What two residents feel for each other, both ways."""

    a: str
    b: str
    field: str
    value: float


@dataclass(frozen=True)
class SetResident:
    name: str
    field: str  # a need, wallet (coins) or meals
    value: float


@dataclass(frozen=True)
class Force:
    """One decision of a resident."""

    name: str
    option: str


WorldEdit = Exit | Newcomer | SetTie | SetResident
Edit = ConfigEdit | Perturb | Force | WorldEdit


def parse_edit(text: str) -> Edit:
    """A line of the grammar; whether the town has such names is found out when it is applied."""
    line = text.strip()
    if len(line) > LONGEST:
        raise UsageError(f"a change of {len(line)} characters is longer than {LONGEST}; {GRAMMAR}")
    if match := _PERTURB.fullmatch(line):
        if match[1] not in PERTURBATIONS or int(match[2]) < 1:
            raise UsageError(
                f"the change {line!r} is not understood; perturb takes {', '.join(PERTURBATIONS)} and 1 tick or more"
            )
        return Perturb(PERTURBATIONS.index(match[1]), int(match[2]))
    if match := _EXIT.fullmatch(line):
        return Exit(match[1])
    if line == "newcomer":
        return Newcomer()
    if match := _TIE.fullmatch(line):
        return _tie(line, match[1], match[2], match[3], float(match[4]))
    if match := _RESIDENT.fullmatch(line):
        return SetResident(match[1], match[2], float(match[3]))
    if match := _FORCE.fullmatch(line):
        return Force(match[1], match[2])
    if any(pattern.fullmatch(line) for pattern in (_ADD, _REMOVE, _SET)):
        return ConfigEdit(line)
    raise UsageError(f"the change {line!r} is not understood; {GRAMMAR}")


def _tie(line: str, a: str, b: str, field: str, value: float) -> SetTie:
    if field not in TIE_FIELDS or a == b:
        raise UsageError(f"the change {line!r} is not understood; a tie is between two residents and has {', '.join(TIE_FIELDS)}")
    low, high = TIE_FIELDS[field]
    if not low <= value <= high:
        raise UsageError(f"the change {line!r} sets {field} to {value}, expected {low:g} to {high:g}")
    return SetTie(a, b, field, value)


# --- configs -----------------------------------------------------------------------------------------------------------------


def apply_edits(config: SimulationConfig, edits: Iterable[Edit]) -> SimulationConfig:
    """The config after those of the edits that are of configs, in order."""
    for text in (edit.text for edit in edits if isinstance(edit, ConfigEdit)):
        if match := _ADD.fullmatch(text):
            config = _add_object(config, match[1], int(match[2]), int(match[3]))
        elif match := _REMOVE.fullmatch(text):
            config = _remove_object(config, match[1])
        elif match := _SET.fullmatch(text):
            config = _set(config, match[1], match[2])
    return config


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
            hint = did_you_mean(name, branch if isinstance(branch, dict) else ()) or GRAMMAR
            raise ConfigError(f"the edit names {path!r}, but there is no config key {name!r} there; {hint}")
        branch, parent = branch[name], branch
    try:
        parent[names[-1]] = json.loads(value)
    except ValueError:
        parent[names[-1]] = value.strip()
    return _checked(tree, f"{path} = {value}")


def _checked(tree: dict[str, object], text: str) -> SimulationConfig:
    try:
        return SimulationConfig.model_validate_json(json.dumps(tree))
    except ValidationError as error:
        raise ConfigError(f"the edit {text!r} gives a config that cannot be used: {first_problem(error)}") from error


# --- worlds ------------------------------------------------------------------------------------------------------------------


def slot_of(vec: VectorTown, name: str, town: int = 0) -> int:
    """The slot of a resident who is there now."""
    present = np.flatnonzero(vec.state.residents[town]["present"]).tolist()
    names = {vec.resident_id(town, slot): slot for slot in present}
    if name not in names:
        raise UsageError(f"there is no resident {name!r} at that moment; there are {', '.join(list(names)[:20])}")
    return names[name]


def change_world(vec: VectorTown, edit: WorldEdit, town: int = 0) -> None:
    """Apply an edit of the world at this moment. Residents decide next on what they saw before it."""
    state = vec.state
    now = state.towns[town]
    if isinstance(edit, Exit):
        me = state.residents[town, slot_of(vec, edit.name, town)]
        me["exit_kind"], me["exit_at"] = EXITS.index("scheduled"), now["tick"]
    elif isinstance(edit, Newcomer):
        empty = np.flatnonzero(state.residents[town]["present"] == 0)
        if not empty.size:
            raise UsageError("nobody can come: every place of the town is taken; let somebody leave first (`exit NAME`)")
        state.residents["arrives_at"][town, empty[0]] = now["tick"]
    elif isinstance(edit, SetTie):
        a, b = slot_of(vec, edit.a, town), slot_of(vec, edit.b, town)
        _set_tie(vec, town, a, b, edit)
        _set_tie(vec, town, b, a, edit)
    else:
        _set_resident(vec, town, slot_of(vec, edit.name, town), edit)


def _set_resident(vec: VectorTown, town: int, slot: int, edit: SetResident) -> None:
    me = vec.state.residents[town, slot]
    if edit.field == "wallet":
        _within(edit, 0, RICHEST)
        coins = money(edit.value)
        vec.state.towns[town]["purse"] -= coins - me["wallet"]  # money is only moved
        me["wallet"] = coins
    elif edit.field == "meals":
        _within(edit, 0, MAX_MEALS)
        me["meals"] = int(edit.value)
    elif edit.field in vec.config.needs:
        _within(edit, 0, 1)
        me["needs"][list(vec.config.needs).index(edit.field)] = edit.value
    else:
        raise UsageError(f"a resident has no {edit.field!r} to set; expected wallet, meals, {', '.join(vec.config.needs)}")


def _within(edit: SetResident, low: float, high: float) -> None:
    if not low <= edit.value <= high:
        raise UsageError(f"resident {edit.name}.{edit.field} cannot be {edit.value:g}; expected {low:g} to {high:g}")


def tie_now(vec: VectorTown, town: int, tie: np.void) -> dict[str, float]:
    """The three numbers of a tie at this moment: they fall towards zero as time passes."""
    rules, passed = vec.tables.rules[0], float(vec.state.towns[town]["tick"] - tie["since"])
    found = {}
    for name in TIE_FIELDS:
        left = max(abs(float(tie[name])) - float(rules[f"{name}_decay"]) * passed, 0.0)
        found[name] = math.copysign(left, float(tie[name])) if left else 0.0
    return found


def _set_tie(vec: VectorTown, town: int, a: int, b: int, edit: SetTie) -> None:
    ties, rules = vec.state.ties[town, a], vec.tables.rules[0]
    room = min(int(rules["max_edges"]), MAX_EDGES)
    there = np.flatnonzero(ties["other"] == b)
    free = np.flatnonzero(ties["other"][:room] < 0)
    if there.size:
        row = int(there[0])
    elif free.size:
        row = int(free[0])
    else:
        row = min(range(room), key=lambda s: max(abs(value) for value in tie_now(vec, town, ties[s]).values()))
    if not there.size:
        for name in (*TIE_FIELDS, "peak"):
            ties[name][row] = 0.0
        ties["other"][row] = b
    for name, value in tie_now(vec, town, ties[row]).items():
        ties[name][row] = value
    ties["since"][row] = vec.state.towns[town]["tick"]
    ties[edit.field][row] = edit.value
    if edit.field == "rivalry" and edit.value > rules["avoid_threshold"]:
        ties["peak"][row] = max(float(ties["peak"][row]), edit.value)


def schedule_perturbations(vec: VectorTown, changes: Iterable[tuple[int, Edit]]) -> None:
    """Those of the changes that are perturbations, at ticks of the episode under way in the first town, beside those the
    scenario schedules."""
    now, day = vec.state.towns[0], int(vec.tables.rules[0]["ticks_per_day"])
    added = []
    for tick, edit in changes:
        if isinstance(edit, Perturb):
            minute = int(now["day"]) * day + int(now["minute"]) + tick - int(now["tick"])
            added.append((minute // day, minute % day, edit.kind, edit.ticks, -1))
    if added:
        more = np.repeat(np.array(added, SCHEDULED)[None], len(vec.tables.scheduled), axis=0)
        vec.tables = vec.tables._replace(scheduled=np.concatenate([vec.tables.scheduled, more], axis=1))


# --- from one config to another ----------------------------------------------------------------------------------------------


def transplant(vec: VectorTown, old: CompiledTown, arrays: Arrays, town_index: int = 0) -> dict[str, Array]:
    """A moment (`VectorTown.save`), once per town of the batch, with its objects found again by place in the edited town."""
    futures, town = vec.num_towns, vec.towns[0]
    fresh = vec.save()
    kept: dict[str, Array] = {
        name: np.repeat(array[town_index : town_index + 1], futures, axis=0) for name, array in arrays.items() if name in fresh
    }
    moved = same_place(old, town)  # (M_old,) index in the edited town, -1 where it was removed
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


def same_place(old: CompiledTown, new: CompiledTown) -> NDArray[np.int64]:
    """Of every object the index it has in another town, -1 where it is not there.  # (M,)"""
    where = {(int(o["x"]), int(o["y"]), new.kinds[o["kind"]]): i for i, o in enumerate(new.layout.objects)}
    return np.array([where.get((int(o["x"]), int(o["y"]), old.kinds[o["kind"]]), -1) for o in old.layout.objects], dtype=np.int64)


def _clear(residents: Array, fresh: Array, moved: NDArray[np.int64], pointer: str, fields: Sequence[str]) -> None:
    """Residents that point at an object that is gone forget it: these fields are as at the start of a life."""
    gone = (residents[pointer] >= 0) & (moved[residents[pointer]] < 0)
    for name in fields:
        residents[name][gone] = fresh[name][gone]


def _refuse_occupied(town: CompiledTown, there: NDArray[np.bool_], moved: NDArray[np.int64], occupant: Array) -> None:
    known = set(moved[there].tolist())
    for index, row in enumerate(town.layout.objects):
        if index not in known and occupant[row["y"], row["x"]] >= 0:
            raise UsageError(
                f"somebody stands on column {row['x']}, row {row['y']} at that moment, where {town.object_ids[index]} would be; "
                "choose another tile"
            )
