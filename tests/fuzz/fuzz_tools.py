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
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from faults import fault_tools as tools
from scorecards import duel
from townlet import files
from townlet.config.loader import load_config
from townlet.errors import TownletError
from townlet.evaluation.compare import load_scorecard, save_scorecard
from townlet.observer.report import read_run, render_report
from townlet.observer.take import Take, read_take, take_of_link, write_take
from townlet.policy.checkpoint import load_checkpoint, tidy
from townlet.policy.inference import NumpyPolicy
from townlet.policy.training.run_folder import RunFolder
from townlet.policy.training.session import training_state
from townlet.policy.training.tracker import Tracker
from townlet.promotion.ledger import append, read_ledger
from townlet.sealed import SEAL, seal_of
from townlet.sim.snapshot import load_snapshot, open_town, save_snapshot, take_snapshot
from townlet.studies.runner import read_results
from townlet.telemetry.alarm_rules import default_rules, read_rules
from townlet.telemetry.drift import read_baseline
from townlet.telemetry.example import example_record
from townlet.telemetry.ndjson import TelemetryWriter
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
                    out[at:at] = self.draw.choice(
                        (b"\n", b'"', b"{", b"[" * 3000, b"\x00", b"NaN", b"1e999", b"\xff", b"{}\n", b",", b"-")
                    )
                case 6 if at < len(out):
                    out[at] = self.draw.choice(b'0123456789.-eE{}[]",:\n\x00\xff')
        return bytes(out)

    def value(self, tree: Any) -> Any:
        """One value of a JSON tree is another, missing, doubled, or stands under another name."""
        places = list(_places(tree))
        if not places:
            return self.draw.choice(NASTY)
        inside, key = self.draw.choice(places)
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
        tree = self.value(json.loads(data))
        if isinstance(tree, dict) and SEAL in tree and reseal and self.draw.random() < 0.8:
            tree[SEAL] = seal_of({name: value for name, value in tree.items() if name != SEAL})
        return json.dumps(tree, indent=self.draw.choice((None, 1))).encode()

    def lines(self, data: bytes) -> bytes:
        """A log: its bytes, or a value of one record, sealed again."""
        rows = data.split(b"\n")[:-1]
        if self.draw.random() < 0.4 or not rows:
            return self.bytes(data)
        at = self.draw.randrange(len(rows))
        record = json.loads(rows[at])
        record.pop("seal", None)
        told = json.dumps(self.value(record), separators=(",", ":")).encode()
        rows[at] = files.sealed_line(told) if told.startswith(b"{") and len(told) > 2 else told
        return b"\n".join(rows) + b"\n"


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    children = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree)) if isinstance(tree, list) else []
    for key, child in children:
        yield tree, key
        yield from _places(child)


# --- targets ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """`mutate` puts a variation into the place; `read` must answer with a value or a TownletError."""

    name: str
    mutate: Callable[[Mutator, Path], None]
    read: Callable[[Path], object]


@cache
def store(folder: Path) -> Path:
    """One of everything that is read back."""
    place = folder / "store"
    place.mkdir(parents=True)
    tools.train("anneal")(place)
    save_scorecard(duel(1, towns=3), place / "scorecard.json")
    save_snapshot(take_snapshot(tools._town()), place / "world.npz")
    for number in range(3):
        append(
            place / "ledger.ndjson",
            {"kind": "rollback", "candidate": f"c{number}", "champion": "x", "source": "s", **tools.NO_DECISION},
        )
    write_take(place / "take.json", Take(town="town_day", config="0" * 16, seed=1, policy="scripted", ticks=10))
    with TelemetryWriter(place / "log.ndjson") as log:
        for number in range(1, 5):
            log.write(example_record(number))
    (place / "rules.yaml").write_text("rules:\n- {field: kl_k3, above: 0.05}\n- {field: loss_total, above: 3, patience: 2}\n")
    (place / "baseline.json").write_text(json.dumps({"loss_total": 1.0, "kl_k3": 0.1}))
    (place / "config.yaml").write_text("extends: kitchen_breakfast\nppo: {learning_rate: 1e-4}\ntraining: {epochs: 3}\n")
    tools._study(place)
    return place


def _file(name: str, how: str) -> Callable[[Mutator, Path], None]:
    def mutate(mutator: Mutator, place: Path) -> None:
        path = place / name
        path.write_bytes(getattr(mutator, how)(path.read_bytes()))

    return mutate


def _state(mutator: Mutator, place: Path) -> None:
    folder = _checkpoint(place)
    path = folder / "state.json"
    path.write_bytes(mutator.json(path.read_bytes()))
    if mutator.draw.random() < 0.9:
        files.write_sums(folder, sync=False)


def _checkpoint(place: Path) -> Path:
    return place / "run" / "stages" / "01_ppo" / "checkpoints" / "000003"


