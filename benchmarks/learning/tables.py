"""The tables of README.md, docs/training.md and docs/evaluation.md that show studies, written from the results that are kept.

Nothing is trained: the policies of the studies stay as they were measured, with score and lead on today's scale. Every table
stands in its page between `<!-- table NAME -->` and `<!-- table end -->`.

    python benchmarks/learning/tables.py [NAME …]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from townlet.dto.evaluation import MEASURES
from townlet.dto.studies import StudyReport
from townlet.files import read_json, write_text
from townlet.statistics import paired_difference
from townlet.studies.runner import report_study
from townlet.studies.spec import load_spec

HERE = Path(__file__).parent
PAGES = (Path("README.md"), Path("docs/training.md"), Path("docs/evaluation.md"))
BEGIN, END = "<!-- table {} -->", "<!-- table end -->"
SCRIPT, CHANCE = "scripted", "random"
NAMES = {
    "exits": "exits per resident-day",
    "founders": "founders left",
    "score": "[score](evaluation.md#both-ends-of-the-scale)",
    "lead": "[lead](evaluation.md#both-ends-of-the-scale)",
    "return": "return per resident-day",
    "self_sufficiency": "self-sufficient days",
    "lateness": "late shifts",
    "conflicts": "conflicts per resident-day",
    "wait_mean": "minutes per wait",
    "wait_gini": "Gini of waits",
    "wallet": "wallet at the end",
}
DECIMALS = {"exits": 4, "founders": 3}  # one founder of all towns is to be seen
STORED = ("exits", "founders", "score", "return", "self_sufficiency", "attendance", "lateness", "conflicts", "wallet")
MONTH = (
    *("exits", "founders", "return", "score", "lead", "self_sufficiency", "attendance", "lateness"),
    *("conflicts", "quarrels", "wait_mean", "wait_gini", "wallet", "overspent"),
)
FRONT = ("exits", "founders", "score", "lead", "return", "attendance", "lateness", "conflicts", "overspent")
PAIRED = ("return", "conflicts", "lateness", "attendance", "founders")
PEACE = ("conflicts", "return", "founders", "self_sufficiency", "attendance", "lateness", "wallet")
CHANGES = ("return", "score", "lead", "conflicts", "lateness", "attendance")


@cache
def report(study: str) -> StudyReport:
    return report_study(load_spec(HERE / f"{study}.yaml"))


def per_seed(study: str, arm: str, name: str) -> list[float]:
    means = [result.measures[name].mean for result in report(study).results if result.arm == arm]
    return [mean for mean in means if mean is not None]


def base(study: str, policy: str, name: str) -> float:
    mean = report(study).baselines[policy][name].mean
    assert mean is not None
    return mean


def figure(value: float, name: str, sign: str = "") -> str:
    text = f"{value:{sign}.{DECIMALS.get(name, MEASURES[name].decimals)}f}"
    return (text if float(text) else text.replace("-", "")).replace("-", "−")


def with_interval(values: Sequence[float], name: str, sign: str = "") -> str:
    """Mean over seeds and its 95 % interval; the mean alone where it has no width or there is one seed."""
    found = paired_difference(np.array(values), np.zeros(len(values)), method="student")
    ends = [figure(end, name, sign) for end in (found.low, found.high)]
    mean = figure(found.value, name, sign)
    return mean if len(values) < 2 or ends == [mean, mean] else f"{mean} ({ends[0]} … {ends[1]})"


def worst(values: Sequence[float], name: str) -> str:
    return figure(min(values) if MEASURES[name].better > 0 else max(values), name)


def rows(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *body))


def by_measure(study: str, arm: str, title: str, names: Sequence[str] = MONTH) -> str:
    """A column each for the script, the mean over the seeds and the worst of them."""
    body = []
    for name in names:
        values = per_seed(study, arm, name)
        if values:  # else it was measured before there was such a measure
            script, mean = figure(base(study, SCRIPT, name), name), with_interval(values, name)
            body.append([NAMES.get(name, name), script, mean, worst(values, name)])
    return rows(["28 days", "script, tuned", title, "worst seed"], body)


def by_policy(study: str, arms: dict[str, str], bases: dict[str, str], names: Sequence[str], *, shares: bool = False) -> str:
    """A row for each arm; with `shares` also its score in parts of the script's, and the worst seed's."""
    names = [name for name in names if all(per_seed(study, arm, name) for arm in arms)]
    heads = [NAMES.get(name, name).split("](")[0].strip("[") for name in names]
    body = [[title, *(figure(base(study, policy, name), name) for name in names)] for policy, title in bases.items()]
    for arm, title in arms.items():
        body.append([title, *(with_interval(per_seed(study, arm, name), name) for name in names)])
    if shares:
        heads += ["of the teacher's score, worst seed", "seeds"]
        body[0] += ["", ""]
        for row, arm in zip(body[len(bases) :], arms):
            parts = [score / base(study, SCRIPT, "score") for score in per_seed(study, arm, "score")]
            row += [f"{np.mean(parts):.3f}, {min(parts):.3f}", str(len(parts))]
    if len(arms) == 1:
        only = next(iter(arms))
        body.append([f"{arms[only]}, worst seed", *(worst(per_seed(study, only, name), name) for name in names)])
    return rows(["policy", *heads], body)


def changes(studies: dict[str, str], arm: str) -> str:
    """The arm minus the script, over several spans."""
    body = []
    for name in CHANGES:
        gaps = [np.array(per_seed(study, arm, name)) - base(study, SCRIPT, name) for study in studies]
        body.append([NAMES.get(name, name).split("](")[0].strip("["), *(with_interval(gap.tolist(), name, "+") for gap in gaps)])
    return rows(["trained − tuned script", *studies.values()], body)


def contrasts(studies: Sequence[str], names: Sequence[str]) -> str:
    """A row for each contrast of the studies that two seeds or more have: the first arm minus the second, paired by seed."""
    body = []
    for study in studies:
        for pair in load_spec(HERE / f"{study}.yaml").contrasts:
            found = {one.measure: one for one in report(study).contrasts if (one.arm, one.against) == pair and one.seeds > 1}
            cells = []
            for one in [found[name] for name in names if found]:
                mean, low, high = (figure(value or 0.0, one.measure, "+") for value in (one.difference, one.low, one.high))
                cells.append(f"{mean} ({low} … {high})")
            if found:
                title = f"{study.removesuffix('_sight')}: {' − '.join(pair)}".replace("_", " ")
                body.append([title, str(found[names[0]].seeds), *cells])
    return rows(["difference", "seeds", *(NAMES.get(name, name) for name in names)], body)


def nine_weights() -> str:
    """The one network beside those that were trained for one weight each: mean over seeds of both, and their difference."""
    body = []
    for row in read_json(HERE / "results" / "nine_weights.json")["table"]:
        pairs = {name: ", ".join(figure(value, name) for value in row[name]) for name in PAIRED}
        mean, low, high = (figure(value, "return", "+") for value in row["difference"])
        body.append([f"{row['weight']:g}", pairs["return"], f"{mean} ({low} … {high})", *(pairs[name] for name in PAIRED[1:])])
    return rows(["weight", "return", "difference", "conflicts", "late", "attendance", "founders"], body)


def strangers() -> str:
    """The 2 × 2 table, a quarter per row: the lead of the trained over the script, then columns of both."""
    body = []
    for row in read_json(HERE / "results" / "strangers.json")["table"]:
        mean, low, high = (figure(value, "return", "+") for value in row["lead"])
        cells = [f"{row['towns']}, {row['partners']}", f"{mean} ({low} … {high})"]
        for column in AMONG_STRANGERS.values():
            trained, script = (figure(value, column.partition(" of ")[0]) for value in row[column])
            cells.append(f"{trained} ({script})")
        body.append(cells)
    return rows(["towns, partners", "lead in return", *AMONG_STRANGERS], body)


def trials() -> str:
    """The last trials of the demo's recipe, on validation towns; what is changed is said against the demo as it was then."""
    body = []
    for title, changed in TRIALS.items():
        found = [row for row in read_json(HERE / "results" / "recipe_trials.json") if row["changed"] == changed.split(" | ")]
        cells = [figure(_mean(found, "measures", name), name) for name in TRIED]
        shuffled = ", ".join(figure(_mean(found, "shuffled", name), name, "+") for name in ("return", "conflicts"))
        more = ", ".join(f"{_mean(found, 'further', name):.4f}" for name in ("founders", "attendance"))
        body.append([title, str(len(found)), *cells, shuffled, more])
    heads = [NAMES.get(name, name).removesuffix(" per resident-day") for name in TRIED]
    return rows(["recipe", "seeds", *heads, "shuffled fields: return, conflicts", "48 more towns: founders, attendance"], body)


