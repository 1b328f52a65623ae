"""Arrays in a `.npz` file: equal arrays give equal bytes, and what is read allocates no more than it may and never unpickles.

Whatever such a file claims about names, sizes and places is checked before anything is built from it.
"""

from __future__ import annotations

import ast
import io
import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from townlet.errors import DamagedFileError, TownletError
from townlet.files import open_file, read_bytes
from townlet.types import Array

MEMBERS = 1024
HEADER = 1 << 16  # bytes of an array's header
_MEMBER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}\.npy")
_HEADER = re.compile(r"[\w\s'\"\[\](){},:<>|=.]*", re.ASCII)
_MAGIC = b"\x93NUMPY"
_ZIP_EPOCH = (0, (1 << 5) | 1)  # time and date of every member: the first of January 1980
_ZIP_LIMIT = 1 << 31  # beyond it an archive needs another form


def npz_bytes(arrays: Mapping[str, ArrayLike], *, compress: bool = False) -> bytes:
    """Arrays as the bytes of a .npz file; equal arrays give equal bytes.

    The archive is put together here, byte for byte as `zipfile` would: every array is read once for its checksum and copied once.
    """
    parts: list[bytes | memoryview] = []
    directory: list[bytes] = []
    place = 0
    for name, value in arrays.items():
        array = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
        file_name = (name + ".npy").encode()
        if array.dtype.hasobject or not _MEMBER.fullmatch(name + ".npy"):
            raise ValueError(f"the array {name!r} ({array.dtype}) cannot be stored")
        head = _npy_header(array.dtype, array.shape)
        body = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
        size, checksum = len(head) + len(body), zlib.crc32(body, zlib.crc32(head))
        if size >= _ZIP_LIMIT:
            raise ValueError(f"the array {name!r} takes {size} bytes, expected less than {_ZIP_LIMIT}")
        content: list[bytes | memoryview] = [head, body]
        packed = size
        if compress:
            deflate = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -15)
            content = [deflate.compress(head), deflate.compress(body), deflate.flush()]
            packed = sum(map(len, content))
        about = struct.pack("<5H3L2H", 20, 0, 8 * compress, *_ZIP_EPOCH, checksum, packed, size, len(file_name), 0)
        parts += [b"PK\3\4", about, file_name, *content]
        directory += [b"PK\1\2", struct.pack("<2B", 20, 3), about, struct.pack("<3H2L", 0, 0, 0, 0o644 << 16, place), file_name]
        place += 30 + len(file_name) + packed
    listed = b"".join(directory)
    if place + len(listed) >= _ZIP_LIMIT:
        raise ValueError(f"the arrays take {place} bytes, expected less than {_ZIP_LIMIT}")
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, len(arrays), len(arrays), len(listed), place, 0)
    return b"".join((*parts, listed, end))


@lru_cache(maxsize=1024)
def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    told = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, told)
    return stream.getvalue()


def check_npz(path: str | Path, *, error: type[TownletError] = DamagedFileError) -> None:
    """Begins and ends as an archive does: what is only large is not read."""
    with open_file(Path(path), error) as stream:
        begin = stream.read(4)
        stream.seek(-min(22, os.fstat(stream.fileno()).st_size), os.SEEK_END)
        if begin not in (b"PK\3\4", b"PK\5\6") or stream.read(4) != b"PK\5\6":
            raise error(f"{path} is not a sound .npz file: it does not begin and end as one; make it again")


def read_npz(
    source: str | Path | bytes, *, limit: int, error: type[TownletError] = DamagedFileError, name: str | None = None
) -> dict[str, Array]:
    """The arrays of a .npz file, whose members together may take at most `limit` bytes."""
    if not isinstance(source, bytes):
        check_npz(source, error=error)
    raw = source if isinstance(source, bytes) else read_bytes(source, limit=limit, error=error)
    label = name or ("the archive" if isinstance(source, bytes) else str(source))
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            members = _checked_members(archive, raw, limit)
            return {member.filename[:-4]: _array(member.filename, _unpacked(archive, member, raw)) for member in members}
    except (
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        EOFError,
        OSError,
        ValueError,
        NotImplementedError,
        RuntimeError,
    ) as reason:
        raise error(f"{label} is not a sound .npz file: {reason}; make it again") from None


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, raw: bytes) -> memoryview | bytes:
    """As many bytes as the directory says and not one more: `ZipFile.read` unfolds everything before it cuts."""
    if member.compress_type == zipfile.ZIP_DEFLATED:
        with archive.open(member) as stream:
            return stream.read(member.file_size)
    if member.compress_size != member.file_size:
        raise ValueError(f"the member {member.filename} has two sizes")
    name_size, extra_size = struct.unpack_from("<HH", raw, member.header_offset + 26)
    start = member.header_offset + 30 + name_size + extra_size
    data = memoryview(raw)[start : start + member.file_size]
    if zlib.crc32(data) != member.CRC:
        raise ValueError(f"the checksum of {member.filename} is wrong")
    return data


