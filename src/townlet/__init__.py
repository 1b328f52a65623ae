"""Townlet: a fast, deterministic small town, and the pipeline that turns it into trained, measured, promoted policies."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.2.0"

_LAZY = {
    "parallel_env": "townlet.envs.parallel",
    "make_vec": "townlet.envs.vector",
    "VectorTown": "townlet.envs.vector",
    "load_config": "townlet.config.loader",
}
__all__ = ["VectorTown", "__version__", "load_config", "make_vec", "parallel_env"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'townlet' has no attribute {name!r}")
