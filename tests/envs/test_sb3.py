"""The town as a VecEnv: fixed slots, resets in the same step, masks where MaskablePPO looks."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

from typing import Any

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecNormalize

from townlet.envs.sb3 import LivingRolloutBuffer, TownVecEnv
from townlet.errors import UsageError

pytestmark = pytest.mark.door(library="sb3_contrib")
Array = np.ndarray[Any, Any]
DAY = 144  # decisions


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
        ends += [(slot, infos[slot]["TimeLimit.truncated"]) for slot in np.flatnonzero(dones) if infos[slot]["active"]]
    assert (1, False) in ends  # bob, at noon


def random_days(env: TownVecEnv, days: int, seed: int = 5) -> tuple[Array, Array, list[list[dict[str, Any]]]]:
    """Random legal play: the ends (T, E · N), who decided (T, E · N), and the infos."""
    rng = np.random.default_rng(seed)
    env.reset()
    ends, decided, told = [], [], []
    for _ in range(days * DAY):
        decided.append(env.vec.active.ravel() != 0)
        _, rewards, dones, infos = env.step((rng.random((env.num_envs, env.vec.num_actions)) * env.action_masks()).argmax(axis=1))
        assert not rewards[~decided[-1]].any()
        ends.append(np.array(dones))
        told.append(infos)
    return np.array(ends), np.array(decided), told


def test_every_slot_ends_with_its_town_and_statistics_are_of_lives() -> None:
    """24 town-days of 8 slots: also a slot that is empty at the end of the day is done, and no life is longer than a day."""
    env = TownVecEnv("town_day", 8, seed=3, map="none")
    ends, decided, told = random_days(env, 3)
    nights = ends[DAY - 1 :: DAY]
    assert nights.size == 192
    assert int((~nights).sum()) == 0
    empty = ~decided
    assert empty[DAY - 1 :: DAY].sum() > 10  # so that it says something
    assert ends[empty].all()
    lives = [info["episode"]["l"] for infos in told for info in infos if "episode" in info]
    assert max(lives) <= DAY
    assert sum(lives) == int(decided.sum())  # each decision belongs to one life that was told
    for t, infos in enumerate(told):
        assert [info["active"] for info in infos] == decided[t].tolist()
        assert all("episode" not in info for info, here in zip(infos, decided[t]) if not here)
    env.close()


def test_an_empty_slot_sees_nothing_and_the_one_who_left_is_in_the_infos() -> None:
    env = TownVecEnv("newcomer", 1, seed=1, map="none")
    env.reset()
    while True:
        seen, _, dones, infos = env.step(np.zeros(8, np.int64))
        if dones.any():
            break
    (slot,) = np.flatnonzero(dones)
    assert not seen[slot].any()
    np.testing.assert_array_equal(infos[slot]["terminal_observation"], env.vec.features[0, slot])
    assert env.action_masks()[slot].tolist() == [True] + [False] * (env.vec.num_actions - 1)
    _, rewards, dones, infos = env.step(np.zeros(8, np.int64))
    assert dones[slot]
    assert rewards[slot] == 0.0
    assert infos[slot] == {"active": False}


class Watch(BaseCallback):  # type: ignore[misc]
    """Who decided, by the infos, in every step of the last rollout."""

    def _on_rollout_start(self) -> None:
        self.rows: list[list[bool]] = []

    def _on_step(self) -> bool:
        self.rows.append([info["active"] for info in self.locals["infos"]])
        return True


@pytest.mark.parametrize("normalised", [False, True])
def test_empty_rows_are_left_out_and_advantages_stay_within_a_life(normalised: bool) -> None:
    """24 town-days of play that is random still; each life's advantages are those of the life on its own."""
    town = TownVecEnv("town_day", 8, map="none")
    env = VecNormalize(town, norm_reward=False) if normalised else town
    model = PPO("MlpPolicy", env, n_steps=3 * DAY, batch_size=1024, n_epochs=1, seed=3, rollout_buffer_class=LivingRolloutBuffer)
    watch, buffer = Watch(), model.rollout_buffer
    _, callback = model._setup_learn(1, watch)
    callback.on_training_start(locals(), globals())
    model.collect_rollouts(env, callback, buffer, 3 * DAY)
    active = np.array(watch.rows)  # (T, E · N)
    np.testing.assert_array_equal(buffer.active, active)
    assert (~active).sum() > 100
    starts, rewards, values = buffer.episode_starts != 0, buffer.rewards, buffer.values
    alone = np.zeros_like(rewards)
    for b in range(env.num_envs):
        later = 0.0
        for t in range(3 * DAY - 1, -1, -1):
            ends = t + 1 == 3 * DAY or starts[t + 1, b]  # the towns end with the rollout
            assert ends or active[t, b] == active[t + 1, b]  # nothing runs from a life into an empty row or out of one
            later = 0.0 if ends else later
            following = 0.0 if ends else values[t + 1, b]
            later = rewards[t, b] + model.gamma * following - values[t, b] + model.gamma * model.gae_lambda * later
            alone[t, b] = later
    np.testing.assert_allclose(buffer.advantages, alone, rtol=1e-3, atol=1e-3)
    wanted = np.sort(buffer.advantages[active])
    for size in (1024, None):
        batches = list(buffer.get(size))
        assert sum(len(batch.actions) for batch in batches) == active.sum()
        assert max(len(batch.actions) for batch in batches) <= (size or active.sum())
        np.testing.assert_array_equal(np.sort(np.concatenate([batch.advantages.numpy() for batch in batches])), wanted)
        if not normalised:
            assert all((batch.observations != 0).any(dim=1).all() for batch in batches)


def test_the_buffer_refuses_an_environment_that_does_not_tell_who_is_there() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=64, rollout_buffer_class=LivingRolloutBuffer)
    with pytest.raises(UsageError, match="needs a TownVecEnv"):
        model.learn(64)


def test_two_without_a_seed_are_not_twins() -> None:
    """Or what is evaluated on would be what was trained on."""
    one, two = TownVecEnv("town_day", 1), TownVecEnv("town_day", 1)
    assert one.vec.seed != two.vec.seed
    for env in (one, two):
        env.seed(5)
        env.reset()
    assert one.vec.seed == two.vec.seed == 5


def test_evaluation_counts_lives_only() -> None:
    """Stable-Baselines3 asks for Monitor and then takes the episodes of the infos; an empty row would be a life of one step."""
    env = TownVecEnv("newcomer", 1, seed=1, map="none")
    assert env.env_is_wrapped(Monitor) == [True] * 8
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=8)
    _, lengths = evaluate_policy(model, env, n_eval_episodes=24, return_episode_rewards=True)
    assert len(lengths) == 24
    assert min(lengths) > 1
    assert max(lengths) <= DAY


def test_maskable_ppo_finds_the_masks() -> None:
    from sb3_contrib.common.maskable import utils

    env = TownVecEnv("town_day", 1)
    assert utils.is_masking_supported(env)
    assert np.array_equal(utils.get_action_masks(env), env.action_masks())
    assert not env.has_attr("moves")


@pytest.mark.slow
def test_ppo_and_maskable_ppo_learn_on_it() -> None:
    from sb3_contrib import MaskablePPO

    options = {"n_steps": 16, "batch_size": 64, "n_epochs": 1, "device": "cpu", "rollout_buffer_class": LivingRolloutBuffer}
    for kind in (PPO, MaskablePPO):
        kind("MlpPolicy", TownVecEnv("town_day", 1), **options).learn(256)
