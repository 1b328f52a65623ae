"""Somebody else's trainer: offline learning with d3rlpy from a capture, one episode per life (pip install d3rlpy)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import d3rlpy
import numpy as np

import townlet
from townlet.policy.replay import samples_of


def main(towns: int = 8, rounds: Iterable[int] = range(10), scenario: str = "town_day") -> tuple[float, Any]:
    with tempfile.TemporaryDirectory() as place:
        townlet.capture(scenario, Path(place) / "capture", policy="scripted", epsilon=0.1, towns=towns)
        lives = [sample for sample in samples_of(Path(place) / "capture") if sample.steps > 1]
    dataset = d3rlpy.dataset.MDPDataset(
        observations=np.concatenate([life.features[: life.steps] for life in lives]),
        actions=np.concatenate([life.actions for life in lives])[:, None],
        rewards=np.concatenate([life.rewards for life in lives])[:, None],
        terminals=np.concatenate([life.terminated for life in lives]).astype(np.float32),
        timeouts=np.concatenate([np.arange(life.steps) == life.steps - 1 for life in lives])
        & ~np.concatenate([life.terminated for life in lives]),
        action_size=lives[0].meta.action_dim,
        action_space=d3rlpy.ActionSpace.DISCRETE,
    )
    bc = d3rlpy.algos.DiscreteBCConfig(batch_size=256).create()
    quiet = d3rlpy.logging.NoopAdapterFactory()
    epochs = bc.fitter(dataset, n_steps=10**9, n_steps_per_epoch=200, show_progress=False, logger_adapter=quiet)
    for _, (_, figures) in zip(rounds, epochs):
        loss = figures["loss"]
    print(f"loss {loss:.3f} on {len(lives)} lives of the script")
    return loss, lambda rows, masks: bc.impl.modules.imitator(rows.flatten(0, -2)).logits


if __name__ == "__main__":
    main()
