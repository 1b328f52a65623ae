"""A tick calls the systems in the order that TICK_ORDER tells."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from townlet.world import tick as module
from townlet.world.tick import TICK_ORDER

SOURCE = Path(module.__file__).read_text()


def systems_of(source: str) -> tuple[str, ...]:
    """The functions that `tick` calls, in the order of its lines; a call within another statement has no place there."""
    (tick,) = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == "tick"]
    calls = [node for node in ast.walk(tick) if isinstance(node, ast.Call)]
    plain = [line.value for line in tick.body if isinstance(line, ast.Expr) and isinstance(line.value, ast.Call)]
    assert len(calls) == len(plain), "tick calls something within another statement"
    return tuple(ast.unparse(call.func) for call in plain)


def test_a_tick_calls_the_systems_in_the_order_it_tells() -> None:
    assert systems_of(SOURCE) == TICK_ORDER


@pytest.mark.parametrize("place", range(len(TICK_ORDER) - 1))
def test_two_calls_swapped_or_one_missing_are_noticed(place: int) -> None:
    """The test above can fail: on the sources of a tick that was tampered with."""
    lines = SOURCE.splitlines()
    body = next(i for i, line in enumerate(lines) if line.startswith("def tick("))
    at = {name: next(i for i in range(body, len(lines)) if lines[i].startswith(f"    {name}(")) for name in TICK_ORDER}
    first, second = at[TICK_ORDER[place]], at[TICK_ORDER[place + 1]]
    swapped = [*lines]
    swapped[first], swapped[second] = lines[second], lines[first]
    assert systems_of("\n".join(swapped)) != TICK_ORDER
    assert systems_of("\n".join(lines[:first] + lines[first + 1 :])) != TICK_ORDER
