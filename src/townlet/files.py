"""The only module that writes files.

A file is written beside its place, flushed, synced, and renamed into it; a folder is filled as `NAME.partial`, synced once, and
renamed as a whole; a log grows by whole lines. So a crash or a full disk leaves the old or the new, never half. Reading is in
this module too (its code is `_readers`): every reader bounds what it allocates, never unpickles, and raises one type of error.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from townlet._readers import (
    SUMS,
    check_sums,
    leads_inside,
    npz_bytes,
    parse_json,
    read_bytes,
    read_json,
    read_npz,
    read_sums,
    safe_join,
    sha256_bytes,
    sha256_file,
)
from townlet.errors import DamagedFileError, StorageError, UsageError

__all__ = [
    "SUMS",
    "AppendLog",
    "FolderLock",
    "check_sums",
    "filling",
    "json_bytes",
    "leads_inside",
    "make_folder",
    "move",
    "npz_bytes",
    "npz_file",
    "parse_json",
    "partial_folder",
    "publish_folder",
    "read_bytes",
    "read_json",
    "read_npz",
    "read_sums",
    "remove",
    "safe_join",
    "sha256_bytes",
    "sha256_file",
    "write_bytes",
    "write_json",
    "write_sums",
    "write_text",
]

PARTIAL = ".partial"
LOCK = ".lock"


def _exchange(left: str, right: str) -> None:
    """Swap two paths in one step (Linux); OSError where the system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if rename(here, os.fsencode(left), here, os.fsencode(right), swap) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@dataclass
class Disk:
    """Every operation this module asks of the system. Tests replace single ones by some that fail."""

    open: Callable[[str, int], int] = lambda path, flags: os.open(path, flags | os.O_CLOEXEC, 0o666)
    write: Callable[[int, Any], int] = os.write
    fsync: Callable[[int], None] = os.fsync
    sync: Callable[[], None] = os.sync
    close: Callable[[int], None] = os.close
    truncate: Callable[[int, int], None] = os.ftruncate
    replace: Callable[[str, str], None] = os.replace
    rename: Callable[[str, str], None] = os.rename
    exchange: Callable[[str, str], None] = _exchange
    unlink: Callable[[str], None] = os.unlink
    mkdir: Callable[[str], None] = os.mkdir
    rmtree: Callable[[str], None] = shutil.rmtree


disk = Disk()


def _refused(path: Path | str, reason: OSError) -> StorageError:
    what = reason.strerror or str(reason)
    remedy = (
        "free some space and run again" if reason.errno in (errno.ENOSPC, errno.EDQUOT) else "check the path and its permissions"
    )
    return StorageError(f"{path} cannot be written: {what}; {remedy}")


# --- files -----------------------------------------------------------------------------------------------------------


def write_bytes(path: str | Path, data: bytes | bytearray | memoryview, *, sync: bool = True) -> None:
    """Put a whole file in its place. Without `sync` it is filled where it stands: for folders that are published later."""
    target = os.fspath(path)
    folder, name = os.path.split(target)
    beside = os.path.join(folder, f".{name}.{os.getpid()}{PARTIAL}") if sync else target
    if sync or not os.path.isdir(folder or "."):
        make_folder(folder or ".")
    try:
        try:
            _fill(beside, data, sync)
            if sync:
                disk.replace(beside, target)
        except OSError:
            with contextlib.suppress(OSError):
                disk.unlink(beside)
            raise
        if sync:
            _sync_folder(folder or ".")
    except OSError as reason:
        raise _refused(path, reason) from None


def write_text(path: str | Path, text: str, *, sync: bool = True) -> None:
    write_bytes(path, text.encode(), sync=sync)


def write_json(path: str | Path, value: Any, *, sync: bool = True) -> None:
    """Readable JSON in the order given; NaN and infinity are errors of the caller."""
    write_bytes(path, json_bytes(value, indent=2), sync=sync)


def json_bytes(value: Any, *, indent: int) -> bytes:
    """As `json.dumps` with an indent, which leaves the fast encoder of `json` aside; here the lines are broken afterwards."""
    flat = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    return msgspec.json.format(flat, indent=indent) + b"\n"


