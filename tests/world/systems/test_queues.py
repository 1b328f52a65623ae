"""Queues, hand-overs, stalled holders, cooldowns and conflict, each case worked out by hand.

Tiny town: shower_1 on (6, 1) is used from (6, 2) and (7, 1), shower_2 on (10, 1) from (10, 2) and (9, 1).
"""

from __future__ import annotations

from typing import Any

import pytest

from townlet.config.models import SimulationConfig
from townlet.testing import TINY_MAP, tiny_town
from townlet.world.state import CONFLICT_REASONS, ENERGY, HYGIENE
from world_tools import Play, people

BLOCKED, OVERTAKEN, GHOST_STEP = range(3)
ONE_SHOWER = TINY_MAP.replace("s...s", "s....")
WEIGHT = 3.0  # rewards.conflict_weight
NO_DECAY = ("conflict.rivalry.decay_per_tick=0", "relationships.trust_decay=0", "relationships.familiarity_decay=0")


def bath(*overrides: str, ties: list[dict[str, Any]] | None = None, **where: tuple[int, int]) -> SimulationConfig:
    """One shower; nothing fades by itself."""
    return tiny_town(*NO_DECAY, *overrides, residents=people(**where), scenario={"map": ONE_SHOWER, "ties": ties or []})


def shower(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "use_shower")


def test_blocked_costs_the_asker_three_times_what_it_costs_the_user() -> None:
    """Strangers: intensity 0.4; Bob pays 0.3 × 0.4 = 0.12, Alice 0.1 × 0.4 = 0.04; rivalry 0.3 × 0.4 = 0.12 both ways."""
    play = Play(bath(alice=(6, 2), bob=(7, 2))).go(**shower("alice"))
    play.go(**shower("bob"))
    (clash,) = play.told("queue_conflict")
    assert (clash["actor"], clash["rival"], clash["reason"], clash["queue_length"]) == (1, 0, BLOCKED, 0)
    assert clash["intensity"] == pytest.approx(0.4)
    assert (clash["rivalry_before"], clash["rivalry_after"]) == (0.0, pytest.approx(0.12))
    assert play.term("bob", "conflict") == pytest.approx(-0.12 * WEIGHT)
    assert play.term("alice", "conflict") == pytest.approx(-0.04 * WEIGHT)
    assert play.tie("alice", "bob")["rivalry"] == pytest.approx(0.12)
    assert play.tie("bob", "alice")["rivalry"] == pytest.approx(0.12)


def test_one_visit_is_blocked_once_and_asking_again_is_a_new_visit() -> None:
    play = Play(bath(alice=(6, 2), bob=(7, 2))).go(**shower("alice"))
    play.go(5, **shower("bob"))
    assert len(play.told("queue_conflict")) == 1
    play.go(bob="leave").go(**shower("bob"))
    assert [row["waited"] for row in play.told("queue_leave")] == [5]
    assert len(play.told("queue_conflict")) == 2
    again = play.told("queue_conflict")[1]
    assert again["intensity"] == pytest.approx(0.4 * 1.12)
    assert again["rivalry_after"] == pytest.approx(0.12 + 0.3 * 0.4 * 1.12)


def test_every_waiter_beyond_the_first_adds_a_quarter() -> None:
    """Carol meets a queue of one: 0.4. Dave a queue of two: 0.4 + 0.25 = 0.65."""
    play = Play(bath(alice=(6, 2), bob=(7, 2), carol=(8, 2), dave=(9, 2))).go(**shower("alice"))
    play.go(**shower("bob")).go(**shower("carol")).go(**shower("dave"))
    told = [(row["queue_length"], row["intensity"]) for row in play.told("queue_conflict")]
    assert told == [(0, pytest.approx(0.4)), (1, pytest.approx(0.4)), (2, pytest.approx(0.65))]
    assert play.thing("shower_1")["waiting"] == 3


@pytest.mark.parametrize(
    ("personality", "gain"),
    [({}, 1.0), ({"ambition": 1.0}, 1.3), ({"forgiveness": 1.0}, 0.5), ({"forgiveness": -1.0}, 1.5), ({"ambition": -1.0}, 0.7)],
)
def test_rivalry_raises_intensity_and_personality_bends_what_is_gained(personality: dict[str, float], gain: float) -> None:
    """Rivalry 0.2: intensity 0.4 × 1.2 = 0.48, rivalry + 0.3 × 0.48 × gain."""
    residents = people(alice=(6, 2), bob=(7, 2))
    residents[1]["personality"] = personality
    scenario = {"map": ONE_SHOWER, "ties": [{"a": "bob", "b": "alice", "rivalry": 0.2, "mutual": False}]}
    play = Play(tiny_town(*NO_DECAY, residents=residents, scenario=scenario)).go(**shower("alice")).go(**shower("bob"))
    (clash,) = play.told("queue_conflict")
    assert clash["intensity"] == pytest.approx(0.48)
    assert clash["rivalry_after"] == pytest.approx(0.2 + 0.144 * gain)
    assert play.tie("alice", "bob")["rivalry"] == pytest.approx(0.144)


