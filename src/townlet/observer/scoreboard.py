"""Scorecards as HTML: a row per measure, exits first, a column per policy, intervals beneath each figure; and interval charts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from townlet.dto.evaluation import MEASURES, CaseCard, LateRow, PolicyCard, Scorecard
from townlet.evaluation.table import COLUMNS as EVERYWHERE
from townlet.evaluation.table import looks_text, percent
from townlet.observer.charts import Estimate, interval_chart
from townlet.observer.style import page

COLUMNS = (*EVERYWHERE, "intensity", "wait_p95", "overtakes", "switching", "newcomer_return")
CHARTED = ("return", "conflicts")


def scoreboard(card: Scorecard) -> str:
    """Every case: its table, and the two measures that matter most drawn beside it."""
    return "".join(_case(card, case) for case in card.cases)


def scorecard_page(card: Scorecard) -> str:
    body = f"<h1>Scorecard: {escape(card.suite)}</h1>{_lead(card)}{scoreboard(card)}{measure_notes()}{_provenance(card)}"
    return page(f"Townlet scorecard: {escape(card.suite)}", body)


def measure_notes() -> str:
    rows = "".join(
        f"<dt>{escape(spec.label)}</dt><dd>{escape(spec.meaning)} ({escape(spec.unit)})</dd>" for spec in MEASURES.values()
    )
    return f"<details><summary>What is measured</summary><dl>{rows}</dl></details>"


def _lead(card: Scorecard) -> str:
    return (
        f'<p class="lead">{len(card.policies)} policies, each in the same towns, on seeds that training never uses. '
        f"Self-sufficient: every need above {card.self_sufficient_above:g} all day."
        f"{''.join(f' {escape(note)}' for note in card.notes)}</p>"
    )


def _case(card: Scorecard, case: CaseCard) -> str:
    shown = [name for name in COLUMNS if any(policy.measures[name].mean is not None for policy in case.policies)]
    head = "".join(f"<th>{escape(policy.name)}</th>" for policy in case.policies)
    rows = "".join(_row(name, case.policies) for name in shown)
    who = (
        ""
        if case.learners == "all"
        else f"; the policy controls {escape(case.learners)}, others: {escape(case.neighbours or 'itself')}"
    )
    charts = "".join(_chart(case, name) for name in CHARTED)
    beside = f"Below each figure: its {percent(card.level)} interval."
    if card.baseline is not None:
        beside += f" Beside it: the difference to {escape(card.baseline)}, paired by town; green is better, orange is worse."
    return (
        f'<h2>{escape(case.name)}</h2><p class="soft">{case.size}{who}. {beside}</p>'
        f'<div class="scroll"><table><thead><tr><th>measure</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
        f'<div class="grid2" style="margin-top:16px">{charts}</div>{_looks(case)}{_late(case)}'
    )


def _looks(case: CaseCard) -> str:
    """Who looks at conflict, a sentence for each network that was asked."""
    return "".join(
        f"<p>{escape(policy.name)} looks at conflict: {escape(looks_text(policy))} when the conflict fields are shuffled among "
        "residents.</p>"
        for policy in case.policies
        if policy.looks is not None
    )


def _late(case: CaseCard) -> str:
    """Lateness by resident and hour: a row per resident, a column per policy."""
    rows: dict[str, dict[str, LateRow]] = {}
    for policy in case.policies:
        for row in policy.late:
            rows.setdefault(f"{row.resident}, {row.hour:02d}:00", {})[policy.name] = row
    if not rows:
        return ""
    head = "".join(f"<th>{escape(policy.name)}</th>" for policy in case.policies)
    body = "".join(
        f"<tr><td>{escape(who)}</td>{''.join(_late_cell(told.get(policy.name)) for policy in case.policies)}</tr>"
        for who, told in rows.items()
    )
    return (
        f"<details><summary>Late, by resident and hour of the shift</summary>"
        f'<div class="scroll"><table><thead><tr><th>resident, shift</th>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        f"</details>"
    )


def _late_cell(row: LateRow | None) -> str:
    if row is None:
        return '<td><span class="soft">none</span></td>'
    return f"<td>{row.late:.3f}<small>{row.minutes:.2f} min per shift, {row.shifts} shifts</small></td>"


def _row(name: str, policies: Sequence[PolicyCard]) -> str:
    spec = MEASURES[name]
    cells = "".join(_cell(policy, name) for policy in policies)
    return f'<tr><td title="{escape(spec.meaning)}">{escape(spec.label)}<small>{escape(spec.unit)}</small></td>{cells}</tr>'


def _cell(policy: PolicyCard, name: str) -> str:
    measure, spec, effect = policy.measures[name], MEASURES[name], policy.effects.get(name)
    if measure.mean is None:
        return '<td><span class="soft">none</span></td>'
    digits = spec.decimals
    ends = (
        "one value" if measure.low is None or measure.high is None else f"{measure.low:z.{digits}f} … {measure.high:z.{digits}f}"
    )
    verdict, difference = "", ""
    if effect is not None:
        verdict = {1: "good", -1: "bad", 0: ""}[effect.sign * spec.better]
        difference = f' <span class="effect">{effect.difference:+z.{digits}f}</span>'
    return f'<td class="{verdict}">{measure.mean:z.{digits}f}{difference}<small>{ends}</small></td>'


def _chart(case: CaseCard, name: str) -> str:
    rows = [
        Estimate(policy.name, m.mean, m.low, m.high)
        for policy in case.policies
        if (m := policy.measures[name]).mean is not None and m.low is not None and m.high is not None
    ]
    spec = MEASURES[name]
    title = f"{spec.label} ({'more' if spec.better > 0 else 'less'} is better)"
    return interval_chart(title, rows, unit=spec.unit)


def _provenance(card: Scorecard) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in card.versions.items())
    policies = {policy.name: policy for case in card.cases for policy in case.policies}
    rows = "".join(f"<dt>{escape(p.name)}</dt><dd>{escape(p.source)} · {escape(p.policy_hash)}</dd>" for p in policies.values())
    configs = "".join(f"<dt>{escape(case.name)}</dt><dd>config {escape(case.config_hash)}</dd>" for case in card.cases)
    return (
        f"<h2>Where the figures come from</h2><dl>{rows}{configs}<dt>reward weights</dt><dd>{escape(card.rewards_hash)}</dd>"
        f"<dt>versions</dt><dd>{escape(versions)}</dd></dl>"
    )
