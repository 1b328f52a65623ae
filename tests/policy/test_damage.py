"""Damaged and hostile replay data: thousands of generated cases, each refused with one sentence, nothing unpickled."""

from __future__ import annotations

import io
import json
import os
import pickle
import resource
import struct
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from townlet import files
from townlet.bench.samples import generated_sample, generated_source
from townlet.cli.app import main
from townlet.errors import ReplayError
from townlet.npz import npz_bytes, read_npz
from townlet.policy.capture_folder import CaptureWriter
from townlet.policy.manifest import PREFIX
from townlet.policy.replay import FirstGenerationWarning, ReplayDataset, ReplayDatasetConfig
from townlet.policy.replay_report import validate
from townlet.policy.sample import encode_sample
from townlet.policy.trajectory import to_disk

Rng = np.random.Generator
CASES = 5_000
NAME = f"{PREFIX}_resident_1_000"


class Bench:
    """A small valid capture, and what it takes to break it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sample = generated_sample(generated_source("compact"), 1, 3)
        self.data, self.text = encode_sample(self.sample)
        self.meta: dict[str, Any] = json.loads(self.text)
        self.marker = folder.parent / "executed"
        writer = CaptureWriter(files.make_folder(folder), PREFIX)
        writer.put(self.sample)
        writer.close()
        self.whole = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.stamps = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}

    def restore(self) -> None:
        """Write again what a way to break it has touched."""
        there = {entry.name: entry for entry in os.scandir(self.folder)}
        for name, data in self.whole.items():
            entry = there.get(name)
            if entry is not None and entry.is_file(follow_symlinks=False) and entry.stat().st_mtime_ns == self.stamps[name]:
                continue
            if entry is not None and not entry.is_file(follow_symlinks=False):
                files.remove(entry.path)
            path = self.folder / name
            path.write_bytes(data)
            self.stamps[name] = path.stat().st_mtime_ns

    def put(self, *, data: bytes | None = None, text: bytes | None = None, manifest: Any = None) -> None:
        """Replace files and drop the hashes, so that the damage itself is met and not the hash."""
        (self.folder / files.SUMS).unlink(missing_ok=True)
        if data is not None:
            (self.folder / f"{NAME}.npz").write_bytes(data)
        if text is not None:
            (self.folder / f"{NAME}.json").write_bytes(text)
        path = self.folder / f"{PREFIX}_manifest.json"
        path.write_bytes(manifest if isinstance(manifest, bytes) else json.dumps(manifest or [f"{NAME}.npz"]).encode())


def members(**arrays: Any) -> bytes:
    """A zip of raw members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def npy(array: Any, **header: Any) -> bytes:
    """An array in NumPy's format, whose header may lie."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=True)
    if not header:
        return stream.getvalue()
    told = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape} | header
    text = (repr(told) + " " * 200)[:180] + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + array.tobytes()


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def parts(bench: Bench) -> dict[str, bytes]:
    return {name: npy(array) for name, array in to_disk(bench.sample).items()}


# --- the ways to break it ------------------------------------------------------------------------------------------------


def truncated(bench: Bench, rng: Rng) -> None:
    bench.put(data=bench.data[: int(rng.integers(len(bench.data)))])


def trailing(bench: Bench, rng: Rng) -> None:
    bench.put(data=bench.data + rng.bytes(int(rng.integers(1, 40))))


def leading(bench: Bench, rng: Rng) -> None:
    bench.put(data=rng.bytes(int(rng.integers(1, 40))) + bench.data)


def noise(bench: Bench, rng: Rng) -> None:
    bench.put(data=rng.bytes(int(rng.integers(0, 3000))))


def flipped_bit_under_a_hash(bench: Bench, rng: Rng) -> None:
    name = str(rng.choice([f"{NAME}.npz", f"{NAME}.json", f"{PREFIX}_manifest.json", files.SUMS, f"{PREFIX}_metrics.json"]))
    data = bytearray((bench.folder / name).read_bytes())
    data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    (bench.folder / name).write_bytes(data)


def wrong_dtype(bench: Bench, rng: Rng) -> None:
    arrays = dict(to_disk(bench.sample))
    name = str(rng.choice(list(arrays)))
    kinds = [k for k in ("f8", "f2", "i4", "u1", "S3", "U2", "c8", "M8[s]", "bool") if np.dtype(k) != arrays[name].dtype]
    content = parts(bench) | {name: npy(np.zeros(arrays[name].shape, str(rng.choice(kinds))))}
    bench.put(data=members(**content))


def object_array(bench: Bench, rng: Rng) -> None:
    name = str(rng.choice(list(to_disk(bench.sample))))
    bench.put(data=members(**parts(bench) | {name: npy(np.array([Payload(bench.marker)] * 3, dtype=object))}))


def bare_pickle(bench: Bench, rng: Rng) -> None:
    name = str(rng.choice(list(to_disk(bench.sample))))
    raw = pickle.dumps(Payload(bench.marker))
    bench.put(data=raw if rng.random() < 0.5 else members(**parts(bench) | {name: raw}))


def not_finite(bench: Bench, rng: Rng) -> None:
    arrays = {name: array.copy() for name, array in to_disk(bench.sample).items()}
    name = str(rng.choice([name for name, array in arrays.items() if array.dtype.kind == "f"]))
    arrays[name].flat[int(rng.integers(arrays[name].size))] = rng.choice([np.nan, np.inf, -np.inf])
    bench.put(data=npz_bytes(arrays))


def wrong_shape(bench: Bench, rng: Rng) -> None:
    arrays = dict(to_disk(bench.sample))
    name = str(rng.choice(list(arrays)))
    shape = list(arrays[name].shape)
    shape[int(rng.integers(len(shape)))] += int(rng.choice([-1, 1, 7]))
    bench.put(data=npz_bytes(arrays | {name: np.zeros(shape, arrays[name].dtype)}))


def header_lies(bench: Bench, rng: Rng) -> None:
    arrays = to_disk(bench.sample)
    name = str(rng.choice(list(arrays)))
    lies: list[dict[str, Any]] = [
        {"shape": (10**12,)},
        {"shape": (2**62, 2**62)},
        {"shape": (-1,)},
        {"shape": (True,)},
        {"shape": "all"},
        {"descr": "|O"},
        {"descr": [("a", "|O")]},
        {"descr": ">f16"},
        {"descr": "nonsense"},
        {"fortran_order": 3},
        {"extra": 1},
        {"shape": tuple([1] * 40)},
    ]
    bench.put(data=members(**parts(bench) | {name: npy(arrays[name], **lies[int(rng.integers(len(lies)))])}))


def bomb(bench: Bench, rng: Rng) -> None:
    """A small archive whose member unfolds to 300 MB and more, or to more than its directory says."""
    raw = bytearray(packed_zeros())
    at = raw.find(b"PK\x01\x02")
    size = int(rng.integers(300, 4000)) << 20 if rng.random() < 0.5 else int(rng.integers(1, 1000))
    raw[at + 24 : at + 28] = struct.pack("<I", size)
    bench.put(data=bytes(raw))


@cache
def packed_zeros() -> bytes:
    """One member of 300 MB, packed to 300 kB."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("features.npy", "w") as stream,
    ):
        for _ in range(300):
            stream.write(bytes(1 << 20))
    return buffer.getvalue()


