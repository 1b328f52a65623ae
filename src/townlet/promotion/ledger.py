"""The ledger: append-only NDJSON in which every entry carries the hash of the one before.

Beside it, `<ledger>.head` holds the number and hash of the last entry, so that a cut tail is noticed too. The head is written
after the entry: a ledger one entry ahead of its head was interrupted between the two; the next writer puts that right
(`catch_up`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path

from townlet.dto.promotion import LEDGER_VERSION, LedgerEntry
from townlet.errors import DamagedFileError
from townlet.files import AppendLog, read_bytes, read_json, write_json
from townlet.sealed import canonical, seal_of

GENESIS = "0" * 64
LEDGER_LIMIT = 256 << 20
FIRST_CHAMPION = "scripted"


class LedgerError(DamagedFileError):
    """A ledger that does not hold together: nothing may be decided on it."""


def entry_hash(fields: dict[str, object]) -> str:
    return seal_of({key: value for key, value in fields.items() if key != "hash"})


def read_ledger(path: Path) -> tuple[LedgerEntry, ...]:
    """All entries, after checking every hash, the chain and the head; an absent ledger is an empty one."""
    head = _read_head(path)
    if not path.exists():
        if head is not None:
            raise LedgerError(f"{path} is missing, but {_head_path(path).name} knows {head[0] + 1} entries; restore the ledger")
        return ()
    lines = read_bytes(path, limit=LEDGER_LIMIT).split(b"\n")
    entries: list[LedgerEntry] = []
    previous = GENESIS
    for number, line in enumerate(lines[:-1]):  # what follows the last newline is a torn tail: never committed
        entry = _parse(path, number, line)
        if entry.number != number or entry.previous != previous:
            raise LedgerError(
                f"{path}, line {number + 1}: entry {entry.number} does not follow the entry before it; "
                "a line was removed, added or moved: restore the ledger"
            )
        entries.append(entry)
        previous = entry.hash
    _check_head(path, entries, head)
    return tuple(entries)


def append(path: Path, fields: dict[str, object]) -> LedgerEntry:
    """Add one entry (its number, time and hashes are filled in here) after checking those before it."""
    entries = read_ledger(path)
    complete = {
        "schema_version": LEDGER_VERSION,
        "number": len(entries),
        "previous": entries[-1].hash if entries else GENESIS,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        **fields,
    }
    complete["hash"] = entry_hash(complete)
    entry = LedgerEntry.model_validate_json(json.dumps(complete))
    with AppendLog(path) as log:
        log.write(canonical(complete), sync=True)
    write_json(_head_path(path), {"number": entry.number, "hash": entry.hash})
    return entry


def catch_up(path: Path) -> None:
    """Let the head follow a ledger that was interrupted between the two; for the one who holds the lock."""
    entries, head = read_ledger(path), _read_head(path)
    if entries and (head is None or head[0] < entries[-1].number):
        write_json(_head_path(path), {"number": entries[-1].number, "hash": entries[-1].hash})


def champion(entries: Sequence[LedgerEntry]) -> str:
    """Weight hash of the release; before the first promotion the scripted townspeople hold the place."""
    return next((entry.candidate for entry in reversed(entries) if entry.kind != "window"), FIRST_CHAMPION)


def champions(entries: Sequence[LedgerEntry]) -> list[str]:
    """Every champion in order, the first one included."""
    return [FIRST_CHAMPION, *(entry.candidate for entry in entries if entry.kind != "window")]


def passes_in_a_row(entries: Sequence[LedgerEntry], candidate: str, gates: str, towns: Collection[str]) -> int:
    """How many windows in a row this candidate has passed, under the same gates, against the same champion and in the same towns
    (by config hash)."""
    against = champion(entries)
    passed = 0
    for entry in reversed(entries):
        if entry.kind != "window":
            break
        if entry.candidate != candidate:
            continue
        judged = entry.decision
        found = entry.evidence
        same = entry.champion == against and found is not None and found.gates == gates and set(found.configs) == set(towns)
        if judged is None or judged.window != "pass" or not same:
            break
        passed += 1
    return passed


def _parse(path: Path, number: int, line: bytes) -> LedgerEntry:
    try:
        entry = LedgerEntry.model_validate_json(line)
        fields = json.loads(line)
    except ValueError as error:
        raise LedgerError(
            f"{path}, line {number + 1} is not a ledger entry of version {LEDGER_VERSION}; restore the ledger, or start a new one"
        ) from error
    if entry_hash(fields) != entry.hash:
        raise LedgerError(f"{path}, line {number + 1}: its content does not match its hash; it was changed: restore the ledger")
    return entry


def _check_head(path: Path, entries: Sequence[LedgerEntry], head: tuple[int, str] | None) -> None:
    number, known = head if head is not None else (-1, GENESIS)
    if not number <= len(entries) - 1 <= number + 1:
        raise LedgerError(
            f"{path} has {len(entries)} entries, {_head_path(path).name} knows {number + 1}; "
            "entries were cut or added: restore the ledger"
        )
    if number >= 0 and entries[number].hash != known:
        raise LedgerError(f"{path}: entry {number} is not the one {_head_path(path).name} knows; restore the ledger")


def _head_path(path: Path) -> Path:
    return path.with_name(path.name + ".head")


def _read_head(path: Path) -> tuple[int, str] | None:
    head = _head_path(path)
    if not head.exists():
        return None
    try:
        fields = read_json(head, limit=4096)
    except DamagedFileError as error:
        raise LedgerError(str(error)) from error
    match fields:
        case {"number": int(number), "hash": str(known)} if number >= 0:
            return number, known
    raise LedgerError(f"{head} does not name the last entry by number and hash; restore it together with the ledger")
