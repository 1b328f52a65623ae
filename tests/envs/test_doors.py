"""The options of the environments that other people's trainers need."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test

import townlet
import townlet.envs
from townlet.envs.parallel import TownParallelEnv
from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.testing import tiny_town
from townlet.world.state import TERMS


def legal(observations: dict[str, dict[str, Any]]) -> dict[str, int]:
    """The last legal action of everybody, which is not always to wait."""
    return {agent: int(np.flatnonzero(seen["action_mask"])[-1]) for agent, seen in observations.items()}


def days(env: TownParallelEnv, seed: int = 3) -> list[tuple[Any, ...]]:
    """Every step of an episode under `legal`."""
    seen, _ = env.reset(seed=seed)
    steps = []
    while env.agents:
        steps.append(env.step({agent: action for agent, action in legal(seen).items() if agent in env.agents}))
        seen = steps[-1][0]
    return steps


def test_fixed_agents_are_all_there_until_the_last_step_truncates_them() -> None:
    """In `newcomer` bob leaves at noon and grace at six; strangers take their places."""
    env = townlet.parallel_env("newcomer", agents="fixed", infos="numeric")
    steps = days(env)
    names = set(env.possible_agents)
    assert len(names) == env.vec.num_residents
    empty = 0
    for seen, rewards, terminations, truncations, infos in steps:
        assert set(seen) == set(rewards) == set(infos) == names
        assert not any(terminations.values())
        assert set(truncations.values()) == {seen is steps[-1][0]}
        for agent in names:
            if not infos[agent]["active"] and seen is not steps[-1][0]:
                empty += 1
                assert not seen[agent]["observation"].any()
                assert seen[agent]["action_mask"].tolist() == [1] + [0] * (env.vec.num_actions - 1)
        assert not any(info["illegal"] for info in infos.values())
    assert empty > 0
    assert env.vec.state.residents[0]["life"].max() > 0, "no newcomer came"


def test_fixed_and_living_agents_live_the_same_day() -> None:
    living, fixed = (townlet.parallel_env("newcomer", agents=kind, infos="none") for kind in ("living", "fixed"))
    a, b = days(living), days(fixed)
    assert len(a) == len(b)
    assert living.vec.digest() == fixed.vec.digest()
    earned = [sum(sum(step[1].values()) for step in steps) for steps in (a, b)]
    assert earned[0] == pytest.approx(earned[1])


@pytest.mark.parametrize("agents", ["living", "fixed"])
def test_numbered_names_are_the_same_residents_under_names_that_group(agents: str) -> None:
    own, numbered = (townlet.parallel_env("newcomer", agents=agents, names=names) for names in ("own", "numbered"))
    assert numbered.possible_agents == [f"resident_{k}" for k in range(len(own.possible_agents))]
    called = dict(zip(own.possible_agents, numbered.possible_agents))
    for a, b in zip(days(own), days(numbered), strict=True):
        assert {called[agent]: reward for agent, reward in a[1].items()} == b[1]
        assert {called[agent]: info["events"] for agent, info in a[4].items()} == {k: info["events"] for k, info in b[4].items()}


def test_fixed_numbered_numeric_passes_the_tests_of_pettingzoo() -> None:
    def make() -> TownParallelEnv:
        return townlet.parallel_env("newcomer", seed=1, agents="fixed", names="numbered", infos="numeric")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(make(), num_cycles=80)
    parallel_seed_test(make, num_cycles=40)


def test_infos_are_numbers_or_nothing() -> None:
    env = townlet.parallel_env("queue_conflict", seed=1, infos="numeric")
    seen, infos = env.reset()
    seen, rewards, _, _, infos = env.step(legal(seen))
    for agent, info in infos.items():
        assert all(isinstance(value, int | float | bool | np.ndarray) for value in info.values())
        assert info["action_mask"].tolist() == seen[agent]["action_mask"].tolist()
        assert sum(info[f"reward_{term}"] for term in TERMS) == pytest.approx(rewards[agent], abs=1e-5)
    bare = townlet.parallel_env("queue_conflict", seed=1, infos="none")
    seen, infos = bare.reset()
    assert set(map(str, (*infos.values(), *bare.step(legal(seen))[4].values()))) == {"{}"}


def test_infos_that_are_off_read_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("townlet.envs.parallel.step_records", lambda vec: pytest.fail("events were put into words"))
    days(townlet.parallel_env("queue_conflict", infos="none", max_cycles=3))


def test_a_team_shares_the_mean_of_its_rewards() -> None:
    own, team = (townlet.parallel_env("newcomer", rewards=rewards, infos="full") for rewards in ("own", "team"))
    for a, b in zip(days(own), days(team), strict=True):
        assert len({reward for reward in b[1].values() if reward}) <= 1
        assert sum(a[1].values()) == pytest.approx(sum(b[1].values()), abs=1e-4)


def test_max_cycles_end_an_episode() -> None:
    steps = days(townlet.parallel_env("queue_conflict", max_cycles=5))
    assert len(steps) == 5
    assert all(steps[-1][3].values())
    with pytest.raises(UsageError, match="max_cycles is 0"):
        townlet.parallel_env("queue_conflict", max_cycles=0)


@pytest.mark.parametrize("option", ["agents", "names", "infos", "rewards", "render_mode"])
def test_a_wrong_option_is_answered_with_the_right_ones(option: str) -> None:
    wrong: Any = {option: "some"}
    with pytest.raises(UsageError, match=f"{option} is 'some', expected "):
        townlet.parallel_env("queue_conflict", **wrong)


def test_for_people_every_step_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    env = townlet.parallel_env("queue_conflict", seed=1, render_mode="human")
    seen, _ = env.reset()
    first = capsys.readouterr().out
    env.step(legal(seen))
    assert "alice" in first
    assert "alice" in capsys.readouterr().out
    assert env.render() is None
    solo = gymnasium.make("Townlet/QueueConflict-v0", render_mode="human")
    solo.reset(seed=1)
    assert "alice" in capsys.readouterr().out


def test_many_towns_are_the_towns_one_by_one() -> None:
    many = townlet.parallel_vec("queue_conflict", 3, seed=4, names="numbered")
    ones = [townlet.parallel_env("queue_conflict", seed=4, town=k, agents="fixed", names="numbered") for k in range(3)]
    assert repr(many) == "<TownParallelVec queue_conflict: 3 towns × 3 agents>"
    seen, _ = many.reset(options={})  # as every PettingZoo environment takes them
    starts = [env.reset()[0] for env in ones]
    for _ in range(4):
        for agent in many.agents:
            for e, start in enumerate(starts):
                assert many.observation_space(agent).contains({name: part[e] for name, part in seen[agent].items()})
                assert all(np.array_equal(seen[agent][name][e], start[agent][name]) for name in start[agent])
        actions = {agent: parts["action_mask"].argmax(-1) for agent, parts in seen.items()}
        seen, rewards, terminations, truncations, infos = many.step(actions)
        done = [env.step({agent: int(actions[agent][e]) for agent in env.agents}) for e, env in enumerate(ones)]
        starts = [one[0] for one in done]
        for agent in many.agents:
            assert rewards[agent].tolist() == [one[1][agent] for one in done]
            assert not terminations[agent].any()
            assert not truncations[agent].any()
            assert infos[agent]["active"].tolist() == [1, 1, 1]


def test_many_towns_without_a_seed_are_no_twins_of_others() -> None:
    assert townlet.parallel_vec("queue_conflict", 2).vec.seed != townlet.parallel_vec("queue_conflict", 2).vec.seed


def played(neighbours: Any, **options: Any) -> str:
    env: Any = gymnasium.make("Townlet/TwoBathrooms-v0", neighbours=neighbours, **options).unwrapped
    env.reset(seed=5)
    for _ in range(12):
        env.step(0)
    return str(env.vec.digest())


def test_neighbours_need_not_be_scripted() -> None:
    scripted, random = played("scripted"), played("random")
    assert len({scripted, random, played(lambda vec: np.zeros((1, vec.num_residents), np.int64))}) == 3
    assert played(townlet.load_policy("scripted")) == scripted
    assert played("random") == random
    assert played("random", overrides=["policy.action_level=primitive"])
    with pytest.raises(UsageError, match="neighbours is 'nobody', expected scripted, random or a function"):
        played("nobody")


@pytest.mark.parametrize("seed", [-1, 1 << 63, 1 << 70])
def test_a_seed_that_no_draw_could_use_is_refused_wherever_it_comes_in(seed: int) -> None:
    with pytest.raises(UsageError, match=f"seed is {seed}, expected a whole number"):
        VectorTown(tiny_town(), 1, seed=seed)
    with pytest.raises(UsageError, match=f"seed is {seed}, expected a whole number"):
        VectorTown(tiny_town(), 1).reset(seed)