def test_intensity_is_bounded() -> None:
    limits = ("conflict.intensity_max=0.5", "conflict.intensity_min=0.45")
    feud = [{"a": "alice", "b": "bob", "rivalry": 1.0}]
    high = Play(bath(*limits, alice=(6, 2), bob=(7, 2), ties=feud)).go(**shower("alice")).go(**shower("bob"))
    assert high.told("queue_conflict")[0]["intensity"] == 0.5
    low = Play(bath(*limits, alice=(6, 2), bob=(7, 2))).go(**shower("alice")).go(**shower("bob"))
    assert low.told("queue_conflict")[0]["intensity"] == 0.45


def test_a_quarrel_halts_the_use_for_five_ticks_and_tires_both() -> None:
    """Rivalry 1: a quarrel for certain. 20 ticks of use take 25; each loses 0.02 energy beside 0.0008 a tick."""
    feud = [{"a": "alice", "b": "bob", "rivalry": 1.0}]
    play = Play(bath(alice=(6, 2), bob=(7, 2), ties=feud)).go(**shower("alice"))
    energy = play["bob"]["needs"][ENERGY]
    play.go(**shower("bob"))
    assert len(play.told("quarrel")) == 1
    assert play["bob"]["needs"][ENERGY] == pytest.approx(energy - 0.02 - 0.0008)
    assert play["alice"]["ticks_left"] == 19
    play.go(4, **shower("bob"))
    assert play["alice"]["ticks_left"] == 19
    end = play.until("use_end", **shower("bob"))
    assert end["tick"] == play.told("use_start")[0]["tick"] + 24


def test_strangers_never_quarrel() -> None:
    play = Play(bath(alice=(6, 2), bob=(7, 2))).go(**shower("alice"))
    for _ in range(8):
        play.go(**shower("bob")).go(bob="leave")
        for a, b in (("alice", "bob"), ("bob", "alice")):
            play.tie(a, b)["rivalry"] = 0.0
    assert len(play.told("queue_conflict")) == 8
    assert play.told("quarrel") == []


def test_a_friend_is_handed_the_shower_past_the_first_in_the_queue() -> None:
    """Alice trusts Carol 0.5: 0.5 − 0.12 (Carol blocked her) − 0.05 for the second place > 0 > −0.12 for Bob.

    Bob is overtaken at a queue of two: intensity 1 + 0.25 = 1.25; he pays 0.125, Carol 0.375.
    """
    friends = [{"a": "alice", "b": "carol", "trust": 0.5, "mutual": False}]
    play = Play(bath(alice=(6, 2), bob=(7, 2), carol=(8, 2), ties=friends)).go(**shower("alice"))
    play.go(**shower("bob")).go(**shower("bob", "carol"))
    given = play.until("queue_interaction", **shower("bob", "carol"))
    assert (given["actor"], given["rival"]) == (0, 2)
    assert given["amount"] == pytest.approx(0.5 - 0.12 - 0.05)
    clash = play.told("queue_conflict")[-1]
    assert (clash["actor"], clash["rival"], clash["reason"], clash["queue_length"]) == (1, 2, OVERTAKEN, 2)
    assert clash["intensity"] == pytest.approx(1.25)
    assert play.term("bob", "conflict") == pytest.approx(-0.125 * WEIGHT)
    assert play.term("carol", "conflict") == pytest.approx(-0.375 * WEIGHT)
    assert play["bob"]["overtakes"] == 1
    assert play["carol"]["called"] == play.index("shower_1")
    tie = play.tie("alice", "carol")
    assert tie["trust"] == pytest.approx(0.55)
    assert tie["familiarity"] == pytest.approx(0.05)
    assert tie["rivalry"] == pytest.approx(0.12 - 0.05)


