"""The catalogue `candidates`: the policy chooses among the nearest objects by what it sees, reserves a turn, yields its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from townlet.config.loader import load_config
from townlet.envs.vector import VectorTown
from townlet.policy.capture import CaptureOptions, capture
from townlet.policy.replay import ReplayDataset, ReplayDatasetConfig
from townlet.policy.runtime import make_policy
from townlet.testing import check_scenario, tiny_town
from townlet.world.actions import Catalogue, affordances_of
from townlet.world.invariants import problems
from world_tools import Play, people

LEVEL = "policy.action_level=candidates"
FEUD = [{"a": "alice", "b": "bob", "rivalry": 0.9}]
NEAR, FAR = "shower_1", "shower_2"


def scene(*overrides: str) -> Play:
    """Bob uses the near shower; Alice stands beside it, Carol far off, Dave at home."""
    residents = people(alice=(8, 2), bob=(6, 2), carol=(2, 6), dave=(2, 2))
    play = Play(tiny_town(LEVEL, *overrides, residents=residents, scenario={"ties": FEUD}))
    return play.go(bob=f"use_shower@{NEAR}").go(1)


def waiting(play: Play, thing: str) -> list[str]:
    """Who waits for an object, in order."""
    names, at, found = list(play.slot), int(play.thing(thing)["head"]), []
    while at >= 0:
        found.append(names[at])
        at = int(play[names[at]]["behind"])
    return found


def sound(play: Play) -> bool:
    return problems(play.vec) == []


def test_the_catalogue_names_the_nearest_objects_and_what_is_done_about_a_place() -> None:
    actions = Catalogue("candidates", ("cook", "sit"))
    assert actions.names[5:] == (*(f"cook:{k}" for k in "1234"), *(f"sit:{k}" for k in "1234"), "reserve", "yield")
    assert (actions.index("sit"), actions.per_affordance) == (9, 4)
    for level in ("option", "candidates", "primitive"):
        assert affordances_of(level, Catalogue(level, ("cook", "sit")).names) == ("cook", "sit")
    assert len({Catalogue(level, ("cook",)).hash for level in ("option", "candidates", "primitive")}) == 3


def test_every_candidate_shows_its_way_queue_wait_and_rivalry() -> None:
    play = scene()
    left = int(play["bob"]["ticks_left"])
    assert play.sees("alice", "use_shower_1_busy") == 1.0
    assert play.sees("alice", "use_shower_1_wait") == pytest.approx(left / (left + 20.0))
    assert play.sees("alice", "use_shower_1_rivalry") == pytest.approx(0.9, abs=1e-3)
    assert [play.sees("alice", f"use_shower_2_{field}") for field in ("busy", "wait", "rivalry", "queue")] == [0.0] * 4
    assert play.sees("alice", "use_shower_1_distance") <= play.sees("alice", "use_shower_2_distance") < 1.0
    assert play.sees("alice", "use_shower_3_distance") == 1.0
    assert [play.may("alice", f"use_shower:{k}") for k in (1, 2, 3, 4)] == [True, True, False, False]
    play.go(alice="use_shower:2")
    assert play["alice"]["target"] == play.index(FAR)
    assert (play.sees("alice", "use_shower_1_mine"), play.sees("alice", "use_shower_2_mine")) == (0.0, 1.0)


@pytest.mark.parametrize(("calm", "choice"), [("true", "use_shower:2"), ("false", "use_shower:1")])
def test_the_script_keeps_its_rules_and_says_them_as_candidates(calm: str, choice: str) -> None:
    play = scene(f"behavior.avoid_rivals={calm}")
    play["alice"]["needs"][1] = 0.1
    play.go()
    policy = make_policy("scripted", play.vec)
    policy.reset(play.vec)
    decision = policy.act(play.vec)
    assert play.vec.catalogue.names[decision.actions[0, play.slot["alice"]]] == choice
    assert decision.expert is not None
    assert (decision.expert == decision.actions).all()


def test_alone_a_scripted_resident_lives_the_same_day_in_both_catalogues() -> None:
    """Nobody decides before it, so what it saw is what it meets."""
    days = []
    for level in ("option", "candidates"):
        vec = VectorTown(tiny_town(f"policy.action_level={level}", "policy.decision_interval=10", residents=1), 1, seed=3)
        policy = make_policy("scripted", vec)
        policy.reset(vec)
        days.append([])
        for _ in range(120):
            vec.step(policy.act(vec).actions)
            me = vec.state.residents[0, 0]
            days[-1].append((int(me["x"]), int(me["y"]), int(me["using"]), float(vec.rewards[0, 0])))
    assert days[0] == days[1]
    assert len({using for _, _, using, _ in days[0]}) > 3


def test_a_turn_is_reserved_from_afar_without_a_conflict_and_only_one() -> None:
    play = scene()
    assert not play.may("carol", "reserve")  # on its way to nothing
    play.go(carol=f"use_shower:1@{NEAR}", dave=f"use_shower:1@{NEAR}")
    assert play.may("carol", "reserve")
    play.go(carol="reserve")
    assert waiting(play, NEAR) == ["carol"]
    assert play.told("queue_conflict") == []
    assert not play.may("dave", "reserve")  # somebody waits already
    there = int(play["carol"]["x"]), int(play["carol"]["y"])
    play.go(2)
    assert (int(play["carol"]["x"]), int(play["carol"]["y"])) != there  # it goes on walking there
    play.go(alice=f"use_shower:1@{NEAR}")
    assert waiting(play, NEAR) == ["carol", "alice"]
    assert [event["actor"] for event in play.told("queue_conflict")] == [play.slot["alice"]]
    play.go(carol="leave")
    assert waiting(play, NEAR) == ["alice"]
    assert sound(play)


def test_a_place_is_yielded_to_who_is_behind() -> None:
    play = scene()
    play.go(alice=f"use_shower:1@{NEAR}")
    play.put("carol", 9, 2)
    play.go(carol=f"use_shower:1@{NEAR}")
    assert waiting(play, NEAR) == ["alice", "carol"]
    assert (play.may("alice", "yield"), play.may("carol", "yield")) == (True, False)
    play.go(alice="yield")
    assert waiting(play, NEAR) == ["carol", "alice"]
    (event,) = play.told("queue_interaction", play.last)
    assert (event["actor"], event["rival"]) == (play.slot["alice"], play.slot["carol"])
    assert play.tie("alice", "carol")["trust"] == pytest.approx(0.05, abs=1e-3)
    assert sound(play)
    play.go(bob="leave")  # Carol is called, Alice waits
    assert play["carol"]["called"] == play.index(NEAR)
    assert play.may("carol", "yield")
    play.go(carol="yield")
    assert max(play["alice"]["called"], play["alice"]["using"]) == play.index(NEAR)
    assert (play["carol"]["called"], waiting(play, NEAR)) == (-1, ["carol"])
    assert sound(play)


def test_who_waits_may_turn_to_another_object() -> None:
    play = scene()
    play.go(alice=f"use_shower:1@{NEAR}")
    assert waiting(play, NEAR) == ["alice"]
    play.go(alice="use_shower:1")
    assert waiting(play, NEAR) == ["alice"]
    play.go(alice="use_shower:2")
    assert (waiting(play, NEAR), play["alice"]["target"]) == ([], play.index(FAR))
    assert sound(play)


def test_a_reservation_that_came_too_late_does_nothing_and_is_no_offence() -> None:
    play = scene()
    play.put("dave", 9, 5)
    play.go(carol=f"use_shower:1@{NEAR}", dave=f"use_shower:1@{NEAR}")
    play.go(carol="reserve", dave="reserve")
    assert waiting(play, NEAR) == ["carol"]
    assert not play.vec.illegal.any()
    assert play["dave"]["target"] == play.index(NEAR)  # it goes on


@pytest.mark.parametrize(("blind", "goes"), [("[]", FAR), ("[conflict_fields]", FAR), ("[conflict]", NEAR)])
def test_fields_are_hidden_with_the_ranking_of_calm_or_without(blind: str, goes: str) -> None:
    residents = people(alice=(8, 2), bob=(6, 2))
    config = tiny_town(f"observations.blind={blind}", residents=residents, scenario={"ties": FEUD})
    play = Play(config).go(bob=f"use_shower@{NEAR}").go(1)
    assert (play.sees("alice", "use_shower_near_busy"), play.sees("alice", "rivalry_max") > 0) == (
        float(blind == "[]"),
        blind == "[]",
    )
    play.go(alice="use_shower:calm")
    assert play["alice"]["target"] == play.index(goes)


@pytest.mark.parametrize("scenario", ["town_day", "queue_conflict"])
def test_towns_are_sound_under_scripted_and_random_residents(scenario: str) -> None:
    check_scenario(load_config(scenario, (LEVEL,)), decisions=40)


def test_lives_are_captured_read_and_refused_by_the_other_catalogue(tmp_path: Path) -> None:
    from townlet.errors import ReplayError
    from townlet.policy.training.sources import check_samples

    config = load_config("queue_conflict", (LEVEL,))
    capture([config], tmp_path / "lives", CaptureOptions(ticks=200, epsilon=0.05, policy="scripted"))
    data = ReplayDataset(ReplayDatasetConfig.from_capture_dir(tmp_path / "lives", normalize_conflict_features=True))
    check_samples(data, config, needs_map=True)
    assert data.normalizer is not None
    assert "use_shower_2_wait" in data.normalizer.names
    batch = next(iter(data))
    assert batch.expert is not None
    assert np.take_along_axis(batch.masks[: batch.steps], batch.expert[..., None], axis=2).all()  # type: ignore[index]
    with pytest.raises(ReplayError, match="differ in"):
        check_samples(data, load_config("queue_conflict"), needs_map=True)
