"""A config file as a tree that remembers where each value stands, so that a message can name file and line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from townlet.errors import ConfigError

MAX_NODES = 200_000  # after aliases are expanded
MAX_DEPTH = 64


@dataclass(frozen=True)
class SourceLine:
    """Where a value was written: a line of a file, or an override (line 0)."""

    name: str
    line: int = 0
    folder: Path | None = None

    def __str__(self) -> str:
        return f"{self.name}:{self.line}" if self.line else self.name


@dataclass(eq=False)
class Node:
    value: Any  # dict[str, Node], list[Node] or a scalar
    source: SourceLine


def plain(node: Node) -> object:
    """The tree as dicts, lists and scalars; refuses one that aliases make too large."""
    seen = 0

    def expand(current: Node, depth: int) -> object:
        nonlocal seen
        seen += 1
        if seen > MAX_NODES or depth > MAX_DEPTH:
            found = f"more than {MAX_NODES} values" if depth <= MAX_DEPTH else f"more than {MAX_DEPTH} levels"
            raise ConfigError(f"{current.source}: the file means {found} once its aliases are expanded; write it without aliases")
        if isinstance(current.value, dict):
            return {key: expand(child, depth + 1) for key, child in current.value.items()}
        if isinstance(current.value, list):
            return [expand(child, depth + 1) for child in current.value]
        return current.value

    return expand(node, 0)


def merge(base: Node, over: Node) -> Node:
    """`over` merged over `base`: mappings key by key, everything else whole."""
    if isinstance(base.value, dict) and isinstance(over.value, dict):
        merged = dict(base.value)
        for key, child in over.value.items():
            merged[key] = merge(merged[key], child) if key in merged else child
        return Node(merged, over.source)
    return over


def locate(node: Node, path: Sequence[str | int]) -> tuple[Node, tuple[str | int, ...]]:
    """The deepest node on the path that exists, and the path to it without the parts that lead nowhere."""
    walked: list[str | int] = []
    for part in path:
        value = node.value
        inside = (
            part in value if isinstance(value, dict) else isinstance(value, list) and isinstance(part, int) and part < len(value)
        )
        if inside:
            node = value[part]
            walked.append(part)
    return node, tuple(walked)


def replace(node: Node, path: Sequence[str], value: Node) -> Node:
    """The tree with one value set; mappings on the way are made, list items must exist."""
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(node.value, list):
        if not head.isdecimal() or int(head) >= len(node.value):
            raise ConfigError(f"{value.source}: {head!r} is not an item of a list of {len(node.value)}; count from 0")
        items = list(node.value)
        items[int(head)] = replace(items[int(head)], rest, value)
        return Node(items, node.source)
    if node.value is not None and not isinstance(node.value, dict):
        raise ConfigError(f"{value.source}: {head!r} cannot be set, because its parent is the single value {node.value!r}")
    children = dict(node.value or {})
    children[head] = replace(children.get(head, Node({}, value.source)), rest, value)
    return Node(children, node.source)
