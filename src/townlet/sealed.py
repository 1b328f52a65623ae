"""The typed door for JSON that is read back: a seal over its content, and a model that knows every field.

The last key of the object, `seal`, is the SHA-256 of the rest in canonical form, so that a flipped bit is named with its file.
What was written before there were seals is read without one, by the same model. A line of a log is sealed by itself: by the
hash of its own bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from townlet import files
from townlet.errors import DamagedFileError, TownletError, first_problem

SEAL = "seal"
BROKEN_SEAL = "is not what was written (its seal is broken)"
LIMIT = 64 << 20
Model = TypeVar("Model", bound=BaseModel)


def canonical(fields: Mapping[str, object]) -> bytes:
    """An object in one form, whatever the order of its keys: what seals, the ledger and ids of takes are hashes of."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def seal_of(fields: Mapping[str, object]) -> str:
    return files.sha256_bytes(canonical(fields))


def write_sealed(path: str | Path, fields: Mapping[str, object]) -> None:
    """As `files.write_json`, with the seal as the last key."""
    files.write_json(path, {**fields, SEAL: seal_of(fields)})


def read_sealed(path: str | Path, model: type[Model], *, remedy: str, error: type[TownletError] = DamagedFileError) -> Model:
    """The object in a file. Whatever else stands there is one sentence with the path, what is wrong, and the remedy."""
    return parse_sealed(files.read_bytes(path, limit=LIMIT, error=error), path, model, remedy=remedy, error=error)


def parse_sealed(
    data: bytes, path: str | Path, model: type[Model], *, remedy: str, error: type[TownletError] = DamagedFileError
) -> Model:
    found = files.parse_json(data, str(path), error=error)
    if not isinstance(found, dict):
        raise error(f"{path} holds a {type(found).__name__}, expected a JSON object; {remedy}")
    try:
        if SEAL in found and found.pop(SEAL) != seal_of(found):
            raise error(f"{path} {BROKEN_SEAL}; {remedy}")
        return model.model_validate_json(json.dumps(found), strict=True)
    except ValidationError as reason:
        raise error(f"{path} cannot be used ({first_problem(reason)}); {remedy}") from None
    except ValueError:  # of the seal
        raise error(f"{path} holds a number that is not finite; {remedy}") from None
    except RecursionError:
        raise error(f"{path} is nested too deeply; {remedy}") from None


# --- lines -----------------------------------------------------------------------------------------------------------
_SEAL = b',"seal":"'
_SEAL_DIGITS = 32
_SEALED = len(_SEAL) + _SEAL_DIGITS + 2


def line_seal(line: bytes) -> str:
    """The seal of a JSON object without its last brace."""
    return files.sha256_bytes(line)[:_SEAL_DIGITS]


def sealed_line(line: bytes) -> bytes:
    """A JSON object with the hash of all that stands before it as its last field, so that every line can be checked by itself."""
    return line[:-1] + _SEAL + line_seal(line[:-1]).encode() + b'"}'


def seal_holds(raw: bytes) -> bool | None:
    """None: the line carries no seal; it was written by an older version or another program."""
    if raw[-_SEALED : -_SEALED + len(_SEAL)] != _SEAL:
        return None
    return raw[-_SEAL_DIGITS - 2 : -2] == line_seal(raw[:-_SEALED]).encode()


def unsealed(raw: bytes) -> bytes | None:
    """The object as it was before it was sealed; None where the seal is broken."""
    holds = seal_holds(raw)
    return raw if holds is None else raw[:-_SEALED] + b"}" if holds else None
