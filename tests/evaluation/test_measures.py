"""The tally of a scorecard against days worked out by hand, on a town that is told what happens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from townlet.config.loader import default_config
from townlet.envs.vector import VectorTown
from townlet.evaluation.measures import Tally
from townlet.policy.runtime import Decision
from townlet.world.events import EXIT
from townlet.world.state import CONFLICT_REASONS, EVENT, EVENTS, EXITS, RESIDENT, SHIFT_STATES, TERMS, TOWN

DAY = 1440
STEP = 360  # ticks per decision in the told town: four decisions a day


class ToldTown:
    """The face of VectorTown that a tally reads; `step` takes what happens from the test."""

    def __init__(self, residents: int = 2, towns: int = 1, episode: int = DAY) -> None:
        self.num_towns, self.num_residents, self.num_actions = towns, residents, 3
        self.config = default_config()
        self.spec = SimpleNamespace(offsets={"rivalry_max": 0})
        self.episode = episode
        self.state = SimpleNamespace(residents=np.zeros((towns, residents), RESIDENT), towns=np.zeros(towns, TOWN))
        self.state.residents["present"] = 1
        self.state.residents["job"] = -1
        self.state.towns["id"] = 40 + np.arange(towns)  # ids are not positions
        self.features = np.zeros((towns, residents, 1), np.float32)
        self.active = np.ones((towns, residents), np.uint8)
        self.terms = np.zeros((towns, residents, len(TERMS)))
        self.happened: list[dict[str, Any]] = []

    def require_all_events(self) -> None:
        """None is lost: they are told here."""

    def events(self) -> Any:
        rows = np.zeros(len(self.happened), EVENT)
        rows["rival"] = -1
        for row, event in zip(rows, self.happened):
            row["town"] = 40
            for name, value in event.items():
                row[name] = value
        return rows

    def step(self, rewards: Any, events: list[dict[str, Any]]) -> None:
        self.terms[...] = 0.0
        self.terms[..., 0] = rewards
        self.happened = events
        self.state.towns["tick"] += STEP
        self.state.towns["over"] = self.state.towns["tick"] >= self.episode


def chose(actions: Any) -> Decision:
    """A decision of which only the actions count."""
    nothing = np.zeros(np.shape(actions), np.float32)
    return Decision(actions, nothing, nothing)


def told(town: ToldTown, steps: list[tuple[Any, list[dict[str, Any]]]], *, learners: str = "all", actions: Any = 0) -> Tally:
    tally = Tally(cast(VectorTown, town), learners=learners)
    for number, (rewards, events) in enumerate(steps):
        chosen = np.full((town.num_towns, town.num_residents), actions if np.isscalar(actions) else actions[number])
        tally.before_step(tally.vec, chose(chosen))
        town.step(rewards, events)
        tally.after_step(tally.vec, chose(np.zeros(0)))
        for event in events:
            if event["kind"] == EXIT:
                town.state.residents["present"][0, event["actor"]] = 0
    return tally


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"kind": EVENTS.index(kind), **fields}


def one(tally: Tally, name: str) -> float | None:
    return tally.row()[name][0]


def test_a_whole_day_is_the_mean_over_residents() -> None:
    tally = told(ToldTown(), [([1.0, 2.0], [])] * 4)
    assert one(tally, "return") == pytest.approx((4 + 8) / 2)
    assert one(tally, "exits") == 0.0
    assert one(tally, "self_sufficiency") == 1.0
    assert one(tally, "wait_mean") is None
    assert one(tally, "attendance") is None
    assert one(tally, "newcomer_return") is None
    assert not tally.open.any()


def test_an_exit_is_charged_to_the_end_and_a_newcomer_does_not_fill_the_gap() -> None:
    """Resident 1 leaves at tick 369 (the tenth of step two): 370 ticks lived, 1,070 missed. A newcomer earns 7 at last."""
    town = ToldTown()
    leaving = event("exit", actor=1, tick=369, reason=EXITS.index("collapse"))
    tally = told(town, [([1.0, 2.0], []), ([1.0, 0.5], [leaving]), ([1.0, 0.0], [])])
    town.state.residents["present"][0, 1] = 1
    town.state.residents["life"][0, 1] = 1
    tally.before_step(tally.vec, chose(np.zeros((1, 2), dtype=np.int64)))
    town.step([1.0, 7.0], [])
    tally.after_step(tally.vec, chose(np.zeros(0)))
    assert tally.lived[0] == DAY + 370
    assert tally.expected[0] == 2 * DAY
    assert one(tally, "return") == pytest.approx((4.0 + 2.5) / 2)
    assert one(tally, "newcomer_return") == pytest.approx(7.0 * 4)  # a quarter of a day
    assert one(tally, "exits") == one(tally, "collapses") == 0.5
    assert one(tally, "self_sufficiency") == 0.5


def test_whoever_left_on_the_first_day_is_missing_on_the_second() -> None:
    """Day one: two residents with jobs, one evicted at its last tick. Day two: its place earns nothing and misses its shift."""
    leaving = event("exit", actor=0, tick=DAY - 1, reason=EXITS.index("eviction"))
    town = ToldTown(episode=2 * DAY)
    town.state.residents["job"] = 0
    town.state.residents["wallet"], town.state.residents["debt"] = 10_000, [[0, 5_000]]
    on_time = [event("shift_on_time", actor=0), event("shift_on_time", actor=1)]
    steps: list[Any] = [([1.0, 1.0], on_time), ([1.0, 1.0], []), ([1.0, 1.0], []), ([1.0, 1.0], [leaving])]
    tally = told(
        town, [*steps, ([0.0, 3.0], [event("queue_conflict", actor=1)]), *[([0.0, 3.0], on_time[1:])], *[([0.0, 3.0], [])] * 2]
    )
    assert tally.expected[0] == 4 * DAY
    assert one(tally, "return") == pytest.approx((4 + 4 + 12) / 4)
    assert one(tally, "exits") == pytest.approx(1 / 4)
    assert one(tally, "founders") == 0.5
    assert one(tally, "collapses") == 0.0
    assert one(tally, "self_sufficiency") == 0.5  # gone on its first day and on its second
    assert one(tally, "attendance") == 0.75
    assert one(tally, "conflicts") == pytest.approx(1 / 3)  # of days lived: who is gone has none
    assert (one(tally, "wallet"), one(tally, "debt")) == (0.5, 0.25)  # who is gone has neither
    assert one(tally, "overspent") == 0.5  # it had a coin; the other began with half a coin, after what it owed, and has it still


def test_a_coin_that_one_puts_by_does_not_make_up_for_one_that_another_spends() -> None:
    town = ToldTown()
    town.state.residents["wallet"] = 10_000
    tally = Tally(cast(VectorTown, town))
    for coins in ([10_000, 10_000], [10_000, 10_000], [10_000, 10_000], [14_000, 6_000]):
        tally.before_step(tally.vec, chose(np.zeros((1, 2), dtype=np.int64)))
        town.state.residents["wallet"] = coins
        town.step([1.0, 1.0], [])
        tally.after_step(tally.vec, chose(np.zeros(0)))
    assert (one(tally, "wallet"), one(tally, "overspent")) == (1.0, pytest.approx(0.2))


def test_a_need_that_was_low_yesterday_does_not_spoil_today() -> None:
    town = ToldTown(residents=1, episode=2 * DAY)
    tally = Tally(cast(VectorTown, town))
    for step in range(8):
        tally.before_step(tally.vec, chose(np.zeros((1, 1), dtype=np.int64)))
        town.state.residents["low"][0, 0] |= step == 2
        town.step([0.0], [])
        tally.after_step(tally.vec, chose(np.zeros(0)))
    assert one(tally, "self_sufficiency") == 0.5


def test_conflicts_waits_and_their_inequality() -> None:
    conflict = event("queue_conflict", actor=0, rival=1, intensity=1.5, reason=CONFLICT_REASONS.index("overtaken"))
    blocked = event("queue_conflict", actor=1, rival=0, intensity=0.5)
    waits = [
        event("use_start", actor=0, waited=30),
        event("queue_leave", actor=0, waited=10),
        event("use_start", actor=1, waited=0),
    ]
    tally = told(ToldTown(), [(0.0, [conflict, blocked, event("quarrel", actor=0, rival=1)]), (0.0, waits), (0.0, []), (0.0, [])])
    assert one(tally, "conflicts") == 1.0  # two conflicts over two resident-days
    assert one(tally, "intensity") == 1.0
    assert one(tally, "quarrels") == one(tally, "overtakes") == 0.5
    assert one(tally, "wait_mean") == 20.0
    assert one(tally, "wait_p95") == pytest.approx(29.0)
    assert one(tally, "wait_gini") == pytest.approx(0.5)  # one waited 40, the other not at all
    assert one(tally, "wait_most") == 40.0


def test_shifts_fall_due_once() -> None:
    """0 was on time, then left for good: absent. 1 was late. Two shifts, one absent, one late."""
    day = [event("shift_on_time", actor=0), event("shift_late", actor=1), event("shift_absent", actor=0)]
    tally = told(ToldTown(), [(0.0, day), (0.0, []), (0.0, []), (0.0, [])])
    assert one(tally, "attendance") == 0.5
    assert one(tally, "lateness") == 0.5


@pytest.mark.parametrize(("begins", "late"), [("shift_on_time", 0.0), ("shift_late", 1.0)])
def test_a_shift_that_runs_over_the_end_of_a_day_falls_due_once(begins: str, late: float) -> None:
    """Begun at 05:00, given up at 06:40, while days begin at six. The next one, a day later, is another."""
    town = ToldTown(residents=1, episode=3 * DAY)
    quiet: tuple[Any, list[dict[str, Any]]] = ([0.0], [])

    def night(given_up: bool) -> list[tuple[Any, list[dict[str, Any]]]]:
        return [quiet, quiet, ([0.0], [event(begins, actor=0)]), ([0.0], [event("shift_absent", actor=0)] if given_up else [])]

    tally = told(town, [quiet])
    for given_up in (True, False):
        for rewards, events in night(given_up):
            tally.before_step(tally.vec, chose(np.zeros((1, 1), dtype=np.int64)))
            town.step(rewards, events)
            if events:
                town.state.residents["shift"] = SHIFT_STATES.index(EVENTS[events[0]["kind"]].removeprefix("shift_"))
            tally.after_step(tally.vec, chose(np.zeros(0)))
    assert tally.shifts["due"].sum() == 2.0
    assert (one(tally, "attendance"), one(tally, "lateness")) == (0.5, late)


def test_minutes_of_lateness_end_with_the_arrival_and_with_the_day() -> None:
    """0 arrives 17 minutes late, 1 never: 31 minutes, when it counts as absent. Two shifts fell due."""
    town = ToldTown()
    tally = Tally(cast(VectorTown, town))
    for step in range(4):
        tally.before_step(tally.vec, chose(np.zeros((1, 2), dtype=np.int64)))
        town.state.residents["late_ticks"] = [[17, 120 * step]]
        town.state.residents["arrived"][0, 0] = step == 1
        town.state.residents["shift"] = SHIFT_STATES.index("late")
        town.state.residents["shift"][0, 1] = SHIFT_STATES.index("absent" if step == 2 else "late")
        late = [event("shift_late", actor=0), event("shift_late", actor=1)] if step == 0 else []
        town.step(0.0, late + ([event("shift_absent", actor=1)] if step == 2 else []))
        tally.after_step(tally.vec, chose(np.zeros(0)))
    assert one(tally, "lateness") == 1.0
    assert one(tally, "late_minutes") == (17 + 31) / 2


def test_a_worker_who_left_before_the_shift_missed_it() -> None:
    town = ToldTown()
    town.state.residents["job"] = 0
    leaving = event("exit", actor=0, tick=5, reason=0)
    tally = told(town, [(0.0, [leaving]), (0.0, [event("shift_on_time", actor=1)]), (0.0, []), (0.0, [])])
    assert one(tally, "attendance") == 0.5


def test_reconciliation_is_timed_from_the_last_conflict_above_the_line() -> None:
    feud = event("queue_conflict", actor=0, rival=1, rivalry_after=0.8, tick=100)
    below = event("queue_conflict", actor=1, rival=0, rivalry_after=0.4, tick=300)
    again = event("reconciliation", actor=1, rival=0, tick=900)
    tally = told(ToldTown(), [(0.0, [feud, below]), (0.0, []), (0.0, [again]), (0.0, [])])
    assert one(tally, "reconciliation") == 800.0


def test_switching_counts_changes_of_choice() -> None:
    tally = told(ToldTown(residents=1), [([0.0], [])] * 4, actions=[0, 0, 2, 2])
    assert one(tally, "switching") == pytest.approx(1 / 3)
    assert list(tally.actions) == [2, 0, 2]
    assert tally.rivalry[0] == 4


def test_a_lone_learner_is_measured_alone() -> None:
    others = event("queue_conflict", actor=1, rival=2, intensity=1.0)
    own = event("queue_conflict", actor=2, rival=0, intensity=1.0)
    tally = told(ToldTown(residents=3), [([1.0, 9.0, 9.0], [others, own]), (0.0, []), (0.0, []), (0.0, [])], learners="first")
    assert one(tally, "return") == 1.0
    assert one(tally, "conflicts") == 1.0


def test_a_newcomer_is_measured_from_its_arrival() -> None:
    town = ToldTown()
    tally = told(town, [([1.0, 1.0], [])] * 2, learners="newcomers")
    assert tally.expected[0] == 0
    town.state.residents["life"][0, 1] = 1
    for _ in range(2):
        tally.before_step(tally.vec, chose(np.zeros((1, 2), dtype=np.int64)))
        town.step([1.0, 3.0], [])
        tally.after_step(tally.vec, chose(np.zeros(0)))
    assert one(tally, "return") == pytest.approx(6.0 / 0.5)
    assert tally.decisions == 2


def test_towns_that_have_ended_are_left_alone() -> None:
    town = ToldTown(towns=2, residents=1)
    tally = Tally(cast(VectorTown, town))
    town.state.towns["tick"][1] = 720  # halfway through when the tally begins
    tally.began[1] = 0
    for _ in range(4):
        tally.before_step(tally.vec, chose(np.zeros((2, 1), dtype=np.int64)))
        town.step(1.0, [])
        tally.after_step(tally.vec, chose(np.zeros(0)))
    assert list(tally.expected) == [DAY, DAY / 2]
    assert list(tally.reward) == [4.0, 2.0]
