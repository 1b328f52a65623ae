"""Replay data in other people's tools, and the commands that look at it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from places import SAMPLES
from townlet import files
from townlet.bench.replay import PREFETCH, SAMPLE_BYTES, generate, replay_rows
from townlet.bench.samples import generated_sample, generated_source, write_generated
from townlet.cli.app import main
from townlet.config.loader import load_config
from townlet.dto.town import RewardBreakdownDTO
from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.policy.capture import CaptureOptions, capture
from townlet.policy.capture_folder import CaptureWriter
from townlet.policy.exports import export_joint, export_minari, export_parquet, export_vault
from townlet.policy.joint import joint_episodes
from townlet.policy.manifest import PREFIX
from townlet.policy.network import NetworkSpec
from townlet.policy.replay import ReplayDataset, ReplayDatasetConfig, ReplaySample, samples_of
from townlet.policy.runtime import make_policy
from townlet.sim.loop import SimulationLoop


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("exports") / "data"
    writer = CaptureWriter(files.make_folder(place), PREFIX)
    source = generated_source()
    for seed, length in enumerate((6, 9, 6)):
        writer.put(generated_sample(source, seed, length))
    writer.close()
    return place


@pytest.fixture(scope="module")
def samples(folder: Path) -> list[ReplaySample]:
    return list(samples_of(folder))


def test_parquet_reads_in_duckdb_and_polars(folder: Path, samples: list[ReplaySample], tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    result = export_parquet(folder, tmp_path / "replay.parquet")
    assert result["rows"] == 21
    polars = pytest.importorskip("polars")
    table = polars.read_parquet(tmp_path / "replay.parquet")
    assert table.shape[0] == 21
    np.testing.assert_array_equal(table["reward"].to_numpy(), np.concatenate([s.rewards for s in samples]))
    first = samples[0]
    np.testing.assert_array_equal(table["feature.rivalry_max"].to_numpy()[:6], first.feature("rivalry_max"))
    assert table["action_name"].to_list()[:6] == [first.meta.action_names[a] for a in first.actions]
    for name, stored in (("action_mask", first.masks), ("map", first.maps)):
        assert stored is not None
        told = np.array(table[name].to_list()[:6])
        np.testing.assert_array_equal(told.reshape(stored[:6].shape), stored[:6])  # what is seen after the end is no row
    duckdb = pytest.importorskip("duckdb")
    query = f"select agent_id, count(*), max(step) from '{tmp_path / 'replay.parquet'}' group by agent_id order by agent_id"
    assert duckdb.sql(query).fetchall() == [("resident_0", 6, 5), ("resident_1", 9, 8), ("resident_2", 6, 5)]
    with pytest.raises(UsageError, match="already exists"):
        export_parquet(folder, tmp_path / "replay.parquet")


@pytest.mark.filterwarnings("ignore")
def test_minari_loads_a_dataset_per_scenario_with_a_life_as_episode(
    folder: Path, samples: list[ReplaySample], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari")
    assert export_minari(folder, tmp_path / "sets")["datasets"] == {"townlet/generated-v0": 3}
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    dataset = minari.load_dataset("townlet/generated-v0")
    assert dataset.total_episodes == 3
    assert dataset.total_steps == 21
    for sample, episode in zip(samples, dataset.iterate_episodes()):
        T = sample.steps
        np.testing.assert_array_equal(episode.actions, sample.actions)
        np.testing.assert_allclose(episode.rewards, sample.rewards)
        np.testing.assert_array_equal(episode.observations["features"], sample.features)
        np.testing.assert_array_equal(episode.observations["map"], sample.maps)
        np.testing.assert_array_equal(episode.infos["action_mask"], sample.masks)
        np.testing.assert_array_equal(episode.infos["log_prob"][:T], sample.log_probs)
        np.testing.assert_array_equal(episode.infos["value"], sample.values)
        np.testing.assert_array_equal(episode.truncations, sample.truncated)
        np.testing.assert_array_equal(episode.terminations, sample.terminated)
    assert dataset.spec.observation_space["features"].shape == samples[0].features.shape[1:]


@pytest.mark.filterwarnings("ignore")
def test_exports_end_with_the_observation_the_simulator_gives_after_the_last_action(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lives that end by an exit, by the clock and with the capture: the same towns run again show what followed each."""
    minari, parquet = pytest.importorskip("minari"), pytest.importorskip("pyarrow.parquet")
    options = CaptureOptions(ticks=1600, towns=2, seed=21, policy="scripted", epsilon=0.1)
    capture([load_config("newcomer")], tmp_path / "c", options)
    export_minari(tmp_path / "c", tmp_path / "sets")
    export_parquet(tmp_path / "c", tmp_path / "c.parquet")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    dataset = minari.load_dataset("townlet/newcomer-v0")
    episodes, lived = list(dataset.iterate_episodes()), list(dataset.storage.get_episode_metadata(range(dataset.total_episodes)))
    rows = [row for row in parquet.read_table(tmp_path / "c.parquet").to_pylist() if row["last_features"] is not None]
    samples = list(samples_of(tmp_path / "c"))
    assert {(bool(s.terminated[-1]), bool(s.truncated[-1])) for s in samples} == {(True, False), (False, True), (False, False)}

    vec = VectorTown("newcomer", 2, seed=21)
    loop = SimulationLoop(vec, make_policy("scripted", vec, epsilon=0.1, seed=21))
    seen = {}  # by town, episode, resident and tick: what followed a decision
    for _ in range(160):
        ids = [(e, n, vec.resident_id(e, n)) for e, n in np.argwhere(vec.active).tolist()]
        now = [(int(row["episode"]), int(row["tick"])) for row in vec.state.towns]
        loop.step()
        for e, n, name in ids:
            seen[e, *now[e], name] = vec.features[e, n].copy(), vec.maps[e, n].copy(), vec.masks[e, n] != 0  # type: ignore[index]

    assert dataset.spec.env_spec.id == "Townlet/Newcomer-v0"
    assert dataset.storage.metadata["feature_names"] == list(vec.spec.feature_names)
    assert dataset.storage.metadata["action_names"] == list(vec.catalogue.names)
    assert len(episodes) == len(rows) == len(samples) > 20
    for sample, episode, row, whose in zip(samples, episodes, rows, lived):
        assert (whose["agent_id"], whose["town"], whose["seed"]) == (sample.meta.agent_id, sample.meta.capture.town, 21)
        assert (whose["town_episode"], whose["life"]) == (sample.meta.capture.episode, sample.meta.capture.life)
        assert episode.infos["tick"].tolist() == [sample.meta.first_tick + k * vec.interval for k in range(sample.steps + 1)]
        note, tick = sample.meta.capture, sample.meta.first_tick + (sample.steps - 1) * vec.interval
        features, window, mask = seen[note.town, note.episode, tick, sample.meta.agent_id]
        np.testing.assert_array_equal(episode.observations["features"][-1], features)
        np.testing.assert_array_equal(episode.observations["map"][-1], window)
        np.testing.assert_array_equal(episode.infos["action_mask"][-1], mask)
        assert (row["sample_id"], row["tick"]) == (sample.meta.sample_id, tick)
        np.testing.assert_array_equal(np.array(row["last_features"], np.float32), features)
        np.testing.assert_array_equal(row["last_map"], window.ravel())
        np.testing.assert_array_equal(row["last_mask"], mask)


