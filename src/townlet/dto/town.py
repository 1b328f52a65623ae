"""What crosses the border of a town: what a resident sees, what a reward is made of, what happened."""

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


class RewardBreakdownDTO(Frozen):
    """The terms of a tick, a decision or a life; their sum is the reward."""

    survival: float = Field(0.0, description="For every living tick, less of it in misery.")
    needs: float = Field(0.0, description="Unmet needs, weighted and squared.")
    wage: float = Field(0.0, description="While present on shift.")
    spending: float = Field(0.0, description="Prices paid.")
    punctuality: float = Field(0.0, description="Spread over a shift begun on time.")
    social: float = Field(0.0, description="Good chats.")
    conflict: float = Field(0.0, description="What quarrels over objects cost.")
    shaping: float = Field(0.0, description="Avoiding a rival, reconciling with one.")
    exit_guard: float = Field(0.0, description="Positive terms taken back once an exit is known.")
    clip: float = Field(0.0, description="What the bound of a tick took away.")
    terminal: float = Field(0.0, description="Collapse or eviction.")

    @property
    def total(self) -> float:
        return float(sum(self.model_dump().values()))


class TelemetryEventDTO(Frozen):
    """One thing that happened, a line of an NDJSON file. What a type does not have is left out of the line."""

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
