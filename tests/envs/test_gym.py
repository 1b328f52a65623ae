"""One learning resident among scripted neighbours."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import townlet.envs
from townlet.config.loader import shipped_configs
from townlet.envs.gym import ResidentEnv
from townlet.errors import UsageError

LARGE = ("market_square", "metropolis")
SMALL = [name for name in shipped_configs() if name not in LARGE]
SOURCE = Path(townlet.__file__).parent.parent


def test_every_shipped_scenario_is_registered() -> None:
    assert townlet.envs.environment_id("town_day") == "Townlet/TownDay-v0"
    for name in shipped_configs():
        assert townlet.envs.environment_id(name) in gym.registry


def test_registering_reads_no_config_and_loads_no_kernel() -> None:
    code = "import sys, townlet.envs; print('numba' in sys.modules, 'townlet.envs.vector' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(SOURCE)}, check=True
    )
    assert result.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("name", SMALL)
def test_check_env_passes(name: str) -> None:
    check_env(gym.make(townlet.envs.environment_id(name)).unwrapped, skip_render_check=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_check_env_passes_for_large_towns(name: str) -> None:
    check_env(gym.make(townlet.envs.environment_id(name)).unwrapped, skip_render_check=True)


def test_check_env_renders_too() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make("Townlet/QueueConflict-v0", render_mode="rgb_array").unwrapped)


def test_a_day_ends_truncated_and_the_mask_stands_where_learners_look() -> None:
    env = gym.make("Townlet/TownDay-v0", resident="carol").unwrapped
    assert isinstance(env, ResidentEnv)
    seen, info = env.reset(seed=4)
    rng, total, truncated, steps = np.random.default_rng(3), 0.0, False, 0
    while not truncated:
        np.testing.assert_array_equal(info["action_mask"].astype(bool), env.action_masks())
        seen, reward, terminated, truncated, info = env.step(rng.choice(np.flatnonzero(env.action_masks())))
        assert not terminated
        assert not info["illegal"]
        assert sum(info["reward_terms"].values()) == pytest.approx(reward, abs=1e-6)
        total, steps = total + reward, steps + 1
    assert steps == 144
    assert seen.shape == env.observation_space.shape
    with pytest.raises(UsageError, match="reset"):
        env.step(0)


def test_the_neighbours_follow_the_script() -> None:
    """Whoever waits all day starves of company, but the others use things and go to work."""
    env = ResidentEnv("town_day")
    env.reset(seed=4)
    uses = 0
    for _ in range(60):
        env.step(0)
        uses += int((env.vec.state.residents[0]["using"][1:] >= 0).sum())
    assert uses > 50
    assert env.vec.state.residents[0]["using"][0] == -1


def test_copies_without_a_seed_are_not_twins_and_a_seed_fixes_all_that_follows() -> None:
    one, two = ResidentEnv("town_day"), ResidentEnv("town_day")
    drawn = []
    for first in (None, None, 4, 4):
        for env, seed in ((one, first), (two, first), (one, None), (two, None)):
            env.reset(seed=seed)
            drawn.append(env.vec.seed)
    assert len(set(drawn[:8])) == 8
    assert all(seed % 2 == 0 for seed in drawn)  # those of the evaluation are odd
    assert drawn[8:12] == drawn[12:16] == [4, 4, drawn[10], drawn[10]]


def test_leaving_ends_the_episode() -> None:
    env = ResidentEnv("newcomer", resident="bob")
    env.reset(seed=0)
    terminated, steps = False, 0
    while not terminated:
        _, _, terminated, truncated, _ = env.step(0)
        steps += 1
        assert not truncated
    assert steps == (12 - 6) * 6 + 1  # at noon, in the decision that begins then


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"resident": "zoe"}, "alice, bob"),
        ({"map": "apart"}, "flat"),
        ({"render_mode": "film"}, "rgb_array"),
        ({"overrides": ["policy.action_level=primitive"]}, "parallel_env"),
    ],
)
def test_wrong_options_are_answered_with_the_right_ones(options: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ResidentEnv("town_day", **options)  # type: ignore[arg-type]
