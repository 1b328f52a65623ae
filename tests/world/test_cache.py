"""Numba keeps compiled code per file; ours is kept per state of all kernel files, so that no caller runs an old callee."""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import townlet
from townlet.errors import DamagedFileError
from townlet.files import FolderLock
from townlet.observations.encode import squash
from townlet.world import _cache, _jit

CALLER = """
import sys
from townlet.world import _cache
from townlet.world._jit import entry
from townlet.world.systems.relationships import clamp

_cache.SECONDS_TOLD = 0.0


@entry
def doubled(x: float) -> float:
    return 2.0 * clamp(x, 0.0, 1.0)


if __name__ == "__main__":
    if sys.argv[1:] == ["interrupted"]:
        from townlet.world._compiler import EntryModule

        def interrupt(self):
            raise KeyboardInterrupt

        EntryModule.finalize = interrupt
    print(doubled(0.25), sum(doubled.stats.cache_misses.values()))
"""
TOLD = "compiling doubled, once per version: 2 functions, about 1 s …\n"


def a_clone(place: Path) -> Path:
    """The package at another path, with one more entry."""
    ignored = shutil.ignore_patterns("__pycache__")
    package = Path(shutil.copytree(Path(townlet.__file__).parent, place / "src" / "townlet", ignore=ignored))
    (package / "world" / "caller.py").write_text(CALLER)
    return package


