#!/usr/bin/env python3
"""Both ends of the score for every shipped town and for twenty drawn ones: `townlet plan` and `townlet bound` over all of them.

A row is made once per command and kept in `results.json`, so the study goes on where it was stopped; rows of shipped towns are
also what `configs/ends.json` holds. Towns of at most 24 residents in which people can live longer than a day are also planned
over a week and a month. There a plan begins with a policy that was trained for the town with the demo's recipe, elsewhere with
the script. The metropolis is sampled: a town of two hundred by the same numbers.

    python benchmarks/ends/plan_towns.py          # plan what is missing; results, ends, the table of docs/evaluation.md
    python benchmarks/ends/plan_towns.py --table  # only write the table anew
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

from townlet.dto.evaluation import ScoreScale
from townlet.evaluation.score_scale import load_scales, save_scales
from townlet.evaluation.suites import Case
from townlet.files import read_json, write_json, write_text
from townlet.scenarios.compile import compile_town
from townlet.scenarios.random_town import feasible_town
from townlet.scenarios.shipped import ordered_names
from townlet.studies.bound import bound
from townlet.studies.planner import Effort, plan_case

RESULTS = Path(__file__).with_name("results.json")
ENDS = Path("configs/ends.json")
GUIDE = Path("docs/evaluation.md")
BEGIN, END = "<!-- ends: written by benchmarks/ends/plan_towns.py -->", "<!-- ends end -->"
DRAWN = range(20)
USUAL = (20, 32)  # generations, copies
EFFORTS = {"market_square": (16, 8), "metropolis": (16, 8), "rush_hour": (12, 24)}
LIVED_IN = ("town_day", "two_bathrooms", "rush_hour", "newcomer", "blackout_evening", "festival")
TOWNS = {"town_day": {1: 4}, "rush_hour": {1: 1}}  # days: towns; for others two over a day, one over a week and a month
TRAINED = Path("runs/ends")  # policies that plans begin with
SILENT = "features.stages.social_rewards=OFF"
SAMPLE = ("scenario.generate.residents=200", "scenario.size=[80, 80]", "scenario.generate.workers_per_site=50")


@dataclass(frozen=True)
class Job:
    name: str
    days: int
    towns: int
    effort: tuple[int, int]
    base: str = "scripted"
    overrides: tuple[str, ...] = ()
    seed: int | None = None  # of a drawn town

    @property
    def command(self) -> str:
        generations, copies = self.effort
        words = f"townlet plan {self.name} --days {self.days} --towns {self.towns} --generations {generations} --copies {copies}"
        words += "" if self.base == "scripted" else f" --base {self.base}"
        words += "".join(f" --set '{word}'" for word in self.overrides)
        if self.base != "scripted":
            return f"townlet {' '.join(self.training)}; {words}"
        return words if self.seed is None else f"townlet scenarios new {self.name} --generate {self.seed}; {words}"

    @property
    def training(self) -> tuple[str, ...]:
        """The words of the command that makes the base."""
        return "train", self.name, "--recipe", "demo", "--run-dir", self.base

    def case(self) -> Case:
        drawn = None if self.seed is None else feasible_town(self.seed)
        return Case(self.name, self.name, towns=self.towns, days=self.days, overrides=self.overrides, config=drawn)


def jobs() -> list[Job]:
    shipped = [
        Job(name, 1, 1, EFFORTS.get(name, USUAL), overrides=SAMPLE if name == "metropolis" else ())
        for name in ordered_names()
        if name not in LIVED_IN
    ]
    lived_in = [
        Job(name, days, towns, EFFORTS.get(name, USUAL), str(TRAINED / name), ("policy.action_level=candidates",))
        for name in LIVED_IN
        for days, towns in ({1: 2, 7: 1, 28: 1} | TOWNS.get(name, {})).items()
    ]
    drawn = [Job(f"drawn_{seed:02d}", 1, 1, USUAL, seed=seed) for seed in DRAWN]
    return sorted(shipped + lived_in + drawn, key=lambda job: job.days)


def planned(job: Job) -> dict[str, Any]:
    case = job.case()
    if job.base != "scripted" and not Path(job.base, "summary.json").exists():
        words = ("train", "--resume", job.base) if Path(job.base).exists() else (*job.training, "--workers", "1")
        subprocess.run([Path(sys.executable).with_name("townlet"), *words], check=True)
    begun = process_time()
    found = plan_case(case, job.base, effort=Effort(*job.effort), command=job.command).ends
    seconds = (process_time() - begun) / job.towns / job.days
    residents = int(compile_town(case.town()).layout.residents["present"].sum())
    return {**found.model_dump(mode="json"), "residents": residents, "seconds_per_town_day": round(seconds, 2)}


def scale_of(row: dict[str, Any]) -> ScoreScale:
    return ScoreScale.model_validate({name: value for name, value in row.items() if name in ScoreScale.model_fields})


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| town | residents | days (towns) | random | script | base | planner | bound | bracket | s per town-day |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        if row["scenario"].startswith("drawn_"):
            continue
        name = row["scenario"] + (f" (sample of {row['residents']})" if row["scenario"] == "metropolis" else "")
        lines.append(f"| {name} | {row['residents']} | {row['days']:g} ({row['towns']}) | {figures(row)} |")
    drawn = [row for row in rows if row["scenario"].startswith("drawn_")]
    if drawn:
        mean = {key: sum(row[key] for row in drawn) / len(drawn) for key in NUMBERS}
        people = f"{min(row['residents'] for row in drawn)}–{max(row['residents'] for row in drawn)}"
        lines.append(f"| {len(drawn)} drawn towns, mean | {people} | 1 (1) | {figures(mean)} |")
    return "\n".join(lines)


NUMBERS = ("random", "script", "base", "planner", "bound", "seconds_per_town_day")


def figures(row: dict[str, Any]) -> str:
    values = [f"{row[key]:.2f}" for key in NUMBERS[:5]]
    return " | ".join([*values, f"{row['bound'] - row['planner']:.2f}", f"{row['seconds_per_town_day']:.1f}"])


def write_table(rows: list[dict[str, Any]]) -> None:
    before, _, rest = GUIDE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    write_text(GUIDE, f"{before}{BEGIN}\n\n{table(rows)}\n\n{month()}\n\n{END}{after}")


def month() -> str:
    """How far above the script the ends of a month in town_day are, in scores."""
    scale = next(one for one in load_scales(ENDS).values() if (one.scenario, one.days) == ("town_day", 28.0))
    silent = bound(Case("town_day", "town_day", days=28, overrides=(SILENT,)).town()).mean
    ends = (scale.planner, scale.bound, silent)
    planner, highest, without_chat = (scale.score(end or 0.0) - scale.score(scale.script) for end in ends)
    return (
        f"Over a month in `town_day` the planner scores {planner:.3f} more than the tuned script. The bound, without walking and "
        f"queues, scores {highest:.3f} more, and {without_chat:.3f} more where chat earns nothing "
        f"(`townlet bound town_day --days 28 --set {SILENT}`)."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Plan every town.")
    parser.add_argument("--table", action="store_true", help="only write the table of docs/evaluation.md")
    parser.add_argument("--only", nargs="*", help="names of towns to plan now")
    parser.add_argument("--days", nargs="*", type=int, help="how many days to plan now")
    chosen = parser.parse_args()
    kept = read_json(RESULTS)["rows"] if RESULTS.exists() else []
    rows = {(row["scenario"], row["days"]): row for row in kept}  # of an earlier command until it is planned by the present one
    for job in jobs():
        place = job.name, float(job.days)
        done = place in rows and rows[place]["command"] == job.command
        if chosen.table or done or (chosen.only and job.name not in chosen.only) or (chosen.days and job.days not in chosen.days):
            continue
        row = rows[place] = planned(job)
        write_json(RESULTS, {"rows": [rows[at] for at in sorted(rows)]})
        if job.seed is None and job.name != "metropolis":
            save_scales(ENDS, [scale_of(row)])
        print(job.command, {key: round(row[key], 3) for key in NUMBERS}, flush=True)
    write_table([rows[at] for at in sorted(rows)])


if __name__ == "__main__":
    main()
