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


def _term(meaning: str, bounds: str) -> float:
    """What a term is and its range in one minute; `{…}` stands for a figure of the town's config."""
    term: float = Field(0.0, description=meaning, json_schema_extra={"range": bounds})
    return term


class RewardBreakdownDTO(Frozen):
    """The terms of a tick, a decision or a life; their sum is the reward. The kernel's columns have this order."""

    survival: float = _term("{survival:g} for every minute alive", "0 … {survival:g}")
    needs: float = _term(
        "minus {needs_scale:g} × weight × (1 − level)² of every need, every minute: empty needs cost most",
        "{worst_needs:.3g} … 0",
    )
    wage: float = _term("{wage_rate:g} for every minute at work", "0 … {wage_rate:g}")
    spending: float = _term("minus {spending:g} for every coin of a price, when it is paid", "≤ 0")
    punctuality: float = _term("{punctuality:g} for a shift that began on time, paid in equal parts over its minutes", "≥ 0")
    social: float = _term(
        "a good chat, to both: its quality × ({chat_base:g} + {chat_trust:g} × trust + {chat_familiarity:g} × familiarity); "
        "not where `features.stages.social_rewards` is OFF",
        "{worst_chat:.3g} … {best_chat:.3g}",
    )
    conflict: float = _term(
        "what the two sides of a conflict pay (above), × {conflict_weight:g}", "{worst_conflict:.3g} … 0 for each"
    )
    shaping: float = _term(
        "{avoid_rival:g} for going elsewhere when a rival is at the nearest object, {reconciliation:g} × the fall of rivalry for "
        "making up; only where `features.stages.social_rewards` is C2 (the first) or C3 (both)",
        "≥ 0",
    )
    exit_guard: float = _term(
        "takes back what is earned in the last {exit_warning} minutes before an exit, so that leaving never pays", "≤ 0"
    )
    clip: float = _term("keeps the sum of the terms above within ±{clip:g} a minute", "any")
    terminal: float = _term(
        "once, at the end of a life: {collapse:g} for a collapse, {eviction:g} for an eviction", "{worst_end:g} … 0"
    )

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
