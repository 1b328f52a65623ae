"""`townlet accept`: acceptance cycles and their reports."""

from __future__ import annotations

from pathlib import Path

import click

from townlet.cli.common import PATH, Whole, emit, engine_options, json_option, leave, note, set_option, spread_over


@click.command()
@click.argument("scenarios", nargs=-1)
@click.option("--cycles", type=Whole(1, 10_000), default=10, show_default=True, help="Capture → PPO cycles per scenario.")
@click.option("--soak-cycles", type=Whole(0, 10_000), default=20, show_default=True, help="Cycles of the long soak; 0 for none.")
@click.option("--artifacts", type=PATH, default=Path("artifacts/phase4"), show_default=True, help="Folder of logs and summaries.")
@click.option("--docs", type=PATH, default=Path("docs"), show_default=True, help="Folder of the three documents.")
@engine_options
@set_option
@json_option
def accept(
    scenarios: tuple[str, ...],
    cycles: int,
    soak_cycles: int,
    artifacts: Path,
    docs: Path,
    engine: str | None,
    workers: int,
    address: str | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run the acceptance cycles of SCENARIOS (by default the founding five) and write the reports; exit code 1 when one fails.

    \b
    Example:
      townlet accept --cycles 10
    """
    from townlet.config.loader import load_config
    from townlet.studies.acceptance import OVERRIDES, PRIMARY
    from townlet.studies.acceptance import accept as run

    result = run(
        scenarios or PRIMARY,
        cycles=cycles,
        soak_cycles=soak_cycles,
        artifacts=artifacts,
        docs=docs,
        overrides=(*OVERRIDES, *overrides),
        where=spread_over(load_config((scenarios or PRIMARY)[0], overrides), engine, workers, address),
        say=note,
    )
    lines = [f"{'met ' if criterion.met else 'OPEN'}  {criterion.name}: {criterion.evidence}" for criterion in result.criteria]
    lines.append("accepted" if result.accepted else "not accepted")
    emit(result.model_dump(mode="json"), "\n".join(lines), as_json)
    leave(0 if result.accepted else 1)
