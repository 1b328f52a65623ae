"""The only module that writes files.

A file is written beside its place, flushed, synced, and renamed into it; a folder is filled as `NAME.partial`, synced once, and
renamed as a whole; a log grows by whole lines. So a crash or a full disk leaves the old or the new, never half. Readers bound
what they allocate and raise one type of error.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import msgspec

from townlet.errors import DamagedFileError, StorageError, TownletError, UsageError

SUMS = "SHA256SUMS"
SUMS_LIMIT = 64 << 20


def safe_join(root: str | Path, name: str, *, error: type[TownletError] = DamagedFileError) -> Path:
    """The path of a name below a folder; refuses absolute names, `..`, the folder itself, and links that lead out."""
    root = Path(root)
    if not leads_inside(name):
        raise error(f"{name!r:.200} leads out of {root}; name a file inside it")
    path = root / name
    try:
        inside = not _has_link(root, name.split("/")) or path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError, ValueError):  # a loop of links, a name too long, a name that cannot be encoded
        raise error(f"{name!r:.200} cannot be the name of a file in {root}") from None
    if not inside:
        raise error(f"{name!r:.200} leads out of {root} through a link; name a file inside it")
    return path


def real_path(path: str | Path) -> Path:
    """The path without links; a loop of links, at which `Path.resolve` gives up, stays as it is."""
    return Path(os.path.realpath(path))


def leads_inside(name: str) -> bool:
    """The words of a relative path stay below where it begins, and name something there; links are not looked at."""
    parts = name.split("/")
    return (
        not name.startswith("/")
        and not any(letter == "\\" or not letter.isprintable() for letter in name)
        and re.match(r"[A-Za-z]:", name) is None
        and ".." not in parts
        and parts[-1] not in ("", ".")
        and max(map(len, parts)) <= 255
    )


def _has_link(root: Path, parts: list[str]) -> bool:
    """Some step below the root is a symbolic link; what does not exist is none."""
    step = os.fspath(root)
    for part in parts:
        step = f"{step}/{part}"
        try:
            if stat.S_ISLNK(os.lstat(step).st_mode):
                return True
        except (FileNotFoundError, NotADirectoryError):
            return False
    return False


def sha256_bytes(data: bytes | bytearray | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def short_hash(text: str, length: int = 16) -> str:
    """The first letters of a text's SHA-256: enough to tell configs, towns and jobs apart."""
    return sha256_bytes(text.encode())[:length]


def sha256_file(path: str | Path, *, error: type[TownletError] = DamagedFileError) -> str:
    try:
        with open_file(Path(path), error) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as reason:
        raise error(f"{path} cannot be read: {reason.strerror}") from None


