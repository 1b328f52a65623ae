#!/usr/bin/env python3
"""Both ends of the score for every shipped town and for twenty drawn ones: `townlet plan` and `townlet bound` over all of them.

A row is made once per command and kept in `results.json`, so the study goes on where it was stopped; rows of shipped towns are
also what `configs/ends.json` holds. The metropolis is sampled: a town of two hundred by the same numbers.

    python benchmarks/ends/plan_towns.py          # plan what is missing; results, ends, the table of docs/evaluation.md
    python benchmarks/ends/plan_towns.py --table  # only write the table anew
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

from townlet.dto.evaluation import ScoreScale
from townlet.evaluation.score_scale import save_scales
from townlet.evaluation.suites import Case
from townlet.files import read_json, write_json, write_text
from townlet.scenarios.compile import compile_town
from townlet.scenarios.random_town import feasible_town
from townlet.scenarios.shipped import ordered_names
from townlet.studies.planner import Effort, plan_case

RESULTS = Path(__file__).with_name("results.json")
ENDS = Path("configs/ends.json")
GUIDE = Path("docs/evaluation.md")
BEGIN, END = "<!-- ends: written by benchmarks/ends/plan_towns.py -->", "<!-- ends end -->"
DRAWN = range(20)
USUAL = (20, 32)  # generations, copies
EFFORTS = {"town_day": (40, 32), "market_square": (16, 8), "metropolis": (16, 8), "rush_hour": (12, 24)}
LONGER = {"town_day": {1: 4, 7: 2, 28: 1}, "two_bathrooms": {1: 2, 7: 1, 28: 1}, "rush_hour": {1: 1, 7: 1}}  # days: towns
WEEK = ("newcomer", "blackout_evening", "festival")
SAMPLE = ("scenario.generate.residents=200", "scenario.size=[80, 80]", "scenario.generate.workers_per_site=50")


@dataclass(frozen=True)
class Job:
    name: str
    days: int
    towns: int
    effort: tuple[int, int]
    overrides: tuple[str, ...] = ()
    seed: int | None = None  # of a drawn town

    @property
    def command(self) -> str:
        generations, copies = self.effort
        words = f"townlet plan {self.name} --days {self.days} --towns {self.towns} --generations {generations} --copies {copies}"
        words += "".join(f" --set '{word}'" for word in self.overrides)
        return words if self.seed is None else f"townlet scenarios new {self.name} --generate {self.seed}; {words}"

    def case(self) -> Case:
        drawn = None if self.seed is None else feasible_town(self.seed)
        return Case(self.name, self.name, towns=self.towns, days=self.days, overrides=self.overrides, config=drawn)


def jobs() -> list[Job]:
    days: dict[str, dict[int, int]] = {name: LONGER.get(name, {1: 1}) for name in ordered_names()}
    days |= {name: {1: 2, 7: 1} for name in WEEK}
    shipped = [
        Job(name, span, towns, EFFORTS.get(name, USUAL), SAMPLE if name == "metropolis" else ())
        for name, spans in days.items()
        for span, towns in spans.items()
    ]
    drawn = [Job(f"drawn_{seed:02d}", 1, 1, USUAL, seed=seed) for seed in DRAWN]
    return sorted(shipped + drawn, key=lambda job: job.days)


def planned(job: Job) -> dict[str, Any]:
    case = job.case()
    begun = process_time()
    found = plan_case(case, "scripted", effort=Effort(*job.effort), command=job.command).ends
    seconds = (process_time() - begun) / job.towns / job.days
    residents = int(compile_town(case.town()).layout.residents["present"].sum())
    return {**found.model_dump(mode="json"), "residents": residents, "seconds_per_town_day": round(seconds, 2)}


def scale_of(row: dict[str, Any]) -> ScoreScale:
    return ScoreScale.model_validate({name: value for name, value in row.items() if name in ScoreScale.model_fields})


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| town | residents | days (towns) | random | script | planner | bound | bracket | s per town-day |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
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


NUMBERS = ("random", "script", "planner", "bound", "seconds_per_town_day")


def figures(row: dict[str, Any]) -> str:
    values = [f"{row[key]:.2f}" for key in NUMBERS[:4]]
    return " | ".join([*values, f"{row['bound'] - row['planner']:.2f}", f"{row['seconds_per_town_day']:.1f}"])


def write_table(rows: list[dict[str, Any]]) -> None:
    before, _, rest = GUIDE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    write_text(GUIDE, f"{before}{BEGIN}\n\n{table(rows)}\n\n{END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Plan every town.")
    parser.add_argument("--table", action="store_true", help="only write the table of docs/evaluation.md")
    parser.add_argument("--only", nargs="*", help="names of towns to plan now")
    chosen = parser.parse_args()
    order = {job.command: number for number, job in enumerate(jobs())}
    rows = {row["command"]: row for row in (read_json(RESULTS)["rows"] if RESULTS.exists() else [])}
    rows = {command: row for command, row in rows.items() if command in order}
    for job in jobs():
        if chosen.table or job.command in rows or (chosen.only and job.name not in chosen.only):
            continue
        row = rows[job.command] = planned(job)
        kept = sorted(rows.values(), key=lambda one: order[one["command"]])
        write_json(RESULTS, {"rows": kept})
        if job.seed is None and not job.overrides:
            save_scales(ENDS, [scale_of(row)])
        print(job.command, {key: round(row[key], 3) for key in NUMBERS}, flush=True)
    write_table(sorted(rows.values(), key=lambda one: (one["scenario"], one["days"])))


if __name__ == "__main__":
    main()
