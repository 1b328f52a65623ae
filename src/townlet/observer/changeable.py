"""Numbers of a config that a page can change while its town runs: found by trying, so that none is named here.

A number counts when changing it changes cells of the rules, the affordances or the script's figures, each to the number itself
or to that many ten-thousandths, and nothing else of the town.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import annotated_types
import numpy as np
from pydantic import BaseModel

from townlet.config.models import SimulationConfig
from townlet.envs.vector import VectorTown
from townlet.errors import ScenarioError
from townlet.scenarios.compile import compile_plan, read_plan
from townlet.types import Array, Record
from townlet.world.rules import make_affordances, make_rules
from townlet.world.state import MONEY, Layout
from townlet.world.townspeople import make_script

LEFT_OUT = ("scenario", "policy", "world", "observations", "ppo", "training", "evaluation")  # they make another town, or none
TRIED = (2.0, 3.0)  # times the number; of 0: added to it
Cell = tuple[str, int, str, int]  # table, row, field, number in it


def rules_to_change(config: SimulationConfig, vec: VectorTown) -> list[Record]:
    """For each such number its key, value, range and the cells it is written to."""
    tables = _tables(config, vec)
    found = {}
    for path, value, low, high in _numbers(config, ()):
        cells = _cells(config, vec, tables, path, value)
        if cells:
            found[path] = (value, low, high, cells)
    kept = _of_the_rules_alone(config, sorted(found), vec.towns[0].layout)
    return [
        {
            "key": ".".join(path),
            "value": value,
            "low": low,
            "high": high,
            "whole": isinstance(value, int),
            "cells": [{"table": t, "row": row, "field": field, "k": k, "scale": scale} for (t, row, field, k), scale in cells],
        }
        for path, (value, low, high, cells) in ((path, found[path]) for path in kept)
    ]


def _numbers(model: BaseModel, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float, float | None, float | None]]:
    """Every number of a config with its range."""
    for name, field in type(model).model_fields.items():
        value = model.__dict__[name]
        if not path and name in LEFT_OUT:
            continue
        if isinstance(value, BaseModel):
            yield from _numbers(value, (*path, name))
        elif isinstance(value, dict):
            for key, one in value.items():
                if isinstance(one, BaseModel):
                    yield from _numbers(one, (*path, name, str(key)))
        elif type(value) in (int, float):
            low = high = None
            for limit in field.metadata:
                match limit:
                    case annotated_types.Ge(ge=float(edge) | int(edge)):
                        low = float(edge)
                    case annotated_types.Gt(gt=float(edge) | int(edge)):
                        low = math.nextafter(edge, math.inf)
                    case annotated_types.Le(le=float(edge) | int(edge)):
                        high = float(edge)
                    case annotated_types.Lt(lt=float(edge) | int(edge)):
                        high = math.nextafter(edge, -math.inf)
                    case _:
                        pass
            yield (*path, name), value, low, high


def _changed(model: Any, path: tuple[str, ...], value: float) -> Any:
    """A copy with one number changed; it is only looked at, so it is not checked."""
    if isinstance(model, dict):
        return model | {path[0]: value if len(path) == 1 else _changed(model[path[0]], path[1:], value)}
    inner = value if len(path) == 1 else _changed(model.__dict__[path[0]], path[1:], value)
    return model.model_copy(update={path[0]: inner})


def _others(value: float) -> list[float]:
    kind = type(value)
    return [kind(value * by) if value else kind(np.ceil(by)) for by in TRIED]


def _tables(config: SimulationConfig, vec: VectorTown) -> dict[str, Array]:
    tables = {"tables.rules": make_rules(config), "tables.affordances": make_affordances(config)}
    if not vec.primitive:
        script = make_script(config, vec.spec.feature_names, vec.catalogue.names)
        tables |= {f"script.{name}": array for name, array in script._asdict().items()}
    return tables


def _cells(
    config: SimulationConfig, vec: VectorTown, tables: dict[str, Array], path: tuple[str, ...], value: float
) -> list[tuple[Cell, int]]:
    """Where a number is written, and times what; nothing where it is written in any other way."""
    scales: dict[Cell, int] = {}
    for number in [other for other in _others(value) if other != value]:
        after = _tables(_changed(config, path, number), vec)
        for cell, now in _differences(tables, after):
            scale = 1 if now == number else MONEY if now == round(number * MONEY) else 0
            if not scale or scales.setdefault(cell, scale) != scale:
                return []
    for (table, row, field, k), scale in scales.items():
        now = np.ravel(tables[table][row][field])[k]
        if now != (value if scale == 1 else round(value * MONEY)):
            return []
    return list(scales.items())


def _differences(before: dict[str, Array], after: dict[str, Array]) -> Iterator[tuple[Cell, Any]]:
    for name, array in before.items():
        if array.tobytes() == after[name].tobytes():
            continue
        for row in range(len(array)):
            for field in array.dtype.names or ():
                was, now = np.ravel(array[row][field]), np.ravel(after[name][row][field])
                for k in np.flatnonzero(was != now).tolist():
                    yield (name, row, field, k), now[k]


def _of_the_rules_alone(config: SimulationConfig, paths: list[tuple[str, ...]], layout: Layout) -> list[tuple[str, ...]]:
    """Those that leave map, people and ties as they are: all are changed at once, and halved where that is not so."""
    changed = config
    for path in paths:
        value: Any = config
        for name in path:
            value = value[name] if isinstance(value, dict) else value.__dict__[name]
        changed = _changed(changed, path, max(_others(value)))
    try:
        other = compile_plan(read_plan(changed), changed, nearest=layout.nearest).layout  # no number moves a thing
        same = all(one.tobytes() == two.tobytes() for one, two in zip(layout, other))
    except ScenarioError:
        same = False
    if same or not paths:
        return paths
    half = len(paths) // 2
    return (
        []
        if len(paths) == 1
        else [path for part in (paths[:half], paths[half:]) for path in _of_the_rules_alone(config, part, layout)]
    )
