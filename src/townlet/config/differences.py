"""In what configs differ, key by key."""

from __future__ import annotations

from collections.abc import Sequence

from townlet.config.models import SimulationConfig

ABSENT = "–"


def differences(configs: Sequence[SimulationConfig]) -> dict[str, list[object]]:
    """Key → its value in each config, wherever they differ; lists are compared by id or place, maps row by row."""
    found: dict[str, list[object]] = {}
    _walk("", [config.model_dump(mode="json") for config in configs], found)
    return found


def _walk(path: str, values: list[object], found: dict[str, list[object]]) -> None:
    if all(value == values[0] for value in values):
        return
    mappings = [value for value in values if isinstance(value, dict)]
    lists = [value for value in values if isinstance(value, list)]
    pictures = [value for value in values if isinstance(value, str) and "\n" in value]
    if len(mappings) == len(values):
        for key in dict.fromkeys(key for one in mappings for key in one):
            _walk(f"{path}.{key}" if path else str(key), [one.get(key, ABSENT) for one in mappings], found)
    elif len(lists) == len(values):
        for i in range(max(len(one) for one in lists)):
            items = [one[i] if i < len(one) else ABSENT for one in lists]
            _walk(f"{path}[{_label(items, i)}]", items, found)
    elif len(pictures) == len(values):
        _walk(path, [one.rstrip("\n").split("\n") for one in pictures], found)
    else:
        found[path] = values


def _label(items: list[object], i: int) -> str:
    """A list entry by its id where all sides agree on it, else by its place."""
    names = {item["id"] for item in items if isinstance(item, dict) and item.get("id")}
    return names.pop() if len(names) == 1 else str(i)