def open_file(path: Path, error: type[TownletError] = DamagedFileError) -> io.BufferedReader:
    """A regular file to read from; whatever else stands there, such as a pipe that would block, is refused."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe does not block
    except FileNotFoundError:
        raise error(f"there is no file {path}") from None
    except (OSError, ValueError) as reason:
        raise error(f"{path} cannot be read: {reason}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise error(f"{path} is not a regular file")
    return open(handle, "rb")


def read_bytes(path: str | Path, *, limit: int, error: type[TownletError] = DamagedFileError) -> bytes:
    """A whole regular file of at most `limit` bytes."""
    with open_file(Path(path), error) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > limit:
            raise error(f"{path} has {size} bytes, expected at most {limit}")
        try:
            data = stream.read(limit + 1)
        except OSError as reason:
            raise error(f"{path} cannot be read: {reason.strerror}") from None
    if len(data) > limit:
        raise error(f"{path} grew beyond {limit} bytes while it was read")
    return data


def read_sums(folder: str | Path, *, error: type[TownletError] = DamagedFileError) -> dict[str, str]:
    """Hash by name as SHA256SUMS lists them; the files themselves are not looked at."""
    folder = Path(folder)
    text = read_bytes(folder / SUMS, limit=SUMS_LIMIT, error=error)
    sums: dict[str, str] = {}
    for number, line in enumerate(text.split(b"\n")[:-1], start=1):
        digest, gap, name = line[:64].decode("ascii", "replace"), line[64:66], line[66:].decode("utf-8", "replace")
        if gap != b"  " or not name or set(digest) - set("0123456789abcdef") or name in sums:
            raise error(
                f"{folder / SUMS}:{number}: expected a SHA-256, two blanks and a new name; the folder is damaged, make it again"
            )
        sums[name] = digest
    if not text.endswith(b"\n") or not sums:
        raise error(f"{folder / SUMS} is cut short; the folder is damaged, make it again")
    return sums


def check_sums(
    folder: str | Path, *, require: Iterable[str] = (), error: type[TownletError] = DamagedFileError
) -> dict[str, str]:
    """Hash by name of every listed file, each of them checked; `require` names files that must be listed."""
    folder = Path(folder)
    sums = read_sums(folder, error=error)
    for name in require:
        if name not in sums:
            raise error(f"{folder / SUMS} does not list {name}; the folder is damaged or of another kind")
    for name, digest in sums.items():
        path = safe_join(folder, name, error=error)
        if not path.is_file():
            raise error(f"{path} is missing, though {SUMS} lists it; restore the folder or make it again")
        if sha256_file(path, error=error) != digest:
            raise error(f"{path} is not what was written (its SHA-256 differs from {SUMS}); restore the folder or make it again")
    return sums


# --- JSON ------------------------------------------------------------------------------------------------------------


def read_json(path: str | Path, *, limit: int = 64 << 20, error: type[TownletError] = DamagedFileError) -> Any:
    """JSON in UTF-8 without repeated keys and without NaN."""
    return parse_json(read_bytes(path, limit=limit, error=error), str(path), error=error)


def parse_json(data: bytes, name: str, *, error: type[TownletError] = DamagedFileError) -> Any:
    try:
        text = data.decode("utf-8-sig")
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except json.JSONDecodeError as reason:
        raise error(f"{name}:{reason.lineno}: this is not valid JSON: {reason.msg}") from None
    except UnicodeError:
        raise error(f"{name} is not a text in UTF-8; expected JSON") from None
    except RecursionError:
        raise error(f"{name} is nested too deeply; expected plain JSON") from None
    except ValueError as reason:
        raise error(f"{name}: {reason}") from None
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in names if names.count(key) > 1)!r:.80} appears twice; remove one")
    return result


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"found {name}, which is not a JSON number; write null where a number is not known")


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


def _sync_file_system(path: str) -> None:
    """Everything on the file system of a path (Linux), where an error is told; the whole machine where the system cannot."""
    sync = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if sync is None:
        os.sync()
        return
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if sync(handle) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(handle)


@dataclass
class Disk:
    """Every operation this module asks of the system. Tests replace single ones by some that fail."""

    open: Callable[[str, int], int] = lambda path, flags: os.open(path, flags | os.O_CLOEXEC, 0o666)
    write: Callable[[int, bytes | memoryview], int] = os.write
    fsync: Callable[[int], None] = os.fsync
    sync: Callable[[str], None] = _sync_file_system
    close: Callable[[int], None] = os.close
    truncate: Callable[[int, int], None] = os.ftruncate
    replace: Callable[[str, str], None] = os.replace
    rename: Callable[[str, str], None] = os.rename
    exchange: Callable[[str, str], None] = _exchange
    unlink: Callable[[str], None] = os.unlink
    mkdir: Callable[[str], None] = os.mkdir
    rmtree: Callable[[str], None] = shutil.rmtree


disk = Disk()


_REMEDIES = {
    errno.ENOSPC: "free some space and run again",
    errno.EDQUOT: "free some space and run again",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f) and run again",
    errno.EMFILE: "raise the limit on open files (ulimit -n) and run again",
    errno.EROFS: "choose a place that can be written",
}


@contextlib.contextmanager
def _writing_to(path: Path | str) -> Iterator[None]:
    """What the system refuses within it is told as a sentence about the path."""
    try:
        yield
    except OSError as reason:
        remedy = _REMEDIES.get(reason.errno or 0, "check the path and its permissions")
        raise StorageError(f"{path} cannot be written: {reason.strerror or reason}; {remedy}") from None


# --- files -----------------------------------------------------------------------------------------------------------


def write_bytes(path: str | Path, data: bytes | bytearray | memoryview, *, sync: bool = True) -> None:
    """Put a whole file in its place. Without `sync` it is filled where it stands: for folders that are published later."""
    target = os.fspath(path)
    folder, name = os.path.split(target)
    beside = os.path.join(folder, f".{name}.{os.getpid()}{PARTIAL}") if sync else target
    if sync or not os.path.isdir(folder or "."):
        make_folder(folder or ".")
    if sync:
        check_plain(path)
    try:
        with _writing_to(path):
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
    finally:
        _writing.discard(beside)


def write_text(path: str | Path, text: str, *, sync: bool = True) -> None:
    write_bytes(path, text.encode(), sync=sync)


def write_json(path: str | Path, value: object, *, sync: bool = True) -> None:
    """Readable JSON in the order given; NaN and infinity are errors of the caller."""
    write_bytes(path, json_bytes(value, indent=2), sync=sync)


def json_bytes(value: object, *, indent: int) -> bytes:
    """As `json.dumps` with an indent, which leaves the fast encoder of `json` aside; here the lines are broken afterwards."""
    flat = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    return msgspec.json.format(flat, indent=indent) + b"\n"


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
    with _writing_to(folder):
        for step in reversed(missing):
            with contextlib.suppress(FileExistsError):
                disk.mkdir(str(step))
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return folder


def move(source: str | Path, target: str | Path) -> None:
    """Rename a file or folder; a file in the way is replaced."""
    with _writing_to(target):
        disk.replace(str(source), str(target))
        _sync_folder(Path(target).parent)


def remove(path: str | Path) -> None:
    """Delete a file or a whole folder; nothing there is fine."""
    path = Path(path)
    with _writing_to(path):
        if path.is_dir() and not path.is_symlink():
            disk.rmtree(str(path))
        elif os.path.lexists(path):
            disk.unlink(str(path))


# --- folders ---------------------------------------------------------------------------------------------------------


def sweep(folder: str | Path, *, owned: bool = False) -> None:
    """Remove what was left half written in a folder: files of processes that have died. Whoever is its only writer (`owned`)
    removes all of it, folders too. A link leads into somebody else's folder, where nothing is touched."""
    folder = os.fspath(folder)
    if os.path.islink(folder):
        return
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
    """A partial folder for the block; when the block fails it is removed, so that a full disk has its room back. A second writer
    of the same folder is refused: the folders themselves are locked, the one that is there and the one that takes its place, so
    that nothing is left of a lock, and the system frees that of a process that has died."""
    final = Path(final)
    with contextlib.ExitStack() as held:
        with contextlib.ExitStack() as turn:  # one at a time looks whether the place is free
            _lock_itself(make_folder(final.parent), turn)
            for folder in (final, final.with_name(final.name + PARTIAL)):
                if folder.is_dir() and not _lock_itself(folder, held, wait=False):
                    raise UsageError(f"{final} is being written by another process; wait for it to end or choose another folder")
            partial = partial_folder(final)
            _lock_itself(partial, held)
        try:
            yield partial
        except BaseException:
            if not (final / PUBLISHING).exists():  # else it has taken its place, and what is partial now is the one before
                with contextlib.suppress(StorageError):
                    remove(partial)
            raise


