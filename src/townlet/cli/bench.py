"""`townlet bench`: how fast the parts are, in rows of {name, value, unit, bar, ok}."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click

from townlet.cli.common import FILE, PICTURE, Group, Whole, emit, json_option, leave, note
from townlet.errors import UsageError

if TYPE_CHECKING:
    from townlet.types import Record

check_option = click.option("--check", is_flag=True, help="Exit with 1 when a row is below its bar.")
ONE_LINE = 112  # columns of a row
PEERS = Path("benchmarks")  # beside the package in the source tree, not part of it: {sim,train}_peers.py


@click.group(cls=Group)
def bench() -> None:
    """Measure speed. Each row has its bar; the bars hold for an idle machine with two cores.

    \b
    Example:
      townlet bench sim --json
    """


@bench.command()
@click.option("--short", is_flag=True, help="Quick: fewer ticks, no large town, no starts.")
@click.option("--compile", "compiles", is_flag=True, help="Also compile the kernels five times, with an empty cache.")
@click.option("--peers", is_flag=True, help="Also measure JaxMARL's environments in this run. Needs the extra bench.")
@check_option
@json_option
def sim(short: bool, compiles: bool, peers: bool, check: bool, as_json: bool) -> None:
    """Measure the simulator. Resident-ticks a second, growth from 80 to 8,000 residents, day 7 against day 2, starts.

    \b
    Example:
      townlet bench sim --short
    """
    from townlet.bench.sim import SEEN_BAR, sim_rows

    script = _peers("sim", "comparing simulators", "jaxmarl") if peers else None
    rows = sim_rows(say=note, short=short)
    if script is not None:
        rows += _peer_rows(script, next(row["value"] for row in rows if row["bar"] == SEEN_BAR))
    if compiles:
        note("compiling in an empty cache")
        rows.append(_compile_row())
    _report(rows, check, as_json)


@bench.command()
@click.option("--output", type=PICTURE, help="Also draw the chart: a .png or .svg file.")
@click.option("--short", is_flag=True, help="Quick: small batches, each thing once.")
@json_option
def roof(output: Path | None, short: bool, as_json: bool) -> None:
    """Measure how close each stage is to this machine's limit. Simulate, observe, mask, infer, advantage, update.

    The last three need the extra ml; without it the first three are measured.

    \b
    Example:
      townlet bench roof --output roof.svg
    """
    from townlet.bench.roof import draw_roof, measure_machine, roof_rows, town_stages, training_stages
    from townlet.optional import installed

    note("memory and arithmetic of one core")
    machine = measure_machine()
    note("the town")
    stages = town_stages(towns=8, decisions=12, repeats=1) if short else town_stages()
    if installed("torch"):
        note("the network")
        stages += training_stages(steps=8, towns=8, repeats=1) if short else training_stages()
    if output is not None:
        draw_roof(machine, stages, output)
        note(f"drawn: {output}")
    _report(roof_rows(machine, stages), False, as_json)


@bench.command()
@click.option("--short", is_flag=True, help="Quick: one round instead of five, without the time to the scripted return.")
@check_option
@json_option
def train(short: bool, check: bool, as_json: bool) -> None:
    """Compare our PPO with Stable-Baselines3 and CleanRL's. Needs the extras ml and bench.

    The comparison is in benchmarks/train_peers.py of the source tree. It takes some minutes.

    \b
    Example:
      townlet bench train --json
    """
    script = _peers("train", "comparing trainers", "torch", "stable_baselines3", "sb3_contrib", "supersuit")
    sys.path.insert(0, str(script.parent.resolve()))  # where its neighbours stand
    _report(import_module(script.stem).train_rows(say=note, short=short), check, as_json)


def _peers(subject: str, purpose: str, *packages: str) -> Path:
    """The comparison with others' programs, once all they need is there."""
    from townlet.optional import check_installed

    script = PEERS / f"{subject}_peers.py"
    if not script.is_file():
        raise UsageError(f"there is no {script} here; run this in a clone of Townlet's source tree")
    for package in packages:
        check_installed(package, purpose)
    return script


