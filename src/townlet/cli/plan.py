"""`townlet plan`: how well a town can do."""

from __future__ import annotations

from pathlib import Path

import click

from townlet.cli.common import PATH, Whole, days_option, emit, json_option, note, set_option, window_option
from townlet.errors import UsageError


@click.command()
@click.argument("scenario")
@click.option("--base", default="scripted", show_default=True, help="Policy that the plan begins with: a name or a checkpoint.")
@days_option
@click.option("--towns", type=Whole(1, 1000), default=1, show_default=True, help="Towns, each planned on its own.")
@click.option("--generations", type=Whole(1, 10_000), default=40, show_default=True, help="Rounds per 36 decisions.")
@click.option("--copies", type=Whole(2, 4096), default=32, show_default=True, help="Copies of the town in a round.")
@click.option(
    "--futures",
    type=Whole(0, 1024),
    default=0,
    help="Plan over this many sampled futures; 0: the planner knows the future.",
)
@window_option
@click.option("--output", type=PATH, help="Write the planned towns as a capture into this folder.")
@click.option("--ends", type=PATH, help="Add both ends of the score to this file; `evaluate --ends` reads it.")
@set_option
@json_option
def plan(
    scenario: str,
    base: str,
    days: int,
    towns: int,
    generations: int,
    copies: int,
    futures: int,
    window: int,
    output: Path | None,
    ends: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Improve the decisions of a base policy in SCENARIO by trying changes in the simulator.

    The same command gives the same plan.

    \b
    Examples:
      townlet plan town_day --base scripted --days 1 --output runs/planned
      townlet plan my_town.yaml --ends ends.json
      townlet evaluate scripted --scenario my_town.yaml --ends ends.json
    """
    from townlet.evaluation.score_scale import save_scales
    from townlet.evaluation.suites import Case
    from townlet.policy.capture import CaptureOptions, capture
    from townlet.studies.planner import Effort, plan_case

    if output is not None and output.exists():
        raise UsageError(f"{output} already exists; choose another folder")
    case = Case(scenario, scenario, towns=towns, days=days, overrides=overrides)
    effort = Effort(generations=generations, copies=copies, futures=futures)
    words = f"townlet plan {scenario} --base {base} --days {days} --towns {towns} --generations {generations} --copies {copies}"
    words += "".join(f" --set {word}" for word in overrides)
    found = plan_case(case, base, window=window, effort=effort, command=words, say=note)
    if output is not None:
        options = CaptureOptions(towns=towns, seed=found.seed, policy=found.policy)
        result = capture([case.town()], output, options)
        note(f"{result.samples} samples written to {output}")
    if ends is not None:
        save_scales(ends, [found.ends])
        note(f"ends written to {ends}")
    value = found.ends.model_dump(mode="json") | {"values": [one.value for one in found.plans]}
    text = (
        f"{scenario}, {towns} towns × {days} days: random {found.ends.random:.3f}, {base} {found.ends.base:.3f}, "
        f"planned {found.ends.planner:.3f}, bound {found.ends.bound:.3f} per resident-day"
    )
    emit(value, text, as_json)
