"""Rewards: what a tick is worth, the breakdown, the bound, and that living and working pay."""

from __future__ import annotations

import numpy as np
import pytest

from townlet.config.loader import load_config, shipped_configs
from townlet.envs.vector import VectorTown
from townlet.policy.runtime import make_policy
from townlet.testing import tiny_town
from townlet.world.state import ENERGY, EXITS, HUNGER, HYGIENE, TERMS
from world_tools import Play, people


def test_needs_cost_by_the_square_of_what_is_missing() -> None:
    """Needs 0.5, 0.6, 0.7 (before decay): 0.05 − 0.02 (1.0 × 0.25 + 0.6 × 0.16 + 0.8 × 0.09) = 0.04164."""
    play = Play(tiny_town(residents=people(alice=(2, 2))))
    me = play["alice"]
    me["needs"][HUNGER], me["needs"][HYGIENE], me["needs"][ENERGY] = 0.5 + 0.001, 0.6 + 0.0007, 0.7 + 0.0008
    play.go()
    assert play.term("alice", "survival") == 0.05
    assert play.term("alice", "needs") == pytest.approx(-0.02 * (0.25 + 0.096 + 0.072))
    assert play.reward("alice") == pytest.approx(0.04164)


@pytest.mark.parametrize("scenario", sorted(shipped_configs("scenarios")))
def test_a_living_tick_without_conflict_is_never_worth_less_than_nothing(scenario: str) -> None:
    """With every need at 0 (hunger just above collapse) and the configured weights."""
    config = load_config(scenario)
    assert config.rewards.survival >= config.rewards.needs_scale * sum(need.weight for need in config.needs.values())


def test_a_life_in_misery_is_worth_nothing_whatever_else_is_done() -> None:
    """Below 0.2 the lowest need scales the tick: half of it at 0.1, nothing at 0, also for one at its desk."""
    play = Play(tiny_town(residents=people(alice=(8, 7)), scenario={"start": "09:00"}))
    needs = play["alice"]["needs"]
    whole = []
    for hygiene in (0.3, 0.1, 0.0):
        needs[HUNGER], needs[HYGIENE], needs[ENERGY] = 1.0 + 0.001, hygiene + 0.0007 * (hygiene > 0), 1.0
        play.go(alice="work")
        whole.append(play.reward("alice"))
    lack = 0.02 * 0.6 * np.array([0.49, 0.81, 1.0])
    np.testing.assert_allclose(whole, (0.05 + 0.04 + 2 / 240 - lack) * [1.0, 0.5, 0.0], atol=2e-5)


def test_what_is_spent_costs_by_the_coin() -> None:
    """A shower costs 0.05 coins, 0.25 in reward, when it begins; the ticks after it cost nothing."""
    play = Play(tiny_town(residents=people(alice=(6, 2)))).go(alice="use_shower")
    assert play["alice"]["wallet"] == 10_000 - 500
    assert play.term("alice", "spending") == pytest.approx(-5 * 0.05)
    play.go()
    assert play.term("alice", "spending") == 0.0


def test_the_worst_living_tick_is_above_zero() -> None:
    play = Play(tiny_town(residents=people(alice=(2, 2))))
    for _ in range(50):
        play["alice"]["needs"][HYGIENE] = play["alice"]["needs"][ENERGY] = 0.0
        play["alice"]["needs"][HUNGER] = 0.032
        play.go()
        assert play.reward("alice") >= 0.0
    assert not play["alice"]["starving"].any()


def test_in_a_whole_town_only_conflict_a_price_or_a_known_exit_makes_a_tick_negative() -> None:
    vec = VectorTown(load_config("town_day", ["policy.decision_interval=1"]), 8)
    policy = make_policy("random", vec)
    negative = 0
    for _ in range(400):
        vec.step(policy.act(vec).actions)
        costs = vec.terms[..., [TERMS.index(name) for name in ("conflict", "spending", "exit_guard", "terminal")]].sum(axis=-1)
        assert (vec.rewards[(costs == 0.0)] >= 0.0).all()
        negative += int((vec.rewards < 0.0).sum())
    assert negative > 0