def _peer_rows(script: Path, ours: float) -> list[dict[str, object]]:
    """In a process of their own: they set up threads and write on stdout when they are imported."""
    from townlet.bench.rows import row

    note("JaxMARL's environments")
    done = subprocess.run([sys.executable, str(script)], check=True, stdout=subprocess.PIPE, text=True)
    speeds = json.loads(done.stdout.splitlines()[-1])
    rows = [row(name, speed, "agent-steps/s") for name, speed in speeds.items()]
    return [*rows, row("ours with observations every tick over the fastest peer", ours / max(speeds.values()), "×", 1.0)]


@bench.command()
@click.option("--megabytes", type=Whole(1, 100_000), help="Generated data to read; 2000 by default, 100 with --short.")
@click.option("--short", is_flag=True, help="Quick: 100 MB, each thing once.")
@check_option
@json_option
def replay(megabytes: int | None, short: bool, check: bool, as_json: bool) -> None:
    """Measure replay data: reading, streaming, recording, writing.

    The generated samples are in a temporary folder (set TMPDIR to choose where) and are removed at the end.

    \b
    Example:
      townlet bench replay --short --json
    """
    from townlet.bench.replay import FULL, SHORT, generate, replay_rows
    from townlet.bench.rows import calibration, row
    from townlet.optional import installed

    size = megabytes * 1_000_000 if megabytes else SHORT if short else FULL
    with tempfile.TemporaryDirectory(prefix="townlet-bench-") as place:
        folder = Path(place) / "data"
        note(f"generating {size / 1e6:.0f} MB of samples in {place}")
        made = generate(folder, size)
        rows = [calibration(), row("generated samples", made / 1e6, "MB")]
        note("reading, writing, recording")
        rows += replay_rows(folder, repeats=1 if short else 5)
        if installed("torch"):
            note("training from memory and from the stream")
            from townlet.bench.replay import ppo_rows

            rows += ppo_rows(folder, repeats=1 if short else 3)
    _report(rows, check, as_json)


@bench.command()
@click.option("--log", type=FILE, help="Log of a run, for the share of its time.")
@check_option
@json_option
def telemetry(log: Path | None, check: bool, as_json: bool) -> None:
    """Measure training logs: writing and validating records.

    \b
    Example:
      townlet bench telemetry --json
    """
    from townlet.bench.rows import calibration
    from townlet.bench.telemetry import telemetry_rows

    _report([calibration(), *telemetry_rows(log=log)], check, as_json)


def _compile_row() -> Record:
    from townlet.bench.rows import child_seconds, row
    from townlet.bench.sim import COMPILE_BAR, REPEATS

    spent = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as place:
            spent.append(child_seconds(["run", "town_day", "--ticks", "10"], {**os.environ, "XDG_CACHE_HOME": place}))
    return row("townlet run town_day, first start (compiling)", median(spent), "s", COMPILE_BAR, smaller=True)


def _report(rows: list[Record], check: bool, as_json: bool) -> None:
    wide = not sys.stdout.isatty() or shutil.get_terminal_size().columns >= ONE_LINE
    emit(rows, lambda: "\n".join(_line(row, wide) for row in rows), as_json)
    leave(1 if check and not all(row["ok"] for row in rows) else 0)


def _line(row: Record, wide: bool) -> str:
    """A row of a table; on a narrow terminal two lines."""
    bar = "" if row["bar"] is None else f"bar {row['bar']:,g}"
    state = "    " if row["bar"] is None else "ok  " if row["ok"] else "LOW "
    more = ", ".join(
        f"{key.replace('_', ' ')} {value:.2f}" if isinstance(value, float) else f"{key.replace('_', ' ')} {value}"
        for key, value in row.items()
        if key not in ("name", "value", "unit", "bar", "ok")
    )
    value = f"{row['value']:,.0f}" if abs(row["value"]) >= 1000 else f"{row['value']:.3g}"
    if wide:
        return f"{state}{row['name']:<58}{value:>14} {row['unit']:<18}{bar:<16}{more}".rstrip()
    return f"{state}{row['name']}\n        " + ", ".join(filter(None, (f"{value} {row['unit']}", bar, more)))
