"""`townlet evaluate`: policies over scenarios and held-out seeds."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from townlet.cli.common import (
    DAYS,
    PAGE,
    PATH,
    PICTURE,
    TOWNS,
    OutputType,
    Whole,
    emit,
    engine_options,
    evaluating,
    json_option,
    note,
    set_option,
    spread_over,
    window_option,
)
from townlet.errors import UsageError

if TYPE_CHECKING:
    from townlet.config.learning import EvaluationConfig
    from townlet.dto.evaluation import Scorecard
    from townlet.evaluation.suites import Case

STANDARD, CUSTOM = "standard", "custom"  # suites: the default one, and towns that are none


@click.command()
@click.argument("policies", nargs=-1, metavar="[NAME=]POLICY...")
@click.option(
    "--policy", "mix", multiple=True, metavar="RESIDENT=POLICY", help="Policy of one resident; '*' means everybody else."
)
@click.option("--suite", help="Suite of towns: standard (28 days), short (7), social, stress, your own.")
@click.option(
    "--config", metavar="NAME|FILE", help="Config whose `evaluation` section is used; by default that of the first town."
)
@click.option(
    "--scenario", "scenarios", multiple=True, metavar="NAME|FILE", help="These towns instead of a suite; may be repeated."
)
@click.option("--seeds", type=TOWNS, help="Towns per case, each with draws of its own.")
@click.option("--days", type=DAYS, help="Days per town; by default those of the suite, for --scenario 28.")
@window_option
@click.option(
    "--neighbours",
    multiple=True,
    metavar="POLICY",
    help="Policy of everybody except the first resident, who alone is measured; may be repeated: each is a case.",
)
@click.option("--half", is_flag=True, help="With --neighbours: measure every second resident instead of only the first.")
@click.option("--release", help="Checkpoint whose residents are also neighbours in the social suite.")
@click.option("--baseline", help="Policy that effects are measured against; by default evaluation.baseline.")
@click.option(
    "--ends", type=PATH, help="File that says what scores 0 and 1 mean, made by `townlet plan --ends`; added to the shipped ones."
)
@click.option("--threads", type=Whole(1, 64), default=1, show_default=True, help="Threads of the simulator.")
@click.option("--looks/--no-looks", default=True, help="Also measure networks with the conflict fields shuffled among residents.")
@click.option("--output", type=OutputType(".json"), help="Write the scorecard as JSON.")
@click.option("--html", type=PAGE, help="Write it as one HTML page.")
@click.option("--png", type=PICTURE, help="Draw it (.png or .svg).")
@engine_options
@set_option
@json_option
def evaluate(
    policies: tuple[str, ...],
    mix: tuple[str, ...],
    suite: str | None,
    config: str | None,
    scenarios: tuple[str, ...],
    seeds: int | None,
    days: int | None,
    window: int,
    neighbours: tuple[str, ...],
    half: bool,
    release: str | None,
    baseline: str | None,
    ends: Path | None,
    threads: int,
    looks: bool,
    output: Path | None,
    html: Path | None,
    png: Path | None,
    engine: str | None,
    workers: int,
    address: str | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure policies (scripted, scripted_plain, random, a run or checkpoint) in the same towns, on seeds that training never
    sees. A network draws its actions; `greedy:FOLDER` takes the likeliest.

    The towns are those of --scenario or --suite; with neither, the town that a run was trained for, else the standard suite.

    \b
    Examples:
      townlet evaluate random scripted --suite standard
      townlet evaluate scripted trained=runs/demo --html scorecard.html
      townlet evaluate --policy alice=runs/demo --policy '*=scripted'
    """
    from townlet.config.loader import load_config
    from townlet.evaluation.compare import save_scorecard
    from townlet.evaluation.score_scale import load_scales
    from townlet.evaluation.scorecard import evaluate as measure
    from townlet.evaluation.table import scorecard_text

    sources = named_policies(policies, mix)
    rules = None if config is None else load_config(config, overrides).evaluation
    suite, cases = chosen_cases(sources, suite, rules, scenarios, seeds, days, release, overrides)
    cases = among(cases, neighbours, half)
    with evaluating("evaluating", len(cases) * len(sources)) as progress:
        card = measure(
            sources,
            cases,
            evaluation=rules,
            suite=suite,
            baseline=baseline,
            window=window,
            threads=threads,
            ends=None if ends is None else load_scales(ends),
            looks=looks,
            where=spread_over(cases[0].own(), engine, workers, address),
            progress=progress,
        )
    if output is not None:
        save_scorecard(card, output)
        note(f"scorecard written to {output}")
    _draw(card, html, png)
    terminal = sys.stdout.isatty()
    colored = terminal and not os.environ.get("NO_COLOR")
    width, height = shutil.get_terminal_size((118, 24))
    shown = partial(scorecard_text, card, color=colored, width=width, height=height if terminal else None)
    emit(card.model_dump(mode="json"), shown, as_json)


