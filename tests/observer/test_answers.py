"""Answers to what people ask of a day, against what the town itself says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from townlet.cli.ask import ask
from townlet.config import load_config
from townlet.errors import UsageError
from townlet.observer.answers import differs, feuds, late, tick_in, why_never, why_not, worst
from townlet.observer.story import events, moments
from townlet.observer.studio import KnownTake, Studio
from townlet.observer.witness import ties, witness


@pytest.fixture(scope="module")
def rush() -> tuple[Studio, KnownTake]:
    studio = Studio()
    return studio, studio.new_take(load_config("rush_hour"), seed=7)


def test_clock_times_are_ticks(rush: tuple[Studio, KnownTake]) -> None:
    header = rush[1].header
    assert tick_in(header, "06:00") == (360 - header["start_minute"]) % 1440
    assert tick_in(header, "25") == 25
    for wrong in ("", "noon", "25:00", "06:61", "-1", "99999999", "7:0"):
        with pytest.raises(UsageError):
            tick_in(header, wrong)


def test_feuds_are_the_worst_ties_with_the_conflicts_that_made_them(rush: tuple[Studio, KnownTake]) -> None:
    studio, known = rush
    found = feuds(studio, known.take.id, 90)
    rivalries = sorted((tie["rivalry"] for tie in ties(studio.stage(known.take.id), 90)["ties"]), reverse=True)
    assert [one["rivalry"] for one in found] == [value for value in rivalries if value > 0][:20]
    assert any(one["tick"] is not None for one in found)
    for one in found:
        assert (one["since"] is None) == (one["conflicts"] == 0)
        assert one["conflicts"] == 0 or (one["who"] in one["last"] and one["whom"] in one["last"])


def test_the_worst_conflict_is_the_strongest_moment(rush: tuple[Studio, KnownTake]) -> None:
    studio, known = rush
    found = worst(studio, known.take.id)
    assert found is not None
    told = [one for one in moments(studio, known.take.id) if one["kind"] in ("queue_conflict", "quarrel")]
    assert found["strength"] == max(one["strength"] for one in told)


def test_why_not_names_the_chance_or_the_reason(rush: tuple[Studio, KnownTake]) -> None:
    studio, known = rush
    stage, who = studio.stage(known.take.id), known.header["people"][0]["id"]
    for tick in (0, 30, 60):
        row = witness(stage, tick, 0)
        for option in ("work", "use_shower"):
            found = why_not(studio, known.take.id, who, option, tick)
            assert found["did"] == row["chosen"]
            assert who in found["text"]
            for name, reason in found["reasons"].items():
                assert {"reason": reason, "options": [name]} in row["masked"] or any(
                    name in group["options"] and group["reason"] == reason for group in row["masked"]
                )
                assert reason in found["text"] or found["did"].startswith(option)
    whole = why_never(studio, known.take.id, who, "use_shower")
    assert whole["decisions"] == whole["chosen"] + whole["chose_something_else"] + sum(whole["masked"].values())
    with pytest.raises(UsageError, match="there is no option 'fly'"):
        why_not(studio, known.take.id, who, "fly", 0)
    with pytest.raises(UsageError, match="there is no resident 'nobody'"):
        why_not(studio, known.take.id, "nobody", "work", 0)


def test_late_counts_every_late_or_absent_shift_once() -> None:
    studio = Studio()
    known = studio.new_take(load_config("employment_punctuality"), seed=2, policy="random")
    found = late(studio, known.take.id)
    kinds = [known.header["events"].index(kind) for kind in ("shift_late", "shift_absent")]
    shifts = {row["actor"] for row in events(studio, known.take.id) if row["kind"] in kinds}  # one a day, and this is one day
    assert len(found["late"]) == len(shifts) > 0
    assert max(found["by_resident"].values()) == 1
    assert sum(found["by_resident"].values()) == sum(found["by_hour"].values()) == len(found["late"])
    assert all(0 < sum(row["spent"].values()) <= 90 for row in found["late"])


def test_two_policies_differ_where_their_columns_do(rush: tuple[Studio, KnownTake]) -> None:
    studio, known = rush
    other = studio.branch(known.take.id, [], policy="random")
    assert differs(studio, known.take.id, known.take.id, 60) == []
    assert differs(studio, known.take.id, other.take.id, 60)


@pytest.mark.parametrize(
    "words",
    [
        ["feuds", "rush_hour", "--at", "07:00"],
        ["worst", "rush_hour"],
        ["why", "rush_hour", "bob", "use_shower", "--at", "06:30"],
        ["late", "rush_hour"],
        ["differs", "rush_hour", "scripted", "random", "--at", "06:30"],
    ],
)
def test_the_commands_answer_in_words_and_in_json(words: list[str]) -> None:
    plain = CliRunner().invoke(ask, words)
    assert plain.exit_code == 0, plain.exception
    assert plain.stdout.strip()
    told: Any = json.loads(CliRunner().invoke(ask, [*words, "--json"]).stdout)
    assert told
