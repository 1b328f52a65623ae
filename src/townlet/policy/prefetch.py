"""A thread that builds batches ahead of their use, never more than `ahead` beyond the one in use."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


class _Belt(deque[T]):
    """Batches between the two threads; `alive` counts those that exist, the one being built included."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition()  # its lock may be taken again by a finaliser in the same thread
        self.alive = 0
        self.wanted = False  # the consumer waits and the belt is empty
        self.closed = False
        self.failure: BaseException | None = None

    def gone(self) -> None:
        with self.changed:
            self.alive -= 1
            self.changed.notify_all()


def prefetched(builders: Iterable[Callable[[], T]], ahead: int) -> Iterator[T]:
    """What the builders give, in order. At most ``ahead + 1`` results exist at a time, unless the consumer keeps more itself."""
    belt: _Belt[T] = _Belt()
    thread = threading.Thread(target=_build, args=(belt, builders, ahead + 1), name="replay-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            with belt.changed:
                belt.wanted = True
                belt.changed.notify_all()
                belt.changed.wait_for(lambda: belt or belt.closed)
                belt.wanted = False
                if not belt:
                    break
                result = belt.popleft()
            yield result
            del result
        if belt.failure is not None:
            raise belt.failure
    finally:
        with belt.changed:
            belt.closed = True
            belt.clear()
            belt.changed.notify_all()
        thread.join()


def _build(belt: _Belt[T], builders: Iterable[Callable[[], T]], most: int) -> None:
    try:
        for build in builders:
            with belt.changed:
                belt.changed.wait_for(lambda: belt.closed or belt.alive < most or (belt.wanted and not belt))
                if belt.closed:
                    return
                belt.alive += 1
            result = build()
            weakref.finalize(result, belt.gone)
            with belt.changed:
                if not belt.closed:
                    belt.append(result)
                belt.changed.notify_all()
            del result
    except BaseException as error:  # handed to the consumer, who raises it
        belt.failure = error
    finally:
        with belt.changed:
            belt.closed = True
            belt.changed.notify_all()