def _lock_itself(folder: Path, held: contextlib.ExitStack, *, wait: bool = True) -> bool:
    """Whether no other process holds it; where the file system cannot lock a folder, nobody does."""
    try:
        handle = _open_to_lock(folder, os.O_RDONLY)
        held.callback(_let_go, handle)
        return _lock(handle, wait)
    except OSError:
        return True


def check_plain(path: str | Path) -> None:
    """A device or a pipe, also behind a link, is never replaced: `/dev/null` would be a file from then on."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise UsageError(f"{path} is a device or a pipe, which is not written; name a file")


def check_movable(path: str | Path) -> None:
    """A folder that holds where one works, lives or keeps temporary files is never moved aside, whoever allows overwriting."""
    for find in (Path.cwd, Path.home, tempfile.gettempdir):
        with contextlib.suppress(FileNotFoundError):  # the current folder was removed: nothing holds it
            if os.path.isdir(path) and real_path(kept := find()).is_relative_to(real_path(path)):
                raise UsageError(f"{path} holds {kept} and is not moved aside; name a folder of its own")


def check_free(path: Path, overwrite: bool, what: str = "file") -> None:
    """Refuse, before anything is run, to write over what is there."""
    check_plain(path)
    check_movable(path)
    if (path.parent / SUMS).is_file():
        raise UsageError(f"{path.parent} is complete (its {SUMS} list every file) and would be damaged; choose another {what}")
    if os.path.lexists(path) and not overwrite:
        remedy = "move it aside" if what == "folder" else "replace it"
        raise UsageError(f"{path} already exists; choose another {what}, or --overwrite to {remedy}")
    if what == "folder" and path.is_dir() and not (path / SUMS).is_file() and any(path.iterdir()):
        raise UsageError(f"{path} is not a capture (it has no {SUMS}) and is not moved aside; choose another {what}")


def publish_folder(partial: str | Path, final: str | Path, *, overwrite: bool = False, keep_old: bool = True) -> Path | None:
    """Sync once, then rename the whole folder. `overwrite` moves what is there aside, as NAME.old-1, NAME.old-2, …: that path;
    without `keep_old` it is removed."""
    partial, final = Path(partial), Path(final)
    check_plain(final)
    check_movable(final)
    there = os.path.lexists(final)
    if there and not overwrite:
        raise UsageError(f"{final} already exists; choose another place, or allow overwriting to move it aside")
    with _writing_to(final):
        if there:
            _fill(str(partial / PUBLISHING), b"keep\n" if keep_old else b"drop\n", sync=False)
        disk.sync(str(partial))
        if not there:
            disk.rename(str(partial), str(final))
        elif not _exchanged(partial, final):
            return _swap_in_steps(partial, final, keep_old)
        moved = _settle(final)
        _sync_folder(final.parent)
    return moved


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
    moved: Path | None = None
    with _writing_to(final):
        if os.path.lexists(partial):
            if read_bytes(mark, limit=99) == b"drop\n":
                remove(partial)
            else:
                moved = aside(final)
                disk.rename(str(partial), str(moved))
        disk.unlink(str(mark))
    return moved


def aside(final: Path) -> Path:
    """Where what stands at a path can be moved: NAME.old-1, NAME.old-2, …"""
    return next(name for n in itertools.count(1) if not os.path.lexists(name := final.with_name(f"{final.name}.old-{n}")))


def _swap_in_steps(partial: Path, final: Path, keep_old: bool) -> Path | None:
    """Without an exchange: an error in between is undone, a kill leaves the old folder aside."""
    moved = aside(final)
    disk.rename(str(final), str(moved))
    try:
        disk.rename(str(partial), str(final))
    except OSError:
        disk.rename(str(moved), str(final))
        raise
    disk.unlink(str(final / PUBLISHING))
    _sync_folder(final.parent)
    if keep_old:
        return moved
    remove(moved)
    return None


def write_sums(folder: str | Path, *, known: Mapping[str, str] | None = None) -> None:
    """Hashes of every file in the folder, in the format of `sha256sum`; written last, it makes the folder whole.

    `known` are hashes by name that were taken when the files were written, so that they need not be read again.
    """
    folder, known = Path(folder), known or {}
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    names = [name for name in names if name != SUMS and not any(part.startswith(".") for part in name.split("/"))]
    write_text(folder / SUMS, "".join(f"{known.get(name) or sha256_file(folder / name)}  {name}\n" for name in names), sync=False)


# --- logs and locks --------------------------------------------------------------------------------------------------


class AppendLog:
    """A file that grows by whole lines, one `write` each. A torn last line of an earlier crash is cut off on opening: `torn`
    bytes."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.torn = 0
        make_folder(self.path.parent)
        with _writing_to(self.path):
            self._handle = disk.open(str(self.path), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK)
            try:
                if not stat.S_ISREG(os.fstat(self._handle).st_mode):
                    raise OSError(errno.EINVAL, "it is not a regular file")
                self.position = self._repair()
            except OSError:
                disk.close(self._handle)
                raise

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
        with _writing_to(self.path):
            written = disk.write(self._handle, data)
            if written < len(data):
                if os.fstat(self._handle).st_size == self.position + written:
                    disk.truncate(self._handle, self.position)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if sync:
                disk.fsync(self._handle)
        self.position = os.lseek(self._handle, 0, os.SEEK_CUR)

    def sync(self) -> None:
        with _writing_to(self.path):
            disk.fsync(self._handle)

    def discard_after(self, position: int, log: Path | None = None) -> int:
        """Move what follows a position into `NAME.discarded`, NAME that of the whole log; how many bytes that were."""
        size = os.fstat(self._handle).st_size
        if position > size:
            raise DamagedFileError(f"{self.path} has {size} bytes, expected at least {position}; lines that were kept are gone")
        if position < size:
            whole = log or self.path
            with _writing_to(self.path):
                with AppendLog(whole.with_name(whole.name + ".discarded")) as kept:
                    for start in range(position, size, CHUNK):
                        _write_all(kept._handle, memoryview(os.pread(self._handle, min(CHUNK, size - start), start)))
                    kept.sync()
                disk.truncate(self._handle, position)
        self.position = position
        return size - position

    def close(self) -> None:
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            with _writing_to(self.path):
                disk.close(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


_locks: set[int] = set()  # what this process has open to lock it


def _open_to_lock(path: Path, flags: int) -> int:
    handle = os.open(path, flags | os.O_CLOEXEC, 0o666)
    _locks.add(handle)
    return handle


def _lock(handle: int, wait: bool) -> bool:
    """The lock is the system's, which frees that of a process that has died; False when another process holds it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def _let_go(handle: int) -> None:
    if handle in _locks:  # a forked child has closed it
        _locks.remove(handle)
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _close_locks() -> None:
    """In a forked child, which would go on holding them when its parent has died."""
    while _locks:
        os.close(_locks.pop())


os.register_at_fork(after_in_child=_close_locks)


class FolderLock:
    """One writer per folder, or per file in it (`only`); a forked child does not hold it.

    A second writer is refused; with `waiting` it is told the first one's number and waits. What a writer that was killed has left
    half written in the folder, and in those inside it that are named, is removed.
    """

    def __init__(self, folder: str | Path, *inside: str, only: str = "", waiting: Callable[[str], None] | None = None) -> None:
        self.folder = make_folder(folder)
        self.path = self.folder / (f".{only}{LOCK}" if only else LOCK)
        with _writing_to(self.path), contextlib.ExitStack() as held:
            self._handle = _open_to_lock(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
            held.callback(self.release)
            if not _lock(self._handle, wait=False):
                owner = read_bytes(self.path, limit=32).decode("ascii", "replace").strip() or "unknown"
                if waiting is None:
                    told = f"{self.folder / only} is in use by process {owner}; wait for it to end or choose another"
                    raise UsageError(f"{told} {'file' if only else 'folder'}")
                waiting(owner)
                _lock(self._handle, wait=True)
            disk.truncate(self._handle, 0)
            disk.write(self._handle, b"%d\n" % os.getpid())
            held.pop_all()
        sweep(self.folder)
        for part in inside:
            if (self.folder / part).is_dir():
                sweep(self.folder / part, owned=True)

    def release(self) -> None:
        _let_go(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()
