"""Gates and decisions on scorecards made by hand, and 200 drills."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pytest

from scorecards import duel, policy_card, scorecard, town_days
from townlet.config.learning import GateConfig, PromotionConfig
from townlet.config.loader import load_config
from townlet.dto.evaluation import Scorecard
from townlet.dto.promotion import Outcome, PromotionDecision
from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.evaluation.scorecard import evaluate
from townlet.evaluation.suites import Case
from townlet.policy.characters import Character
from townlet.policy.runtime import Decision, ScriptedPolicy
from townlet.promotion.gates import decide, gates_hash, judge
from townlet.testing import CHARACTERS, MUST_FAIL, CharacterPolicy
from townlet.world.actions import WAIT

GATES = PromotionConfig().gates
BETTER = {"return": 4.0}
WORSE = {"return": -5.5}  # 10 % of 55


def decided(card: Scorecard, passes: int = 0) -> PromotionDecision:
    return decide(card, GATES, candidate="candidate", champion="champion", passes=passes, required=2)


def verdict(rule: str, metric: str, bound: float, shift: Mapping[str, float]) -> str:
    return judge(GateConfig(metric=metric, rule=rule, bound=bound), duel(0, shift), "candidate", "champion").verdict


def test_a_better_candidate_is_promoted_at_the_second_window_passed_in_a_row() -> None:
    first = decided(duel(1, BETTER))
    assert (first.outcome, first.window, first.passes) == (Outcome.HOLD, "pass", 1)
    assert first.reasons == ("1 of 2 windows in a row passed every gate",)
    second = decided(duel(2, BETTER), passes=first.passes)
    assert (second.outcome, second.passes) == (Outcome.PROMOTE, 2)
    assert [outcome.exit_code for outcome in (Outcome.PROMOTE, Outcome.HOLD, Outcome.FAIL)] == [0, 1, 2]


def test_an_equal_candidate_is_held_and_a_worse_one_fails_with_the_reason() -> None:
    equal = decided(duel(7))
    assert equal.outcome is Outcome.HOLD
    assert "return may not be better: difference" in equal.reasons[0]
    worse = decided(duel(3, WORSE), passes=1)
    assert (worse.outcome, worse.passes) == (Outcome.FAIL, 0)
    assert worse.reasons[0].startswith("return is worse than the champion's: difference -")


def test_a_better_return_does_not_buy_more_conflicts() -> None:
    assert decided(duel(4, {"return": 4.0, "conflicts": 2.0})).outcome is Outcome.FAIL


@pytest.mark.parametrize("days", [1, 7, 28])
def test_a_candidate_that_loses_a_founder_in_ten_fails_over_any_number_of_days(days: int) -> None:
    """And no gate says that it is as good at keeping people: exits per day would, over a month."""
    decision = decided(duel(5, {"return": 4.0, "founders": -0.1, "exits": 0.1 / days}))
    told = {gate.metric: gate.verdict for gate in decision.gates if gate.metric in ("founders", "exits")}
    assert (decision.outcome, told) == (Outcome.FAIL, {"founders": "fail"})


def three_towns(seed: int, *shifts: Mapping[str, float]) -> Scorecard:
    """A duel in three towns, the candidate's shift in each."""
    parts = [duel(seed + number, shift, towns=16) for number, shift in enumerate(shifts)]
    cases = tuple(
        part.cases[0].model_copy(update={"name": name, "scenario": name})
        for name, part in zip(("town_day", "rush_hour", "two_bathrooms"), parts, strict=True)
    )
    return parts[0].model_copy(update={"cases": cases})


@pytest.mark.parametrize("sacrificed", [{"founders": -0.1}, {"return": -3.0}, {"attendance": -0.1}, {"lateness": 0.05}])
def test_what_is_won_in_two_towns_does_not_buy_what_is_lost_in_the_third(sacrificed: dict[str, float]) -> None:
    """Over all towns every one of these losses stays within its margin."""
    card = three_towns(10, {"return": 6.0}, {"return": 6.0} | sacrificed, {"return": 6.0})
    (metric,) = sacrificed
    decision = decided(card, passes=1)
    assert decision.outcome is Outcome.FAIL
    assert [gate.metric for gate in decision.gates if gate.verdict == "fail"] == [metric]
    assert decision.reasons[0].startswith(f"in rush_hour, {metric} is worse")