@pytest.mark.parametrize(("bound", "next_up"), [(0, "bob"), (1, "carol")])
def test_nobody_is_passed_over_more_often_than_allowed(bound: int, next_up: str) -> None:
    friends = [{"a": "alice", "b": "carol", "trust": 0.9, "mutual": False}]
    config = bath(f"queue_fairness.max_overtakes={bound}", alice=(6, 2), bob=(7, 2), carol=(8, 2), ties=friends)
    play = Play(config).go(**shower("alice")).go(**shower("bob")).go(**shower("bob", "carol"))
    play.until("use_end", **shower("bob", "carol"))
    assert play[next_up]["called"] == play.index("shower_1")


def test_after_the_bound_the_first_is_next() -> None:
    """Alice hands over to Carol, Carol would to Dave; Bob was passed over once, which is the bound."""
    friends = [
        {"a": "alice", "b": "carol", "trust": 1.0, "familiarity": 1.0, "mutual": False},
        {"a": "carol", "b": "dave", "trust": 1.0, "familiarity": 1.0, "mutual": False},
    ]
    config = bath("queue_fairness.max_overtakes=1", alice=(6, 2), bob=(7, 2), carol=(8, 2), dave=(9, 2), ties=friends)
    play = Play(config).go(**shower("alice"))
    play.go(**shower("bob")).go(**shower("bob", "carol")).go(**shower("bob", "carol", "dave"))
    waiting = shower("bob", "carol", "dave")
    play.until("queue_interaction", **waiting)
    assert play["carol"]["called"] >= 0
    play.put("bob", 10, 2)  # out of Carol's way
    end = play.until("use_end", **waiting)
    assert end["actor"] == play.slot["carol"]
    assert play["bob"]["called"] >= 0
    assert len(play.told("queue_interaction")) == 1


def test_urgency_counts_when_it_is_weighted() -> None:
    """Weight 1: Carol's hygiene 0.1 is an urgency of 0.9 against Bob's 0.2; both are strangers but for the block."""
    play = Play(bath("queue_fairness.age_priority_weight=1", alice=(6, 2), bob=(7, 2), carol=(8, 2))).go(**shower("alice"))
    play["carol"]["needs"][HYGIENE] = 0.1
    play.go(**shower("bob")).go(**shower("bob", "carol"))
    play.until("use_end", **shower("bob", "carol"))
    assert play["carol"]["called"] >= 0


def stalled() -> Play:
    """Bob was called to the shower and cannot come; Carol stands beside it, first in the queue."""
    play = Play(bath(alice=(6, 2), bob=(7, 2), carol=(8, 2))).go(**shower("alice"))
    play.go(**shower("bob")).go(**shower("bob", "carol"))
    play.put("bob", 1, 7)
    play.put("carol", 7, 1)
    play.until("use_end", **shower("bob", "carol"))
    assert play["bob"]["called"] >= 0
    return play


def test_a_stalled_holder_is_pushed_to_the_tail() -> None:
    """After three ticks Carol pushes: intensity 1.5 at a queue of one; she pays 0.15, Bob 0.45 and waits anew."""
    play = stalled()
    called = play["bob"]["called_since"]
    clash = play.until("queue_conflict", **shower("bob", "carol"))
    assert clash["tick"] == called + 3
    assert CONFLICT_REASONS[clash["reason"]] == "ghost_step"
    assert (clash["actor"], clash["rival"], clash["queue_length"]) == (2, 1, 1)
    assert clash["intensity"] == pytest.approx(1.5)
    assert play.term("carol", "conflict") == pytest.approx(-0.15 * WEIGHT)
    assert play.term("bob", "conflict") == pytest.approx(-0.45 * WEIGHT)
    assert play["carol"]["using"] == play.index("shower_1")
    assert (play["bob"]["queued"], play["bob"]["queued_since"]) == (play.index("shower_1"), clash["tick"])


def test_a_holder_that_leaves_calls_the_next() -> None:
    play = stalled().go(bob="leave", carol="use_shower")
    assert play["bob"]["called"] == -1
    assert play["carol"]["using"] == play.index("shower_1")
    assert play.told("queue_conflict")[-1]["reason"] == BLOCKED


def test_choosing_something_else_leaves_the_queue_and_waiting_keeps_it() -> None:
    play = Play(bath(alice=(6, 2), bob=(7, 2))).go(**shower("alice")).go(**shower("bob"))
    play.go(3)
    assert play["bob"]["queued"] >= 0
    play.go(bob="home")
    assert play["bob"]["queued"] == -1
    assert play.thing("shower_1")["waiting"] == 0


