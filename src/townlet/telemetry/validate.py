"""Is a log what it says? Every record against the declared fields, and every record against the one before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from dataclasses import field as member
from pathlib import Path
from typing import Any

from msgspec import UNSET
from msgspec.structs import astuple

from townlet.telemetry.ndjson import UNREADABLE, LineTooLong, LogReader, log_parts, rotated, rotations
from townlet.telemetry.record import RecordShape, check_record, check_sums, parse_line, shape
from townlet.telemetry.schema import CURRENT, STRICT, declared

DEFAULT_LIMIT = 100
FIRST_WITH_OFFSET = 1.1
BATCH_START = b'{"kind":"batch"'  # as our writer puts it; batch records of other programs take the longer way


@dataclass(frozen=True, slots=True)
class Problem:
    path: Path
    line: int
    field: str
    message: str

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}: "
        return f"{where}{self.field}: {self.message}" if self.field else where + self.message


@dataclass(slots=True)
class Report:
    """What `validate_log` found. `problems` and `notes` keep the first `limit` each; the counts are complete."""

    limit: int = DEFAULT_LIMIT
    files: list[Path] = member(default_factory=list)
    records: int = 0
    batches: int = 0
    versions: Counter[str] = member(default_factory=Counter)
    problems: list[Problem] = member(default_factory=list)
    problem_count: int = 0
    bad_lines: int = 0
    notes: list[Problem] = member(default_factory=list)
    note_count: int = 0

    @property
    def ok(self) -> bool:
        return self.problem_count == 0

    def problem(self, path: Path, line: int, field: str, message: str) -> None:
        self.problem_count += 1
        if len(self.problems) < self.limit:
            self.problems.append(Problem(path, line, field, message))

    def note(self, path: Path, line: int, field: str, message: str) -> None:
        self.note_count += 1
        if len(self.notes) < self.limit:
            self.notes.append(Problem(path, line, field, message))

    def as_dict(self) -> dict[str, Any]:
        def rows(found: Iterable[Problem]) -> list[dict[str, Any]]:
            return [{"file": str(p.path), "line": p.line, "field": p.field, "message": p.message} for p in found]

        return {
            "ok": self.ok,
            "files": [str(path) for path in self.files],
            "records": self.records,
            "batches": self.batches,
            "versions": dict(self.versions),
            "bad_lines": self.bad_lines,
            "problem_count": self.problem_count,
            "problems": rows(self.problems),
            "note_count": self.note_count,
            "notes": rows(self.notes),
        }


@dataclass(slots=True)
class Before:
    """What the next record is compared with."""

    offset: float = -1.0
    steps: float = -1.0
    cycle: float = -2.0
    version: float = 0.0
    run: str = ""


class LogChecker:
    """Check the lines of one log in order; findings go to the report."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._before = Before()
        self._unknown: set[str] = set()
        self._shape, self._batch = shape(CURRENT), shape(CURRENT, batch=True)

    def check(self, path: Path, number: int, raw: bytes) -> None:
        """One line. Most pass the compiled check; the rest, and whatever may hold a key twice, is looked at field by field."""
        form = self._batch if raw.startswith(BATCH_START) else self._shape
        try:
            record = form.decoder.decode(raw)
        except UNREADABLE:
            self._in_words(path, number, raw)
            return
        keys = form.width - astuple(record).count(UNSET)
        if form.version >= STRICT and not form.batch:
            reasons = record.conflict_reasons
            keys += len(reasons) if reasons else 0
            if check_sums(record.rivalry_histogram, reasons, record.queue_conflict_events):
                keys = -1
        if raw.count(b":") != keys and raw.count(b'":') != keys:
            self._in_words(path, number, raw)
            return
        self._accept(path, number, record, form)

    def _in_words(self, path: Path, number: int, raw: bytes) -> None:
        record, problems = parse_line(raw)
        if record is not None:
            problems += check_record(record)
        if problems or record is None:
            self.report.bad_lines += 1
            for name, message in problems:
                self.report.problem(path, number, name, message)
            return
        version = float(record["telemetry_version"])
        form = shape(version, batch=record.get("kind") == "batch")
        if form.batch:
            self._batch = form
        else:
            self._shape = form
        for name in record:
            if not declared(name) and name not in self._unknown and not form.batch:
                self._unknown.add(name)
                self.report.note(path, number, name, f"is not a declared field of version {version:g}; it is left alone")
        self._accept(path, number, form.decoder.decode(raw), form)

    def _accept(self, path: Path, number: int, record: Any, form: RecordShape) -> None:
        before, report = self._before, self.report
        if form.version < before.version:
            report.problem(path, number, "telemetry_version", f"falls from {before.version:g} to {form.version:g}")
        before.version = max(before.version, form.version)
        if form.batch:
            report.batches += 1
        else:
            report.records += 1
            report.versions[f"{form.version:g}"] += 1
            if form.version >= STRICT and record.run_id != before.run:
                if before.run:
                    report.note(path, number, "run_id", f"changes from {before.run} to {record.run_id}: another run goes on here")
                self._before = before = Before(offset=before.offset, version=before.version, run=record.run_id)
            if record.steps < before.steps or (record.steps == before.steps and record.transitions > 0):
                report.problem(path, number, "steps", f"is {record.steps:g} after {before.steps:g}; it must grow")
            before.steps = record.steps
        if form.version >= FIRST_WITH_OFFSET:
            self._offset(path, number, record.log_stream_offset)
            if record.cycle_id is not UNSET and record.cycle_id < before.cycle:
                report.problem(path, number, "cycle_id", f"falls from {before.cycle:g} to {record.cycle_id:g}")
            before.cycle = record.cycle_id

    def _offset(self, path: Path, number: int, offset: float) -> None:
        before = self._before.offset
        if before >= 0:
            if offset <= before:
                self.report.problem(
                    path,
                    number,
                    "log_stream_offset",
                    f"is {offset:g} after {before:g}; it must grow (do two programs write this log?)",
                )
            elif offset > before + 1:
                self.report.note(
                    path,
                    number,
                    "log_stream_offset",
                    f"jumps from {before:g} to {offset:g}: {offset - before - 1:g} records are missing",
                )
        self._before.offset = offset


def validate_log(paths: Path | str | Sequence[Path | str], *, limit: int = DEFAULT_LIMIT) -> Report:
    """Check one or several logs, each with its rotated parts. A damaged file is a finding, a missing one an error."""
    report = Report(limit)
    for path in whole_logs([paths] if isinstance(paths, Path | str) else paths):
        checker = LogChecker(report)
        for part in log_parts(path):
            report.files.append(part)
            reader = LogReader(part)
            try:
                for number, raw in reader:
                    checker.check(part, number, raw)
            except LineTooLong as error:
                report.bad_lines += 1
                report.problem(part, error.number, "", error.reason)
            if reader.torn is not None:
                report.note(part, reader.torn.number, "", reader.torn.reason)
    if not report.records and not report.batches and not report.problem_count:
        report.problem(report.files[0], 1, "", "the log holds no record")
    return report


def whole_logs(paths: Sequence[Path | str]) -> list[Path]:
    """The logs among the paths given: a rotated part is left out when its log is given too (`ppo.jsonl*`)."""
    given = [Path(path) for path in paths]
    parts = {rotated(path, number) for path in given for number in rotations(path)}
    kept = [path for path in dict.fromkeys(given) if path not in parts]
    return [path for path in kept if not path.name.endswith(".discarded")] or kept
