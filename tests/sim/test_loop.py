"""The loop and its hooks: events in files, counts, digests, snapshots on the way, one resident followed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from townlet.config.loader import load_config
from townlet.dto.town import TelemetryEventDTO
from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.policy.runtime import make_policy
from townlet.ports import Hook
from townlet.sim.loop import SimulationLoop
from townlet.sim.mask_reasons import why_masked
from townlet.sim.probes import Counts, Digests, EventLog, PictureEvery, SnapshotEvery
from townlet.sim.snapshot import load_snapshot
from townlet.testing import tiny_town
from townlet.world.events import QUEUE_CONFLICT


def loop_of(
    scenario: str, hooks: list[Hook[VectorTown]], policy: str = "schedule", overrides: tuple[str, ...] = ()
) -> SimulationLoop:
    vec = VectorTown(load_config(scenario, overrides), 1)
    return SimulationLoop(vec, make_policy(policy, vec), hooks)


def test_hooks_are_called_in_order_around_every_step() -> None:
    calls: list[tuple[str, int]] = []

    class Witness:
        def before_decision(self, world: VectorTown) -> None:
            calls.append(("moment", int(world.state.towns[0]["tick"])))

        def before_step(self, world: VectorTown, decision: Any) -> None:
            calls.append(("before", int(world.state.towns[0]["tick"])))

        def after_step(self, world: VectorTown, decision: Any) -> None:
            calls.append(("after", int(world.state.towns[0]["tick"])))

        def finish(self, world: VectorTown) -> None:
            calls.append(("finish", int(world.state.towns[0]["tick"])))

    loop = loop_of("kitchen_breakfast", [Witness()])
    assert loop.run(15) == 20  # whole decisions of ten ticks
    loop.finish()
    step = ("moment", "before", "after")
    assert calls == [*zip(step, (0, 0, 10)), *zip(step, (10, 10, 20)), ("finish", 20)]


def test_an_episode_is_followed_by_the_next_and_ticks_are_counted_over_both() -> None:
    loop = loop_of("kitchen_breakfast", [])
    assert loop.run(400) == 400
    assert loop.vec.state.towns[0]["episode"] == 2  # 180 ticks each
    assert loop.vec.state.towns[0]["tick"] == 40
    assert loop.ticks == 400


def test_a_loop_stops_when_it_is_asked_to() -> None:
    loop = loop_of("kitchen_breakfast", [])
    assert loop.run(1000, stop=lambda: loop.ticks >= 50) == 50


def test_a_batch_is_stepped_as_its_towns_alone() -> None:
    batch, alone = VectorTown("kitchen_breakfast", 2), VectorTown("kitchen_breakfast", 1, first_town=1)
    for vec in (batch, alone):
        SimulationLoop(vec, make_policy("random", vec)).run_decisions(12)
    assert batch.digest(1) == alone.digest()


def test_a_decision_is_made_once_per_moment() -> None:
    loop = loop_of("kitchen_breakfast", [], policy="random")
    first = loop.decide()
    assert loop.decide() is first
    loop.step()
    assert loop.decide() is not first


def test_wrong_use_of_a_loop() -> None:
    with pytest.raises(UsageError, match="-3 ticks"):
        loop_of("kitchen_breakfast", []).run(-3)


def test_the_event_log_has_every_event_once_and_each_line_keeps_the_schema(tmp_path: Path) -> None:
    log, counts = EventLog(tmp_path / "e.ndjson"), Counts()
    loop = loop_of("queue_conflict", [log, counts])
    loop.run(480)
    loop.finish()
    records = [json.loads(line) for line in (tmp_path / "e.ndjson").read_text().splitlines()]
    assert len(records) == log.written == int(counts.events.kinds.sum()) > 50
    assert len({record["event_id"] for record in records}) == len(records)
    for record in records:
        event = TelemetryEventDTO.model_validate(record)
        assert event.run_id == "queue_conflict-2"
        if event.type == "queue_conflict":
            assert event.actor in ("alice", "bob", "carol")
            assert event.rival in ("alice", "bob", "carol")
            assert event.object_id == "shower_1"
            assert None not in (event.reason, event.queue_length, event.intensity, event.waited, event.rivalry_after)
    assert int(counts.events.reasons.sum()) == counts.events.count(QUEUE_CONFLICT)
    assert [record["tick"] for record in records] == sorted(record["tick"] for record in records)
    with pytest.raises(UsageError, match=r"e\.ndjson already exists.*--overwrite"):
        EventLog(tmp_path / "e.ndjson")
    EventLog(tmp_path / "e.ndjson", overwrite=True)
    assert (tmp_path / "e.ndjson").read_bytes() == b""


def test_digests_are_those_of_any_other_run_of_the_same_seed() -> None:
    rows = []
    for _ in range(2):
        digests = Digests()
        loop_of("town_day", [digests], "random").run(100)
        rows.append(digests.rows)
    assert rows[0] == rows[1]
    assert len({digest for _, _, digest in rows[0]}) == 10


def test_snapshots_on_the_way(tmp_path: Path) -> None:
    keeper = SnapshotEvery(tmp_path / "w.npz", 60)
    loop_of("kitchen_breakfast", [keeper]).run(180)
    assert [path.name for path in keeper.written] == ["w-0-60.npz", "w-0-120.npz", "w-0-180.npz"]
    assert load_snapshot(keeper.written[1]).header.tick == 120


def test_a_film_has_a_frame_per_decision_and_the_end() -> None:
    film = PictureEvery()
    loop = loop_of("kitchen_breakfast", [film])
    loop.run(50)
    loop.finish()
    assert len(film.frames) == 6
    assert (film.frames[0] != film.frames[-1]).any()


def test_every_masked_action_has_a_reason_of_its_own_kind() -> None:
    """Through three days of random residents: reasons and mask agree, and each kind of reason is met."""
    vec = VectorTown(load_config("town_day"), 1)
    policy = make_policy("random", vec)
    met: set[str] = set()
    for _ in range(3 * 144):
        for slot in range(vec.num_residents):
            reasons = why_masked(vec, slot)
            masked = {vec.catalogue.names[a] for a in np.flatnonzero(vec.masks[0, slot] == 0)}
            assert set(reasons) == masked
            met |= {reason.partition(" ")[0] for reason in reasons.values()}
        vec.step(policy.act(vec).actions)
    # is using | the shift is | nobody free | neither uses | has no meal | used it just now | open 07:00 | costs
    assert {"is", "the", "nobody", "neither", "has", "used", "open", "costs"} <= met


def test_primitive_actions_have_reasons_too() -> None:
    vec = VectorTown(load_config("observation_baseline", ["policy.action_level=primitive"]), 1)
    reasons = why_masked(vec, 0)
    assert reasons["interact:use_shower"] == "stands too far away"
    assert reasons["interact:sit"] == "has no bench that can be reached"


@pytest.mark.parametrize(("start", "told"), [("12:00", "open 22:00–02:00"), ("23:00", "needs power"), ("01:00", "needs power")])
def test_hours_over_midnight_are_blamed_only_when_it_is_closed(start: str, told: str) -> None:
    nap = {"id": "nap", "objects": ["hammock"], "ticks": 5, "requires": "power", "hours": ["22:00", "02:00"]}
    dark = [{"at": start, "kind": "blackout", "duration": 60}]
    words = (f"affordances.add={json.dumps([nap])}", f"perturbations.events={json.dumps(dark)}")
    vec = VectorTown(tiny_town(*words, scenario={"start": start, "objects": [{"kind": "hammock", "at": [6, 5]}]}), 1)
    vec.step(np.zeros((1, 2), np.int64))
    assert why_masked(vec, 0)["nap:near"] == told
