"""A take: the recipe of one episode of a town. Same recipe, same town, bit for bit; so a take is small and can be sent.

Its id is the hash of its canonical JSON. What comes from outside goes through `parse_take`, which refuses what it does not know.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError

from townlet import files, sealed
from townlet.dto import FrozenStrict
from townlet.errors import TakeError, UsageError
from townlet.files import sha256_bytes
from townlet.sealed import BROKEN_SEAL, SEAL, line_seal, sealed_line
from townlet.sim.edits import LONGEST, parse_edit

VERSION: Literal[1] = 1
MOST_CHANGES = 10_000
MOST_TICKS = 1_000_000
FILE_LIMIT = 64 << 20
RECORDED = "recorded"
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16,64}$")]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class Change(FrozenStrict):
    at: int = Field(ge=0, le=MOST_TICKS)
    do: str = Field(min_length=1, max_length=LONGEST)


class Take(FrozenStrict):
    v: Literal[1] = VERSION
    town: str = Field(min_length=1, max_length=128)
    config: Digest
    seed: int = Field(ge=0, lt=1 << 63)
    start: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12}$")] | None = None  # id of a snapshot
    policy: Word
    changes: tuple[Change, ...] = Field((), max_length=MOST_CHANGES)
    decisions: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]*$", max_length=FILE_LIMIT)] | None = None
    digest: Digest | None = None
    ticks: int = Field(ge=1, le=MOST_TICKS)

    @property
    def id(self) -> str:
        return sha256_bytes(canonical(self))[:12]

    @property
    def seal(self) -> str:
        """Of a take in a file, which may say it: so that no other seed is played than was written."""
        return line_seal(canonical(self)[:-1])


def canonical(take: Take) -> bytes:
    """What is not set is not written, so that a new field in a later version changes no id."""
    told = {name: value for name, value in take.model_dump(mode="json").items() if value is not None and value != []}
    return sealed.canonical(told)


def parse_take(raw: bytes | dict[str, object], *, name: str = "the take") -> Take:
    """A take from outside: its JSON, every field and change checked; whether the town knows the names is found out later."""
    told = raw if isinstance(raw, dict) else files.parse_json(raw, name, error=TakeError)
    if not isinstance(told, dict):
        raise TakeError(f"{name} cannot be used: it is not a JSON object; expected a take of version {VERSION}")
    try:
        take = Take.model_validate_json(json.dumps({key: value for key, value in told.items() if key != SEAL}))
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "JSON"
        raise TakeError(f"{name} cannot be used: {where}: {first['msg']}; expected a take of version {VERSION}") from None
    if told.get(SEAL, take.seal) != take.seal:
        raise TakeError(f"{name} {BROKEN_SEAL}; copy it again")
    if (take.policy == RECORDED) != (take.decisions is not None):
        raise TakeError(f"{name} cannot be used: decisions and the policy {RECORDED!r} go together")
    if any(later.at < earlier.at for earlier, later in zip(take.changes, take.changes[1:])):
        raise TakeError(f"{name} cannot be used: its changes are not in the order of their ticks")
    for change in take.changes:
        try:
            parse_edit(change.do)
        except UsageError as error:
            raise TakeError(f"{name} cannot be used: {error}") from None
    return take


def read_take(path: Path) -> Take:
    return parse_take(files.read_bytes(path, limit=FILE_LIMIT, error=TakeError), name=str(path))


def take_bytes(take: Take) -> bytes:
    """A take as a file."""
    return sealed_line(canonical(take)) + b"\n"


def write_take(path: Path, take: Take) -> None:
    files.write_bytes(path, take_bytes(take))
