"""Promotion: what a gate found, what was decided, and the entries of the ledger."""

from __future__ import annotations

from enum import Enum
from typing import Literal

from pydantic import Field

from townlet.dto import FrozenStrict
from townlet.names import Name

LEDGER_VERSION = 2  # 1 named policies by the hash of their weights file


class Outcome(Enum):
    PROMOTE = "PROMOTE"
    HOLD = "HOLD"
    FAIL = "FAIL"

    @property
    def exit_code(self) -> int:
        return {"PROMOTE": 0, "HOLD": 1, "FAIL": 2}[self.value]


Verdict = Literal["pass", "hold", "fail"]


class GateResult(FrozenStrict):
    """One condition on one measure: `hold` means the data neither show that it is met nor that it is broken."""

    metric: str
    rule: str
    bound: float
    verdict: Verdict
    value: float | None = Field(description="the difference to the champion, the measure itself, or the drift, by the rule")
    low: float | None
    high: float | None
    pairs: int
    reason: str


class PromotionDecision(FrozenStrict):
    outcome: Outcome
    window: Verdict = Field(description="this window alone")
    passes: int = Field(description="windows passed in a row, this one included")
    required: int
    gates: tuple[GateResult, ...]
    reasons: tuple[str, ...]


class Evidence(FrozenStrict):
    """Everything a decision was made from, by hash."""

    scorecard: Name | None = Field(description="SHA-256 of the scorecard file; null when it was missing")
    candidate: str
    champion: str
    gates: str = Field(description="hash of the gate list and the number of windows required")
    configs: tuple[str, ...] = Field(description="config hashes of the towns")
    seeds: tuple[int, ...]
    checkpoint: str = Field(description="SHA-256 of the candidate's SHA256SUMS: of everything in its folder")
    run_id: str | None = Field(description="of the training run; with the three below from the candidate's state.json")
    training_config: str | None = Field(description="config hash the candidate was trained with, seed included")
    dataset: str | None = Field(
        description="hash of the data it was given; null: it learned in its own towns, from config and seed"
    )
    started_from: str | None = Field(description="weight hash of the checkpoint its run began with; null: with new weights")


class TraceLink(FrozenStrict):
    """One link of the way back that holds: its name, what was found, and where."""

    name: str
    found: str
    where: str


class Trace(FrozenStrict):
    """The way back from a ledger entry to the tick: the links that hold, and the first that does not."""

    links: tuple[TraceLink, ...]
    broken: str | None = Field(description="name of the link that does not hold; null when all do")
    reason: str | None


class LedgerEntry(FrozenStrict):
    """One line: a window judged, or the champion changed. `hash` covers the rest of the line, `previous` included."""

    schema_version: Literal[2] = 2
    number: int
    previous: str
    at: str = Field(description="UTC time, for people; no decision depends on it")
    kind: Literal["window", "promote", "rollback"]
    candidate: Name = Field(description="weight hash of the candidate, or of the champion from now on")
    champion: Name = Field(description="weight hash of the champion at that moment")
    source: str = Field(description="where the candidate's checkpoint was")
    decision: PromotionDecision | None
    evidence: Evidence | None
    reasons: tuple[str, ...]
    hash: str
