"""The founding five do what their descriptions say; each docstring computes its number by hand."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from townlet.envs.vector import VectorTown
from townlet.policy.runtime import make_policy
from townlet.scenarios.shipped import FOUNDING
from townlet.types import Array
from townlet.world.state import CONFLICT_REASONS, EVENTS, HUNGER, HYGIENE


class Story(NamedTuple):
    """One episode under its schedule: every event, and the last state."""

    vec: VectorTown
    events: Array  # (X,) EVENT

    def of(self, kind: str) -> Array:
        return self.events[self.events["kind"] == EVENTS.index(kind)]

    def resident(self, name: str) -> Array:
        slot = self.vec.town_of(0).resident_ids.index(name)
        return self.vec.state.residents[0, slot]

    def seen(self, name: str, field: str) -> float:
        """What a resident observes at the end."""
        slot = self.vec.town_of(0).resident_ids.index(name)
        return float(self.vec.features[0, slot, self.vec.spec.offsets[field]])


@cache
def story(name: str) -> Story:
    vec = VectorTown(name, num_towns=1)
    policy = make_policy("schedule", vec)
    vec.reset()
    policy.reset(vec)
    events = []
    for _ in range(vec.config.scenario.episode_ticks // vec.interval):
        decision = policy.act(vec)
        vec.step(decision.actions, decision.targets)
        events.append(vec.events().copy())
    assert vec.truncated.all()
    return Story(vec, np.concatenate(events))


@pytest.mark.parametrize("name", FOUNDING)
def test_everyone_is_there_from_the_first_tick_to_the_last(name: str) -> None:
    told = story(name)
    assert told.vec.state.residents["present"].all()
    assert not len(told.of("exit"))


def test_kitchen_breakfast_two_cooks_take_turns_without_conflict() -> None:
    """Alice stands on (2, 1) and sets out at 06:30, tick 30. To the door (5, 2) it is 3 steps east and 1 south, from there 3 east
    to (8, 2) and 1 more to a tile beside the stove on (9, 1): 8 steps. She cooks from tick 38 for 25 ticks, until tick 62. Bob
    sets out at 07:10, tick 70, and has the same 8 steps: 78 to 102. Hunger 0.5 − 180 × 0.001 + 0.5 for one meal = 0.82; one of
    two meals is left; 1.00 − 0.15 coins = 0.85."""
    told = story("kitchen_breakfast")
    stove = told.vec.object_ids(0).index("stove_1")
    starts = told.of("use_start")
    assert starts[starts["object"] == stove]["tick"].tolist() == [38, 78]
    ends = told.of("use_end")
    assert ends[ends["object"] == stove]["tick"].tolist() == [62, 102]
    for name in ("alice", "bob"):
        assert told.resident(name)["needs"][HUNGER] == pytest.approx(0.82)
        assert told.resident(name)["meals"] == 1
        assert told.resident(name)["wallet"] == 8500
    assert not len(told.of("queue_conflict"))
    assert not len(told.of("queue_join"))


def test_queue_conflict_first_clashes() -> None:
    """Alice is 5 steps from the shower's side and begins at tick 5. Bob and Carol, one and two tiles behind her, ask at tick 6,
    when it is in use, in whatever order the tick draws: the first conflicts, both blocked, with nobody or one in the queue:
    intensity 0.4 × (1 + 0) = 0.4, rivalry 0.3 × 0.4 = 0.12."""
    told = story("queue_conflict")
    clashes = told.of("queue_conflict")
    first = clashes[clashes["tick"] <= 6]
    ids = told.vec.town_of(0).resident_ids
    assert sorted(ids[actor] for actor in first["actor"]) == ["bob", "carol"]
    for clash in first:
        assert (ids[clash["rival"]], clash["tick"], CONFLICT_REASONS[clash["reason"]]) == ("alice", 6, "blocked")
        assert clash["intensity"] == pytest.approx(0.4)
        assert clash["rivalry_after"] == pytest.approx(0.12)


def test_queue_conflict_rotates_and_ends_in_rivalry_above_the_avoidance_line() -> None:
    told = story("queue_conflict")
    turns = Counter(told.of("use_start")["actor"].tolist())
    assert set(turns) == {0, 1, 2}
    assert max(turns.values()) - min(turns.values()) <= 1
    assert min(turns.values()) >= 4
    assert len(told.of("queue_conflict")) >= 10
    line = told.vec.config.conflict.rivalry.avoid_threshold
    for name in ("alice", "bob", "carol"):
        assert told.seen(name, "rivalry_max") > line


def test_employment_punctuality_one_is_on_time_and_one_pays() -> None:
    """Early is at the desk from 09:00 to 13:00: 1.00 + 240 × 0.0035 = 1.84. Tardy sets out at 09:10, tick 70, and after 8 steps
    (4 to the door on (5, 2), 4 to the office's first column 9) is inside with tick 77; the shift ends with tick 299: 223 ticks.
    1.00 + 223 × 0.0035 − 0.05 for lateness = 1.7305."""
    told = story("employment_punctuality")
    ids = told.vec.town_of(0).resident_ids
    assert [ids[event["actor"]] for event in told.of("shift_on_time")] == ["early"]
    assert [ids[event["actor"]] for event in told.of("shift_late")] == ["tardy"]
    assert not len(told.of("shift_absent"))
    assert told.resident("early")["wallet"] == 18400
    assert told.resident("tardy")["wallet"] == 17305


def test_rivalry_decay_grows_with_every_clash() -> None:
    """The first clash leaves 0.12 at tick 3. At the second, t ticks later, 0.12 − 0.001 t is left; it adds
    0.3 × 0.4 × (1 + what is left)."""
    told = story("rivalry_decay")
    first, second = told.of("queue_conflict")[:2]
    left = 0.12 - 0.001 * (second["tick"] - first["tick"])
    assert (first["tick"], first["rivalry_after"]) == (3, pytest.approx(0.12))
    assert second["rivalry_before"] == pytest.approx(left)
    assert second["rivalry_after"] == pytest.approx(left + 0.12 * (1 + left))


def test_rivalry_decay_fades_on_schedule() -> None:
    """From the last clash on rivalry falls by 0.001 a tick: after 900 − t ticks 0.001 × (900 − t) of it is gone."""
    told = story("rivalry_decay")
    last = told.of("queue_conflict")[-1]
    assert last["tick"] < 180  # nobody asks after nine
    assert last["rivalry_after"] > told.vec.config.conflict.rivalry.avoid_threshold
    expected = float(last["rivalry_after"]) - 0.001 * (900 - int(last["tick"]))
    assert told.seen("bob", "rivalry_max") == pytest.approx(expected, abs=1e-6)
    assert 0.0 < expected < 0.35


def test_observation_baseline_nothing_happens() -> None:
    """Four hours of standing still: hunger 0.8 − 240 × 0.001 = 0.56, hygiene 0.8 − 240 × 0.0007 = 0.632, no event at all."""
    told = story("observation_baseline")
    assert len(told.events) == 0
    for name in ("alice", "bob"):
        assert told.resident(name)["needs"][HUNGER] == pytest.approx(0.56)
        assert told.resident(name)["needs"][HYGIENE] == pytest.approx(0.632)
        assert told.resident(name)["wallet"] == 10000
        assert told.seen(name, "rivalry_max") == 0.0
