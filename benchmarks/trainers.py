"""What other people's trainers reach in a few minutes of one core: the examples, each trained, then measured on our scorecard.

.venv-doors/torchrl/bin/python benchmarks/trainers.py torchrl_ppo --minutes 5        (after `make test-door-torchrl`)

Minutes are processor time, so that other work on the machine does not count. The policy plays held-out towns for a day and for
a week through `townlet.own_policy`, with sampled actions where the library trains a stochastic policy, else with the best one.
The result joins `benchmarks/trainers.json`; without a name the script prints the table of `docs/TRAINERS.md` from it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
import torch

import townlet
from townlet.evaluation.measures import MEASURES
from townlet.files import read_json, short_hash, write_json
from townlet.types import Array
from townlet.world.rng import ACT

RESULTS = Path(__file__).with_suffix(".json")
EXAMPLES = Path(__file__).parent.parent / "examples"
TOWNS = 16
KEPT = {1: ("return", "attendance", "conflicts"), 7: ("return", "founders", "exits", "newcomer_return")}  # by days
PACKAGES = {  # example: package, and whether its policy draws its actions
    "maskable_ppo_vector": ("sb3-contrib", True),
    "torchrl_ppo": ("torchrl", True),
    "benchmarl_mappo": ("benchmarl", True),
    "rllib_ppo": ("ray", True),
    "agilerl_ippo": ("agilerl", True),
    "tianshou_dqn": ("tianshou", False),
    "d3rlpy_offline": ("d3rlpy", False),
}


def source_hash(name: str) -> str:
    return short_hash((EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))


def of_today(name: str, row: dict[str, Any]) -> str:
    """Empty, or that the example has changed since it was measured."""
    return "" if row.get("example") == source_hash(name) else " (an earlier example)"


def rounds(seconds: float) -> Iterator[int]:
    """Counts until the processor has worked for `seconds`."""
    end = process_time() + seconds
    for number in count():
        if process_time() >= end:
            return
        yield number


def trained(name: str, minutes: float, frames: int) -> tuple[int, Callable[[Any, Any], Any]]:
    """How many actions were outside the mask, and the scores that the trained policy gives all actions."""
    sys.path.insert(0, str(EXAMPLES))  # BenchMARL pickles its task, which needs a module
    main, left = import_module(name).main, rounds(60 * minutes)
    if name == "benchmarl_mappo":  # cannot be stopped from outside
        with TemporaryDirectory() as place:
            illegal, scores = main(frames=frames, place=place)
    elif name == "maskable_ppo_vector":
        seen = Counter[str]()

        def go_on(known: dict[str, Any], _: object) -> bool:
            seen["illegal"] += int(known["env"].vec.illegal.sum())
            return next(left, None) is not None

        _, scores = main(steps=10**9, callback=go_on)
        illegal = seen["illegal"]
    else:
        illegal, scores = main(rounds=left)
    return (illegal if isinstance(illegal, int) else 0), scores  # offline, nobody acts in training


def policy(scores: Callable[[Any, Any], Any], drawn: bool) -> Callable[[townlet.VectorTown], Array]:
    def choose(town: townlet.VectorTown) -> Array:
        with torch.no_grad():
            found = scores(torch.from_numpy(town.features.copy()), torch.from_numpy(town.masks != 0)).double().numpy()
        found = np.where(town.masks, found.reshape(town.masks.shape), -np.inf)  # (E, N, A)
        if not drawn:
            return np.asarray(found.argmax(-1))
        shares = np.exp(found - found.max(-1, keepdims=True)).cumsum(-1)
        return np.asarray((shares / shares[..., -1:] <= town.draws(ACT, seed=0)[..., None]).sum(-1))

    return choose


def measure(name: str, minutes: float, frames: int) -> dict[str, Any]:
    package, drawn = PACKAGES[name]
    torch.set_num_threads(1)
    start = process_time()
    illegal, scores = trained(name, minutes, frames)
    spent = process_time() - start
    mine = townlet.own_policy(policy(scores, drawn), name)
    measures: dict[str, dict[str, Any]] = {}
    for days, kept in KEPT.items():
        card = townlet.evaluate({name: mine}, towns=TOWNS, days=days).card.cases[0].policy(name)
        found = {key: card.measures[key] for key in kept}
        measures[str(days)] = {key: [one.mean, one.low, one.high] for key, one in found.items()}
    return {
        "package": f"{package} {version(package)}",
        "example": source_hash(name),
        "cpu_minutes": round(spent / 60, 2),
        "actions": "drawn" if drawn else "best",
        "illegal": illegal,
        "measures": measures,
    }


def table(results: dict[str, Any]) -> str:
    def figure(row: dict[str, Any], days: int, key: str) -> str:
        mean, low, high = (
            None if one is None else f"{one:.{MEASURES[key].decimals}f}" for one in row["measures"][str(days)][key]
        )
        return "–" if mean is None else f"{mean} ({low} … {high})" if key == "return" else mean

    columns = [(days, key) for days, keys in KEPT.items() for key in keys]
    titles = [f"{MEASURES[key].label}, {'a day' if days == 1 else 'a week'}" for days, key in columns]
    rows = []
    for name, row in results.items():
        made = [row["package"] + of_today(name, row), f"{row['cpu_minutes']:.1f}"]
        rows.append([*made, *(figure(row, *column) for column in columns), str(row["illegal"])])
    top = ["trained with", "minutes", *titles, "illegal actions"]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [top, ["---"] * len(top), *rows])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("example", nargs="?", choices=PACKAGES)
    options.add_argument("--minutes", type=float, default=5.0)
    options.add_argument("--frames", type=int, default=64_000, help="how long BenchMARL trains, in decisions of the town")
    given = options.parse_args()
    made = {} if given.example is None else {given.example: measure(given.example, given.minutes, given.frames)}
    results = (read_json(RESULTS) if RESULTS.exists() else {}) | made
    if made:
        write_json(RESULTS, {name: results[name] for name in PACKAGES if name in results})
    print(table(results))


if __name__ == "__main__":
    main()
