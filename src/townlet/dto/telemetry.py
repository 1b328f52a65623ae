"""Simulation events as they stand in an NDJSON file, one object a line."""

from __future__ import annotations

from pydantic import Field

from townlet.dto import Frozen


class TelemetryEventDTO(Frozen):
    """One thing that happened. What a type does not have is left out of the line."""

    schema_version: int = Field(description="Version of the line.")
    run_id: str
    event_id: str = Field(pattern=r"^\d+\.\d+\.\d+$", description="Town, episode and number.")
    tick: int = Field(ge=0, description="Since the start of the episode.")
    type: str = Field(description="Kind of event, such as queue_conflict.")
    town: int = Field(ge=0)
    episode: int = Field(ge=0)
    actor: str | None = None
    rival: str | None = None
    object_id: str | None = None
    reason: str | None = Field(None, description="Of a conflict, a quarrel, an exit or a perturbation.")
    variant: str | None = Field(None, description="Of a queue_interaction: handover.")
    queue_length: int | None = Field(None, ge=0)
    intensity: float | None = Field(None, ge=0)
    waited: int | None = Field(None, ge=0, description="Ticks in the queue.")
    rivalry_before: float | None = Field(None, ge=0, le=1)
    rivalry_after: float | None = Field(None, ge=0, le=1)
    amount: float | None = Field(None, description="Quality of a chat, 1 for a finished use, length of a perturbation.")
