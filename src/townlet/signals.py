"""Signals from a command's first instruction to its last: 130 for Ctrl-C, 143 for SIGTERM, 129 for a terminal that is closed; one
sentence, never a traceback.

Most commands have nothing to save and leave where they stand: files are whole or not there, and the system frees locks. A run
that has something to save asks for a `StopFlag`. No exception is raised into code that did not ask for one.
"""

from __future__ import annotations

import atexit
import os
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, NoReturn

from townlet.errors import InterruptedRun

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_commanded = False  # this process is a command of ours, and not somebody's program that uses the library
SHOW_CURSOR = b"\x1b[?25h"  # a bar or a table may have hidden it


def answer() -> None:
    """From here on a signal ends the process with its sentence and code; one that was ignored stays so (`nohup`)."""
    global _commanded
    _open_streams()
    if threading.current_thread() is threading.main_thread():
        if not _commanded:
            atexit.register(_ignore)  # registered first, done last
        _commanded = True
        for number in _not_ignored():
            signal.signal(number, lambda number, frame: leave(number))


def _not_ignored() -> list[signal.Signals]:
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


def _open_streams() -> None:
    """A stream that was closed (`>&-`) leads nowhere from here on: else the next file would get its number, and our words."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: that of the stream
            setattr(sys, name, os.fdopen(handle, mode, closefd=False))


def _leave_terminal() -> None:
    """It is gone: what would be written to it leads nowhere, instead of ending a run that saves its state with an error."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        with suppress(OSError):  # closed
            if stat.S_ISCHR(os.fstat(number).st_mode):
                os.dup2(nowhere, number)
    os.close(nowhere)


def _ignore() -> None:
    """The work is done: no signal may kill while the interpreter shuts down, which restores their defaults."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _name(number: int) -> str:
    """As the person at the terminal knows it."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def leave(number: int, words: str = "") -> NoReturn:
    """End the process now."""
    sentence = f"townlet: stopped by {_name(number)}{words}\n".encode()
    with suppress(OSError):  # nobody listens any more
        os.write(2, (SHOW_CURSOR + b"\r" if os.isatty(2) else b"") + sentence)
    os._exit(128 + number)


@contextmanager
def ctrl_c_raises() -> Iterator[None]:
    """Within it Ctrl-C is a KeyboardInterrupt, for commands that it ends in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_now(code: int) -> None:
    """End a command of ours without freeing anything; somebody's program that uses the library goes on."""
    if _commanded:
        os._exit(code)


class StopFlag:
    """Within `with`, the first signal sets `asked`, to be read between two steps; the second leaves at once. So does
    the first while there is nothing to save yet (`begun` is false): a start may load and compile for half a minute. Outside
    `with` the flag is an ordinary object that tests may set."""

    def __init__(self) -> None:
        self.asked = 0  # number of the signal, 0 = none
        self.begun = False  # something has been made that a stop should save
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopFlag:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._on_signal) for number in _not_ignored()}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def is_asked(self) -> bool:
        return self.asked != 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked or (not self.begun and _commanded):
            leave(number, "" if self.asked else " before there was anything new to save")
        if number == signal.SIGHUP:
            _leave_terminal()
        self.asked = number

    def interruption(self, where: str) -> InterruptedRun:
        """The exception that ends the run; its exit code is 128 + the signal."""
        error = InterruptedRun(f"stopped by {_name(self.asked)} {where}")
        error.exit_code = 128 + self.asked
        return error
