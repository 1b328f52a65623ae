"""What scenarios promise once they run: contention worth seeing, and a linter whose verdict the simulation confirms."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenario_towns import load, tree
from townlet.config.loader import load_config
from townlet.scenarios.invent import drawn_town
from townlet.scenarios.lint import lint
from townlet.studies.figures import figures_of
from townlet.studies.sight import sight_verdict
from townlet.studies.week import DAYS, Week, live_a_week


@pytest.mark.parametrize("name", ["town_day", "two_bathrooms", "rush_hour"])
def test_a_town_is_contested_but_lives(name: str) -> None:
    found = figures_of(load_config(name), days=64)
    assert found.conflicts >= 1.0
    assert 0.05 <= found.rivalry <= 0.60
    assert found.quarrels >= 0.10
    assert found.scripted - found.random >= 15.0


@pytest.mark.parametrize("name", ["two_bathrooms", "rush_hour"])
def test_who_sees_it_coming_does_better(name: str) -> None:
    verdict = sight_verdict(load_config(name), days=8)
    assert verdict.ok, verdict.found


def test_sight_is_worth_little_where_nobody_is_in_the_way(tmp_path: Path) -> None:
    """A resident alone meets nobody: the calm object is the near one, the difference is nought and a bar of 1.0 is missed."""
    town = tree()
    town["scenario"].update(sight_bar=1.0, residents=town["scenario"]["residents"][:1])
    verdict = sight_verdict(load(tmp_path, town), days=4)
    assert not verdict.ok
    assert "+0.00 per resident-day" in verdict.found
    assert "expected at least +1.00" in verdict.remedy


def test_without_a_bar_sight_only_must_do_no_harm(tmp_path: Path) -> None:
    assert sight_verdict(load(tmp_path, tree()), days=4).ok


def test_a_week_is_lived_when_nobody_leaves_and_shifts_are_attended() -> None:
    assert Week(residents=4, exits=0, shifts=28, absences=2).lives
    assert not Week(residents=4, exits=1, shifts=28, absences=0).lives
    assert not Week(residents=4, exits=0, shifts=28, absences=3).lives


def test_the_linter_agrees_with_seven_simulated_days() -> None:
    """Six drawn towns, of which the linter refuses two; the benchmark has all fifty."""
    seeds = (4, 11, 16, 20, 24, 26)
    assert [lint(drawn_town(seed), days=DAYS).ok for seed in seeds] == [live_a_week(drawn_town(seed)).lives for seed in seeds]


@pytest.mark.slow
def test_the_linter_agrees_with_fifty_simulated_weeks() -> None:
    agreed = sum(lint(drawn_town(seed), days=DAYS).ok == live_a_week(drawn_town(seed)).lives for seed in range(50))
    assert agreed >= 48


@pytest.mark.slow
def test_town_day_lives_for_a_week() -> None:
    week = live_a_week(load_config("town_day"), towns=8)
    assert week.exits == 0
    assert week.attendance >= 0.9
