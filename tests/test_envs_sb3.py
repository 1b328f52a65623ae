"""The town as a VecEnv: fixed slots, resets in the same step, masks where MaskablePPO looks."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

from townlet.envs.sb3 import TownVecEnv


def test_rows_are_towns_times_slots() -> None:
    env = TownVecEnv("town_day", 3, seed=1)
    seen = env.reset()
    assert env.num_envs == 24
    assert seen.shape == (24, *env.observation_space.shape)
    assert env.observation_space.contains(seen[5])
    masks = np.stack(env.env_method("action_masks"))
    np.testing.assert_array_equal(masks, env.vec.masks.reshape(24, -1) != 0)
    assert env.get_attr("sight")[0] is env.sight
    with pytest.raises(AttributeError, match="action_masks"):
        env.env_method("fly")


def test_an_episode_ends_with_its_last_observation_and_the_next_one_begins_at_once() -> None:
    env = TownVecEnv("town_day", 2, seed=1, overrides=["scenario.episode_ticks=30"], map="none")
    first = env.reset()
    for step in range(3):
        seen, rewards, dones, infos = env.step(np.zeros(16, np.int64))
        assert dones.all() == (step == 2)
        assert rewards.shape == (16,)
    progress = env.vec.spec.offsets["episode_progress"]
    assert all(info["TimeLimit.truncated"] for info in infos)
    assert all(info["terminal_observation"][progress] == 1.0 for info in infos)
    assert (seen[:, progress] == 0.0).all()
    assert infos[0]["episode"]["l"] == 3
    np.testing.assert_array_equal(seen, first)  # the scenario begins as it began


def test_a_resident_who_leaves_is_done_but_not_truncated() -> None:
    env = TownVecEnv("newcomer", 1, seed=1)
    env.reset()
    ends = []
    for _ in range(60):
        _, _, dones, infos = env.step(np.zeros(8, np.int64))
        ends += [(slot, infos[slot]["TimeLimit.truncated"]) for slot in np.flatnonzero(dones)]
    assert (1, False) in ends  # bob, at noon


def test_maskable_ppo_finds_the_masks() -> None:
    utils = pytest.importorskip("sb3_contrib.common.maskable.utils")
    env = TownVecEnv("town_day", 1)
    assert utils.is_masking_supported(env)
    assert np.array_equal(utils.get_action_masks(env), env.action_masks())
    assert not env.has_attr("moves")


@pytest.mark.slow
def test_ppo_and_maskable_ppo_learn_on_it() -> None:
    from sb3_contrib import MaskablePPO
    from stable_baselines3 import PPO

    PPO("MlpPolicy", TownVecEnv("town_day", 1), n_steps=16, batch_size=64, n_epochs=1, device="cpu").learn(256)
    MaskablePPO("MlpPolicy", TownVecEnv("town_day", 1), n_steps=16, batch_size=64, n_epochs=1, device="cpu").learn(256)
