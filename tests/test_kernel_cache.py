"""Numba keeps compiled code per file; ours is kept per state of all kernel files, so that no caller runs an old callee."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import townlet
from townlet.observations.encode import squash
from townlet.world import _jit

CALLER = """
from townlet.world import _jit
from townlet.world._jit import entry
from townlet.world.systems.relationships import clamp


@entry
def doubled(x: float) -> float:
    return 2.0 * clamp(x, 0.0, 1.0)


if __name__ == "__main__":
    print(doubled(0.25), _jit.WARM, len(list(_jit.cache_folder().parent.iterdir())))
    _jit.mark_warm()
"""


def test_every_kernel_file_is_in_the_name_of_the_cache() -> None:
    package = Path(townlet.__file__).parent
    kernels = {path for path in package.rglob("*.py") if "@kernel" in path.read_text() or "@entry" in path.read_text()}
    assert kernels <= set(_jit.kernel_sources())


@pytest.mark.slow
def test_an_edited_callee_in_another_file_is_seen_by_its_caller(tmp_path: Path) -> None:
    shutil.copytree(Path(townlet.__file__).parent, tmp_path / "src" / "townlet", ignore=shutil.ignore_patterns("__pycache__"))
    package = tmp_path / "src" / "townlet"
    (package / "world" / "caller.py").write_text(CALLER)

    def run() -> list[str]:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        environment.pop("NUMBA_DISABLE_JIT", None)
        done = subprocess.run(
            [sys.executable, "-m", "townlet.world.caller"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        return done.stdout.split()

    (tmp_path / "cache" / "townlet").mkdir(parents=True)
    assert run()[:2] == ["0.5", "False"]
    assert run()[:2] == ["0.5", "True"]
    callee = package / "world" / "systems" / "relationships.py"
    text = callee.read_text()
    assert "return min(max(x, low), high)" in text
    callee.write_text(text.replace("return min(max(x, low), high)", "return min(max(x, low), high) + 1.0"))
    assert run()[:2] == ["2.5", "False"]
    callee.write_text(text)
    assert run()[:2] == ["0.5", "True"]


def test_old_caches_are_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    root = tmp_path / "townlet"
    for number in range(_jit.KEPT_CACHES + 3):
        (root / f"old{number}").mkdir(parents=True)
        os.utime(root / f"old{number}", (number, number))
    _jit._prune(_jit.cache_folder())
    left = sorted(path.name for path in root.iterdir())
    assert len(left) == _jit.KEPT_CACHES - 1
    assert "old0" not in left
    assert f"old{_jit.KEPT_CACHES + 2}" in left


@pytest.mark.skipif(not _jit.JIT, reason="uncompiled, a kernel is a plain function")
def test_python_cannot_call_what_has_no_machine_code() -> None:
    with pytest.raises(TypeError, match="squash is a kernel: it is compiled into entries, and Python can call those only"):
        squash(1.0, 2.0)


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