def _mean(found: list[dict[str, dict[str, float]]], part: str, name: str) -> float:
    return float(np.mean([row[part][name] for row in found]))


LONG = "training.anneal_schedule=[{cycle: 0, mode: bc, epochs: 6, scripted_share: 1.0}, {cycle: 1, mode: ppo, epochs: 400}]"
TRIED = ("return", "founders", "lateness", "conflicts", "overspent")
TRIALS = {  # title: what `recipe_trials.py` was told, when a conflict weighed 10 and `reserve` was raised by 16
    "the row in bold above": f"{LONG} | rewards.conflict_weight=10",
    "… `chat` raised by 6": "training.first_logits={reserve: 16.0, chat: 6.0}",
    "… `chat` raised by 12": "training.first_logits={reserve: 16.0, chat: 12.0}",
    "nothing raised": "training.first_logits={reserve: 0}",
    "… conflict 20": "training.first_logits={reserve: 0} | rewards.conflict_weight=20",
    "only `chat` raised, by 12": "rewards.conflict_weight=10",  # when the last row was the demo
    "**… conflict 20: the demo**": "training.first_logits={chat: 12.0} | rewards.conflict_weight=20",
    "… conflict 30": "training.first_logits={chat: 12.0} | rewards.conflict_weight=30",
    "… conflict 20, `chat` raised by 20": "training.first_logits={chat: 20.0} | rewards.conflict_weight=20",
    "… `chat` raised by 12, 96 towns": "training.first_logits={chat: 12.0} | rewards.conflict_weight=20 | training.towns=96",
}
AMONG_STRANGERS = {
    "conflicts": "conflicts of the measured",
    "attendance": "attendance of the measured",
    "late": "lateness of the measured",
    "exits": "exits of the measured",
    "neighbours' return": "return of neighbours",
    "their conflicts": "conflicts of neighbours",
}
ALGORITHMS = {name: f"`{name}`" for name in ("bc", "awr", "iql", "cql")}
SPANS = {"town_day_first_day": "1 day", "town_day_week": "7 days", "town_day": "28 days"}
TABLES: dict[str, Callable[[], str]] = {
    "demo": lambda: by_policy("town_day", {"trained": "trained"}, {CHANCE: "random", SCRIPT: "script, tuned"}, FRONT),
    "demo by measure": lambda: by_measure("town_day", "trained", "trained"),
    "demo over spans": lambda: changes(SPANS, "trained"),
    "from nothing": lambda: by_measure("from_nothing", "trained", "from nothing"),
    "random lives": lambda: by_policy("replay_random", ALGORITHMS, {CHANCE: "random"}, STORED[:-1]),
    "scripted lives": lambda: by_policy("replay", ALGORITHMS, {SCRIPT: "script, the teacher"}, STORED, shares=True),
    "nine weights": nine_weights,
    "strangers": strangers,
    "trials": trials,
    "coordination": lambda: contrasts(["coordination"], PEACE),
    "sight": lambda: contrasts(["two_bathrooms_sight", "rush_hour_sight"], PEACE),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"which tables; by default all: {', '.join(TABLES)}")
    names = parser.parse_args().names or list(TABLES)
    for page in PAGES:
        text = page.read_text()
        for name in names:
            before, mark, rest = text.partition(BEGIN.format(name))
            if mark:
                text = f"{before}{mark}\n\n{TABLES[name]()}\n\n{END}{rest.partition(END)[2]}"
        write_text(page, text)


if __name__ == "__main__":
    main()
