"""Both ends of the scale: a plan is never worse than its base, nobody exceeds the bound, a score says where between."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from townlet.config.loader import load_config
from townlet.dto.evaluation import PolicyCard
from townlet.envs.vector import VectorTown
from townlet.errors import DamagedFileError
from townlet.evaluation.score_scale import load_scales, save_scales, shipped_scales, town_hash
from townlet.evaluation.scorecard import evaluate, run_case
from townlet.evaluation.suites import Case, draw_seed
from townlet.evaluation.table import scorecard_text
from townlet.files import read_json
from townlet.policy.capture import CaptureOptions, capture
from townlet.policy.replay import ReplayDataset, ReplayDatasetConfig
from townlet.scenarios.shipped import ordered_names
from townlet.studies.bound import _least_lack, bound
from townlet.studies.planner import BASE, CasePlan, Effort, plan_case
from townlet.studies.runner import parse_results
from townlet.studies.spec import job_of, load_spec
from townlet.testing import tiny_town

PLANNED = Path("benchmarks/ends/results.json")
STUDIES = Path("benchmarks/learning")
SMALL = Effort(generations=3, copies=8, window=18, ahead=12)
TINY = tiny_town("policy.decision_interval=10", residents=3, scenario={"episode_ticks": 720})
CASE = Case("tiny", "tiny", towns=2, days=None, config=TINY)


@pytest.fixture(scope="module")
def planned() -> CasePlan:
    return plan_case(CASE, "scripted", effort=SMALL)


def test_a_plan_is_never_worse_than_its_base_and_found_again(planned: CasePlan) -> None:
    assert all(one.value >= one.base for one in planned.plans)
    assert all((one.plan >= BASE).all() for one in planned.plans)  # nothing is left to be drawn
    assert planned.ends.planner > planned.ends.base  # and here it is better
    again = plan_case(CASE, "scripted", effort=SMALL)
    for one, two in zip(planned.plans, again.plans):
        np.testing.assert_array_equal(one.plan, two.plan)


def test_a_planned_policy_earns_what_the_plan_says(planned: CasePlan) -> None:
    vec = VectorTown(CASE.town(), CASE.towns, seed=draw_seed("evaluation", 0))
    lived = run_case(vec, "planned", planned.policy, CASE).measures["return"].values
    assert lived == pytest.approx([one.value for one in planned.plans])
    base = run_case(vec, "scripted", "scripted", CASE).measures["return"].values
    assert base == pytest.approx([one.base for one in planned.plans])


def test_nobody_exceeds_the_bound(planned: CasePlan) -> None:
    highest = bound(CASE.town()).mean
    assert planned.ends.bound == highest
    assert highest > planned.ends.planner > planned.ends.random


def test_a_resident_alone_with_everything_at_hand_comes_near_the_bound() -> None:
    """The program is no wild guess: a rested, fed and washed resident without work loses what needs decay by in an hour."""
    town = tiny_town(residents=[{"id": "alice", "job": None, "needs": {"hunger": 1.0, "hygiene": 1.0, "energy": 1.0}}])
    hour = town.model_copy(update={"scenario": town.scenario.model_copy(update={"episode_ticks": 1440})})
    found = bound(Case("alone", "alone", days=None, config=hour).town()).mean
    assert 0.05 * 1440 - 2.0 < found < 0.05 * 1440 + 48 * 0.06


def test_sampled_futures_are_not_the_towns_own(planned: CasePlan) -> None:
    """Eight copies are two plans in four futures each; the plan is lived in the town itself."""
    blind = plan_case(CASE, "scripted", effort=Effort(generations=3, copies=8, window=18, ahead=12, futures=4))
    assert any((one.plan != two.plan).any() for one, two in zip(blind.plans, planned.plans))
    assert blind.ends.planner <= planned.ends.bound


def test_a_plan_is_written_as_a_capture(planned: CasePlan, tmp_path: Path) -> None:
    options = CaptureOptions(towns=CASE.towns, seed=planned.seed, policy=planned.policy)
    result = capture([CASE.town()], tmp_path / "planned", options)
    assert result.samples == 6
    data = ReplayDataset(ReplayDatasetConfig.from_capture_dir(tmp_path / "planned"))
    earned = sum(float(sample.rewards.sum()) for sample in data.samples())
    assert earned / 6 * 2 == pytest.approx(planned.ends.planner, rel=1e-4)  # half a day
    assert any((one.plan != BASE).any() for one in planned.plans)


def test_a_score_is_where_a_return_lies_between_the_ends(planned: CasePlan, tmp_path: Path) -> None:
    path = tmp_path / "ends.json"
    save_scales(path, [planned.ends])
    save_scales(path, [planned.ends])  # once, not twice
    known = load_scales(path)
    assert list(known.values()) == [planned.ends]
    card = evaluate({"random": "random", "scripted": "scripted"}, [CASE], ends=known).cases[0]
    assert card.ends == planned.ends
    assert card.policy("random").measures["score"].mean == pytest.approx(0.0)
    scored = card.policy("scripted").measures["score"].mean
    assert scored == pytest.approx((planned.ends.base - planned.ends.random) / (planned.ends.planner - planned.ends.random))
    other = tiny_town("policy.decision_interval=10", "rewards.survival=0.06", residents=3, scenario={"episode_ticks": 720})
    case = Case("other", "other", towns=1, days=None, config=other.model_copy(update={"lifecycle": TINY.lifecycle}))
    assert evaluate({"random": "random"}, [case], ends=known).cases[0].ends is not None  # measured with the committed weights
    path.write_text('{"ends": [{}]}')
    with pytest.raises(DamagedFileError, match=r"ends\.json cannot be used \(ends\.0\.scenario: Field required\); make it with"):
        load_scales(path)


def test_lead_is_where_a_return_lies_between_script_and_planner(planned: CasePlan) -> None:
    ends = planned.ends
    assert ends.script == pytest.approx(ends.base)  # the plan began with the script
    assert ends.lead(ends.script) == 0.0
    assert ends.lead(ends.planner) == 1.0
    assert ends.lead(ends.random) < 0.0
    assert ends.lead(None) is None
    assert ends.model_copy(update={"script": None}).lead(50.0) is None  # nobody measured it
    assert ends.model_copy(update={"planner": ends.script}).lead(50.0) is None  # nothing better is known
    card = evaluate({"scripted": "scripted", "random": "random"}, [CASE], ends={ends.town: ends})
    measure = card.cases[0].policy("random").measures["lead"]
    assert measure.mean == pytest.approx(ends.lead(ends.random))
    assert measure.low is not None
    assert "lead 0: script" in scorecard_text(card)


def test_a_card_made_before_a_measure_was_known_can_be_read() -> None:
    card = evaluate({"scripted": "scripted"}, [CASE]).cases[0].policies[0].model_dump()
    del card["measures"]["lead"]
    assert PolicyCard.model_validate(card).measures["lead"].mean is None


@pytest.mark.parametrize("days", [1, 7])
def test_between_uses_a_need_falls_at_least_as_far_as_the_bound_says(days: int) -> None:
    """Uses at any moments, each filling the need: their lack, tick by tick, is never below; at equal distances hardly above."""
    decay, length, ticks, rng = 0.001, 20, 1440 * days, np.random.default_rng(days)
    for uses in (1, 3, 5):
        count = uses * days
        least = _least_lack(float(uses), decay, length, ticks, float(days))[0] * days
        equal = np.linspace(0, ticks, count + 2)[1:-1].astype(int)
        for begins in (equal, *(np.sort(rng.integers(0, ticks, count)) for _ in range(5))):
            level, lack = 1.0, 0.0
            using = np.zeros(ticks, bool)
            for begin in begins:
                using[begin : begin + length] = True
            for tick in range(ticks):
                level = 1.0 if using[tick] else level
                lack += (1.0 - level) ** 2
                level = max(0.0, level - decay)
            assert lack >= least
            if begins is equal:
                assert lack < 1.1 * least
    steeper = _least_lack(2.0, decay, length, ticks, float(days))
    assert _least_lack(2.001, decay, length, ticks, float(days))[0] == pytest.approx(steeper[0] + 0.001 * steeper[1], abs=1e-2)


def test_shipped_ends_are_those_of_the_shipped_towns() -> None:
    """Who changes a town, its rules or the committed weights plans it anew: the command stands beside the figures."""
    for one in shipped_scales().values():
        assert town_hash(Case(one.scenario, one.scenario, days=int(one.days)).town()) == one.town, f"stale: {one.command}"
    for row in read_json(PLANNED)["rows"]:
        if row["town"] in shipped_scales():
            assert shipped_scales()[row["town"]].model_dump(mode="json").items() <= row.items()
    assert {one.scenario for one in shipped_scales().values()} == set(ordered_names()) - {"metropolis"}  # which is sampled


def test_in_every_planned_town_the_plan_is_no_worse_than_its_base_and_below_the_bound() -> None:
    rows = read_json(PLANNED)["rows"]
    assert sum(row["scenario"].startswith("drawn_") for row in rows) == 20
    for row in rows:
        assert max(row["random"], row["script"], row["base"]) <= row["planner"] < row["bound"], row["scenario"]
    for scale in shipped_scales().values():
        assert max(scale.random, scale.script or 0.0, scale.base) <= scale.planner < scale.bound, scale.command


@pytest.mark.parametrize("spec", sorted(STUDIES.glob("*.yaml")), ids=lambda spec: spec.stem)
def test_no_policy_of_a_study_exceeds_the_ends_of_its_town(spec: Path) -> None:
    """The bound holds in every town, the planner on the mean over towns."""
    study = load_spec(spec)
    config = job_of(study, next(iter(study.arms)), 0).config
    if study.scenario is not None:
        config = load_config(study.scenario, study.overrides, recipe=study.recipe)
    scale = shipped_scales().get(town_hash(Case(study.name, study.name, days=study.days, config=config).town()))
    kept = STUDIES / "results" / f"{study.name}.ndjson"
    if scale is None or not kept.exists():
        pytest.skip("a town without ends, or no results yet")
    for result in parse_results(kept):
        returns = result.measures["return"]
        assert max(value for value in returns.values if value is not None) < scale.bound, (study.name, result.arm)
        assert returns.mean is not None
        assert returns.mean < scale.planner, (study.name, result.arm)


def test_the_script_of_a_scale_is_the_script_of_today() -> None:
    """Who tunes a script plans its town anew."""
    for scale in shipped_scales().values():
        if scale.scenario in ("town_day", "two_bathrooms") and scale.days == 1:
            case = Case(scale.scenario, scale.scenario, towns=scale.towns, days=1)
            vec = VectorTown(case.town(), scale.towns, seed=draw_seed("evaluation", 0))
            assert run_case(vec, "scripted", "scripted", case).measures["return"].mean == pytest.approx(scale.script)
