"""A sound town has no problems; every invariant notices a state that breaks it in one place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from townlet.testing import tiny_town
from townlet.world.invariants import problems
from townlet.world.state import ENERGY, HUNGER, HYGIENE, MAX_NEEDS
from world_tools import Play, people

USER, FIRST, SECOND, AWAY = range(4)


@pytest.fixture(scope="module")
def busy() -> Play:
    """Alice showers, Bob and Carol queue, Dave has left town; ties, cooldowns and events are there."""
    exits = '[{resident: dave, at: "06:12"}]'
    ties = [{"a": "alice", "b": "carol", "trust": 0.4}]
    play = Play(
        tiny_town(
            f"lifecycle.exits={exits}",
            residents=people(alice=(6, 2), bob=(7, 2), carol=(8, 2), dave=(2, 2)),
            scenario={"ties": ties},
        )
    )
    play.go(3, alice="use_shower").go(1, alice="leave").go(1, alice="use_shower@shower_2")
    play.put("alice", 9, 1)
    play.go(6, alice="use_shower@shower_2").go(alice="wait", bob="use_shower@shower_2")
    play.go(1, bob="use_shower@shower_2", carol="use_shower@shower_2")
    assert play["alice"]["using"] == 1
    assert play.vec.terminated[0, AWAY] == 1
    assert len(play.last) > 0
    return play


Breach = Callable[[Play], None]


def resident(name: str, field: str, value: float) -> Breach:
    def breach(play: Play) -> None:
        play[name][field] = value

    return breach


def thing(field: str, value: int, name: str = "shower_2") -> Breach:
    def breach(play: Play) -> None:
        play.thing(name)[field] = value

    return breach


def town(field: str, value: int) -> Breach:
    def breach(play: Play) -> None:
        play.town[field] = value

    return breach


def tie(field: str, value: float, slot: int = 0) -> Breach:
    def breach(play: Play) -> None:
        play.vec.state.ties[0, USER, slot][field] = value

    return breach


def seen(array: str, index: tuple[int, ...], value: float) -> Breach:
    def breach(play: Play) -> None:
        getattr(play.vec, array)[index] = value

    return breach


def event(field: str, value: int) -> Breach:
    def breach(play: Play) -> None:
        play.vec.state.events[0, 0][field] = value

    return breach


def on_a_wall(play: Play) -> None:
    play.put("bob", 0, 0)


def on_one_tile(play: Play) -> None:
    me, other = play["bob"], play["carol"]
    play.vec.state.grid[0]["occupant"][me["y"], me["x"]] = -1
    me["x"], me["y"], me["below"] = other["x"], other["y"], play.slot["carol"]
    play.vec.state.grid[0]["occupant"][other["y"], other["x"]] = play.slot["bob"]


def ghost_on_a_tile(play: Play) -> None:
    play.vec.state.grid[0]["occupant"][5, 5] = AWAY


def nowhere(play: Play) -> None:
    play.vec.state.grid[0]["occupant"][play["bob"]["y"], play["bob"]["x"]] = -1


def second_tie(play: Play) -> None:
    ties = play.vec.state.ties[0, USER]
    ties[3] = ties[0]


def cooldown(slot: int, field: str, value: int) -> Breach:
    def breach(play: Play) -> None:
        play["alice"][field][slot] = value

    return breach


def need(name: str, index: int, value: float) -> Breach:
    def breach(play: Play) -> None:
        play[name]["needs"][index] = value

    return breach


def foreign_bed(play: Play) -> None:
    """Shower_2, declared to be what one has only at home."""
    play.vec.tables.affordances["own_home"][play["alice"]["affordance"]] = 1


def full_table(play: Play) -> None:
    play.vec.tables.rules[0]["max_edges"] = 1
    play.vec.state.ties[0, USER, 1] = play.vec.state.ties[0, USER, 0]
    play.vec.state.ties[0, USER, 1]["other"] = FIRST


BREACHES: dict[str, tuple[Breach, str]] = {
    "money made": (resident("alice", "wallet", 10**6), "must add up to 0"),
    "a purse robbed": (town("purse", 0), "must add up to 0"),
    "a wallet below zero": (resident("alice", "wallet", -1), "below 0"),
    "a need above one": (need("bob", HUNGER, 1.5), "hunger of resident 1 is 1.5"),
    "a need that is no number": (need("bob", ENERGY, np.nan), "energy of resident 1 is nan"),
    "a need below zero": (need("carol", HYGIENE, -0.1), "hygiene of resident 2"),
    "a need nobody has": (need("carol", MAX_NEEDS - 1, 0.1), "need 5 of resident 2 is 0.1, but there are 3 needs"),
    "too many meals": (resident("bob", "meals", 7), "has 7 meals"),
    "a meal owed": (resident("bob", "meals", -1), "has -1 meals"),
    "an unknown shift state": (resident("bob", "shift", 6), "shift state"),
    "attendance above one": (resident("bob", "attended", 2.0), "the attendance of resident 1"),
    "stock above full": (thing("stock", 25, "stove_1"), "the stock of object"),
    "stock below zero": (thing("stock", -2, "stove_1"), "the stock of object"),
    "a minute too many": (town("minute", 1440), "the minute is 1440"),
    "evictions": (town("evictions_today", 3), "evictions today"),
    "newcomers": (town("newcomers_today", 3), "newcomers today"),
    "a departure left over": (town("departures", 1), "departures are left over"),
    "somebody still leaving": (resident("bob", "leaving", 1), "still leave"),
    "a user who is none": (thing("user", 2), "who does not use it"),
    "a use nobody knows of": (thing("user", -1), "whose user is another"),
    "two objects in use": (resident("alice", "using", 0), "who does not use it"),
    "another affordance": (resident("alice", "affordance", 3), "for affordance 3"),
    "a use without end": (resident("alice", "ticks_left", 21), "ticks left"),
    "a use that is over": (resident("alice", "ticks_left", 0), "ticks left"),
    "a bed of another home": (foreign_bed, "of another home"),
    "a use from afar": (lambda play: play.put("alice", 2, 6), "not beside it"),
    "a waiting count": (thing("waiting", 3), "counts 3 waiting"),
    "a tail": (thing("tail", FIRST), "its tail says"),
    "a head": (thing("head", SECOND), "follows 1, expected -1"),
    "a link ahead": (resident("carol", "ahead", -1), "follows -1, expected 1"),
    "a link behind": (resident("bob", "behind", -1), "counts 2 waiting, its queue has 1"),
    "a ring": (resident("carol", "behind", FIRST), "runs into resident 1"),
    "another queue": (resident("carol", "queued", 0), "but says 0"),
    "a queue of one's own": (resident("dave", "queued", 2), "in whose queue it does not stand"),
    "too many overtakes": (resident("bob", "overtakes", 3), "was overtaken 3 times"),
    "a holder while in use": (thing("holder", FIRST), "is held for resident 1"),
    "called for nothing": (resident("dave", "called", 2), "which is not held for it"),
    "two places": (resident("bob", "called", 2), "at more than one object"),
    "a wall": (on_a_wall, "is no ground"),
    "an object's tile": (lambda play: play.put("bob", 6, 3), "is no ground"),
    "one tile for two": (on_one_tile, "without a bump"),
    "a ghost": (ghost_on_a_tile, "who is not in town"),
    "nobody on a tile": (nowhere, "where no list has it"),
    "a tile's list in a ring": (resident("bob", "below", FIRST), "runs into resident 1"),
    "a tie to oneself": (tie("other", USER), "is to itself"),
    "a tie to the absent": (tie("other", AWAY), "who is not in town"),
    "a tie to nobody known": (tie("other", 9), "who is not in town"),
    "two ties to one": (second_tie, "a second one"),
    "too many ties": (full_table, "beyond the 1 allowed"),
    "trust out of range": (tie("trust", 1.5), "out of range"),
    "familiarity out of range": (tie("familiarity", -1.5), "out of range"),
    "rivalry out of range": (tie("rivalry", -0.1), "out of range"),
    "a tie from tomorrow": (tie("since", 10**6), "has not come"),
    "an empty tie that feels": (tie("trust", 0.3, slot=5), "to nobody but not empty"),
    "a cooldown twice": (cooldown(2, "cooldown_object", 0), "listed twice"),
    "a cooldown of nothing": (cooldown(2, "cooldown_object", 99), "does not exist"),
    "a cooldown too long": (cooldown(0, "cooldown_until", 10**6), "at most 60 ticks"),
    "silence too long": (resident("bob", "chat_ready", 10**6), "may not chat until"),
    "a dead man's wallet": (resident("dave", "wallet", 5), "the empty slot 3 still has"),
    "events uncounted": (town("events", 10**6), "events are kept"),
    "events untold": (town("events_total", 0), "events are kept"),
    "an event's number": (event("number", 10**6), "a rising run"),
    "an event of no kind": (event("kind", 99), "names what is not there"),
    "an event of another town": (event("town", 5), "names what is not there"),
    "an event to come": (event("tick", 10**6), "names what is not there"),
    "an event of nobody": (event("actor", 44), "names what is not there"),
    "a term too much": (seen("terms", (0, USER, 0), 0.5), "add up to"),
    "a reward too much": (seen("rewards", (0, FIRST), 0.5), "its reward is 0.5"),
    "a reward of nobody": (seen("terminated", (0, AWAY), 0), "the empty slot 3 was rewarded"),
    "a feature that is no number": (seen("features", (0, USER, 0), np.nan), "need_hunger of resident 0 is nan"),
    "a feature out of bounds": (seen("features", (0, USER, 4), 1.1), "debt of resident 0"),
    "a map": (seen("maps", (0, USER, 1, 0, 0), 2), "a map holds"),
    "a mask without wait": (seen("masks", (0, USER, 0), 0), "does not allow `wait`"),
    "a mask that is no bit": (seen("masks", (0, USER, 4), 2), "something else than 0 and 1"),
    "a choice of nobody": (seen("masks", (0, AWAY, 1), 1), "the empty slot 3 may do 2 things"),
    "a choice while using": (seen("masks", (0, USER, 1), 1), "may do 3 things"),
    "an absent one active": (seen("active", (0, AWAY), 1), "slot 3 is active"),
    "a present one idle": (seen("active", (0, USER), 0), "slot 0 is not active"),
    "truncated too early": (seen("truncated", (0, USER), 1), "slot 0 is truncated"),
    "an end for some": (town("over", 1), "slot 3 is not truncated"),
}


def test_a_busy_town_is_sound(busy: Play) -> None:
    assert problems(busy.vec) == []


@pytest.mark.parametrize("name", BREACHES)
def test_one_broken_place_is_reported(busy: Play, name: str) -> None:
    breach, sentence = BREACHES[name]
    saved, rules, affordances = busy.vec.save(), busy.vec.tables.rules.copy(), busy.vec.tables.affordances.copy()
    counts = busy.town["events"], busy.town["events_total"]
    rows = busy.vec.state.events.copy()
    try:
        breach(busy)
        found = problems(busy.vec)
        assert any(sentence in one for one in found), found
        assert all(one.startswith(f"town 0, tick {busy.town['tick']}: ") for one in found)
    finally:
        busy.vec.restore(saved)
        busy.vec.tables.rules[...] = rules
        busy.vec.tables.affordances[...] = affordances
        busy.town["events"], busy.town["events_total"] = counts
        busy.vec.state.events[...] = rows
    assert problems(busy.vec) == []
