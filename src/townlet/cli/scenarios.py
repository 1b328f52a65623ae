"""`townlet scenarios list | show | lint | diff | new`."""

from __future__ import annotations

import shutil
import textwrap
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from townlet.cli.common import (
    NAME,
    PATH,
    POSITIVE,
    SEED,
    SHARE,
    Group,
    Number,
    Whole,
    emit,
    json_option,
    leave,
    note,
    overwrite_option,
    set_option,
)
from townlet.errors import UsageError

if TYPE_CHECKING:
    from townlet.config.models import SimulationConfig
    from townlet.scenarios.plan import Plan


@click.group(cls=Group)
def scenarios() -> None:
    """Scenarios: what there is, whether it can work, how two differ, and new ones.

    \b
    Examples:
      townlet scenarios list
      townlet scenarios lint town_day my_town.yaml --sight
      townlet scenarios new my_town --generate 7
    """


@scenarios.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the shipped scenarios, each with a sentence about it.

    \b
    Example:
      townlet scenarios list
    """
    from townlet.config.loader import load_config
    from townlet.scenarios.shipped import facts_of, ordered_names

    entries = [facts_of(load_config(name)) for name in ordered_names()]
    wide = max(len(one.name) for one in entries)

    def text() -> str:
        width = shutil.get_terminal_size((80, 24)).columns
        rows = []
        for one in entries:
            size = f"{one.columns:>3}×{one.rows:<3}  {one.ticks:>5} ticks"
            rows.append(f"{one.name:<{wide}}  {one.residents:>6,} residents  {size}")
            rows += textwrap.wrap(one.description, width, initial_indent="    ", subsequent_indent="    ")
        return "\n".join(rows)

    emit([asdict(one) for one in entries], text, as_json)


@scenarios.command()
@click.argument("name", metavar="SCENARIO")
@click.option("--pictures", metavar="FOLDER", help="Also show pictures, from this folder.")
@set_option
def rules(name: str, pictures: str | None, overrides: tuple[str, ...]) -> None:
    """Explain how a town works, as Markdown. Needs, things, conflict, money, rewards, measures, actions, observations.

    \b
    Example:
      townlet scenarios rules town_day --pictures images > docs/town.md
    """
    from townlet.config.loader import load_config
    from townlet.observer.rules_page import page_text

    click.echo(page_text(load_config(name, overrides), pictures=pictures), nl=False)


@scenarios.command()
@click.argument("name", metavar="SCENARIO")
@set_option
@json_option
def show(name: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Draw one scenario: map, jobs, residents, ties, planned events.

    \b
    Example:
      townlet scenarios show two_bathrooms
    """
    from townlet.config.loader import load_config
    from townlet.scenarios.compile import read_plan
    from townlet.scenarios.random_town import picture
    from townlet.scenarios.shipped import facts_of

    config = load_config(name, overrides)
    plan = read_plan(config)
    one = facts_of(config, plan)
    value = {**asdict(one), "map": picture(plan).split("\n"), "scenario": config.scenario.model_dump(mode="json")}
    emit(value, lambda: _drawing(config, plan), as_json)


def _drawing(config: SimulationConfig, plan: Plan) -> str:
    from townlet.config.base import DAY, clock
    from townlet.scenarios.plan import TILE_MARKS
    from townlet.scenarios.random_town import MARKS, picture

    rows, columns = plan.tiles.shape
    lines = [f"{config.town_name}: {config.scenario.description}", ""]
    if columns <= 100:
        lines += [*picture(plan).split("\n"), ""]
        present = sorted({one.kind for one in plan.objects})
        tiles = ", ".join(f"{mark} {name}" for mark, name in TILE_MARKS.items())
        things = ", ".join(f"{MARKS.get(kind, '?')} {kind}" for kind in present)
        lines += [f"{tiles}; {things}", ""]
    else:
        lines += [f"a map of {columns} × {rows} tiles, too wide to draw here", ""]
    shown = 40
    for job in plan.jobs[:shown]:
        lines.append(f"job {job.id}: {job.site}, {clock(job.start)} to {clock((job.start + job.length) % DAY)}")
    for one in plan.residents[:shown]:
        lines.append(f"{one.id}: lives in {one.home}, works as {one.job or '–'}")
    if len(plan.residents) > shown:
        lines.append(f"… and {len(plan.residents) - shown:,} more residents")
    lines += _ties(plan)[:shown]
    for event in config.perturbations.events:
        lines.append(f"{clock(event.at)}: {event.kind} for {event.duration} ticks")
    for leaving in config.lifecycle.exits:
        lines.append(f"{clock(leaving.at)}: {leaving.resident} leaves")
    return "\n".join(lines)


def _ties(plan: Plan) -> list[str]:
    """Who feels what for whom, once where it is mutual."""
    told = {
        (tie.resident, tie.other): ", ".join(
            f"{name} {value:.2f}"
            for name, value in (("trust", tie.trust), ("familiarity", tie.familiarity), ("rivalry", tie.rivalry))
            if value
        )
        for tie in plan.ties
    }
    mutual = {(one, other) for (one, other), feels in told.items() if told.get((other, one)) == feels}
    return [
        f"{one} {'and' if (one, other) in mutual else '→'} {other}: {feels}"
        for (one, other), feels in told.items()
        if feels and ((one, other) not in mutual or one < other)
    ]