def named_policies(policies: Sequence[str], mix: Sequence[str]) -> dict[str, str | Mapping[str, str]]:
    """`[NAME=]POLICY` words and one mix by resident, under names that differ."""
    sources: dict[str, str | Mapping[str, str]] = {}
    for word in policies:
        name, source = word.split("=", 1) if "=" in word and not Path(word).exists() else (_short(word), word)
        if name in sources:
            raise UsageError(f"two policies are called {name!r}; name them, as in first={source}")
        sources[name] = source
    if mix:
        seats: dict[str, str] = {}
        for word in mix:
            resident, _, source = word.partition("=")
            if not resident or not source:
                raise UsageError(f"--policy {word!r} is not RESIDENT=POLICY; write alice=scripted or '*=scripted'")
            seats[resident] = source
        sources["mix"] = seats
    if not sources:
        raise UsageError("there is no policy to evaluate; name at least one, such as scripted or a checkpoint folder")
    return sources


def chosen_cases(
    sources: Mapping[str, str | Mapping[str, str]],
    suite: str | None,
    rules: EvaluationConfig | None,
    scenarios: Sequence[str],
    seeds: int | None,
    days: int | None,
    release: str | None,
    overrides: Sequence[str],
) -> tuple[str, list[Case]]:
    """The towns that were named, else those that runs were trained for, else those of a suite; and what they are called."""
    from townlet.evaluation.suites import Case, suite_cases

    towns = {name: Path(name).stem for name in scenarios}
    if not towns and suite is None:
        towns = trained_towns(sources.values(), overrides)
        if towns:
            names = ", ".join(towns.values())
            note(f"measuring in {names}, the town of the training; --suite {STANDARD} measures in other towns too")
    if towns:
        suite, cases = CUSTOM, [Case(label, scenario, towns=seeds or 16) for scenario, label in towns.items()]
    else:
        suite = suite or STANDARD
        cases = list(suite_cases(suite, rules, towns=seeds, release=release))
    return suite, [replace(case, overrides=tuple(overrides), days=days or case.days) for case in cases]


def trained_towns(sources: Iterable[str | Mapping[str, str]], overrides: Sequence[str]) -> dict[str, str]:
    """The runs among some policies that were trained in different towns: folder → name of its town."""
    from townlet.evaluation.score_scale import town_hash
    from townlet.evaluation.suites import Case
    from townlet.policy.runtime import GREEDY, POLICIES
    from townlet.policy.training.run_folder import run_of

    found: dict[str, Case] = {}
    for spec in (one for source in sources for one in (source.values() if isinstance(source, Mapping) else (source,))):
        run = None if spec in POLICIES else run_of(Path(spec.removeprefix(GREEDY)))
        if run is not None:
            case = Case(run.card().config_id, str(run.path), overrides=tuple(overrides))
            found.setdefault(town_hash(case.town()), case)
    return {case.scenario: case.name for case in found.values()}


def among(cases: list[Case], neighbours: Sequence[str], half: bool) -> list[Case]:
    """Each case with each of the neighbours."""
    if half and not neighbours:
        raise UsageError("--half says who is measured among --neighbours; name them, as in --neighbours scripted --half")
    if not neighbours:
        return cases
    learners = "half" if half else "first"
    names = {who: f" among {_short(who)}" if len(neighbours) > 1 else "" for who in neighbours}
    return [replace(case, name=case.name + names[who], learners=learners, neighbours=who) for case in cases for who in names]


def _draw(card: Scorecard, html: Path | None, png: Path | None) -> None:
    if html is not None:
        from townlet.files import write_text
        from townlet.observer.scoreboard import scorecard_page

        write_text(html, scorecard_page(card))
        note(f"page written to {html}")
    if png is not None:
        from townlet.telemetry.plot import plot_scorecard

        note(f"figure written to {plot_scorecard(card, png)}")


def _short(source: str) -> str:
    """A name for a checkpoint folder: that of its run for `…/RUN/checkpoints/best`, else its own."""
    from townlet.policy.checkpoint import RUN_CHECKPOINTS

    path = Path(source)
    if path.parent.name == RUN_CHECKPOINTS:
        return f"{path.parent.parent.name}/{path.name}"
    return path.name or source
