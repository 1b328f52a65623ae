"""Ties: fading, chats, shared meals, full tables, rivals avoided and made up with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from townlet.testing import tiny_town
from world_tools import Play, people

NO_DECAY = ("conflict.rivalry.decay_per_tick=0", "relationships.trust_decay=0", "relationships.familiarity_decay=0")
SURE, NEVER = "relationships.chat.success=1", "relationships.chat.success=0"


def pair(*overrides: str, ties: list[dict[str, Any]] | None = None, **personality: float) -> Play:
    residents = people(alice=(2, 2), bob=(3, 2))
    residents[0]["personality"] = personality
    return Play(tiny_town(*overrides, residents=residents, scenario={"ties": ties or []}))


def test_ties_fade_towards_zero_in_a_straight_line() -> None:
    """1,000 ticks: trust −0.5 + 0.05, familiarity 0.4 − 0.1, rivalry 0.8 − 0.05."""
    play = pair(ties=[{"a": "alice", "b": "bob", "trust": -0.5, "familiarity": 0.4, "rivalry": 0.8}])
    play.town["tick"] += 999
    play.go()
    assert play.sees("alice", "rival_1_trust") == pytest.approx(-0.45)
    assert play.sees("alice", "rival_1_familiarity") == pytest.approx(0.3)
    assert play.sees("alice", "rival_1_rivalry") == pytest.approx(0.75)
    assert play.sees("alice", "rivalry_max") == pytest.approx(0.75)
    assert play.sees("alice", "rivalry_avoid_count") == pytest.approx(1 / 6)
    play.town["tick"] += 1_500
    play.go()
    assert play.sees("alice", "rivalry_avoid_count") == 0.0


def test_a_faded_tie_is_freed_at_the_next_event() -> None:
    play = pair(NEVER, ties=[{"a": "alice", "b": "bob", "trust": 0.3}])
    play.town["tick"] += 6_000
    play.go(alice="chat")
    tie = play.tie("alice", "bob")
    assert tie["trust"] == 0.0
    assert tie["rivalry"] == pytest.approx(0.05)


def test_a_good_chat_warms_both_and_rewards_by_what_they_feel() -> None:
    """(0.01 + 0.03 × 0.5 + 0.02 × 0.2) q = 0.029 q for Alice, who likes Bob; 0.01 q for Bob. Extroversion 1 adds 0.02."""
    likes = [{"a": "alice", "b": "bob", "trust": 0.5, "familiarity": 0.2, "mutual": False}]
    play = pair(SURE, *NO_DECAY, ties=likes, extroversion=1.0)
    play.go(alice="chat")
    (chat,) = play.told("chat_success")
    q = chat["amount"]
    assert 0.5 <= q < 1.0
    assert play.term("alice", "social") == pytest.approx(0.029 * q)
    assert play.term("bob", "social") == pytest.approx(0.01 * q)
    mine, his = play.tie("alice", "bob"), play.tie("bob", "alice")
    assert (mine["trust"], mine["familiarity"]) == (pytest.approx(0.5 + 0.05 * q), pytest.approx(0.2 + 0.1 * q + 0.02))
    assert (his["trust"], his["familiarity"]) == (pytest.approx(0.05 * q), pytest.approx(0.1 * q))


def test_a_bad_chat_estranges_and_forgiveness_halves_it() -> None:
    play = pair(NEVER, *NO_DECAY, forgiveness=1.0)
    play.go(alice="chat")
    assert len(play.told("chat_failure")) == 1
    assert play.term("alice", "social") == 0.0
    assert (play.tie("alice", "bob")["familiarity"], play.tie("alice", "bob")["rivalry"]) == (-0.025, 0.025)
    assert (play.tie("bob", "alice")["familiarity"], play.tie("bob", "alice")["rivalry"]) == (-0.05, 0.05)


def test_thirty_ticks_lie_between_two_chats_of_either() -> None:
    play = pair(SURE)
    play.go(alice="chat")
    for _ in range(29):
        assert not play.may("alice", "chat")
        assert not play.may("bob", "chat")
        play.go(alice="chat", bob="chat")
    assert play.may("alice", "chat")
    play.go(bob="chat")
    assert [row["actor"] for row in play.told("chat_success")] == [0, 1]


def test_chance_of_a_good_chat_follows_trust_and_familiarity() -> None:
    """0.7 × (1 − 0.3)(1 − 0.2) = 0.392 for the worst of feelings; 400 chats give 0.392 ± 0.024 (one standard deviation)."""
    hate = [{"a": "alice", "b": "bob", "trust": -1.0, "familiarity": -1.0}]
    play = pair("relationships.chat.cooldown=0", *NO_DECAY, ties=hate)
    feelings = play.vec.state.ties.copy()
    for _ in range(400):
        play.vec.state.ties[...] = feelings
        play.go(alice="chat")
    good, bad = len(play.told("chat_success")), len(play.told("chat_failure"))
    assert good + bad == 400
    assert 0.392 - 0.1 < good / 400 < 0.392 + 0.1


def test_chat_needs_somebody_awake_beside_one() -> None:
    play = pair(SURE)
    play.put("bob", 4, 2)
    play.go(alice="chat")
    assert play.vec.illegal[0].tolist() == [1, 0]
    play.put("bob", 3, 2)
    play.go(bob="rest_sleep")
    assert play["bob"]["using"] >= 0
    assert not play.may("alice", "chat")


def test_two_who_eat_side_by_side_share_a_meal_once() -> None:
    """Table on (7, 3) from (8, 3), fridge on (10, 3) from (9, 3): trust + 0.1, familiarity + 0.25 both ways."""
    play = Play(tiny_town(*NO_DECAY, residents=people(alice=(8, 3), bob=(9, 3))))
    play.go(15, alice="eat_meal", bob="eat_meal")
    assert play["alice"]["using"] >= 0
    assert play["bob"]["using"] >= 0
    assert len(play.told("shared_meal")) == 1
    for a, b in (("alice", "bob"), ("bob", "alice")):
        assert (play.tie(a, b)["trust"], play.tie(a, b)["familiarity"]) == (pytest.approx(0.1), pytest.approx(0.25))


def test_a_full_table_admits_who_is_stronger_than_its_weakest() -> None:
    play = pair(NEVER, "relationships.max_edges=1", *NO_DECAY, ties=[])
    ties = play.vec.state.ties[0, 0]
    ties[0]["other"], ties[0]["trust"] = 1, 0.04
    play.vec.state.ties[0, 0, 0]["other"] = 1
    assert play.tie("alice", "bob")["trust"] == pytest.approx(0.04)
    weak = Play(
        tiny_town(
            NEVER,
            "relationships.max_edges=1",
            *NO_DECAY,
            residents=people(alice=(2, 2), bob=(3, 2), carol=(2, 6)),
            scenario={"ties": [{"a": "alice", "b": "carol", "trust": 0.04, "mutual": False}]},
        )
    )
    weak.go(alice="chat")
    assert weak.tie("alice", "carol") is None
    assert weak.tie("alice", "bob")["rivalry"] == 0.05
    strong = Play(
        tiny_town(
            NEVER,
            "relationships.max_edges=1",
            *NO_DECAY,
            residents=people(alice=(2, 2), bob=(3, 2), carol=(2, 6)),
            scenario={"ties": [{"a": "alice", "b": "carol", "trust": 0.06, "mutual": False}]},
        )
    )
    strong.go(alice="chat")
    assert strong.tie("alice", "bob") is None
    assert strong.tie("alice", "carol")["trust"] == pytest.approx(0.06)
    assert strong.tie("bob", "alice")["rivalry"] == 0.05


@pytest.mark.parametrize(("stage", "bonus"), [("C1", 0.0), ("C2", 0.005), ("C3", 0.005)])
def test_setting_out_past_a_rival_is_rewarded_once_an_hour(stage: str, bonus: float) -> None:
    feud = [{"a": "alice", "b": "bob", "rivalry": 0.8}]
    config = tiny_town(
        f"features.stages.social_rewards={stage}", *NO_DECAY, residents=people(alice=(8, 2), bob=(6, 2)), scenario={"ties": feud}
    )
    play = Play(config).go(bob="use_shower")
    play.go(alice="use_shower:calm")
    (avoided,) = play.told("rival_avoided")
    assert (avoided["actor"], avoided["rival"], avoided["object"]) == (0, 1, play.index("shower_1"))
    assert play.term("alice", "shaping") == pytest.approx(bonus)
    play.go(alice="wait").go(alice="use_shower:calm")
    assert len(play.told("rival_avoided")) == 1


@pytest.mark.parametrize(("stage", "bonus"), [("C2", 0.0), ("C3", 0.05)])
def test_making_up_is_rewarded_by_the_fall_of_rivalry(stage: str, bonus: float) -> None:
    """A pair that stood above 0.7 talks with 0.3 left of 0.8: each gets 0.05 × (0.8 − 0.3), once."""
    play = pair(SURE, f"features.stages.social_rewards={stage}", *NO_DECAY, ties=[{"a": "alice", "b": "bob", "rivalry": 0.8}])
    for a, b in (("alice", "bob"), ("bob", "alice")):
        play.tie(a, b)["rivalry"] = 0.3
    play.go(alice="chat")
    assert [row["amount"] for row in play.told("reconciliation")] == [pytest.approx(0.5)] * 2
    assert play.term("alice", "shaping") == pytest.approx(bonus * 0.5)
    assert play.term("bob", "shaping") == pytest.approx(bonus * 0.5)
    play.go(40, alice="chat")
    assert len(play.told("reconciliation")) == 2


def test_a_new_conflict_is_no_reconciliation() -> None:
    """Rivalry that faded below half of the line and is stirred up a little by a failed chat has not been made up."""
    play = pair("relationships.chat.success=0.0", *NO_DECAY, ties=[{"a": "alice", "b": "bob", "rivalry": 0.8}])
    for a, b in (("alice", "bob"), ("bob", "alice")):
        play.tie(a, b)["rivalry"] = 0.1
    play.go(alice="chat")
    assert len(play.told("chat_failure")) == 1
    assert not play.told("reconciliation")


def test_social_rewards_can_be_switched_off() -> None:
    play = pair(SURE, "features.stages.social_rewards=OFF").go(alice="chat")
    assert len(play.told("chat_success")) == 1
    assert not np.any([play.term("alice", "social"), play.term("bob", "social")])
