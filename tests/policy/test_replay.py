"""Datasets: bucketed, shuffled by seed and epoch, the same from memory and streamed."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

from townlet import files
from townlet.bench.samples import generated_sample, generated_source, write_generated
from townlet.envs.events import event_lines
from townlet.errors import ReplayError, UsageError
from townlet.policy.capture_folder import CaptureWriter
from townlet.policy.manifest import PREFIX
from townlet.policy.prefetch import prefetched
from townlet.policy.replay import ReplayBatch, ReplayDataset, ReplayDatasetConfig, conflict_columns
from townlet.policy.sample_metrics import QUEUE_COUNTS
from townlet.world.state import EVENTS

LENGTHS = (8, 8, 12, 8, 12, 8, 5)  # three buckets


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("captures") / "mixed"
    writer = CaptureWriter(files.make_folder(place), PREFIX)
    source = generated_source()
    for seed, length in enumerate(LENGTHS):
        writer.put(generated_sample(source, seed, length))
    writer.close()
    return place


def config(folder: Path, **options: object) -> ReplayDatasetConfig:
    return ReplayDatasetConfig.from_capture_dir(folder, **({"batch_size": 2} | options))


def ids(dataset: ReplayDataset) -> list[tuple[str, ...]]:
    return [tuple(meta.sample_id for meta in batch.metadata) for batch in dataset]


@pytest.mark.parametrize("streaming", [False, True])
def test_shapes_are_bucketed_and_never_mixed(folder: Path, streaming: bool) -> None:
    dataset = ReplayDataset(config(folder, streaming=streaming))
    batches = list(dataset)
    assert sorted(batch.actions.shape for batch in batches) == [(5, 1), (8, 2), (8, 2), (12, 2)]
    assert len(dataset) == 4
    for batch in batches:
        T, B = batch.actions.shape
        assert batch.maps is not None
        assert batch.maps.shape == (T + 1, B, 4, 11, 11)
        assert batch.masks is not None
        assert batch.masks.shape == (T + 1, B, 17)
        assert batch.values.shape == (T + 1, B)
        assert batch.expert is not None
        assert np.take_along_axis(batch.masks[:T], batch.actions[..., None], axis=2).all()


def test_streaming_gives_the_same_batches_as_memory(folder: Path) -> None:
    options = {"shuffle": True, "seed": 11}
    for _ in range(2):
        memory, stream = (ReplayDataset(config(folder, streaming=s, **options)) for s in (False, True))
        for one, two in zip(memory, stream, strict=True):
            assert one.metadata == two.metadata
            np.testing.assert_array_equal(one.features, two.features)
            np.testing.assert_array_equal(one.maps, two.maps)
            assert one.conflict_stats == two.conflict_stats


def test_shuffle_depends_on_seed_and_epoch_alone(folder: Path) -> None:
    orders = {(seed, epoch): None for seed in (0, 1) for epoch in (0, 1)}
    for seed, epoch in orders:
        runs = []
        for streaming in (False, True):
            dataset = ReplayDataset(config(folder, shuffle=True, seed=seed, streaming=streaming))
            dataset.set_epoch(epoch)
            runs.append(ids(dataset))
        assert runs[0] == runs[1]
        orders[seed, epoch] = tuple(runs[0])
    assert len(set(orders.values())) == 4
    through = ReplayDataset(config(folder, shuffle=True))
    assert [tuple(ids(through)) for _ in range(2)] == [orders[0, 0], orders[0, 1]]


def test_every_sample_comes_once_per_epoch_and_buckets_take_turns(folder: Path) -> None:
    turns = set()
    dataset = ReplayDataset(config(folder, shuffle=True, batch_size=1))
    for _ in range(6):
        batches = list(dataset)
        assert len({batch.metadata[0].sample_id for batch in batches}) == len(LENGTHS)
        turns.add(tuple(len(batch.actions) for batch in batches))
    assert len(turns) > 1  # the order of buckets is shuffled too


def test_drop_last_leaves_out_short_batches(folder: Path) -> None:
    dataset = ReplayDataset(config(folder, drop_last=True, batch_size=3))
    assert len(dataset) == 1
    assert [batch.actions.shape for batch in dataset] == [(8, 3)]


def test_conflict_stats_are_those_of_the_features(folder: Path) -> None:
    for batch in ReplayDataset(config(folder)):
        column = batch.features[: batch.steps, :, batch.metadata[0].feature_names.index("rivalry_max")]
        assert batch.conflict_stats["rivalry_max_mean"] == pytest.approx(column.mean())
        assert batch.conflict_stats["rivalry_max_max"] == column.max()
        assert set(batch.conflict_stats) - set(QUEUE_COUNTS) == {
            f"{name}_{how}" for name in ("rivalry_max", "rivalry_avoid_count") for how in ("mean", "max")
        }


@pytest.mark.parametrize("source", ["capture", "metadata", "arrays"])
def test_baseline_metrics_are_those_of_the_arrays(folder: Path, source: str) -> None:
    dataset = ReplayDataset(config(folder, streaming=True, **({"metrics_map": {}} if source != "capture" else {})))
    if source == "arrays":
        dataset.metas = tuple(meta.model_copy(update={"metrics": {}}) for meta in dataset.metas)
    samples = list(dataset.samples())
    rewards = np.concatenate([sample.rewards for sample in samples]).astype(np.float64)
    base = dataset.baseline_metrics()
    assert base["sample_count"] == len(LENGTHS)
    assert base["reward_sum"] == pytest.approx(rewards.sum())
    assert base["reward_mean"] == pytest.approx(rewards.mean())
    assert base["reward_sum_mean"] == pytest.approx(rewards.sum() / len(LENGTHS))
    assert base["log_prob_mean"] == pytest.approx(np.concatenate([s.log_probs for s in samples]).mean(), rel=1e-5)


@pytest.mark.parametrize("streaming", [False, True])
def test_conflict_features_are_normalised_on_request_and_statistics_stay_true(folder: Path, streaming: bool) -> None:
    plain = list(ReplayDataset(config(folder)))
    dataset = ReplayDataset(config(folder, streaming=streaming, normalize_conflict_features=True))
    batches = list(dataset)
    assert dataset.normalizer is not None
    assert set(dataset.normalizer.names) == set(conflict_columns(dataset.metas[0]))
    names = list(dataset.metas[0].feature_names)
    columns = [names.index(name) for name in dataset.normalizer.names]
    rest = [i for i in range(len(names)) if i not in columns]
    rows = np.concatenate([batch.features[: batch.steps].reshape(-1, len(names)) for batch in batches]).astype(np.float64)
    np.testing.assert_allclose(rows[:, columns].mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(rows[:, columns].std(axis=0), 1.0, atol=1e-4)
    for before, after in zip(plain, batches):
        assert before.conflict_stats == after.conflict_stats
        np.testing.assert_array_equal(before.features[..., rest], after.features[..., rest])


def test_events_are_counted_per_step_of_their_actor(folder: Path, tmp_path: Path) -> None:
    meta = ReplayDataset(config(folder)).metas[0]  # resident_0 of town 0, decisions of 10 ticks
    event = {"town": 0, "episode": 0, "actor": meta.agent_id, "rival": "resident_1", "type": "queue_conflict"}
    events = [event | {"tick": tick} for tick in (0, 9, 10, 35, 79, 80)] + [event | {"tick": 35, "type": "quarrel"}]
    events += [event | {"tick": 35, "town": 4}, event | {"tick": 35, "actor": "stranger"}]
    files.write_bytes(tmp_path / "events.ndjson", event_lines(events))
    dataset = ReplayDataset(config(folder, batch_size=1, events=tmp_path / "events.ndjson"))
    (mine,) = [batch.events for batch in dataset if batch.metadata[0].sample_id == meta.sample_id]
    assert mine is not None
    conflicts = mine[:, 0, EVENTS.index("queue_conflict")]
    assert conflicts.tolist() == [2, 1, 0, 1, 0, 0, 0, 1]
    assert mine.sum() == 6  # the event at tick 80 lies beyond the eight decisions
    others = [batch.events for batch in dataset if batch.metadata[0].agent_id != meta.agent_id]
    assert all(counts is not None and counts.sum() == 0 for counts in others)


def test_samples_that_do_not_fit_together_name_both_files(tmp_path: Path) -> None:
    write_generated(tmp_path, 1, timesteps=4)
    other = generated_sample(generated_source("full"), 7, 4)
    writer = CaptureWriter(tmp_path, "other")
    writer.put(other)
    names = ["rollout_sample_resident_0_000.npz", f"{other.meta.sample_id}.npz"]
    files.write_json(tmp_path / "m.json", names)
    with pytest.raises(ReplayError, match="do not fit into one dataset: the observation variant differs") as error:
        ReplayDataset(ReplayDatasetConfig.from_manifest(tmp_path / "m.json"))
    assert all(name in str(error.value) for name in names)


def test_manifests_come_in_three_forms_and_two_languages(folder: Path) -> None:
    names = sorted(path.name for path in folder.glob("*.npz"))
    rows = "".join(f"- sample: {name}\n  meta: {name[:-3]}json\n" for name in names)
    forms = {
        "list.json": '["' + '", "'.join(names) + '"]',
        "list.yaml": "".join(f"- {name}\n" for name in names),
        "rows.yaml": rows,
        "whole.yml": "metadata: {}\nsamples:\n" + "".join(f"  {line}\n" for line in rows.splitlines()),
    }
    for name, text in forms.items():
        files.write_text(folder / name, text)
        assert len(ReplayDataset(ReplayDatasetConfig.from_manifest(folder / name)).metas) == len(LENGTHS)
        files.remove(folder / name)


BAD_MANIFESTS = {
    "../outside.npz": "leads out of",
    "/etc/passwd.npz": "leads out of",
    "link.npz": "leads out of .* through a link",
    "absent.npz": "there is no file .*absent.json",
    "notes.txt": "expected a file that ends in .npz",
}


@pytest.mark.parametrize("name", BAD_MANIFESTS)
def test_a_manifest_does_not_lead_out_of_its_folder(tmp_path: Path, name: str) -> None:
    write_generated(tmp_path / "in", 1, timesteps=3)
    write_generated(tmp_path / "out", 1, timesteps=3)
    (tmp_path / "in" / "link.npz").symlink_to(next((tmp_path / "out").glob("*.npz")))
    files.write_json(tmp_path / "in" / "m.json", [name])
    with pytest.raises(ReplayError, match=BAD_MANIFESTS[name]):
        ReplayDataset(ReplayDatasetConfig.from_manifest(tmp_path / "in" / "m.json"))


def test_a_manifest_lists_a_sample_once_and_says_what_it_knows(tmp_path: Path) -> None:
    write_generated(tmp_path, 1, timesteps=3)
    name = next(tmp_path.glob("*.npz")).name
    cases = {
        "a second time": [name, name],
        "lists no samples": [],
        "expected only sample, meta": [{"sample": name, "colour": 1}],
        "frame_count is 3 but the manifest says 4": [{"sample": name, "frame_count": 4}],
        "SHA-256": [{"sample": name, "sha256": "0" * 64}],
        "is not a manifest": 5,
    }
    for message, content in cases.items():
        files.write_json(tmp_path / "m.json", content)
        with pytest.raises(ReplayError, match=message):
            ReplayDataset(ReplayDatasetConfig.from_manifest(tmp_path / "m.json"))


@pytest.mark.parametrize("prefetch", [1, 3])
def test_streaming_keeps_at_most_prefetch_and_one_batches(folder: Path, prefetch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[ReplayBatch]] = []
    most = []
    build = ReplayDataset._batch

    def counted(self: ReplayDataset, rows: list[int]) -> ReplayBatch:
        batch = build(self, rows)
        alive.append(weakref.ref(batch))
        most.append(sum(ref() is not None for ref in alive))
        return batch

    monkeypatch.setattr(ReplayDataset, "_batch", counted)
    gc.collect()
    dataset = ReplayDataset(config(folder, streaming=True, batch_size=1, prefetch=prefetch))
    for _ in dataset:
        time.sleep(0.01)  # the thread runs ahead
    assert 2 <= max(most) <= prefetch + 1
    assert len(list(dataset)) == len(dataset)  # a reader that keeps them all is served too


def test_streaming_stops_with_its_reader_and_hands_over_errors(folder: Path, tmp_path: Path) -> None:
    iterator = iter(ReplayDataset(config(folder, streaming=True, batch_size=1)))
    next(iterator)
    del iterator
    gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("replay-prefetch")]

    def broken() -> int:
        raise ReplayError("gone")

    results = prefetched([lambda: {1}, broken, lambda: {3}], 2)
    assert next(results) == {1}
    with pytest.raises(ReplayError, match="gone"):
        next(results)


def test_options_out_of_range_are_refused(folder: Path) -> None:
    for name in ("batch_size", "prefetch"):
        with pytest.raises(UsageError, match=f"{name} is 0, expected 1 or more"):
            config(folder, **{name: 0})
