"""Gymnasium environments through the learner that trains the town: the same acting, advantages and update."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from townlet import files
from townlet.config.learning import PPOConfig
from townlet.policy.network import NetworkSpec
from townlet.policy.training import estimates
from townlet.policy.training.learner import PPOLearner
from townlet.policy.trajectory import Trajectory

MakeEnv = Callable[[], gym.Env[Any, Any]]
Masks = Callable[[SyncVectorEnv], NDArray[np.uint8]]
ACT_STREAM = 11
ZOO: dict[str, Any] = {  # rl-zoo's for CartPole; learning rate and clip fall in a straight line
    "learning_rate": 1e-3,
    "lr_anneal": True,
    "clip_param": 0.2,
    "clip_anneal": True,
    "gamma": 0.98,
    "gae_lambda": 0.8,
    "entropy_coef": 0.0,
    "value_loss_coef": 0.5,
    "max_grad_norm": 0.5,
    "value_clip": None,
}


@dataclass(frozen=True)
class Job:
    """What one seed of a benchmark does."""

    make: MakeEnv
    spec: NetworkSpec
    ppo: PPOConfig
    steps: int  # environment steps in all
    horizon: int  # steps per environment and collection
    environments: int = 8
    masks: Masks | None = None  # by default every action is allowed


def uniform_draws(seed: int, stream: int, step: int, length: int) -> NDArray[np.float64]:
    """`length` draws in [0, 1) for one decision step, from a counter keyed by what they are for."""
    words = np.array([seed % 2**64, stream], np.uint64)
    counter = np.array([0, 0, step, 0], np.uint64)
    return np.random.Generator(np.random.Philox(key=words, counter=counter)).random(length)


def everything_allowed(envs: SyncVectorEnv, actions: int) -> NDArray[np.uint8]:
    return np.ones((envs.num_envs, actions), np.uint8)


def train(job: Job, seed: int) -> tuple[PPOLearner, list[dict[str, float]]]:
    """A learner after `job.steps` steps, and its curve: steps, mean return of the episodes that ended, kl_k3, value loss."""
    envs = SyncVectorEnv([job.make] * job.environments, autoreset_mode=AutoresetMode.NEXT_STEP)
    learner = PPOLearner(job.spec, job.ppo, seed=seed)
    width, horizon = job.environments, job.horizon
    rows = _rows(horizon, width, job.spec)
    observation, _ = envs.reset(seed=seed)
    state = learner.initial_state(width)
    active, starts = np.ones(width, bool), np.ones(width, bool)
    running, finished, curve = np.zeros(width), [], []
    updates = job.steps // (horizon * width)
    for update in range(updates):
        first_state = state.copy()
        for t in range(horizon):
            features = observation.astype(np.float32)
            masks = job.masks(envs) if job.masks else everything_allowed(envs, job.spec.actions)
            draws = uniform_draws(seed, ACT_STREAM, update * horizon + t, width)
            acted = learner.act(features, None, masks, draws=draws, state=state, starts=starts)
            observation, reward, terminated, truncated, _ = envs.step(acted.actions)
            seen = (features, masks, active, starts, acted.actions, acted.log_probs, acted.values, reward, terminated, truncated)
            for name, value in zip(rows, seen, strict=True):
                rows[name][t] = value
            ended = active & (terminated | truncated)
            running += reward * active
            finished += running[ended].tolist()
            running[ended] = 0.0
            state = acted.state
            starts = ~active  # the step that follows an end resets the environment; the row after it is a first one
            active = ~ended
        last = learner.forward(observation.astype(np.float32), None, state=state, starts=starts)[1]
        of_gae = [rows[name] for name in ("rewards", "values")]
        ends = [rows[name] for name in ("terminated", "truncated", "active")]
        advantages, returns = estimates.gae(*of_gae, last, *ends, gamma=job.ppo.gamma, gae_lambda=job.ppo.gae_lambda)
        data = {name: value for name, value in rows.items() if name not in ("terminated", "truncated")}
        batch = Trajectory(**data, advantages=advantages, returns=returns, state=first_state)
        stats = learner.update(batch, progress=update / updates)
        if update % max(1, updates // 50) == 0 or update == updates - 1:
            mean = float(np.mean(finished[-20:])) if finished else 0.0
            steps = (update + 1) * horizon * width
            curve.append({"steps": steps, "return": mean, "kl_k3": stats.kl_k3, "loss_value": stats.loss_value})
    envs.close()
    return learner, curve


def evaluate(learner: PPOLearner, job: Job, seed: int, episodes: int = 20) -> list[float]:
    """Returns of greedy episodes, one environment each."""
    envs = SyncVectorEnv([job.make] * episodes, autoreset_mode=AutoresetMode.NEXT_STEP)
    observation, _ = envs.reset(seed=1_000_001 + 1_000 * seed)
    state = learner.initial_state(episodes)
    running, alive = np.zeros(episodes), np.ones(episodes, bool)
    while alive.any():
        masks = job.masks(envs) if job.masks else everything_allowed(envs, job.spec.actions)
        acted = learner.act(observation.astype(np.float32), None, masks, state=state)
        observation, reward, terminated, truncated, _ = envs.step(acted.actions)
        running += reward * alive
        alive &= ~(terminated | truncated)
        state = acted.state
    envs.close()
    return [float(value) for value in running]


def asked(description: str | None, name: str) -> argparse.Namespace:
    """Seeds, the file of results and the folder of finished seeds, as the command line gives them."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / f"{name}.json")
    parser.add_argument("--kept", type=Path, default=Path("runs/learning"), help="folder of finished seeds")
    return parser.parse_args()


