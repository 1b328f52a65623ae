"""The shipped checks pass what is sound and name what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from townlet.dto.policy import TrainingResult
from townlet.envs.vector import VectorTown
from townlet.policy.runtime import Decision, RandomPolicy
from townlet.policy.training.contexts import TrainingContext
from townlet.telemetry.ndjson import TelemetryWriter
from townlet.testing import check_policy, check_scenario, check_sink, check_strategy, tiny_town


def test_the_tiny_town_is_a_sound_scenario() -> None:
    check_scenario(tiny_town(residents=4), decisions=40)
    check_scenario(tiny_town("policy.action_level=primitive"), decisions=40)


def test_a_scenario_that_loses_events_is_named() -> None:
    with pytest.raises(AssertionError, match=r"raise world\.event_capacity"):
        check_scenario(tiny_town("world.event_capacity=1", "policy.decision_interval=30", residents=4), decisions=60)


class Bent(RandomPolicy):
    """A random policy with one fault."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.calls = 0

    def act(self, vec: VectorTown) -> Decision:
        decision = super().act(vec)
        self.calls += 1
        illegal = np.argmin(vec.masks, axis=-1)
        return {
            "mask": decision._replace(actions=illegal),
            "catalogue": decision._replace(actions=decision.actions + 100),
            "shape": decision._replace(actions=decision.actions[:, :1]),
            "type": decision._replace(actions=decision.actions.astype(float)),
            "log": decision._replace(log_probs=np.full_like(decision.log_probs, 0.5)),
            "nan": decision._replace(values=np.full_like(decision.values, np.nan)),
            "memory": decision._replace(actions=np.where(self.calls > 20, 0, decision.actions)),
        }[self.fault]


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("mask", "not allowed by the mask"),
        ("catalogue", "outside the catalogue"),
        ("shape", "actions have shape"),
        ("type", "expected whole numbers"),
        ("log", "above 0"),
        ("nan", "values are not all finite"),
        ("memory", "differs between two runs"),
    ],
)
def test_a_faulty_policy_is_named(fault: str, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_policy(Bent(fault))


def test_a_sound_policy_passes() -> None:
    check_policy(RandomPolicy())


class Strategy:
    name: ClassVar[str] = "patience"
    requires_torch: ClassVar[bool] = False
    writes_early: ClassVar[Path | None] = None

    def prepare(self, context: TrainingContext) -> None:
        if self.writes_early is not None:
            (self.writes_early / "early").write_text("too soon")

    def run(self, context: TrainingContext) -> TrainingResult:
        return TrainingResult(strategy=self.name, duration_sec=0.0, run_dir=None)


def test_a_strategy_of_ones_own_is_checked(tmp_path: Path) -> None:
    assert check_strategy(Strategy, tiny_town(), tmp_path).strategy == "patience"


def test_a_strategy_that_writes_while_it_prepares_is_named(tmp_path: Path) -> None:
    class Early(Strategy):
        writes_early: ClassVar[Path | None] = tmp_path

    with pytest.raises(AssertionError, match="while the strategy prepared"):
        check_strategy(Early, tiny_town(), tmp_path)


class Memory:
    def __init__(self, loses: int = -1, spoils: bool = False) -> None:
        self.kept: list[dict[str, Any]] = []
        self.loses, self.spoils = loses, spoils

    def write(self, record: dict[str, Any]) -> None:
        if self.spoils:
            record["kind"] = "spoilt"
        if len(self.kept) != self.loses:
            self.kept.append(dict(record))

    def close(self) -> None:
        pass


def test_sinks_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "log.ndjson"
    check_sink(lambda: TelemetryWriter(path), lambda: [json.loads(line) for line in path.read_text().splitlines()])
    good, lossy, spoiling = Memory(), Memory(loses=1), Memory(spoils=True)
    check_sink(lambda: good, lambda: good.kept)
    with pytest.raises(AssertionError, match="were kept"):
        check_sink(lambda: lossy, lambda: lossy.kept)
    with pytest.raises(AssertionError, match="changed the record"):
        check_sink(lambda: spoiling, lambda: spoiling.kept)
