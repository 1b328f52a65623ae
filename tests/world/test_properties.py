"""Any sequence of actions, allowed or not, in several towns at both levels: the invariants hold after every decision."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from townlet.config.loader import load_config
from townlet.config.models import SimulationConfig
from townlet.envs.vector import VectorTown
from townlet.testing import check_scenario, tiny_town
from townlet.world.invariants import problems

UPSETS = (
    "perturbations.price_spike={probability_per_day: 1.0, duration: 90, cooldown: 0}",
    "perturbations.blackout={probability_per_day: 1.0, duration: 90, cooldown: 0}",
    "perturbations.outage={probability_per_day: 1.0, duration: 90, cooldown: 0}",
    "perturbations.arranged_meet={probability_per_day: 1.0, duration: 90, cooldown: 0}",
    "features.stages.social_rewards=C3",
)
FRAIL = (
    "needs.hunger.decay=0.02",
    "needs.hunger.collapse_ticks=5",
    "lifecycle.exit_warning=2",
    "lifecycle.newcomers_per_day=9",
)
POOR = (
    "economy.rent=5",
    "economy.rent_at=361",
    "lifecycle.unpaid_days=1",
    "lifecycle.eviction_gap=0",
    "lifecycle.evictions_per_day=9",
)
CROWDED = {"map": "######\n#bbbb#\n#....#\n#....#\n##s###\n######\n", "buildings": {"house": {"at": [1, 1], "size": [4, 3]}}}


def crowded(*overrides: str) -> SimulationConfig:
    """Four in one room with one shower; no work."""
    scenario = {**CROWDED, "legend": {"b": "bed", "s": "shower"}, "episode_ticks": 400}
    residents = [{"id": name, "job": None} for name in ("alice", "bob", "carol", "dave")]
    return tiny_town("jobs={}", *UPSETS, *overrides, residents=residents, scenario=scenario)


TOWNS = {
    "tiny": lambda: tiny_town(
        *UPSETS, "relationships.max_edges=2", residents=4, scenario={"episode_ticks": 333, "start": "08:30"}
    ),
    "tiny, candidates": lambda: tiny_town(
        "policy.action_level=candidates", *UPSETS, residents=4, scenario={"episode_ticks": 200}
    ),
    "crowded, candidates": lambda: crowded("policy.action_level=candidates", *POOR),
    "tiny, primitive": lambda: tiny_town("policy.action_level=primitive", *UPSETS, residents=4, scenario={"episode_ticks": 200}),
    "tiny, seven ticks": lambda: tiny_town(
        "policy.decision_interval=7", *UPSETS, *FRAIL, residents=3, scenario={"episode_ticks": 300}
    ),
    "crowded": lambda: crowded("queue_fairness.cooldown_ticks={use_shower: 3}", *FRAIL),
    "crowded, primitive": lambda: crowded("policy.action_level=primitive", *POOR),
    "town_day": lambda: load_config("town_day", [*UPSETS, *POOR]),
    "two_bathrooms": lambda: load_config("two_bathrooms", [*UPSETS, "policy.decision_interval=3"]),
    "newcomer, blind": lambda: load_config("newcomer", [*FRAIL, "observations.blind=[conflict]", "world.event_capacity=3"]),
}


@cache
def town(name: str) -> VectorTown:
    return VectorTown(TOWNS[name](), 2, start="random" if name == "town_day" else None)


@pytest.mark.parametrize("name", TOWNS)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_invariants_hold_whatever_is_done(name: str, data: st.DataObject) -> None:
    """Runs of decisions: drawn one by one, or the same for a while; a few out of the catalogue, some with objects named."""
    vec = town(name)
    vec.reset(seed=data.draw(st.integers(0, 2**63 - 1), label="seed"))
    draws = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="draws"))
    shape = vec.active.shape
    for _ in range(data.draw(st.integers(1, 6), label="runs")):
        style = data.draw(st.sampled_from(["hostile", "legal", "stubborn", "named"]), label="style")
        one = data.draw(st.integers(-2, vec.num_actions + 2), label="action")
        for _ in range(data.draw(st.integers(1, 25), label="length")):
            targets = None
            if style == "hostile":
                actions = (
                    draws.integers(-(2**62), 2**62, shape)
                    if draws.random() < 0.2
                    else draws.integers(-3, vec.num_actions + 3, shape)
                )
            elif style == "stubborn":
                actions = np.full(shape, one)
            else:
                noise = draws.random(vec.masks.shape) * vec.masks
                actions = noise.argmax(axis=-1)
                if style == "named":
                    targets = draws.integers(-2, vec.state.objects.shape[1] + 2, shape)
            vec.step(actions, targets)
            found = problems(vec)
            assert not found, found[:4]


def test_ten_thousand_ticks_of_the_tiny_towns() -> None:
    """Longer than any drawn sequence: 10,000 ticks in all, every one looked at."""
    draws = np.random.default_rng(9)
    ticks = 0
    while ticks < 10_000:
        for name in ("tiny", "tiny, seven ticks", "crowded"):
            vec = town(name)
            vec.reset(seed=ticks)
            for _ in range(250):
                vec.step(draws.integers(-1, vec.num_actions + 1, vec.active.shape))
                assert problems(vec) == []
            ticks += 250 * vec.interval * vec.num_towns
    assert ticks >= 10_000


def test_lost_events_are_counted_and_the_town_goes_on() -> None:
    vec = town("newcomer, blind")
    vec.reset(seed=1)
    draws = np.random.default_rng(2)
    for _ in range(60):
        vec.step((draws.random(vec.masks.shape) * vec.masks).argmax(axis=-1))
    assert vec.events_lost > 0
    assert problems(vec) == []


@pytest.mark.parametrize("name", ["town_day", "blackout_evening", "queue_conflict"])
def test_shipped_scenarios_pass_the_shipped_check(name: str) -> None:
    check_scenario(name, decisions=80)
