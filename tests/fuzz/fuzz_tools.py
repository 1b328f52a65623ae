"""Fuzzing every reader: a seeded mutator, and targets that must answer with a value or with a TownletError.

A mutation changes bytes, or values inside JSON (also inside the header of a snapshot), and half of the time seals and sums are
made anew, so that what lies behind them is reached too.
"""

from __future__ import annotations

import io
import json
import random
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, reduce
from operator import getitem
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from faults import artefacts
from faults.artefacts import CHECKPOINT
from townlet import files
from townlet.config.learning import PromotionConfig
from townlet.errors import TownletError
from townlet.npz import npz_bytes
from townlet.observer.app import Observatory, _Routes
from townlet.observer.library import Library
from townlet.observer.report import read_run, render_report
from townlet.observer.studio import Studio
from townlet.policy.capture_events import read_event_records
from townlet.policy.checkpoint import load_checkpoint, tidy
from townlet.policy.inference import NumpyPolicy
from townlet.policy.sample import read_sample
from townlet.policy.training.run_folder import RunFolder
from townlet.policy.training.session import training_state
from townlet.sealed import SEAL, seal_of, sealed_line, unsealed
from townlet.sim.snapshot import load_snapshot, open_town
from townlet.telemetry.alarm_rules import default_rules
from townlet.telemetry.ndjson import read_records
from townlet.telemetry.plot import read_runs, terminal
from townlet.telemetry.summary import as_markdown, as_text, summarise
from townlet.telemetry.validate import validate_log
from townlet.telemetry.watch import Watch, watch_log

NASTY: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e308, -1e308, 1e-320),
    *("", "x", "../x", "/etc/passwd", "\u0000", "<script>", "é" * 300, "9" * 400, "nan"),
    *([], {}, [None], [[[]]], {"x": {}}, [0] * 50, {"": 0}, {"return": None}),
)


WORDS = (b"\n", b'"', b"{", b"[" * 3000, b"\x00", b"NaN", b"1e999", b"\xff", b"{}\n", b",", b"-")


