"""Ends: the last step truncates everybody behind every door, and towns that are staggered do not end together."""

from __future__ import annotations

import numpy as np
import pytest

import townlet
from digest_run import chain
from townlet.config import SimulationConfig
from townlet.config.loader import load_config
from townlet.envs.gym import ResidentEnv
from townlet.envs.vector import VectorTown
from townlet.policy.training.collect import Collector
from townlet.policy.training.services import EvaluationService, RolloutCaptureService
from townlet.testing import tiny_town
from townlet.world.invariants import problems
from townlet.world.state import EVENTS

DECISIONS = 6
EXITS = "lifecycle.exits=[{resident: alice, at: '06:55'}, {resident: bob, at: '06:15'}]"  # in the sixth decision, in the second
ENDING = ("policy.decision_interval=10", "lifecycle.exit_warning=4", EXITS)


def ending(*overrides: str, ticks: int = 10 * DECISIONS) -> SimulationConfig:
    """Alice leaves in the last step, Bob long before; carol and dave stay."""
    return tiny_town(*ENDING, *overrides, residents=4, scenario={"episode_ticks": ticks})


def wait(vec: VectorTown) -> None:
    vec.step(np.zeros(vec.active.shape, np.int64))


# --- the last step -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("newcomers", [0, 2])
def test_every_slot_is_truncated_in_the_last_step_and_in_no_other(newcomers: int) -> None:
    """Who dies in it is terminated as well, and an empty slot ends with its town."""
    vec = VectorTown(ending(f"lifecycle.newcomers_per_day={newcomers}"), 1)
    for _ in range(DECISIONS - 1):
        wait(vec)
        assert not vec.truncated.any()
        assert problems(vec) == []
    wait(vec)
    assert vec.truncated.all()
    assert vec.terminated.tolist() == [[1, 0, 0, 0]]
    assert vec.state.residents["present"].tolist() == [[0, int(newcomers > 0), 1, 1]]
    assert problems(vec) == []
    wait(vec)  # the next episode
    assert not vec.truncated.any()


@pytest.mark.parametrize("newcomers", [0, 2])
def test_everybody_in_the_last_step_of_a_parallel_env_is_truncated(newcomers: int) -> None:
    """RLlib ends an episode when *all* agents of a step are truncated, or all terminated: one who dies in it must not keep it
    open."""
    env = townlet.parallel_env(ending(f"lifecycle.newcomers_per_day={newcomers}"))
    env.reset(seed=1)
    for step in range(DECISIONS):
        before = list(env.agents)
        _, _, terminations, truncations, _ = env.step(dict.fromkeys(before, 0))
        last = step == DECISIONS - 1
        assert set(truncations) == set(terminations) >= set(before)
        assert set(truncations.values()) == {last}
        assert not [agent for agent in before if agent not in env.agents and not (terminations[agent] or truncations[agent])]
    assert env.agents == []
    assert [agent for agent, gone in terminations.items() if gone] == ["alice"]


def test_a_newcomer_who_arrives_as_the_episode_ends_takes_no_part_in_it() -> None:
    """It is in the town, which is over: no environment tells of it, and nobody is left without an end."""
    vec = VectorTown(ending(ticks=1440), 1)
    arrived = EVENTS.index("newcomer")
    while arrived not in vec.events()["kind"]:
        wait(vec)
    ticks = int(vec.state.towns["tick"][0])
    env = townlet.parallel_env(ending(ticks=ticks), seed=vec.seed)
    env.reset()
    while env.agents:
        before = set(env.agents)
        _, _, _, truncations, _ = env.step(dict.fromkeys(env.agents, 0))
    assert env.vec.state.residents["present"][0, 1] == 1
    assert env.vec.active.sum() == 0
    assert set(truncations) == before == {"alice", "carol", "dave"}
    assert all(truncations.values())


@pytest.mark.parametrize(("resident", "terminated"), [("alice", True), ("carol", False)])
def test_the_last_step_of_one_resident_is_truncated(resident: str, terminated: bool) -> None:
    env = ResidentEnv(ending(), resident=resident)
    env.reset(seed=1)
    told = [env.step(0)[2:4] for _ in range(DECISIONS)]
    assert told == [(False, False)] * (DECISIONS - 1) + [(terminated, True)]


@pytest.mark.door(library="sb3_contrib")
def test_the_last_step_of_every_slot_of_a_vec_env_is_done() -> None:
    """Whoever died is not to be bootstrapped: Stable-Baselines3 reads `TimeLimit.truncated`."""
    from townlet.envs.sb3 import TownVecEnv

    env = TownVecEnv(ending("lifecycle.newcomers_per_day=0"), 2, seed=1)
    env.reset()
    for _ in range(DECISIONS):
        _, _, dones, infos = env.step(np.zeros(8, np.int64))
    assert dones.all()
    assert [infos[slot]["TimeLimit.truncated"] for slot in (0, 2, 3, 4, 6, 7)] == [False, True, True] * 2


