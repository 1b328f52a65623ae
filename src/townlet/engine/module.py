"""The WebAssembly module: built from the bitcode of the compiled kernels and cached beside it."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import numpy as np

from townlet.engine import wasm
from townlet.engine.image import calls_of
from townlet.engine.network import KernelWeights
from townlet.envs.vector import VectorTown
from townlet.errors import StorageError
from townlet.files import write_bytes
from townlet.world._cache import cache_folder, tell
from townlet.world._jit import portable

SMALL_TOWN = "queue_conflict"  # entries take the same types of every town


def module_path() -> Path:
    """One file per version of the kernels and of what makes a module of them."""
    made_by = hashlib.sha256(Path(wasm.__file__).read_bytes()).hexdigest()[:8]
    return cache_folder() / f"engine-{made_by}.wasm"


_building = threading.Lock()


def engine_module() -> bytes:
    """The module for this version of the kernels, built where it is not there."""
    with _building:
        path = module_path()
        if path.exists():
            return path.read_bytes()
        tell("building the engine for the browser, once per version: about 15 s …")
        module = build_module()
        try:
            write_bytes(path, module)
        except StorageError as reason:
            tell(f"{reason}; until then the engine is built every time")
        return module


def build_module() -> bytes:
    vec = VectorTown(SMALL_TOWN, 1)
    some = KernelWeights(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.float32), np.zeros((3, 1), np.float32))
    calls, _ = calls_of(vec, {"some": some}, seed=0)
    return wasm.assemble({call.name: portable(call.entry, call.args) for call in calls.values()})
