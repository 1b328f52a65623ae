"""What a watcher alerts on: rules by flag, from a YAML or JSON file, or the defaults of the schema."""

from __future__ import annotations

import json
import math
import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from townlet.errors import ConfigError, did_you_mean
from townlet.files import read_json
from townlet.telemetry.drawing import short
from townlet.telemetry.schema import ANNEAL_ALERTS, FIELDS, PAST_ALERTS, declared, field
from townlet.telemetry.series import number

Side = Literal["above", "below", "is"]
SIDES: tuple[Side, ...] = ("above", "below", "is")
RULE_KEYS = ("field", "above", "below", "is", "versus", "margin", "unless", "anneal", "smoothing", "patience")
FILE_KEYS = ("rules", "defaults", "smoothing", "patience", "max_gap")
MAX_RULES_FILE = 1 << 20
MOST_RECORDS = 10**9  # to wait for, or to take the mean of
PAST = "past"  # as `versus`: the field's own earlier records
PAST_WINDOW = 8  # records whose mean the defaults compare with the past
PAST_LEAST, PAST_KEPT = 32, 64  # earlier records before there is a past, and how far it goes back
PAST_CLEAR = 2.5  # standard deviations of the past by which a mean must differ from it: trainings wander
EXCUSE_SHARE, EXCUSE_LEAST = 0.1, 8  # by which a field must be above its past to excuse a rule, and the least records of that


@dataclass(frozen=True, slots=True)
class Rule:
    """Alert when a field is above or below a threshold, or a flag is as given, for `patience` records running.

    The value is the mean of the last `smoothing` records, once there are that many. With `versus` the threshold is a share on top
    of that other field of the same record; `versus` past means the median of the field's own records before those, from which
    the value must differ by the share, by `margin` on top, and by more than their spread explains. `unless` names a field that
    excuses the rule while it is well above its own past. With `anneal` only records of anneal stages count.
    """

    field: str
    side: Side
    threshold: float
    versus: str = ""
    anneal: bool = False
    smoothing: int = 1
    patience: int = 1
    margin: float = 0.0
    unless: str = ""

    @property
    def name(self) -> str:
        if self.side == "is":
            return f"{self.field} is {'true' if self.threshold else 'false'}"
        versus = f" × {self.versus}" if self.versus else ""
        return f"{self.field} {self.side} {short(self.threshold)}{versus}"


class Alarm(NamedTuple):
    rule: str
    field: str
    value: float
    threshold: float
    epoch: float
    message: str


def default_rules() -> list[Rule]:
    """The declared default alerts, and the guards of anneal stages."""
    rules = [
        Rule(item.name, item.alert.side, item.alert.threshold)
        for item in FIELDS
        if item.alert is not None and item.alert.threshold is not None
    ]
    rules += flag_rules({flag: share for flag, (_, _, share, *_) in PAST_ALERTS.items()})
    rules += [Rule(item.name, "is", 1.0) for item in FIELDS if item.kind == "flag" and item.name.endswith("_flag")]
    return [*rules, Rule("anneal_bc_passed", "is", 0.0)]


def flag_rules(values: Mapping[str, float | None]) -> list[Rule]:
    """Rules of the thresholds given by flag, flag → value."""
    declared_alerts = {item.alert.flag: (item.name, item.alert.side) for item in FIELDS if item.alert is not None}
    rules = []
    for flag, value in values.items():
        if value is None:
            continue
        if flag in ANNEAL_ALERTS:
            name, side, versus = ANNEAL_ALERTS[flag]
            rules.append(Rule(name, side, value, versus, anneal=True))
        elif flag in PAST_ALERTS:
            name, side, _, margin, unless = PAST_ALERTS[flag]
            rules.append(Rule(name, side, value, PAST, smoothing=PAST_WINDOW, margin=margin, unless=unless))
        else:
            rules.append(Rule(*declared_alerts[flag], value))
    return rules


def merged(base: Iterable[Rule], over: Iterable[Rule]) -> list[Rule]:
    """Later rules replace earlier ones on the same field, side and condition."""
    by_key = {(rule.field, rule.side, rule.versus, rule.anneal): rule for rule in (*base, *over)}
    return list(by_key.values())