class Mutator:
    """Endless variations of some bytes, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def bytes(self, data: bytes) -> bytes:
        out = bytearray(data)
        for _ in range(self.draw.choice((1, 1, 1, 2, 4))):
            at = self.draw.randrange(len(out) + 1)
            match self.draw.randrange(7):
                case 0 if at < len(out):
                    out[at] ^= 1 << self.draw.randrange(8)
                case 1:
                    out[at : at + self.draw.randrange(1, 40)] = b""
                case 2:
                    out[at:at] = out[at : at + self.draw.randrange(1, 40)]
                case 3:
                    out[at:at] = self.draw.randbytes(self.draw.randrange(1, 8))
                case 4:
                    out = out[:at]
                case 5:
                    out[at:at] = self.draw.choice(WORDS)
                case 6 if at < len(out):
                    out[at] = self.draw.choice(b'0123456789.-eE{}[]",:\n\x00\xff')
        return bytes(out)

    def value(self, data: bytes) -> Any:
        """One value of JSON is another, missing, doubled, or stands under another name."""
        tree, places = json.loads(data), _places(data)
        if not places:
            return self.draw.choice(NASTY)
        *steps, key = self.draw.choice(places)
        inside = reduce(getitem, steps, tree)
        match self.draw.randrange(5):
            case 0:
                del inside[key]
            case 1 if isinstance(inside, dict):
                inside[str(self.draw.choice(NASTY))[:50]] = inside.pop(key)
            case 2 if isinstance(inside, list):
                inside.insert(key, inside[key])
            case _:
                inside[key] = self.draw.choice(NASTY)
        return tree

    def json(self, data: bytes, *, reseal: bool = True) -> bytes:
        """A JSON object: its bytes, or one of its values."""
        if self.draw.random() < 0.4:
            return self.bytes(data)
        tree = self.value(data)
        if isinstance(tree, dict) and SEAL in tree and reseal and self.draw.random() < 0.8:
            tree[SEAL] = seal_of({name: value for name, value in tree.items() if name != SEAL})
        flat = json.dumps(tree).encode()
        return flat if self.draw.choice((None, 1)) is None else msgspec.json.format(flat, indent=1)

    def lines(self, data: bytes) -> bytes:
        """A log: its bytes, or a value of one record, sealed again."""
        rows = data.split(b"\n")[:-1]
        if self.draw.random() < 0.4 or not rows:
            return self.bytes(data)
        at = self.draw.randrange(len(rows))
        told = json.dumps(self.value(unsealed(rows[at]) or rows[at]), separators=(",", ":")).encode()
        rows[at] = sealed_line(told) if told.startswith(b"{") and len(told) > 2 else told
        return b"\n".join(rows) + b"\n"


@cache
def _places(data: bytes) -> list[tuple[Any, ...]]:
    """Every value inside JSON, by the keys that lead to it."""
    return list(_paths(json.loads(data), ()))


def _paths(tree: Any, steps: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    for key, child in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield (*steps, key)
        yield from _paths(child, (*steps, key))


# --- targets ---------------------------------------------------------------------------------------------------------

LATEST = f"{CHECKPOINT}/000003"
MANIFEST, METRICS = (f"capture/rollout_sample_{name}.json" for name in ("manifest", "metrics"))
EVENTS = "capture/events.ndjson"
META, SAMPLE = (f"capture/rollout_sample_alice_000.{kind}" for kind in ("json", "npz"))


@dataclass(frozen=True)
class Target:
    """`mutate` puts a variation into the place, within `paths`; `read` must answer with a value or a TownletError. So must `use`,
    what is done with it afterwards, which costs more and is tried less often."""

    name: str
    paths: tuple[str, ...]
    mutate: Callable[[Mutator, Path], None]
    read: Callable[[Path], object]
    use: Callable[[Path], object] = lambda place: None


@cache
def store(folder: Path) -> Path:
    """One of everything that is read back."""
    artefacts.fill(folder / "store")
    (folder / "store" / "request.json").write_text(json.dumps(REQUEST))
    return folder / "store"


def _file(name: str, how: str) -> Callable[[Mutator, Path], None]:
    def mutate(mutator: Mutator, place: Path) -> None:
        path = place / name
        path.write_bytes(getattr(mutator, how)(path.read_bytes()))

    return mutate


def _summed(name: str, how: str, share: float) -> Callable[[Mutator, Path], None]:
    """A file of a folder with sums, which are mostly made anew."""

    def mutate(mutator: Mutator, place: Path) -> None:
        folder, file_name = (place / name).parent, Path(name).name
        _file(name, how)(mutator, place)
        if mutator.draw.random() < share and file_name != files.SUMS:
            files.write_sums(folder, known=_sums(folder) | {file_name: ""})

    return mutate


@cache
def _sums(folder: Path) -> dict[str, str]:
    """Of the files as they were made: only the one that is changed is read again."""
    return files.read_sums(folder)


def _any(*mutations: Callable[[Mutator, Path], None]) -> Callable[[Mutator, Path], None]:
    return lambda mutator, place: mutator.draw.choice(mutations)(mutator, place)


def _snapshot(mutator: Mutator, place: Path) -> None:
    path = place / "world.npz"
    if mutator.draw.random() < 0.3:
        path.write_bytes(mutator.bytes(path.read_bytes()))
        return
    arrays = dict(_arrays(path.read_bytes()))
    arrays["header"] = np.frombuffer(mutator.json(arrays["header"].tobytes()), np.uint8)
    if mutator.draw.random() < 0.3:
        name = mutator.draw.choice(sorted(arrays))
        arrays[name] = mutator.draw.choice((arrays[name][:0], arrays[name].ravel()[:3], np.zeros(3), np.zeros((2, 2), np.int8)))
    path.write_bytes(npz_bytes(arrays))


@cache
def _arrays(data: bytes) -> dict[str, Any]:
    return dict(np.load(io.BytesIO(data)))


def _reel(mutator: Mutator, place: Path) -> None:
    """Its bytes, or its header alone."""
    path = place / "reel"
    data = path.read_bytes()
    size = int.from_bytes(data[4:8], "little")
    header = mutator.json(data[8 : 8 + size], reseal=False)
    made = data[:4] + len(header).to_bytes(4, "little") + header + data[8 + size :]
    path.write_bytes(made if mutator.draw.random() < 0.6 else mutator.bytes(data))


def _use_snapshot(place: Path) -> None:
    open_town(load_snapshot(place / "world.npz"))


def _use_state(place: Path) -> None:
    found = load_checkpoint(place / LATEST)
    training_state(found, place)
    tidy(place / CHECKPOINT)
    NumpyPolicy.load(place / LATEST)


def _read_log(place: Path) -> None:
    validate_log(place / "log.ndjson")
    list(read_records(place / "log.ndjson"))


def _use_log(place: Path) -> None:
    log = place / "log.ndjson"
    list(watch_log(log, Watch(default_rules()), follow=False))
    summary = summarise(log)
    as_text(summary), as_markdown(summary)
    terminal(read_runs([log]))


def _use_run(place: Path) -> None:
    render_report(read_run(place / "run"))
    Library(place, place / "ledger.ndjson", PromotionConfig()).runs()


REQUEST = {
    "take": {"v": 1, "town": "kitchen_breakfast", "config": "0" * 16, "seed": 3, "policy": "scripted", "ticks": 10},
    "parent": "0" * 12,
    "changes": [{"at": 3, "do": "perturb blackout 10"}],
    "yaml": "extends: kitchen_breakfast\n",
    "policy": "scripted",
    "seed": 1,
    "town": "kitchen_breakfast",
}


@cache
def _routes(place: Path) -> _Routes:
    library = Library(place, place / "ledger.ndjson", PromotionConfig())
    return _Routes(Observatory(Studio(), library, lambda *words: {}))


def _request(place: Path) -> None:
    """What the page may be asked for in a body."""
    asked = files.read_json(place / "request.json")
    if isinstance(asked, dict):
        for kind in ("take", "parent", "yaml", "town"):
            with suppress(TownletError):  # one that is refused does not keep the next from being tried
                _routes(place)._make_take({key: asked[key] for key in (kind, "changes", "policy", "seed") if key in asked})


def _targets() -> Iterator[Target]:
    readers = {one.path: one.read for one in artefacts.artefacts(Path())}
    state, sums, results = f"{LATEST}/state.json", "capture/SHA256SUMS", "results/faults.ndjson"
    binaries = tuple(f"{LATEST}/{name}" for name in ("weights.safetensors", "optimizer.safetensors", "world.npz", "SHA256SUMS"))
    pointers = (f"{CHECKPOINT}/latest", f"{CHECKPOINT}/best")
    yield Target("telemetry", ("log.ndjson",), _file("log.ndjson", "lines"), _read_log, _use_log)
    yield Target("state", (state, *binaries, *pointers), _summed(state, "json", 0.9), readers[state], _use_state)
    yield Target("checkpoint files", binaries, _any(*(_summed(name, "bytes", 0.7) for name in binaries)), readers[state])
    yield Target("latest", pointers, _file(pointers[0], "bytes"), readers[pointers[0]])
    yield Target("snapshot", ("world.npz",), _snapshot, readers["world.npz"], _use_snapshot)
    run = {"run.json": RunFolder.card, "summary.json": RunFolder.summary, "environment.json": RunFolder.environment}
    for name, read in (run | {"config.json": RunFolder.resolved_config}).items():
        path = f"run/{name}"
        yield Target(name, (path,), _file(path, "json"), lambda place, read=read: read(RunFolder(place / "run")), _use_run)
    for path in ("scorecard.json", "run/anneal.json", "ledger.ndjson.head", "ends.json", "one.take", "baseline.json"):
        yield Target(Path(path).name, (path,), _file(path, "json"), readers[path])
    for path in ("ledger.ndjson", "rules.yaml", "config.yaml", "study.yaml"):
        yield Target(path, (path,), _file(path, "bytes"), readers[path])
    yield Target("results of studies", (results,), _file(results, "lines"), readers[results])
    yield Target("reel", ("reel",), _reel, readers["reel"])
    yield Target("manifest", (MANIFEST, sums), _summed(MANIFEST, "json", 0.9), readers[MANIFEST], readers[sums])
    yield Target("metrics", (METRICS, sums), _summed(METRICS, "json", 0.9), readers[METRICS], readers[sums])
    yield Target("sample", (META, SAMPLE), _any(_file(META, "json"), _file(SAMPLE, "bytes")), _sample)
    yield Target("events", (EVENTS,), _file(EVENTS, "bytes"), lambda place: list(read_event_records(place / EVENTS)))
    yield Target("request", ("request.json",), _file("request.json", "json"), _request)


def _sample(place: Path) -> None:
    """Without the hashes of a manifest, as a sample that was sent alone."""
    read_sample(place / SAMPLE, place / META)


TARGETS = {target.name: target for target in _targets()}


def tried(target: Target, seed: int, folder: Path, *, use: bool = True) -> str:
    """One mutation: "" when the reader answered as it should, else the end of its traceback. The store stays as it was."""
    place = store(folder)
    kept = _originals(place, target.paths)
    target.mutate(Mutator(seed), place)
    try:
        target.read(place)
        if use:
            target.use(place)
    except TownletError as error:
        return "" if str(error) else "an error without words"
    except Exception:  # the finding
        return traceback.format_exc(limit=-4)
    finally:
        for path, data in kept.items():
            if path.read_bytes() != data:
                path.write_bytes(data)
    return ""


@cache
def _originals(place: Path, paths: tuple[str, ...]) -> dict[Path, bytes]:
    """Read once: after each mutation they are put back."""
    return {place / path: (place / path).read_bytes() for path in paths}
