"""Data that crosses a process or a file: frozen models that refuse unknown fields."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class FrozenStrict(Frozen):
    """Takes no value of another type: no "1" for 1."""

    model_config = ConfigDict(strict=True)
