"""Replay samples without a town: random, valid, and the same for the same seed. For benchmarks, tests and examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from townlet import files
from townlet.config.needs import THREE
from townlet.observations.spec import ObservationSpec
from townlet.policy.capture_folder import CaptureWriter
from townlet.policy.manifest import PREFIX
from townlet.policy.rollout import Life, SampleSource, frames_to_replay_sample, next_sample_id
from townlet.policy.sample import CaptureNote, PolicyNote, ReplaySample
from townlet.policy.trajectory import Trajectory
from townlet.world.actions import Catalogue
from townlet.world.state import EVENT

AFFORDANCES = ("use_shower", "cook_meal", "eat_meal", "buy_meal", "rest_sleep", "sit")


def generated_source(variant: str = "hybrid", *, values: bool = True) -> SampleSource:
    options = Catalogue("option", AFFORDANCES)
    return source_of_tables(options, ObservationSpec(variant, options.names, AFFORDANCES, tuple(THREE)), values=values)


def source_of_tables(actions: Catalogue, spec: ObservationSpec, *, values: bool = True) -> SampleSource:
    """Samples that look as if they came from a town with these actions and observations."""
    policy = PolicyNote(kind="generated", values="critic" if values else "none")
    return SampleSource.describe(spec, actions, 10, policy, CaptureNote(config_id="generated", scenario="generated"), PREFIX)


def generated_sample(source: SampleSource, seed: int, timesteps: int = 144) -> ReplaySample:
    """A life of random observations and legal random actions."""
    rng = np.random.default_rng(seed)
    T, F, A = timesteps, len(source.template["feature_names"]), source.template["action_dim"]
    shape = source.template["map_shape"]
    masks = rng.random((T + 1, A)) < 0.5
    masks[:, 0] = True
    actions = np.argmax(np.where(masks, rng.random((T + 1, A)), -1.0), axis=1)[:T]
    frames = Trajectory(
        features=rng.random((T + 1, F), np.float32),
        maps=rng.integers(0, 2, (T + 1, *shape), np.uint8) if shape else None,
        masks=masks,
        actions=actions,
        log_probs=-rng.random(T, np.float32),
        values=rng.standard_normal(T + 1, np.float32),
        rewards=rng.standard_normal(T, np.float32),
        terminated=np.zeros(T, np.bool_),
        truncated=np.arange(T) == T - 1,
        expert=actions.copy(),
    )
    who = Life(agent_id=f"resident_{seed % 8}", town=seed // 8, episode=0, life=0, first_tick=0)
    name = next_sample_id(source.prefix, who.agent_id, source.numbers)
    return frames_to_replay_sample(frames, who, source, name, np.empty(0, EVENT))


def write_generated(folder: Path, count: int, *, timesteps: int = 144, source: SampleSource | None = None) -> int:
    """A capture folder of generated samples; returns its bytes."""
    writer = CaptureWriter(files.make_folder(folder), PREFIX)
    source = source or generated_source()
    for seed in range(count):
        writer.put(generated_sample(source, seed, timesteps))
    writer.close()
    return writer.nbytes