def npz_file(path: str | Path, arrays: Mapping[str, Any], *, compress: bool = False, sync: bool = True) -> None:
    """Arrays as a deterministic .npz file."""
    write_bytes(path, npz_bytes(arrays, compress=compress), sync=sync)


def _fill(path: str, data: bytes | bytearray | memoryview, sync: bool) -> None:
    handle = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW)
    try:
        rest = memoryview(data).cast("B")
        while len(rest):
            written = disk.write(handle, rest)
            if written == 0:
                raise OSError(errno.EIO, "nothing was written")
            rest = rest[written:]
        if sync:
            disk.fsync(handle)
    finally:
        disk.close(handle)


def _sync_folder(folder: str | Path) -> None:
    handle = disk.open(str(folder), os.O_RDONLY)
    try:
        disk.fsync(handle)
    finally:
        disk.close(handle)


def make_folder(folder: str | Path) -> Path:
    """The folder, made with all above it when it is not there."""
    folder = Path(folder)
    missing = list(itertools.takewhile(lambda step: not step.is_dir(), (folder, *folder.parents)))
    try:
        for step in reversed(missing):
            with contextlib.suppress(FileExistsError):
                disk.mkdir(str(step))
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except OSError as reason:
        raise _refused(folder, reason) from None
    return folder


def move(source: str | Path, target: str | Path) -> None:
    """Rename a file or folder; a file in the way is replaced."""
    try:
        disk.replace(str(source), str(target))
        _sync_folder(Path(target).parent)
    except OSError as reason:
        raise _refused(target, reason) from None


def remove(path: str | Path) -> None:
    """Delete a file or a whole folder; nothing there is fine."""
    path = Path(path)
    try:
        if path.is_dir() and not path.is_symlink():
            disk.rmtree(str(path))
        elif os.path.lexists(path):
            disk.unlink(str(path))
    except OSError as reason:
        raise _refused(path, reason) from None


# --- folders ---------------------------------------------------------------------------------------------------------


def partial_folder(final: str | Path) -> Path:
    """An empty `NAME.partial` to be filled and then published as NAME; what an earlier try left in it is removed."""
    final = Path(final)
    partial = final.with_name(final.name + PARTIAL)
    remove(partial)
    return make_folder(partial)


@contextlib.contextmanager
def filling(final: str | Path) -> Iterator[Path]:
    """A partial folder for the block; when the block fails it is removed, so that a full disk has its room back."""
    partial = partial_folder(final)
    try:
        yield partial
    except BaseException:
        with contextlib.suppress(StorageError):
            remove(partial)
        raise


def publish_folder(partial: str | Path, final: str | Path, *, overwrite: bool = False) -> Path | None:
    """Sync once, then rename the whole folder. `overwrite` moves what is there aside, as NAME.old-1, NAME.old-2, …: that path."""
    partial, final = Path(partial), Path(final)
    there = os.path.lexists(final)
    aside: Path | None = None
    if there and not overwrite:
        raise UsageError(f"{final} already exists; choose another place, or allow overwriting to move it aside")
    try:
        disk.sync()
        if there:
            aside = next(
                name for n in itertools.count(1) if not os.path.lexists(name := final.with_name(f"{final.name}.old-{n}"))
            )
            _swap(partial, final, aside)
        else:
            disk.rename(str(partial), str(final))
        _sync_folder(final.parent)
    except OSError as reason:
        raise _refused(final, reason) from None
    return aside


def _swap(partial: Path, final: Path, aside: Path) -> None:
    try:
        disk.exchange(str(partial), str(final))
    except OSError as reason:
        if reason.errno not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM):
            raise
    else:
        disk.rename(str(partial), str(aside))
        return
    disk.rename(str(final), str(aside))
    try:
        disk.rename(str(partial), str(final))
    except OSError:
        disk.rename(str(aside), str(final))
        raise


def write_sums(folder: str | Path, *, known: Mapping[str, str] | None = None, sync: bool = True) -> None:
    """Hashes of every file in the folder, in the format of `sha256sum`; written last, it makes the folder whole.

    `known` are hashes by name that were taken when the files were written, so that they need not be read again.
    """
    folder, known = Path(folder), known or {}
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    names = [name for name in names if name != SUMS and not any(part.startswith(".") for part in name.split("/"))]
    write_text(folder / SUMS, "".join(f"{known.get(name) or sha256_file(folder / name)}  {name}\n" for name in names), sync=sync)


