"""Where compiled entries are kept: one folder per version of the kernels, whatever the path of the clone.

Numba keeps compiled code by the path of its file, and does not notice an edit in another file that the code calls. Ours is kept
by the text of all kernel sources and the versions of what compiles them; within the folder Numba tells processors apart. One
process compiles while others wait for it, and whoever compiles or waits is told so on stderr. What is damaged is compiled again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from numba.core import event
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock
from numba.core.types import Type

from townlet.errors import DamagedFileError, StorageError
from townlet.files import FolderLock, write_bytes
from townlet.world._compiler import EntryModule

KEPT_CACHES = 12
NO_KERNELS = ("_cache", "invariants", "layout", "preconditions", "rules")
SECONDS_PER_FUNCTION = 0.2
SECONDS_TOLD = 1.5  # a shorter wait is not announced
REDRAW_SECONDS = 0.1


def kernel_sources() -> list[Path]:
    """Files whose text decides what is compiled: kernels, and tables whose rows are constants of kernels. Those of
    `policy/passes` and `envs/threads` reach no other file but these; the text of their own is in the name of what is kept."""
    package = Path(__file__).parents[1]
    world = {*package.glob("world/**/*.py")} - {package / "world" / f"{name}.py" for name in NO_KERNELS}
    tables = ("config/needs.py", "config/town.py", "dto/town.py", "observations/spec.py")
    others = ("observations/encode.py", "envs/step.py", "engine/network.py", "bench/roof.py", "policy/arithmetic.py")
    return sorted([*world, *(package / name for name in (*others, *tables))])


@functools.cache
def _version() -> str:
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in kernel_sources():
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    digest.update(b"behind hashes")  # the form of the files
    digest.update(" ".join([*map(version, ("numba", "llvmlite", "numpy")), str(sys.implementation.cache_tag)]).encode())
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "townlet" / _version()


def prune(folder: Path) -> None:
    """Keep the caches used last only; another process may be doing the same."""
    used = {}
    for path in folder.parent.glob("*"):
        with contextlib.suppress(FileNotFoundError):
            used[path] = path.stat().st_mtime
    old = sorted(used.keys() - {folder}, key=used.__getitem__)
    for path in old[: max(0, len(old) + 1 - KEPT_CACHES)]:
        shutil.rmtree(path, ignore_errors=True)


class _Place:
    """What Numba asks about a function: its folder, and a name that holds no path but the text of its file."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._py_file = function.__code__.co_filename  # Numba's warnings name it
        text = hashlib.sha256(Path(self._py_file).read_bytes()).hexdigest()[:8]
        module = Path(self._py_file).stem
        self.name = f"{module}.{function.__qualname__.replace('<', '').replace('>', '')}-{text}"

    def get_cache_path(self) -> str:
        return str(cache_folder())

    def get_source_stamp(self) -> str:
        return ""  # folder and name say it all

    def ensure_cache_path(self) -> None:
        """The lock has made the folder."""


class _Files(CompileResultCacheImpl):
    def __init__(self, function: Callable[..., object]) -> None:
        self._lineno = function.__code__.co_firstlineno
        self._locator = _Place(function)
        self._filename_base = self._locator.name


class _HashedFiles(IndexDataCacheFile):
    """Numba's index and data, each behind the hash of its bytes; one that is damaged is none."""

    def sound(self, name: str) -> bool:
        try:
            return bool(self._bytes(self._data_path(name)))
        except OSError:
            return False

    def _load_index(self) -> Any:
        try:
            return pickle.loads(self._bytes(self._index_path))
        except OSError:
            return {}

    def _save_index(self, overloads: object) -> None:
        self._write(self._index_path, overloads)

    def _load_data(self, name: str) -> object:
        return pickle.loads(self._bytes(self._data_path(name)))

    def _save_data(self, name: str, data: object) -> None:
        self._write(self._data_path(name), data)

    def _write(self, path: str, value: object) -> None:
        data = self._dump(value)
        with self._open_for_write(path) as stream:
            stream.write(hashlib.sha256(data).digest() + data)

    def _bytes(self, path: str) -> bytes:
        data = Path(path).read_bytes()
        if hashlib.sha256(data[32:]).digest() != data[:32]:
            raise OSError(f"{path} is damaged")
        return data[32:]


