"""Where rollouts are made: how many cores work on them, and an object in a process of its own behind two calls.

A worker that dies is started anew by its owner, who holds what is needed to make the lost result again.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, Protocol

from townlet.config.learning import TrainingConfig
from townlet.errors import TownletError


class WorkerDied(TownletError):
    """The process of a worker ended without an answer; nothing it was asked for was delivered."""


def worker_count(training: TrainingConfig) -> int:
    """`training.workers`; 0 are as many as this process has cores."""
    return training.workers or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def simulator_threads(training: TrainingConfig) -> int:
    """Threads that step towns in a process: one per worker, where the workers are not processes themselves."""
    return max(training.threads, worker_count(training)) if training.engine == "local" else training.threads


class RolloutWorker(Protocol):
    """`begin(method, …)` has a method called on the worker's object, `result` waits for what it gave; one question at a time."""

    def begin(self, method: Callable[..., object], *args: object) -> None: ...
    def result(self) -> Any: ...
    def close(self) -> None: ...


class LocalWorker:
    """The object lives here; a question is answered when its result is asked for."""

    def __init__(self, make: Callable[..., object], *args: object) -> None:
        self._object = make(*args)
        self._asked: Callable[[], Any] = lambda: None

    def begin(self, method: Callable[..., object], *args: object) -> None:
        self._asked = lambda: method(self._object, *args)

    def result(self) -> Any:
        return self._asked()

    def close(self) -> None:
        self._object = None


class ProcessWorker:
    """The object lives in a process of its own, which ends with this one."""

    def __init__(self, make: Callable[..., object], *args: object) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, make, args), daemon=True)
        self.process.start()
        theirs.close()

    def begin(self, method: Callable[..., object], *args: object) -> None:
        try:
            self._pipe.send((method, args))
        except OSError as error:
            raise WorkerDied(f"The rollout worker {self.process.pid} is gone ({error}); start it again.") from error

    def result(self) -> Any:
        try:
            done, value = self._pipe.recv()
        except (EOFError, OSError) as error:
            self.process.join()
            code = self.process.exitcode
            raise WorkerDied(f"The rollout worker {self.process.pid} ended with {code} in the middle; start it again.") from error
        if not done:
            raise TownletError(f"A rollout worker failed: {value}")
        return value

    def close(self) -> None:
        self._pipe.close()
        self.process.join(timeout=5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _serve(pipe: Connection, make: Callable[..., object], args: tuple[object, ...]) -> None:
    """Answer questions until the owner closes the pipe. Signals are the owner's affair: it saves and closes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    target: Any = None
    while True:
        try:
            method, call_args = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            target = make(*args) if target is None else target
            answer = (True, method(target, *call_args))
        except (TownletError, ArithmeticError, LookupError, TypeError, ValueError, MemoryError):
            answer = (False, traceback.format_exc(limit=-2))
        pipe.send(answer)


ENGINES: Mapping[str, Callable[..., RolloutWorker]] = {"local": LocalWorker, "process": ProcessWorker}  # training.engine
