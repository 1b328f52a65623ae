"""The rules between packages: imports point down, each optional package has one door, small modules stay small.

Every import counts, also one inside a function or under TYPE_CHECKING, and there is no list of exceptions.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from places import ROOT

SOURCE = ROOT / "src" / "townlet"

# From the top down, as the guide shows them. A module sees its own package and the lines below, not its neighbours on the line.
GUIDE = (ROOT / "docs" / "ARCHITECTURE_INTERFACES.md").read_text(encoding="utf-8")
SHOWN = GUIDE.partition("## Layers")[2].partition("```text\n")[2].partition("```")[0].splitlines()
LAYERS = ["__main__", f"{SHOWN[0][:36]} __init__", *(line[:36] for line in SHOWN[1:])]  # names, then what they hold
DOORS = {  # package -> the modules that may import it
    "torch": {
        "policy.models",
        "policy.training.autograd",
        "policy.training.numerics",
        "policy.training.learner",
        "policy.training.offline",
    },
    "ray": {"envs.rllib", "policy.ray_engine"},
    "matplotlib": {"telemetry.plot", "bench.roof"},
    "starlette": {"observer.app"},
    "uvicorn": {"observer.app"},
    "llvmlite": {"engine.wasm", "envs.threads", "policy.arithmetic", "world._jit"},
    "numba": {"world._jit", "world._cache", "world._compiler", "envs.threads", "policy.arithmetic"},
    "click": {"cli"},
    "yaml": {"config.loader"},
    "scipy": {"statistics", "studies.bound"},
    "tensorboardX": {"telemetry.export"},
}
MOST_LINES = {"policy/training/orchestrator.py": 150} | {
    f"policy/training/strategies/{name}.py": 200 for name in ("base", "bc", "ppo", "offline", "anneal")
}

MODULES = {
    path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
}
LEVEL = {name: level for level, line in enumerate(reversed(LAYERS)) for name in line.split()}


def part_of(module: str) -> str:
    """The entry of LAYERS a module belongs to: the longest that is a prefix."""
    found = [name for name in LEVEL if module == name or module.startswith(f"{name}.")]
    assert found, f"{module} stands in no line of LAYERS; put it where it belongs"
    return max(found, key=len)


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def imports(path: Path, module: str) -> Iterator[tuple[str, int]]:
    """Every module a file names in an import, in full, with the line."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(parsed(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = ["townlet", *package.split(".")]
                base = ".".join([*above[: len(above) - node.level + 1], *([base] if base else [])])
            if base != "townlet":
                yield base, node.lineno
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)
        elif (
            isinstance(node, ast.Call)
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, str)
            and name_called(node) in ("import_module", "__import__", "require")
        ):
            yield node.args[0].value, node.lineno


def name_called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


def own(name: str) -> str | None:
    """The module of ours that an imported name is or belongs to."""
    if name == "townlet":
        return "__init__"
    if not name.startswith("townlet."):
        return None
    inner = name.removeprefix("townlet.")
    while inner and inner not in MODULES:
        inner = inner.rpartition(".")[0]
    return inner or "__init__"


def uphill() -> list[str]:
    found = []
    for module, path in MODULES.items():
        here = part_of(module)
        for name, line in imports(path, module):
            target = own(name)
            if target is None or name == "townlet.__version__":
                continue
            there = part_of(target)
            if there != here and LEVEL[there] >= LEVEL[here]:
                found.append(f"{path.relative_to(ROOT)}:{line}: {module} may not see {target}")
    return found


def test_imports_point_down() -> None:
    assert uphill() == []


def through_the_wall() -> list[str]:
    found = []
    for module, path in MODULES.items():
        for name, line in imports(path, module):
            doors = DOORS.get(name.partition(".")[0])
            if doors is not None and module not in doors and module.partition(".")[0] not in doors:
                found.append(f"{path.relative_to(ROOT)}:{line}: {module} may not import {name}")
    return found


def test_each_optional_package_has_one_door() -> None:
    assert through_the_wall() == []