class EntryCache(FunctionCache):
    """The machine code of one entry, by argument types and processor."""

    _impl_class = _Files
    _cache_file: _HashedFiles

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        self._cache_file = _HashedFiles(self._cache_path, self._impl.filename_base, "")

    def holds(self, signature: Iterable[Type], codegen: object) -> bool:
        name = self._cache_file._load_index().get(self._index_key(signature, codegen))
        return name is not None and self._cache_file.sound(name) and self._bitcode(signature).exists()

    def load_overload(self, signature: Iterable[Type], target_context: object) -> Any:
        return super().load_overload(signature, target_context) if self._bitcode(signature).exists() else None

    def save_overload(self, signature: Iterable[Type], result: Any) -> None:
        try:
            if self._enabled:
                write_bytes(self._bitcode(signature), zlib.compress(result.library.portable, 6), sync=False)
            super().save_overload(signature, result)
        except (StorageError, OSError) as reason:
            self.do_without(reason)

    def do_without(self, reason: Exception) -> None:
        """The folder cannot be written: nothing is kept by this process, which says so once."""
        global _told
        self.disable()
        if not _told:
            tell(f"{reason}; until then every start compiles again (XDG_CACHE_HOME names another place)")
        _told = True

    def _bitcode(self, signature: Iterable[Type]) -> Path:
        kind = hashlib.sha256(str(tuple(signature)).encode()).hexdigest()[:8]
        return cache_folder() / f"{self._impl.locator.name}.{kind}.bc"

    def portable(self, signature: Iterable[Type], result: Any) -> bytes:
        """LLVM bitcode of a compiled entry with all it reaches, as it was before it was fitted to a processor."""
        if isinstance(result.library, EntryModule):  # compiled by this very process
            return result.library.portable
        path = self._bitcode(signature)
        try:
            return zlib.decompress(path.read_bytes())
        except (OSError, zlib.error):
            raise DamagedFileError(f"{path} is damaged; remove {path.parent}, the next start compiles again") from None


_told = False  # that nothing can be kept
_compiling = False  # by this process; Numba's lock lets one thread at a time come here


def keep(compiled: Any) -> None:
    """Let an entry find its machine code in the cache, and compile once on this machine where it is not there."""
    cache = compiled._cache = EntryCache(compiled.py_func)
    compile_anyway = compiled.compile

    def compile_once(signature: Iterable[Type]) -> object:
        global _compiling
        with global_compiler_lock:
            codegen = compiled.targetctx.codegen()
            if _compiling or tuple(signature) in compiled.overloads:
                return compile_anyway(signature)
            if cache.holds(signature, codegen):
                with contextlib.suppress(OSError):  # a folder of somebody else can be read all the same
                    os.utime(cache_folder())
                return compile_anyway(signature)
            _compiling = True
            try:
                with _alone(cache):
                    if cache.holds(signature, codegen):  # whoever we waited for has compiled it
                        return compile_anyway(signature)
                    with _progress(compiled):
                        return compile_anyway(signature)
            finally:
                _compiling = False

    compiled.compile = compile_once


@contextlib.contextmanager
def _alone(cache: EntryCache) -> Iterator[None]:
    """Hold the lock of the folder; the system frees that of a process that has died."""
    folder = cache_folder()
    try:
        lock = FolderLock(folder, waiting=lambda owner: tell(f"process {owner} is compiling the town's rules; waiting for it …"))
    except StorageError as reason:
        cache.do_without(reason)
        yield
        return
    with lock:
        prune(folder)
        yield


def functions_of(compiled: Any, found: dict[Any, None] | None = None) -> dict[Any, None]:
    """An entry and all kernels it reaches."""
    found = {} if found is None else found
    found[compiled] = None
    function = compiled.py_func
    for name in function.__code__.co_names:
        callee = function.__globals__.get(name)
        if isinstance(callee, type(compiled)) and callee not in found:
            functions_of(callee, found)
    return found


class _Count(event.Listener):
    """Redraws the line as functions are done."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, set[object]()
        self.began = self.drawn = time.perf_counter()

    def on_start(self, _: event.Event) -> None:
        """A function counts when it is done."""

    def on_end(self, done: event.Event) -> None:
        self.done.add(done.data["dispatcher"])
        now, left = time.perf_counter(), self.total - len(self.done)
        if left == 1 or (left > 1 and now - self.drawn > REDRAW_SECONDS):
            self.drawn = now
            stage = f"{len(self.done)} of {self.total} functions" if left > 1 else "writing machine code"
            tell(f"\r{self.what}: {stage}, {now - self.began:.0f} s\x1b[K", end="")


@contextlib.contextmanager
def _progress(compiled: Any) -> Iterator[None]:
    """A line that counts on a terminal, one sentence elsewhere."""
    total = len(functions_of(compiled))
    if total * SECONDS_PER_FUNCTION < SECONDS_TOLD:
        yield
        return
    what = f"compiling {compiled.__name__}, once per version"
    if not _on_a_terminal():
        tell(f"{what}: {total} functions, about {max(1, round(total * SECONDS_PER_FUNCTION))} s …")
        yield
        return
    count = _Count(what, total)
    tell(f"{what}: {total} functions …", end="")
    try:
        with event.install_listener("numba:compile", count):
            yield
    except BaseException:
        tell("")
        raise
    tell(f"\r{what}: done in {time.perf_counter() - count.began:.0f} s\x1b[K")


def _on_a_terminal() -> bool:
    """The line can be redrawn: stderr is a terminal, and nothing such as a live table has replaced it."""
    return sys.__stderr__ is not None and sys.stderr is sys.__stderr__ and sys.__stderr__.isatty()


def tell(words: str, end: str = "\n") -> None:
    print(words, end=end, file=sys.stderr, flush=True)