def duplicate_members(bench: Bench, rng: Rng) -> None:
    buffer = io.BytesIO()
    name = str(rng.choice(list(to_disk(bench.sample))))
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w") as archive:
        warnings.simplefilter("ignore")
        for part, content in [*parts(bench).items(), (name, parts(bench)[name])]:
            archive.writestr(f"{part}.npy", content)
    bench.put(data=buffer.getvalue())


def odd_members(bench: Bench, rng: Rng) -> None:
    names = ["../features", "/etc/features", "a/b", "..", "features.npy", "weights", "C:x", "x" * 300, "\x01", "é"]
    bench.put(data=members(**parts(bench) | {names[int(rng.integers(len(names)))]: npy(np.zeros(2))}))


def missing_member(bench: Bench, rng: Rng) -> None:
    arrays = dict(to_disk(bench.sample))
    del arrays[str(rng.choice(list(arrays)))]
    bench.put(data=npz_bytes(arrays))


def illegal_action(bench: Bench, rng: Rng) -> None:
    arrays = {name: array.copy() for name, array in to_disk(bench.sample).items()}
    name = str(rng.choice(["actions", "expert_action"]))
    step = int(rng.integers(3))
    mask = arrays["action_mask"][step]
    mask[1] = False
    arrays[name][step] = int(rng.choice([-1, 17, 2**62, 1]))
    mask[0] = True
    bench.put(data=npz_bytes(arrays))


