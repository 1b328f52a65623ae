"""Towns never seen: train as the demo does, on town_day and generated towns, and measure in twenty others.

How far from random to scripted does the trained policy get? Bar: half of the way, in the mean over the twenty.

    python benchmarks/learning/generalisation.py [--seeds 0 1 2]
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np

from townlet.config.loader import default_config, load_config
from townlet.config.models import SimulationConfig
from townlet.config.scenario import GenerateConfig, ScenarioConfig
from townlet.envs.vector import VectorTown
from townlet.evaluation.scorecard import run_case
from townlet.evaluation.suites import Case, draw_seed
from townlet.files import make_folder, write_json, write_text
from townlet.policy.training.contexts import RunOptions
from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator
from townlet.policy.training.run_folder import RunFolder
from townlet.scenarios.random_town import feasible_town, written_out
from townlet.statistics import mean_interval

SEEN, UNSEEN, TOWNS = 15, 20, 8
BAR = 0.5
RUNS = Path("runs/generalisation")
RESULT = Path(__file__).parent / "results" / "generalisation.json"
OVERRIDES = ("training.eval_every=0", "training.threads=1")


def drawn(seed: int, attempt: int) -> SimulationConfig:
    """A town of the size of town_day: eight residents on 24 × 24 tiles, everything else drawn."""
    draw = random.Random(f"generalisation/{seed}/{attempt}")
    shift = 60 * draw.randint(7, 11)
    how = GenerateConfig(
        seed=seed,
        residents=8,
        block=12,
        residents_per_home=8,
        workers_per_site=8,
        residents_per={
            "shower": draw.choice([3.0, 4.0, 8.0]),
            "stove": draw.choice([3.0, 4.0, 8.0]),
            "fridge": 8.0,
            "table": draw.choice([2.0, 3.0, 4.0]),
            "cafe_counter": draw.choice([4.0, 8.0]),
            "bench": draw.choice([3.0, 4.0]),
        },
        shifts=(shift, shift + 60 * draw.randint(1, 4)),
        services=draw.choice(["at_home", "apart"]),
        open_services=draw.random() < 0.5,
        feuds=round(0.5 * draw.random(), 2),
        friendships=round(0.5 * draw.random(), 2),
    )
    scenario = ScenarioConfig(name=f"drawn_{seed}", size=(24, 24), generate=how)
    return default_config().model_copy(update={"config_id": scenario.name, "seed": seed, "scenario": scenario})


def train(seed: int, seen: list[Path]) -> Path:
    names = ", ".join(str(path) for path in seen)
    config = load_config("demo", [*OVERRIDES, f"seed={seed}", f"training.scenarios=[{names}]"])
    folder = RUNS / f"seed_{seed}"
    resume = (folder / "run.json").is_file()
    PolicyTrainingOrchestrator(config).run("anneal", RunOptions(run_dir=folder, resume=resume))
    run = RunFolder(folder)
    best = run.best() or run.latest()
    assert best is not None
    return best


def returns(config: SimulationConfig, policy: str) -> float:
    case = Case(config.config_id, config.config_id, towns=TOWNS, days=1, config=config)
    vec = VectorTown(case.town(), TOWNS, seed=draw_seed("evaluation", 0, config.evaluation))
    return run_case(vec, policy, policy, case).measures["return"].mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    given = parser.parse_args()
    make_folder(RUNS)
    seen = []
    for k in range(SEEN):
        path = RUNS / f"seen_{k}.yaml"
        write_text(path, written_out(feasible_town(2 * k, drawn)))
        seen.append(path)
    unseen = [feasible_town(10_001 + 2 * k, drawn) for k in range(UNSEEN)]
    floor = np.array([returns(config, "random") for config in unseen])
    ceiling = np.array([returns(config, "scripted") for config in unseen])
    rows = []
    for seed in given.seeds:
        checkpoint = train(seed, seen)
        got = np.array([returns(config, str(checkpoint)) for config in unseen])
        way = (got - floor) / (ceiling - floor)
        _, low, high = mean_interval(way)
        rows.append(
            {"seed": seed, "return": got.tolist(), "way": way.tolist(), "mean": float(way.mean()), "low": low, "high": high}
        )
        print(f"seed {seed}: {way.mean():.2f} of the way ({low:.2f} … {high:.2f}), worst town {way.min():.2f}")
    ok = bool(min(row["mean"] for row in rows) >= BAR)
    result = {"bar": BAR, "ok": ok, "random": floor.tolist(), "scripted": ceiling.tolist(), "trained": rows}
    write_json(RESULT, {**result, "seen": SEEN + 1, "unseen": UNSEEN, "overrides": OVERRIDES})
    raise SystemExit(0 if ok else 1)


if __name__ == "__main__":
    main()
