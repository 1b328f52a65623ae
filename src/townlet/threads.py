"""Threads that share work: kernels let go of the interpreter's lock, so each can have a core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from weakref import finalize

Job = Callable[[], object]


class Threads:
    """Handing a job over costs some microseconds: a queue to the thread and one back, and no more."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._ends: SimpleQueue[BaseException | None] = SimpleQueue()
        for _ in range(count - 1):
            Thread(target=_work, args=(self._jobs, self._ends), daemon=True).start()
            finalize(self, self._jobs.put, None)

    def run(self, jobs: Sequence[Job]) -> None:
        """As many jobs as there are threads, at most. The first is done here."""
        for job in jobs[1:]:
            self._jobs.put(job)
        try:
            jobs[0]()
        finally:
            ends = [self._ends.get() for _ in jobs[1:]]
        for error in ends:
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
