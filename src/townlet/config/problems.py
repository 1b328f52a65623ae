"""From what pydantic found to sentences a person can act on."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from townlet.config.base import ID_PATTERN
from townlet.config.tree import Node, locate
from townlet.errors import did_you_mean

Path = tuple[str | int, ...]
_NAME = "a lower-case letter, then lower-case letters, digits and _, at most 32"
_MOVED = {  # keys of earlier versions, and where their figures stand now
    "world.need_decay": "needs.<need>.decay",
    "rewards.needs": "needs.<need>.weight",
    "evaluation.rewards.needs": "evaluation.need_weights",
    "behavior.act_below": "needs.<need>.act_below",
    "lifecycle.collapse_hunger": "needs.hunger.collapse_below",
    "lifecycle.collapse_ticks": "needs.hunger.collapse_ticks",
}
SHOWN = 20  # problems; each costs a search for what was meant
_EXPECTED = {"model_type": "a mapping of keys", "dict_type": "a mapping of keys", "tuple_type": "a list"}


def sentences(found: ValidationError, model: type[BaseModel], tree: Node) -> str:
    """All problems, each with its place; one alone is one sentence."""
    problems = found.errors(include_url=False)
    inside = {problem["loc"][:-1] for problem in problems}
    problems = [  # entries that are wrong themselves were not counted by the list's own length
        problem for problem in problems if problem["type"] != "too_short" or problem["loc"] not in inside
    ]
    lines = list(dict.fromkeys(_sentence(problem, model, tree) for problem in problems[:SHOWN]))
    left = len(problems) - SHOWN
    if len(lines) == 1 and left <= 0:
        return lines[0]
    more = [f"… and {left} more"] if left > 0 else []
    return f"{len(lines) + max(0, left)} problems in the config:\n  " + "\n  ".join(lines + more)


def _sentence(problem: ErrorDetails, model: type[BaseModel], tree: Node) -> str:
    node, path = locate(tree, problem["loc"])
    name = dotted(path)
    kind = problem["type"]
    if kind == "extra_forbidden":
        return f"{node.source}: {name} is not a known key{_hint(path, model)}"
    if kind == "missing":
        full = dotted((*path, problem["loc"][-1]))
        return f"{node.source}: {full} is missing{_meaning((*path, problem['loc'][-1]), model)}"
    if kind == "value_error":
        text = str(problem["ctx"]["error"])
        return f"{node.source}: {name}: {text}" if name else f"{node.source}: {text}"
    if kind == "string_pattern_mismatch" and problem["ctx"]["pattern"] == ID_PATTERN:
        found = problem["input"]
        return f"{node.source}: {name}: {found!r:.60} cannot be a name; expected {_NAME}"
    if kind in ("too_long", "too_short"):
        most, limit = ("most", "max_length") if kind == "too_long" else ("least", "min_length")
        count, found = problem["ctx"][limit], problem["ctx"]["actual_length"]
        return f"{node.source}: {name} has {found} entries; expected at {most} {count}{_meaning(path, model)}"
    message = _EXPECTED.get(kind) or problem["msg"].removeprefix("Input should be ")
    value = "" if isinstance(node.value, dict | list) else f" is {node.value!r:.80}"
    return f"{node.source}: {name or 'the whole file'}{value}; expected {message[0].lower() + message[1:]}{_meaning(path, model)}"


def dotted(path: Sequence[str | int]) -> str:
    text = ""
    for part in path:
        word = f"[{part}]" if isinstance(part, int) else part if part.isprintable() else repr(part)
        text += f".{word}" if text and isinstance(part, str) else word
    return text


def _hint(path: Path, model: type[BaseModel]) -> str:
    word = str(path[-1])
    if dotted(path) in _MOVED:
        return f"; write {_MOVED[dotted(path)]}"
    here = _model_at(path[:-1], model)
    keys = list(here.model_fields) if here is not None else []
    key, colon, value = word.partition(":")
    if colon and key in keys:
        return f"; after a colon comes a space: {key}: {value}".rstrip()
    near = did_you_mean(word, keys)
    if near:
        return f"; {near}"
    elsewhere = [known for known in known_paths(model) if known.rpartition(".")[2] == word]
    if elsewhere:
        return f"; did you mean {elsewhere[0]}?"
    return f"; choose from {', '.join(keys)}" if keys else ""


def _meaning(path: Path, model: type[BaseModel]) -> str:
    here = _model_at(path[:-1], model)
    if here is None or not path or path[-1] not in here.model_fields:
        return ""
    description = here.model_fields[str(path[-1])].description or ""
    return f" ({description.rstrip('.')})" if description else ""


def known_paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every key that can be set, dotted."""
    for name, field in model.model_fields.items():
        yield prefix + name
        inner = model_of(field.annotation)
        if inner is not None and get_origin(_bare(field.annotation)) not in (tuple, dict):
            yield from known_paths(inner, f"{prefix}{name}.")


def _model_at(path: Path, model: type[BaseModel]) -> type[BaseModel] | None:
    here: object = model
    for part in path:
        here = _bare(here)
        if isinstance(here, type) and issubclass(here, BaseModel):
            field = here.model_fields.get(str(part))
            if field is None:
                return None
            here = field.annotation
        elif get_origin(here) in (tuple, dict):
            here = get_args(here)[0 if get_origin(here) is tuple else 1]
        else:
            return None
    return model_of(here)


def _bare(annotation: object) -> object:
    """An annotation without Annotated and without None."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, types.UnionType):
            rest = [option for option in get_args(annotation) if option is not type(None)]
            if len(rest) != 1:
                return annotation
            annotation = rest[0]
        else:
            return annotation


def model_of(annotation: object) -> type[BaseModel] | None:
    """The model inside an annotation, through None, lists and mappings."""
    annotation = _bare(annotation)
    if get_origin(annotation) in (tuple, dict):
        return model_of(get_args(annotation)[0 if get_origin(annotation) is tuple else 1])
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
