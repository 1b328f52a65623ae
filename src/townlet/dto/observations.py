"""What one resident sees at one decision, by name, when it crosses a process or a file."""

from __future__ import annotations

from pydantic import Field

from townlet.dto import Frozen


class ObservationDTO(Frozen):
    agent_id: str
    tick: int = Field(ge=0, description="First tick of the decision.")
    features: dict[str, float]
    legal_actions: tuple[str, ...] = Field(description="What the mask allows; empty when the data has no mask.")
    map_shape: tuple[int, ...] = Field((), description="Channels, rows and columns of the map; empty without one.")


class ObservationBatchDTO(Frozen):
    """Observations of one variant, in the order of decisions."""

    variant: str
    action_level: str
    decision_interval: int = Field(ge=1)
    observations: tuple[ObservationDTO, ...]
