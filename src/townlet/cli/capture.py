"""`townlet capture`: run scenarios and keep what happened as replay samples."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from townlet.cli.common import (
    COUNT_OR_ZERO,
    MANY_TOWNS,
    NAME,
    NUMBER,
    PATH,
    POLICY,
    SHARE,
    TICKS,
    PathType,
    emit,
    engine_options,
    json_option,
    leave,
    note,
    options,
    progress,
    seed_option,
    set_option,
    spread_over,
)
from townlet.signals import StopFlag

if TYPE_CHECKING:
    from townlet.config.models import SimulationConfig
    from townlet.policy.capture import CaptureResult
    from townlet.types import Record


class Size(click.ParamType[int]):
    """Bytes: 1500000, 800K, 200M, 2G."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).strip().upper().removesuffix("B")
        unit = {"K": 10**3, "M": 10**6, "G": 10**9}.get(text[-1:], 1)
        digits = text[:-1] if unit > 1 else text
        if not digits.isdecimal() or int(digits) < 1:
            self.fail(f"{value!r} is not a size; write 1500000, 800K, 200M or 2G", param, ctx)
        return int(digits) * unit


capture_options = options(
    click.option("--output", type=PATH, help="New folder; it appears only when the capture is complete."),
    click.option("--policy", default="schedule", show_default=True, help=POLICY),
    click.option(
        "--epsilon",
        type=SHARE,
        help="Share of random choices of a script; by default training.bc.epsilon (0.05). With 0 every log-probability is 0.",
    ),
    click.option("--ticks", type=TICKS, help="Ticks per town; by default an episode."),
    click.option("--towns", type=MANY_TOWNS, default=1, show_default=True, help="Towns, each with its own draws."),
    click.option("--start", help="Clock time of the first tick, such as 06:30, or random."),
    click.option("--agent-id", "--agent", "agents", type=NAME, multiple=True, help="Keep this resident only; may be repeated."),
    click.option("--min-length", type=COUNT_OR_ZERO, default=0, help="Keep lives of at least this many decisions."),
    click.option("--min-reward", type=NUMBER, help="Keep lives whose rewards sum to at least this."),
    click.option("--prefix", type=NAME, default="rollout_sample", show_default=True, help="Beginning of the file names."),
    click.option("--compress", is_flag=True, help="Compress the arrays: smaller and slower."),
    click.option("--max-bytes", type=Size(), help="Largest size (800K, 200M, 2G); the oldest samples are deleted first."),
    click.option("--append", is_flag=True, help="Add new towns to an existing capture."),
    click.option("--overwrite", is_flag=True, help="Move an existing folder aside."),
    click.option(
        "--take",
        type=PathType(path_type=Path, exists=True, dir_okay=False),
        help="Capture a recorded take (a file of `townlet observe`): the residents that a person played, else all.",
    ),
    click.option("--auto-seed-agents", is_flag=True, help="Place residents in a scenario that has none."),
    click.option("--golden", is_flag=True, help="Refresh the committed samples and statistics instead."),
    click.option("--check", is_flag=True, help="With --golden: compare only; exit code 1 when they differ."),
    click.option("--golden-dir", type=PATH, default=Path("docs/samples"), show_default=True, help="Where they are."),
    engine_options,
    seed_option,
    set_option,
    json_option,
)


@click.command()
@click.argument("scenarios", nargs=-1, metavar="SCENARIO...")
@capture_options
def capture(scenarios: tuple[str, ...], **options: Any) -> None:
    """Run each SCENARIO (a config file or a shipped name) and keep one sample per resident and life.

    Ctrl-C stops early and keeps what was captured so far; the folder is complete in every case.

    \b
    Examples:
      townlet capture town_day --towns 8 --epsilon 0.05 --output runs/demos
      townlet capture queue_conflict --agent-id alice --output runs/one
      townlet capture --take alice.take --output runs/mine
      townlet capture --golden --check
    """
    _capture(scenarios, **options)


@click.command()
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...")
@capture_options
def capture_suite(scenarios: tuple[str, ...], **options: Any) -> None:
    """Capture many scenarios into one folder each; by default the five founding ones.

    \b
    Example:
      python scripts/capture_rollout_suite.py --ticks 600 --output runs/suite
    """
    from townlet.scenarios.shipped import FOUNDING

    _capture(scenarios or FOUNDING, **options)


