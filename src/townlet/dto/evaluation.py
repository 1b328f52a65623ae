"""Scorecards: what a policy did in fixed towns on fixed seeds, measured per town and day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field

from townlet.dto import FrozenStrict

SCORECARD_VERSION = 2
SCORECARD_LIMIT = 64 << 20  # bytes of a file


class MeasureSpec(NamedTuple):
    label: str  # column heading
    unit: str
    better: int  # +1: more is better, -1: less is better, 0: neither
    decimals: int
    meaning: str


MEASURES: dict[str, MeasureSpec] = {
    "exits": MeasureSpec("exits", "per resident-day", -1, 3, "founders who left: collapses, evictions and exits of the scenario"),
    "founders": MeasureSpec("founders", "share", 1, 2, "residents of the first day who are there at the end"),
    "score": MeasureSpec("score", "0 random, 1 planner", 1, 3, "(return − random's) / (planner's − random's)"),
    "lead": MeasureSpec("lead", "0 script, 1 planner", 1, 2, "(return − script's) / (planner's − script's)"),
    "return": MeasureSpec("return", "per resident-day", 1, 2, "reward of the founders; 0 from an exit to the end"),
    "self_sufficiency": MeasureSpec("self-suff.", "share", 1, 3, "days on which every need of a resident stayed above a line"),
    "attendance": MeasureSpec("attendance", "share", 1, 3, "shifts that were not missed, of those that were due"),
    "lateness": MeasureSpec("late", "share", -1, 3, "shifts not begun on time, before any exit, of those that were due"),
    "late_minutes": MeasureSpec("late min", "minutes per shift", -1, 2, "from the start of a shift to a late arrival; 0 on time"),
    "conflicts": MeasureSpec("conflicts", "per resident-day", -1, 2, "queue conflicts"),
    "intensity": MeasureSpec("intensity", "per resident-day", -1, 2, "sum of the intensities of the conflicts"),
    "quarrels": MeasureSpec("quarrels", "per resident-day", -1, 2, "conflicts that became quarrels"),
    "overtakes": MeasureSpec("overtakes", "per resident-day", -1, 2, "times that somebody behind was let in first"),
    "wait_mean": MeasureSpec("wait", "ticks", -1, 1, "mean length of a wait in a queue"),
    "wait_p95": MeasureSpec("wait p95", "ticks", -1, 1, "95 % of the waits are shorter than this"),
    "wait_gini": MeasureSpec(
        "wait Gini", "0 to 1", -1, 3, "inequality of the waiting time among residents; 0: all wait the same"
    ),
    "wait_most": MeasureSpec("wait most", "minutes a day", -1, 1, "time in queues of the founder who waits most"),
    "wallet": MeasureSpec("wallet", "coins", 1, 2, "coins of a founder at the end; 0 after an exit"),
    "overspent": MeasureSpec(
        "overspent", "coins", -1, 2, "how much poorer a founder is at the end than at the start, debt included; else 0"
    ),
    "debt": MeasureSpec("debt", "coins", -1, 2, "rent and penalties a founder owes at the end"),
    "reconciliation": MeasureSpec(
        "reconciled",
        "ticks",
        -1,
        0,
        "from a pair's last conflict above the avoidance line until its rivalry is below half of that line",
    ),
    "collapses": MeasureSpec("collapses", "per resident-day", -1, 3, "exits because a need stayed empty, such as hunger"),
    "switching": MeasureSpec("switching", "share", 0, 3, "decisions that differ from the resident's previous one"),
    "newcomer_return": MeasureSpec("newcomers", "per resident-day", 1, 2, "reward of the newcomers alone"),
}


BESIDE = ("exits", "return", "attendance", "conflicts")  # measures of neighbours that a table shows
LOOKS = ("return", "conflicts")  # measures of a network that is shown the conflict fields of others


class Measure(FrozenStrict):
    """One number per town (null where it does not exist: no wait, no shift), and what they say together."""

    values: tuple[float | None, ...]
    count: int = Field(description="values that exist")
    mean: float | None
    iqm: float | None
    low: float | None = Field(description="lower end of the interval of the mean; null for a single value")
    high: float | None


def _all_measures(found: dict[str, Measure]) -> dict[str, Measure]:
    """A measure that a card of an earlier day does not have yet was not taken."""
    nothing = Measure(values=(), count=0, mean=None, iqm=None, low=None, high=None)
    return {name: found.get(name, nothing) for name in MEASURES} | found


Measures = Annotated[dict[str, Measure], AfterValidator(_all_measures)]


class Effect(FrozenStrict):
    """Policy minus baseline, paired by town and seed."""

    difference: float
    low: float | None = Field(description="null for a single pair")
    high: float | None
    cohens_d: float | None = Field(description="null when both are constants that differ")
    pairs: int

    @property
    def sign(self) -> int:
        """+1 or -1 when the interval lies on one side of 0."""
        if self.low is None or self.high is None:
            return 0
        return 1 if self.low > 0 else -1 if self.high < 0 else 0


class LateRow(FrozenStrict):
    """Lateness of one resident over all towns; the hour is that of its shift."""

    resident: str
    hour: int
    shifts: int = Field(description="that fell due")
    late: float = Field(description="share of them that turned late")
    minutes: float = Field(description="late per shift that fell due")


class PolicyCard(FrozenStrict):
    """One policy in one case."""

    name: str
    source: str = Field(description="what was evaluated: scripted, random, a checkpoint folder, or a mix of them by resident")
    policy_hash: str = Field(description="hash of the weights; the name of a built-in policy")
    dataset_hash: str | None = Field(
        default=None, description="hash of the data a checkpoint was trained on; null: it was given none, or it is no checkpoint"
    )
    kind: str
    measures: Measures
    neighbours: dict[str, Measure] | None = Field(
        default=None, description="the measures of everybody else, where they follow another policy; null: nobody does"
    )
    effects: dict[str, Effect] = Field(description="against the baseline; empty for the baseline itself")
    actions: dict[str, int] = Field(description="how often each action was chosen")
    rivalry_histogram: tuple[int, ...] = Field(description="decisions by the highest rivalry seen, ten bins over [0, 1]")
    needs: dict[str, float] = Field(
        default_factory=dict, description="share of decisions at which each need was above the line of self-sufficiency"
    )
    late: tuple[LateRow, ...] = Field((), description="lateness by resident and hour of the shift")
    sampled: bool | None = Field(default=None, description="of a network: it draws its actions, or takes the likeliest")
    looks: dict[str, Effect] | None = Field(
        default=None, description="of a network: what changes when conflict fields are shuffled among residents; null: not asked"
    )
    decisions: int
    steps_per_second: float = Field(description="resident-ticks per second, policy included; not compared")


class ScoreScale(FrozenStrict):
    """Figures of one town, per resident-day."""

    scenario: str
    town: str = Field(description="`town_hash` of the config that was measured")
    days: float
    random: float
    script: float | None = Field(None, description="of the town's own script, tuned where that was done, in the towns planned")
    base: float = Field(description="of the policy that the plan began with, in the towns planned")
    planner: float
    bound: float = Field(description="what no policy can exceed")
    towns: int = Field(description="planned")
    command: str

    def score(self, earned: float | None) -> float | None:
        """0 for random, 1 for the planner; None where they do not differ."""
        if earned is None or self.planner <= self.random:
            return None
        return (earned - self.random) / (self.planner - self.random)

    def lead(self, earned: float | None) -> float | None:
        """0 for the script, 1 for the planner; None where nobody measured the script, or the planner found nothing better."""
        if earned is None or self.script is None or self.planner <= self.script:
            return None
        return (earned - self.script) / (self.planner - self.script)

    def place(self, returns: Sequence[float | None]) -> dict[str, list[float | None]]:
        """Where returns stand on this scale, by measure."""
        return {"score": [self.score(earned) for earned in returns], "lead": [self.lead(earned) for earned in returns]}


class CaseCard(FrozenStrict):
    """One town and one way of filling it, under every policy."""

    name: str
    scenario: str
    overrides: tuple[str, ...]
    learners: str = Field(description="whose residents the evaluated policy controls: all, first, half, newcomers")
    neighbours: str | None = Field(description="who controls the others; null: the policy itself")
    config_id: str
    config_hash: str
    seed: int = Field(description="odd and above 10⁶")
    towns: int = Field(description="towns 0, 1, … of that seed: the order of every measure's values")
    residents: int
    days: float
    ends: ScoreScale | None = Field(default=None, description="the scale of `score`; null: nobody has planned this town")
    policies: tuple[PolicyCard, ...]

    @property
    def size(self) -> str:
        days = f"{self.days:g} day{'' if self.days == 1 else 's'}"
        towns = f"{self.towns} town{'' if self.towns == 1 else 's'}"
        residents = f"{self.residents} resident{'' if self.residents == 1 else 's'}"
        return f"{towns} × {residents} × {days}, seed {self.seed}"

    def policy(self, name: str) -> PolicyCard:
        return next(card for card in self.policies if card.name == name)


class Scorecard(FrozenStrict):
    """The result of `townlet evaluate`: every policy in every case of a suite."""

    schema_version: Literal[2] = 2
    suite: str
    baseline: str | None
    policies: tuple[str, ...]
    rewards_hash: str = Field(description="of the reward weights used, `evaluation.rewards`")
    level: float = Field(0.95, description="of every interval, `evaluation.level`")
    self_sufficient_above: float = Field(0.3, description="the line of self-sufficiency")
    notes: tuple[str, ...] = Field((), description="what a reader of the figures should know")
    versions: dict[str, str]
    cases: tuple[CaseCard, ...]

    def values(self, measure: str, policy: str) -> tuple[float | None, ...]:
        """Town-day values of a measure over all cases, in order: two policies of one scorecard are paired by position."""
        return tuple(value for case in self.cases for value in case.policy(policy).measures[measure].values)
