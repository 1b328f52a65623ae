"""From a scorecard to a decision: pure functions of what they are given.

A gate passes only on evidence: the interval of the paired difference must clear its margin. It fails when the interval lies
wholly beyond the margin, over all towns or in one case of several, and holds in between or when there is too little data.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from townlet.config.learning import GateConfig
from townlet.dto.evaluation import MEASURES, Scorecard
from townlet.dto.promotion import GateResult, Outcome, PromotionDecision, Verdict
from townlet.errors import UsageError
from townlet.files import short_hash
from townlet.statistics import Interval, paired_difference, student_interval, total_variation

MIN_PAIRS = 5
MIXES = ("action_mix", "rivalry_histogram")  # measures of drift beside those of the scorecard


def decide(
    scorecard: Scorecard,
    gates: Sequence[GateConfig],
    *,
    candidate: str,
    champion: str,
    passes: int,
    required: int,
    level: float = 0.95,
) -> PromotionDecision:
    """PROMOTE after `required` windows passed in a row, of which `passes` came before this one; FAIL on one failed gate."""
    results = tuple(judge(gate, scorecard, candidate, champion, level) for gate in gates)
    verdicts = {result.verdict for result in results}
    window: Verdict = "fail" if "fail" in verdicts else "hold" if "hold" in verdicts or not results else "pass"
    passed = passes + 1 if window == "pass" else 0
    reasons = [result.reason for result in results if result.verdict != "pass"]
    if window == "pass":
        reasons.append(f"{passed} of {required} windows in a row passed every gate")
    outcome = Outcome.FAIL if window == "fail" else Outcome.PROMOTE if window == "pass" and passed >= required else Outcome.HOLD
    return PromotionDecision(
        outcome=outcome, window=window, passes=passed, required=required, gates=results, reasons=tuple(reasons)
    )


def judge(gate: GateConfig, scorecard: Scorecard, candidate: str, champion: str, level: float = 0.95) -> GateResult:
    check_gate(gate)
    if gate.rule == "drift":
        return _drift(gate, scorecard, candidate, champion)
    whole = _judge_values(gate, scorecard, candidate, champion, level)
    if whole.verdict == "fail" or len(scorecard.cases) == 1:
        return whole
    for case in scorecard.cases:  # what is won in one town does not buy what is lost in another
        alone = _judge_values(gate, scorecard.model_copy(update={"cases": (case,)}), candidate, champion, level)
        if alone.verdict == "fail":
            return alone.model_copy(update={"reason": f"in {case.name}, {alone.reason}"})
    return whole


def _judge_values(gate: GateConfig, scorecard: Scorecard, candidate: str, champion: str, level: float) -> GateResult:
    """By the values of all cases together."""
    mine = scorecard.values(gate.metric, candidate)
    if gate.rule in ("at_least", "at_most"):
        known = [value for value in mine if value is not None]
        return _floor(gate, known, level)
    base = scorecard.values(gate.metric, champion)
    pairs = [(a, b) for a, b in zip(mine, base, strict=True) if a is not None and b is not None]
    return _against_champion(gate, pairs, level)


def check_gate(gate: GateConfig) -> None:
    known = (*MEASURES, *MIXES) if gate.rule == "drift" else tuple(MEASURES)
    if gate.metric not in known:
        raise UsageError(f"a gate names the measure {gate.metric!r}; known for the rule {gate.rule} are {', '.join(known)}")


def gates_hash(gates: Sequence[GateConfig], required: int, level: float = 0.95) -> str:
    text = json.dumps([required, level, [gate.model_dump(mode="json") for gate in gates]], sort_keys=True)
    return short_hash(text)


def _against_champion(gate: GateConfig, pairs: Sequence[tuple[float, float]], level: float) -> GateResult:
    if len(pairs) < MIN_PAIRS:
        return _too_little(gate, len(pairs))
    mine, base = np.array(pairs).T
    direction = MEASURES[gate.metric].better or 1
    # above 0: the candidate is better; Student's, so that a decision draws nothing
    gain = paired_difference(direction * mine, direction * base, level=level, method="student")
    margin = gate.bound if gate.rule == "better" else -gate.bound
    worse = 0.0 if gate.rule == "better" else -gate.bound
    verdict: Verdict = "pass" if gain.low > margin else "fail" if gain.high < worse else "hold"
    shown = gain if direction == 1 else Interval(-gain.value, -gain.high, -gain.low)
    return _result(gate, verdict, shown, len(pairs), f"{gate.metric} {_words(gate, verdict)}: difference {_range(gate, shown)}")


def _words(gate: GateConfig, verdict: Verdict) -> str:
    by = f" by more than {gate.bound:g}" if gate.bound else ""
    better = {"pass": f"is better{by}", "hold": f"may not be better{by}", "fail": "is worse than the champion's"}
    no_worse = {"pass": f"is not worse{by}", "hold": f"may be worse{by}", "fail": f"is worse{by}"}
    return (better if gate.rule == "better" else no_worse)[verdict]


def _floor(gate: GateConfig, values: Sequence[float], level: float) -> GateResult:
    if len(values) < MIN_PAIRS:
        return _too_little(gate, len(values))
    interval = student_interval(values, level=level)
    if gate.rule == "at_least":
        clear, missed = interval.low >= gate.bound, interval.high < gate.bound
    else:
        clear, missed = interval.high <= gate.bound, interval.low > gate.bound
    verdict: Verdict = "pass" if clear else "fail" if missed else "hold"
    found = {"pass": "is", "hold": "may not be", "fail": "is not"}[verdict]
    wanted = f"{gate.rule.replace('_', ' ')} {gate.bound:g}"
    return _result(gate, verdict, interval, len(values), f"{gate.metric} {found} {wanted}: {_range(gate, interval)}")


def _drift(gate: GateConfig, scorecard: Scorecard, candidate: str, champion: str) -> GateResult:
    """A drift beyond the bound is a hold, never a fail: it asks for a look, it proves no fault."""
    distances: list[float] = []
    for case in scorecard.cases:
        mine, base = case.policy(candidate), case.policy(champion)
        if gate.metric == "action_mix":
            distances.append(total_variation(list(mine.actions.values()), list(base.actions.values())))
        elif gate.metric == "rivalry_histogram":
            distances.append(total_variation(mine.rivalry_histogram, base.rivalry_histogram))
        else:
            a, b = mine.measures[gate.metric].mean, base.measures[gate.metric].mean
            if a is not None and b is not None:
                distances.append(abs(a - b) / max(abs(b), 1e-9))
    if not distances:
        return _too_little(gate, 0)
    worst = max(distances)
    verdict: Verdict = "pass" if worst <= gate.bound else "hold"
    reason = f"{gate.metric} drifts by {worst:.3g} at most, bound {gate.bound:g}"
    return _result(gate, verdict, Interval(worst, min(distances), worst), len(distances), reason)


def _too_little(gate: GateConfig, count: int) -> GateResult:
    nothing = "evaluate more days, or leave this gate out where there is nothing of the kind, such as no job or no wait"
    remedy = "evaluate more towns or days" if count else nothing
    return _result(gate, "hold", None, count, f"{gate.metric} has {count} values to judge by, {MIN_PAIRS} are needed; {remedy}")


def _result(gate: GateConfig, verdict: Verdict, interval: Interval | None, pairs: int, reason: str) -> GateResult:
    asked = {"metric": gate.metric, "rule": gate.rule, "bound": gate.bound}
    found = {"value": None, "low": None, "high": None} if interval is None else interval._asdict()
    return GateResult.model_validate({**asked, **found, "verdict": verdict, "pairs": pairs, "reason": reason})


def _range(gate: GateConfig, interval: Interval) -> str:
    """One digit more than a scorecard shows; z: never "-0"."""
    value, low, high = (f"{number:+z.{MEASURES[gate.metric].decimals + 1}f}" for number in interval)
    return f"{value} ({low} … {high})"
