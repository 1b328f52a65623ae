"""Files: old or new and never half, hostile archives refused by one error, logs of whole lines, one writer per folder."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import json
import multiprocessing
import os
import random
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from townlet import files
from townlet.errors import CheckpointError, DamagedFileError, ReplayError, StorageError, UsageError
from townlet.files import (
    AppendLog,
    Disk,
    FolderLock,
    check_sums,
    filling,
    parse_json,
    partial_folder,
    publish_folder,
    read_bytes,
    read_json,
    safe_join,
    write_bytes,
    write_json,
    write_sums,
    write_text,
)
from townlet.npz import npz_bytes, read_npz

LIMIT = 1 << 20


class Crash(BaseException):
    """The machine stops: nothing after this runs."""


class Faulty:
    """A disk whose n-th operation fails in one of four ways; after a crash every further one does too."""

    def __init__(self, fail_at: int, how: str) -> None:
        self.count, self.fail_at, self.how, self.dead = 0, fail_at, how, False
        real = fast_disk()
        self.disk = Disk(**{field.name: self._wrap(field.name, getattr(real, field.name)) for field in fields(Disk)})

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any) -> Any:
            if self.dead:
                raise Crash
            self.count += 1
            if self.count - 1 != self.fail_at:
                return real(*arguments)
            if self.how == "crash before":
                self.dead = True
                raise Crash
            if self.how == "crash after":
                real(*arguments)
                self.dead = True
                raise Crash
            if name == "write" and self.how == "short":
                handle, data = arguments
                return real(handle, memoryview(data)[: len(data) // 2])
            if name == "write" and self.how == "torn":
                handle, data = arguments
                real(handle, memoryview(data)[: len(data) // 2])
                self.dead = True
                raise Crash
            if name == "close":
                real(*arguments)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return operation


def put_file(root: Path) -> None:
    write_bytes(root / "deep" / "a.bin", b"new" * 100)


def put_json(root: Path) -> None:
    write_json(root / "a.json", {"new": [1, 2, 3]})


def put_folder(root: Path) -> None:
    partial = partial_folder(root / "capture")
    write_bytes(partial / "one", b"1" * 50, sync=False)
    write_text(partial / "two", "2" * 50, sync=False)
    write_sums(partial)
    publish_folder(partial, root / "capture", overwrite=True)


def append_line(root: Path) -> None:
    with AppendLog(root / "log.ndjson") as log:
        log.write('{"line": 3}', sync=True)


def discard(root: Path) -> None:
    with AppendLog(root / "log.ndjson") as log:
        log.discard_after(12)


WRITERS = {"file": put_file, "json": put_json, "folder": put_folder, "append": append_line, "discard": discard}


def prepare(root: Path) -> None:
    write_bytes(root / "deep" / "a.bin", b"old" * 7)
    write_json(root / "a.json", {"old": 1})
    old = partial_folder(root / "capture")
    write_text(old / "zero", "old capture")
    write_sums(old)
    publish_folder(old, root / "capture")
    with AppendLog(root / "log.ndjson") as log:
        log.write('{"line": 1}')
        log.write('{"line": 2}')


def state(root: Path) -> dict[str, bytes]:
    """What a reader sees: partial and hidden names do not count, whole lines of a log only, the captures must verify."""
    seen: dict[str, bytes] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if (
            path.is_file()
            and ".partial" not in name
            and ".old-" not in name
            and "discarded" not in name
            and ".publishing" not in name
        ):
            data = path.read_bytes()
            seen[name] = data[: data.rfind(b"\n") + 1] if name.endswith(".ndjson") else data
    check_sums(root / "capture")
    return seen


def fast_disk() -> Disk:
    """All operations real but those that only wait for the hardware."""
    return Disk(sync=lambda path: None, fsync=lambda handle: None)


@pytest.fixture(autouse=True)
def _real_disk() -> Iterator[None]:
    files.disk = fast_disk()
    yield
    files.disk = Disk()


def test_publishing_waits_for_its_own_file_system_and_tells_its_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It synced the whole machine, which tells nobody of an error."""
    files.disk, synced = Disk(), []
    monkeypatch.setattr(os, "sync", lambda: synced.append("machine"))
    write_text(files.partial_folder(tmp_path / "out") / "note", "words", sync=False)

    def broken(handle: int) -> int:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        ctypes.set_errno(errno.EIO)
        return -1

    system = SimpleNamespace(syncfs=broken)
    monkeypatch.setattr(ctypes, "CDLL", lambda *names, **options: system)
    with pytest.raises(StorageError, match="Input/output error"):
        publish_folder(tmp_path / "out.partial", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    del system.syncfs  # a system that cannot
    publish_folder(tmp_path / "out.partial", tmp_path / "out")
    assert synced == [str(tmp_path / "out.partial"), "machine"]


FAULTS = [(writer, how, True) for writer in WRITERS for how in ("crash before", "crash after", "full", "short", "torn")]
FAULTS += [
    ("folder", how, False) for how in ("full", "short")
]  # where two names cannot be swapped in one step, errors are undone


@pytest.mark.parametrize(("writer", "how", "exchange"), FAULTS)
def test_every_fault_leaves_the_old_or_the_new_state(tmp_path: Path, writer: str, how: str, exchange: bool) -> None:
    """A crash, a full disk or a short write at every single operation of every writer."""
    prepare(before := tmp_path / "before")
    old = state(before)
    WRITERS[writer](before)
    new = state(before)
    assert old != new
    outcomes = set()
    for step in range(200):
        prepare(root := tmp_path / f"step{step}")
        faulty = Faulty(step, how)
        if not exchange:
            faulty.disk.exchange = no_exchange
        files.disk = faulty.disk
        done = False
        try:
            WRITERS[writer](root)
            done = True
        except (Crash, StorageError):
            pass
        files.disk = fast_disk()
        found = state(root)
        assert found in (old, new), f"operation {step}: neither the old nor the new state"
        assert not done or found == new
        outcomes.add(found == new)
        WRITERS[writer](root) if writer != "append" or found == old else None  # the next try succeeds whatever was left behind
        assert state(root) == new
        if done and faulty.count <= step:
            break
    else:
        pytest.fail("the writer never came to its end")
    assert outcomes == {True, False} or how == "short"


def no_exchange(left: str, right: str) -> None:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def test_a_full_disk_is_one_sentence_with_the_remedy(tmp_path: Path) -> None:
    files.disk = Faulty(2, "full").disk
    with pytest.raises(StorageError, match=r"a\.txt cannot be written: No space left on device; free some space and run again"):
        write_text(tmp_path / "a.txt", "text")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.EFBIG, "ulimit -f"), (errno.EROFS, "choose a place that can be written"), (errno.EIO, "check")]
)
def test_a_write_that_the_system_refuses_is_told_with_its_own_remedy(tmp_path: Path, number: int, remedy: str) -> None:
    def refused(handle: int, data: bytes | memoryview) -> int:
        raise OSError(number, os.strerror(number))

    files.disk.write = refused
    with pytest.raises(StorageError, match=rf"a\.txt cannot be written: {os.strerror(number)}; .*{remedy}"):
        write_text(tmp_path / "a.txt", "words")


