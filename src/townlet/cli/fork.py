"""`townlet fork`: counterfactuals of one moment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from townlet.cli.common import TICKS, Whole, at_option, emit, json_option, note, set_option, tick_of
from townlet.errors import UsageError

if TYPE_CHECKING:
    from townlet.dto.studies import ForkResult
    from townlet.studies.fork import Moment

SHOWN = ("return", "exits", "conflicts", "intensity", "quarrels", "wait_mean", "wait_p95", "self_sufficiency", "attendance")


@click.command()
@click.argument("source", metavar="SNAPSHOT|SCENARIO")
@click.option(
    "--edit", "edits", multiple=True, help="What to change; may be repeated. Without an edit every effect is exactly 0."
)
@click.option(
    "--futures",
    type=Whole(1, 100_000),
    default=64,
    show_default=True,
    help="Futures; each is simulated with and without the edit.",
)
@click.option("--ticks", type=TICKS, help="Length of a future; by default to the end of the episode.")
@at_option
@click.option("--policy", default="scripted", show_default=True, help="Who decides in both arms.")
@set_option
@json_option
def fork(
    source: str,
    edits: tuple[str, ...],
    futures: int,
    ticks: int | None,
    at: str | None,
    policy: str,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """What if? Simulate the future of a moment with and without an edit, on the same random draws, and compare.

    \b
    Edits:
      objects += KIND@COLUMN,ROW     objects -= ID     conflict.quarrel_ticks = 10
      residents -= NAME              newcomer          perturb blackout 60
      tie A~B rivalry = 0            resident NAME.wallet = 20

    After `residents -= NAME` a newcomer takes the place; with `lifecycle.newcomers_per_day = 0` it stays empty.

    \b
    Examples:
      townlet fork noon.npz --edit "objects += stove@11,10" --futures 64
      townlet fork town_day --at 12:00 --edit "conflict.quarrel_ticks = 20"
      townlet fork town_day --edit "residents -= bob" --futures 8
    """
    from townlet.studies.fork import fork as compare

    moment = _moment(source, at, policy, overrides)
    arms = "with and without the edit" if edits else "once, because there is no --edit"
    said = f"{futures} futures from tick {moment.tick}, each simulated {arms}"
    result = compare(moment, edits, futures=futures, ticks=ticks, policy=policy, begin=lambda: note(said))
    emit(result.model_dump(mode="json"), lambda: fork_text(result), as_json)


def fork_text(result: ForkResult) -> str:
    what = "; ".join(result.edits) or "no edit"
    lines = [f"{what}: {result.futures} futures of {result.ticks} ticks from tick {result.tick}"]
    lines.append(f"{'':18}{'as it was':>12}{'edited':>12}{'effect':>12}   {100 * result.level:g} % interval")
    for name in SHOWN:
        if name in result.effects:
            found = result.effects[name]
            effect = found.effect
            ends = "one future" if effect.low is None else f"{effect.low:+.3f} … {effect.high:+.3f}"
            lines.append(f"{name:18}{found.before.mean:12.3f}{found.after.mean:12.3f}{effect.difference:+12.3f}   {ends}")
    return "\n".join(lines)


def _moment(source: str, at: str | None, policy: str, overrides: tuple[str, ...]) -> Moment:
    from townlet.config.loader import load_config
    from townlet.studies.fork import moment_of_scenario, moment_of_snapshot

    path = Path(source)
    if path.is_file() and path.suffix not in (".yaml", ".yml"):
        if at is not None:
            raise UsageError(f"{source} is a snapshot, which is a moment already; leave out --at {at}")
        return moment_of_snapshot(path)
    return moment_of_scenario(source, tick_of(load_config(source, overrides), at), policy, overrides)
