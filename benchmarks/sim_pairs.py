"""Two source trees against each other: simulator and first start, in turns of well under a second, so that a machine whose speed
drifts drifts for both.

python benchmarks/sim_pairs.py OLD NEW [--rounds 40] [--scenario town_day] [--set key=value …]      steps
python benchmarks/sim_pairs.py OLD NEW --compile [--rounds 3]                                       first start, empty cache

OLD and NEW are working copies (`git worktree add --detach …`). Each runs in a process of its own that steps only when asked to;
what is printed are resident-ticks a second of processor time and the median ratio, NEW over OLD.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

ROWS = {"observations and masks every tick": (1, 120), "option level": (10, 48)}  # name -> interval, decisions in a turn
DAY = 1440


class Tree:
    """A working copy and the process that steps its town."""

    def __init__(self, path: Path, scenario: str, towns: int, overrides: list[str]) -> None:
        words = [sys.executable, __file__, "--work", scenario, str(towns), *overrides]
        environment = os.environ | {"PYTHONPATH": str(path / "src")}
        self._child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.ask()

    def ask(self, name: str = "") -> float:
        """Resident-ticks a second of one turn."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        if name:
            self._child.stdin.write(name + "\n")
            self._child.stdin.flush()
        return float(self._child.stdout.readline())

    def close(self) -> None:
        self._child.communicate()


class Turns:
    """The morning of day 2, again and again, with the decisions that the script took in it."""

    def __init__(self, scenario: str, towns: int, interval: int, overrides: list[str], decisions: int) -> None:
        from townlet.config import load_config
        from townlet.envs.vector import VectorTown
        from townlet.policy.runtime import make_policy

        more = [f"policy.decision_interval={interval}", f"scenario.episode_ticks={2 * DAY}", *overrides]
        self.vec = VectorTown(load_config(scenario, more), towns)
        self._script, self._hold, self._steps = make_policy("scripted", self.vec), 10 // interval, 0
        self._using = self.vec.state.residents["using"] >= 0
        for _ in range(DAY // interval):
            self.vec.step(*self._decide())
        self.morning, self.decisions = self.vec.save(), []
        for _ in range(decisions):
            self.decisions.append(self._decide())
            self.vec.step(*self.decisions[-1])

    def _decide(self) -> tuple[Any, Any]:
        """The script every ten ticks; in between everybody keeps to its choice and its object, and waits once a use has ended."""
        residents = self.vec.state.residents
        using, targets = residents["using"] >= 0, None
        if self._steps % self._hold == 0:
            self._held = self._script.act(self.vec).actions.copy()
        else:
            self._held = self._held.copy()
            self._held[self._using & ~using] = 0
            targets = residents["target"].astype("i8")
        self._using, self._steps = using, self._steps + 1
        return self._held, targets

    def run(self) -> float:
        self.vec.restore(self.morning)
        self.vec.step(*self.decisions[0])
        begin = process_time()
        for actions, targets in self.decisions[1:]:
            self.vec.step(actions, targets)
        ticks = (len(self.decisions) - 1) * self.vec.interval
        return self.vec.num_towns * self.vec.num_residents * ticks / (process_time() - begin)


def work(scenario: str, towns: int, overrides: list[str]) -> None:
    made = {name: Turns(scenario, towns, interval, overrides, turn) for name, (interval, turn) in ROWS.items()}
    print(0.0, flush=True)
    for line in sys.stdin:
        print(made[line.strip()].run(), flush=True)


def first_start(path: Path) -> float:
    """Processor seconds of `townlet run town_day --ticks 10` with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"PYTHONPATH": str(path / "src"), "XDG_CACHE_HOME": cache}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        words = [sys.executable, "-m", "townlet", "run", "town_day", "--ticks", "10"]
        subprocess.run(words, check=True, capture_output=True, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def pairs(name: str, one: Any, other: Any, rounds: int, unit: str) -> dict[str, Any]:
    found: list[tuple[float, float]] = []
    for turn in range(rounds):
        if turn % 2:
            before, after = one(), other()
        else:
            after, before = other(), one()
        found.append((before, after))
    old, new = (median(side) for side in zip(*found))
    return {
        "name": name,
        "unit": unit,
        "old": old,
        "new": new,
        "ratio": median(b / a for a, b in found),
        "best": max(b for _, b in found) / max(a for a, _ in found),
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--scenario", default="town_day")
    parser.add_argument("--towns", type=int, default=64)
    parser.add_argument("--set", nargs="*", default=[], dest="overrides")
    parser.add_argument("--compile", action="store_true")
    chosen = parser.parse_args()
    old, new = chosen.old.resolve(), chosen.new.resolve()
    if chosen.compile:
        rows = [pairs("first start", lambda: first_start(old), lambda: first_start(new), chosen.rounds or 3, "s")]
    else:
        trees = [Tree(path, chosen.scenario, chosen.towns, chosen.overrides) for path in (old, new)]
        rows = [
            pairs(name, partial(trees[0].ask, name), partial(trees[1].ask, name), chosen.rounds or 40, "resident-ticks/s")
            for name in ROWS
        ]
        for tree in trees:
            tree.close()
    print(json.dumps(rows, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
    else:
        main()
