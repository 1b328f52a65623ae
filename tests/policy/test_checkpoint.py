"""A checkpoint is there whole or not at all, and nothing of it is used before its hashes are checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from townlet import files
from townlet.errors import CheckpointError, StorageError, UsageError
from townlet.policy import checkpoint as checkpoints
from townlet.policy.checkpoint import Checkpoint, load_checkpoint, publish_checkpoint, save_checkpoint, weights_hash
from townlet.policy.network import NetworkSpec

SPEC = NetworkSpec(features=5, actions=3)


def example(seed: int = 0) -> Checkpoint:
    rng = np.random.default_rng(seed)
    weights = {"policy.weight": rng.normal(size=(3, 8)).astype(np.float32), "value_mean": rng.normal(size=1)}
    optimizer = {
        "policy.weight/exp_avg": rng.normal(size=(3, 8)).astype(np.float32),
        "policy.weight/step": np.float32(7).reshape(()),
    }
    world = {"residents": rng.integers(0, 9, (2, 3)), "ticks": np.arange(4, dtype=np.int64)}
    return Checkpoint(weights, {"network": SPEC.to_json(), "updates": seed, "name": "Überlingen"}, optimizer, world)


def assert_equal(one: Checkpoint, other: Checkpoint) -> None:
    for part in ("weights", "optimizer", "world"):
        left, right = vars(one)[part], vars(other)[part]
        assert left.keys() == right.keys()
        for name in left:
            np.testing.assert_array_equal(left[name], right[name])
            assert left[name].dtype == right[name].dtype
    assert one.state.items() <= other.state.items()


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a", example())
    loaded = load_checkpoint(tmp_path / "a")
    assert_equal(example(), loaded)
    assert NetworkSpec.from_json(loaded.state["network"]) == SPEC
    assert loaded.state["weights_hash"] == weights_hash(example().weights)


def test_the_same_checkpoint_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_checkpoint(tmp_path / name, example())
    for path in sorted((tmp_path / "a").iterdir()):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_only_weights_are_read_when_only_they_are_wanted(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a", example())
    loaded = load_checkpoint(tmp_path / "a", with_optimizer=False, with_world=False)
    assert loaded.optimizer == loaded.world == {}


def test_a_checkpoint_without_a_world_is_whole(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a", Checkpoint(example().weights, example().state))
    assert load_checkpoint(tmp_path / "a").world == {}


def test_every_flipped_bit_is_detected(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a", example())
    rng = np.random.default_rng(5)
    for path in sorted((tmp_path / "a").iterdir()):
        whole = path.read_bytes()
        for position in rng.integers(0, 8 * len(whole), 120).tolist():
            damaged = bytearray(whole)
            damaged[position // 8] ^= 1 << (position % 8)
            path.write_bytes(bytes(damaged))
            with pytest.raises(CheckpointError):
                load_checkpoint(tmp_path / "a")
        path.write_bytes(whole)
    assert_equal(example(), load_checkpoint(tmp_path / "a"))


def test_every_cut_and_every_missing_file_is_detected(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a", example())
    for path in sorted((tmp_path / "a").iterdir()):
        whole = path.read_bytes()
        for length in {0, 1, len(whole) // 2, len(whole) - 1}:
            path.write_bytes(whole[:length])
            with pytest.raises(CheckpointError):
                load_checkpoint(tmp_path / "a")
        path.unlink()
        with pytest.raises(CheckpointError):
            load_checkpoint(tmp_path / "a")
        path.write_bytes(whole)


def rewritten(folder: Path, name: str, data: bytes) -> None:
    """A damaged file whose hash has been put right."""
    (folder / name).write_bytes(data)
    (folder / checkpoints.SUMS).unlink()
    files.write_sums(folder)


def test_files_with_true_hashes_and_false_contents_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    state = {"network": SPEC.to_json(), "format": 1}
    cases: list[tuple[str, bytes]] = [
        (checkpoints.WEIGHTS, b""),
        (checkpoints.WEIGHTS, b"\xff" * 64),
        (checkpoints.WEIGHTS, (1 << 60).to_bytes(8, "little") + b"{}"),
        (checkpoints.OPTIMIZER, b"rubbish!" * 4),
        (checkpoints.STATE, b"[]"),
        (checkpoints.STATE, b"{"),
        (checkpoints.STATE, json.dumps({**state, "format": 99}).encode()),
        (checkpoints.STATE, json.dumps({"format": 1}).encode()),
        (checkpoints.STATE, json.dumps({**state, "weights_hash": "0" * 16}).encode()),
        (checkpoints.WORLD, b"PK\x03\x04"),
    ]
    for name, data in cases:
        save_checkpoint(folder, example(), overwrite=True)
        rewritten(folder, name, data)
        with pytest.raises(CheckpointError):
            load_checkpoint(folder)


def test_a_newer_format_is_refused_with_the_one_that_is_read(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a", example())
    rewritten(tmp_path / "a", checkpoints.STATE, json.dumps({"network": {}, "format": 99}).encode())
    with pytest.raises(CheckpointError, match=r"format 99; this version reads format 1"):
        load_checkpoint(tmp_path / "a")


def test_a_network_of_another_version_is_refused_by_field() -> None:
    with pytest.raises(CheckpointError, match="attention"):
        NetworkSpec.from_json({**SPEC.to_json(), "attention": 4})
    with pytest.raises(CheckpointError, match="map encoder"):
        NetworkSpec.from_json({**SPEC.to_json(), "map_encoder": "transformer"})


def test_a_full_disk_at_any_operation_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_checkpoint(tmp_path, "u1", example(1))
    operations = 0
    for fail_at in range(1000):
        operations = 0

        def counted(real: Any, fail_at: int = fail_at) -> Any:
            def call(*given: Any) -> Any:
                nonlocal operations
                operations += 1
                if operations == fail_at + 1:
                    raise OSError(28, "No space left on device")
                return real(*given)

            return call

        with monkeypatch.context() as patch:
            for name in ("open", "write", "fsync", "replace", "rename", "mkdir", "unlink", "rmtree"):
                patch.setattr(files.disk, name, counted(getattr(files.disk, name)))
            try:
                publish_checkpoint(tmp_path, "u2", example(2))
            except StorageError:
                assert_equal(example(load_checkpoint(tmp_path).state["updates"]), load_checkpoint(tmp_path))
            else:
                break
    assert fail_at > 15
    assert load_checkpoint(tmp_path).state["updates"] == 2


def test_half_a_checkpoint_of_a_killed_run_is_not_one(tmp_path: Path) -> None:
    publish_checkpoint(tmp_path, "u1", example(1))
    partial = files.partial_folder(tmp_path / "u2")
    (partial / checkpoints.WEIGHTS).write_bytes(b"half")
    assert checkpoints.names(tmp_path) == ["u1"]
    assert load_checkpoint(tmp_path).state["updates"] == 1
    publish_checkpoint(tmp_path, "u2", example(2))
    assert load_checkpoint(tmp_path).state["updates"] == 2


def test_a_run_folder_means_its_best_checkpoint_and_before_an_evaluation_its_latest(tmp_path: Path) -> None:
    for update in (1, 2):
        publish_checkpoint(tmp_path / "run" / "checkpoints", f"{update:06d}", example(update))
    assert load_checkpoint(tmp_path / "run").state["updates"] == 2
    checkpoints.mark(tmp_path / "run" / "checkpoints", "best", "000001")
    assert load_checkpoint(tmp_path / "run").state["updates"] == 1
    assert load_checkpoint(tmp_path / "run" / "checkpoints").state["updates"] == 2
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="empty holds no checkpoint; name the folder of a run, or of a checkpoint"):
        load_checkpoint(tmp_path / "empty")


def test_latest_moves_best_stays_and_old_ones_go(tmp_path: Path) -> None:
    for update in range(8):
        publish_checkpoint(tmp_path, f"update_{update:06d}", example(update), keep=3, best=update == 2)
    assert checkpoints.names(tmp_path) == [f"update_{update:06d}" for update in (2, 5, 6, 7)]
    for place, update in (("", 7), ("latest", 7), ("best", 2), ("update_000005", 5)):
        assert load_checkpoint(tmp_path / place).state["updates"] == update
    assert not list(tmp_path.glob("*.partial"))
    assert not list(tmp_path.glob(".*"))


def test_a_pointer_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    publish_checkpoint(tmp_path / "run", "u1", example(1))
    save_checkpoint(tmp_path / "outside", example(2))
    for text in ("../outside\n", str(tmp_path / "outside"), "u9\n", "", "\0", "u1/../u1"):
        (tmp_path / "run" / "latest").write_text(text)
        with pytest.raises(CheckpointError):
            load_checkpoint(tmp_path / "run")


def test_errors_name_the_place_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist; name the folder of a run, or of a checkpoint"):
        load_checkpoint(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="network"):
        save_checkpoint(tmp_path / "a", Checkpoint({}, {}))
    save_checkpoint(tmp_path / "a", example())
    with pytest.raises(UsageError, match="exists"):
        save_checkpoint(tmp_path / "a", example())


def test_the_weights_hash_sees_name_type_shape_and_bytes() -> None:
    base = {"a": np.arange(6, dtype=np.float32), "b": np.zeros(2)}
    reordered = {"b": np.zeros(2), "a": np.arange(6, dtype=np.float32)}
    assert weights_hash(base) == weights_hash(reordered)
    others = [
        {**base, "a": np.arange(6, dtype=np.float32).reshape(2, 3)},
        {**base, "a": np.arange(6, dtype=np.int32)},
        {**base, "a": np.arange(1, 7, dtype=np.float32)},
        {"c": base["a"], "b": base["b"]},
    ]
    assert len({weights_hash(one) for one in [base, *others]}) == 5
