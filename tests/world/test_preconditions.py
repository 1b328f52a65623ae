"""Preconditions: a small language that means what Python means by it, and nothing beyond it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from townlet.config.needs import THREE
from townlet.errors import ConfigError
from townlet.testing import tiny_town
from townlet.world.preconditions import parse
from townlet.world.state import ENERGY, HUNGER, HYGIENE
from world_tools import Play, people

SIT = {"id": "sit", "objects": ["bench", "shower", "stove", "table", "fridge", "cafe_counter"], "ticks": 30}
SLEEP = {"id": "rest_sleep", "objects": ["bed"], "ticks": 360, "own_home": True}
COMPARISONS = st.tuples(
    st.sampled_from(["meals", "hunger", "hygiene", "energy", "wallet"]),
    st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
    st.sampled_from(["0", "0.25", "0.5", "1", "2", "energy"]),
).map(" ".join)
EXPRESSIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda parts: f"({parts[0]}) {parts[1]} ({parts[2]})"),
        inner.map(lambda one: f"not ({one})"),
    ),
    max_leaves=4,
)


def town(requires: str, **spec: object) -> Play:
    """A town where one may sit on anything but a bed, with this precondition."""
    specs = [{**SIT, "requires": requires, **spec}, SLEEP]
    return Play(tiny_town(f"affordances={json.dumps({'specs': specs})}", residents=people(alice=(9, 5))))


@settings(max_examples=40)
@given(EXPRESSIONS, st.lists(st.tuples(*[st.sampled_from([0.0, 0.25, 0.5, 1.0])] * 3, st.integers(0, 2)), min_size=3, max_size=3))
def test_what_the_mask_allows_is_what_python_finds_true(text: str, people_: list[tuple[float, float, float, int]]) -> None:
    play = town(text)
    for hunger, hygiene, energy, meals in people_:
        me = play["alice"]
        play.vec.tables.rules[0]["need_decay"] = 0.0
        me["needs"][HUNGER], me["needs"][HYGIENE], me["needs"][ENERGY], me["meals"] = hunger, hygiene, energy, meals
        play.go()
        names = {"hunger": hunger, "hygiene": hygiene, "energy": energy, "meals": meals, "wallet": 1.0}
        assert play.may("alice", "sit:near") == bool(eval(text, {}, names)), (text, names)


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("minute >= 361", None, [False, True]),
        ("minute == 361 or minute == 360", None, [True, True]),
        ("water and power", None, [True, True]),
        ("not water or stock > 100", None, [False, False]),
        ("", None, [True, True]),
        ("1", None, [True, True]),
        ("0", None, [False, False]),
    ],
)
def test_names_of_the_town(text: str, start: str | None, expected: list[bool]) -> None:
    play = town(text)
    seen = []
    for _ in expected:
        seen.append(play.may("alice", "sit:near"))
        play.go()
    assert seen == expected


def test_town_and_resident_may_both_be_asked_when_joined_by_and() -> None:
    play = town("water and meals >= 1 and minute < 1000 and hunger > 0.1")
    assert play.may("alice", "sit:near")
    play["alice"]["meals"] = 0
    play.go()
    assert not play.may("alice", "sit:near")


def test_opening_hours_may_run_over_midnight() -> None:
    """22:00 to 07:00 is open at 06:00 and closed from 07:00 on."""
    play = town("", hours=["22:00", "06:02"])
    seen = []
    for _ in range(4):
        seen.append(play.may("alice", "sit:near"))
        play.go()
    assert seen == [True, True, False, False]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("stok >= 1", "names 'stok'; known names are water, power, stock"),
        ("power and", "cannot be read"),
        ("__import__('os').system('true')", "holds"),
        ("power.real", "holds 'power.real'"),
        ("meals + 1 > 2", "holds 'meals + 1'"),
        ("0 < meals < 3", "holds '0 < meals < 3'"),
        ("meals == 'three'", "holds"),
        ("(lambda: 1)()", "holds"),
        ("[x for x in (1,)]", "holds"),
        ("water or meals >= 1", "mixes names of the town"),
        (" and ".join(["meals >= 1"] * 20), "at most 12"),
        ("not " * 3000 + "water", "cannot be read"),
        ("\0", "cannot be read"),
    ],
)
def test_anything_else_is_refused_in_a_sentence(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint.replace("(", r"\(").replace("+", r"\+")):
        parse(text, tuple(THREE))
