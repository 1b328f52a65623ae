"""The engine in a browser: the same digests natively, in Node and in Chromium."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import engine_tools
from engine_tools import digests_in_chromium, digests_in_node, native_digests, runs_of, write_runs
from townlet.config.loader import shipped_configs
from townlet.engine.module import engine_module
from townlet.envs.vector import VectorTown

DAYS = 3


def test_a_browser_ends_with_the_digest_of_the_native_town(tmp_path: Path, chromium: Any) -> None:
    runs = runs_of(["newcomer"], [3], 60)
    write_runs(tmp_path, engine_module(), runs)
    assert digests_in_chromium(chromium, tmp_path) == native_digests(runs)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", sorted(shipped_configs()))
def test_every_shipped_town_is_the_same_natively_in_node_and_in_a_browser(
    tmp_path: Path, chromium: Any, name: str, seed: int
) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    runs = runs_of([name], [seed], DAYS * 1440 // VectorTown(name, 1).interval)
    write_runs(tmp_path, engine_module(), runs)
    expected = native_digests(runs)
    assert len(set(expected)) == 2
    assert digests_in_node(tmp_path) == expected
    assert digests_in_chromium(chromium, tmp_path) == expected


@pytest.mark.slow
def test_one_digest_on_every_processor_on_two_threads_uncompiled_and_in_browsers(tmp_path: Path, chromium: Any) -> None:
    run: dict[str, Any] = {"town": "queue_conflict", "policy": "scripted", "seeds": [3], "decisions": 60}
    write_runs(tmp_path, engine_module(), [run])
    names = ["generic", "x86-64-v3", *(["x86-64-v4"] if "avx512f" in Path("/proc/cpuinfo").read_text() else [])]
    processors = {name: {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": ""} for name in names}
    ways: dict[str, tuple[int, dict[str, str]]] = {name: (1, words) for name, words in processors.items()}
    ways |= {"as it is": (1, {}), "two threads": (2, {}), "uncompiled": (1, {"NUMBA_DISABLE_JIT": "1"})}
    found = {"Chromium": digests_in_chromium(chromium, tmp_path)[0], "Node": digests_in_node(tmp_path)[0]}
    for name, (threads, words) in ways.items():
        command = [sys.executable, engine_tools.__file__, "queue_conflict", "scripted", "3", "60", str(threads)]
        done = subprocess.run(command, env=os.environ | words, capture_output=True, text=True, check=True)
        found[name] = done.stdout.strip()
    print("\n".join(f"{name}: {digest}" for name, digest in found.items()))
    assert len(set(found.values())) == 1, found
