"""The one door to Numba (`_compiler.py` behind it says how it compiles).

Numba caches compiled code per file and does not notice an edit in another file that the code calls. The cache folder is
therefore named after the hash of all kernel sources and of the Numba and NumPy versions, before Numba is imported.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from townlet.files import write_bytes

P = ParamSpec("P")
R = TypeVar("R")

KEPT_CACHES = 12
NO_KERNELS = ("invariants", "layout", "preconditions", "rules")


def kernel_sources() -> list[Path]:
    """Files whose text decides what is compiled. Those named last hold no kernel."""
    package = Path(__file__).parents[1]
    world = {*package.glob("world/**/*.py")} - {package / "world" / f"{name}.py" for name in NO_KERNELS}
    tables = ("config/needs.py", "config/town.py", "observations/spec.py")  # their rows are constants of the kernels
    return sorted([*world, package / "observations/encode.py", package / "envs/step.py", *(package / name for name in tables)])


def cache_folder() -> Path:
    digest = hashlib.sha256()
    for path in kernel_sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update(f"{version('numba')} {version('numpy')} {sys.version_info[:2]}".encode())
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "townlet" / digest.hexdigest()[:16]


def _prune(folder: Path) -> None:
    """Keep the most recent caches only; another process may be doing the same."""
    old = sorted((p for p in folder.parent.glob("*") if p != folder), key=lambda p: p.stat().st_mtime)
    for path in old[: max(0, len(old) + 1 - KEPT_CACHES)]:
        shutil.rmtree(path, ignore_errors=True)


def _prepare() -> bool:
    """Name the cache folder; True when this machine has compiled these kernels before."""
    folder = cache_folder()
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    warm = (folder / "ready").exists()
    if not warm and folder.parent.exists():
        _prune(folder)
    return warm


WARM = _prepare()

import numba as _numba  # noqa: E402

from townlet.world._compiler import EntryCompiler, KernelCompiler  # noqa: E402

numba: Any = _numba  # its stubs know neither the config nor the options used here

JIT = not numba.config.DISABLE_JIT


def mark_warm() -> None:
    """Remember that the kernels of this version stand compiled in the cache."""
    global WARM
    if JIT and not WARM:
        write_bytes(cache_folder() / "ready", b"", sync=False)
        WARM = True


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that other kernels call: GIL released, plain IEEE arithmetic, and nothing allocated.

    Three things keep the first start short. Constants and all widths of integers are passed as int64, where Numba would
    compile a function anew for each. Without its runtime (`_nrt=False`) no reference is counted. And machine code, a wrapper
    to call it from Python and a place in the cache are for an `entry` only.
    """
    return _kernel(function, inlined=False)


def leaf(function: Callable[P, R]) -> Callable[P, R]:
    """A kernel so small and so often called that it is always inlined: passing a Town would cost more than its work."""
    return _kernel(function, inlined=True)


def entry(function: Callable[P, R]) -> Callable[P, R]:
    """A kernel that Python calls: cached."""
    return _compile(function, pipeline_class=EntryCompiler, cache=True)


def _kernel(function: Callable[P, R], inlined: bool) -> Callable[P, R]:
    compiled: Any = _compile(
        function, pipeline_class=KernelCompiler, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=inlined
    )
    if JIT:
        compiled.add_overload = lambda result: compiled.overloads.update({tuple(result.signature.args): result})
    return compiled  # type: ignore[no-any-return]


def _compile(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    compiled = numba.njit(nogil=True, fastmath=False, error_model="numpy", _nrt=False, **options)(function)
    if JIT:
        resolve = compiled.get_call_template

        def resolve_plain(args: Any, kws: Any) -> Any:
            return resolve(tuple(_plain(kind) for kind in args), {name: _plain(kind) for name, kind in dict(kws).items()})

        compiled.get_call_template = resolve_plain
    return compiled  # type: ignore[no-any-return]


def _plain(kind: Any) -> Any:
    """The type an argument is compiled for: no constants, and every whole number but a hash is an int64."""
    kind = numba.types.unliteral(kind)
    whole = isinstance(kind, numba.types.Integer) and kind != numba.types.uint64
    return numba.types.int64 if whole else kind
