"""Newline-delimited JSON: the log writer of a training run, and the reader every telemetry tool shares.

Rotation by rename: a full `<name>` becomes `<name>.1`, the next `<name>.2`, …; so `<name>.1` is the oldest part and `<name>`
the one being written. `log_stream_offset` counts the written records over rotations and resumes, from 1.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from townlet.errors import StorageError, TelemetryError, UsageError
from townlet.files import AppendLog, move, open_file, remove
from townlet.sealed import BROKEN_SEAL, seal_holds, sealed_line
from townlet.telemetry.schema import BATCH_FIELDS, CURRENT, FIELDS, OWN_RETURN
from townlet.types import Record

log = logging.getLogger("townlet.telemetry")
MAX_LINE = 1 << 20  # bytes; a longer line is no telemetry record
CHUNK = 1 << 20
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)  # what a decoder may say of bytes that are no JSON


def _plain(value: object) -> Any:
    """NumPy scalars and arrays as Python values, for the encoder."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TelemetryError(
        f"a telemetry value of type {type(value).__name__} cannot be written as JSON; use numbers, text or lists"
    )


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)


def _diverged(record: Mapping[str, object]) -> bool:
    """Does a record hold NaN or an infinity? Such a record is always written."""
    return any(isinstance(value, float) and not math.isfinite(value) for value in record.values())


def encode_record(record: Mapping[str, object]) -> bytes:
    """One line without its newline. What is not finite is written as null and named under `nonfinite`."""
    line: Record = {}
    lost: list[str] = []
    for name, value in record.items():
        if hasattr(value, "tolist"):  # of NumPy, whose float64 is a float that the encoder refuses
            value = value.tolist()
        if isinstance(value, float) and not math.isfinite(value):
            lost.append(name)
            value = None
        line[name] = value
    if lost:
        line["nonfinite"] = sorted(lost)
    return _ENCODER.encode(line)


# --- writing ---------------------------------------------------------------------------------------------------------