def test_a_day_of_nothing_but_chat_earns_less_than_a_shift() -> None:
    """A shift: 240 × 0.04 + 2 = 11.6. Two friends who chat whenever they may, for 24 hours, at best 48 × 0.06."""
    overrides = ("needs.hunger.decay=0", "policy.decision_interval=10", "relationships.chat.success=1")
    best_friends = [{"a": "alice", "b": "bob", "trust": 1.0, "familiarity": 1.0}]
    play = Play(tiny_town(*overrides, residents=people(alice=(2, 2), bob=(3, 2)), scenario={"ties": best_friends}))
    earned = 0.0
    for _ in range(144):
        play.go(alice="chat", bob="chat")
        earned += play.term("alice", "social")
    assert len(play.told("chat_success")) == 48
    assert 1.0 < earned < 11.6


def test_the_bound_takes_what_is_beyond_it_and_says_so() -> None:
    """Conflict weight 100: −100 × 0.12 is far below the bound of −5; the terminal penalty comes on top."""
    residents = people(alice=(6, 2), bob=(7, 2))
    scenario = {"map": tiny_town().scenario.map.replace("s...s", "s....")}
    play = Play(tiny_town("rewards.conflict_weight=100", residents=residents, scenario=scenario)).go(alice="use_shower")
    play["bob"]["exit_at"], play["bob"]["exit_kind"] = 0, EXITS.index("eviction")
    play.go(bob="use_shower")
    assert play.term("bob", "conflict") == pytest.approx(-12.0)
    assert play.term("bob", "terminal") == -2.0
    assert play.term("bob", "clip") == pytest.approx(-5.0 - (play.term("bob", "needs") - 12.0))
    assert play.reward("bob") == pytest.approx(-7.0)
    assert play.reward("alice") == pytest.approx(-4.0 + 0.05, abs=0.01)


def test_the_terms_add_up_to_the_reward_in_every_step() -> None:
    vec = VectorTown("rush_hour", 2)
    policy = make_policy("scripted", vec)
    for _ in range(60):
        vec.step(policy.act(vec).actions)
        sums = np.zeros(vec.rewards.shape)
        for k in range(len(TERMS)):
            sums += vec.terms[..., k]
        np.testing.assert_array_equal(sums.astype(np.float32), vec.rewards)
    assert vec.terms[..., TERMS.index("survival")].max() == pytest.approx(0.5)


def test_a_decision_is_worth_the_plain_sum_of_its_ticks() -> None:
    """The same ten ticks, as one decision of ten and as ten decisions of one."""
    people_here = people(alice=(6, 2), bob=(7, 2))
    long = Play(tiny_town("policy.decision_interval=10", residents=people_here))
    short = Play(tiny_town(residents=people_here))
    long.go(alice="use_shower", bob="use_shower")
    total = np.zeros_like(short.vec.terms)
    for _ in range(10):
        short.go(alice="use_shower", bob="use_shower")
        total += short.vec.terms
    np.testing.assert_allclose(long.vec.terms, total, rtol=0, atol=1e-15)
    assert long.vec.state.residents["wallet"].tolist() == short.vec.state.residents["wallet"].tolist()


def test_the_reward_of_an_over_town_is_zero_and_it_begins_anew() -> None:
    vec = VectorTown(tiny_town("policy.decision_interval=10", scenario={"episode_ticks": 30}), 1)
    wait = np.zeros((1, 2), int)
    told = []
    for _ in range(5):
        vec.step(wait)
        told.append((int(vec.truncated.sum()), int(vec.active.sum()), float(vec.rewards.sum()) > 0))
    assert told == [(0, 2, True), (0, 2, True), (2, 0, True), (0, 2, False), (0, 2, True)]
    assert vec.state.towns["episode"][0] == 1
