"""Scorecards of a real town: accounting, pairing, seeds, seating, files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from checkpoints import untrained
from places import ROOT
from scorecards import duel
from townlet.config.learning import EvaluationConfig, PromotionConfig, SuiteConfig
from townlet.config.loader import load_config
from townlet.config.town import RewardsConfig
from townlet.dto.evaluation import MEASURES, PolicyCard, Scorecard
from townlet.envs.vector import VectorTown
from townlet.errors import CheckpointError, DamagedFileError, UsageError
from townlet.evaluation.compare import load_scorecard, save_scorecard, summarise
from townlet.evaluation.measures import Tally
from townlet.evaluation.scorecard import PolicySource, evaluate, origin, policy_hash, policy_of_case, run_case
from townlet.evaluation.suites import PURPOSES, WINDOWS, Case, draw_seed, suite_cases
from townlet.evaluation.table import COLUMNS, scorecard_text
from townlet.files import write_sums
from townlet.observer.scoreboard import scorecard_page
from townlet.policy.capture import CaptureOptions, capture
from townlet.policy.checkpoint import Checkpoint, load_checkpoint
from townlet.policy.replay import samples_of
from townlet.policy.runtime import PolicyRuntime, make_policy
from townlet.sim.loop import SimulationLoop
from townlet.world.state import TERMS

TOWN = Case("town_day", "town_day", towns=4, days=1)
DOCS = ROOT / "docs"
SURVIVAL = TERMS.index("survival")


@pytest.fixture(scope="module")
def card() -> Scorecard:
    return evaluate({"random": "random", "scripted": "scripted"}, [TOWN])


def row(card: Scorecard, name: str) -> PolicyCard:
    return card.cases[0].policy(name)


@given(st.integers(0, WINDOWS - 1), st.integers(0, WINDOWS - 1), st.integers(500_000, 2**60))
def test_windows_of_different_purposes_never_meet(one: int, other: int, half: int) -> None:
    """Training is even; validation, evaluation and promotion are odd, each in a range of its own, wherever the first is."""
    rules = EvaluationConfig(first_seed=2 * half + 1)
    seeds = {purpose: {draw_seed(purpose, index, rules) for index in (one, other)} for purpose in PURPOSES}
    assert all(seed % 2 == (purpose != "training") for purpose in PURPOSES for seed in seeds[purpose])
    assert len(set().union(*seeds.values())) == sum(len(found) for found in seeds.values())
    assert draw_seed("evaluation", 0, rules) == rules.first_seed > 10**6


def test_the_ranges_end_where_the_next_begins() -> None:
    last = WINDOWS - 1
    assert draw_seed("validation", last) < draw_seed("evaluation", 0)
    assert draw_seed("evaluation", last) < draw_seed("promotion", 0)
    with pytest.raises(UsageError, match="window 500000 of evaluation does not exist; they are numbered from 0 to 499999"):
        draw_seed("evaluation", WINDOWS)
    with pytest.raises(UsageError, match="not for 'testing'"):
        draw_seed("testing", 0)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="0 or more, not -1"):
        draw_seed("training", -1)


def first_draws(window: int, source: PolicySource) -> NDArray[Any]:
    """What residents of one and the same town choose in the first hour, by the window the policy is seated in."""
    vec = VectorTown("town_day", 2, seed=draw_seed("evaluation", window))
    policy = policy_of_case(vec, source, TOWN)
    vec.reset(seed=1)
    chosen = []
    for _ in range(6):
        decision = policy.act(vec)
        vec.step(decision.actions)
        chosen.append(decision.actions.copy())
    return np.array(chosen)


@pytest.mark.parametrize("source", ["random", {"*": "random"}])
def test_a_policy_draws_from_the_seed_of_its_window(source: PolicySource) -> None:
    assert (first_draws(0, source) == first_draws(0, source)).all()
    assert (first_draws(0, source) != first_draws(1, source)).any()


def test_ticks_lived_are_those_the_survival_term_was_paid_for() -> None:
    """Random residents collapse: an independent count of the ticks lived, from the reward itself."""
    case = replace(TOWN, overrides=("evaluation.rewards.misery_below=0",))  # every tick is paid in full
    vec = VectorTown(case.town(), 4, seed=draw_seed("evaluation", 3))
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


def test_a_scorecard_is_the_sum_of_what_a_capture_of_the_same_towns_tells(tmp_path: Path) -> None:
    """Return, conflicts, attendance and lateness counted once more, from rewards and events in files."""
    case = Case("newcomer", "newcomer", towns=2, days=2)
    measured = evaluate({"random": "random"}, [case]).cases[0].policy("random").measures
    town = case.town()
    options = CaptureOptions(ticks=2880, towns=2, seed=draw_seed("evaluation", 0), policy="random", epsilon=0.0)
    capture([town], tmp_path / "c", options)
    lives = [sample for sample in samples_of(tmp_path / "c") if not sample.meta.agent_id.startswith("newcomer")]
    told = [json.loads(line) for line in (tmp_path / "c/events.ndjson").read_text(encoding="utf-8").splitlines()]
    founders = {resident.id: town.jobs[resident.job].start for resident in town.scenario.residents if resident.job}
    assert len(founders) == 8
    rows: dict[str, list[float]] = {"return": [], "conflicts": [], "attendance": [], "lateness": []}
    for k in range(2):
        here = [event for event in told if event["town"] == k]
        left = {event["actor"]: event["tick"] + 1 for event in here if event["type"] == "exit"}
        lived = sum(left.get(name, 2880) for name in founders) / 1440
        conflicts = [event for event in here if event["type"] == "queue_conflict"]
        rows["return"].append(sum(float(life.rewards.sum()) for life in lives if life.meta.capture.town == k) / 16)
        rows["conflicts"].append(sum(bool({event["actor"], event["rival"]} & founders.keys()) for event in conflicts) / lived)
        shifts = [
            {event["type"] for event in here if event["actor"] == name and begin - 60 <= event["tick"] < begin + 1380}
            for name, start in founders.items()
            for begin in (start - town.scenario.start, start - town.scenario.start + 1440)
        ]
        came = [bool(seen & {"shift_on_time", "shift_late"}) and "shift_absent" not in seen for seen in shifts]
        rows["attendance"].append(sum(came) / 16)  # who has left misses the shifts that follow
        rows["lateness"].append(sum("shift_late" in seen for seen in shifts) / 16)  # they are no late ones
    assert any(event["type"] == "exit" for event in told)
    for name, values in rows.items():
        assert measured[name].mean == pytest.approx(np.mean(values), rel=1e-6), name


def test_a_card_is_refused_where_events_were_lost() -> None:
    """With one row for events, residents who never work lost a quarter of their founders in a month, and not all of them."""
    cramped = Case("cramped", "queue_conflict", towns=1, days=1, overrides=("world.event_capacity=1",))
    with pytest.raises(UsageError, match=r"events of queue_conflict did not fit into world.event_capacity=1, so nothing can be"):
        evaluate({"scripted": "scripted"}, [cramped])


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
    alone = evaluate({"scripted": "scripted"}, [TOWN])
    assert row(alone, "scripted").measures == row(card, "scripted").measures
    other = evaluate({"scripted": "scripted"}, [TOWN], window=1)
    assert other.cases[0].seed == card.cases[0].seed + 2
    assert row(other, "scripted").measures["return"].values != row(card, "scripted").measures["return"].values


def test_towns_do_not_depend_on_how_many_there_are(card: Scorecard) -> None:
    fewer = evaluate({"random": "random"}, [replace(TOWN, towns=2)])
    assert row(fewer, "random").measures["return"].values == row(card, "random").measures["return"].values[:2]


def test_returns_are_measured_with_the_committed_weights() -> None:
    """Whatever a config rewards, its card is that of evaluation.rewards."""
    config = load_config("town_day", ["rewards.survival=0.5", "rewards.conflict_weight=9"])
    changed = evaluate({"random": "random"}, [Case("own", "own", towns=2, days=1, config=config)])
    plain = evaluate({"random": "random"}, [replace(TOWN, towns=2)])
    assert row(changed, "random").measures["return"] == row(plain, "random").measures["return"]
    assert changed.rewards_hash == plain.rewards_hash


def test_a_lone_resident_among_scripted_ones_is_measured_alone() -> None:
    case = replace(TOWN, towns=2, learners="first", neighbours="scripted")
    lone = evaluate({"random": "random", "scripted": "scripted"}, [case])
    assert row(lone, "random").decisions < 2 * 144 + 1
    assert row(lone, "random").kind == "random+scripted"
    assert row(lone, "random").effects["return"].difference < 0


def test_neighbours_are_measured_beside_the_learners() -> None:
    """Every other resident follows the policy; with the same policy in all seats the two halves make up the whole town."""
    half = replace(TOWN, towns=2, learners="half", neighbours="scripted")
    card = row(evaluate({"random": "random", "scripted": "scripted"}, [half]), "scripted")
    whole = row(evaluate({"scripted": "scripted"}, [replace(TOWN, towns=2)]), "scripted")
    assert card.neighbours is not None
    assert whole.neighbours is None
    for name in ("return", "self_sufficiency", "attendance", "wallet"):  # means over as many residents each
        halves = np.array([card.measures[name].values, card.neighbours[name].values], float)
        np.testing.assert_allclose(halves.mean(axis=0), np.array(whole.measures[name].values, float))
    lone = row(evaluate({"random": "random"}, [half]), "random")
    assert lone.neighbours is not None
    assert lone.neighbours["return"].mean > lone.measures["return"].mean + 10


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
    with pytest.raises(UsageError, match=rf"nobody decides for the residents other than {second}"):
        PolicyRuntime(vec, {second: random})


def test_a_source_may_be_a_function_or_a_mix() -> None:
    vec = VectorTown(TOWN.town(), 2, seed=draw_seed("evaluation", 0))
    made = run_case(vec, "made", lambda town: make_policy("scripted", town), replace(TOWN, towns=2))
    mixed = run_case(vec, "mixed", {"*": "scripted"}, replace(TOWN, towns=2))
    assert made.measures == mixed.measures
    assert (made.source, mixed.source) == ("in memory", "*=scripted")


def test_suites_come_from_the_config() -> None:
    names = [case.name for case in suite_cases("standard")]
    assert names == list(EvaluationConfig().suites["standard"].scenarios)
    own = EvaluationConfig(suites={"mine": SuiteConfig(scenarios=("town_day",), neighbours="scripted", seeds=3)})
    cases = suite_cases("mine", own, release="random")
    assert [case.name for case in cases] == ["town_day", "town_day/alone among scripted", "town_day/alone among the release"]
    assert {case.towns for case in cases} == {3}
    with pytest.raises(UsageError, match="no suite 'none'; choose from standard"):
        suite_cases("none")


def test_a_checkpoint_is_read_once_for_what_a_card_says_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = untrained(tmp_path / "net", VectorTown("town_day", 1), dataset_hash="0123456789abcdef")
    read: list[str] = []

    def counted(folder: str, **options: bool) -> Checkpoint:
        read.append(folder)
        return load_checkpoint(folder, **options)

    monkeypatch.setattr("townlet.evaluation.scorecard.load_checkpoint", counted)
    found = origin(str(folder))
    assert (found["source"], found["dataset_hash"], read) == (str(folder), "0123456789abcdef", [str(folder)])
    assert found["policy_hash"] == policy_hash(str(folder))
    assert origin({"*": "scripted"})["dataset_hash"] is None


def test_a_policy_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no checkpoint; name the folder of a run"):
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
    with pytest.raises(DamagedFileError, match=r"card\.json cannot be used .*expected a scorecard of version 2"):
        load_scorecard(path)
    with pytest.raises(DamagedFileError):
        load_scorecard(tmp_path / "nowhere.json")


def test_the_table_begins_with_exits_and_names_the_baseline(card: Scorecard) -> None:
    text = scorecard_text(card)
    rows = [line.split()[0] for line in text.splitlines()[4:] if line.strip()]
    assert rows[:5] == ["exits", "founders", "score", "lead", "return"]
    assert {MEASURES[name].label.split()[0] for name in COLUMNS} <= set(rows)
    assert "the difference to scripted" in text
    assert max(map(len, text.splitlines())) <= 118
    assert "…" in text
    assert "… " not in text, "an interval was cut"
    # the default gates hold on every column, but for five: score and lead say what return says, exits what founders do; who
    # saves less may live better; where all wait little, little makes some wait much more than others
    assert set(COLUMNS) - {"score", "lead", "exits", "wallet", "wait_gini"} == {gate.metric for gate in PromotionConfig().gates}


def judged(*overrides: str, **options: Any) -> Scorecard:
    words = [f"evaluation.{word}" for word in overrides]
    case = Case("own", "own", towns=3, days=1, config=load_config("town_day", words))
    return evaluate({"random": "random", "scripted": "scripted"}, [case], **options)


@pytest.fixture(scope="module")
def plain() -> Scorecard:
    return judged()


def test_the_first_seed_of_the_config_is_that_of_the_card(plain: Scorecard) -> None:
    moved = judged("first_seed=3000001")
    assert (plain.cases[0].seed, moved.cases[0].seed) == (1_000_001, 3_000_001)
    assert row(moved, "random").measures["return"].values != row(plain, "random").measures["return"].values


def test_effects_are_measured_against_the_baseline_of_the_config(plain: Scorecard) -> None:
    turned = judged("baseline=random")
    assert (plain.baseline, turned.baseline) == ("scripted", "random")
    there, back = row(plain, "random").effects["return"], row(turned, "scripted").effects["return"]
    assert there.difference == pytest.approx(-back.difference)
    assert judged("baseline=random", baseline="scripted").baseline == "scripted"


def test_the_level_of_the_config_is_that_of_measures_and_effects(plain: Scorecard) -> None:
    wide = judged("level=0.99")
    for measures in ("measures", "effects"):
        usual, wider = (row(card, "random").model_dump()[measures]["return"] for card in (plain, wide))
        assert wider["low"] < usual["low"] < usual["high"] < wider["high"]
    assert "95 % interval" in scorecard_text(plain)
    assert "99 % interval" in scorecard_text(wide)


def test_the_line_of_self_sufficiency_is_that_of_the_config(plain: Scorecard) -> None:
    everybody, nobody = judged("self_sufficient_above=0"), judged("self_sufficient_above=1")
    means = [row(card, "scripted").measures["self_sufficiency"].mean or 0.0 for card in (nobody, plain, everybody)]
    assert means == sorted(means)
    assert (means[0], means[2]) == (0.0, 1.0)
    assert nobody.self_sufficient_above == 1.0


def test_resamples_of_the_config_are_those_of_an_interval_of_ten_towns_or_more() -> None:
    values = [float(value) for value in np.random.default_rng(0).gamma(2.0, size=12)]
    few, many = (summarise(values, EvaluationConfig(resamples=number)) for number in (10, 2000))
    assert (few.low, few.high) != (many.low, many.high)
    assert few.mean == many.mean


def test_a_section_given_to_evaluate_holds_for_every_town_of_the_card() -> None:
    rules = EvaluationConfig(first_seed=5_000_001, level=0.8, rewards=RewardsConfig(conflict_weight=7.0))
    card = evaluate(
        {"random": "random"}, [replace(TOWN, towns=2), Case("rush_hour", "rush_hour", towns=2, days=1)], evaluation=rules
    )
    assert {case.seed for case in card.cases} == {5_000_001}
    assert card.level == 0.8
    assert card.notes == (
        "Scorecards use other weights than environments and training: conflict_weight 7 instead of 3 (evaluation.rewards).",
    )


def test_one_town_has_a_mean_and_no_interval() -> None:
    lone = evaluate({"random": "random", "scripted": "scripted"}, [replace(TOWN, towns=1)])
    measure, effect = row(lone, "random").measures["return"], row(lone, "random").effects["return"]
    assert (measure.count, measure.low, measure.high) == (1, None, None)
    assert (effect.pairs, effect.low, effect.sign) == (1, None, 0)
    assert "one value" in scorecard_text(lone)


def test_the_line_above_a_narrow_table_is_not_broken() -> None:
    card = evaluate({"random": "random"}, [replace(TOWN, towns=1)])
    case = card.cases[0]
    assert case.size.startswith("1 town × ")
    assert scorecard_text(card).splitlines()[0] == f"{case.name}: {case.size}"


def test_the_card_and_the_guides_say_that_environments_pay_what_scorecards_do_not_count(plain: Scorecard) -> None:
    config = load_config("town_day")
    sentence = config.weights_apart()
    assert (
        sentence
        == "Scorecards use other weights than environments and training: conflict_weight 1 instead of 3 (evaluation.rewards)."
    )
    assert plain.notes == (sentence,)
    assert sentence in scorecard_text(plain)
    assert sentence in scorecard_page(plain)
    for guide in ("evaluation", "environments"):
        assert sentence in (DOCS / f"{guide}.md").read_text(), guide
    assert load_config("town_day", ["rewards.conflict_weight=1"]).weights_apart() == ""
    other = load_config("town_day", ["rewards.conflict_weight=1", "rewards.survival=0.1", "needs.hygiene.weight=0.5"])
    assert "survival 0.05 instead of 0.1, the weight of hygiene 0.6 instead of 0.5 " in other.weights_apart()


def test_a_low_terminal_names_the_policies_again_below_the_figures(card: Scorecard) -> None:
    names = [policy.name for policy in card.cases[0].policies]
    headings = [line.split() for line in scorecard_text(card, height=24).splitlines()].count(names)
    assert headings == 2 * len(card.cases)
    assert [line.split() for line in scorecard_text(card).splitlines()].count(names) == len(card.cases)
