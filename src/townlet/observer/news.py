"""News for viewers: small JSON, fanned out to a bounded queue per viewer. Whoever does not read loses news; nobody waits."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator

from townlet.errors import UsageError

KEPT = 256  # news per viewer
MOST_VIEWERS = 512
BREATH = 15.0  # seconds between signs of life


class _Viewer:
    def __init__(self) -> None:
        self.queue: deque[bytes] = deque()
        self.lost = 0
        self.ready = asyncio.Event()

    def put(self, line: bytes) -> None:
        if len(self.queue) >= KEPT:
            self.queue.popleft()
            self.lost += 1
        self.queue.append(line)
        self.ready.set()


class News:
    """`publish` may be called from any thread once `start` has told the loop."""

    def __init__(self) -> None:
        self._viewers: set[_Viewer] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    def publish(self, kind: str, data: dict[str, object]) -> None:
        if self._loop is None or self._loop.is_closed():
            return
        line = f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()
        self._loop.call_soon_threadsafe(self._put, line)

    def close(self) -> None:
        """Let every viewer go."""
        self._closed = True
        for viewer in self._viewers:
            viewer.ready.set()

    def _put(self, line: bytes) -> None:
        for viewer in self._viewers:
            viewer.put(line)

    def stream(self, breath: float = BREATH) -> AsyncIterator[bytes]:
        """What one viewer is sent, until it goes; one too many is refused before anything is sent."""
        if len(self._viewers) >= MOST_VIEWERS:
            raise UsageError(f"{MOST_VIEWERS} viewers are here already; close some")
        return self._sent(breath)

    async def _sent(self, breath: float) -> AsyncIterator[bytes]:
        viewer = _Viewer()
        self._viewers.add(viewer)
        try:
            yield b'event: hello\ndata: {"kept":%d}\n\n' % KEPT
            while not self._closed:
                try:
                    await asyncio.wait_for(viewer.ready.wait(), breath)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                viewer.ready.clear()
                lost, viewer.lost = viewer.lost, 0
                if lost:
                    yield b'event: lost\ndata: {"n":%d}\n\n' % lost
                while viewer.queue:
                    yield viewer.queue.popleft()
        finally:
            self._viewers.discard(viewer)