# --- staggered towns -----------------------------------------------------------------------------------------------------


def ends_of(vec: VectorTown, decisions: int) -> np.ndarray:
    """Which towns end with which decision. (T, E) bool"""
    vec.sights = False
    out = np.zeros((decisions, vec.num_towns), bool)
    for t in range(decisions):
        wait(vec)
        out[t] = vec.state.towns["over"] != 0
    return out


@pytest.mark.parametrize("days", [1, 3])
def test_training_towns_end_apart(days: int) -> None:
    """64 towns: at no decision more than a quarter of them; the first ends are spread over all days, later days are whole."""
    config = load_config("town_day", [f"scenario.episode_ticks={days * 1440}"])
    length = 144 * days
    ends = ends_of(RolloutCaptureService(config).towns(64, stagger=True), 3 * length + 3)
    assert ends.sum(axis=1).max() <= 16
    when = [np.flatnonzero(ends[:, e]) for e in range(64)]
    first = np.array([times[0] for times in when])
    assert first.max() < length
    assert (np.histogram(first, bins=4 * days, range=(0, length))[0] > 0).all()
    for times in when:
        assert set(np.diff(times)) == {length + 1}  # a whole episode, and the step that begins it


def test_towns_that_are_not_staggered_end_together() -> None:
    ends = ends_of(RolloutCaptureService(load_config("town_day")).towns(8), 2 * 144 + 1)
    assert np.flatnonzero(ends.any(axis=1)).tolist() == [143, 288]
    assert ends[[143, 288]].all()


def test_a_first_episode_ends_on_a_decision_even_where_the_last_one_runs_over() -> None:
    """25 ticks in decisions of ten: one, two or three of them, and none is cut to nothing."""
    vec = VectorTown(tiny_town("policy.decision_interval=10", scenario={"episode_ticks": 25}), 200, stagger=True)
    cuts = vec.state.towns["cut"].tolist()
    assert set(cuts) == {15, 5, 0}
    assert ends_of(vec, 3).argmax(axis=0).tolist() == [{15: 0, 5: 1, 0: 2}[cut] for cut in cuts]


def test_where_a_town_ends_hangs_on_seed_and_town_alone() -> None:
    batch = VectorTown("kitchen_breakfast", 8, seed=3, stagger=True)
    alone = VectorTown("kitchen_breakfast", 1, seed=3, first_town=5, stagger=True)
    cuts = batch.state.towns["cut"].copy()
    assert chain(batch, 45, town=5) == chain(alone, 45)
    assert len(set(cuts.tolist())) > 4
    batch.reset(4)
    assert (batch.state.towns["cut"] != cuts).any()
    batch.reset(3)
    assert (batch.state.towns["cut"] == cuts).all()


def test_a_snapshot_remembers_where_its_towns_end() -> None:
    """Saved in the first episode, restored into a batch of another seed that knows nothing of it."""
    first = VectorTown("kitchen_breakfast", 4, seed=3, stagger=True)
    chain(first, 2)
    kept = first.save()
    expected = ends_of(first, 40)
    other = VectorTown("kitchen_breakfast", 4, seed=9)
    other.restore(kept)
    np.testing.assert_array_equal(ends_of(other, 40), expected)


def test_a_day_that_was_cut_is_not_counted_among_the_days_of_the_log() -> None:
    """300 decisions of 16 scripted towns: lengths and returns are those of whole days, the cut ones are left out."""
    vec = VectorTown("town_day", 16, seed=2, stagger=True)
    cut = int((vec.state.towns["cut"] > 0).sum())
    rollout = Collector(vec, 0, maps=False).collect(None, 300)
    ended = int((rollout.truncated & rollout.active[:-1]).sum()) // vec.num_residents  # days
    assert 0 < cut < ended
    assert rollout.life_lengths == [144] * (ended - cut) * vec.num_residents
    assert len(rollout.life_returns) == len(rollout.life_lengths)


def test_rollouts_are_staggered_and_evaluations_are_not() -> None:
    pytest.importorskip("torch")
    from townlet.policy.training.pool import PoolShare
    from townlet.policy.training.session import network_spec

    config = load_config("town_day", ["training.eval_towns=2"])
    share = PoolShare(config, network_spec(config), 0, 2)
    assert share.collector.vec.tables.rules["stagger"] == 1
    service = EvaluationService(config)
    service.score("scripted")
    assert service._towns is not None
    assert service._towns.tables.rules["stagger"] == 0
