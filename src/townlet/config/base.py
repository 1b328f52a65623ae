"""What all config sections share: strict, frozen, no unknown keys, no NaN; clock times; read-only lists."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError, WithJsonSchema, model_validator
from pydantic_core import InitErrorDetails

from townlet.errors import UsageError, did_you_mean

DAY = 1440
Value = TypeVar("Value")
_CLOCK = re.compile(r"(\d{1,2}):([0-5]\d)")
DISPLAY_ONLY: dict[str, JsonValue] = {"display_only": True}  # json_schema_extra of a field that is shown and changes nothing else
ID_PATTERN = r"^[a-z][a-z0-9_]{0,31}$"


class Section(BaseModel):
    """A part of the config. Fields carry their own sentence, range and default."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _keep_the_rest(cls, data: object) -> object:
        """Giving one key of a part that has defaults of its own, such as conflict.reasons.blocked, keeps its others."""
        parts = _parts(cls)
        if not parts or not isinstance(data, dict):
            return data
        return {
            key: {**parts[key], **value} if key in parts and isinstance(value, dict) else value for key, value in data.items()
        }


@cache
def _parts(section: type[Section]) -> dict[str, dict[str, object]]:
    """Fields whose default is a part with values of its own, and those values."""
    return {
        name: field.default.model_dump() for name, field in section.model_fields.items() if isinstance(field.default, Section)
    }


def minutes(value: Value) -> Value | int:
    """ "07:30" → 450; anything else is left to the field's own check."""
    if isinstance(value, str):
        match = _CLOCK.fullmatch(value)
        if match is None or int(match[1]) > 24 or (int(match[1]) == 24 and match[2] != "00"):
            raise ValueError(f"{value!r} is not a clock time; write it as HH:MM between 00:00 and 24:00, or as a number")
        return int(match[1]) * 60 + int(match[2])
    return value


def nearest_name(name: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?`, or the whole list when nothing is close."""
    known = list(known)
    return did_you_mean(name, known, show=repr) or (f"choose from {', '.join(known)}" if known else "none is declared")


Fault = tuple[tuple[str | int, ...], str]  # a place below a section, and what is wrong there


def undeclared(place: tuple[str | int, ...], name: str, known: Collection[str], where: str) -> list[Fault]:
    """The fault of a name that points at nothing, or none."""
    return [] if name in known else [(place, f"{name!r} is not declared in {where}; {nearest_name(name, known)}")]


def problems_at(found: Iterable[tuple[Sequence[str | int], str]]) -> ValidationError:
    """Sentences about parts of a section, each with the way to its part, for a validator of the whole to raise."""
    details = [
        InitErrorDetails(type="value_error", loc=tuple(path), input=None, ctx={"error": ValueError(text)}) for path, text in found
    ]
    return ValidationError.from_exception_data("config", details)


def clock(minute: int) -> str:
    """450 → "07:30"."""
    return f"{minute // 60:02d}:{minute % 60:02d}"


def tick_at(text: str, *, start: int, day: int, first: int = 0) -> int:
    """A tick from its number, or from a clock time: the first one after ``first``, which is at minute ``start``."""
    if re.fullmatch(r"\d{1,8}", text):
        return int(text)
    return first + (minute_at(text, "a tick") - start) % day


def minute_at(text: str, otherwise: str) -> int:
    """The minute of the day that a clock time names."""
    if not re.fullmatch(r"([01]?\d|2[0-3]):[0-5]\d", str(text)):
        raise UsageError(f"the time is {text!r:.60}, expected a clock time such as 07:00, or {otherwise}")
    return int(minutes(text))


_CLOCK_SCHEMA = {"type": ["integer", "string"], "format": "clock", "pattern": "^[0-9]{1,2}:[0-5][0-9]$", "minimum": 0}
Clock = Annotated[int, BeforeValidator(minutes), Field(ge=0, le=DAY), WithJsonSchema(_CLOCK_SCHEMA)]  # minute of the day
LONGEST = 10**9  # ticks: a moment and a length added up fit into the 32 bits of a column
_TICKS_SCHEMA = {**_CLOCK_SCHEMA, "format": "ticks", "maximum": LONGEST}
Ticks = Annotated[int, BeforeValidator(minutes), Field(ge=0, le=LONGEST), WithJsonSchema(_TICKS_SCHEMA)]  # a length
Day = Annotated[int, Field(ge=0, le=LONGEST // DAY)]  # of an episode, counted from 0
Id = Annotated[str, Field(pattern=ID_PATTERN)]
Share = Annotated[float, Field(ge=0, le=1)]
Signed = Annotated[float, Field(ge=-1, le=1)]
Positive = Annotated[float, Field(ge=0)]
Coins = Annotated[float, Field(ge=0, le=1000)]
Wage = Annotated[float, Field(ge=0, le=0.4)]  # per tick: a year of it, day and night, fits into a wallet
Stock = Annotated[int, Field(ge=0, le=10**6)]  # meals
Many = Field(strict=False)  # a tuple field with this accepts a YAML list
