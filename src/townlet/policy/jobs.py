"""Engines by name, and jobs spread over one: studies, captures, evaluations, acceptance, many towns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from townlet.config.learning import TrainingConfig
from townlet.errors import ClusterError, TownletError, UsageError, did_you_mean
from townlet.optional import check_installed
from townlet.policy.ray_engine import RayEngine
from townlet.policy.workers import Engine, LocalEngine, ProcessEngine, Worker, WorkerDied

ATTEMPTS = 3  # times that a piece of work is begun before its worker's death ends the run
LOOK_EVERY = 0.05  # seconds
SAVING = 60.0  # seconds that a stopped job is given to save itself

ENGINES: Mapping[str, Callable[[TrainingConfig], Engine]] = {"local": LocalEngine, "process": ProcessEngine, "ray": RayEngine}


def check_engine(name: str) -> None:
    """Refuse an engine that nobody knows, or that lacks its package."""
    if name not in ENGINES:
        hint = did_you_mean(name, ENGINES)
        raise UsageError(f"training.engine is {name!r}, which is not one of {', '.join(ENGINES)}{f'; {hint}' if hint else ''}")
    if name == "ray":
        check_installed("ray", "The engine ray")


def open_engine(training: TrainingConfig) -> Engine:
    """`training.engine`, ready to make workers; a cluster that cannot be reached is told here."""
    check_engine(training.engine)
    return ENGINES[training.engine](training)


class Done(NamedTuple):
    """A job that came to its end."""

    number: int
    value: Any
    error: TownletError | None = None

    def get(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


def run_jobs(
    training: TrainingConfig,
    function: Callable[..., object],
    jobs: Sequence[tuple[object, ...]],
    *,
    shared: tuple[object, ...] = (),
    ordered: bool = True,
    begun: Callable[[int], None] = lambda number: None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Done]:
    """Call `function(*shared, *job)` for every job on the engine of `training`; results come in order, or as they end.

    `training.workers` of them run at a time, at most a few ahead of the results that have been taken. The job of a worker that
    died is begun again by another. After a `stop` no more are begun, and those under way get time to save themselves.
    """
    if not jobs:
        return
    engine = open_engine(training)
    sent = tuple(engine.share(value) for value in shared)
    workers = max(1, min(len(jobs), training.workers or engine.cores()))
    idle: list[Worker] = []
    busy: dict[int, Worker] = {}
    attempts = [0] * len(jobs)
    waiting, kept = list(range(len(jobs))), dict[int, Done]()
    given = 0

    def begin(number: int) -> None:
        worker = idle.pop() if idle else engine.worker(_Caller)
        busy[number] = worker
        attempts[number] += 1
        worker.begin(_Caller.call, function, *sent, *jobs[number])

    try:
        while given < len(jobs) and not stop():
            while waiting and len(busy) < workers and (not ordered or waiting[0] < given + 2 * workers):
                begun(waiting[0])
                begin(waiting.pop(0))
            for number, worker in list(busy.items()):
                if not worker.ready(LOOK_EVERY / len(busy)):
                    continue
                try:
                    kept[number] = Done(number, worker.result())
                    idle.append(busy.pop(number))
                except WorkerDied as error:
                    busy.pop(number).close()
                    if attempts[number] < ATTEMPTS:
                        begin(number)
                    else:
                        kept[number] = Done(number, None, error)
                except ClusterError:  # which no other job would survive either
                    raise
                except TownletError as error:
                    kept[number] = Done(number, None, error)
                    idle.append(busy.pop(number))
            for number in [given] if ordered else list(kept):
                if number in kept:
                    given += 1
                    yield kept.pop(number)
    finally:
        for worker in busy.values():
            worker.stop()
        for worker in (*idle, *busy.values()):
            worker.close(SAVING)


class _Caller:
    """The object of a worker that calls functions."""

    def call(self, function: Callable[..., object], *args: object) -> object:
        return function(*args)
