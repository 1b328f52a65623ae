#!/usr/bin/env python
"""Train, or only read replay data: `run_training.py CONFIG [flags]`. With replay data and without --train-ppo it only reads."""

from __future__ import annotations

from typing import Any

import click

from townlet.cli.app import run
from townlet.cli.train import founding_flags, train_command


@click.command()
@click.argument("config", required=False)
@founding_flags
def run_training(config: str | None, **flags: Any) -> None:
    """Train in the town of CONFIG, or read its replay data.

    \b
    Example:
      python scripts/run_training.py configs/examples/poc_hybrid.yaml --replay-manifest docs/samples/replay_manifest.json
    """
    train_command(config, flags, always_train=False)


if __name__ == "__main__":
    run(run_training, name="run_training.py")
