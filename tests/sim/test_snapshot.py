"""Snapshots: save → load → continue is bit-exact; what is not whole or of another config is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from townlet import files
from townlet.config.loader import load_config
from townlet.dto.snapshot import SNAPSHOT_SCHEMA
from townlet.envs.vector import VectorTown
from townlet.errors import SnapshotError
from townlet.npz import npz_bytes, read_npz
from townlet.policy.runtime import make_policy
from townlet.sim.divergence import differences, first_divergence
from townlet.sim.loop import SimulationLoop
from townlet.sim.probes import Digests
from townlet.sim.snapshot import load_snapshot, open_town, restore, save_snapshot, take_snapshot

CASES = [("town_day", "scripted", 300), ("queue_conflict", "schedule", 150), ("newcomer", "random", 400)]


@pytest.mark.parametrize(("scenario", "policy", "ticks"), CASES)
def test_a_run_through_a_snapshot_has_the_digests_of_one_run(scenario: str, policy: str, ticks: int, tmp_path: Path) -> None:
    """Also with orders that follow each other (`after`), which the policy remembers and the world does not."""
    vec = VectorTown(scenario, 1)
    decides = make_policy(policy, vec, seed=5)
    SimulationLoop(vec, decides).run(ticks)
    save_snapshot(take_snapshot(vec, policy=policy, memory=decides.memory()), tmp_path / "a.npz")
    straight = Digests()
    SimulationLoop(vec, decides, [straight]).run(ticks)

    found = load_snapshot(tmp_path / "a.npz")
    again = open_town(found)
    assert again.digest() == found.header.digest
    other = make_policy(policy, again, seed=5)
    other.recall(found.memory)
    resumed = Digests()
    SimulationLoop(again, other, [resumed]).run(ticks)
    assert resumed.rows == straight.rows
    assert len(straight.rows) >= ticks // 10


def test_a_batch_of_towns_goes_through_a_snapshot_too(tmp_path: Path) -> None:
    vec = VectorTown("town_day", 3, seed=8, start="random")
    policy = make_policy("scripted", vec)
    for _ in range(20):
        vec.step(policy.act(vec).actions)
    save_snapshot(take_snapshot(vec, start="random"), tmp_path / "b.npz", compress=True)
    again = open_town(load_snapshot(tmp_path / "b.npz"))
    assert again.num_towns == 3
    for town in (vec, again):
        town.step(policy.act(town).actions)
    assert again.digest() == vec.digest()


def test_the_header_tells_what_it_is_and_equal_worlds_give_equal_files(tmp_path: Path) -> None:
    vec = VectorTown("kitchen_breakfast", 1, seed=3)
    for name in ("a.npz", "b.npz"):
        save_snapshot(take_snapshot(vec), tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    header = load_snapshot(tmp_path / "a.npz").header
    assert (header.schema_version, header.config_id, header.seed, header.tick) == (SNAPSHOT_SCHEMA, "kitchen_breakfast", 3, 0)
    assert header.config_hash == vec.config_hash
    assert header.action_catalogue_hash == vec.catalogue.hash


def test_a_snapshot_of_another_config_is_refused_with_both_named(tmp_path: Path) -> None:
    save_snapshot(take_snapshot(VectorTown("kitchen_breakfast", 1)), tmp_path / "a.npz")
    with pytest.raises(SnapshotError, match=r"a\.npz was made with kitchen_breakfast.*expected queue_conflict.*without naming"):
        load_snapshot(tmp_path / "a.npz", load_config("queue_conflict"))
    found = load_snapshot(tmp_path / "a.npz", load_config("kitchen_breakfast"))
    other = VectorTown(load_config("kitchen_breakfast", ["conflict.quarrel_ticks=6"]), 1)
    with pytest.raises(SnapshotError, match="use the config it was made with"):
        restore(other, found)
    with pytest.raises(SnapshotError, match="holds 1 towns, this batch has 2"):
        restore(VectorTown("kitchen_breakfast", 2), found)


def test_damaged_snapshots_are_refused(tmp_path: Path) -> None:
    vec = VectorTown("kitchen_breakfast", 1)
    snapshot = take_snapshot(vec)
    save_snapshot(snapshot, tmp_path / "a.npz")
    whole = (tmp_path / "a.npz").read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 60):
        bad = bytearray(whole)
        bad[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "bad.npz").write_bytes(bytes(bad))
        with pytest.raises(SnapshotError):
            restore(vec, load_snapshot(tmp_path / "bad.npz"))
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / "bad.npz").write_bytes(whole[:cut])
        with pytest.raises(SnapshotError):
            load_snapshot(tmp_path / "bad.npz")
    with pytest.raises(SnapshotError, match="there is no file"):
        load_snapshot(tmp_path / "none.npz")


@pytest.mark.parametrize("lost", ["training", "ppo", "observations"])
def test_a_stored_config_without_a_section_is_refused(lost: str, tmp_path: Path) -> None:
    snapshot = take_snapshot(VectorTown("kitchen_breakfast", 1))
    kept = {name: section for name, section in snapshot.header.config.items() if name != lost}
    save_snapshot(replace(snapshot, header=snapshot.header.model_copy(update={"config": kept})), tmp_path / "a.npz")
    with pytest.raises(SnapshotError, match=r"a\.npz does not match its hash"):
        load_snapshot(tmp_path / "a.npz")


def test_a_start_that_is_no_time_is_refused(tmp_path: Path) -> None:
    snapshot = take_snapshot(VectorTown("kitchen_breakfast", 1))
    save_snapshot(replace(snapshot, header=snapshot.header.model_copy(update={"start": "../x"})), tmp_path / "a.npz")
    with pytest.raises(SnapshotError, match=r"a\.npz cannot be used: start: the time is '\.\./x', expected a clock time"):
        load_snapshot(tmp_path / "a.npz")


def test_contents_that_are_not_those_of_the_header_are_refused(tmp_path: Path) -> None:
    """A well-formed file whose numbers were changed: the digest tells."""
    vec = VectorTown("kitchen_breakfast", 1)
    save_snapshot(take_snapshot(vec), tmp_path / "a.npz")
    arrays = read_npz(tmp_path / "a.npz", limit=1 << 30)
    arrays["residents"]["wallet"][0, 0] += 1
    files.write_bytes(tmp_path / "rich.npz", npz_bytes(arrays))
    with pytest.raises(SnapshotError, match="digest"):
        restore(vec, load_snapshot(tmp_path / "rich.npz"))
    arrays["header"] = np.frombuffer(b'{"schema_version": 99}', np.uint8)
    files.write_bytes(tmp_path / "new.npz", npz_bytes(arrays))
    with pytest.raises(SnapshotError, match=f"version 99, this Townlet reads {SNAPSHOT_SCHEMA}"):
        load_snapshot(tmp_path / "new.npz")


def test_differences_name_resident_field_and_both_values() -> None:
    a, b = VectorTown("town_day", 1), VectorTown("town_day", 1)
    assert list(differences(a, b)) == []
    b.state.residents["wallet"][0, 2] += 5
    b.state.objects["stock"][0, 3] = 99
    wallet, stock = list(differences(a, b))
    assert (wallet.resident, wallet.field, wallet.b - wallet.a) == ("carol", "wallet", 5)
    assert (stock.object_id, stock.field, stock.b) == (a.object_ids(0)[3], "stock", 99)


def test_the_first_divergence_is_found_to_the_tick() -> None:
    """Two runs of one town, the second with rent a unit higher: they part at midnight, tick 1080 from 06:00, at a wallet."""
    runs = [VectorTown(load_config("town_day", [f"economy.rent={rent}"]), 1) for rent in (0.40, 0.41)]
    policies = [make_policy("scripted", vec) for vec in runs]
    found, same = first_divergence(runs[0], runs[1], policies[0], policies[1], 1440)
    assert found is not None
    assert same == 1080
    assert found.tick == 1081  # the world after the tick of midnight
    assert found.field == "wallet"
    assert found.resident is not None
    assert found.a - found.b == 100


def test_equal_runs_do_not_part_and_other_policies_part_at_a_decision() -> None:
    def pair() -> tuple[VectorTown, VectorTown]:
        return VectorTown("town_day", 1), VectorTown("town_day", 1)

    a, b = pair()
    assert first_divergence(a, b, make_policy("scripted", a), make_policy("scripted", b), 200) == (None, 200)
    a, b = pair()
    found, _ = first_divergence(a, b, make_policy("scripted", a), make_policy("random", b), 200)
    assert found is not None
    assert found.table == "decision"
    assert found.a != found.b
