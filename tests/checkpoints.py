"""Checkpoints that tests need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from townlet.config.models import SimulationConfig, config_hash
from townlet.envs.vector import VectorTown
from townlet.files import write_json
from townlet.policy.checkpoint import Checkpoint, save_checkpoint
from townlet.policy.inference import weight_shapes
from townlet.policy.network import NetworkSpec
from townlet.sealed import write_sealed


def untrained(folder: Path, vec: VectorTown, actions: int | None = None, **about: str) -> Path:
    """A checkpoint of random weights for the observations of a town."""
    spec = NetworkSpec.of(vec.spec, vec.config.policy.network, vec.config.ppo)
    spec = replace(spec, actions=actions or spec.actions)
    rng = np.random.default_rng(4)
    weights = {name: rng.normal(0.0, 0.3, shape).astype(np.float32) for name, shape in weight_shapes(spec).items()}
    weights = {name: np.abs(array) if name.endswith("var") else array for name, array in weights.items()}
    save_checkpoint(folder, Checkpoint(weights, {"network": spec.to_json(), **about}))
    return folder


def write_run(folder: Path, config: SimulationConfig, **about: object) -> None:
    """The card and the config of a run that has made nothing yet."""
    card = {"run_id": "0123456789abcdef", "mode": "rollout", "epochs": 3, "seed": config.seed, "config_id": config.config_id}
    write_json(folder / "config.json", config.model_dump(mode="json"))
    write_sealed(folder / "run.json", card | {"config_hash": config_hash(config)} | about)
