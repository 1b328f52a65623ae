"""Many towns, one after another or a few at a time. Of each, only a row of sums and its digest are kept, never its world."""

from __future__ import annotations

import hashlib
import math
import os
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from time import perf_counter

from townlet.config.learning import TrainingConfig
from townlet.config.models import SimulationConfig
from townlet.envs.vector import VectorTown
from townlet.policy.jobs import run_jobs
from townlet.policy.runtime import CarriedPolicy, carried, make_policy
from townlet.sim.loop import SimulationLoop
from townlet.sim.probes import Counts
from townlet.types import Record
from townlet.world.events import EXIT, QUARREL, QUEUE_CONFLICT, USE_START

RATES = {"conflicts": QUEUE_CONFLICT, "quarrels": QUARREL, "uses": USE_START, "exits": EXIT}  # per resident-day


def simulate_town(config: str, policy: str | CarriedPolicy, seed: int | None, epsilon: float, ticks: int, town: int) -> Record:
    """The row of one town after this many ticks. The config is JSON: a process builds the layout of several towns once."""
    vec = _layout(config, seed)
    vec.reset(first_town=town)
    counts, started = Counts(), perf_counter()
    decides = make_policy(policy, vec, epsilon=epsilon, seed=vec.seed) if isinstance(policy, str) else policy(vec)
    loop = SimulationLoop(vec, decides, [counts])
    made = loop.run(ticks)
    return {
        "town": town,
        "digest": vec.digest(),
        "ticks": made,
        "residents": vec.num_residents,
        "decisions": counts.decisions,
        "illegal_actions": counts.illegal,
        "events": counts.events.by_kind(),
        "events_lost": vec.events_lost,
        "conflict_intensity": counts.events.intensity,
        "reward": float(counts.reward.sum()),
        "days": made * vec.num_residents / vec.config.world.ticks_per_day,
        "seconds": perf_counter() - started,
        "process": os.getpid(),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    } | {name: counts.events.count(kind) for name, kind in RATES.items()}


@lru_cache(maxsize=1)
def _layout(config: str, seed: int | None) -> VectorTown:
    return VectorTown(SimulationConfig.model_validate_json(config), 1, seed=seed)


def simulate_towns(
    training: TrainingConfig,
    config: SimulationConfig,
    towns: range,
    *,
    policy: str,
    seed: int | None = None,
    epsilon: float = 0.0,
    ticks: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Record]:
    """The row of each town, in order. Town k is the same, to the digest, as when it is run alone."""
    wanted = ticks or config.scenario.episode_ticks
    shared = (config.model_dump_json(), carried(policy), seed, epsilon, wanted)
    for done in run_jobs(training, simulate_town, [(town,) for town in towns], shared=shared, stop=stop):
        yield done.get()


@dataclass
class Spread:
    """Mean and deviation of a stream of numbers, in one pass (Welford)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    least: float = math.inf
    most: float = -math.inf

    def add(self, value: float) -> None:
        self.count += 1
        gap = value - self.mean
        self.mean += gap / self.count
        self.squares += gap * (value - self.mean)
        self.least, self.most = min(self.least, value), max(self.most, value)

    def summary(self) -> dict[str, float | None]:
        deviation = math.sqrt(self.squares / (self.count - 1)) if self.count > 1 else None
        return {"mean": self.mean, "deviation": deviation, "least": self.least, "most": self.most}


@dataclass
class ManyTowns:
    """The sums over rows, taken one at a time."""

    towns: int = 0
    residents: int = 0
    decisions: int = 0
    illegal_actions: int = 0
    events_lost: int = 0
    resident_ticks: int = 0
    days: float = 0.0
    events: Counter[str] = field(default_factory=Counter)
    rates: dict[str, Spread] = field(default_factory=lambda: {name: Spread() for name in ("reward", *RATES)})
    _memory: dict[int, float] = field(default_factory=dict)  # by process
    _digests: hashlib._Hash = field(default_factory=hashlib.sha256)

    def add(self, row: Record) -> None:
        self.towns += 1
        self.residents += row["residents"]
        self.decisions += row["decisions"]
        self.illegal_actions += row["illegal_actions"]
        self.events_lost += row["events_lost"]
        self.resident_ticks += row["ticks"] * row["residents"]
        self.days += row["days"]
        self.events.update(row["events"])
        for name, spread in self.rates.items():
            spread.add(row[name] / row["days"])
        self._memory[row["process"]] = row["memory_mb"]
        self._digests.update(row["digest"].encode())

    def summary(self, seconds: float) -> Record:
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {
            "towns": self.towns,
            "residents": self.residents,
            "decisions": self.decisions,
            "illegal_actions": self.illegal_actions,
            "events": dict(sorted(self.events.items())),
            "events_lost": self.events_lost,
            "per_resident_day": {name: spread.summary() for name, spread in self.rates.items()},
            "seconds": seconds,
            "resident_ticks_per_second": self.resident_ticks / max(1e-9, seconds),
            "peak_memory_mb": sum({os.getpid(): own, **self._memory}.values()),
            "digest": self._digests.hexdigest(),
        }
