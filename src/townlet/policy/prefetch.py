"""A thread that builds batches ahead of their use, never more than `ahead` beyond the one in use.

It works while the reader is busy with a batch. A reader that returns at once for the next batch builds it itself: two threads
that pass Python's lock to and fro for every batch are slower than one, most of all on a busy machine.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")
AWAY = 0.002  # seconds between two batches from which on a reader counts as busy


@dataclass(frozen=True, eq=False)
class _Planned(Generic[T]):
    build: Callable[[], T]


@dataclass(frozen=True, eq=False)
class _Failed:
    error: BaseException


class _ReadyQueue(Generic[T]):
    """Where results wait: filled by the thread while the reader is away, emptied by the reader."""

    def __init__(self, builders: Sequence[Callable[[], T]], ahead: int) -> None:
        self.most = ahead + 1
        self.alive = 0  # results that exist anywhere, the one in use among them
        self._builders = deque(builders)
        self._ready: deque[T | _Failed] = deque()
        self._changed = threading.Condition()  # its lock may be taken again by a finaliser in the same thread
        self._thread: threading.Thread | None = None
        self._building = self._closed = self._inside = False
        self._left_at = monotonic()
        self._busy = False  # the reader took its time with the batch before

    def take(self) -> T:
        """The next result: what the thread has built or is building, else built here."""
        with self._changed:
            self._inside, self._busy = True, monotonic() - self._left_at > AWAY
            self._changed.wait_for(lambda: self._ready or not self._building)
            found = self._ready.popleft() if self._ready else self._begin()
        if isinstance(found, _Failed):
            raise found.error
        result = self._built(found.build) if isinstance(found, _Planned) else found
        with self._changed:
            self._inside, self._left_at = False, monotonic()
            if self._busy and self._builders:
                self._work_ahead()
        return result

    def _begin(self) -> _Planned[T]:
        """The next to build; it counts from here on."""
        self.alive += 1
        return _Planned(self._builders.popleft())

    def _built(self, build: Callable[[], T]) -> T:
        with ExitStack() as undo:
            undo.callback(self._gone)
            result = build()
            undo.pop_all()
        weakref.finalize(result, self._gone)
        return result

    def _gone(self) -> None:
        with self._changed:
            self.alive -= 1
            self._changed.notify_all()

    def _work_ahead(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="replay-prefetch", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _may_begin(self) -> bool:
        return self._closed or (self._busy and not self._inside and self.alive < self.most)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._may_begin)
                if self._closed or not self._builders:
                    return
                planned, self._building = self._begin(), True
            try:
                result: T | _Failed = self._built(planned.build)
            except BaseException as error:  # raised in the reader, when its turn comes
                result = _Failed(error)
            with self._changed:
                self._building = False
                self._ready.append(result)
                if isinstance(result, _Failed):
                    self._builders.clear()
                del result
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()


def prefetched(builders: Iterable[Callable[[], T]], ahead: int) -> Iterator[T]:
    """What the builders give, in order. At most ``ahead + 1`` results exist at a time, unless the reader keeps more itself."""
    planned = list(builders)
    queue = _ReadyQueue(planned, ahead)
    try:
        for _ in planned:
            yield queue.take()
    finally:
        queue.close()
