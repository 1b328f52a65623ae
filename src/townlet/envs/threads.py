"""Threads that share work: kernels let go of the interpreter's lock, so each can have a core."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from queue import SimpleQueue
from threading import Thread
from typing import Any

import numpy as np

from townlet.threads import own_cores
from townlet.types import Array
from townlet.world._jit import JIT, entry, numba

Job = Callable[[], object]

whole = numba.types.int64

HANDED, DONE, NEVER = 0, 16, 2**62  # jobs, counted on two lines of the cache; more than there will be
HEAD_START = 30_000  # looks, while the other threads take the lock and begin
PATIENCE = 400_000  # looks before a thread sleeps, about a hundred microseconds


@numba.extending.intrinsic  # type: ignore[untyped-decorator]
def _add(_: Any, counts: Any, at: Any, added: Any) -> tuple[Any, Callable[..., Any]]:
    """counts[at] += added at one stroke, seen by every thread; what stood there before."""

    def code(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        return builder.atomic_rmw("add", _place(context, builder, signature, args), args[2], "seq_cst")

    return whole(counts, whole, whole), code


@numba.extending.intrinsic  # type: ignore[untyped-decorator]
def _look(_: Any, counts: Any, at: Any) -> tuple[Any, Callable[..., Any]]:
    """counts[at] as it is now, whoever writes it."""

    def code(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        return builder.load_atomic(_place(context, builder, signature, args), "acquire", 8)

    return whole(counts, whole), code


def _place(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
    return builder.gep(context.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])


@entry
def meet(counts: Array, own: int, added: int, other: int, goal: int, looks: int) -> None:
    """Add to one count, then look at another until it has reached its goal, or so many times."""
    _add(counts, own, added)
    for _ in range(looks):
        if _look(counts, other) >= goal:
            break


class Threads:
    """Handing a job over costs some microseconds: a queue to the thread and one back, and no more.

    Waking a thread that sleeps would cost ten times that, so whoever waits looks out for the other a while before it sleeps: with
    the interpreter's lock let go, and where each has a core. All who share work in a process share the threads, too: one that
    looks out must not take the core of one that works.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def run(self, jobs: Sequence[Job]) -> None:
        """As many jobs as there are threads, at most. The first is done here."""
        if len(jobs) == 1:
            jobs[0]()
            return
        pool, ends = _pool(os.getpid(), self.count), SimpleQueue[BaseException | None]()
        for job in jobs[1:]:
            pool.jobs.put((job, ends))
        pool.meet(HANDED, len(jobs) - 1, HANDED, NEVER, HEAD_START)
        try:
            jobs[0]()
        finally:
            pool.meet(DONE, 0, DONE, int(pool.counts[HANDED]), PATIENCE)
            errors = [ends.get() for _ in jobs[1:]]
        for error in errors:
            if error is not None:
                raise error


class _Pool:
    def __init__(self, count: int) -> None:
        self.jobs: SimpleQueue[tuple[Job, SimpleQueue[BaseException | None]]] = SimpleQueue()
        self.counts = np.zeros(2 * DONE, np.int64)
        self._looks_out = JIT and count <= own_cores()
        for _ in range(count - 1):
            Thread(target=self._work, daemon=True).start()

    def meet(self, own: int, added: int, other: int, goal: int, looks: int) -> None:
        if self._looks_out:
            meet(self.counts, own, added, other, goal, looks)

    def _work(self) -> None:
        while True:
            job, ends = self.jobs.get()
            error: BaseException | None = None
            try:
                job()
            except BaseException as found:  # raised again by whoever gave the job
                error = found
            following = int(self.counts[HANDED]) + 1
            ends.put(error)
            del job, ends, error
            self.meet(DONE, 1, HANDED, following, PATIENCE)


@cache
def _pool(process: int, count: int) -> _Pool:
    """The threads of a process: a fork does not have those of its parent."""
    return _Pool(count)