@pytest.mark.parametrize("link", [False, True])
def test_a_device_or_a_pipe_is_never_replaced(tmp_path: Path, link: bool) -> None:
    """Whoever may do everything would have made a file of /dev/null, or of /dev/stdout."""
    os.mkfifo(tmp_path / "pipe")
    place = tmp_path / ("link" if link else "pipe")
    if link:
        place.symlink_to("pipe")
    (tmp_path / "new").mkdir()
    for write in (
        lambda: write_bytes(place, b"x"),
        lambda: publish_folder(tmp_path / "new", place, overwrite=True),
        lambda: files.check_free(place, overwrite=True),
    ):
        with pytest.raises(UsageError, match="is a device or a pipe"):
            write()
    assert (place.is_fifo(), place.is_symlink()) == (True, link)
    assert sorted(path.name for path in tmp_path.iterdir()) == (["link"] if link else []) + ["new", "pipe"]


def test_an_existing_folder_is_refused_and_overwriting_moves_it_aside(tmp_path: Path) -> None:
    for content in ("first", "second", "third"):
        write_text(partial_folder(tmp_path / "out") / "note", content)
        if content == "second":
            with pytest.raises(UsageError, match="already exists"):
                publish_folder(tmp_path / "out.partial", tmp_path / "out")
        publish_folder(tmp_path / "out.partial", tmp_path / "out", overwrite=True)
    kept = {path.name: (path / "note").read_text() for path in tmp_path.iterdir()}
    assert kept == {"out": "third", "out.old-1": "first", "out.old-2": "second"}


