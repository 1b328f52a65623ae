"""A thread that builds batches ahead of their use, never more than `ahead` beyond the one in use."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

T = TypeVar("T")


class _Gate:
    """Lets a batch be begun while fewer than `most` exist, or when the reader waits for that very one."""

    def __init__(self, most: int) -> None:
        self.most, self.alive, self.wanted, self.closed = most, 0, -1, False
        self._changed = threading.Condition()  # its lock may be taken again by a finaliser in the same thread

    def enter(self, number: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.closed or self.alive < self.most or self.wanted >= number)
            if self.closed:
                raise CancelledError
            self.alive += 1

    def gone(self) -> None:
        with self._changed:
            self.alive -= 1
            self._changed.notify_all()

    def want(self, number: int) -> None:
        with self._changed:
            self.wanted = number
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()


def prefetched(builders: Iterable[Callable[[], T]], ahead: int) -> Iterator[T]:
    """What the builders give, in order. At most ``ahead + 1`` results exist at a time, unless the reader keeps more itself."""
    gate = _Gate(ahead + 1)
    waiting: deque[tuple[int, Future[T]]] = deque()
    pool = ThreadPoolExecutor(1, thread_name_prefix="replay-prefetch")

    def gated(number: int, build: Callable[[], T]) -> T:
        gate.enter(number)
        with ExitStack() as undo:
            undo.callback(gate.gone)
            result = build()
            undo.pop_all()
        weakref.finalize(result, gate.gone)
        return result

    def take() -> T:
        number, future = waiting.popleft()
        gate.want(number)
        return future.result()

    try:
        for number, build in enumerate(builders):
            waiting.append((number, pool.submit(gated, number, build)))
            if len(waiting) > ahead:
                yield take()
        while waiting:
            yield take()
    finally:
        gate.close()
        pool.shutdown(cancel_futures=True)
