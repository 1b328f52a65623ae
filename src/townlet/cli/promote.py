"""`townlet promote`: gates, the ledger of champions, the way back. Exit codes: 0 PROMOTE, 1 HOLD, 2 FAIL, 64 wrong usage."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

import click

from townlet.cli.common import (
    COUNT_OR_ZERO,
    DAYS,
    FILE,
    PATH,
    TOWNS,
    Group,
    emit,
    evaluating,
    json_option,
    leave,
    note,
    options,
    set_option,
)
from townlet.errors import DamagedFileError, UsageError

if TYPE_CHECKING:
    from townlet.config.learning import EvaluationConfig
    from townlet.config.models import SimulationConfig
    from townlet.dto.promotion import LedgerEntry, PromotionDecision, Trace
    from townlet.evaluation.suites import Case
    from townlet.promotion.releases import Releases

OWN_TOWN = ""
NAMED_TOWNS = "named towns"  # in place of the name of a suite
ledger_options = options(
    click.option("--ledger", type=FILE, help="Ledger file; by default promotion.ledger of the config."),
    click.option("--config", metavar="NAME|FILE", help="Config with the gates; by default the shipped ones."),
    set_option,
    json_option,
)


def of_ledger(command: Callable[..., None]) -> Callable[..., None]:
    """A command that is given the releases of the ledger that its options name."""

    @wraps(command)
    def opened(ledger: Path | None, config: str | None, overrides: tuple[str, ...], **more: object) -> None:
        from townlet.promotion.releases import Releases

        command(Releases.of(config_of(config, overrides), ledger), **more)

    return ledger_options(opened)


@click.group(cls=Group)
def promote() -> None:
    """Judge candidates against the champion, promote, roll back, and verify the ledger of all of it.

    \b
    Examples:
      townlet promote evaluate runs/demo
      townlet promote promote runs/demo
      townlet promote history
    """


@promote.command()
@click.argument("candidate", type=PATH)
@click.option(
    "--scorecard", type=PATH, help="Judge this scorecard (policies `candidate` and `champion`) instead of evaluating now."
)
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    is_flag=False,
    flag_value=OWN_TOWN,
    metavar="[NAME|FILE]",
    help="Judge in this town instead of promotion.suite; without a name, in the town it was trained for.",
)
@click.option("--seeds", type=TOWNS, help="Towns per case of the evaluation.")
@click.option("--days", type=DAYS, help="Days per town; by default those of the suite.")
@ledger_options
def evaluate(
    candidate: Path,
    scorecard: Path | None,
    scenarios: tuple[str, ...],
    seeds: int | None,
    days: int | None,
    ledger: Path | None,
    config: str | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Judge one window of a CANDIDATE against the champion. CANDIDATE is a checkpoint or a run; the ledger keeps the verdict.

    \b
    Examples:
      townlet promote evaluate runs/demo
      townlet promote evaluate runs/bakery --scenario
      townlet promote evaluate runs/bakery --scenario town_day --days 7
    """
    from townlet.dto.promotion import Outcome
    from townlet.promotion.releases import Releases

    settings = config_of(config, overrides)
    releases = Releases.of(settings, ledger)
    suite = NAMED_TOWNS if scenarios else releases.rules.suite
    if scorecard is None:
        cases = _cases(releases, settings.evaluation, candidate, scenarios, seeds, days)
        scorecard = _measure(releases, settings.evaluation, candidate, cases, suite)
    elif scenarios:
        raise UsageError("--scorecard holds the towns it was made in; leave out --scenario")
    decision = releases.evaluate(candidate, scorecard, suite=suite)
    towns = _towns(scorecard)
    lines = [decision_text(decision), *([f"judged in {'; '.join(towns)}"] if towns else [])]
    if decision.outcome is Outcome.PROMOTE:
        lines.append(f"next: townlet promote promote {candidate}")
    elif decision.window == "pass":
        lines.append("next: the same command again, which judges another window")
    text = "\n".join(lines)
    emit(decision.model_dump(mode="json") | {"towns": towns}, text, as_json)
    leave(decision.outcome.exit_code)