def test_the_rules_see_every_kind_of_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks find a wrong import at the top, inside a function, under TYPE_CHECKING, relative, by name and by `require`."""
    lines = [
        "from townlet.cli import app",
        "def f():\n    import townlet.observer.report",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from townlet.policy.training import orchestrator",
        "from ..policy import replay",
        "import importlib\nimportlib.import_module('townlet.sim.loop')",
        "from townlet import world",
        "import torch.nn",
        "require('matplotlib', 'plots')",
    ]
    wrong = tmp_path / "wrong.py"
    for module in ("cli.app", "observer.report", "policy.training.orchestrator", "policy.replay", "sim.loop", "world.tick"):
        monkeypatch.setitem(MODULES, module, wrong)
        for above in (module.rpartition(".")[0], module.partition(".")[0]):
            monkeypatch.setitem(MODULES, above, wrong)
    for text in lines:
        wrong.write_text(text + "\n")
        named = list(imports(wrong, "telemetry.ndjson"))
        bad = [name for name, _ in named if (target := own(name)) is not None and LEVEL[part_of(target)] >= LEVEL["telemetry"]]
        walls = [name for name, _ in named if name.partition(".")[0] in DOORS]
        assert bad or walls, text


def test_the_layers_name_every_module_and_nothing_else() -> None:
    assert LEVEL["cli"] > LEVEL["policy.training"] > LEVEL["policy"] > LEVEL["world"] > LEVEL["config"] > LEVEL["errors"]
    assert {part_of(module) for module in MODULES} == set(LEVEL)


@pytest.mark.parametrize("name", MOST_LINES)
def test_orchestrator_and_strategies_stay_small(name: str) -> None:
    path = SOURCE / name
    assert path.is_file(), f"{name} is missing"
    lines = len(path.read_text().splitlines())
    assert lines < MOST_LINES[name], f"{name} has {lines} lines"


def test_importing_townlet_loads_nothing_heavy() -> None:
    heavy = sorted({*DOORS, "numpy", "pydantic", "msgspec", "pettingzoo", "gymnasium", "rich", "safetensors"})
    code = f"import sys, townlet; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(SOURCE.parent)}
    )
    assert result.stdout.strip() == "[]"


WRITES = {"write_bytes", "write_text", "touch", "unlink", "rename", "symlink_to", "fsync", "savez", "savez_compressed", "savefig"}


def test_only_files_writes_files() -> None:
    """No `open(…, "w")` and no `path.write_text` outside files.py; its own functions are called by name."""
    found = []
    for module, path in MODULES.items():
        if module == "files":
            continue
        for node in ast.walk(parsed(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = name_called(node)
            texts = [
                argument.value for argument in node.args if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            ]
            by_files = isinstance(node.func, ast.Name) or (
                isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "files"
            )
            if (called == "open" and any(set(text) <= set("wax+bt") and set(text) & set("wax+") for text in texts)) or (
                called in WRITES and not by_files
            ):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)[:80]}")
    assert found == []


def test_one_loop_steps_the_towns() -> None:
    """Whoever wants something of a running town is a hook or a caller of `sim.loop`; environments have a `step` of their own."""
    found = []
    for module, path in MODULES.items():
        if part_of(module) == "envs":
            continue
        for node in ast.walk(parsed(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step" and node.args:
                receiver = ast.unparse(node.func.value)
                if not receiver.endswith(("network", "optimizer")):  # whatever a town may be called
                    found.append(f"{module}:{receiver}.step")
    assert found == ["sim.loop:self.vec.step"]


def test_no_two_classes_have_one_name() -> None:
    """A word that means two things makes a reader open the wrong file; private ones are their module's own business."""
    homes: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in parsed(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


PROPER = ("Numba", "Ctrl-C", "JSON", "SHA")  # words that are always written so


def words_of(node: ast.expr) -> str:
    """A text as it stands in the source, `{}` for what is filled in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(words_of(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return words_of(node.left) + words_of(node.right)
    return str(node.value) if isinstance(node, ast.Constant) else "{}"


def test_an_error_is_what_follows_townlet_and_a_colon() -> None:
    """So it begins with a small letter, and ends without a full stop."""
    trees = [(module, ast.parse(path.read_text(encoding="utf-8"))) for module, path in MODULES.items()]
    ours = {"TownletError"}
    for _ in range(3):  # classes below classes
        ours |= {
            node.name
            for _, tree in trees
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and any(isinstance(base, ast.Name) and base.id in ours for base in node.bases)
        }
    said = {
        f"{module}:{node.lineno}": words_of(node.args[0])
        for module, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and node.args
        and getattr(node.func, "id", getattr(node.func, "attr", "")) in {*ours, "fail"}
    }
    assert len(said) > 400
    apart = {
        place: words
        for place, words in said.items()
        if (words[:1].isupper() and words[1:2].islower() and not words.startswith(PROPER)) or words.endswith(".")
    }
    assert not apart