def odd_json(bench: Bench, rng: Rng) -> None:
    texts = [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff\xfe",
        b'{"a": NaN}',
        b'{"a": 1, "a": 2}',
        b"[" * 5000,
        b'"text"',
        b"1e999",
        b"\x00",
    ]
    bench.put(text=texts[int(rng.integers(len(texts)))])


def cut_json(bench: Bench, rng: Rng) -> None:
    bench.put(text=bench.text[: int(rng.integers(len(bench.text) - 3))])


def odd_field(bench: Bench, rng: Rng) -> None:
    name = str(rng.choice([name for name in bench.meta if name != "schema_version"]))
    junk: list[Any] = [None, [], {}, -1, 1.5, 10**30, [None], {"x": []}, [[]]]
    choice = junk[int(rng.integers(len(junk)))]
    if name == "metrics" and isinstance(choice, dict):
        choice = {"deep": {"deeper": {"x": 1}}}
    if name == "map_channels" and choice == []:
        choice = ["one", 2]
    if name == "map_shape" and choice == []:
        choice = [4, 11, 11]
    if name in ("first_tick", "decision_interval") and choice == 10**30:
        choice = "ten"
    bench.put(text=json.dumps(bench.meta | {name: choice}).encode())


def lost_field(bench: Bench, rng: Rng) -> None:
    required = [name for name in bench.meta if name not in ("metrics", "schema_version")]
    name = str(rng.choice(required))
    bench.put(text=json.dumps({key: value for key, value in bench.meta.items() if key != name}).encode())


def unknown_version(bench: Bench, rng: Rng) -> None:
    versions: list[Any] = ["2.0", "", "1.10", 1.1, None, "one"]
    bench.put(text=json.dumps(bench.meta | {"schema_version": versions[int(rng.integers(len(versions)))]}).encode())


def false_metric(bench: Bench, rng: Rng) -> None:
    metrics = bench.meta["metrics"]
    checked = [name for name in metrics if not name.startswith(("reward_terms", "conflict_", "queue_", "wait_"))]
    name = str(rng.choice(checked))
    was = metrics[name]
    junk: list[Any] = [[*was[::-1], 1] if isinstance(was, list) else was + 0.1, None, [3], {"x": 0.5}, 1e300]
    bench.put(text=json.dumps(bench.meta | {"metrics": metrics | {name: junk[int(rng.integers(len(junk)))]}}).encode())


def no_rivalry(bench: Bench, rng: Rng) -> None:
    lost = str(rng.choice(["rivalry_max", "rivalry_avoid_count"]))
    names = [f"was_{name}" if name == lost else name for name in bench.meta["feature_names"]]
    bench.put(text=json.dumps(bench.meta | {"feature_names": names}).encode())


def absent_file(bench: Bench, rng: Rng) -> None:
    (bench.folder / f"{NAME}.{rng.choice(['npz', 'json'])}").unlink()


def not_a_file(bench: Bench, rng: Rng) -> None:
    path = bench.folder / f"{NAME}.{rng.choice(['npz', 'json'])}"
    path.unlink()
    path.mkdir()


def link_outside(bench: Bench, rng: Rng) -> None:
    outside = bench.folder.parent / "outside"
    files.write_bytes(outside.with_suffix(".npz"), bench.data)
    files.write_bytes(outside.with_suffix(".json"), bench.text)
    end = str(rng.choice(["npz", "json"]))
    path = bench.folder / f"{NAME}.{end}"
    path.unlink()
    path.symlink_to(outside.with_suffix(f".{end}"))


