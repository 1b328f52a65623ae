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
import stat
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
    open_file,
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
    "open_file",
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
    "sweep",
    "write_bytes",
    "write_json",
    "write_sums",
    "write_text",
]

PARTIAL = ".partial"
LOCK = ".lock"
PUBLISHING = ".publishing"  # in a folder that took the place of another, until that one is moved aside (`keep`) or gone (`drop`)
CHUNK = 1 << 16
_writing: set[str] = set()  # unfinished files of this process


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
        if sync:
            sweep(folder or ".")
            _writing.add(beside)
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
    finally:
        _writing.discard(beside)


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
        _write_all(handle, memoryview(data).cast("B"))
        if sync:
            disk.fsync(handle)
    finally:
        disk.close(handle)


def _write_all(handle: int, rest: memoryview) -> None:
    while len(rest):
        written = disk.write(handle, rest)
        if written == 0:
            raise OSError(errno.EIO, "nothing was written")
        rest = rest[written:]


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


def sweep(folder: str | Path, *, owned: bool = False) -> None:
    """Remove what was left half written in a folder: files of processes that have died. Whoever is its only writer (`owned`)
    removes all of it, folders too."""
    folder = os.fspath(folder)
    if owned:
        for mark in Path(folder).glob(f"*/{PUBLISHING}"):
            _settle(mark.parent)
    for name in [name for name in os.listdir(folder) if name.endswith(PARTIAL)]:
        writer = name.removesuffix(PARTIAL).rpartition(".")[2]
        path = os.path.join(folder, name)
        dead = name.startswith(".") and writer.isdecimal() and path not in _writing and not _runs(int(writer))
        if owned:
            remove(path)
        elif dead:
            with contextlib.suppress(OSError):  # somebody else is quicker, or the folder is not ours
                disk.unlink(path)