def test_a_town_that_alone_proves_nothing_does_not_fail_the_others() -> None:
    assert decided(three_towns(10, {"return": 6.0}, {"return": 0.0}, {"return": 6.0})).window == "pass"


SPENDS = "dines out"  # works and comes on time; on the fifth day the first of them cannot pay


@pytest.fixture(scope="module")
def lived() -> Scorecard:
    """Four days of ways of life that nobody would release, and of one that looks well but for its falling savings."""
    names = [*MUST_FAIL, "shirker", SPENDS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CHARACTERS, SPENDS, Character(behavior=None, treats_from=17))
        ways = {name: partial(lambda vec, name: CharacterPolicy(name), name=name) for name in names}
        return evaluate({"scripted": "scripted"} | ways, [Case("four days", "town_day", towns=6, days=4)])


@pytest.mark.parametrize("name", [*MUST_FAIL, "shirker", SPENDS])
def test_who_spends_shirks_or_comes_late_fails(lived: Scorecard, name: str) -> None:
    assert decide(lived, GATES, candidate=name, champion="scripted", passes=1, required=2).outcome is Outcome.FAIL


class NewcomersIdle(ScriptedPolicy):
    """The script for founders; whoever came later waits, and starves."""

    def act(self, vec: VectorTown) -> Decision:
        decided = super().act(vec)
        return decided._replace(actions=np.where(vec.state.residents["life"] > 0, WAIT, decided.actions))


def test_newcomers_who_starve_are_seen_by_a_gate_of_their_own_alone() -> None:
    """As the guide says (docs/evaluation.md): founders are none the worse for it."""
    ways = {"candidate": lambda vec: NewcomersIdle(), "champion": "scripted"}
    card = evaluate(ways, [Case("newcomer", "newcomer", towns=6, days=3)])
    assert not [gate.metric for gate in GATES if judge(gate, card, "candidate", "champion").verdict == "fail"]
    theirs = GateConfig(metric="newcomer_return", rule="not_worse", bound=2.0)
    assert judge(theirs, card, "candidate", "champion").verdict == "fail"


def test_falling_savings_are_seen_before_anybody_has_left(lived: Scorecard) -> None:
    """Not even by the mean of the wallets, which is above the first one: a few spend what the others put by."""
    assert all(share == 1.0 for share in lived.values("founders", SPENDS))
    assert np.mean(lived.values("wallet", SPENDS)) > load_config("town_day").economy.first_wallet
    failed = [gate.metric for gate in GATES if judge(gate, lived, SPENDS, "scripted").verdict == "fail"]
    assert failed == ["return", "overspent"]


def test_whoever_saves_less_and_ends_no_poorer_is_not_held_back() -> None:
    assert decided(duel(1, BETTER | {"wallet": -2.0})).window == "pass"
    assert decided(duel(1, BETTER | {"overspent": 0.3})).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("rule", "metric", "bound", "shift", "expected"),
    [
        ("better", "conflicts", 0.0, {"conflicts": -1.0}, "pass"),  # fewer conflicts are better
        ("better", "conflicts", 0.0, {"conflicts": 1.0}, "fail"),
        ("not_worse", "return", 3.0, {}, "pass"),
        ("not_worse", "return", 0.1, {}, "hold"),
        ("not_worse", "return", 1.0, {"return": -6.0}, "fail"),
        ("at_least", "self_sufficiency", 0.9, {}, "pass"),
        ("at_least", "self_sufficiency", 0.95, {}, "hold"),
        ("at_least", "self_sufficiency", 0.99, {}, "fail"),
        ("at_most", "conflicts", 3.5, {}, "pass"),
        ("at_most", "conflicts", 2.0, {}, "fail"),
        ("drift", "wait_mean", 0.2, {}, "pass"),
        ("drift", "wait_mean", 0.2, {"wait_mean": 6.0}, "hold"),
        ("drift", "action_mix", 0.1, {}, "pass"),
    ],
)
def test_rules(rule: str, metric: str, bound: float, shift: Mapping[str, float], expected: str) -> None:
    assert verdict(rule, metric, bound, shift) == expected


