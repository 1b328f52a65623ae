"""Threads that share work: kernels let go of the interpreter's lock, so each can have a core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor


class Threads:
    def __init__(self, count: int) -> None:
        self.count = count
        self._others = ThreadPoolExecutor(count - 1) if count > 1 else None

    def run(self, jobs: Sequence[Callable[[], object]]) -> None:
        """At most `count` jobs at once. The first is done here: handing work over takes longer than some of it."""
        handed = [self._others.submit(job) for job in jobs[1:]] if self._others is not None else []
        jobs[0]()
        for one in handed:
            one.result()