def _runs(process: int) -> bool:
    """Another process has this number; what this one writes is known without asking."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # of another user
    return process != os.getpid()


def partial_folder(final: str | Path) -> Path:
    """An empty `NAME.partial` to be filled and then published as NAME; what an earlier try left behind is settled."""
    final = Path(final)
    partial = final.with_name(final.name + PARTIAL)
    _settle(final)
    remove(partial)
    return make_folder(partial)


@contextlib.contextmanager
def filling(final: str | Path) -> Iterator[Path]:
    """A partial folder for the block; when the block fails it is removed, so that a full disk has its room back."""
    partial = partial_folder(final)
    try:
        yield partial
    except BaseException:
        if not (Path(final) / PUBLISHING).exists():  # else it has taken its place, and what is partial now is the one before
            with contextlib.suppress(StorageError):
                remove(partial)
        raise


def publish_folder(partial: str | Path, final: str | Path, *, overwrite: bool = False, keep_old: bool = True) -> Path | None:
    """Sync once, then rename the whole folder. `overwrite` moves what is there aside, as NAME.old-1, NAME.old-2, …: that path;
    without `keep_old` it is removed."""
    partial, final = Path(partial), Path(final)
    there = os.path.lexists(final)
    if there and not overwrite:
        raise UsageError(f"{final} already exists; choose another place, or allow overwriting to move it aside")
    try:
        if there:
            _fill(str(partial / PUBLISHING), b"keep\n" if keep_old else b"drop\n", sync=False)
        disk.sync()
        if not there:
            disk.rename(str(partial), str(final))
        elif not _exchanged(partial, final):
            return _swap_in_steps(partial, final, keep_old)
        aside = _settle(final)
        _sync_folder(final.parent)
    except OSError as reason:
        raise _refused(final, reason) from None
    return aside


def _exchanged(partial: Path, final: Path) -> bool:
    """Swap the two in one step; False where the system cannot."""
    try:
        disk.exchange(str(partial), str(final))
    except OSError as reason:
        if reason.errno not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM):
            raise
        return False
    return True


def _settle(final: Path) -> Path | None:
    """The end of an exchange, also of one that was interrupted: what was there before is moved aside or removed."""
    mark, partial = final / PUBLISHING, final.with_name(final.name + PARTIAL)
    if not mark.is_file() or final.name.endswith(PARTIAL):
        return None
    aside: Path | None = None
    try:
        if os.path.lexists(partial):
            if read_bytes(mark, limit=99) == b"drop\n":
                remove(partial)
            else:
                aside = _aside(final)
                disk.rename(str(partial), str(aside))
        disk.unlink(str(mark))
    except OSError as reason:
        raise _refused(final, reason) from None
    return aside


def _aside(final: Path) -> Path:
    return next(name for n in itertools.count(1) if not os.path.lexists(name := final.with_name(f"{final.name}.old-{n}")))


def _swap_in_steps(partial: Path, final: Path, keep_old: bool) -> Path | None:
    """Without an exchange: an error in between is undone, a kill leaves the old folder aside."""
    aside = _aside(final)
    disk.rename(str(final), str(aside))
    try:
        disk.rename(str(partial), str(final))
    except OSError:
        disk.rename(str(aside), str(final))
        raise
    disk.unlink(str(final / PUBLISHING))
    _sync_folder(final.parent)
    if keep_old:
        return aside
    remove(aside)
    return None


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
    """A file that grows by whole lines, one `write` each. A torn last line of an earlier crash is cut off on opening: `torn`
    bytes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.torn = 0
        make_folder(self.path.parent)
        try:
            self._handle = disk.open(str(self.path), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK)
        except OSError as reason:
            raise _refused(self.path, reason) from None
        try:
            if not stat.S_ISREG(os.fstat(self._handle).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            self.position = self._repair()
        except OSError as reason:
            disk.close(self._handle)
            raise _refused(self.path, reason) from None

    def _repair(self) -> int:
        """Bytes of whole lines; what follows the last newline is cut off."""
        size = start = os.fstat(self._handle).st_size
        whole = 0
        while start > 0 and not whole:
            step = min(start, CHUNK)
            start -= step
            found = os.pread(self._handle, step, start).rfind(b"\n") + 1
            whole = start + found if found else 0
        self.torn = size - whole
        if self.torn:
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

    def discard_after(self, position: int, log: Path | None = None) -> int:
        """Move what follows a position into `NAME.discarded`, NAME that of the whole log; how many bytes that were."""
        size = os.fstat(self._handle).st_size
        if position > size:
            raise DamagedFileError(f"{self.path} has {size} bytes, expected at least {position}; lines that were kept are gone")
        if position < size:
            try:
                whole = log or self.path
                with AppendLog(whole.with_name(whole.name + ".discarded")) as kept:
                    for start in range(position, size, CHUNK):
                        _write_all(kept._handle, memoryview(os.pread(self._handle, min(CHUNK, size - start), start)))
                    kept.sync()
                disk.truncate(self._handle, position)
            except OSError as reason:
                raise _refused(self.path, reason) from None
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
    """One writer per folder. The system itself frees the lock of a process that has died; a forked child does not hold it.

    A second writer is refused; with `waiting` it is told the first one's number and waits. What a writer that was killed has left
    half written in the folder, and in those inside it that are named, is removed.
    """

    def __init__(self, folder: str | Path, *inside: str, waiting: Callable[[str], None] | None = None) -> None:
        from filelock import FileLock, Timeout  # 60 ms, which only who writes into a folder of others has to spend

        self.folder = make_folder(folder)
        self.path = self.folder / LOCK
        try:
            self._lock = FileLock(self.path, thread_local=False, fallback_to_soft=False, on_acquired=_sign)
            try:
                self._lock.acquire(blocking=False)
            except Timeout:
                owner = read_bytes(self.path, limit=32).decode("ascii", "replace").strip() or "unknown"
                if waiting is None:
                    raise UsageError(
                        f"{self.folder} is in use by process {owner}; wait for it to end or choose another folder"
                    ) from None
                waiting(owner)
                self._lock.acquire()
        except OSError as reason:
            raise _refused(self.path, reason) from None
        sweep(self.folder)
        for part in inside:
            if (self.folder / part).is_dir():
                sweep(self.folder / part, owned=True)

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
