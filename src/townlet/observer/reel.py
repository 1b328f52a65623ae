"""A reel: 64 ticks of a town as columns, in a few bytes a tick.

`TWR1`, the length of a JSON header (u4, little endian), the header, one zlib stream. The stream holds the groups of
`COLUMNS` one after the other, of each the byte planes of its columns: the low byte first, rows × width bytes, every row XORed
with the row before it. The first row is plain, so a reel is read without the one before.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from townlet.errors import TakeError
from townlet.types import Array, Record
from townlet.world.film import OBJECT_COLUMNS, RESIDENT_COLUMNS, TOWN_COLUMNS, FilmColumn, need_columns

MAGIC = b"TWR1"
VERSION = 1
REEL_TICKS = 64
LIMIT = 256 << 20  # bytes of a reel, unpacked
HEADER_LIMIT = 4096


Columns = Mapping[str, tuple[FilmColumn, ...]]

EVENT_COLUMNS = (
    FilmColumn("tick", 4, True),
    FilmColumn("kind", 1),
    FilmColumn("actor", 4, True),
    FilmColumn("actor_life", 4, True),
    FilmColumn("rival", 4, True),
    FilmColumn("rival_life", 4, True),
    FilmColumn("object", 4, True),
    FilmColumn("reason", 1, True),
    FilmColumn("waited", 4, True),
    FilmColumn("intensity", 4, True, 0.001),
    FilmColumn("amount", 4, True, 0.001),
)
DECISION_COLUMNS = (
    FilmColumn("action", 1),  # NO_DECISION where nobody decides
    FilmColumn("reward", 2, True, 0.001),  # of the decision: over the ticks until the next
    FilmColumn("wallet", 3, False, 0.01),
)
VALUE = FilmColumn("value", 2, True, 0.01)
NO_DECISION = 255


def columns(needs: Sequence[str], *, values: bool) -> Columns:
    """The groups of a reel, in order. `values`: the policy has a critic."""
    return {
        "residents": (*RESIDENT_COLUMNS, *need_columns(needs)),
        "objects": OBJECT_COLUMNS,
        "town": TOWN_COLUMNS,
        "events": EVENT_COLUMNS,
        "decisions": (*DECISION_COLUMNS, VALUE) if values else DECISION_COLUMNS,
        "decided": (FilmColumn("tick", 4, True),),  # of every row of `decisions`
        "lives": (FilmColumn("life", 4, True),),  # who is in a slot at the first tick: 0 a founder, k newcomer_k
    }


class Reel(NamedTuple):
    take: str
    first: int  # tick
    ticks: int
    planes: Mapping[str, Array]  # group → (bytes of all its columns, rows, width) u1

    def column(self, table: Columns, group: str, name: str) -> Array:
        """The values of a column.  # (rows, width)"""
        at = 0
        for one in table[group]:
            if one.name == name:
                return numbers(self.planes[group][at : at + one.bytes], one)
            at += one.bytes
        raise KeyError(name)


def planes(values: Array, column: FilmColumn) -> Array:
    """Whole numbers (rows, width) as byte planes, the low byte first.  # (bytes, rows, width) u1"""
    wide = np.ascontiguousarray(values, dtype="<i8")[..., None].view(np.uint8)
    return np.moveaxis(wide[..., : column.bytes], -1, 0)


def whole(values: Array, column: FilmColumn) -> Array:
    """Values as whole numbers of the column's scale, within what its bytes hold."""
    bits = 8 * column.bytes
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if column.signed else (0, (1 << bits) - 1)
    return np.clip(np.rint(np.asarray(values, np.float64) / column.scale), low, high).astype(np.int64)


def numbers(parts: Array, column: FilmColumn) -> Array:
    """Byte planes (bytes, rows, width) as values."""
    total = np.zeros(parts.shape[1:], np.int64)
    for k in range(column.bytes):
        total |= parts[k].astype(np.int64) << (8 * k)
    if column.signed:
        total -= (total >> (8 * column.bytes - 1)) << (8 * column.bytes)
    return total if column.scale == 1.0 else total * column.scale


def pack(reel: Reel) -> bytes:
    parts, shapes = [], {}
    for group, array in reel.planes.items():
        shapes[group] = list(array.shape)
        changed = array.copy()
        changed[:, 1:] ^= array[:, :-1]
        parts.append(changed.tobytes())
    body = b"".join(parts)
    header = {
        "v": VERSION,
        "take": reel.take,
        "first": reel.first,
        "ticks": reel.ticks,
        "groups": shapes,
    }
    told = _encoded({**header, "crc": zlib.crc32(body, zlib.crc32(_encoded(header)))})
    return MAGIC + len(told).to_bytes(4, "little") + told + zlib.compress(body, 6)


def unpack(data: bytes, table: Columns) -> Reel:
    """Read a reel again; anything that is not one is a TakeError."""
    size = int.from_bytes(data[4:8], "little")
    if data[:4] != MAGIC or not 2 <= size <= min(HEADER_LIMIT, len(data) - 8):
        raise TakeError("this is not a reel: it does not begin with TWR1 and a header; shoot it again")
    header = _header(data[8 : 8 + size], table)
    checksum, shapes = header.pop("crc"), header["groups"]
    sizes = {group: shape[0] * shape[1] * shape[2] for group, shape in shapes.items()}
    total = sum(sizes.values())
    if total > LIMIT:
        raise TakeError(f"the reel would unpack to {total} bytes, at most {LIMIT} are read; shoot it again")
    inflate = zlib.decompressobj()
    try:
        body = inflate.decompress(data[8 + size :], total + 1)
    except zlib.error as error:
        raise TakeError(f"the reel is damaged ({error}); shoot it again") from None
    if len(body) != total or not inflate.eof or inflate.unused_data or zlib.crc32(body, zlib.crc32(_encoded(header))) != checksum:
        raise TakeError("the reel is damaged: its contents do not match its checksum; shoot it again")
    found, at = {}, 0
    for group, shape in shapes.items():
        changed = np.frombuffer(body, np.uint8, sizes[group], at).reshape(shape)
        found[group] = np.bitwise_xor.accumulate(changed, axis=1) if shape[1] else changed
        at += sizes[group]
    return Reel(header["take"], header["first"], header["ticks"], found)


def _encoded(header: Mapping[str, object]) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode()


def _header(raw: bytes, table: Columns) -> Record:
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError):
        raise TakeError("the header of the reel is not JSON; shoot it again") from None
    whole_numbers = ("first", "ticks", "crc")
    if (
        not isinstance(header, dict)
        or header.get("v") != VERSION
        or not isinstance(header.get("take"), str)
        or any(type(header.get(name)) is not int or header[name] < 0 for name in whole_numbers)
        or not isinstance(header.get("groups"), dict)
        or list(header["groups"]) != list(table)
    ):
        raise TakeError(f"the header of the reel is not one of version {VERSION}; shoot it again")
    for group, shape in header["groups"].items():
        width = sum(one.bytes for one in table[group])
        fits = isinstance(shape, list) and len(shape) == 3 and all(type(size) is int and size >= 0 for size in shape)
        if not fits or shape[0] != width:
            raise TakeError(
                f"the group {group} of the reel has the shape {shape!r}, expected [{width}, rows, width]; shoot it again"
            )
    return header