@scenarios.command("lint")
@click.argument("names", metavar="SCENARIO...", nargs=-1, required=True)
@click.option("--days", type=POSITIVE, help="Days to judge by; by default one episode.")
@click.option(
    "--sight",
    is_flag=True,
    help="Also measure what it is worth to see conflict: the script with calm objects − with nearest ones, 64 days.",
)
@click.option("--pay", is_flag=True, help="Also simulate seven ways of life for a month: does the town reward what it should?")
@set_option
@json_option
def lint_(names: tuple[str, ...], days: float | None, sight: bool, pay: bool, overrides: tuple[str, ...], as_json: bool) -> None:
    """Check whether scenarios can work; exits with 1 when one cannot.

    \b
    Example:
      townlet scenarios lint town_day my_town.yaml --days 7
    """
    from townlet.config.loader import load_config
    from townlet.scenarios.lint import lint
    from townlet.studies.town_checks import pay_verdict, sight_verdict

    reports = []
    for name in names:
        config = load_config(name, overrides)
        report = lint(config, days=days)
        sound = report.ok
        if sight and sound:
            note(f"{name}: measuring the value of sight over 64 days")
            report = replace(report, verdicts=(*report.verdicts, sight_verdict(config)))
        if pay and sound:
            note(f"{name}: simulating a month of seven ways of life")
            report = replace(report, verdicts=(*report.verdicts, pay_verdict(config)))
        reports.append(report)

    def text() -> str:
        lines = []
        for report in reports:
            lines.append(f"{report.scenario}: {'passes' if report.ok else 'fails'}")
            for one in report.verdicts:
                remedy = f"; {one.remedy}" if one.remedy and not one.ok else ""
                lines.append(f"  {'ok  ' if one.ok else 'FAIL'} {one.name}: {one.found}{remedy}")
        return "\n".join(lines)

    value = [{"scenario": one.scenario, "ok": one.ok, "verdicts": [asdict(row) for row in one.verdicts]} for one in reports]
    emit(value, text, as_json)
    leave(0 if all(report.ok for report in reports) else 1)


@scenarios.command()
@click.argument("first", metavar="SCENARIO")
@click.argument("second", metavar="SCENARIO")
@json_option
def diff(first: str, second: str, as_json: bool) -> None:
    """Show the config keys in which two scenarios differ. Exits with 1 when they do.

    \b
    Example:
      townlet scenarios diff town_day rush_hour
    """
    from townlet.config.differences import differences
    from townlet.config.loader import load_config

    found = differences([load_config(first), load_config(second)])
    rows = [{"key": key, "first": _short(one), "second": _short(other)} for key, (one, other) in found.items()]

    def text() -> str:
        return "\n".join(f"{row['key']}: {row['first']} → {row['second']}" for row in rows) or "no difference"

    emit(rows, text, as_json)
    leave(1 if rows else 0)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "…"


@scenarios.command()
@click.argument("name", type=NAME)
@click.option("--generate", "seed", type=SEED, metavar="SEED", help="Draw a random town from this seed.")
@click.option("--residents", type=Whole(1, 10_000), help="Draw a town of this many residents.")
@click.option(
    "--crowding",
    type=Number(0.1, 20),
    help="How crowded: with 2, twice as many as usual share a shower, table or bench.",
)
@click.option("--feuds", type=SHARE, help="Share of the residents who have a feud at home.")
@click.option("--output", type=PATH, default=None, help="File to write; by default NAME.yaml.")
@overwrite_option
@json_option
def new(
    name: str,
    seed: int | None,
    residents: int | None,
    crowding: float | None,
    feuds: float | None,
    output: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write a new scenario and check it. Exits with 1 when the linter says that it cannot work.

    By default it is a small template that you can edit. --generate SEED draws a random town that passes the linter. --residents,
    --crowding and --feuds say what the town should be like; SEED then draws feelings and personalities.

    \b
    Examples:
      townlet scenarios new bakery
      townlet scenarios new crowded --residents 30 --crowding 2 --feuds 0.4
    """
    from townlet.config.loader import load_config
    from townlet.files import write_text
    from townlet.scenarios.lint import lint
    from townlet.scenarios.random_town import feasible_town, sized_town, template, written_out

    name = name.removesuffix(".yaml")
    path = Path(f"{name}.yaml") if output is None else output
    if path.exists() and not overwrite:
        raise UsageError(f"{path} already exists; choose another name, or use --overwrite")
    if residents is None and (crowding is not None or feuds is not None):
        raise UsageError("--crowding and --feuds say what a town of --residents N is like; give that number too")
    if residents is not None:
        text = written_out(
            sized_town(name, seed or 0, residents, 1.0 if crowding is None else crowding, 0.1 if feuds is None else feuds)
        )
    elif seed is not None:
        config = feasible_town(seed)
        scenario = config.scenario.model_copy(update={"name": name})
        text = written_out(config.model_copy(update={"config_id": name, "scenario": scenario}))
    else:
        text = template(name)
    write_text(path, text)
    report = lint(load_config(path))
    failed = [verdict for verdict in report.verdicts if not verdict.ok]
    lines = [f"{path} is written; `townlet run {path}` runs it"]
    lines.append("the linter says that it can work" if report.ok else "the linter says that it cannot work:")
    lines += [f"  {verdict.name}: {verdict.found}{'; ' * bool(verdict.remedy)}{verdict.remedy}" for verdict in failed]
    emit({"path": str(path), "ok": report.ok, "failed": [asdict(verdict) for verdict in failed]}, "\n".join(lines), as_json)
    leave(0 if report.ok else 1)
