"""Moving: free tiles, walls, facing residents, ghost steps, leaving a shared tile."""

from __future__ import annotations

import pytest

from townlet.testing import tiny_town
from townlet.world.invariants import problems
from townlet.world.state import ENERGY, HUNGER
from world_tools import Play, people


def walkers(*overrides: str, **where: tuple[int, int]) -> Play:
    return Play(tiny_town("policy.action_level=primitive", *overrides, residents=people(**where)))


def at(play: Play, name: str) -> tuple[int, int]:
    return int(play[name]["x"]), int(play[name]["y"])


@pytest.mark.parametrize(
    ("step", "tile"), [("move_north", (3, 5)), ("move_east", (4, 6)), ("move_south", (3, 7)), ("move_west", (2, 6))]
)
def test_a_step_goes_to_the_neighbour(step: str, tile: tuple[int, int]) -> None:
    assert at(walkers(alice=(3, 6)).go(alice=step), "alice") == tile


@pytest.mark.parametrize(
    ("tile", "step"), [((1, 2), "move_west"), ((1, 2), "move_north"), ((7, 2), "move_south"), ((1, 7), "move_south")]
)
def test_walls_and_objects_are_masked_and_hold(tile: tuple[int, int], step: str) -> None:
    """A wall, a bed, a table, the edge of the map."""
    play = walkers(alice=tile)
    assert not play.may("alice", step)
    assert at(play.go(alice=step), "alice") == tile
    assert play.vec.illegal[0].tolist() == [1]
    assert play["alice"]["acted"] == 0


def test_two_who_face_each_other_are_both_blocked_until_one_may_step_onto_the_other() -> None:
    """Three refusals, then a bump; whoever shares a tile leaves it in the next tick."""
    play = walkers(alice=(3, 6), bob=(4, 6))
    for _ in range(3):
        play.go(alice="move_east", bob="move_west")
        assert (at(play, "alice"), at(play, "bob")) == ((3, 6), (4, 6))
    play.go(alice="move_east", bob="move_west")
    assert len(play.told("bump")) == 1
    assert problems(play.vec) == []
    assert (at(play, "alice") == at(play, "bob")) != (at(play, "alice") == (4, 6) and at(play, "bob") == (3, 6))
    play.go(3)
    assert at(play, "alice") != at(play, "bob")
    assert play.term("alice", "conflict") == 0.0


def test_a_shared_tile_is_left_by_those_who_stand_idle() -> None:
    play = walkers(alice=(3, 6), bob=(4, 6))
    play.go(3, alice="move_east").go(alice="move_east")
    assert at(play, "alice") == at(play, "bob") == (4, 6)
    play.go()
    assert at(play, "alice") != at(play, "bob")


def test_options_walk_to_the_bed_and_the_desk() -> None:
    play = Play(tiny_town(residents=people(alice=(10, 6)), scenario={"start": "08:30"}))
    play["alice"]["needs"][ENERGY] = 0.2
    play.go(25, alice="rest_sleep")
    assert play.vec.object_ids(0)[play["alice"]["using"]].startswith("bed")
    play.go(alice="leave").go(25, alice="work")
    assert play.sees("alice", "at_work") == 1.0
    assert at(play, "alice") == (play["alice"]["desk_x"], play["alice"]["desk_y"])
    play.go(25, alice="home")
    assert play.sees("alice", "at_home") == 1.0
    assert not play.may("alice", "home")


def test_sleep_restores_and_stops_the_decay_of_energy() -> None:
    """360 ticks give 0.9; 100 of them 0.25."""
    play = Play(tiny_town(residents=people(alice=(1, 2))))
    play["alice"]["needs"][ENERGY] = 0.2
    play.go(100, alice="rest_sleep")
    assert play["alice"]["needs"][ENERGY] == pytest.approx(0.45)
    assert play["alice"]["needs"][HUNGER] == pytest.approx(0.8 - 0.1)


def test_a_whole_decision_of_ten_ticks_waits_after_a_use_that_ended() -> None:
    play = Play(tiny_town("policy.decision_interval=10", residents=people(alice=(6, 2))))
    play.go(2, alice="use_shower")
    assert (play["alice"]["using"], len(play.told("use_end"))) == (-1, 1)
    assert play.told("use_end")[0]["tick"] == 19
