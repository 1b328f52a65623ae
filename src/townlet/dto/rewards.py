"""What a reward is made of."""

from __future__ import annotations

from pydantic import Field

from townlet.dto import Frozen


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
