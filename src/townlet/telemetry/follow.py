"""Follow a log while it is written: new lines, and notes on rotation, truncation and deletion.

The open file is held until its successor is known, so a rotation loses nothing: what was `<name>` when it was read is looked up
by inode among `<name>.1`, `<name>.2`, …, and reading goes on with the next number.
"""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from townlet.errors import TelemetryError
from townlet.files import open_file
from townlet.telemetry.ndjson import CHUNK, MAX_LINE, is_object, last_rotation, rotated, rotations

KEPT_LINES = 4096  # remembered by place and checksum, to find the place again when a resumed run cuts its log back


class NewLine(NamedTuple):
    path: Path
    number: int
    raw: bytes


class Notice(NamedTuple):
    """Something happened to the file that is not a new line."""

    what: str  # waiting, truncated, rewritten, replaced, deleted, torn, long
    message: str


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _end_of_lines(file: BinaryIO) -> int:
    """Seek behind the last whole line."""
    size = file.seek(0, os.SEEK_END)
    start = file.seek(max(0, size - MAX_LINE))
    return file.seek(start + file.read().rfind(b"\n") + 1)


class Follower:
    """`poll()` gives what came since the last time. With `from_start=False` only what is written from now on."""

    def __init__(self, path: Path | str, *, from_start: bool = True) -> None:
        self.path = Path(path)
        self._file: BinaryIO | None = None
        self._identity: tuple[int, int] | None = None
        self._rest = b""  # the beginning of a line whose end has not come yet
        self._number = 0
        self._position = 0  # bytes read of the open file
        self._read: deque[tuple[int, int, int]] = deque(maxlen=KEPT_LINES)  # start and end of a line, its checksum
        self._done = 0 if from_start else last_rotation(self.path)  # highest rotated part that was read to its end
        self._skip = not from_start
        self._missing = False

    def poll(self) -> Iterator[NewLine | Notice]:
        while True:
            file = self._file or self._open_next()
            if file is None:
                if not self._missing:
                    self._missing = True
                    yield Notice("waiting", f"{self.path} is not there; waiting for it")
                return
            yield from self._changes(file)
            yield from self._lines(file)
            if _identity(self.path) == self._identity:
                return
            yield from self._leave(file)

    def finish(self) -> Iterator[NewLine | Notice]:
        """At the end of a log that is not followed: the last line without a newline if it is whole, else a notice."""
        rest, self._rest = self._rest, b""
        if is_object(rest):
            yield NewLine(self.path, self._number + 1, rest)
        elif rest.strip():
            yield Notice("torn", f"{self.path}: the last line is torn ({len(rest)} bytes without a newline) and was skipped")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open_next(self) -> BinaryIO | None:
        """Open the oldest part not read yet, else the log itself; None when there is none."""
        number = self._next_part()
        if number is not None:
            return self._open(rotated(self.path, number), number)
        opened = self._open(self.path, None)
        # Between the look and the opening the log may have been rotated: then its older part comes first.
        older = rotated(self.path, self._done + 1)
        if opened is not None and _identity(older) not in (None, self._identity):
            self.close()
            return self._open(older, self._done + 1)
        return opened

    def _next_part(self) -> int | None:
        if rotated(self.path, self._done + 1).exists():
            return self._done + 1
        return next((number for number in rotations(self.path) if number > self._done), None)

    def _open(self, path: Path, number: int | None) -> BinaryIO | None:
        try:
            self._file = file = open_file(path, TelemetryError)  # held until its successor is known
        except TelemetryError:
            if path.exists() and not path.is_file():
                raise  # such as a pipe, which would be waited for
            return None
        found = os.fstat(file.fileno())
        self._identity = (found.st_dev, found.st_ino)
        self._rest, self._number, self._position = b"", 0, 0
        self._read.clear()
        self._missing = False
        if number is not None:
            self._done = number
        if self._skip:
            self._skip = False
            self._position = _end_of_lines(file)
        return file

    def _lines(self, file: BinaryIO) -> Iterator[NewLine | Notice]:
        while block := file.read(CHUNK):
            start = self._position - len(self._rest)
            self._position += len(block)
            lines = (self._rest + block).split(b"\n")
            self._rest = lines.pop()
            for raw in lines:
                self._number += 1
                self._read.append((start, start + len(raw) + 1, zlib.crc32(raw)))
                start += len(raw) + 1
                if raw and not raw.isspace():
                    yield NewLine(self.path, self._number, raw)
            if len(self._rest) > MAX_LINE:
                yield Notice("long", f"{self.path}: line {self._number + 1} is longer than {MAX_LINE} bytes; it is skipped")
                self._rest = b""

    def _changes(self, file: BinaryIO) -> Iterator[Notice]:
        """Notice when the open file was cut back or written again."""
        size = os.fstat(file.fileno()).st_size
        if size >= self._position and self._tail_stands(file):
            return
        what = "truncated" if size < self._position else "rewritten"
        while self._read and not self._tail_stands(file):
            self._read.pop()
            self._number -= 1
        self._rest = b""
        if self._read:
            self._position = file.seek(self._read[-1][1])
            yield Notice(what, f"{self.path} was cut back to byte {size}; going on after line {self._number}")
        else:
            self._number = 0
            self._position = file.seek(0)
            yield Notice(what, f"{self.path} was {what}; reading it from the start")

    def _tail_stands(self, file: BinaryIO) -> bool:
        """Is the last line that was read still where it was?"""
        if not self._read:
            return True
        start, end, checksum = self._read[-1]
        raw = os.pread(file.fileno(), end - start, start)
        return len(raw) == end - start and raw.endswith(b"\n") and zlib.crc32(raw[:-1]) == checksum

    def _leave(self, file: BinaryIO) -> Iterator[NewLine | Notice]:
        """The open file is no longer the log: read it to its end and let it go."""
        yield from self._lines(file)
        identity = self._identity
        number: int | None = self._done + 1
        if _identity(rotated(self.path, self._done + 1)) != identity:
            number = next((n for n in reversed(rotations(self.path)) if _identity(rotated(self.path, n)) == identity), None)
        if self._rest:
            yield Notice("torn", f"{self.path}: the old file ended in half a line ({len(self._rest)} bytes); it is skipped")
            self._rest = b""
        self.close()
        if number is not None:
            self._done = max(self._done, number)
            self._missing = True  # between the two renames of a rotation there is no log: nothing to speak of
        elif _identity(self.path) is None:
            self._missing = True
            yield Notice("deleted", f"{self.path} was deleted; waiting for it to come back")
        else:
            self._done = min(self._done, last_rotation(self.path))
            yield Notice("replaced", f"another file took the place of {self.path}; reading it from the start")
