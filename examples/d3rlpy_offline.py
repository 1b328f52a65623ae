"""Somebody else's trainer: offline learning with d3rlpy from a capture, one episode per life (pip install d3rlpy)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import d3rlpy
import numpy as np
import torch

import townlet
from townlet.policy.replay_report import samples_of


def main(towns: int = 4, steps: int = 2000) -> float:
    with tempfile.TemporaryDirectory() as place:
        townlet.capture("town_day", Path(place) / "capture", policy="scripted", epsilon=0.1, towns=towns)
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
    bc.fit(
        dataset, n_steps=steps, n_steps_per_epoch=steps, show_progress=False, logger_adapter=d3rlpy.logging.NoopAdapterFactory()
    )
    logits = bc.impl.modules.imitator  # probabilities are masked here: d3rlpy knows no masks

    def choose(town: townlet.VectorTown) -> np.ndarray:
        rows = torch.from_numpy(town.features.reshape(-1, town.features.shape[-1]).copy())
        with torch.no_grad():
            scores = logits(rows).logits.numpy().reshape(town.masks.shape)
        return np.where(town.masks, scores, -np.inf).argmax(-1)

    scores = townlet.evaluate({"scripted": "scripted", "d3rlpy": townlet.own_policy(choose)}, towns=2)
    print(scores)
    return float(scores.card.cases[0].policy("d3rlpy").measures["return"].mean or 0.0)


if __name__ == "__main__":
    main()
