"""A scorecard as a table for the terminal: exits first, each figure with its interval and the difference to the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from townlet.dto.evaluation import BESIDE, LOOKS, MEASURES, CaseCard, Effect, Measure, PolicyCard, Scorecard

COLUMNS = (
    *("exits", "founders", "score", "lead", "return", "self_sufficiency", "attendance", "lateness", "late_minutes"),
    *("conflicts", "quarrels", "wait_mean", "wait_gini", "wait_most", "wallet", "overspent", "debt"),
)  # the rest: HTML, JSON
WIDTH, NARROWEST = 118, 80
AROUND = 8  # lines above and below the rows of a table
WIDE, HALF, BARE = "wide", "half", "bare"  # what stands beside a figure: interval and difference, half an interval, nothing


def scorecard_text(card: Scorecard, *, color: bool = False, width: int = WIDTH, height: int | None = None) -> str:
    """On a terminal of few rows the policies are named again below their figures."""
    out = StringIO()
    console = Console(file=out, force_terminal=color, no_color=not color, width=max(width, NARROWEST), highlight=False)
    endless = Console(width=1000)
    fits = [
        form for form in (WIDE, HALF) if all(endless.measure(_table(case, form)).maximum <= console.width for case in card.cases)
    ]
    form = fits[0] if fits else BARE
    for case in card.cases:
        table = _table(case, form)
        table.show_footer = height is not None and table.row_count + AROUND > height
        console.print(f"{case.name}: {case.size}", style="italic", soft_wrap=True)
        console.print(table)
        if case.ends is not None:
            ends = case.ends
            script = "" if ends.script is None else f"lead 0: script {ends.script:.2f}; "
            console.print(
                f"score 0: random {ends.random:.2f}; {script}1: planner {ends.planner:.2f}; limit {ends.bound:.2f}.",
                soft_wrap=True,
            )
    against = "" if card.baseline is None else f", then the difference to {card.baseline}, paired by town"
    beside = {
        WIDE: f"After each figure: its {percent(card.level)} interval{against}.",
        HALF: f"± is half of the {percent(card.level)} interval; a wider terminal shows more.",
        BARE: "A wider terminal shows intervals and differences; so do the page and --json.",
    }
    console.print(beside[form], soft_wrap=True)
    if color and card.baseline is not None:
        console.print(f"Green: better than {card.baseline}. Red: worse. Grey: no clear difference.", soft_wrap=True)
    if any(policy.looks is not None for case in card.cases for policy in case.policies):
        console.print("looks: what changes when the conflict fields are shuffled among residents.", soft_wrap=True)
    if any(policy.neighbours is not None for case in card.cases for policy in case.policies):
        console.print("beside: the same for everybody else, who follow another policy.", soft_wrap=True)
    for sentence in card.notes:
        console.print(sentence, soft_wrap=True)
    return out.getvalue().rstrip("\n")


def percent(level: float) -> str:
    """0.95 → "95 %"."""
    return f"{100 * level:g} %"


def _table(case: CaseCard, form: str) -> Table:
    """A row per measure, a column per policy: nothing is left out because it does not fit."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("", no_wrap=True)
    for policy in case.policies:
        table.add_column(policy.name, policy.name, justify="right", no_wrap=True)
    for name in COLUMNS:
        table.add_row(MEASURES[name].label, *(_cell(policy.measures, policy.effects, name, form) for policy in case.policies))
    if any(policy.neighbours is not None for policy in case.policies):
        for name in BESIDE:
            table.add_row(
                f"beside: {MEASURES[name].label}", *(_cell(policy.neighbours or {}, {}, name, form) for policy in case.policies)
            )
    if any(policy.looks is not None for policy in case.policies):
        for name in LOOKS:
            table.add_row(f"looks: {MEASURES[name].label}", *(_look(policy, name) for policy in case.policies))
    table.add_row("steps/s", *(f"{policy.steps_per_second:,.0f}" for policy in case.policies))
    return table


def _look(policy: PolicyCard, name: str) -> str:
    return "–" if policy.looks is None or name not in policy.looks else _change(policy.looks[name], MEASURES[name].decimals)


def looks_text(policy: PolicyCard) -> str:
    """What changes for a network that is shown the conflict fields of others, each figure with its interval; – when not asked."""
    found = (policy.looks or {}).items()
    return ", ".join(f"{MEASURES[name].label} {_change(effect, MEASURES[name].decimals)}" for name, effect in found) or "–"


def _change(effect: Effect, digits: int) -> str:
    ends = "" if effect.low is None or effect.high is None else f" ({effect.low:+.{digits}f}…{effect.high:+.{digits}f})"
    return f"{effect.difference:+.{digits}f}{ends}"


def _cell(measures: Mapping[str, Measure], effects: Mapping[str, Effect], name: str, form: str) -> Text:
    measure, spec, effect = measures.get(name), MEASURES[name], effects.get(name)
    if measure is None or measure.mean is None:
        return Text("none", style="dim")
    digits = spec.decimals
    style = "" if effect is None else {1: "green", -1: "red", 0: "dim"}[effect.sign * spec.better]
    if form == BARE:
        ends = ""
    elif measure.low is None or measure.high is None:
        ends = " one value" if form == WIDE else ""
    elif form == WIDE:
        ends = f" ({measure.low:z.{digits}f}…{measure.high:z.{digits}f})"
    else:
        ends = f" ±{(measure.high - measure.low) / 2:.{digits}f}"
    text = Text(f"{measure.mean:z.{digits}f}", style="" if form == WIDE else style).append(ends, style="dim")
    if effect is not None and form == WIDE:
        text.append(f" {effect.difference:+z.{digits}f}", style=style)
    return text
