#!/usr/bin/env python
"""Alternating capture → PPO cycles of one scenario: `run_mixed_soak.py CONFIG [--cycles N --output DIR]`."""

from __future__ import annotations

from pathlib import Path

import click

from townlet.cli.app import run
from townlet.cli.common import PATH, Whole, emit, json_option, leave, note, set_option


@click.command()
@click.argument("config")
@click.option("--cycles", type=Whole(1), default=10, show_default=True, help="Capture → PPO cycles.")
@click.option("--output", type=PATH, help="Folder of the logs; by default artifacts/phase4/SCENARIO_soak.")
@set_option
@json_option
def run_mixed_soak(config: str, cycles: int, output: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Soak CONFIG; exit code 1 when the log does not validate or breaks off, the network is lost on the way, or memory grows.

    \b
    Example:
      python scripts/run_mixed_soak.py queue_conflict --cycles 10
    """
    from townlet.config.loader import load_config
    from townlet.studies.acceptance import OVERRIDES, judge
    from townlet.studies.soak import run_soak

    town = load_config(config, (*OVERRIDES, *overrides))
    folder = output or Path("artifacts/phase4") / f"{town.scenario.name or town.config_id}_soak"
    result = run_soak(town, folder, cycles=cycles, say=note)
    criteria = judge([result])[1:6]
    lines = [f"{'met ' if criterion.met else 'OPEN'}  {criterion.name}: {criterion.evidence}" for criterion in criteria]
    emit(result.model_dump(mode="json"), "\n".join(lines), as_json)
    leave(0 if all(criterion.met for criterion in criteria) else 1)


if __name__ == "__main__":
    run(run_mixed_soak, name="run_mixed_soak.py")
