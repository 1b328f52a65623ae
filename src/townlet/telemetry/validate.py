"""Is a log valid? Checks every record against the declared fields and against the record before it."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from dataclasses import field as member
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import astuple

from townlet.sealed import BROKEN_SEAL, seal_holds
from townlet.telemetry.ndjson import UNREADABLE, LineTooLong, LogReader, log_parts, rotated, rotations
from townlet.telemetry.schema import BATCH_FIELDS, CURRENT, FIELDS, OWN_RETURN, RIVALRY_BINS, STRICT, VERSIONS, Field, declared
from townlet.types import Record

TOLERANCE = 1e-6  # how far rounding may carry a number out of its range
SHARES_TOLERANCE = 1e-3
LARGEST = sys.float_info.max
EXPECTED = {
    "whole": "a whole number",
    "number": "a number",
    "flag": "true or false",
    "text": "a text",
    "choice": "a choice",
    "histogram": f"{RIVALRY_BINS} numbers",
    "counts": "an object of counts",
    "names": "a list of field names",
}


def _annotation(item: Field, version: float) -> Any:
    low = None if item.low is None else item.low - TOLERANCE
    high = None if item.high is None else item.high + TOLERANCE
    kind: Any
    match item.kind:
        case "whole":
            kind = Annotated[float, Meta(ge=low, le=high, multiple_of=1)]
        case "number":
            kind = Annotated[float, Meta(ge=low, le=high)]
        case "flag":
            kind = bool
        case "text":
            kind = Annotated[str, Meta(min_length=1)]
        case "choice":
            kind = Literal[item.choices]
        case "histogram":
            kind = Annotated[list[Annotated[float, Meta(ge=low)]], Meta(min_length=RIVALRY_BINS, max_length=RIVALRY_BINS)]
        case "counts":
            kind = dict[str, Annotated[float, Meta(ge=low, multiple_of=1)]]
        case "names":
            kind = Annotated[list[str], Meta(max_length=0)]  # a record that names some is looked at slowly
    if item.name == "telemetry_version":
        kind = Annotated[float, Meta(ge=version, le=version)]
    return kind | None if item.nullable_in(version) else kind


@dataclass(frozen=True, slots=True)
class RecordShape:
    """The records of one version and kind."""

    version: float
    batch: bool
    fields: tuple[Field, ...]
    decoder: msgspec.json.Decoder[Any]


@cache
def shape(version: float, batch: bool = False) -> RecordShape:
    fields = BATCH_FIELDS if batch else FIELDS
    members: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    rename: dict[str, str] = {}
    for item in fields:
        name = item.name.replace(".", "_")
        rename[name] = item.name
        annotation = _annotation(item, version)
        members.append((name, annotation) if item.required_in(version) else (name, annotation | UnsetType, UNSET))
    record = msgspec.defstruct(
        f"Record_{version}".replace(".", "_"),
        members,
        rename=rename,
        kw_only=True,
        gc=False,
        forbid_unknown_fields=version >= STRICT,
    )
    return RecordShape(version, batch, fields, msgspec.json.Decoder(record))


# --- one record, slowly ----------------------------------------------------------------------------------------------


class _Duplicates(Record):
    """A JSON object that remembers which keys came twice."""

    twice: tuple[str, ...] = ()


def _pairs(pairs: list[tuple[str, object]]) -> Record:
    record = _Duplicates(pairs)
    if len(record) < len(pairs):
        record.twice = tuple(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
    return record


def parse_line(raw: bytes) -> tuple[Record | None, list[tuple[str, str]]]:
    """The object on a line, or None, and what is wrong with it as JSON: pairs of key and message."""
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_pairs)
    except RecursionError:
        return None, [("", "is nested too deeply for a telemetry record")]
    except ValueError as error:
        return None, [("", f"is not JSON: {error}")]
    if not isinstance(value, _Duplicates):
        return None, [("", f"is a JSON {JSON_NAMES.get(type(value), 'object')}, expected one object per line")]
    return value, [(key, "appears twice in one record") for key in value.twice]


JSON_NAMES: dict[type, str] = {type(None): "null", bool: "boolean", int: "number", float: "number", str: "string", list: "array"}


def _shown(value: object) -> str:
    try:
        text = json.dumps(value)
    except RecursionError:
        return "a deeply nested value"
    return text if len(text) <= 60 else text[:57] + "…"


def _check_number(item: Field, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"is {_shown(value)}, expected a {'whole ' if item.kind in ('whole', 'counts') else ''}number"
    if not abs(value) <= LARGEST:  # also when it is NaN
        return f"is {_shown(value)}, expected a finite number"
    if item.kind in ("whole", "counts") and value != math.floor(value):
        return f"is {value}, expected a whole number"
    if item.low is not None and value < item.low - TOLERANCE:
        return f"is {value}, expected at least {item.low:g}"
    if item.high is not None and value > item.high + TOLERANCE:
        return f"is {value}, expected at most {item.high:g}"
    return ""


def check_value(item: Field, value: object, version: float) -> str:
    """What is wrong with one value, in words; "" when nothing is."""
    if value is None:
        if item.nullable_in(version):
            return ""
        when = f" (null is allowed from {STRICT:g} on for {item.null_when})" if item.null_when else ""
        return f"is null, expected {EXPECTED[item.kind]}{when}"
    match item.kind:
        case "whole" | "number":
            return _check_number(item, value)
        case "flag":
            return "" if isinstance(value, bool) else f"is {_shown(value)}, expected true or false"
        case "text":
            return "" if isinstance(value, str) and value else f"is {_shown(value)}, expected a text"
        case "choice":
            return "" if value in item.choices else f"is {_shown(value)}, expected one of {', '.join(item.choices)}"
        case "histogram":
            if not isinstance(value, list) or len(value) != RIVALRY_BINS:
                return f"is {_shown(value)}, expected {RIVALRY_BINS} numbers"
            return next((f"has a bin that {wrong}" for wrong in (_check_number(item, bin) for bin in value) if wrong), "")
        case "counts":
            if not isinstance(value, dict):
                return f"is {_shown(value)}, expected an object of counts"
            return next(
                (f"[{key!r}] {wrong}" for key, wrong in ((k, _check_number(item, v)) for k, v in value.items()) if wrong), ""
            )
        case "names":
            if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
                return f"is {_shown(value)}, expected a list of field names"
            return f"names {', '.join(value)}: the run diverged there" if value else ""


def check_record(record: Record) -> list[tuple[str, str]]:
    """All problems of one record by itself, as pairs of field and message."""
    version = record.get("telemetry_version")
    if isinstance(version, bool) or not isinstance(version, int | float) or version not in VERSIONS:
        found = "missing" if "telemetry_version" not in record else f"is {_shown(version)}"
        told = f"{found}, expected one of the numbers {', '.join(f'{v:g}' for v in VERSIONS)}"
        newer = isinstance(version, int | float) and VERSIONS[-1] < version < 100
        return [("telemetry_version", told + ("; a newer Townlet wrote it, use that one" if newer else ""))]
    version = float(version)
    fields = BATCH_FIELDS if record.get("kind") == "batch" else FIELDS
    lost = record["nonfinite"] if isinstance(record.get("nonfinite"), list) else []
    problems: list[tuple[str, str]] = []
    for item in fields:
        if item.name not in record:
            if item.required_in(version):
                problems.append((item.name, f"is missing; required from version {item.since:g} on"))
        elif record[item.name] is None and item.name in lost:
            problems.append((item.name, "was not a finite number when it was written: the run diverged"))
        elif wrong := check_value(item, record[item.name], version):
            problems.append((item.name, wrong))
    if version >= STRICT:
        known = {item.name for item in fields}
        problems += [(name, f"is not a declared field of version {version:g}") for name in record if name not in known]
        if not problems:
            problems += check_sums(
                record.get("rivalry_histogram"), record.get("conflict_reasons"), record.get("queue_conflict_events")
            )
    return problems


def check_sums(histogram: object, reasons: object, conflicts: float | None) -> list[tuple[str, str]]:
    problems = []
    if isinstance(histogram, list):
        total = math.fsum(histogram)
        if total and abs(total - 1.0) > SHARES_TOLERANCE:
            problems.append(("rivalry_histogram", f"sums to {total:g}, expected shares that sum to 1"))
    if isinstance(reasons, dict) and conflicts is not None:
        counted = sum(reasons.values())
        if counted != conflicts:
            problems.append(("conflict_reasons", f"count {counted:g} conflicts, queue_conflict_events is {conflicts:g}"))
    return problems


MAXIMA = {  # largest of a mini-batch → mean over them
    "grad_norm_max": "grad_norm",
    "kl_divergence_max": "kl_divergence",
    "clip_fraction_max": "clip_fraction",
    "conflict.rivalry_max_max_avg": "conflict.rivalry_max_mean_avg",
    "conflict.rivalry_avoid_count_max_avg": "conflict.rivalry_avoid_count_mean_avg",
}
_MAXIMA = [(name, attrgetter(name.replace(".", "_")), mean, attrgetter(mean.replace(".", "_"))) for name, mean in MAXIMA.items()]

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
    sealed: int = 0  # records whose seal was there and held
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

    def as_dict(self) -> Record:
        def rows(found: Iterable[Problem]) -> list[Record]:
            return [{"file": str(p.path), "line": p.line, "field": p.field, "message": p.message} for p in found]

        return {
            "ok": self.ok,
            "files": [str(path) for path in self.files],
            "records": self.records,
            "batches": self.batches,
            "sealed": self.sealed,
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
    epoch: float = -1.0
    stage: float | UnsetType | None = None  # of an anneal schedule, in which epochs start again


class LogChecker:
    """Check the lines of one log in order; findings go to the report."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._before = Before()
        self._unknown: set[str] = set()
        self._shape, self._batch = shape(CURRENT), shape(CURRENT, batch=True)

    def check(self, path: Path, number: int, raw: bytes) -> None:
        """One line. Most pass the compiled check; the rest, and lines that may hold a key twice, are checked field by field."""
        form = self._batch if raw.startswith(BATCH_START) else self._shape
        seal = seal_holds(raw)
        self.report.sealed += seal is True
        if seal is False:
            self.report.bad_lines += 1
            self.report.problem(path, number, "", BROKEN_SEAL)
            return
        try:
            record = form.decoder.decode(raw)
        except UNREADABLE:
            self._in_words(path, number, raw)
            return
        keys = len(form.fields) - astuple(record).count(UNSET)
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
                    message = f"changes from {before.run} to {record.run_id}: another run continues here"
                    report.note(path, number, "run_id", message)
                self._before = before = Before(offset=before.offset, version=before.version, run=record.run_id)
            if record.steps < before.steps or (record.steps == before.steps and record.transitions > 0):
                report.problem(path, number, "steps", f"is {record.steps:g} after {before.steps:g}; it must grow")
            before.steps = record.steps
            self._order(path, number, record)
        if form.version >= FIRST_WITH_OFFSET:
            self._offset(path, number, record.log_stream_offset)
            if record.cycle_id is not UNSET and record.cycle_id < before.cycle:
                report.problem(path, number, "cycle_id", f"falls from {before.cycle:g} to {record.cycle_id:g}")
            before.cycle = record.cycle_id

    def _order(self, path: Path, number: int, record: Any) -> None:
        """Epochs grow within a run and a stage, a replay run has no return of its own, and no maximum lies below its mean."""
        before = self._before
        if record.epoch <= before.epoch and record.anneal_cycle == before.stage:
            self.report.problem(path, number, "epoch", f"is {record.epoch:g} after {before.epoch:g}; it must grow")
        before.epoch, before.stage = record.epoch, record.anneal_cycle
        if record.data_mode == "replay" and record.telemetry_version >= OWN_RETURN and record.episode_return_mean is not None:
            message = "is that of the data in a replay run, which has none of its own; expected null, and dataset_return"
            self.report.problem(path, number, "episode_return_mean", message)
        for name, most_of, mean_name, mean_of in _MAXIMA:
            most, mean = most_of(record), mean_of(record)
            if isinstance(most, float) and isinstance(mean, float) and most < mean - TOLERANCE * max(1.0, abs(mean)):
                self.report.problem(path, number, name, f"is {most:g}, below the mean {mean_name}, {mean:g}")

    def _offset(self, path: Path, number: int, offset: float) -> None:
        before = self._before.offset
        if before >= 0:
            if offset <= before:
                message = f"is {offset:g} after {before:g}; it must grow (do two programs write this log?)"
                self.report.problem(path, number, "log_stream_offset", message)
            elif offset > before + 1:
                message = f"jumps from {before:g} to {offset:g}: {offset - before - 1:g} records are missing"
                self.report.note(path, number, "log_stream_offset", message)
        self._before.offset = offset