def test_a_folder_that_is_no_capture_is_not_moved_aside_for_one(tmp_path: Path) -> None:
    for name in ("data", "capture", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "thesis.tex").write_text("years of work")
    (tmp_path / "capture" / "SHA256SUMS").write_text("")
    with pytest.raises(UsageError, match=r"data is not a capture \(it has no SHA256SUMS\) and is not moved aside"):
        files.check_free(tmp_path / "data", overwrite=True, what="folder")
    for name in ("capture", "empty", "new"):
        files.check_free(tmp_path / name, overwrite=True, what="folder")


def test_nothing_is_written_into_a_capture(tmp_path: Path) -> None:
    """`replay filter CAPTURE --output CAPTURE/part` had made a damaged capture of it."""
    write_text(tmp_path / "note", "a sample")
    write_sums(tmp_path)
    for what in ("file", "folder", "place"):
        with pytest.raises(UsageError, match=r"is complete \(its SHA256SUMS list every file\) and would be damaged"):
            files.check_free(tmp_path / "part", overwrite=True, what=what)


# --- hashes ----------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_of_a_folder_is_detected(tmp_path: Path) -> None:
    write_bytes(tmp_path / "weights", bytes(range(64)))
    write_json(tmp_path / "sub" / "state.json", {"a": 1})
    write_sums(tmp_path)
    assert set(check_sums(tmp_path, require=["weights"])) == {"weights", "sub/state.json"}
    for path in (tmp_path / "weights", tmp_path / "sub" / "state.json", tmp_path / "SHA256SUMS"):
        good = path.read_bytes()
        for bit in range(0, len(good) * 8, 3):
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            path.write_bytes(bad)
            with pytest.raises(CheckpointError):
                check_sums(tmp_path, require=["weights", "sub/state.json"], error=CheckpointError)
        path.write_bytes(good)
    check_sums(tmp_path)


def test_sums_are_those_of_sha256sum(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "hello")
    write_sums(tmp_path)
    assert subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=tmp_path, capture_output=True, check=True).stdout == b"a: OK\n"


def test_sums_that_are_cut_or_lack_a_file_are_refused(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "x")
    write_sums(tmp_path)
    with pytest.raises(DamagedFileError, match="does not list b"):
        check_sums(tmp_path, require=["b"])
    sums = (tmp_path / "SHA256SUMS").read_bytes()
    for cut in range(len(sums)):
        (tmp_path / "SHA256SUMS").write_bytes(sums[:cut])
        with pytest.raises(DamagedFileError):
            check_sums(tmp_path)
    (tmp_path / "SHA256SUMS").write_text("0" * 64 + "  ../outside\n")
    with pytest.raises(DamagedFileError, match="leads out"):
        check_sums(tmp_path)


# --- what is written -------------------------------------------------------------------------------------------------