def _checked_members(archive: zipfile.ZipFile, raw: bytes, limit: int) -> list[zipfile.ZipInfo]:
    """Members in file order, after every lie about names, sizes and places has been looked for."""
    members = sorted(archive.infolist(), key=lambda member: member.header_offset)
    if len(members) > MEMBERS:
        raise ValueError(f"{len(members)} members, expected at most {MEMBERS}")
    if archive.comment or raw[-22:-18] != b"PK\x05\x06":
        raise ValueError("bytes follow the archive")
    names = [member.filename for member in members]
    for name in names:
        if not _MEMBER.fullmatch(name):
            raise ValueError(f"the member {name!r:.80} is not an array's name")
        if names.count(name) > 1:
            raise ValueError(f"the member {name!r} appears twice")
    total = sum(member.file_size for member in members)
    if total > limit:
        raise ValueError(f"its members take {total} bytes, expected at most {limit}")
    end = 0
    for member in members:
        if member.flag_bits & ~0x080A or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"the member {member.filename} is encrypted or packed in an unknown way")
        if member.header_offset != end:
            raise ValueError(f"the member {member.filename} begins at byte {member.header_offset}, expected {end}")
        head = raw[end : end + 30]
        if len(head) < 30:
            raise ValueError("it is cut short")
        name_size, extra_size = struct.unpack("<HH", head[26:30])
        if head[:4] != b"PK\3\4" or raw[end + 30 : end + 30 + name_size] != member.filename.encode():
            raise ValueError(f"the member {member.filename} has another name in its own header")
        end += 30 + name_size + extra_size + member.compress_size
        if member.flag_bits & 0x08:  # sizes follow the data
            signed = raw[end : end + 4] == b"PK\x07\x08"
            end += 12 if not signed else 16 if member.file_size <= 0xFFFFFFFF else 24
    if end != archive.start_dir:
        raise ValueError(f"{archive.start_dir - end} bytes are between its members and its directory")
    return members


def _array(name: str, data: bytes | memoryview) -> Array:
    """One array from the bytes of a .npy member."""
    if data[:6] != _MAGIC or data[6:8] not in (b"\1\0", b"\2\0", b"\3\0"):
        raise ValueError(f"{name} is not an array")
    wide = data[6] > 1
    start = 12 if wide else 10
    if len(data) < start:
        raise ValueError(f"{name} is cut short")
    size = struct.unpack("<I" if wide else "<H", data[8:start])[0]
    if size > HEADER or start + size > len(data):
        raise ValueError(f"the header of {name} takes {size} bytes, expected at most {min(HEADER, len(data) - start)}")
    dtype, fortran, shape = _header(name, bytes(data[start : start + size]))
    body = memoryview(data)[start + size :]
    wanted = math.prod(shape) * dtype.itemsize
    if len(body) != wanted:
        raise ValueError(f"{name} holds {len(body)} bytes, its header says {wanted}")
    flat = np.frombuffer(body, dtype=dtype) if wanted else np.empty(0, dtype)
    for field in _leaves(flat):
        if field.dtype.kind == "b" and field.size and np.ascontiguousarray(field).view(np.uint8).max() > 1:
            raise ValueError(f"{name} holds flags that are neither 0 nor 1")
    return flat.reshape(shape, order="F" if fortran else "C").copy()


@lru_cache(maxsize=1024)
def _header(name: str, raw: bytes) -> tuple[np.dtype[Any], bool, tuple[int, ...]]:
    text = raw.decode("utf-8")
    depth = deepest = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        deepest = max(deepest, depth)
    if not _HEADER.fullmatch(text) or deepest > 8:
        raise ValueError(f"the header of {name} is not one of an array")
    try:
        header = ast.literal_eval(text.strip())
        if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
            raise ValueError(f"the header of {name} is not one of an array")
        dtype = np.lib.format.descr_to_dtype(header["descr"])
    except (SyntaxError, TypeError, KeyError, IndexError, MemoryError, RecursionError, AttributeError, OverflowError) as reason:
        raise ValueError(f"the header of {name} cannot be read ({type(reason).__name__})") from None
    fortran, shape = header["fortran_order"], header["shape"]
    if not isinstance(fortran, bool) or not isinstance(shape, tuple) or len(shape) > 16:
        raise ValueError(f"the header of {name} is not one of an array")
    if not all(type(axis) is int and 0 <= axis < 1 << 40 for axis in shape):
        raise ValueError(f"the shape {shape} of {name} is not one of an array")
    if dtype.itemsize == 0 or dtype.subdtype is not None or not all(kind in "biufSU" for kind in _kinds(dtype)):
        raise ValueError(f"{name} has the type {dtype!s:.80}, expected numbers, flags or text")
    return dtype, fortran, shape


def _kinds(dtype: np.dtype[Any]) -> list[str]:
    """Kinds of all plain parts of a type; an object anywhere shows as O."""
    if dtype.subdtype is not None:
        return _kinds(dtype.subdtype[0])
    if dtype.names is not None:
        return [kind for name in dtype.names for kind in _kinds(dtype[name])] or ["V"]
    return [dtype.kind]


def _leaves(array: Array) -> list[Array]:
    """Views of all plain fields."""
    if array.dtype.names is None:
        return [array]
    return [leaf for name in array.dtype.names for leaf in _leaves(array[name])]
