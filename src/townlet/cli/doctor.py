"""`townlet doctor`."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from townlet import __version__
from townlet.cli.common import emit, json_option, leave
from townlet.optional import EXTRA_OF, install_line, installed
from townlet.types import Record

BASE = (
    *("numpy", "scipy", "numba", "pillow", "pydantic", "msgspec", "PyYAML", "click", "rich", "gymnasium", "pettingzoo"),
    "safetensors",
)
DISTRIBUTION = {"stable_baselines3": "stable-baselines3", "sb3_contrib": "sb3-contrib", "supersuit": "SuperSuit"}
GIVES = {  # extra -> what works with it
    "ml": "training (townlet train, ablate, study)",
    "plot": "figures (curves.png of a run, telemetry plot --output, evaluate --png)",
    "data": "exports (townlet replay export, telemetry export)",
    "bench": "comparisons with other trainers (townlet bench train)",
    "observer": "the server of townlet observe; --save works without it",
    "vault": "joint episodes for OG-MARL (townlet replay export --format vault)",
    "dist": "more than one machine (--engine ray)",
}
TOOLS = {  # extra -> what it is for, and its distributions; Townlet itself never imports these
    "docs": ("the site and its notebook (make docs)", ("mkdocs", "nbmake", "ipykernel", "duckdb")),
    "dev": (
        "checks and tests (make check, make test)",
        ("pytest", "pytest-randomly", "pytest-xdist", "hypothesis", "ruff", "mypy"),
    ),
}


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Look at this machine: Python, packages, what works, and the line that installs the rest.

    Exits with 1 when Townlet itself cannot run.

    \b
    Example:
      townlet doctor --json
    """
    report = examine()
    emit(report, lambda: describe(report), as_json)
    leave(0 if report["ok"] else 1)


def examine() -> dict[str, object]:
    base = {name: _version(name) for name in BASE}
    packages = {name: _version(DISTRIBUTION.get(name, name)) if installed(name) else None for name in EXTRA_OF}
    groups = {extra: [name for name, of in EXTRA_OF.items() if of == extra] for extra in dict.fromkeys(EXTRA_OF.values())}
    extras = {
        extra: _extra(GIVES[extra], {name: packages[name] for name in names}, install_line(names[0]))
        for extra, names in groups.items()
    }
    tools = {
        extra: _extra(gives, {name: _version(name) for name in names}, f"pip install 'townlet[{extra}]'")
        for extra, (gives, names) in TOOLS.items()
    }
    missing = [extra for extra, part in (extras | tools).items() if not part["ok"]]
    return {
        "townlet": __version__,
        "python": platform.python_version(),
        "python_ok": sys.version_info >= (3, 11),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "base": base,
        "extras": extras,
        "tools": tools,
        "install": f"pip install 'townlet[{','.join(missing)}]'" if missing else None,
        "bfloat16": _bfloat16(),
        "kernel_cache": _cache(),
        "compiled": os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0"),
        "ok": sys.version_info >= (3, 11) and all(base.values()),
    }


def _extra(gives: str, packages: dict[str, str | None], install: str) -> dict[str, object]:
    return {"packages": packages, "ok": all(packages.values()), "gives": gives, "install": install}


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _cache() -> dict[str, object]:
    """The folder of compiled kernels: where it is, whether it can be written, how large it is."""
    if not (installed("numba") and installed("numpy")):
        return {"folder": None, "writable": False, "megabytes": 0.0}
    from townlet.world._cache import cache_folder

    folder = Path(cache_folder())
    above = next(step for step in (folder, *folder.parents) if step.exists())
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
    return {"folder": str(folder), "writable": os.access(above, os.W_OK), "megabytes": round(size / 1e6, 1)}


def _bfloat16() -> dict[str, object] | None:
    """Whether `ppo.bf16` can be used, and how the try ended when not; None without torch."""
    if not installed("torch"):
        return None
    from townlet.policy.training.bfloat16 import bfloat16_fault

    fault = bfloat16_fault()
    return {"ok": fault is None, "fault": fault}


def describe(report: Record) -> str:
    lines = [f"townlet {report['townlet']}, Python {report['python']}, {report['machine']}", ""]
    if not report["python_ok"]:
        lines.append("Python 3.11 or newer is needed.")
    lines += [f"  {'ok' if found else 'MISSING':8}{name} {found or ''}".rstrip() for name, found in report["base"].items()]
    if not report["ok"]:
        lines += ["", "Townlet cannot run; install what is missing with: pip install townlet (in a clone: make setup)"]
    for extra, part in (report["extras"] | report["tools"]).items():
        lines += ["", f"{extra}: {part['gives']}"]
        lines += [f"  {'ok' if found else 'missing':8}{name} {found or ''}".rstrip() for name, found in part["packages"].items()]
        if not part["ok"]:
            lines.append(f"  install with: {part['install']}")
    short = report["bfloat16"]
    if short is not None:
        works = "works" if short["ok"] else f"does not work here; a test ended with: {short['fault']}"
        lines += ["", f"bfloat16 (ppo.bf16): {works}"]
    cache = report["kernel_cache"]
    if cache["folder"] is not None:
        state = f"{cache['megabytes']} MB" if cache["megabytes"] else "empty: the first run compiles, once, and says so"
        if not cache["writable"]:
            state = "NOT WRITABLE: kernels are compiled at every start; set XDG_CACHE_HOME to a folder of yours"
        lines += ["", f"compiled kernels: {cache['folder']} ({state})"]
    if not report["compiled"]:
        lines += ["NUMBA_DISABLE_JIT is set: everything runs uncompiled and slowly; unset it"]
    missing = f"for all that is missing: {report['install']}" if report["install"] else "nothing is missing"
    return "\n".join([*lines, "", missing])
