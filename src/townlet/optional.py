"""The only place that knows which packages are optional, and the line that installs each."""

from __future__ import annotations

import platform
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from types import ModuleType

from townlet import __version__
from townlet.errors import MissingPackageError, TorchNotAvailableError

EXTRA_OF = {
    "torch": "ml",
    "matplotlib": "plot",
    "pyarrow": "data",
    "minari": "data",
    "tensorboardX": "data",
    "pandas": "data",
    "flashbax": "vault",
    "stable_baselines3": "bench",
    "sb3_contrib": "bench",
    "supersuit": "bench",
    "jaxmarl": "bench",
    "starlette": "observer",
    "uvicorn": "observer",
    "ray": "dist",
}


def installed(name: str) -> bool:
    """A folder of that name on the path (a namespace package, which has no origin) is not the package."""
    spec = find_spec(name)
    return spec is not None and spec.origin is not None


def torch_available() -> bool:
    return installed("torch")


def versions(*packages: str) -> dict[str, str]:
    """Of Townlet, Python and packages that are there: what a result was made with."""
    return {"townlet": __version__, "python": platform.python_version()} | {name: version(name) for name in packages}


def install_line(name: str) -> str:
    """With the extra that brings the package, or the package alone where none does (wandb, mlflow)."""
    return f"pip install 'townlet[{EXTRA_OF[name]}]'" if name in EXTRA_OF else f"pip install {name}"


def check_installed(name: str, why: str) -> None:
    """One sentence that says what a missing package is needed for and how to install it."""
    if not installed(name):
        kind = TorchNotAvailableError if name == "torch" else MissingPackageError
        raise kind(f"{why} needs {name}, which is not installed; install it with: {install_line(name)}")


def require(name: str, why: str) -> ModuleType:
    """The module, or the sentence about it."""
    check_installed(name, why)
    try:
        return import_module(name)
    except ValueError as error:  # what a variable such as MPLBACKEND says is no value of it
        told = f"{why} needs {name}, which does not start: {error}; check its variables in the environment"
        raise MissingPackageError(told) from None