class TelemetryWriter:
    """Appends records to one log. It never stops the training: on a full disk the log stops, with one warning."""

    def __init__(
        self, path: Path | str | None, *, frequency: int = 1, max_entries: int | None = None, start_offset: int = 0
    ) -> None:
        if frequency < 1:
            raise UsageError(f"the log frequency is {frequency}; it must be at least 1 (1 = every epoch)")
        if max_entries is not None and max_entries < 1:
            raise UsageError(f"the log's largest number of entries is {max_entries}; it must be at least 1")
        self.path = None if path is None else Path(path)
        self.frequency = frequency
        self.max_entries = max_entries
        self.offset = start_offset  # of the last written record
        self.records_dropped = 0
        self._epochs = 0  # epoch records seen, written or not
        self._left_out: list[Mapping[str, object]] = []  # records of the last epoch, when sampling left them out
        self._entries = 0  # lines in the file being written
        self._rotation = 0  # number of the newest rotated part
        self._end = (0, 0)  # of the last written record: the newest rotated part then, and bytes in the file after it
        self._log: AppendLog | None = None
        self._stopped = False

    def write(self, record: Mapping[str, object]) -> bool:
        """Write one record unless sampling leaves it out; sets `log_stream_offset` and `records_dropped`. True when written."""
        if self.path is None:
            return False
        due = self._epochs % self.frequency == 0
        batch = record.get("kind") == "batch"
        if self._left_out and self._left_out[-1].get("kind") != "batch":
            self._left_out = []  # of an epoch that was not the last
        if not batch:
            self._epochs += 1
        if not due and not _diverged(record):
            self._left_out.append(record)
            return False
        self._left_out = []
        return self._write(record)

    def write_last(self) -> None:
        """At the end of a run: the records of its last epoch, when sampling left them out."""
        for record in self._left_out:
            self._write(record)
        self._left_out = []

    def _write(self, record: Mapping[str, object]) -> bool:
        batch = record.get("kind") == "batch"
        if self._stopped or self.path is None:
            self.records_dropped += 1
            return False
        try:
            self._log = self._log or self._open(self.path)
            if self.max_entries is not None and self._entries >= self.max_entries:
                self._rotate(self._log)
                self._log = AppendLog(self._log.path)
            line = dict(record)
            line["log_stream_offset"] = self.offset + 1
            if not batch:
                line["records_dropped"] = self.records_dropped
            line.pop("seal", None)  # of a record that comes from another log
            self._log.write(sealed_line(encode_record(line)))
        except StorageError as error:
            self.records_dropped += 1
            self._stop(error)
            return False
        self.offset += 1
        self._entries += 1
        self._end = (self._rotation, self._log.position)
        return True

    def _stop(self, error: StorageError) -> None:
        self._stopped = True
        log.warning("telemetry stops at record %d: %s; training continues", self.offset + 1, error)

    def _open(self, path: Path) -> AppendLog:
        opened = AppendLog(path)
        if opened.torn:
            log.warning("%s ended in half a line (%d bytes); it was cut off", path, opened.torn)
        self._entries = _count_lines(path)
        self._rotation = last_rotation(path)
        self._end = (self._rotation, opened.position)
        self.offset = max(self.offset, last_offset(path))
        return opened

    def _rotate(self, full: AppendLog) -> None:
        full.close()
        move(full.path, rotated(full.path, self._rotation + 1))
        self._rotation += 1
        self._entries = 0

    def position(self) -> dict[str, int | str]:
        """Where the log stands, on disk, for a checkpoint."""
        if self.path is None:
            return {}
        try:
            if self._log is None and self.path.exists():
                self._log = self._open(self.path)
            if self._log is not None and not self._stopped:
                self._log.sync()
        except StorageError as error:
            self._stop(error)
        rotation, byte = self._end
        return {
            "file": self.path.name,
            "rotation": rotation,
            "byte": byte,
            "offset": self.offset,
            "epochs": self._epochs,
            "records_dropped": self.records_dropped,
        }

    def rewind(self, position: Mapping[str, int | str]) -> int:
        """Go back to a position: whatever follows it goes to `<name>.discarded`. Returns the number of bytes moved.

        The file of the position may have been rotated since, and an earlier rewind may have been killed halfway: the file is
        found by its content. Everything after it is moved, each part copied and synced before it is removed, and the file becomes
        `<name>` again last. So this can be repeated after a crash at any step.
        """
        if self.path is None or not position:
            return 0
        self.close()
        rotation, byte, offset = int(position["rotation"]), int(position["byte"]), int(position["offset"])
        later = [rotated(self.path, number) for number in rotations(self.path) if number > rotation]
        there = [part for part in (*later, self.path) if part.exists()]
        part = _part_at(there, byte, offset) if byte else None
        if byte and part is None:
            raise TelemetryError(
                f"{self.path} does not hold record {offset} at byte {byte}, where the checkpoint was taken; restore the log, or "
                "resume with another --ppo-log"
            )
        moved = 0
        if part is not None:
            with AppendLog(part) as kept:
                moved = kept.discard_after(byte, self.path)
        moved += sum(_discard(self.path, other) for other in there if other != part)
        if part is not None and part != self.path:
            move(part, self.path)
        self.offset, self._end = offset, (rotation, byte)
        self.records_dropped = int(position["records_dropped"])
        self._epochs = int(position["epochs"])
        self._left_out = []
        self._stopped = False
        return moved

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def __enter__(self) -> TelemetryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _part_at(parts: Sequence[Path], byte: int, offset: int) -> Path | None:
    """The file in which the record of this offset ends at this byte."""
    for part in parts:
        with open_file(part, error=TelemetryError) as file:
            file.seek(start := max(0, byte - MAX_LINE))
            before = file.read(byte - start)
        last = before[:-1].rpartition(b"\n")[2]
        if start + len(before) == byte and before.endswith(b"\n") and (not offset or _offset_of(last) == offset):
            return part
    return None


def _discard(path: Path, later: Path) -> int:
    with AppendLog(later) as log:
        moved = log.discard_after(0, path)
    remove(later)
    return moved


# --- parts of a rotated log ------------------------------------------------------------------------------------------


def rotated(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def rotations(path: Path) -> list[int]:
    """Numbers of the rotated parts that exist, in order."""
    prefix = path.name + "."
    if not path.parent.is_dir():
        return []
    found = (entry.name[len(prefix) :] for entry in os.scandir(path.parent) if entry.name.startswith(prefix))
    return sorted(int(tail) for tail in found if tail.isascii() and tail.isdigit() and not tail.startswith("0"))


def last_rotation(path: Path) -> int:
    return max(rotations(path), default=0)


def log_parts(path: Path | str) -> list[Path]:
    """The files of one log, oldest record first. Logs that rotate the other way round are put right by their offsets."""
    path = Path(path)
    parts = [rotated(path, number) for number in rotations(path)]
    if path.exists():
        parts.append(path)
    if not parts:
        raise TelemetryError(f"{path} does not exist; give the path of a telemetry log (NDJSON)")
    first = [_first_offset(part) for part in parts]
    if len(parts) > 1 and all(offset is not None for offset in first):
        parts = [part for _, part in sorted(zip(first, parts), key=lambda pair: pair[0] or 0)]
    return parts


class _OffsetOnly(msgspec.Struct):
    log_stream_offset: float = 0.0


_OFFSET = msgspec.json.Decoder(_OffsetOnly)


def _offset_of(raw: bytes) -> int | None:
    try:
        return int(_OFFSET.decode(raw).log_stream_offset)
    except UNREADABLE:
        return None


def _first_offset(path: Path) -> int | None:
    first = next(iter(LogReader(path)), None)
    return None if first is None else _offset_of(first.raw)


def last_offset(path: Path) -> int:
    """Offset of the last whole record of the log, 0 when there is none."""
    for part in (path, *(rotated(path, number) for number in reversed(rotations(path)))):
        if not part.exists():
            continue
        with open_file(part, error=TelemetryError) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MAX_LINE))
            lines = file.read().split(b"\n")
        for raw in reversed(lines):
            if raw.strip():
                return _offset_of(raw) or 0
    return 0