SHAPES = {
    "plain": {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "flags": np.array([True, False])},
    "strided": {"a": np.arange(20)[::3], "b": np.asfortranarray(np.arange(6.0).reshape(2, 3))},
    "small": {"scalar": np.float64(3.5), "none": np.empty((0, 4), np.int8), "text": np.array(["ab", "c"])},
    "records": {"rows": np.zeros(3, [("x", "i4"), ("y", "f8")])},
    "nothing": {},
}


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("arrays", SHAPES.values(), ids=SHAPES)
def test_an_archive_is_byte_for_byte_that_of_zipfile(arrays: dict[str, Any], compress: bool) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            body = io.BytesIO()
            np.lib.format.write_array(body, np.ascontiguousarray(array) if np.ndim(array) else np.asarray(array), (1, 0))
            member = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            member.create_system, member.external_attr = 3, 0o644 << 16
            member.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
            archive.writestr(member, body.getvalue())
    made = npz_bytes(arrays, compress=compress)
    assert made == stream.getvalue()
    for name, array in read_npz(made, limit=1 << 20).items():
        np.testing.assert_array_equal(array, arrays[name])


@pytest.mark.parametrize("indent", [1, 2])
def test_json_is_byte_for_byte_that_of_json(indent: int) -> None:
    value = {
        "a": [],
        "b": {},
        "c": [1, 2.5e-7, 1e22, -0.0, None, True, 'é\u2028"\\/\n\x01'],
        "d": {"e": [[]], "f": [{}]},
        "g": 10**25,
    }
    assert files.json_bytes(value, indent=indent) == (json.dumps(value, indent=indent, ensure_ascii=False) + "\n").encode()
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.json_bytes(float("nan"), indent=indent)


# --- paths -----------------------------------------------------------------------------------------------------------

ESCAPES = [
    "/",
    "/etc/passwd",
    "..",
    "../a",
    "a/../../b",
    "a/..",
    "./../a",
    "....//../a",
    "//host/a",
    "a/../b",
    "/proc/self/environ",
]
ESCAPES += ["a\\b", "..\\a", "C:\\a", "C:a", "\\\\host\\a", "~/../../a", "link/a", "link", "loop", "deep/link2/a", "deep/../link"]
ESCAPES += ["", "a\0b", "\0", "../" * 40 + "etc/passwd", "x" * 5000, "\ud800"]


@pytest.mark.parametrize("name", ESCAPES)
def test_no_name_leads_out_of_its_folder(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    (root / "deep").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path)
    (root / "deep" / "link2").symlink_to("/etc")
    (root / "loop").symlink_to(root / "loop")
    with pytest.raises(ReplayError):
        safe_join(root, name, error=ReplayError)


@pytest.mark.parametrize("name", ["a.npz", "sub/a.npz", "%2e%2e%2fa", "..a", "a..", "~"])
def test_names_inside_are_kept(tmp_path: Path, name: str) -> None:
    assert safe_join(tmp_path, name) == tmp_path / name


# --- JSON ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not valid JSON"),
        (b"\xff\xfe{}", "not a text in UTF-8"),
        (b'{"a": 1, "a": 2}', "'a' appears twice"),
        (b'{"a": NaN}', "found NaN"),
        (b'{"a": -Infinity}', "found -Infinity"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": 1}\n{"b": 2}', "a.json:2: this is not valid JSON"),
        (b'["\\ud800"]', "not a text in UTF-8"),
        (b"1" * 5000, "a.json: Exceeds the limit"),
    ],
)
def test_bad_json_is_refused_in_one_sentence(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(ReplayError, match=message):
        read_json(tmp_path / "a.json", error=ReplayError)


@given(st.binary(max_size=100) | st.text('{}[]",:01eE+-.ntu\\d8 ', max_size=60).map(str.encode))
def test_any_bytes_are_json_or_a_typed_error(data: bytes) -> None:
    with contextlib.suppress(ReplayError):
        parse_json(data, "fuzz", error=ReplayError)


def test_readers_name_what_is_not_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "big").write_bytes(bytes(100))
    for name, message in (
        ("absent", "there is no file"),
        ("pipe", "not a regular file"),
        (".", "not a regular file"),
        ("big", "has 100 bytes"),
    ):
        with pytest.raises(DamagedFileError, match=message):
            read_bytes(tmp_path / name, limit=99)


