#!/usr/bin/env python3
"""How often does `townlet telemetry drift` cry wolf, and how often does it see a change of a tenth?

Runs the town with scripted, ε-soft residents many times, each with its own seed, and keeps per epoch what a record keeps. Pairs
of runs of the same kind must seldom alarm; pairs against runs whose ε was really changed, and conflicts with it by about a tenth,
must mostly alarm.

    python benchmarks/telemetry/drift_study.py --output docs/telemetry/DRIFT.md
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

from townlet.envs.vector import VectorTown
from townlet.files import write_text
from townlet.policy.runtime import ScriptedPolicy
from townlet.policy.training.telemetry import RivalryTally, TownTally
from townlet.telemetry.drift import compare
from townlet.telemetry.series import LogSeries, series_of

BASE = 0.05  # ε of the runs that are alike


def run(epsilon: float, seed: int, *, towns: int, epochs: int, decisions: int) -> LogSeries:
    """One run as columns: its conflict, waiting, rivalry and reward figures, epoch by epoch."""
    vec = VectorTown("town_day", towns, seed=seed, start="random")
    policy = ScriptedPolicy(epsilon, seed)
    policy.reset(vec)
    names = vec.spec.feature_names
    columns = [names.index(name) for name in ("rivalry_max", "rivalry_avoid_count")]
    records: list[dict[str, Any]] = []
    for epoch in range(1, epochs + 1):
        town, rivalry, reward, count = TownTally(), RivalryTally(), 0.0, 0
        for _ in range(decisions):
            there = vec.active.astype(bool)
            rivalry.add(*(vec.features[..., column][there] for column in columns))
            decision = policy.act(vec)
            vec.step(decision.actions)
            town.add(vec.events())
            reward += float(vec.rewards[there].sum())
            count += int(there.sum())
        days = count * vec.interval / 1440
        records.append({"epoch": epoch, **town.record(), **rivalry.record(), "episode_return_mean": reward / days})
    return series_of(records, label=f"ε {epsilon:g}, seed {seed}")


def conflicts(series: LogSeries) -> float:
    values = series.column("queue_conflict_events")
    return float(values[len(values) // 2 :].mean())


def changed_epsilon(base: float, size: dict[str, int]) -> tuple[float, float]:
    """An ε whose conflicts differ from the base by about a tenth, and by how much they do, over a few seeds."""

    def level(epsilon: float) -> float:
        return float(np.mean([conflicts(run(epsilon, 900_000 + 2 * k, **size)) for k in range(3)]))

    normal = level(base)
    return min(
        ((epsilon, level(epsilon) / normal - 1) for epsilon in (0.0, 0.015, 0.03, 0.1, 0.15, 0.2)),
        key=lambda pair: abs(abs(pair[1]) - 0.1),
    )


def study(runs: int, pairs: int, size: dict[str, int], changed: float | None = None) -> str:
    if changed is None:
        epsilon, shift = changed_epsilon(BASE, size)
        print(f"changed ε {epsilon:g}: conflicts {shift:+.1%}", file=sys.stderr)
    else:
        epsilon = changed
    alike = [run(BASE, 2 * k, **size) for k in range(runs)]
    other = [run(epsilon, 100_000 + 2 * k, **size) for k in range(max(2, runs // 2))]
    draw = random.Random(0)
    same_pairs = draw.sample(list(itertools.permutations(range(runs), 2)), pairs)
    other_pairs = draw.sample(list(itertools.product(range(len(other)), range(runs))), pairs)
    real = np.mean([conflicts(series) for series in other]) / np.mean([conflicts(series) for series in alike]) - 1
    rows = []
    for effect in (0.0, 0.03, 0.05, 0.08):
        false = [compare(alike[a], alike[b], min_effect=effect).alarms for a, b in same_pairs]
        found = [compare(other[a], alike[b], min_effect=effect).alarms for a, b in other_pairs]
        rows.append(
            (
                f"{effect:.0%}" + (" (default)" if effect == 0.05 else ""),
                np.mean([bool(alarms) for alarms in false]),
                np.mean(["queue_conflict_events" in alarms for alarms in false]),
                np.mean([bool(alarms) for alarms in found]),
                np.mean(["queue_conflict_events" in alarms for alarms in found]),
            )
        )
    spread = np.std([conflicts(series) for series in alike]) / np.mean([conflicts(series) for series in alike])
    return page(rows, runs, len(other), pairs, epsilon, float(real), float(spread), size)


def page(
    rows: list[Any], runs: int, changed: int, pairs: int, epsilon: float, shift: float, spread: float, size: dict[str, int]
) -> str:
    lines = [
        "# Drift: false alarms and detection",
        "",
        "*Written by `python benchmarks/telemetry/drift_study.py --output docs/telemetry/DRIFT.md`.*",
        "",
        f"{runs} runs of `town_day` with scripted residents (ε {BASE:g}), each with its own seed: {size['towns']} towns, "
        f"{size['epochs']} epochs of {size['decisions']} decisions. Compared with {changed} runs whose ε was really changed to "
        f"{epsilon:g}, which moved queue conflicts by {shift:+.1%}; from run to run of the same kind they vary by {spread:.1%} "
        "(one standard deviation).",
        "",
        f"{pairs} pairs of the same kind, {pairs} pairs of different kinds, `townlet telemetry drift` at level 0.95 over all",
        "metrics together, on the later half of the epochs:",
        "",
        "| `--min-effect` | false alarms, any metric | false alarms, conflicts | detected, any metric | detected, conflicts |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    lines += ["| " + name + " | " + " | ".join(f"{share:.1%}" for share in shares) + " |" for name, *shares in rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure false alarms and detection of drift on real runs of the town.")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--towns", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=32)
    parser.add_argument("--decisions", type=int, default=36)
    parser.add_argument("--changed", type=float, help="ε of the other runs; by default the one that moves conflicts by a tenth")
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    size = {"towns": chosen.towns, "epochs": chosen.epochs, "decisions": chosen.decisions}
    text = study(chosen.runs, chosen.pairs, size, chosen.changed)
    if chosen.output is None:
        print(text)
    else:
        write_text(chosen.output, text)


if __name__ == "__main__":
    main()