def _weights(mutator: Mutator, place: Path) -> None:
    path = _checkpoint(place) / mutator.draw.choice(("weights.safetensors", "world.npz", "optimizer.safetensors", "SHA256SUMS"))
    path.write_bytes(mutator.bytes(path.read_bytes()))
    if mutator.draw.random() < 0.7 and path.name != "SHA256SUMS":
        files.write_sums(path.parent, sync=False)


def _snapshot(mutator: Mutator, place: Path) -> None:
    path = place / "world.npz"
    if mutator.draw.random() < 0.3:
        path.write_bytes(mutator.bytes(path.read_bytes()))
        return
    arrays = dict(np.load(io.BytesIO(path.read_bytes())))
    arrays["header"] = np.frombuffer(mutator.json(arrays["header"].tobytes()), np.uint8)
    if mutator.draw.random() < 0.3:
        name = mutator.draw.choice(sorted(arrays))
        arrays[name] = mutator.draw.choice((arrays[name][:0], arrays[name].ravel()[:3], np.zeros(3), np.zeros((2, 2), np.int8)))
    path.write_bytes(files.npz_bytes(arrays))


def _read_state(place: Path) -> None:
    found = load_checkpoint(_checkpoint(place))
    training_state(found, place)
    tidy(_checkpoint(place).parent)
    NumpyPolicy.load(_checkpoint(place))


def _read_log(place: Path) -> None:
    log = place / "log.ndjson"
    validate_log(log)
    list(watch_log(log, Watch(default_rules()), follow=False))
    summary = summarise(log)
    as_text(summary), as_markdown(summary)
    terminal(read_runs([log]))


def _read_run(place: Path) -> None:
    run = RunFolder(place / "run")
    for read in (run.card, run.environment, run.summary, run.config):
        read()
    render_report(read_run(place / "run"))


def _link(mutator: Mutator, place: Path) -> None:
    link = read_take(place / "take.json").link
    (place / "link").write_bytes(mutator.bytes(link.encode()))


TARGETS = {
    target.name: target
    for target in (
        Target("telemetry", _file("log.ndjson", "lines"), _read_log),
        Target("state", _state, _read_state),
        Target("checkpoint files", _weights, lambda place: load_checkpoint(_checkpoint(place))),
        Target("snapshot", _snapshot, lambda place: open_town(load_snapshot(place / "world.npz"))),
        Target("scorecard", _file("scorecard.json", "json"), lambda place: load_scorecard(place / "scorecard.json")),
        Target("run.json", _file("run/run.json", "json"), _read_run),
        Target("summary.json", _file("run/summary.json", "json"), _read_run),
        Target("environment.json", _file("run/environment.json", "json"), _read_run),
        Target("config.json", _file("run/config.json", "json"), _read_run),
        Target("anneal.json", _file("run/anneal.json", "json"), lambda place: Tracker.read(place / "run")),
        Target("ledger", _file("ledger.ndjson", "bytes"), lambda place: read_ledger(place / "ledger.ndjson")),
        Target("ledger head", _file("ledger.ndjson.head", "json"), lambda place: read_ledger(place / "ledger.ndjson")),
        Target("study", _file("results/faults.ndjson", "bytes"), lambda place: read_results(place / "results")),
        Target("take", _file("take.json", "json"), lambda place: read_take(place / "take.json")),
        Target("link", _link, lambda place: take_of_link((place / "link").read_text(errors="replace"))),
        Target("rules", _file("rules.yaml", "bytes"), lambda place: read_rules(place / "rules.yaml")),
        Target("baseline", _file("baseline.json", "json"), lambda place: read_baseline(place / "baseline.json")),
        Target("config", _file("config.yaml", "bytes"), lambda place: load_config(place / "config.yaml")),
    )
}


def tried(target: Target, seed: int, folder: Path) -> str:
    """One mutation: "" when the reader answered as it should, else the end of its traceback. The store stays as it was."""
    place = store(folder)
    kept = {path: path.read_bytes() for path in _touched(target, place)}
    target.mutate(Mutator(seed), place)
    try:
        target.read(place)
    except TownletError as error:
        return "" if str(error) else "an error without words"
    except Exception:  # the finding
        return traceback.format_exc(limit=-4)
    finally:
        for path, data in kept.items():
            path.write_bytes(data)
    return ""


def _touched(target: Target, place: Path) -> list[Path]:
    if target.name in ("state", "checkpoint files"):
        root = _checkpoint(place).parent
        return [path for path in root.rglob("*") if path.is_file()]
    names = {"telemetry": "log.ndjson", "snapshot": "world.npz", "anneal.json": "run/anneal.json", "ledger": "ledger.ndjson"}
    names |= {"ledger head": "ledger.ndjson.head", "study": "results/faults.ndjson", "take": "take.json", "link": "take.json"}
    names |= {"rules": "rules.yaml", "baseline": "baseline.json", "config": "config.yaml", "scorecard": "scorecard.json"}
    return [place / names.get(target.name, f"run/{target.name}")]
