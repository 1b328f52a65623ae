"""A sample is valid or it is refused with a sentence; its bytes are the same each time."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

from places import SAMPLES
from townlet import files
from townlet.bench.samples import generated_sample, generated_source, write_generated
from townlet.errors import ReplayError
from townlet.npz import npz_bytes
from townlet.policy.manifest import ReplayEntry, read_manifest
from townlet.policy.replay import FirstGenerationWarning, ReplayDataset, ReplayDatasetConfig, ReplaySample
from townlet.policy.replay_report import validate
from townlet.policy.sample import encode_sample, read_sample
from townlet.policy.trajectory import to_disk

OLDER = SAMPLES / "sample_1_1.npz"


@pytest.fixture
def sample() -> ReplaySample:
    return generated_sample(generated_source(), 3, 12)


def put(folder: Path, sample: ReplaySample) -> Path:
    data, text = encode_sample(sample)
    path = folder / f"{sample.meta.sample_id}.npz"
    files.write_bytes(path, data)
    files.write_bytes(path.with_suffix(".json"), text)
    return path


def changed(sample: ReplaySample, **arrays: object) -> ReplaySample:
    return ReplaySample.of({**to_disk(sample), **arrays}, sample.meta)  # type: ignore[dict-item]


def test_a_sample_comes_back_from_its_files_as_it_was(tmp_path: Path, sample: ReplaySample) -> None:
    again = read_sample(put(tmp_path, sample))
    assert again.meta == sample.meta
    for name, array in to_disk(sample).items():
        np.testing.assert_array_equal(to_disk(again)[name], array)
        assert to_disk(again)[name].dtype == array.dtype


@pytest.mark.parametrize("compress", [False, True])
def test_equal_samples_give_equal_bytes(compress: bool) -> None:
    one, two = (encode_sample(generated_sample(generated_source(), 5, 9), compress=compress) for _ in range(2))
    assert one == two


def test_a_sample_is_frozen(sample: ReplaySample) -> None:
    with pytest.raises(ValueError, match="read-only"):
        sample.rewards[0] = 1.0
    with pytest.raises(AttributeError):
        sample.rewards = sample.rewards  # type: ignore[misc]


def test_a_single_observation_is_read_as_one_decision(tmp_path: Path) -> None:
    sample = generated_sample(generated_source(), 1, 1)
    arrays = to_disk(sample) | {"features": sample.features[0], "last_features": sample.features[1]}
    arrays["map"] = arrays["map"][0]
    path = put(tmp_path, sample)
    files.write_bytes(path, npz_bytes(arrays))
    assert read_sample(path).features.shape == sample.features.shape


WRONG = {
    "shape against the metadata": (lambda s: {"rewards": s.rewards[:-1]}, r"rewards has shape \(11,\), expected \(12,\)"),
    "dtype": (lambda s: {"features": s.features[:12].astype(np.float64)}, "features has dtype float64, expected float32"),
    "not finite": (
        lambda s: {"features": np.where(np.arange(12)[:, None] == 7, np.nan, s.features[:12])},
        "not finite at step 7",
    ),
    "outside the mask": (lambda s: {"action_mask": ~s.masks[:12]}, "which the mask forbids"),
    "no legal action": (lambda s: {"action_mask": np.zeros_like(s.masks[:12])}, "allows nothing at step 0"),
    "action out of range": (lambda s: {"actions": s.actions + 99}, "expected 0 to 16"),
    "log-prob above zero": (lambda s: {"old_log_probs": -s.log_probs}, "a log-probability never is"),
    "last observation not finite": (
        lambda s: {"last_features": s.features[12] * np.nan},
        "last_features holds a value that is not",
    ),
    "nothing legal at last": (lambda s: {"last_mask": np.zeros_like(s.masks[12])}, "last_mask allows nothing"),
    "a last observation of another shape": (lambda s: {"last_features": s.features[:12]}, r"last_features has shape \(12, "),
    "values too long": (lambda s: {"value_preds": np.zeros(20, np.float32)}, r"value_preds has shape \(20,\), expected \(13,\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_together_is_refused(name: str, sample: ReplaySample) -> None:
    change, message = WRONG[name]
    with pytest.raises(ReplayError, match=message):
        changed(sample, **{key: np.ascontiguousarray(value, dtype=value.dtype) for key, value in change(sample).items()})


def test_metadata_is_checked_against_the_arrays_and_itself(tmp_path: Path, sample: ReplaySample) -> None:
    path = put(tmp_path, sample)
    meta = json.loads(path.with_suffix(".json").read_text())
    cases = {
        "rivalry_max": (
            meta | {"feature_names": ["x" if n == "rivalry_max" else n for n in meta["feature_names"]]},
            "lack rivalry_max",
        ),
        "version": (meta | {"schema_version": "9"}, "schema_version is '9', this version reads 1.0, 1.1, 1.2"),
        "unknown key": (meta | {"colour": "red"}, "colour: extra inputs"),
        "missing key": ({k: v for k, v in meta.items() if k != "agent_id"}, "agent_id: field required"),
        "level": (meta | {"action_level": "optio~"}, "action_level is 'optio~', expected option, candidates, primitive"),
        "catalogue": (meta | {"action_catalogue_hash": "0" * 16}, "action_names give"),
        "names": (meta | {"action_names": meta["action_names"][:-1]}, "16 action_names"),
        "frames": (meta | {"frame_count": 11}, "frame_count is 11 but timesteps is 12"),
        "list": ([], "holds a list"),
        "critic": (meta | {"policy": {"kind": "scripted"}}, "value_preds are not zero"),
    }
    for wrong, message in cases.values():
        files.write_json(path.with_suffix(".json"), wrong)
        with pytest.raises(ReplayError, match=message) as error:
            read_sample(path)
        assert str(path.with_suffix("")) in str(error.value)
        assert "\n" not in str(error.value)


METRICS = {
    "reward_sum": (lambda m: m["reward_sum"] + 1e-3, "arrays give"),
    "reward_mean": (lambda m: 0, "the metric reward_mean is 0 in the metadata"),
    "episode_return": (lambda m: None, "the metric episode_return is None in the metadata"),
    "log_prob_mean": (lambda m: [1], r"the metric log_prob_mean is \[1\] in the metadata"),
    "value_pred_last": (lambda m: m["value_pred_last"] + 1, "value_pred_last"),
    "rivalry_max_mean": (lambda m: m["rivalry_max_max"], "rivalry_max_mean"),
    "rivalry_avoid_count_max": (lambda m: 2.0, "rivalry_avoid_count_max is 2.0"),
    "rivalry_histogram": (lambda m: m["rivalry_histogram"][::-1], "rivalry_histogram"),
    "lateness_mean": (lambda m: 1.0, "lateness_mean is 1.0"),
    "timesteps": (lambda m: 13, "the metric timesteps is 13 in the metadata, but the arrays give 12"),
    "action_total": (lambda m: 11, "action_total is 11 in the metadata, but the arrays give 12"),
    "action_entropy": (lambda m: 0.0, "action_entropy"),
    "action_wait_count": (lambda m: m["action_wait_count"] + 1, "action_wait_count"),
}


@pytest.mark.parametrize("name", METRICS)
def test_metrics_are_checked_against_the_arrays(tmp_path: Path, sample: ReplaySample, name: str) -> None:
    """On load, by a dataset and by `replay validate`: file, metric and both values in the sentence."""
    change, message = METRICS[name]
    path = put(tmp_path, sample)
    meta = json.loads(path.with_suffix(".json").read_text())
    meta["metrics"][name] = change(meta["metrics"])
    files.write_json(path.with_suffix(".json"), meta)
    for read in (read_sample, lambda path: ReplayDataset(ReplayDatasetConfig(entries=(ReplayEntry.of(path),)))):
        with pytest.raises(ReplayError, match=message) as error:
            read(path)
        assert str(path) in str(error.value)
    (problem,) = validate(path).problems
    assert re.search(message, problem)
    assert problem.startswith(str(path))


def test_metrics_of_others_and_sums_in_another_order_pass(tmp_path: Path, sample: ReplaySample) -> None:
    path = put(tmp_path, sample)
    meta = json.loads(path.with_suffix(".json").read_text())
    meta["metrics"] = {"mood": 0.5, "reward_sum": meta["metrics"]["reward_sum"] * (1 + 1e-8), "timesteps": 12.0}
    files.write_json(path.with_suffix(".json"), meta)
    assert validate(path).ok
    assert read_sample(path).meta.metrics["mood"] == 0.5


def test_the_table_of_metrics_is_checked_against_the_metadata(tmp_path: Path) -> None:
    write_generated(tmp_path, 2, timesteps=5)
    table = tmp_path / "rollout_sample_metrics.json"
    rows = json.loads(table.read_text())
    name = "rollout_sample_resident_1_000"
    rows[name]["reward_sum"] += 1.0
    files.write_json(table, rows)
    files.write_sums(tmp_path)
    with pytest.raises(ReplayError, match=r"the metric reward_sum is .* in the capture's table, but .* in its metadata") as error:
        ReplayDataset(ReplayDatasetConfig.from_capture_dir(tmp_path, streaming=True))
    assert f"{name}.npz" in str(error.value)
    (problem,) = validate(tmp_path).problems
    assert problem == str(error.value)


def test_samples_of_version_1_1_are_read_without_a_last_observation_and_batched_apart(tmp_path: Path) -> None:
    """The file was written by the version that wrote 1.1; the newer one beside it is the same life."""
    old = read_sample(OLDER)
    assert old.meta.schema_version == "1.1"
    assert not old.sees_end
    assert validate(OLDER).ok
    seen = {"last_features": old.features[3], "last_map": old.maps[3], "last_mask": old.masks[3]}  # type: ignore[index]
    arrays = to_disk(old) | {name: array.copy() for name, array in seen.items()}
    told = {"schema_version": "1.2", "training_arrays": tuple(arrays), "sample_id": "newer"}
    new = ReplaySample.of(arrays, old.meta.model_copy(update=told))
    put(tmp_path, new)
    for end in ("npz", "json"):
        shutil.copy(OLDER.with_suffix(f".{end}"), tmp_path)
    files.write_json(tmp_path / "m.json", [f"{new.meta.sample_id}.npz", OLDER.name])
    first, second = ReplayDataset(ReplayDatasetConfig.from_manifest(tmp_path / "m.json"))
    assert first.sees_end
    np.testing.assert_array_equal(first.features[-1, 0], old.features[3])
    assert not second.sees_end


def first_generation(folder: Path, width: int = 36, name: str = "old") -> Path:
    """A sample as the first version wrote it: no schema_version, no mask, placeholders for the social features."""
    rng = np.random.default_rng(width)
    arrays = {
        "map": rng.random((6, 4, 11, 11), np.float32),
        "features": rng.random((6, width), np.float32),
        "actions": rng.integers(0, 5, 6),
        "old_log_probs": -rng.random(6, np.float32),
        "value_preds": rng.random(7, np.float32),
        "rewards": rng.random(6, np.float32),
        "dones": np.zeros(6, np.bool_),
    }
    names = ["need_hunger", "rivalry_max", "rivalry_avoid_count"]
    names += [f"social_placeholder_{i}" for i in range(width - len(names))]
    files.write_bytes(folder / f"{name}.npz", npz_bytes(arrays))
    meta = {"variant": "hybrid", "map_shape": [4, 11, 11], "map_channels": ["a", "b", "c", "d"], "feature_names": names}
    files.write_json(folder / f"{name}.json", meta | {"action_dim": 5, "action_lookup": {"0": "wait"}})
    return folder / f"{name}.npz"


@pytest.mark.parametrize("width", [36, 81])
def test_first_generation_samples_load_with_a_warning_and_cannot_be_written(tmp_path: Path, width: int) -> None:
    with pytest.warns(FirstGenerationWarning, match=f"{width} features, no mask"):
        sample = read_sample(first_generation(tmp_path, width))
    assert sample.masks is None
    assert not sample.truncated.any()
    with pytest.raises(ReplayError, match="read-only"):
        encode_sample(sample)


def test_first_generation_samples_of_another_width_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match="40 feature_names; samples of the first generation have 36 or 81"):
        read_sample(first_generation(tmp_path, 40))


def test_first_generation_samples_make_a_dataset_of_their_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        first_generation(tmp_path, 36, name)
    files.write_json(tmp_path / "m.json", ["a.npz", "b.npz"])
    with pytest.warns(FirstGenerationWarning):
        (batch,) = ReplayDataset(ReplayDatasetConfig.from_manifest(tmp_path / "m.json"))
    assert batch.masks is None
    assert batch.features.shape == (6, 2, 36)
    assert 0.0 < batch.conflict_stats["rivalry_max_mean"] < 1.0


def test_generations_do_not_mix_and_the_message_names_both_files(tmp_path: Path) -> None:
    write_generated(tmp_path / "new", 1, timesteps=6)
    old = first_generation(tmp_path / "new")
    new = read_manifest(tmp_path / "new" / "rollout_sample_manifest.json").entries[0].sample
    files.write_json(tmp_path / "new" / "both.json", [new.name, old.name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FirstGenerationWarning)
        with pytest.raises(ReplayError, match="generations differ") as error:
            ReplayDataset(ReplayDatasetConfig.from_manifest(tmp_path / "new" / "both.json"))
    assert new.name in str(error.value)
    assert old.name in str(error.value)


def test_a_flipped_bit_in_any_file_of_a_capture_is_noticed_before_use(tmp_path: Path) -> None:
    write_generated(tmp_path / "whole", 3, timesteps=5)
    rng = np.random.default_rng(1)
    for name in sorted(path.name for path in (tmp_path / "whole").iterdir()):
        for _ in range(6):
            shutil.copytree(tmp_path / "whole", tmp_path / "copy", dirs_exist_ok=True)
            data = bytearray((tmp_path / "copy" / name).read_bytes())
            if not data:
                continue
            data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
            (tmp_path / "copy" / name).write_bytes(data)
            with pytest.raises(ReplayError):
                ReplayDataset(ReplayDatasetConfig.from_capture_dir(tmp_path / "copy"))