def path_outside(bench: Bench, rng: Rng) -> None:
    outside = bench.folder.parent / "outside"
    files.write_bytes(outside.with_suffix(".npz"), bench.data)
    files.write_bytes(outside.with_suffix(".json"), bench.text)
    ways = [
        "../outside.npz",
        str(outside.with_suffix(".npz")),
        "a/../../outside.npz",
        "..\\outside.npz",
        "~/x.npz",
        "\0.npz",
        "C:/x.npz",
    ]
    way = ways[int(rng.integers(len(ways)))]
    entry: Any = way if rng.random() < 0.5 else {"sample": way, "meta": "../outside.json"}
    bench.put(manifest=[entry] if rng.random() < 0.5 else [{"sample": f"{NAME}.npz", "meta": "../outside.json"}])


def odd_manifest(bench: Bench, rng: Rng) -> None:
    name = f"{NAME}.npz"
    wrong: list[Any] = [
        b"",
        b"{}",
        b"7",
        b"[",
        b"\xff",
        b"[]",
        [7],
        [None],
        [[name]],
        [{}],
        [{"sample": 3}],
        [{"sample": name, "agent_id": 1}],
        [{"sample": name, "frame_count": "3"}],
        [{"sample": name, "frame_count": 4}],
        [{"sample": name, "frame_count": True}],
        [{"sample": name, "sha256": "0" * 64}],
        [{"sample": name, "meta_sha256": "f" * 64}],
        [{"sample": name, "shape": [1]}],
        [name, name],
        {"samples": {}},
        {"metadata": [], "samples": [name]},
        {"samples": [name], "more": 1},
        [f"{NAME}.json"],
        [""],
        ["a" * 5000 + ".npz"],
    ]
    bench.put(manifest=wrong[int(rng.integers(len(wrong)))])


WAYS: list[Callable[[Bench, Rng], None]] = [
    truncated, trailing, leading, noise, flipped_bit_under_a_hash, wrong_dtype, object_array, bare_pickle, not_finite,
    wrong_shape, header_lies, bomb, duplicate_members, odd_members, missing_member, illegal_action, odd_json, cut_json,
    odd_field, lost_field, unknown_version, false_metric, no_rivalry, absent_file, not_a_file, link_outside, path_outside,
    odd_manifest,
]  # fmt: skip


def damaged(folder: Path, count: int, seed: int) -> Iterator[tuple[str, Bench]]:
    """So many damaged captures, way after way; the folder is whole again before each."""
    bench = Bench(folder)
    for number in range(count):
        way = WAYS[number % len(WAYS)]
        bench.restore()
        way(bench, np.random.default_rng((seed, number)))
        yield f"{number}: {way.__name__}", bench


def refusal(folder: Path) -> str:
    """The sentence with which a capture is refused; empty when it is read to the end."""
    try:
        for _ in ReplayDataset(ReplayDatasetConfig.from_capture_dir(folder)):
            pass
    except ReplayError as error:
        return str(error)
    return ""


@pytest.mark.filterwarnings("error")
def test_five_thousand_damaged_captures_are_refused_with_one_sentence(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, bench in damaged(tmp_path / "c", CASES, 7):
        message = refusal(bench.folder)
        assert message, f"{name} was accepted"
        assert "\n" not in message, name
        assert len(message) < 1000, name
        assert not bench.marker.exists(), name
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 160 << 10  # kibibytes; the bombs unfold to 300 MB and more


def test_the_validator_reports_what_the_reader_refuses(tmp_path: Path) -> None:
    for name, bench in damaged(tmp_path / "c", 10 * len(WAYS), 8):
        report = validate(bench.folder)
        assert not report.ok, name
        assert all("\n" not in problem for problem in report.problems), name


def test_sixty_damaged_captures_through_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, bench in damaged(tmp_path / "c", 60, 9):
        for command, code in (("validate", 1), ("stats", 3), ("inspect", 3)):
            with pytest.raises(SystemExit) as left:
                main(["replay", command, str(bench.folder)])
            told = capsys.readouterr()
            assert left.value.code == code, (name, command, told)
            assert "Traceback" not in told.err
            if command != "validate":
                assert told.out == ""
                assert told.err.startswith("townlet: "), name
                assert told.err.count("\n") == 1, name
        assert not bench.marker.exists()


@pytest.mark.slow
def test_sixty_damaged_captures_in_processes_of_their_own(tmp_path: Path) -> None:
    for name, bench in damaged(tmp_path / "c", 60, 10):
        script = (
            "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)); "
            "from townlet.cli.app import main\ntry: main(sys.argv[1:])\n"
            "finally: sys.stderr.writelines(line for line in open('/proc/self/status') if line.startswith('VmHWM'))"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, "replay", "stats", str(bench.folder)], capture_output=True, text=True
        )
        assert done.returncode == 3, (name, done.stderr)
        told, peak = done.stderr.splitlines()
        assert told.startswith("townlet: "), name
        assert int(peak.split()[1]) < 1 << 20, name  # 1 GiB, of this program alone: ru_maxrss has the parent's before exec, too