def _capture(
    scenarios: tuple[str, ...],
    output: Path | None,
    golden: bool,
    check: bool,
    golden_dir: Path,
    overrides: tuple[str, ...],
    as_json: bool,
    agents: tuple[str, ...],
    min_length: int,
    min_reward: float | None,
    take: Path | None,
    engine: str | None,
    workers: int,
    address: str | None,
    **options: Any,
) -> None:
    from townlet.config.loader import load_config
    from townlet.policy.capture import CaptureOptions
    from townlet.policy.capture import capture as run
    from townlet.policy.capture_folder import SampleFilter

    if golden:
        _golden(golden_dir, check, as_json)
        return
    if not (scenarios or take) or output is None:
        what = "SCENARIO, such as town_day" if output is not None else "--output, the folder to make"
        raise click.UsageError(f"missing {what}", click.get_current_context())
    configs = [load_config(name, overrides) for name in scenarios]
    if take is not None:
        configs, agents, options = _of_take(take, configs, agents, options)
    keep = SampleFilter(agents=agents, min_length=min_length, min_reward=min_reward)
    chosen = CaptureOptions(keep=keep, **options)
    total = sum(chosen.ticks or config.scenario.episode_ticks for config in configs) * chosen.towns
    with StopFlag() as stop, progress("capturing", total) as advance:
        seen = [0]

        def report(done: int, _: int) -> None:
            stop.begun = True
            advance(done - seen[0])
            seen[0] = done

        where = spread_over(configs[0], engine, workers, address)
        result = run(configs, output, chosen, progress=report, stop=lambda: stop.asked != 0, where=where)
    emit(asdict(result), lambda: _result_text(result), as_json)
    if result.events_lost:
        note(f"{result.events_lost} events did not fit; raise world.event_capacity to keep them all")
    if result.interrupted:
        raise stop.interruption(f"after {result.ticks} of {total} town-ticks; {output} holds what was captured")


def _of_take(
    path: Path, configs: list[SimulationConfig], agents: tuple[str, ...], options: Record
) -> tuple[list[SimulationConfig], tuple[str, ...], Record]:
    """Configs, whose lives to keep, and options with who plays. SCENARIO is the take's town where that is not shipped."""
    from townlet.observer.studio import Studio
    from townlet.observer.take import read_take
    from townlet.sim.edits import Force, parse_edit

    take, studio = read_take(path), Studio()
    for config in configs:
        studio.add_config(config)
    edits = [parse_edit(change.do) for change in take.changes]
    played = tuple(dict.fromkeys(edit.name for edit in edits if isinstance(edit, Force)))
    of_take = {"policy": studio.player(take), "seed": take.seed, "ticks": take.ticks, "towns": 1, "start": None}
    return [studio.config_of(take)], agents or played, options | of_take


def _result_text(result: CaptureResult) -> str:
    from townlet.telemetry.drawing import short, table

    head = ("scenario", "samples", "decisions", "reward", "conflicts", "intensity", "waits", "rivalry")
    keys = ("samples", "transitions", "reward_sum", "queue_conflict_events", "queue_conflict_intensity_sum", "wait_count")
    rows = [(name, *(short(totals[key]) for key in (*keys, "rivalry_max_max"))) for name, totals in result.scenarios.items()]
    size = f"{result.bytes / 1e6:.1f} MB"
    left = f", {result.dropped} left out" if result.dropped else ""
    return "\n".join([*table(head, rows), f"{result.samples} samples, {size}{left} → {result.folder}"])


def _golden(folder: Path, check: bool, as_json: bool) -> None:
    from townlet.policy.golden import compare_goldens, refresh_goldens

    if check:
        differences = compare_goldens(folder)
        text = "\n".join(differences) or f"the captures agree with {folder}"
        emit({"folder": str(folder), "differences": differences}, text, as_json)
        leave(1 if differences else 0)
        return
    written = refresh_goldens(folder)
    emit({"folder": str(folder), "written": written}, "\n".join(f"{folder}/{name}" for name in written), as_json)
    note(f"{len(written)} files refreshed; commit them together with what changed them")
