"""The town as a PettingZoo environment: conformance, ids that never come back, infos that add up."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test

import townlet
from townlet.config.loader import shipped_configs
from townlet.envs.parallel import TownParallelEnv, most_newcomers
from townlet.errors import UsageError

LARGE = ("market_square", "metropolis")
SMALL = [name for name in shipped_configs() if name not in LARGE]
UNUSED = "No agents present but not all possible_agents are terminated or truncated"


def waits(env: TownParallelEnv) -> dict[str, int]:
    return dict.fromkeys(env.agents, 0)


@pytest.mark.parametrize("name", SMALL)
def test_every_small_scenario_passes_the_api_test_without_a_warning(name: str) -> None:
    """Without newcomers nothing is warned about: warnings are errors here."""
    parallel_api_test(townlet.parallel_env(name, seed=1, overrides=["lifecycle.newcomers_per_day=0"]), num_cycles=60)


def test_with_newcomers_the_only_warning_is_about_the_ids_nobody_took() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parallel_api_test(townlet.parallel_env("kitchen_breakfast", seed=1), num_cycles=20)
    assert {str(one.message) for one in caught} == {UNUSED}


@pytest.mark.parametrize("name", SMALL)
def test_every_small_scenario_passes_the_seed_test(name: str) -> None:
    parallel_seed_test(lambda: townlet.parallel_env(name), num_cycles=50)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_the_large_scenarios_pass_too(name: str) -> None:
    parallel_api_test(townlet.parallel_env(name, seed=1, overrides=["lifecycle.newcomers_per_day=0"]), num_cycles=3)
    parallel_seed_test(lambda: townlet.parallel_env(name), num_cycles=1)


def test_newcomers_get_ids_that_were_announced_and_nobody_comes_back() -> None:
    """In `newcomer` bob leaves at noon and grace at six; two strangers take their places."""
    env = townlet.parallel_env("newcomer")
    env.reset(seed=3)
    seen: list[str] = list(env.agents)
    gone: set[str] = set()
    while env.agents:
        before = set(env.agents)
        _, rewards, terminations, truncations, _ = env.step(waits(env))
        assert set(rewards) == before | set(env.agents)
        gone |= {agent for agent in before if terminations[agent] or truncations[agent]}
        assert not gone & set(env.agents)
        seen += [agent for agent in env.agents if agent not in seen]
    assert "newcomer_1" in seen
    assert "newcomer_2" in seen
    assert set(seen) <= set(env.possible_agents)
    assert "bob" in gone


def test_possible_agents_counts_newcomers_of_every_calendar_day() -> None:
    """From 06:00, 1440 ticks touch two days: 2 × 2. From 06:00, 1080 ticks end at midnight: one day. Two weeks and a bit: 15."""
    for ticks, days in ((1440, 2), (1080, 1), (1081, 2), (14 * 1440, 15)):
        env = townlet.parallel_env("town_day", overrides=[f"scenario.episode_ticks={ticks}"])
        assert most_newcomers(env.vec) == 2 * days
        assert env.possible_agents[8:] == [f"newcomer_{k + 1}" for k in range(2 * days)]
    assert most_newcomers(townlet.parallel_env("town_day", start="random").vec) == 4


def test_the_breakdown_in_the_infos_is_the_reward() -> None:
    env = townlet.parallel_env("queue_conflict")
    env.reset(seed=1)
    clashes = 0
    for _ in range(20):
        actions = {agent: env.vec.catalogue.index("use_shower:near") for agent in env.agents}
        _, rewards, _, _, infos = env.step(actions)
        for agent, info in infos.items():
            assert np.float32(sum(info["reward_terms"].values())) == pytest.approx(rewards[agent], abs=1e-6)
            assert info["option"] in env.vec.catalogue.names
            for event in info["events"]:
                assert agent in (event.get("actor"), event.get("rival"))
                clashes += event["type"] == "queue_conflict"
    assert clashes > 0


def test_an_impossible_action_waits_and_is_told() -> None:
    env = townlet.parallel_env("observation_baseline")
    env.reset(seed=0)
    work = env.vec.catalogue.index("work")  # nobody has a job there
    _, _, _, _, infos = env.step({"alice": work, "bob": 10_000})
    assert infos["alice"]["illegal"]
    assert infos["bob"]["illegal"]
    assert infos["alice"]["option"] == "wait"


def test_the_layout_of_an_observation() -> None:
    flat, apart, plain = (townlet.parallel_env("town_day", map=how) for how in ("flat", "apart", "none"))
    seen = {env: env.reset(seed=5)[0]["alice"] for env in (flat, apart, plain)}
    features = len(flat.vec.spec.feature_names)
    assert seen[plain]["observation"].shape == (features,)
    assert seen[flat]["observation"].shape == (features + 4 * 11 * 11,)
    assert set(seen[apart]) == {"observation", "action_mask", "map"}
    np.testing.assert_array_equal(seen[flat]["observation"][features:].reshape(4, 11, 11), seen[apart]["map"])
    np.testing.assert_array_equal(seen[flat]["observation"][:features], seen[plain]["observation"])
    assert flat.sight.names[features + 60] == "map_self_5_5"
    assert seen[flat]["observation"][features + 60] == 1.0  # oneself, in the middle of the first channel
    for env in (flat, apart, plain):
        assert env.observation_space("alice").contains(seen[env])


def test_observations_are_copies() -> None:
    env = townlet.parallel_env("town_day")
    first = env.reset(seed=5)[0]["alice"]["observation"]
    kept = first.copy()
    for _ in range(5):
        env.step(waits(env))
    np.testing.assert_array_equal(first, kept)


def test_state_holds_what_everybody_knows() -> None:
    env = townlet.parallel_env("town_day")
    env.reset(seed=5)
    assert env.state_space.contains(env.state())
    assert env.state().shape == (8 * len(env.vec.spec.feature_names),)


def test_reset_without_a_seed_is_the_next_episode_and_with_one_the_first() -> None:
    env = townlet.parallel_env("town_day", start="random")
    firsts: list[Any] = [env.reset(seed=9)[0], env.reset()[0], env.reset(seed=9)[0], env.reset()[0]]
    rows = [seen["alice"]["observation"] for seen in firsts]
    np.testing.assert_array_equal(rows[0], rows[2])
    np.testing.assert_array_equal(rows[1], rows[3])
    assert (rows[0] != rows[1]).any()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["deepcopy", "pickle"])
def test_a_copy_in_the_middle_of_a_day_goes_on_as_the_original(copied: Callable[[TownParallelEnv], TownParallelEnv]) -> None:
    """The map of an observation, too: it is written through a view, which a copy has to make anew."""
    env, rng = townlet.parallel_env("newcomer"), np.random.default_rng(1)
    seen, _ = env.reset(seed=4)

    def choose() -> dict[str, int]:
        return {agent: int(rng.choice(np.flatnonzero(one["action_mask"]))) for agent, one in seen.items() if agent in env.agents}

    for _ in range(30):
        seen, *_ = env.step(choose())
    twin = copied(env)
    for _ in range(30):
        actions = choose()
        (seen, rewards, *_), (told, earned, *_) = env.step(actions), twin.step(actions)
        assert rewards == earned
        for agent, one in seen.items():
            np.testing.assert_array_equal(one["observation"], told[agent]["observation"])
    assert env.vec.digest() == twin.vec.digest()


def test_copies_made_without_a_seed_are_not_twins_and_with_one_they_are() -> None:
    """Drawn seeds are even, so none is one of the evaluation's; a seed may also stand among the overrides."""

    def day(env: TownParallelEnv, seed: int | None = None) -> bytes:
        seen, _ = env.reset(seed=seed)
        for _ in range(40):  # everybody wants the same: turns are drawn, and who wins them
            seen, *_ = env.step({agent: int(np.flatnonzero(seen[agent]["action_mask"])[-1]) for agent in env.agents})
        return env.vec.features.tobytes()

    one, two = townlet.parallel_env("town_day"), townlet.parallel_env("town_day")
    assert one.vec.seed != two.vec.seed
    assert one.vec.seed % 2 == two.vec.seed % 2 == 0
    assert day(one) != day(two)
    assert day(one, 4) == day(two, 4) == day(townlet.parallel_env("town_day", seed=4))
    assert day(townlet.parallel_env("town_day", overrides=["seed=4"])) == day(one, 4)
    assert townlet.make_vec("town_day", 1).seed == townlet.make_vec("town_day", 1).seed == 7  # the scenario's, as it says


