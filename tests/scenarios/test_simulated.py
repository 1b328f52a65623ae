"""What scenarios promise once they run: contention worth seeing, and a linter whose verdict the simulation confirms."""

from __future__ import annotations

from pathlib import Path

import pytest

from linter_agreement import DAMAGES, DAYS, Week, judge, live_a_week, spoilt_town
from scenario_figures import figures_of
from scenario_towns import load, tree
from townlet.config.loader import load_config
from townlet.config.models import config_hash
from townlet.scenarios.lint import lint
from townlet.scenarios.random_town import feasible_town
from townlet.studies.town_checks import sight_verdict


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


def test_a_week_is_lived_when_nobody_leaves_shifts_are_attended_and_needs_are_met() -> None:
    assert Week(residents=4, exits=0, shifts=28, absences=2, lowest=0.5).lives
    assert not Week(residents=4, exits=1, shifts=28, absences=0, lowest=0.5).lives
    assert not Week(residents=4, exits=0, shifts=28, absences=3, lowest=0.5).lives
    assert not Week(residents=4, exits=0, shifts=28, absences=0, lowest=0.1).lives


SPOILT = (
    "nowhere to eat",
    "a building shut",
    "stoves without stock",
    "stoves of a new kind",
    "no wages",
    "shifts of sixteen hours",
)


@pytest.mark.parametrize("damage", [None, *SPOILT])
def test_the_linter_agrees_with_a_simulated_week(damage: str | None) -> None:
    """One town that can live, whole and spoilt; the benchmark has two hundred."""
    if damage is None:
        whole = feasible_town(1001)
        assert lint(whole, days=DAYS).ok
        assert live_a_week(whole).lives
    else:
        judged = judge(1001, damage)
        assert judged.failed
        assert not judged.lives


def test_every_damage_makes_another_town(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DAMAGES, "nothing", lambda tree, draw: None)
    assert len({config_hash(spoilt_town(1001, damage)) for damage in DAMAGES}) == len(DAMAGES)


@pytest.mark.slow
def test_the_linter_agrees_with_a_hundred_simulated_weeks() -> None:
    judged = [judge(seed) for seed in range(50)] + [judge(1000 + n % 3, name) for n, name in enumerate([*DAMAGES] * 3)]
    assert sum(one.agrees for one in judged) >= 0.94 * len(judged)


@pytest.mark.slow
def test_town_day_lives_for_a_week() -> None:
    week = live_a_week(load_config("town_day"), towns=8)
    assert week.exits == 0
    assert week.attendance >= 0.9