@promote.command("promote")
@click.argument("candidate", type=PATH)
@of_ledger
def promote_candidate(releases: Releases, candidate: Path, as_json: bool) -> None:
    """Make a CANDIDATE whose last window said PROMOTE the release.

    \b
    Example:
      townlet promote promote runs/demo
    """
    from townlet.dto.promotion import Outcome

    decision = releases.promote(candidate)
    more = "next: townlet promote evaluate, with the options of before, until it says PROMOTE"
    if decision.outcome is Outcome.PROMOTE:
        more = released_text(releases)
    emit(decision.model_dump(mode="json"), f"{decision_text(decision)}\n{more}", as_json)
    leave(decision.outcome.exit_code)


@promote.command()
@click.option("--reason", required=True, help="The reason; it is kept in the ledger.")
@click.option("--to", metavar="HASH", help="Weight hash (or its beginning) of an earlier champion, or `scripted`.")
@of_ledger
def rollback(releases: Releases, reason: str, to: str | None, as_json: bool) -> None:
    """Make the champion before this one (or --to) the release again.

    \b
    Example:
      townlet promote rollback --reason "more quarrels in the evening"
    """
    entry = releases.rollback(" ".join(reason.split()), to)
    emit(entry.model_dump(mode="json"), f"the champion is {entry.candidate[:12]} again, after {entry.champion[:12]}", as_json)


@promote.command()
@of_ledger
def history(releases: Releases, as_json: bool) -> None:
    """Who was champion when and why, and every window judged.

    \b
    Example:
      townlet promote history
    """
    entries = releases.entries()
    emit([entry.model_dump(mode="json") for entry in entries], lambda: history_text(entries), as_json)


@promote.command()
@of_ledger
def verify(releases: Releases, as_json: bool) -> None:
    """Check every hash of ledger, evidence and releases. Exits with 2 when one is wrong.

    \b
    Example:
      townlet promote verify
    """
    problems = releases.verify()
    text = "\n".join(problems) if problems else f"{releases.ledger}: {len(releases.entries())} entries, all hashes hold"
    emit({"ok": not problems, "problems": problems}, text, as_json)
    leave(2 if problems else 0)


@promote.command()
@click.argument("entry", type=COUNT_OR_ZERO, required=False)
@click.option("--run", type=PATH, help="The run folder, where it has been moved.")
@click.option("--data", type=PATH, help="Its capture folder or manifest, where they have been moved.")
@click.option("--sample", metavar="ID", help="The sample to look at; by default the first in which something happened.")
@of_ledger
def trace(releases: Releases, entry: int | None, run: Path | None, data: Path | None, sample: str | None, as_json: bool) -> None:
    """Trace an ENTRY of the ledger back to its data. By default the champion's promotion; it ends at a tick and an event.

    Scorecard, weights, run folder, log record, dataset, sample, moment and event: every hash is compared, and the first link
    that does not hold is named, with exit code 2.

    \b
    Example:
      townlet promote trace
    """
    from townlet.promotion.trace import trace as walk_back

    found = walk_back(releases, entry, run=run, data=data, sample=sample)
    emit(found.model_dump(mode="json"), lambda: trace_text(found), as_json)
    leave(0 if found.broken is None else 2)


def config_of(name: str | None, overrides: tuple[str, ...]) -> SimulationConfig:
    from townlet.config.loader import default_config, load_config

    return load_config(name, overrides) if name is not None else default_config(overrides)


def trace_text(found: Trace) -> str:
    lines = [f"{link.name:13} {link.found}  ({link.where})" for link in found.links]
    last = "every link holds" if found.broken is None else f"{found.broken:13} does not hold: {found.reason}"
    return "\n".join([*lines, last])


