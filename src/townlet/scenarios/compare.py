"""In what two configs differ, key by key."""

from __future__ import annotations

from townlet.config.models import SimulationConfig

ABSENT = "–"


def differences(first: SimulationConfig, second: SimulationConfig) -> list[tuple[str, str, str]]:
    """(key, value in the first, value in the second) wherever they differ; maps are compared row by row."""
    found: list[tuple[str, str, str]] = []
    _walk("", first.model_dump(mode="json"), second.model_dump(mode="json"), found)
    return found


def _walk(path: str, one: object, other: object, found: list[tuple[str, str, str]]) -> None:
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            _walk(f"{path}.{key}" if path else str(key), one.get(key, ABSENT), other.get(key, ABSENT), found)
    elif isinstance(one, list) and isinstance(other, list):
        for i in range(max(len(one), len(other))):
            a, b = (rows[i] if i < len(rows) else ABSENT for rows in (one, other))
            _walk(f"{path}[{_label(a, b, i)}]", a, b, found)
    elif isinstance(one, str) and isinstance(other, str) and "\n" in one and "\n" in other:
        _walk(path, one.rstrip("\n").split("\n"), other.rstrip("\n").split("\n"), found)
    else:
        found.append((path, _short(one), _short(other)))


def _label(one: object, other: object, i: int) -> str:
    """A list entry by its id where both sides agree on it, else by its place."""
    names = {item["id"] for item in (one, other) if isinstance(item, dict) and item.get("id")}
    return names.pop() if len(names) == 1 else str(i)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "…"
