"""Scorecards of a real town: accounting, pairing, seeds, seating, files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorecards import duel
from townlet.config.loader import load_config
from townlet.config.models import EvaluationConfig, SuiteConfig
from townlet.dto.evaluation import MEASURES, PolicyCard, Scorecard
from townlet.envs.vector import VectorTown
from townlet.errors import CheckpointError, DamagedFileError, UsageError
from townlet.evaluation.compare import load_scorecard, save_scorecard
from townlet.evaluation.measures import Tally
from townlet.evaluation.scorecard import evaluate, policy_hash, run_case
from townlet.evaluation.suites import Case, draw_seed, suite_cases
from townlet.evaluation.table import scorecard_text
from townlet.files import write_sums
from townlet.policy.runtime import PolicyRuntime, make_policy
from townlet.sim.loop import SimulationLoop
from townlet.world.state import TERMS

TOWN = Case("town_day", "town_day", towns=4)
SURVIVAL = TERMS.index("survival")


@pytest.fixture(scope="module")
def card() -> Scorecard:
    return evaluate({"random": "random", "scripted": "scripted"}, [TOWN], resamples=200)


def row(card: Scorecard, name: str) -> PolicyCard:
    return card.cases[0].policy(name)


@given(st.integers(0, 10**9))
def test_training_seeds_are_even_and_evaluation_seeds_odd_above_a_million(index: int) -> None:
    assert draw_seed("training", index) % 2 == 0
    assert draw_seed("evaluation", index) % 2 == 1
    assert draw_seed("evaluation", index) > 10**6


def test_seeds_are_drawn_for_two_purposes_only() -> None:
    with pytest.raises(UsageError, match="not for 'testing'"):
        draw_seed("testing", 0)
    with pytest.raises(UsageError, match="0 or more, not -1"):
        draw_seed("training", -1)


def test_ticks_lived_are_those_the_survival_term_was_paid_for() -> None:
    """Random residents collapse: an independent count of the ticks lived, from the reward itself."""
    vec = VectorTown(TOWN.town(), 4, seed=draw_seed("evaluation", 3))
    tally = Tally(vec)
    loop = SimulationLoop(vec, make_policy("random", vec), [tally])
    paid = 0.0
    while tally.open.any():
        founders = vec.state.residents["life"] == 0
        loop.step()
        paid += float(np.where(founders, vec.terms[..., SURVIVAL], 0.0).sum())
    assert tally.counts["exits"].sum() > 0
    assert tally.lived.sum() == pytest.approx(paid / vec.config.rewards.survival)
    assert tally.expected.sum() == 4 * vec.num_residents * 1440


def test_scripted_residents_do_better_than_random_ones(card: Scorecard) -> None:
    effect = row(card, "random").effects["return"]
    assert effect.high < -5.0
    assert effect.pairs == 4
    assert row(card, "scripted").effects == {}
    assert (row(card, "random").measures["exits"].mean or 0) >= (row(card, "scripted").measures["exits"].mean or 0)
    assert set(row(card, "random").measures) == set(MEASURES)
    assert (
        sum(row(card, "random").actions.values()) == row(card, "random").decisions == sum(row(card, "random").rivalry_histogram)
    )


def test_the_same_towns_give_the_same_card_whatever_else_is_evaluated(card: Scorecard) -> None:
    alone = evaluate({"scripted": "scripted"}, [TOWN], resamples=200)
    assert row(alone, "scripted").measures == row(card, "scripted").measures
    other = evaluate({"scripted": "scripted"}, [TOWN], window=1, resamples=200)
    assert other.cases[0].seed == card.cases[0].seed + 2
    assert row(other, "scripted").measures["return"].values != row(card, "scripted").measures["return"].values


def test_towns_do_not_depend_on_how_many_there_are(card: Scorecard) -> None:
    fewer = evaluate({"random": "random"}, [replace(TOWN, towns=2)], resamples=200)
    assert row(fewer, "random").measures["return"].values == row(card, "random").measures["return"].values[:2]


def test_returns_are_measured_with_the_committed_weights() -> None:
    """Whatever a config rewards, its card is that of evaluation.rewards."""
    config = load_config("town_day", ["rewards.survival=0.5", "rewards.conflict_weight=9"])
    changed = evaluate({"random": "random"}, [Case("own", "own", towns=2, config=config)], resamples=50)
    plain = evaluate({"random": "random"}, [replace(TOWN, towns=2)], resamples=50)
    assert row(changed, "random").measures["return"] == row(plain, "random").measures["return"]
    assert changed.rewards_hash == plain.rewards_hash


def test_a_lone_resident_among_scripted_ones_is_measured_alone() -> None:
    case = replace(TOWN, towns=2, learners="first", neighbours="scripted")
    lone = evaluate({"random": "random", "scripted": "scripted"}, [case], resamples=50)
    assert row(lone, "random").decisions < 2 * 144 + 1
    assert row(lone, "random").kind == "random+scripted"
    assert row(lone, "random").effects["return"].difference < 0


def test_a_mix_by_resident_seats_each_policy() -> None:
    vec = VectorTown("town_day", 2, seed=1)
    first, second = vec.resident_id(0, 0), vec.resident_id(0, 1)
    seating = PolicyRuntime(vec, {first: make_policy("random", vec), "*": make_policy("scripted", vec)})
    random, scripted = make_policy("random", vec), make_policy("scripted", vec)
    mixed, a, b = seating.act(vec).actions, random.act(vec).actions, scripted.act(vec).actions
    np.testing.assert_array_equal(mixed[:, 0], a[:, 0])
    np.testing.assert_array_equal(mixed[:, 1:], b[:, 1:])
    with pytest.raises(UsageError, match="no resident is called 'nobody'"):
        PolicyRuntime(vec, {"nobody": random, "*": scripted})
    with pytest.raises(UsageError, match=rf"nobody decides for the residents beside {second}"):
        PolicyRuntime(vec, {second: random})


def test_a_source_may_be_a_function_or_a_mix() -> None:
    vec = VectorTown(TOWN.town(), 2, seed=draw_seed("evaluation", 0))
    made = run_case(vec, "made", lambda town: make_policy("scripted", town), replace(TOWN, towns=2), resamples=10)
    mixed = run_case(vec, "mixed", {"*": "scripted"}, replace(TOWN, towns=2), resamples=10)
    assert made.measures == mixed.measures
    assert (made.source, mixed.source) == ("in memory", "*=scripted")


def test_suites_come_from_the_config() -> None:
    names = [case.name for case in suite_cases("standard")]
    assert names == list(EvaluationConfig().suites["standard"].scenarios)
    own = EvaluationConfig(suites={"mine": SuiteConfig(scenarios=("town_day",), neighbours="scripted", seeds=3)})
    cases = suite_cases("mine", own, release="random")
    assert [case.name for case in cases] == ["town_day", "town_day/alone among scripted", "town_day/alone among the release"]
    assert {case.towns for case in cases} == {3}
    with pytest.raises(UsageError, match="no suite 'none'; known are standard"):
        suite_cases("none")


def test_a_policy_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no checkpoint; name a checkpoint folder"):
        policy_hash(str(tmp_path))
    (tmp_path / "sample.npz").touch()
    write_sums(tmp_path)  # as a capture has
    with pytest.raises(CheckpointError, match=r"does not list weights\.safetensors"):
        policy_hash(str(tmp_path))
    with pytest.raises(UsageError, match="no policy to evaluate"):
        evaluate({}, [TOWN])


def test_a_scorecard_survives_its_file_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    save_scorecard(duel(0), path)
    assert load_scorecard(path) == duel(0)
    path.write_text('{"suite": 3}')
    with pytest.raises(DamagedFileError, match=r"card\.json is not a scorecard of version 1"):
        load_scorecard(path)
    with pytest.raises(DamagedFileError):
        load_scorecard(tmp_path / "nowhere.json")


def test_the_table_begins_with_exits_and_names_the_baseline(card: Scorecard) -> None:
    text = scorecard_text(card)
    head = next(line for line in text.splitlines() if "policy" in line)
    assert head.split()[:3] == ["policy", "exits", "return"]
    assert "the difference to scripted" in text
    assert max(map(len, text.splitlines())) <= 118
    assert "…" in text
    assert "… " not in text, "an interval was cut"
