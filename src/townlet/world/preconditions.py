"""Preconditions: a small safe language (comparisons, and / or / not, names, numbers) compiled once to PROGRAM rows.

    power and stock >= 2        not blackout-like calls, no attributes, nothing else
"""

from __future__ import annotations

import ast

from townlet.errors import ConfigError
from townlet.world.systems.affordances import (
    OP_AND,
    OP_CONSTANT,
    OP_EQ,
    OP_GE,
    OP_GT,
    OP_LE,
    OP_LT,
    OP_NAME,
    OP_NE,
    OP_NOT,
    OP_OR,
    OWN_NAMES,
    STACK,
    TOWN_NAMES,
)

NAMES = TOWN_NAMES + OWN_NAMES
_COMPARE = {ast.Lt: OP_LT, ast.LtE: OP_LE, ast.Gt: OP_GT, ast.GtE: OP_GE, ast.Eq: OP_EQ, ast.NotEq: OP_NE}
Program = list[tuple[int, float]]


def parse(text: str) -> tuple[Program, Program]:
    """The town's part and the resident's part of a precondition, each as postfix rows; both must hold."""
    if not text.strip():
        return [], []
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"the precondition {text!r} cannot be read: expected comparisons joined by and, or, not") from error
    parts = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
    town: Program = []
    own: Program = []
    for part in parts:
        rows = _compile(part, text)
        names = {NAMES[int(arg)] for op, arg in rows if op == OP_NAME}
        side = own if names & set(OWN_NAMES) else town
        if side is own and names & set(TOWN_NAMES):
            raise ConfigError(
                f"the precondition {text!r} mixes names of the town ({', '.join(TOWN_NAMES)}) and of the resident "
                f"({', '.join(OWN_NAMES)}) under one `or`; join such parts with `and`"
            )
        side += rows
        if len(side) > len(rows):
            side.append((OP_AND, 0.0))
    for program in (town, own):
        if _depth(program) > STACK:
            raise ConfigError(f"the precondition {text!r} is too long; split it")
    return town, own


def _compile(node: ast.expr, text: str) -> Program:
    if isinstance(node, ast.BoolOp):
        rows = _compile(node.values[0], text)
        for value in node.values[1:]:
            rows += [*_compile(value, text), (OP_AND if isinstance(node.op, ast.And) else OP_OR, 0.0)]
        return rows
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [*_compile(node.operand, text), (OP_NOT, 0.0)]
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
        return [*_compile(node.left, text), *_compile(node.comparators[0], text), (_COMPARE[type(node.ops[0])], 0.0)]
    if isinstance(node, ast.Name):
        if node.id not in NAMES:
            raise ConfigError(f"the precondition {text!r} names {node.id!r}; known names are {', '.join(NAMES)}")
        return [(OP_NAME, float(NAMES.index(node.id)))]
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return [(OP_CONSTANT, float(node.value))]
    raise ConfigError(f"the precondition {text!r} holds {ast.unparse(node)!r}; expected comparisons, and / or / not, names, numbers")


def _depth(program: Program) -> int:
    depth = most = 0
    for op, _ in program:
        depth += 1 if op in (OP_CONSTANT, OP_NAME) else (0 if op == OP_NOT else -1)
        most = max(most, depth)
    return most