def decision_text(decision: PromotionDecision) -> str:
    """The outcome, why, and every gate with its verdict, the worst first."""
    gates = sorted(decision.gates, key=lambda gate: ("fail", "hold", "pass").index(gate.verdict))
    told = {gate.reason for gate in gates}
    lines = [decision.outcome.value, *(f"  {reason}" for reason in decision.reasons if reason not in told)]
    return "\n".join(lines + [f"  {gate.verdict}  {gate.reason}" for gate in gates])


def released_text(releases: Releases) -> str:
    """Of the release that was just made: where it was judged, whom it follows, where it lies, and the way back."""
    last = releases.entries()[-1]
    judged = last.evidence.scorecard if last.evidence is not None else None
    towns = _towns(releases.evidence(judged)) if judged is not None else []
    lines = [f"judged in {'; '.join(towns)}"] if towns else []
    lines.append(f"the champion is {last.candidate[:12]} now, after {last.champion[:12]}")
    lines.append(f"release     {releases.release_of(last.candidate)}")
    lines.append('way back    townlet promote rollback --reason "…"')
    return "\n".join(lines)


def history_text(entries: tuple[LedgerEntry, ...]) -> str:
    if not entries:
        return "the ledger is empty; the champion is the script"
    lines = []
    for entry in entries:
        outcome = entry.decision.outcome.value if entry.decision is not None else ""
        what = {"window": f"window {outcome}", "promote": "promoted", "rollback": "rolled back to"}[entry.kind]
        between = "  " if len(entry.reasons) == 1 else "\n        "
        lines.append(between.join((f"{entry.number:4d}  {entry.at}  {what:16} {entry.candidate[:12]}", *entry.reasons)))
    return "\n".join(lines)


def _cases(
    releases: Releases,
    evaluation: EvaluationConfig,
    candidate: Path,
    scenarios: tuple[str, ...],
    seeds: int | None,
    days: int | None,
) -> tuple[Case, ...]:
    """The towns of the window: the suite's, or those that were named."""
    from townlet.evaluation.suites import Case, suite_cases

    if not scenarios:
        return suite_cases(releases.rules.suite, evaluation, towns=seeds, days=days)
    cases = []
    for name in scenarios:
        config = _trained_for(candidate) if name == OWN_TOWN else None
        label = Path(name).stem if config is None else config.config_id
        cases.append(Case(label, name, towns=seeds or 16, days=days or 28, config=config))
    return tuple(cases)


def _trained_for(candidate: Path) -> SimulationConfig:
    """The config of the run that a checkpoint lies in."""
    from townlet.policy.training.run_folder import run_of

    run = run_of(candidate)
    if run is None:
        raise UsageError(f"{candidate} is not in a run folder, so its town is not known; name it: --scenario FILE")
    return run.resolved_config()


def _towns(scorecard: Path) -> list[str]:
    """The towns of a scorecard; none where it cannot be read, which the decision tells."""
    from townlet.evaluation.compare import load_scorecard

    try:
        cases = load_scorecard(scorecard).cases
    except DamagedFileError:
        return []
    return [f"{case.name} ({case.size})" for case in cases]


def _measure(releases: Releases, evaluation: EvaluationConfig, candidate: Path, cases: tuple[Case, ...], suite: str) -> Path:
    """Candidate and champion in the towns of the coming window; where the scorecard was written."""
    from townlet.evaluation.compare import save_scorecard
    from townlet.files import safe_join
    from townlet.promotion.window import measure_window

    window = releases.next_window()
    with evaluating(f"window {window}", 2 * len(cases)) as progress:
        card = measure_window(releases, candidate, cases, evaluation, suite=suite, progress=progress)
    path = safe_join(releases.folder, f"scorecards/{card.cases[0].policies[0].policy_hash[:12]}_{window:03d}.json")
    save_scorecard(card, path)
    note(f"scorecard written to {path}")
    return path