def test_when_the_last_resident_leaves_time_passes_until_somebody_comes() -> None:
    """Both leave at once; with newcomers the town goes on with strangers, without it is over."""
    exits = 'lifecycle.exits=[{at: "07:00", resident: alice}, {at: "07:00", resident: bob}]'
    for newcomers, after in ((2, True), (0, False)):
        env = townlet.parallel_env("observation_baseline", overrides=[exits, f"lifecycle.newcomers_per_day={newcomers}"])
        env.reset(seed=0)
        while "alice" in env.agents:
            _, _, terminations, _, _ = env.step(waits(env))
        assert terminations["alice"]
        assert terminations["bob"]
        assert bool(env.agents) is after
        assert all(agent.startswith("newcomer_") for agent in env.agents)


def test_stepping_after_the_end_is_refused() -> None:
    env = townlet.parallel_env("observation_baseline", overrides=["scenario.episode_ticks=20"])
    env.reset(seed=0)
    for _ in range(2):
        _, _, _, truncations, _ = env.step(waits(env))
    assert all(truncations.values())
    with pytest.raises(UsageError, match="call reset"):
        env.step({})


@pytest.mark.parametrize("options", [{"render_mode": "film"}, {"map": "round"}])
def test_wrong_options_are_named(options: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="expected"):
        townlet.parallel_env("town_day", **options)