def test_a_changed_action_mix_holds() -> None:
    rows = town_days(0, 8)
    card = scorecard([policy_card("candidate", rows, actions=(10, 20, 70)), policy_card("champion", rows, actions=(70, 20, 10))])
    result = judge(GateConfig(metric="action_mix", rule="drift", bound=0.3), card, "candidate", "champion")
    assert result.verdict == "hold"
    assert result.value == pytest.approx(0.6)


@pytest.mark.parametrize("rule", ["better", "not_worse", "at_least", "at_most"])
def test_a_gate_never_passes_for_lack_of_data(rule: str) -> None:
    nothing = {**town_days(0, 12), "wait_mean": [None] * 10 + [5.0, 5.0]}
    card = scorecard([policy_card("candidate", nothing), policy_card("champion", nothing)])
    result = judge(GateConfig(metric="wait_mean", rule=rule, bound=5.0), card, "candidate", "champion")
    assert result.verdict == "hold"
    assert "has 2 values to judge by, 5 are needed; evaluate more towns or days" in result.reason


def test_where_there_is_nothing_of_the_kind_more_towns_are_no_remedy() -> None:
    """A town without jobs has no attendance, however often it is measured."""
    nothing = {**town_days(0, 12), "attendance": [None] * 12}
    card = scorecard([policy_card("candidate", nothing), policy_card("champion", nothing)])
    result = judge(GateConfig(metric="attendance", rule="not_worse", bound=0.05), card, "candidate", "champion")
    assert (result.verdict, result.pairs) == ("hold", 0)
    assert result.reason.endswith("leave this gate out where there is nothing of the kind, such as no job or no wait")


def test_a_drift_gate_without_a_value_holds() -> None:
    nothing = {**town_days(0, 12), "wait_mean": [None] * 12}
    card = scorecard([policy_card("candidate", nothing), policy_card("champion", nothing)])
    assert judge(GateConfig(metric="wait_mean", rule="drift", bound=5.0), card, "candidate", "champion").verdict == "hold"


def test_an_unknown_measure_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"'returns'; known for the rule better are exits, founders, score, lead, return"):
        verdict("better", "returns", 0.0, {})


def test_the_gates_hash_changes_with_a_bound() -> None:
    moved = (GATES[0], GATES[1].model_copy(update={"bound": 0.06}), *GATES[2:])
    assert gates_hash(GATES, 2) != gates_hash(moved, 2) != gates_hash(moved, 3)


def drills(shift: Mapping[str, float]) -> list[Outcome]:
    """200 candidates, each measured on two windows of 16 towns."""
    outcomes = []
    for number in range(200):
        first = decided(duel(10_000 + 2 * number, shift, towns=16, intervals=False))
        second = decided(duel(10_001 + 2 * number, shift, towns=16, intervals=False), passes=first.passes)
        outcomes.append(second.outcome)
    return outcomes


def test_of_200_equal_candidates_at_most_5_percent_are_promoted() -> None:
    assert drills({}).count(Outcome.PROMOTE) <= 10


def test_of_200_candidates_10_percent_worse_none_is_promoted_and_of_200_better_ones_most_are() -> None:
    assert drills(WORSE).count(Outcome.PROMOTE) == 0
    assert drills({"return": 5.5, "conflicts": -0.5, "self_sufficiency": 0.03, "attendance": 0.03}).count(Outcome.PROMOTE) >= 150


def test_gates_decide_by_the_level_they_are_given() -> None:
    """A small gain: shown at one in two, not at one in a thousand; and another level is another rule."""
    gate, card = GateConfig(metric="return", rule="better"), duel(0, {"return": 1.2})
    verdicts = [judge(gate, card, "candidate", "champion", level).verdict for level in (0.5, 0.999)]
    assert verdicts == ["pass", "hold"]
    assert gates_hash(GATES, 2) == gates_hash(GATES, 2, 0.95) != gates_hash(GATES, 2, 0.9)