# --- a rules file ----------------------------------------------------------------------------------------------------


class RulesFile(NamedTuple):
    rules: list[Rule]
    defaults: bool
    max_gap: float | None


def read_rules(path: Path | str) -> RulesFile:
    path = Path(path)
    if path.suffix == ".json":
        tree = read_json(path, limit=MAX_RULES_FILE, error=ConfigError)
    else:
        from townlet.config.loader import read_yaml  # the YAML door; only a YAML file needs it

        tree = read_yaml(path, limit=MAX_RULES_FILE)
    return rules_of(tree, str(path))


def rules_of(tree: object, name: str = "rules") -> RulesFile:
    if isinstance(tree, list):
        tree = {"rules": tree}
    if not isinstance(tree, dict) or not isinstance(tree.get("rules"), list):
        raise ConfigError(f"{name} holds no list `rules`; write rules: [{{field: kl_k3, above: 0.05}}, …]")
    _known(tree, FILE_KEYS, name)
    common = {key: tree[key] for key in ("smoothing", "patience") if key in tree}
    rules = [_rule(entry, common, f"{name}: rule {index + 1}") for index, entry in enumerate(tree["rules"])]
    defaults = tree.get("defaults", True)
    if not isinstance(defaults, bool):
        raise ConfigError(f"{name}: defaults is {defaults!r}, expected true or false")
    max_gap = tree.get("max_gap")
    if max_gap is not None and not number(max_gap) > 0:
        raise ConfigError(f"{name}: max_gap is {max_gap!r}, expected a number of seconds above 0")
    return RulesFile(rules, defaults, max_gap)


def _known(tree: Mapping[object, object], keys: tuple[str, ...], where: str) -> None:
    for key in tree:
        if key not in keys:
            hint = did_you_mean(str(key), keys) or f"choose from {', '.join(keys)}"
            raise ConfigError(f"{where}: {key!r} is not a key of a rule; {hint}")


def _rule(entry: object, common: Mapping[str, object], where: str) -> Rule:
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} is {entry!r}, expected an object such as {{field: kl_k3, above: 0.05}}")
    _known(entry, RULE_KEYS, where)
    name = entry.get("field")
    if not isinstance(name, str) or not declared(name):
        near = did_you_mean(str(name), [item.name for item in FIELDS])
        raise ConfigError(f"{where}: field is {name!r}, which no record has" + (near and f"; {near}"))
    sides = [side for side in SIDES if side in entry]
    if len(sides) != 1:
        raise ConfigError(f"{where}: {name} needs exactly one of above, below and is")
    side, wanted = sides[0], entry[sides[0]]
    flag = field(name).kind == "flag"
    if flag != (side == "is") or flag != isinstance(wanted, bool) or (not flag and math.isnan(number(wanted))):
        expected = "is: true or false" if flag else "above or below: a number"
        raise ConfigError(f"{where}: {name} has {side}: {wanted!r}, expected {expected}")
    counts = {key: entry.get(key, common.get(key, 1)) for key in ("smoothing", "patience")}
    for key, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_RECORDS:
            raise ConfigError(f"{where}: {key} is {value!r}, expected a whole number from 1 to {MOST_RECORDS}")
    versus = entry.get("versus", "")
    if versus and versus != PAST and not (isinstance(versus, str) and declared(versus) and field(versus).numeric):
        raise ConfigError(f"{where}: versus is {versus!r}, which is neither a numeric field nor {PAST}")
    margin = number(entry.get("margin", 0.0))
    if not margin >= 0 or (margin and versus != PAST):
        raise ConfigError(f"{where}: margin is {entry['margin']!r}, expected a number from 0 on beside versus: {PAST}")
    if not isinstance(entry.get("anneal", False), bool):
        raise ConfigError(f"{where}: anneal is {entry['anneal']!r}, expected true or false")
    unless = entry.get("unless", "")
    if unless and not (isinstance(unless, str) and declared(unless) and field(unless).numeric):
        raise ConfigError(f"{where}: unless is {unless!r}, which is not a numeric field")
    return Rule(name, side, float(wanted), versus, entry.get("anneal", False), **counts, margin=margin, unless=unless)