def _count_lines(path: Path) -> int:
    with open_file(path, error=TelemetryError) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(CHUNK), b""))


# --- reading ---------------------------------------------------------------------------------------------------------


class Line(NamedTuple):
    number: int  # from 1
    raw: bytes  # without the newline


class TornTail(NamedTuple):
    """A last line without its newline: a writer is in the middle of it, or was killed there."""

    path: Path
    number: int
    raw: bytes

    @property
    def reason(self) -> str:
        return f"the last line is torn ({len(self.raw)} bytes without a newline) and was skipped"

    def __str__(self) -> str:
        return f"{self.path}:{self.number}: {self.reason}"


class LineTooLong(TelemetryError):
    def __init__(self, path: Path, number: int) -> None:
        self.number = number
        self.reason = f"a line is longer than {MAX_LINE} bytes; this is not a telemetry log"
        super().__init__(f"{path}:{number}: {self.reason}")


class LogReader:
    """Iterate over the whole lines of one file; `torn` holds the torn tail once the end was reached.

    A last line without a newline counts as whole when it is a complete JSON object: other programs leave the newline out.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.torn: TornTail | None = None

    def __iter__(self) -> Iterator[Line]:
        with open_file(self.path, error=TelemetryError) as file:
            number, rest = 0, b""
            while block := file.read(CHUNK):
                lines = (rest + block).split(b"\n")
                rest = lines.pop()
                for raw in lines:
                    number += 1
                    if raw and not raw.isspace():
                        yield Line(number, raw)
                if len(rest) > MAX_LINE:
                    raise LineTooLong(self.path, number + 1)
            if rest.strip():
                number += 1
                if is_object(rest):
                    yield Line(number, rest)
                else:
                    self.torn = TornTail(self.path, number, rest)


def is_object(raw: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(raw), dict)
    except UNREADABLE:
        return False


def _loose_record() -> msgspec.json.Decoder[Any]:
    """A decoder that checks every declared field's kind and nothing more: readers need not check types again."""
    number = float | None
    kinds: Record = {"whole": number, "number": number, "flag": bool | None, "text": str | None, "choice": str | None}
    kinds |= {"histogram": list[float] | None, "counts": dict[str, float] | None, "names": list[str] | None}
    fields = {item.name: item for item in (*BATCH_FIELDS, *FIELDS)}
    members = [(f"f{at}", kinds[item.kind] | msgspec.UnsetType, msgspec.UNSET) for at, item in enumerate(fields.values())]
    return msgspec.json.Decoder(
        msgspec.defstruct("LooseRecord", members, rename={f"f{at}": name for at, name in enumerate(fields)}, gc=False)
    )


_LOOSE = _loose_record()


def epoch_records(path: Path | str) -> Iterator[Record]:
    """The records of a log without those of mini-batches."""
    return (record for record in read_records(path) if record.get("kind") != "batch")


def read_records(path: Path | str) -> Iterator[Record]:
    """The records of a log and its rotated parts, oldest first; seals hold and values are of their kind, `validate` says more.

    Before `OWN_RETURN` a replay run wrote the return of its data where its own belongs; here it is `dataset_return`.
    """
    decoder = msgspec.json.Decoder(Record)
    for part in log_parts(path):
        for number, raw in LogReader(part):
            try:
                record = decoder.decode(raw)
                _LOOSE.decode(raw)
                if seal_holds(raw) is False:
                    raise TelemetryError(f"{part}:{number}: {BROKEN_SEAL}; restore the log")
                record.pop("seal", None)
            except UNREADABLE as error:
                raise TelemetryError(
                    f"{part}:{number}: not a JSON object ({error}); run `townlet telemetry validate {path}` for all problems"
                ) from error
            if number == 1 and record.get("telemetry_version") is None:
                raise TelemetryError(f"{part}:1: has no telemetry_version; give the log of a training run, this is another file")
            earlier = (record.get("telemetry_version") or CURRENT) < OWN_RETURN
            if earlier and record.get("data_mode") == "replay" and record.get("episode_return_mean") is not None:
                record["dataset_return"], record["episode_return_mean"] = record["episode_return_mean"], None
            yield record