@pytest.mark.parametrize("kept", ["cwd", "home", "temporary"])
def test_a_folder_that_somebody_lives_in_is_never_moved_aside(kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = tmp_path / "house"
    room = house / "room"
    room.mkdir(parents=True)
    if kept == "cwd":
        monkeypatch.chdir(room)
    elif kept == "home":
        monkeypatch.setenv("HOME", str(room))
    else:
        monkeypatch.setattr("tempfile.tempdir", str(room))
    for folder in (house, room):
        with pytest.raises(UsageError, match="is not moved aside; name a folder of its own"):
            files.check_free(folder, True, "folder")
        partial = partial_folder(folder)
        with pytest.raises(UsageError, match="is not moved aside"):
            publish_folder(partial, folder, overwrite=True)
        files.remove(partial)
    assert room.is_dir()
    files.check_free(house / "other", True, "folder")


def test_a_loop_of_links_can_be_replaced_and_a_name_that_is_none_is_told(tmp_path: Path) -> None:
    """Both ended in an error of the library that follows links."""
    (tmp_path / "loop").symlink_to("loop")
    files.check_free(tmp_path / "loop", overwrite=True)
    with pytest.raises(UsageError, match="already exists"):
        files.check_free(tmp_path / "loop", overwrite=False)
    files.check_movable("a\0b")


# --- arrays ----------------------------------------------------------------------------------------------------------


def sample_arrays() -> dict[str, np.ndarray[Any, Any]]:
    record = np.zeros(3, [("present", "u1"), ("ring", "<i8", (2,)), ("x", "<f8")])
    record["x"] = 1.5
    return {
        "map": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
        "features": np.linspace(0, 1, 10, dtype=np.float32),
        "dones": np.array([True, False]),
        "nothing": np.zeros((0, 5)),
        "one": np.float64(3.0),
        "residents": record,
        "turned": np.asfortranarray(np.arange(6).reshape(2, 3)),
    }


@pytest.mark.parametrize("compress", [False, True])
def test_arrays_come_back_as_they_were(tmp_path: Path, compress: bool) -> None:
    arrays = sample_arrays()
    data = npz_bytes(arrays, compress=compress)
    (tmp_path / "a.npz").write_bytes(data)
    back = read_npz(tmp_path / "a.npz", limit=LIMIT)
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == np.asarray(array).dtype
        assert back[name].flags.writeable
    with np.load(io.BytesIO(data)) as theirs:
        np.testing.assert_array_equal(theirs["residents"], arrays["residents"])


def test_equal_arrays_give_equal_bytes() -> None:
    first = npz_bytes(sample_arrays())
    time.sleep(0.01)
    assert npz_bytes(sample_arrays()) == first


def test_archives_of_numpy_are_read(tmp_path: Path) -> None:
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **sample_arrays())
        assert set(read_npz(tmp_path / "a.npz", limit=LIMIT)) == set(sample_arrays())


def zipped(members: dict[str, bytes], **options: Any) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", **options) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def npy(header: str, body: bytes = b"", version: bytes = b"\1\0") -> bytes:
    text = header.encode()
    size = struct.pack("<H", len(text)) if version == b"\1\0" else struct.pack("<I", len(text))
    return b"\x93NUMPY" + version + size + text + body