@pytest.mark.filterwarnings("ignore")
def test_older_samples_are_exported_without_a_last_observation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Minari needs one and gets the one before repeated; Parquet says that it is not there."""
    minari, parquet = pytest.importorskip("minari"), pytest.importorskip("pyarrow.parquet")
    older = SAMPLES / "sample_1_1.npz"
    export_minari(older, tmp_path / "sets")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    (episode,) = minari.load_dataset("townlet/town-day-v0").iterate_episodes()
    np.testing.assert_array_equal(episode.observations["features"][-1], episode.observations["features"][-2])
    export_parquet(older, tmp_path / "older.parquet")
    table = parquet.read_table(tmp_path / "older.parquet")
    assert all(table[name].null_count == table.num_rows for name in ("last_features", "last_map", "last_mask"))


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    with pytest.raises(SystemExit) as left:
        main(list(words))
    out = capsys.readouterr()
    assert left.value.code == code, out.err
    return out.out


def test_the_commands_speak_json_and_text(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(folder)
    assert json.loads(told(capsys, "replay", "validate", path, "--json"))["ok"] is True
    assert "3 samples, 21 decisions: valid" in told(capsys, "replay", "validate", path)
    stats = json.loads(told(capsys, "replay", "stats", path, "--json"))
    assert stats["resident_days"] == pytest.approx(21 * 10 / 1440)
    assert stats["bytes_per_resident_day"] == pytest.approx(stats["bytes"] / stats["resident_days"])
    assert sum(stats["histograms"]["rivalry_max"]) == sum(stats["actions"].values()) == 21
    text = told(capsys, "replay", "stats", path, "--plot", str(tmp_path / "h.png"))
    assert "kB per resident-day" in text
    assert "rivalry_avoid_count" in text
    assert (tmp_path / "h.png").read_bytes().startswith(b"\x89PNG")
    rows = json.loads(told(capsys, "replay", "inspect", path, "--json"))
    assert [row["decisions"] for row in rows] == [6, 9, 6]
    sample = next(folder.glob("*.npz"))
    view = json.loads(told(capsys, "replay", "inspect", str(sample), "--step", "2", "--json"))
    assert view["seen"]["observations"][0]["tick"] == 20
    assert view["action"] in view["seen"]["observations"][0]["legal_actions"]
    assert "decision 2, tick 20" in told(capsys, "replay", "inspect", str(sample), "--step", "2")
    told(capsys, "replay", "inspect", str(sample), "--step", "99", code=2)
    kept = json.loads(told(capsys, "replay", "filter", path, "--output", str(tmp_path / "f"), "--min-length", "9", "--json"))
    assert (kept["kept"], kept["of"]) == (1, 3)
    out = told(capsys, "replay", "export", path, "--format", "parquet", "--output", str(tmp_path / "x.parquet"))
    assert "rows: 21" in out


def test_capture_says_what_is_missing_and_takes_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "capture", "town_day", code=2)
    told(capsys, "capture", "--output", str(tmp_path / "c"), code=2)
    told(capsys, "capture", "town_day", "--output", str(tmp_path / "c"), "--max-bytes", "many", code=2)
    told(capsys, "capture", "town_dya", "--output", str(tmp_path / "c"), code=2)
    words = (
        "capture",
        "observation_baseline",
        "--ticks",
        "60",
        "--output",
        str(tmp_path / "c"),
        "--compress",
        "--prefix",
        "demo",
        "--json",
    )
    result = json.loads(told(capsys, *words))
    assert result["samples"] == 2
    assert sorted(path.name for path in (tmp_path / "c").glob("demo*")) == [
        "demo_alice_000.json",
        "demo_alice_000.npz",
        "demo_bob_000.json",
        "demo_bob_000.npz",
        "demo_manifest.json",
        "demo_metrics.json",
    ]
    told(capsys, *words, code=2)


def test_a_reward_is_the_sum_of_its_terms() -> None:
    assert RewardBreakdownDTO(survival=1.0, conflict=-0.25).total == 0.75


def test_bench_rows_say_what_they_measured(tmp_path: Path) -> None:
    write_generated(tmp_path / "data", 10)
    rows = replay_rows(tmp_path / "data", towns=2, steps=4, repeats=1)
    assert [set(row) for row in rows] == [{"name", "value", "unit", "bar", "ok"}] * 4
    assert all(row["value"] > 0 for row in rows)
    assert rows[1]["ok"]  # batches in memory
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.slow
def test_streaming_and_recording_keep_their_bars(tmp_path: Path) -> None:
    write_generated(tmp_path / "data", 1_000)
    rows = {row["name"].split(" over")[0]: row for row in replay_rows(tmp_path / "data", towns=256, steps=24, repeats=5)}
    assert rows["streaming"]["ok"]
    assert rows["recording"]["ok"]
    batches = next(row for name, row in rows.items() if name.startswith("batches"))
    assert batches["ok"]


def test_ppo_over_a_stream_keeps_one_batch_and_the_prefetched(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from townlet.bench.replay import batches_alive

    generate(tmp_path / "data", 24 * SAMPLE_BYTES)
    assert 2 <= batches_alive(tmp_path / "data", batch_size=2) <= PREFETCH + 1


def test_what_is_learned_from_shares_the_memory_of_its_batch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from townlet.policy.training.sources import observed

    generate(tmp_path / "data", 2 * SAMPLE_BYTES)
    batch = next(iter(ReplayDataset(ReplayDatasetConfig.from_capture_dir(tmp_path / "data", batch_size=2, streaming=True))))
    meta = batch.metadata[0]
    sighted = NetworkSpec(features=1, actions=meta.action_dim, map_shape=(1, 1, 1), map_encoder="linear")
    learned = observed(batch, sighted)
    for name in ("features", "maps", "masks"):
        assert np.shares_memory(vars(learned)[name], vars(batch)[name]), name


@pytest.mark.slow
def test_ppo_over_a_stream_keeps_its_speed_and_its_memory(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from townlet.bench.replay import child, ppo_rows

    made = generate(tmp_path / "data", 400_000_000) / 1e6
    ratio, batches = ppo_rows(tmp_path / "data", repeats=3)
    assert ratio["ok"]
    assert batches["ok"]
    memory, stream = (child(tmp_path / "data", form) for form in ("memory", "stream"))
    assert memory.peak_mb - stream.peak_mb > 0.8 * made  # what is streamed is not kept


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, np.ndarray]]]:
    """A capture with leavers and newcomers, and the same towns lived again: of every town and decision what was seen, done
    and got, by resident."""
    place = tmp_path_factory.mktemp("joint") / "c"
    capture([load_config("newcomer")], place, CaptureOptions(ticks=1440, towns=2, seed=21, policy="scripted", epsilon=0.1))
    vec = VectorTown("newcomer", 2, seed=21)
    policy = make_policy("scripted", vec, epsilon=0.1, seed=21)
    rows: list[dict[str, np.ndarray]] = []
    for _ in range(144):
        decision = policy.act(vec)
        tick = vec.state.towns["tick"].copy()
        there = [(e, n, vec.resident_id(e, n)) for e, n in np.argwhere(vec.active).tolist()]
        before = vec.features.copy(), vec.masks != 0
        vec.step(decision.actions)
        for e in range(2):
            rows.append({"town": e, "tick": int(tick[e])})  # type: ignore[dict-item]
            for town, n, name in there:
                if town == e:
                    rows[-1][name] = (
                        before[0][e, n],
                        before[1][e, n],
                        decision.actions[e, n],
                        vec.rewards[e, n],
                        vec.features[e, n].copy(),
                    )  # type: ignore[assignment]
    return place, rows


def test_a_joint_table_is_what_the_towns_show_when_they_live_again(
    lived: tuple[Path, list[dict[str, np.ndarray]]], tmp_path: Path
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    place, again = lived
    assert export_joint(place, tmp_path / "j.parquet") == {
        "format": "joint", "output": str(tmp_path / "j.parquet"), "episodes": 2, "rows": 288
    }  # fmt: skip
    table = parquet.read_table(tmp_path / "j.parquet")
    rows = {(row["town"], row["tick"]): row for row in table.to_pylist()}
    assert json.loads(table.schema.metadata[b"feature_names"]) == list(VectorTown("newcomer", 1).spec.feature_names)
    newcomers = set()
    for moment in again:
        row = rows[moment["town"], moment["tick"]]
        found = {name: k for k, name in enumerate(row["agent_ids"]) if name}
        assert found.keys() == moment.keys() - {"town", "tick"}
        assert len(row["agent_ids"]) == 8
        assert row["active"] == [bool(name) for name in row["agent_ids"]]
        assert row["seed"] == 21
        empty = [k for k, name in enumerate(row["agent_ids"]) if not name]
        assert not np.any([row["features"][k] for k in empty]), "an empty place does not show what its leaver saw last"
        assert not np.any([row["action_mask"][k] for k in empty])
        for name, k in found.items():
            features, mask, action, reward, after = moment[name]
            np.testing.assert_array_equal(np.float32(row["features"][k]), features)
            np.testing.assert_array_equal(row["action_mask"][k], mask)
            assert row["actions"][k] == action
            assert np.float32(row["rewards"][k]) == reward
            if row["last_features"] is not None:
                np.testing.assert_array_equal(np.float32(row["last_features"][k]), after)
            newcomers |= {name} if name.startswith("newcomer") else set()
    assert len(newcomers) >= 2
    assert sum(row["last_features"] is not None for row in rows.values()) == 2


@pytest.mark.door(library="flashbax")
def test_a_vault_is_read_by_flashbax_as_it_was_lived(lived: tuple[Path, list[dict[str, np.ndarray]]], tmp_path: Path) -> None:
    from flashbax.vault import Vault

    place, again = lived
    assert export_vault(place, tmp_path / "vaults")["rows"] == {"newcomer.vlt": 288}
    vault = Vault("newcomer.vlt", rel_dir=str(tmp_path / "vaults"), vault_uid="scripted")
    found = vault.read().experience
    assert found["observations"].shape[:3] == (1, 288, 8)
    episodes = list(joint_episodes(place))
    agents = np.concatenate([episode.agents for episode in episodes])
    towns = np.repeat([episode.meta.capture.town for episode in episodes], 144)
    where = {(int(town), int(tick)): t for t, (town, tick) in enumerate(zip(towns, np.asarray(found["infos"]["tick"][0])))}
    seen = {key: np.asarray(found[key][0]) for key in ("observations", "actions", "rewards", "truncations")}
    legals, active = (np.asarray(found["infos"][key][0]) for key in ("legals", "active"))
    for moment in again:
        t = where[moment["town"], moment["tick"]]
        for name in moment.keys() - {"town", "tick"}:
            k = agents[t].tolist().index(name)
            features, mask, action, reward, _ = moment[name]
            np.testing.assert_array_equal(seen["observations"][t, k], features)
            np.testing.assert_array_equal(legals[t, k], mask)
            assert (seen["actions"][t, k], seen["rewards"][t, k], active[t, k]) == (action, reward, True)
    assert legals[~active].sum(axis=-1).tolist() == [1] * int((~active).sum())
    assert not seen["observations"][~active].any()
    assert seen["truncations"].all(axis=1).nonzero()[0].tolist() == [143, 287]
    assert json.loads(vault._metadata["episodes"])[1]["town"] == 1