def test_the_cooldown_of_the_shower_is_sixty_ticks_and_shows_in_the_mask() -> None:
    play = Play(bath(alice=(6, 2), bob=(2, 2))).go(**shower("alice"))
    end = play.until("use_end")
    assert end["amount"] == 1.0
    ready = end["tick"] + 60
    assert play["alice"]["cooldown_until"].max() == ready
    while play.town["tick"] < ready:
        assert not play.may("alice", "use_shower:near"), play.town["tick"]
        assert not play.may("alice", "use_shower:calm")
        play.go(1, alice="use_shower")
        assert play["alice"]["using"] == -1
    assert play.may("alice", "use_shower:near")
    assert play.may("bob", "use_shower:near")


def test_the_last_four_cooldowns_are_kept_and_the_first_to_end_gives_way() -> None:
    play = Play(bath(alice=(6, 2)))
    me = play["alice"]
    me["cooldown_object"], me["cooldown_until"] = [3, 4, 5, 6], [40, 10, 30, 20]
    play.go(**shower("alice")).go(alice="leave")
    assert me["cooldown_object"].tolist() == [3, play.index("shower_1"), 5, 6]


def test_effects_come_in_equal_parts_and_leaving_early_has_given_its_share() -> None:
    """Ten of twenty ticks: hygiene + 0.25 − 10 × 0.0007, energy − 0.01 − 10 × 0.0008."""
    play = Play(bath(alice=(6, 2)))
    hygiene, energy = play["alice"]["needs"][HYGIENE], play["alice"]["needs"][ENERGY]
    play["alice"]["needs"][HYGIENE] = hygiene = 0.3
    play.go(10, **shower("alice"))
    assert play["alice"]["needs"][HYGIENE] == pytest.approx(hygiene + 0.25 - 0.007)
    assert play["alice"]["needs"][ENERGY] == pytest.approx(energy - 0.01 - 0.008)
    play.go(alice="leave")
    assert play.told("use_end")[0]["amount"] == 0.0


def test_a_named_object_out_of_range_is_not_followed() -> None:
    """A target beyond the objects of the town means the option's own choice."""
    play = Play(bath(alice=(6, 2)))
    vec = play.vec
    actions = vec._no_targets.copy()
    actions[0, 0] = vec.catalogue.index("use_shower")
    for target in (10**9, len(vec.object_ids(0)), -(10**9), play.index("stove_1")):
        vec.reset()
        targets = vec._no_targets.copy()
        targets[0, 0] = target
        vec.step(actions, targets)
        assert play["alice"]["using"] == play.index("shower_1"), target


@pytest.mark.parametrize(
    ("rivalry", "near", "calm"), [(0.0, "shower_1", "shower_2"), (1.0, "shower_1", "shower_2"), (None, "shower_1", "shower_1")]
)
def test_calm_weighs_the_wait_and_forty_ticks_per_rivalry(rivalry: float | None, near: str, calm: str) -> None:
    """From (8, 2) shower_1 is 1 step off, shower_2 1 or 2. In use, shower_1 costs 1 + up to 20 + 40 × rivalry."""
    ties = [] if rivalry is None else [{"a": "alice", "b": "bob", "rivalry": rivalry}]
    play = Play(tiny_town(*NO_DECAY, residents=people(alice=(6, 2), bob=(8, 2)), scenario={"ties": ties}))
    if rivalry is not None:
        play.go(**shower("alice"))
    for how, name in (("near", near), ("calm", calm)):
        saved = play.vec.save()
        play.go(bob=f"use_shower:{how}")
        assert play["bob"]["target"] == play.index(name) or play["bob"]["queued"] == play.index(name)
        play.vec.restore(saved)


def test_a_named_object_on_cooldown_is_not_given_and_a_strangers_bed_is_not_slept_in() -> None:
    play = Play(tiny_town(residents=people(alice=(6, 2)))).go(**shower("alice")).go(alice="leave")
    play.go(5, alice="use_shower@shower_1")
    assert (play["alice"]["using"], len(play.told("use_start"))) == (-1, 1)
    config = tiny_town(
        residents=[{"id": "alice", "position": [1, 2]}, {"id": "bob", "home": "cell", "job": None}],
        scenario={
            "map": TINY_MAP.replace("#....c.....#", "#....c...b.#"),
            "buildings": {
                "house": {"at": [1, 1], "size": [4, 3]},
                "office": {"at": [7, 7], "size": [4, 1]},
                "cell": {"at": [8, 5], "size": [2, 2]},
            },
        },
    )
    play = Play(config)
    foreign = int(play["bob"]["bed"])
    assert foreign != play["alice"]["bed"]
    play.put("alice", 10, 6)
    play.go(30, alice=f"rest_sleep@{play.vec.object_ids(0)[foreign]}")
    assert play["alice"]["using"] not in (-1, foreign)
