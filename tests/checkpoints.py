"""Checkpoints that tests need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from townlet.envs.vector import VectorTown
from townlet.policy.checkpoint import Checkpoint, save_checkpoint
from townlet.policy.inference import weight_shapes
from townlet.policy.network import NetworkSpec


def untrained(folder: Path, vec: VectorTown, actions: int | None = None, **about: str) -> Path:
    """A checkpoint of random weights for the observations of a town."""
    spec = NetworkSpec.of(vec.spec, vec.config.policy.network, vec.config.ppo)
    spec = replace(spec, actions=actions or spec.actions)
    rng = np.random.default_rng(4)
    weights = {name: rng.normal(0.0, 0.3, shape).astype(np.float32) for name, shape in weight_shapes(spec).items()}
    weights = {name: np.abs(array) if name.endswith("var") else array for name, array in weights.items()}
    save_checkpoint(folder, Checkpoint(weights, {"network": spec.to_json(), **about}))
    return folder