def described(descr: str, shape: str = "(1,)", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


GOOD = npy(described("'<f8'"), bytes(8))
with io.BytesIO() as _buffer:
    with zipfile.ZipFile(_buffer, "w") as _archive:
        _archive.writestr("a.npy", GOOD)
        with pytest.warns(UserWarning, match="Duplicate"):
            _archive.writestr("a.npy", GOOD)
    TWICE = _buffer.getvalue()
HOSTILE = {
    "empty": b"",
    "text": b"hello",
    "bomb": zipped({"a.npy": bytes(LIMIT * 20)}, compression=zipfile.ZIP_DEFLATED),
    "twice": TWICE,
    "dotdot": zipped({"../a.npy": GOOD}),
    "absolute": zipped({"/a.npy": GOOD}),
    "folder": zipped({"sub/a.npy": GOOD}),
    "backslash": zipped({"..\\a.npy": GOOD}),
    "not an array": zipped({"a.txt": b"hi"}),
    "trailing": zipped({"a.npy": GOOD}) + b"tail",
    "leading": b"head" + zipped({"a.npy": GOOD}),
    "bzip2": zipped({"a.npy": GOOD}, compression=zipfile.ZIP_BZIP2),
    "lzma": zipped({"a.npy": GOOD}, compression=zipfile.ZIP_LZMA),
    "no magic": zipped({"a.npy": b"NUMPY" + GOOD}),
    "version 9": zipped({"a.npy": npy(described("'<f8'"), bytes(8), b"\x09\0")}),
    "cut header": zipped({"a.npy": GOOD[:20]}),
    "cut body": zipped({"a.npy": GOOD[:-1]}),
    "more body": zipped({"a.npy": GOOD + b"x"}),
    "object": zipped({"a.npy": npy(described("'|O'"), bytes(8))}),
    "object field": zipped({"a.npy": npy(described("[('a', '|O')]"), bytes(8))}),
    "nested object": zipped({"a.npy": npy(described("[('a', [('b', '|O')], (1,))]"), bytes(8))}),
    "void": zipped({"a.npy": npy(described("'|V8'"), bytes(8))}),
    "no size": zipped({"a.npy": npy(described("'|S0'", "(1000000000000,)"))}),
    "date": zipped({"a.npy": npy(described("'<M8[s]'"), bytes(8))}),
    "complex": zipped({"a.npy": npy(described("'<c8'"), bytes(8))}),
    "huge shape": zipped({"a.npy": npy(described("'<f8'", "(1099511627775, 1099511627775)"), bytes(8))}),
    "negative": zipped({"a.npy": npy(described("'<f8'", "(-1,)"), bytes(8))}),
    "true shape": zipped({"a.npy": npy(described("'<f8'", "(True,)"), bytes(8))}),
    "list shape": zipped({"a.npy": npy(described("'<f8'", "[1]"), bytes(8))}),
    "many axes": zipped({"a.npy": npy(described("'<f8'", "(" + "1," * 40 + ")"), bytes(8))}),
    "order 1": zipped({"a.npy": npy(described("'<f8'", order="1"), bytes(8))}),
    "call": zipped({"a.npy": npy("__import__('os').system('true')", bytes(8))}),
    "nested": zipped({"a.npy": npy("(" * 20000, bytes(8))}),
    "signs": zipped({"a.npy": npy("-" * 20000 + "1", bytes(8))}),
    "not a dict": zipped({"a.npy": npy("(1, 2)", bytes(8))}),
    "extra key": zipped({"a.npy": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), 'x': 1}", bytes(8))}),
    "odd descr": zipped({"a.npy": npy(described("('<f8', (2, 3))"), bytes(48))}),
    "unknown descr": zipped({"a.npy": npy(described("'<q9'"), bytes(8))}),
    "twice a field": zipped({"a.npy": npy(described("[('a', '<f4'), ('a', '<f4')]"), bytes(8))}),
    "flag 2": zipped({"a.npy": npy(described("'|b1'"), b"\2")}),
    "flag field 2": zipped({"a.npy": npy(described("[('a', '|b1'), ('b', '|b1')]"), b"\1\2")}),
    "header beyond": zipped({"a.npy": b"\x93NUMPY\x02\0\xff\xff\xff\xff" + GOOD}),
    "many members": zipped({f"a{i}.npy": GOOD for i in range(1025)}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_refused_by_one_error(name: str) -> None:
    with pytest.raises(ReplayError, match=r"is not a sound \.npz file: ") as caught:
        read_npz(HOSTILE[name], limit=LIMIT, error=ReplayError)
    assert "\n" not in str(caught.value)


def test_a_comment_and_a_gap_are_refused() -> None:
    buffer = io.BytesIO(zipped({"a.npy": GOOD}))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = b"note"
    with pytest.raises(DamagedFileError, match="bytes follow the archive"):
        read_npz(buffer.getvalue(), limit=LIMIT)


def test_overlapping_members_are_refused() -> None:
    """Two directory entries over the same bytes: the trick that makes small archives expand without end."""
    raw = bytearray(zipped({"a.npy": GOOD, "b.npy": GOOD}))
    second = raw.rfind(b"PK\x01\x02")
    raw[second + 42 : second + 46] = struct.pack("<I", 0)
    with pytest.raises(DamagedFileError, match="begins at byte 0, expected"):
        read_npz(bytes(raw), limit=LIMIT)


@pytest.mark.parametrize("compress", [False, True])
def test_damaged_archives_never_give_other_arrays_or_another_error(compress: bool) -> None:
    """Random damage: a typed error, or exactly the arrays that were stored (a bit of a time stamp may flip unseen)."""
    arrays = {"features": np.linspace(0, 1, 50, dtype=np.float32), "actions": np.arange(50)}
    good = npz_bytes(arrays, compress=compress)
    chance = random.Random(5)
    refused = 0
    for _ in range(4000):
        bad = bytearray(good)
        kind = chance.randrange(4)
        place = chance.randrange(len(bad))
        if kind == 0:
            bad[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del bad[place:]
        elif kind == 2:
            bad[place : place + 4] = struct.pack("<I", chance.choice([0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 20]))
        else:
            end = chance.randrange(place, len(bad))
            bad[chance.randrange(len(bad)) :] = bad[place:end]
        try:
            back = read_npz(bytes(bad), limit=LIMIT)
        except DamagedFileError:
            refused += 1
            continue
        for name, array in back.items():
            original = arrays[name] if name in arrays else next(a for a in arrays.values() if a.dtype == array.dtype)
            np.testing.assert_array_equal(array, original)
    assert refused > 3000


def test_arrays_that_cannot_be_stored_are_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match="cannot be stored"):
        npz_bytes({"a": np.array([object()])})
    with pytest.raises(ValueError, match="cannot be stored"):
        npz_bytes({"../a": np.zeros(1)})


# --- logs ------------------------------------------------------------------------------------------------------------


def test_a_log_cut_at_every_byte_keeps_its_whole_lines(tmp_path: Path) -> None:
    lines = [b'{"epoch": 1}', b'{"epoch": 22}', b'{"epoch": 333}']
    whole = b"\n".join(lines) + b"\n"
    for cut in range(len(whole) + 1):
        path = tmp_path / "log"
        path.write_bytes(whole[:cut])
        with AppendLog(path) as log:
            kept = whole[:cut].rfind(b"\n") + 1
            assert (log.position, log.torn) == (kept, cut - kept)
            log.write("next")
            assert log.position == kept + 5
        assert path.read_bytes() == whole[:kept] + b"next\n"


def test_long_torn_tails_are_repaired(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"first\n" + b"x" * 200_000)
    with AppendLog(tmp_path / "log") as log:
        assert log.torn == 200_000
    assert (tmp_path / "log").read_bytes() == b"first\n"


def test_what_follows_a_checkpoint_is_moved_not_lost(tmp_path: Path) -> None:
    with AppendLog(tmp_path / "log") as log:
        log.write("one")
        kept = log.position
        log.write("two")
        assert log.discard_after(kept) == 4
        log.write("three")
        with pytest.raises(DamagedFileError, match="expected at least 99"):
            log.discard_after(99)
    assert (tmp_path / "log").read_text() == "one\nthree\n"
    assert (tmp_path / "log.discarded").read_text() == "two\n"


def test_a_record_is_one_line(tmp_path: Path) -> None:
    with AppendLog(tmp_path / "log") as log, pytest.raises(ValueError, match="one line"):
        log.write("a\nb")


# --- locks -----------------------------------------------------------------------------------------------------------

HOLD = """
import sys, time
from townlet.files import FolderLock
lock = FolderLock(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""


def test_a_live_writer_is_respected_and_a_dead_one_replaced(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(UsageError, match=f"in use by process {holder.pid}; wait for it"):
        FolderLock(tmp_path)
    (tmp_path / ".state.json.99.partial").write_text("half")
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with FolderLock(tmp_path), pytest.raises(UsageError):
        FolderLock(tmp_path)
    assert not (tmp_path / ".state.json.99.partial").exists()
    FolderLock(tmp_path).release()


FILL = """
import sys, time
from townlet.files import filling
with filling(sys.argv[1]) as partial:
    (partial / "half").write_text("half")
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_that_is_being_filled_is_not_filled_by_another_until_its_writer_is_dead(tmp_path: Path, there: bool) -> None:
    final = tmp_path / "capture"
    if there:
        final.mkdir()
    holder = subprocess.Popen([sys.executable, "-c", FILL, str(final)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(UsageError, match="capture is being written by another process; wait for it to end"), filling(final):
        pass
    assert (tmp_path / "capture.partial" / "half").exists()
    with filling(tmp_path / "another") as partial:  # beside it nobody waits
        publish_folder(partial, tmp_path / "another")
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with filling(final) as partial:
        assert list(partial.iterdir()) == []
        publish_folder(partial, final, overwrite=there, keep_old=False)
        with pytest.raises(UsageError, match="being written"), filling(final):  # also after it has taken its place
            pass
    assert {path.name for path in tmp_path.iterdir()} == {"another", "capture"}


def test_a_forked_child_does_not_keep_the_folder_that_its_dead_parent_filled(tmp_path: Path) -> None:
    """A worker that outlives a killed run must not keep the next run out."""
    code = "import os; from townlet.files import filling\nwith filling({!r}):\n child = os.fork()\n" + (
        " if not child: print(os.getpid(), flush=True)\n import time; time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code.format(str(tmp_path / "out"))], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    try:
        with filling(tmp_path / "out") as partial:
            publish_folder(partial, tmp_path / "out")
    finally:
        os.kill(child, 9)
        parent.stdout.close()


def test_a_folder_that_cannot_be_locked_is_filled_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(handle: int, how: int) -> None:
        raise OSError(errno.EBADF, "not on this file system")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with filling(tmp_path / "out") as partial:
        publish_folder(partial, tmp_path / "out")
    assert (tmp_path / "out").is_dir()


def _try_lock(folder: str, wanted: int, results: Any) -> None:
    won, patience = 0, time.monotonic() + 50
    while won < wanted and time.monotonic() < patience:
        try:
            with FolderLock(folder):
                holders = Path(folder) / "inside"
                holders.mkdir()  # fails when somebody else is inside
                holders.rmdir()
                won += 1
        except UsageError:
            pass
        time.sleep(0.001)  # the others get their turn
    results.put(won)


def test_fifty_races_have_one_winner_at_a_time(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    racers = [context.Process(target=_try_lock, args=(str(tmp_path), 17, results)) for _ in range(3)]
    for racer in racers:
        racer.start()
    wins = [results.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join()
        assert racer.exitcode == 0
    assert wins == [17, 17, 17]


def test_a_forked_child_does_not_keep_its_parents_lock(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    child = os.fork()
    if child == 0:
        time.sleep(2)
        os._exit(0)
    lock.release()
    FolderLock(tmp_path).release()
    os.kill(child, 9)
    os.waitpid(child, 0)


def test_from_a_folder_that_was_removed_one_can_still_write_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was `No such file or directory`, without a word of which."""
    gone, out = tmp_path / "gone", tmp_path / "out"
    gone.mkdir()
    out.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    files.check_movable(out)
    with pytest.raises(StorageError, match=r"x\.json cannot be written: No such file or directory"):
        files.write_text("x.json", "{}")
