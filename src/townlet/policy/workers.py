"""Where work is done: an object in this process, or in a process of its own, behind two calls; an engine makes such workers.

A worker that dies is started anew by its owner, who holds what is needed to make the lost result again.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

from townlet.config.learning import TrainingConfig
from townlet.errors import TownletError
from townlet.signals import SIGNALS
from townlet.threads import MOST_THREADS, own_cores

PATIENCE = 5.0  # seconds that a worker is given to end
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


class WorkerDied(TownletError):
    """A worker ended without an answer; nothing it was asked for was delivered."""


def worker_count(training: TrainingConfig) -> int:
    """`training.workers`; 0 are as many as this process has cores."""
    return training.workers or own_cores()


def simulator_threads(training: TrainingConfig) -> int:
    """Threads that step towns in a process: one per worker, where the workers are not processes themselves."""
    wanted = max(training.threads, worker_count(training)) if training.engine == "local" else training.threads
    return min(wanted, MOST_THREADS)  # how many there are changes no bit


def learner_threads(training: TrainingConfig) -> int:
    """Threads that share an update, which is always made here."""
    return worker_count(training) if training.engine == "local" else min(worker_count(training), own_cores())


class Worker(Protocol):
    """`begin(method, …)` has a method called on the worker's object, `result` waits for what it gave; one question at a time."""

    def begin(self, method: Callable[..., object], *args: object) -> None: ...
    def ready(self, timeout: float) -> bool: ...  # wait at most this many seconds
    def result(self) -> Any: ...
    def stop(self) -> None: ...  # ask a training run in it to save itself and end
    def close(self, patience: float = PATIENCE) -> None: ...  # and wait at most this many seconds


class Engine(Protocol):
    def worker(self, make: Callable[..., object], *args: object) -> Worker: ...
    def share(self, value: object) -> Any: ...  # what `begin` is given in place of a value: sent once, whoever reads it
    def cores(self) -> int: ...  # workers it has room for


class Answer(NamedTuple):
    """What a worker sends back."""

    value: Any
    error: str = ""
    exit_code: int = 0  # of the error

    def get(self) -> Any:
        if self.error:
            found = TownletError(self.error)
            found.exit_code = self.exit_code
            raise found
        return self.value


class Host:
    """The object of a worker in another process, made when it is first asked for something."""

    def __init__(self, make: Callable[..., object], args: tuple[object, ...]) -> None:
        self._make, self._args = make, args
        self._target: object = None

    def answer(self, method: Callable[..., object], args: tuple[object, ...]) -> Answer:
        """What a call of a method gives, or why it failed, in a form that can be sent."""
        try:
            self._target = self._make(*self._args) if self._target is None else self._target
            return Answer(method(self._target, *args))
        except TownletError as error:
            return Answer(None, str(error), error.exit_code)
        except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError, OSError):
            return Answer(None, f"a worker failed: {traceback.format_exc(limit=-2)}", TownletError.exit_code)


class LocalWorker:
    """The object lives here; a question is answered when its result is asked for."""

    def __init__(self, make: Callable[..., object], *args: object) -> None:
        self._object = make(*args)
        self._asked: Callable[[], Any] = lambda: None

    def begin(self, method: Callable[..., object], *args: object) -> None:
        self._asked = lambda: method(self._object, *args)

    def ready(self, timeout: float) -> bool:
        return True

    def result(self) -> Any:
        return self._asked()

    def stop(self) -> None:
        """The signal has come to this process, and so to the run."""

    def close(self, patience: float = PATIENCE) -> None:
        self._object = None


class ProcessWorker:
    """The object lives in a process of its own and one thread, which ends with this one."""

    def __init__(self, make: Callable[..., object], *args: object) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, make, args), daemon=True)
        with _environment(ONE_THREAD):
            self.process.start()
        theirs.close()

    def begin(self, method: Callable[..., object], *args: object) -> None:
        with suppress(OSError):  # whoever is gone gives no result
            self._pipe.send((method, args))

    def ready(self, timeout: float) -> bool:
        return self._pipe.poll(timeout)

    def result(self) -> Any:
        try:
            found: Answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            self.process.join()
            code = self.process.exitcode
            raise WorkerDied(f"the worker {self.process.pid} ended with {code} in the middle; start it again") from error
        return found.get()

    def stop(self) -> None:
        if self.process.is_alive():
            self.process.terminate()

    def close(self, patience: float = PATIENCE) -> None:
        self._pipe.close()
        self.process.join(timeout=patience)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _serve(pipe: Connection, make: Callable[..., object], args: tuple[object, ...]) -> None:
    """Answer questions until the owner closes the pipe. Signals are the owner's affair, or that of a run with a stop flag."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    host = Host(make, args)
    with suppress(EOFError, OSError):  # the owner is gone
        while True:
            pipe.send(host.answer(*pipe.recv()))


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Processes that are started within it inherit these variables."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class LocalEngine:
    """All in this process."""

    def __init__(self, training: TrainingConfig) -> None:
        pass

    def worker(self, make: Callable[..., object], *args: object) -> Worker:
        return LocalWorker(make, *args)

    def share(self, value: object) -> Any:
        return value

    def cores(self) -> int:
        return own_cores()


class ProcessEngine(LocalEngine):
    """A process per worker on this machine."""

    def worker(self, make: Callable[..., object], *args: object) -> Worker:
        return ProcessWorker(make, *args)
