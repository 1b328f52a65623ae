"""Replay samples without a town: random, valid, and the same for the same seed. For benchmarks, tests and examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from townlet import files
from townlet.config.needs import THREE
from townlet.observations.spec import ObservationSpec
from townlet.policy.frames import Frames
from townlet.policy.manifest import PREFIX
from townlet.policy.sample import CaptureNote, PolicyNote, ReplaySample
from townlet.policy.shelf import Shelf
from townlet.policy.source import Source, frames_to_replay_sample
from townlet.world.actions import Catalogue, catalogue
from townlet.world.state import EVENT, TERMS

AFFORDANCES = ("use_shower", "cook_meal", "eat_meal", "buy_meal", "rest_sleep", "sit")


def generated_source(variant: str = "hybrid", *, values: bool = True, prefix: str = PREFIX) -> Source:
    options = catalogue("option", AFFORDANCES)
    return source_of_tables(
        options, ObservationSpec(variant, options.names, AFFORDANCES, tuple(THREE)), values=values, prefix=prefix
    )


def source_of_tables(actions: Catalogue, spec: ObservationSpec, *, values: bool = True, prefix: str = PREFIX) -> Source:
    """Samples that look as if they came from a town with these actions and observations."""
    policy = PolicyNote(kind="generated", values="critic" if values else "none")
    return Source.describe(spec, actions, 10, policy, CaptureNote(config_id="generated", scenario="generated"), prefix)


def generated_sample(
    source: Source, seed: int, timesteps: int = 144, *, agent: str | None = None, expert: bool = True
) -> ReplaySample:
    """A life of random observations and legal random actions."""
    rng, last = np.random.default_rng(seed), np.random.default_rng((seed, 1))
    T, F, A = timesteps, len(source.template["feature_names"]), source.template["action_dim"]
    shape = source.template["map_shape"]
    masks = rng.random((T, A)) < 0.5
    masks[:, 0] = True
    pick = rng.random((T, A))
    frames = Frames(
        agent_id=agent or f"resident_{seed % 8}",
        town=seed // 8,
        episode=0,
        life=0,
        first_tick=0,
        features=rng.random((T, F), np.float32),
        maps=rng.integers(0, 2, (T, *shape), np.uint8) if shape else None,
        masks=masks,
        last_features=last.random(F, np.float32),
        last_map=last.integers(0, 2, shape, np.uint8) if shape else None,
        last_mask=last.random(A) < np.where(np.arange(A) == 0, 1.0, 0.5),
        actions=np.argmax(np.where(masks, pick, -1.0), axis=1),
        log_probs=-rng.random(T, np.float32),
        values=rng.standard_normal(T + 1, np.float32),
        rewards=rng.standard_normal(T, np.float32),
        terms=rng.standard_normal(len(TERMS)),
        terminated=np.zeros(T, np.bool_),
        truncated=np.arange(T) == T - 1,
        expert=np.argmax(np.where(masks, pick, -1.0), axis=1) if expert else None,
    )
    number = source.numbers.get(frames.agent_id, 0)
    source.numbers[frames.agent_id] = number + 1
    return frames_to_replay_sample(frames, source, f"{source.prefix}_{frames.agent_id}_{number:03d}", np.empty(0, EVENT))


def write_generated(
    folder: Path, count: int, *, timesteps: int = 144, variant: str = "hybrid", seed: int = 0, source: Source | None = None
) -> int:
    """A capture folder of generated samples; returns its bytes."""
    shelf = Shelf(files.make_folder(folder), PREFIX)
    source = source or generated_source(variant)
    for number in range(count):
        shelf.put(generated_sample(source, seed + number, timesteps))
    shelf.close()
    return shelf.nbytes