def start(package: Path, cache: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "XDG_CACHE_HOME": str(cache)}
    environment.pop("NUMBA_DISABLE_JIT", None)
    command = [sys.executable, "-m", "townlet.world.caller", *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(package: Path, cache: Path, *words: str) -> tuple[list[str], str]:
    """What was printed (the result, how often it was compiled) and what was told."""
    out, err = start(package, cache, *words).communicate(timeout=300)
    return out.split(), err


def test_every_kernel_file_is_in_the_name_of_the_cache() -> None:
    package = Path(townlet.__file__).parent
    kernels = {path for path in package.rglob("*.py") if "@kernel" in path.read_text() or "@entry" in path.read_text()}
    alone = {package / name for name in ("policy/passes.py", "envs/threads.py")}
    assert kernels <= {*_cache.kernel_sources(), *alone}
    reached = {name for path in alone for name in re.findall(r"^from townlet\.(\S+)", path.read_text(), re.M)}
    assert reached <= {"policy.arithmetic", "threads", "types", "world._jit"}


def test_every_table_whose_rows_are_constants_of_kernels_is_in_the_name_of_the_cache() -> None:
    package = Path(townlet.__file__).parent
    tables = re.findall(r"^from townlet\.(config|dto)\.(\S+)", (package / "world" / "state.py").read_text(), re.M)
    in_dtypes = {("config", "scenario")}  # kernels know it by the shape of their arguments, which is part of what is kept
    assert {package / folder / f"{name}.py" for folder, name in {*tables} - in_dtypes} <= {*_cache.kernel_sources()}


def test_a_second_clone_compiles_nothing_and_says_nothing(tmp_path: Path) -> None:
    first, second = a_clone(tmp_path / "one"), a_clone(tmp_path / "two")
    assert run(first, tmp_path / "cache") == (["0.5", "1"], TOLD)
    assert run(second, tmp_path / "cache") == (["0.5", "0"], "")


def test_an_edited_callee_in_another_file_is_seen_by_its_caller(tmp_path: Path) -> None:
    package, cache = a_clone(tmp_path), tmp_path / "cache"
    assert run(package, cache) == (["0.5", "1"], TOLD)
    assert run(package, cache) == (["0.5", "0"], "")
    callee = package / "world" / "systems" / "relationships.py"
    text = callee.read_text()
    assert "return min(max(x, low), high)" in text
    callee.write_text(text.replace("return min(max(x, low), high)", "return min(max(x, low), high) + 1.0"))
    assert run(package, cache) == (["2.5", "1"], TOLD)
    callee.write_text(text)
    assert run(package, cache) == (["0.5", "0"], "")


def test_what_was_interrupted_is_compiled_again_and_told_again(tmp_path: Path) -> None:
    package, cache = a_clone(tmp_path), tmp_path / "cache"
    printed, told = run(package, cache, "interrupted")
    assert printed == []
    assert told.startswith(TOLD)
    assert "KeyboardInterrupt" in told
    assert run(package, cache) == (["0.5", "1"], TOLD)
    assert run(package, cache) == (["0.5", "0"], "")


@pytest.mark.skipif(not _jit.JIT, reason="nothing is compiled")
@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", [lambda data: data[:100], lambda data: b"", lambda data: data[:-9] + b"\0" + data[-8:]])
def test_what_is_damaged_is_compiled_again(
    kind: str, damage: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_cache, "tell", lambda words, end="\n": told.append(words))
    monkeypatch.setattr(_cache, "SECONDS_TOLD", 0.0)

    def misses() -> int:
        """Of an entry that is new to this process, as of a new start."""
        twice = _jit.entry(_twice)
        assert twice(1.0) == 2.0
        return sum(twice.stats.cache_misses.values())

    assert [misses(), misses(), len(told)] == [1, 0, 1]
    [path] = tmp_path.glob(f"townlet/*/*_twice*.{kind}")
    path.write_bytes(damage(path.read_bytes()))
    assert [misses(), misses(), len(told)] == [1, 0, 2]


def test_damaged_bitcode_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = _cache.EntryCache(a_clone)
    monkeypatch.setattr(_cache, "cache_folder", lambda: tmp_path)
    cache._bitcode(()).write_bytes(b"x")
    with pytest.raises(DamagedFileError, match=r"\.bc is damaged; remove .*, the next start compiles again"):
        cache.portable((), SimpleNamespace(library=None))


@pytest.mark.parametrize("many", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_of_several_processes_one_compiles_and_the_others_wait(
    many: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, cache = a_clone(tmp_path), tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(_cache, "_version", lambda: version_of(package))
    with FolderLock(_cache.cache_folder()):  # a process that compiles
        children = [start(package, cache) for _ in range(many)]
        waiting = [child.stderr.readline() for child in children if child.stderr is not None]
    assert waiting == [f"process {os.getpid()} is compiling the town's rules; waiting for it …\n"] * many
    ends = [child.communicate(timeout=300) for child in children]
    assert sorted(out.split() for out, _ in ends) == [["0.5", "0"]] * (many - 1) + [["0.5", "1"]]
    assert sorted(err.count(TOLD) for _, err in ends) == [0] * (many - 1) + [1]


def version_of(package: Path) -> str:
    command = [sys.executable, "-c", "from townlet.world import _cache; print(_cache._version())"]
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300).stdout.strip()


def test_without_a_place_for_the_cache_each_start_compiles_and_says_why(tmp_path: Path) -> None:
    package = a_clone(tmp_path)
    (tmp_path / "cache").write_text("a file stands where the folder should be")
    for _ in range(2):
        printed, told = run(package, tmp_path / "cache")
        assert printed == ["0.5", "1"]
        assert "cannot be written" in told
        assert told.count("every start compiles again (XDG_CACHE_HOME names another place)") == 1
        assert told.endswith(TOLD)


def test_without_a_place_for_the_cache_an_entry_that_calls_another_is_compiled_too(tmp_path: Path) -> None:
    """The one that is called ended the command: its machine code could not be kept either."""
    (tmp_path / "cache").write_text("a file stands where the folder should be")
    code = "from townlet.world import rng; print(rng.key(1, 2, 3, 4, 5) > 0)"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (found.returncode, found.stdout, found.stderr.count("every start compiles again")) == (0, "True\n", 1)


@pytest.mark.skipif(not _jit.JIT, reason="nothing is compiled")
def test_on_a_terminal_the_line_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[str] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_cache, "tell", lambda words, end="\n": told.append(words + end))
    monkeypatch.setattr(_cache, "REDRAW_SECONDS", 0.0)
    monkeypatch.setattr(_cache, "SECONDS_TOLD", 0.0)
    monkeypatch.setattr(_cache, "_on_a_terminal", lambda: True)
    assert _jit.entry(_halves)(1.0) == 0.5
    what = "compiling _halves, once per version"
    assert [re.sub(r"\d+ s\b", "N s", line) for line in told] == [
        f"{what}: 3 functions …",
        f"\r{what}: 1 of 3 functions, N s\x1b[K",
        f"\r{what}: writing machine code, N s\x1b[K",
        f"\r{what}: done in N s\x1b[K\n",
    ]


def test_old_caches_are_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    root = tmp_path / "townlet"
    for number in range(_cache.KEPT_CACHES + 3):
        (root / f"old{number}").mkdir(parents=True)
        os.utime(root / f"old{number}", (number, number))
    _cache.prune(_cache.cache_folder())
    left = sorted(path.name for path in root.iterdir())
    assert len(left) == _cache.KEPT_CACHES - 1
    assert "old0" not in left
    assert f"old{_cache.KEPT_CACHES + 2}" in left


@pytest.mark.skipif(not _jit.JIT, reason="uncompiled, a kernel is a plain function")
def test_python_cannot_call_what_has_no_machine_code() -> None:
    with pytest.raises(TypeError, match="squash is a kernel: it is compiled into entries, and Python can call those only"):
        squash(1.0, 2.0)


@_jit.kernel
def _half(x: float) -> float:
    return 0.5 * x


@_jit.kernel
def _quarter(x: float) -> float:
    return _half(_half(x))


def _halves(x: float) -> float:
    return _quarter(x) + _quarter(x)


def _thirds(x: float) -> float:
    return squash(x, 2.0) + squash(2.0 * x, 4.0)


@pytest.mark.parametrize("collecting", [True, False])
def test_compiling_an_entry_leaves_the_collector_as_it_was(collecting: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if collecting else gc.disable)()
        assert _jit.entry(_thirds)(1.0) == 1.0 / 3.0 + 2.0 / 6.0
        assert gc.isenabled() is collecting
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.skipif(not _jit.JIT, reason="there are no flags without a compiler")
def test_flags_are_equal_when_every_option_is() -> None:
    from numba.core.compiler import Flags

    one, other = Flags(), Flags()
    assert one == other
    one.forceinline = True
    assert one != other
    other.forceinline = True
    assert one == other
    one.release_gil = False  # the default, said aloud
    assert one == other
    assert hash(one) == hash(other)
    assert one != "flags"


def _twice(x: float) -> float:
    return 2.0 * x
