"""The reward means what the town means: ten lives in the order a person would give, in a day as in weeks."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from ends.characters import BEGIN, END, RESULTS, table
from townlet.config.loader import load_config
from townlet.config.models import SimulationConfig
from townlet.evaluation.score_scale import shipped_scales, town_hash
from townlet.evaluation.suites import Case
from townlet.files import read_json
from townlet.studies.town_checks import earnings, pay_verdict
from townlet.testing import CHARACTERS, MUST_FAIL, CharacterPolicy, check_policy


def town(days: int) -> SimulationConfig:
    """As scorecards measure it."""
    return Case("town_day", "town_day", days=days).town()


def in_order(earned: dict[str, float]) -> None:
    for better, worse in pairwise(CHARACTERS):
        assert earned[better] > earned[worse], f"{better} {earned[better]:.2f}, {worse} {earned[worse]:.2f}"


def test_ten_lives_come_out_in_order_on_a_day() -> None:
    assert len(CHARACTERS) == 10
    in_order(earnings(town(1), days=1, towns=4))


def test_who_fails_in_a_duty_earns_less_than_half_in_two_weeks() -> None:
    weeks = earnings(town(14), ("plain", *MUST_FAIL), days=14, towns=1)
    for name in MUST_FAIL:
        assert weeks[name] < 0.5 * weeks["plain"], name


@pytest.mark.slow
def test_over_a_month_who_fails_in_a_duty_scores_below_a_half() -> None:
    earned, ends = earnings(town(28), towns=4), shipped_scales()[town_hash(town(28))]
    in_order(earned)
    scores = {name: ends.score(value) or 0.0 for name, value in earned.items()}
    assert all(scores[name] < 0.5 for name in MUST_FAIL), scores


def test_where_nothing_was_chosen_a_month_ranks_as_a_day_and_no_failing_earns_half() -> None:
    """The committed lives of another window and of two other towns (`benchmarks/ends/characters.py`)."""
    found = read_json(Path("benchmarks/ends/characters.json"))["found"]
    assert {one["town"] for one in found} == {"town_day", "two_bathrooms", "rush_hour", "market_square"}
    for one in found:
        if one["town"] == "town_day":
            in_order(one["returns"])
        if one["days"] == 28:
            kept = {name: one["returns"][name] / one["returns"]["plain"] for name in MUST_FAIL}
            if one["town"] == "market_square":  # two evictions a day are few among 200: the guide says so
                assert 0.6 < kept.pop("always_late") < 0.7
            assert max(kept.values()) < 0.5, one["town"]
    month = next(one["returns"] for one in found if (one["town"], one["days"]) == ("town_day", 28))
    ends = shipped_scales()[town_hash(town(28))]
    assert all((ends.score(month[name]) or 0.0) < 0.5 for name in MUST_FAIL)


def test_the_table_of_the_guide_has_the_scores_of_todays_scale() -> None:
    """Remake it with `python benchmarks/ends/characters.py --table`, after towns were planned anew."""
    shown = Path("docs/evaluation.md").read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert shown.strip() == table(read_json(RESULTS)["found"])


def test_the_linter_says_what_does_not_pay() -> None:
    """Without wages in the reward, never working pays at once."""
    words = [
        "rewards.wage_rate=0",
        "rewards.punctuality=0",
        "rewards.spending=0",
        "employment.notice_absences=7",
        "economy.rent=0",
    ]
    lax = pay_verdict(load_config("town_day", words), days=2)
    assert not lax.ok
    assert "working does not pay in this town: over" in lax.found
    assert lax.remedy.startswith("only 4 of 8 residents can be evicted in that time: raise lifecycle.evictions_per_day, or raise")


def test_characters_are_policies() -> None:
    check_policy(CharacterPolicy("chat_farmer"), "town_day", decisions=30)