def test_a_path_that_is_not_there_is_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("validate", "stats", "inspect"):
        for name in ("gone", "gone.npz", "gone.json"):
            with pytest.raises(SystemExit) as left:
                main(["replay", command, str(tmp_path / name)])
            assert left.value.code == 3
            assert name in capsys.readouterr().err


def test_all_problems_of_a_dataset_stand_in_one_report(tmp_path: Path) -> None:
    writer = CaptureWriter(files.make_folder(tmp_path / "c"), PREFIX)
    source = generated_source("compact")
    for seed in range(4):
        writer.put(generated_sample(source, seed, 3 + seed))
    writer.close()
    good, nan, rivalry, gone = sorted(path.stem for path in (tmp_path / "c").glob("*.npz"))
    arrays = read_npz(tmp_path / "c" / f"{nan}.npz", limit=1 << 20)
    arrays["rewards"][1] = np.nan
    arrays["old_log_probs"] = np.abs(arrays["old_log_probs"])
    files.write_bytes(tmp_path / "c" / f"{nan}.npz", npz_bytes(arrays))
    meta = files.read_json(tmp_path / "c" / f"{rivalry}.json")
    meta["feature_names"] = [name.replace("rivalry", "envy") for name in meta["feature_names"]]
    files.write_json(tmp_path / "c" / f"{rivalry}.json", meta)
    files.remove(tmp_path / "c" / f"{gone}.json")
    files.write_json(tmp_path / "c" / "m.json", [f"{name}.npz" for name in (good, nan, rivalry, gone)])
    report = validate(tmp_path / "c" / "m.json")
    told = "\n".join(report.problems)
    assert f"{nan}.npz: rewards holds a value that is not finite at step 1" in told
    assert f"{nan}.npz: old_log_probs is above 0" in told
    assert f"{rivalry}.npz: the features lack rivalry_max and rivalry_avoid_count" in told
    assert f"{gone}.json" in told
    assert good not in told.replace(f"{good}.npz and", "")
    assert report.samples == 4
    assert any("windows of 3 lengths" in note for note in report.notes)


def test_first_generation_samples_are_named_in_the_notes(tmp_path: Path) -> None:
    width = 36
    names = ["rivalry_max", "rivalry_avoid_count", *(f"social_placeholder_{i}" for i in range(width - 2))]
    arrays = {
        "features": np.zeros((2, width), np.float32),
        "actions": np.zeros(2, np.int64),
        "old_log_probs": np.zeros(2, np.float32),
        "value_preds": np.zeros(2, np.float32),
        "rewards": np.zeros(2, np.float32),
        "dones": np.zeros(2, np.bool_),
    }
    files.write_bytes(tmp_path / "old.npz", npz_bytes(arrays))
    files.write_json(tmp_path / "old.json", {"feature_names": names, "variant": "hybrid"})
    with warnings.catch_warnings():
        warnings.simplefilter("error", FirstGenerationWarning)
        report = validate(tmp_path / "old.npz")
    assert report.ok
    assert "of the first generation, read-only" in report.notes[0]
