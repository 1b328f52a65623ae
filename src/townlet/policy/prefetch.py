"""A thread that builds batches ahead of their use, never more than `ahead` beyond the one in use."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetched(builders: Iterable[Callable[[], T]], ahead: int) -> Iterator[T]:
    """What the builders give, in order: one with the caller, at most ``ahead`` built or being built for it."""
    waiting: deque[Future[T]] = deque()
    pool = ThreadPoolExecutor(1, thread_name_prefix="replay-prefetch")
    try:
        for build in builders:
            waiting.append(pool.submit(build))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
