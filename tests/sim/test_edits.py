"""Changes of a town: the grammar, its bounds, and what each does to a world that keeps its invariants."""

from __future__ import annotations

import numpy as np
import pytest

from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.policy.runtime import make_policy
from townlet.sim.edits import (
    ConfigEdit,
    Exit,
    Force,
    Newcomer,
    Perturb,
    SetResident,
    SetTie,
    change_world,
    parse_edit,
    schedule_perturbations,
    slot_of,
    tie_now,
)
from townlet.sim.loop import SimulationLoop
from townlet.world.events import EXIT, NEWCOMER, PERTURBATION
from townlet.world.invariants import problems
from townlet.world.state import MONEY, PERTURBATIONS

LINES = {
    "objects += shower@3,4": ConfigEdit("objects += shower@3,4"),
    "conflict.quarrel_ticks = 10": ConfigEdit("conflict.quarrel_ticks = 10"),
    " perturb  blackout 60 ": Perturb(PERTURBATIONS.index("blackout"), 60),
    "exit alice": Exit("alice"),
    "newcomer": Newcomer(),
    "tie alice ~ bob rivalry = 0.5": SetTie("alice", "bob", "rivalry", 0.5),
    "resident alice.wallet = 20": SetResident("alice", "wallet", 20.0),
    "force alice use_shower:calm": Force("alice", "use_shower:calm"),
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_says_one_change(line: str) -> None:
    assert parse_edit(line) == LINES[line]


@pytest.mark.parametrize(
    "line",
    [
        "", "exit", "exit Alice", "exit alice bob", "perturb earthquake 3", "perturb blackout 0", "perturb blackout -1",
        "tie alice~alice rivalry = 1", "tie alice~bob love = 1", "tie alice~bob rivalry = 2", "tie alice~bob trust = nan",
        "force alice", "force alice ../x", "resident alice.wallet", "newcomer now", "exit " + "a" * 500, "objects * 3",
    ],
)  # fmt: skip
def test_anything_else_is_refused(line: str) -> None:
    with pytest.raises(UsageError):
        parse_edit(line)


def town(name: str = "town_day") -> tuple[VectorTown, SimulationLoop]:
    vec = VectorTown(name, 1, seed=4)
    loop = SimulationLoop(vec, make_policy("scripted", vec))
    loop.run_decisions(6)
    return vec, loop


def names(vec: VectorTown) -> list[str]:
    return list(vec.town_of(0).resident_ids)


def test_wallet_needs_and_meals_are_set_and_money_is_only_moved() -> None:
    vec, loop = town()
    who = names(vec)[1]
    slot = slot_of(vec, who)
    for line in (f"resident {who}.wallet = 20.5", f"resident {who}.hunger = 0.25", f"resident {who}.meals = 2"):
        change_world(vec, parse_edit(line))
    me = vec.state.residents[0, slot]
    assert (me["wallet"], me["meals"]) == (20.5 * MONEY, 2)
    assert int(vec.state.residents[0]["wallet"].sum()) + int(vec.state.towns[0]["purse"]) == 0
    loop.step()
    assert problems(vec) == []
    for line in (
        f"resident {who}.wallet = -1",
        f"resident {who}.hunger = 1.5",
        f"resident {who}.meals = 7",
        f"resident {who}.x = 3",
    ):
        with pytest.raises(UsageError):
            change_world(vec, parse_edit(line))


def test_a_tie_is_set_both_ways_also_where_there_was_none() -> None:
    vec, loop = town()
    a, b = names(vec)[:2]
    for value in (0.9, 0.0):
        change_world(vec, parse_edit(f"tie {a}~{b} rivalry = {value}"))
        for one, other in ((0, 1), (1, 0)):
            row = vec.state.ties[0, one]
            (at,) = np.flatnonzero(row["other"] == other)
            assert tie_now(vec, 0, row[at])["rivalry"] == value
    change_world(vec, parse_edit(f"tie {a}~{b} rivalry = 0.9"))
    loop.step()
    assert problems(vec) == []


def test_exit_and_newcomer() -> None:
    vec, loop = town()
    who = names(vec)[2]
    with pytest.raises(UsageError, match="every place of the town is taken"):
        change_world(vec, parse_edit("newcomer"))
    change_world(vec, parse_edit(f"exit {who}"))
    loop.step()
    assert (vec.events()["kind"] == EXIT).sum() == 1
    with pytest.raises(UsageError, match=f"no resident '{who}'"):
        slot_of(vec, who)
    change_world(vec, parse_edit("newcomer"))
    loop.step()
    assert (vec.events()["kind"] == NEWCOMER).sum() == 1
    assert problems(vec) == []


def test_a_perturbation_comes_at_its_tick() -> None:
    vec, loop = town()
    now = int(vec.state.towns[0]["tick"])
    schedule_perturbations(vec, [(now + 13, Perturb(PERTURBATIONS.index("blackout"), 30))])
    loop.run_decisions(2)
    rows = vec.events()
    rows = rows[rows["kind"] == PERTURBATION]
    assert rows["tick"].tolist() == [now + 13]
    assert PERTURBATIONS[rows["reason"][0]] == "blackout"