# --- a rule at work --------------------------------------------------------------------------------------------------


class RecentValues:
    """The last records of a field, and its past: those before them."""

    def __init__(self, window: int, least: int = PAST_LEAST) -> None:
        self.least = least
        self.last: deque[float] = deque(maxlen=window)
        self.past: deque[float] = deque(maxlen=PAST_KEPT)

    def add(self, value: float) -> None:
        if self.full:
            self.past.append(self.last[0])
        self.last.append(value)

    @property
    def full(self) -> bool:
        return len(self.last) == self.last.maxlen

    @property
    def mean(self) -> float:
        return math.fsum(self.last) / len(self.last)

    @property
    def base(self) -> float:
        """Median of the past; NaN, which nothing is above or below, while there is none yet."""
        return statistics.median(self.past) if len(self.past) >= self.least else math.nan

    @property
    def spread(self) -> float:
        """Standard deviation of the past. `statistics.stdev` counts in fractions, which was most of the time of reading a log."""
        mean = sum(value / len(self.past) for value in self.past)
        return math.hypot(*(value - mean for value in self.past)) / math.sqrt(len(self.past) - 1)


class RuleState:
    """One rule over the records of a run. It alerts once when the patience is used up, and again only after a good record. A rule
    against the past starts a new past after an alert: later records are compared with the new state."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.value = math.nan  # smoothed
        self.bad = 0  # records running
        self._series = RecentValues(rule.smoothing)
        self._excuse = RecentValues(PAST_WINDOW, EXCUSE_LEAST)

    def feed(self, record: Mapping[str, object]) -> Alarm | None:
        rule = self.rule
        excuse = number(record.get(rule.unless)) if rule.unless else math.nan
        if not math.isnan(excuse):
            self._excuse.add(excuse)
        raw = record.get(rule.field)
        if not isinstance(raw, int | float) or (rule.anneal and record.get("anneal_cycle") is None):
            return None
        if rule.versus not in ("", PAST) and math.isnan(number(record.get(rule.versus))):
            return None
        self._series.add(float(raw))
        self.value = self._series.mean
        limit = self._limit(record)
        bad = {"above": self.value > limit, "below": self.value < limit, "is": self.value == limit}[rule.side]
        self.bad = self.bad + 1 if bad and self._series.full and not self._excused() else 0
        if self.bad != rule.patience:
            return None
        alarm = self._alert(record, limit)
        if rule.versus == PAST:
            self._series.past.clear()
            self.bad = 0
        return alarm

    def _limit(self, record: Mapping[str, object]) -> float:
        """What the value is compared with."""
        rule = self.rule
        if not rule.versus:
            return rule.threshold
        if rule.versus != PAST:
            base = number(record.get(rule.versus))
            return base + abs(base) * rule.threshold
        base = self._series.base
        if math.isnan(base):
            return base
        gap = max(abs(base) * rule.threshold + rule.margin, PAST_CLEAR * self._series.spread)
        return base + gap if rule.side == "above" else base - gap

    def _excused(self) -> bool:
        base = self._excuse.base
        return not math.isnan(base) and self._excuse.mean > base + EXCUSE_SHARE * abs(base)

    def _alert(self, record: Mapping[str, object], limit: float) -> Alarm:
        rule = self.rule
        epoch = number(record.get("epoch"))
        if rule.side == "is":
            what = f"{rule.field} is {json.dumps(bool(limit))}"
        else:
            mean = f" (mean of {rule.smoothing})" if rule.smoothing > 1 else ""
            what = f"{rule.field} is {short(self.value)}{mean}, {rule.side} {short(limit)}"
        running = f", {self.bad} records running" if self.bad > 1 else ""
        return Alarm(rule.name, rule.field, self.value, limit, epoch, f"epoch {short(epoch)}: {what}{running}")
