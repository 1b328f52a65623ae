"""How a run is asked to end: the first signal sets a flag that is read between two updates, the second leaves at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from townlet.errors import InterruptedRun

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopFlag:
    """Within `with`, SIGINT and SIGTERM set `asked`; outside it the flag is an ordinary object that tests may set."""

    def __init__(self) -> None:
        self.asked = 0  # number of the signal, 0 = none
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopFlag:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.asked = number

    def interruption(self, where: str) -> InterruptedRun:
        """The exception that ends the run; its exit code is 128 + the signal (130 for Ctrl-C, 143 for SIGTERM)."""
        error = InterruptedRun(f"Stopped by {signal.Signals(self.asked).name} {where}.")
        error.exit_code = 128 + self.asked
        return error
