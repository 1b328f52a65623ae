"""Preconditions: a small safe language (comparisons, and / or / not, names, numbers), compiled once to rows of the kernel.

power and stock >= 2 and meals <= 4
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from townlet.config.needs import OWN_NAMES, TOWN_NAMES
from townlet.errors import ConfigError
from townlet.world.state import PROGRAM_ROWS
from townlet.world.systems.affordances import (
    OP_AND,
    OP_EQ,
    OP_GE,
    OP_GT,
    OP_LE,
    OP_LT,
    OP_NE,
    OP_NOT,
    OP_OR,
)

NUMBER = -1  # in place of a name
_COMPARE = {ast.Lt: OP_LT, ast.LtE: OP_LE, ast.Gt: OP_GT, ast.GtE: OP_GE, ast.Eq: OP_EQ, ast.NotEq: OP_NE}


class Row(NamedTuple):
    """A comparison pushes its truth; `not`, `and`, `or` work on what was pushed."""

    op: int
    left: int = NUMBER
    right: int = NUMBER
    left_number: float = 0.0
    right_number: float = 0.0


Program = list[Row]


def names_of(needs: tuple[str, ...]) -> tuple[str, ...]:
    """What may be named, in the order `systems.affordances.value_of` knows: of town and object, of the resident, its needs."""
    return TOWN_NAMES + OWN_NAMES + needs


def parse(text: str, needs: tuple[str, ...]) -> tuple[Program, Program]:
    """The town's part and the resident's part of a precondition; both must hold."""
    if not text.strip():
        return [], []
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"`requires: {text}` cannot be read: expected comparisons joined by and, or, not") from error
    parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
    town: Program = []
    own: Program = []
    known, personal = names_of(needs), set(OWN_NAMES + needs)
    for part in parts:
        rows = _compile(part, text, known)
        names = {known[name] for row in rows for name in (row.left, row.right) if name != NUMBER}
        if names & personal and names & set(TOWN_NAMES):
            raise ConfigError(
                f"`requires: {text}` mixes names of the town ({', '.join(TOWN_NAMES)}) and of the resident "
                f"({', '.join(OWN_NAMES + needs)}) under one `or`; join such parts with `and`"
            )
        both(own if names & personal else town, rows)
    for program in (town, own):
        check_length(program, text)
    return town, own


def both(program: Program, more: Program) -> None:
    """Let `more` hold as well."""
    joined = bool(program)
    program += more
    if joined:
        program.append(Row(OP_AND))


def check_length(program: Program, text: str) -> None:
    if len(program) > PROGRAM_ROWS:
        raise ConfigError(f"`requires: {text}` has {len(program)} parts; at most {PROGRAM_ROWS} are read: shorten it")


def _compile(node: ast.expr, text: str, known: tuple[str, ...]) -> Program:
    if isinstance(node, ast.BoolOp):
        rows = _compile(node.values[0], text, known)
        for value in node.values[1:]:
            rows += [*_compile(value, text, known), Row(OP_AND if isinstance(node.op, ast.And) else OP_OR)]
        return rows
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [*_compile(node.operand, text, known), Row(OP_NOT)]
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
        left, right = _operand(node.left, text, known), _operand(node.comparators[0], text, known)
        return [Row(_COMPARE[type(node.ops[0])], left[0], right[0], left[1], right[1])]
    name, number = _operand(node, text, known)
    return [Row(OP_NE, name, NUMBER, number, 0.0)]


def _operand(node: ast.expr, text: str, known: tuple[str, ...]) -> tuple[int, float]:
    if isinstance(node, ast.Name):
        if node.id not in known:
            raise ConfigError(f"`requires: {text}` names {node.id!r}; known names are {', '.join(known)}")
        return known.index(node.id), 0.0
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return NUMBER, float(node.value)
    raise ConfigError(f"`requires: {text}` holds {ast.unparse(node)!r}; expected comparisons, and / or / not, names, numbers")
