"""Is one record what it says? Built from the declared fields, twice: compiled and quick, or in words and complete.

A whole record is decoded and checked in one pass of compiled code. Only a record that fails there is looked at again, field by
field, so that every problem is named.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from townlet.telemetry.schema import BATCH_FIELDS, FIELDS, RIVALRY_BINS, STRICT, VERSIONS, Field

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
    width: int


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
    return RecordShape(version, batch, fields, msgspec.json.Decoder(record), len(fields))


# --- one record, slowly ----------------------------------------------------------------------------------------------


class _Duplicates(dict[str, Any]):
    """A JSON object that remembers which keys came twice."""

    twice: tuple[str, ...] = ()


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = _Duplicates(pairs)
    if len(record) < len(pairs):
        record.twice = tuple(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
    return record


def parse_line(raw: bytes) -> tuple[dict[str, Any] | None, list[tuple[str, str]]]:
    """The object on a line, or None, and what is wrong with it as JSON: pairs of key and message."""
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_pairs)
    except RecursionError:
        return None, [("", "is nested too deeply for a telemetry record")]
    except ValueError as error:
        return None, [("", f"is not JSON: {error}")]
    if not isinstance(value, _Duplicates):
        return None, [("", f"is a JSON {_json_name(value)}, expected one object per line")]
    return value, [(key, "appears twice in one record") for key in value.twice]


def _json_name(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _check_number(item: Field, value: Any) -> str:
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


def check_value(item: Field, value: Any, version: float) -> str:
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


def check_record(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """All problems of one record by itself, as pairs of field and message."""
    version = record.get("telemetry_version")
    if isinstance(version, bool) or not isinstance(version, int | float) or version not in VERSIONS:
        found = "missing" if "telemetry_version" not in record else f"is {_shown(version)}"
        return [("telemetry_version", f"{found}, expected one of the numbers {', '.join(f'{v:g}' for v in VERSIONS)}")]
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


def check_sums(histogram: Any, reasons: Any, conflicts: Any) -> list[tuple[str, str]]:
    problems = []
    if histogram:
        total = math.fsum(histogram)
        if total and abs(total - 1.0) > SHARES_TOLERANCE:
            problems.append(("rivalry_histogram", f"sums to {total:g}, expected shares that sum to 1"))
    if reasons is not None and reasons is not UNSET and conflicts is not None:
        counted = sum(reasons.values())
        if counted != conflicts:
            problems.append(("conflict_reasons", f"count {counted:g} conflicts, queue_conflict_events is {conflicts:g}"))
    return problems