def publish(output: Path, job: Job, result: dict[str, Any], arms: dict[str, Any], told: str) -> NoReturn:
    files.write_json(output, {**result, "ppo": job.ppo.model_dump(), "network": job.spec.to_json(), **arms})
    print(f"{'ok' if result['ok'] else 'NOT OK'}: {told}")
    raise SystemExit(0 if result["ok"] else 1)


def run_seeds(job: Job, seeds: Sequence[int], kept: Path) -> list[dict[str, Any]]:
    """One row per seed. A seed that is finished is kept in a file of its own, so that a run that was stopped goes on."""
    out = []
    for seed in seeds:
        settings = [job.spec.to_json(), job.ppo.model_dump(), job.steps, job.horizon, job.environments, job.masks is None, seed]
        place = kept / f"{files.sha256_bytes(json.dumps(settings).encode())[:16]}.json"
        if not place.exists():
            begin = process_time()
            learner, curve = train(job, seed)
            returns = evaluate(learner, job, seed)
            row = {"seed": seed, "mean": float(np.mean(returns)), "returns": returns, "curve": curve}
            files.write_json(place, {**row, "processor_seconds": round(process_time() - begin)})
        out.append(files.read_json(place, limit=1 << 24))
        print(f"seed {seed}: mean return {out[-1]['mean']:.1f}, {out[-1]['processor_seconds']} s of processor time", flush=True)
    return out


def _rows(horizon: int, width: int, spec: NetworkSpec) -> dict[str, NDArray[Any]]:
    shape = (horizon, width)
    rows: dict[str, NDArray[Any]] = {
        "features": np.zeros((*shape, spec.features), np.float32),
        "masks": np.zeros((*shape, spec.actions), np.uint8),
        "active": np.zeros(shape, np.uint8),
        "starts": np.zeros(shape, np.uint8),
        "actions": np.zeros(shape, np.int64),
    }
    rows |= {name: np.zeros(shape, np.float32) for name in ("log_probs", "values", "rewards")}
    return rows | {name: np.zeros(shape, np.uint8) for name in ("terminated", "truncated")}
