"""What all config sections share: strict, frozen, no unknown keys, no NaN; clock times; read-only lists."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

DAY = 1440
_CLOCK = re.compile(r"(\d{1,2}):([0-5]\d)")
ID_PATTERN = r"^[a-z][a-z0-9_]{0,31}$"


class Section(BaseModel):
    """A part of the config. Fields carry their own sentence, range and default."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)


def minutes(value: Any) -> Any:
    """ "07:30" → 450; anything else is left to the field's own check."""
    if isinstance(value, str):
        match = _CLOCK.fullmatch(value)
        if match is None or int(match[1]) > 24 or (int(match[1]) == 24 and match[2] != "00"):
            raise ValueError(f"{value!r} is not a clock time; write it as HH:MM between 00:00 and 24:00")
        return int(match[1]) * 60 + int(match[2])
    return value


def clock(minute: int) -> str:
    """450 → "07:30"."""
    return f"{minute // 60:02d}:{minute % 60:02d}"


Clock = Annotated[
    int, BeforeValidator(minutes), Field(ge=0, le=DAY, json_schema_extra={"format": "clock"})
]  # minute of the day; "07:30" is accepted
Ticks = Annotated[
    int, BeforeValidator(minutes), Field(ge=0, json_schema_extra={"format": "ticks"})
]  # a length in ticks; "00:30" is accepted
Id = Annotated[str, Field(pattern=ID_PATTERN)]
Share = Annotated[float, Field(ge=0, le=1)]
Signed = Annotated[float, Field(ge=-1, le=1)]
Positive = Annotated[float, Field(ge=0)]
Many = Field(strict=False)  # a tuple field with this accepts a YAML list