def _close(handle: int, path: Path) -> None:
    try:
        disk.close(handle)
    except OSError as reason:
        raise _refused(path, reason) from None


# --- logs and locks --------------------------------------------------------------------------------------------------


class AppendLog:
    """A file that grows by whole lines, one `write` each. A torn last line of an earlier crash is cut off on opening (`torn`)."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.torn = b""
        make_folder(self.path.parent)
        try:
            self._handle = disk.open(str(self.path), os.O_RDWR | os.O_CREAT | os.O_APPEND)
        except OSError as reason:
            raise _refused(self.path, reason) from None
        try:
            self.position = self._repair()
        except OSError as reason:
            disk.close(self._handle)
            raise _refused(self.path, reason) from None

    def _repair(self) -> int:
        """Bytes of whole lines; what follows the last newline is cut off."""
        size = start = os.fstat(self._handle).st_size
        tail = b""
        while start > 0 and b"\n" not in tail:
            step = min(start, 1 << 16)
            start -= step
            tail = os.pread(self._handle, step, start) + tail
        whole = start + tail.rfind(b"\n") + 1
        if whole < size:
            self.torn = tail[whole - start :]
            disk.truncate(self._handle, whole)
        return whole

    def write(self, line: str | bytes, *, sync: bool = False) -> None:
        """Append one line. When it cannot be written whole nothing of it stays."""
        data = (line.encode() if isinstance(line, str) else line).rstrip(b"\n") + b"\n"
        if b"\n" in data[:-1]:
            raise ValueError("a record is one line")
        try:
            written = disk.write(self._handle, data)
            if written < len(data):
                if os.fstat(self._handle).st_size == self.position + written:
                    disk.truncate(self._handle, self.position)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if sync:
                disk.fsync(self._handle)
        except OSError as reason:
            raise _refused(self.path, reason) from None
        self.position = os.lseek(self._handle, 0, os.SEEK_CUR)

    def sync(self) -> None:
        try:
            disk.fsync(self._handle)
        except OSError as reason:
            raise _refused(self.path, reason) from None

    def discard_after(self, position: int) -> int:
        """Move what follows a position into `NAME.discarded`; how many bytes that were."""
        size = os.fstat(self._handle).st_size
        if position > size:
            raise DamagedFileError(f"{self.path} has {size} bytes, expected at least {position}; lines that were kept are gone")
        if position < size:
            kept = AppendLog(self.path.with_name(self.path.name + ".discarded"))
            try:
                for line in os.pread(self._handle, size - position, position).splitlines():
                    kept.write(line)
                kept.sync()
                disk.truncate(self._handle, position)
            except OSError as reason:
                raise _refused(self.path, reason) from None
            finally:
                kept.close()
        self.position = position
        return size - position

    def close(self) -> None:
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            _close(handle, self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class FolderLock:
    """One writer per folder. The system itself frees the lock of a process that has died; a forked child does not hold it."""

    def __init__(self, folder: str | Path) -> None:
        from filelock import FileLock, Timeout  # 60 ms, which only who writes into a folder of others has to spend

        self.folder = make_folder(folder)
        self.path = self.folder / LOCK
        try:
            self._lock = FileLock(self.path, thread_local=False, fallback_to_soft=False, on_acquired=_sign)
            self._lock.acquire(blocking=False)
        except Timeout:
            owner = read_bytes(self.path, limit=32).decode("ascii", "replace").strip() or "unknown"
            raise UsageError(f"{self.folder} is in use by process {owner}; wait for it to end or choose another folder") from None
        except OSError as reason:
            raise _refused(self.path, reason) from None
        self._sweep()

    def _sweep(self) -> None:
        """Remove what a writer that was killed has left half written."""
        for path in self.folder.glob(f".*{PARTIAL}"):
            if path.name.removesuffix(PARTIAL).rpartition(".")[2].isdecimal():  # with the number of its process
                remove(path)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


def _sign(handle: int) -> None:
    """Write into a lock whose it is."""
    disk.truncate(handle, 0)
    disk.write(handle, b"%d\n" % os.getpid())
