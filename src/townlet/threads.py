"""Threads that share work: kernels let go of the interpreter's lock, so each can have a core."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from weakref import finalize

Job = Callable[[], object]
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")  # the first that is set counts


def one_blas_thread() -> None:
    """For a command, before numpy is imported: one thread for NumPy's products, unless the user has set a number. The products
    are small; other threads would only spin beside them, which takes up to four times the processor time."""
    if not any(name in os.environ for name in BLAS_THREADS):
        os.environ[BLAS_THREADS[0]] = "1"


class Threads:
    """Handing a job over costs some microseconds: a queue to the thread and one back, and no more."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._queues: tuple[SimpleQueue[Job | None], SimpleQueue[BaseException | None]] | None = None
        if count > 1:  # towns that are stepped by one thread can be pickled
            jobs, ends = self._queues = SimpleQueue(), SimpleQueue()
            for _ in range(count - 1):
                Thread(target=_work, args=(jobs, ends), daemon=True).start()
                finalize(self, jobs.put, None)

    def run(self, jobs: Sequence[Job]) -> None:
        """As many jobs as there are threads, at most. The first is done here."""
        if self._queues is None:
            jobs[0]()
            return
        handed, ends = self._queues
        for job in jobs[1:]:
            handed.put(job)
        try:
            jobs[0]()
        finally:
            errors = [ends.get() for _ in jobs[1:]]
        for error in errors:
            if error is not None:
                raise error


def _work(jobs: SimpleQueue[Job | None], ends: SimpleQueue[BaseException | None]) -> None:
    while (job := jobs.get()) is not None:
        try:
            job()
        except BaseException as error:  # raised again by whoever gave the job
            ends.put(error)
        else:
            ends.put(None)
        del job