def validate_log(paths: Path | str | Sequence[Path | str], *, limit: int = DEFAULT_LIMIT) -> Report:
    """Check one or several logs, each with its rotated parts. A damaged file is a finding, a missing one an error."""
    report = Report(limit)
    for path in whole_logs([paths] if isinstance(paths, Path | str) else paths):
        checker, seen = LogChecker(report), report.records + report.batches + report.problem_count
        for part in log_parts(path):
            report.files.append(part)
            reader, number = LogReader(part), 0
            try:
                for number, raw in reader:
                    checker.check(part, number, raw)
            except LineTooLong as error:
                report.bad_lines += 1
                report.problem(part, error.number, "", error.reason)
            if reader.torn is not None:
                report.note(part, reader.torn.number, "", reader.torn.reason)
            if number == 0 and part != path:
                report.note(part, 1, "", "is a rotated part without a record; those it held are missing")
        if report.records + report.batches + report.problem_count == seen:
            report.problem(path, 1, "", "the log holds no record")
    return report


def whole_logs(paths: Sequence[Path | str]) -> list[Path]:
    """The logs among the paths given: a rotated part is left out when its log is given too (`ppo.jsonl*`)."""
    given = [Path(path) for path in paths]
    parts = {rotated(path, number) for path in given for number in rotations(path)}
    kept = [path for path in dict.fromkeys(given) if path not in parts]
    return [path for path in kept if not path.name.endswith(".discarded")] or kept
