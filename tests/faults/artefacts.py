"""One of everything that Townlet reads back, and who reads it: flips, prefixes and fuzzing all start here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from faults import fault_tools as tools
from scorecards import duel
from townlet.config.loader import load_config
from townlet.errors import DamagedFileError, TownletError
from townlet.evaluation.compare import load_scorecard, save_scorecard
from townlet.evaluation.score_scale import load_scales, save_scales
from townlet.observer.reel import columns, unpack
from townlet.observer.studio import Studio
from townlet.observer.take import Change, Take, read_take, write_take
from townlet.policy.capture import CaptureOptions, capture
from townlet.policy.capture_events import read_event_records
from townlet.policy.checkpoint import load_checkpoint
from townlet.policy.replay import ReplayDataset, ReplayDatasetConfig
from townlet.policy.replay_report import validate
from townlet.policy.training.anneal import Tracker
from townlet.policy.training.run_folder import RunFolder
from townlet.promotion.ledger import append, read_ledger
from townlet.promotion.releases import Releases
from townlet.sim.snapshot import load_snapshot, save_snapshot, take_snapshot
from townlet.studies.runner import read_results
from townlet.studies.spec import load_spec
from townlet.telemetry.alarm_rules import read_rules
from townlet.telemetry.drift import read_baseline
from townlet.telemetry.example import example_record
from townlet.telemetry.ndjson import TelemetryWriter, read_records
from townlet.telemetry.validate import validate_log

CHECKPOINT = "run/stages/01_ppo/checkpoints"
REEL_COLUMNS = columns(("hunger", "hygiene", "energy"), values=False)


@dataclass(frozen=True)
class Artefact:
    """A file of the store; `read` answers with what it means, or refuses with a TownletError that names it."""

    path: str
    read: Callable[[Path], Any]
    text: bool = True
    sealed: bool = True  # False: written by hand, so that another text is another meaning


def fill(place: Path) -> None:
    """One of everything below a folder."""
    place.mkdir(parents=True)
    tools.train("anneal")(place)
    save_scorecard(duel(1, towns=3), place / "scorecard.json")
    save_snapshot(take_snapshot(tools._town()), place / "world.npz")
    for number in range(3):
        append(
            place / "ledger.ndjson",
            {"kind": "rollback", "candidate": f"c{number}", "champion": "x", "source": "s", **tools.NO_DECISION},
        )
    tools._candidate(place)
    tools._promote(place)
    changes = (Change(at=2, do="perturb blackout 10"),)
    take = Take(town="town_day", config="0" * 16, seed=1, policy="scripted", ticks=10, changes=changes, digest="1f" * 8)
    write_take(place / "one.take", take)
    with TelemetryWriter(place / "log.ndjson", max_entries=3) as log:
        for number in range(1, 6):
            log.write(example_record(number))
    save_scales(place / "ends.json", [tools.an_end("a", 1), tools.an_end("b", 28)])
    capture([load_config("queue_conflict")], place / "capture", CaptureOptions(ticks=60))
    (place / "reel").write_bytes(a_reel())
    tools._study(place)
    (place / "rules.yaml").write_text("rules:\n- {field: kl_k3, above: 0.05}\n- {field: loss_total, above: 3, patience: 2}\n")
    (place / "baseline.json").write_text(json.dumps({"loss_total": 1.0, "kl_k3": 0.1}))
    (place / "config.yaml").write_text("extends: kitchen_breakfast\nppo: {learning_rate: 1e-4}\ntraining: {epochs: 3}\n")
    (place / "study.yaml").write_text("name: small\nconfig: kitchen_breakfast\narms: {plain: [], fast: [ppo.clip_param=0.1]}\n")


def a_reel() -> bytes:
    studio = Studio()
    name = studio.new_take(tools.tiny(), seed=1, policy="scripted").take.id
    return studio.reel(name, 0)


# --- readers ---------------------------------------------------------------------------------------------------------


def _log(place: Path) -> Any:
    """Records; a torn tail and a gap that are reported have been seen."""
    log = place / "log.ndjson"
    found = list(read_records(log))
    report = validate_log(log)
    if told := report.problems + [note for note in report.notes if "torn" in note.message or "missing" in note.message]:
        raise DamagedFileError(str(told[0]))
    return found


def _capture(place: Path) -> Any:
    folder = place / "capture"
    report = validate(folder)
    if not report.ok:
        raise DamagedFileError("; ".join(report.problems))
    dataset = ReplayDataset(ReplayDatasetConfig.from_capture_dir(folder, events=folder / "events.ndjson"))
    return dataset.hash, dataset.config.metrics_map, list(read_event_records(folder / "events.ndjson"))


def _training(place: Path) -> Any:
    """What training itself reads of a capture: it asks nobody to validate first."""
    folder = place / "capture"
    dataset = ReplayDataset(ReplayDatasetConfig.from_capture_dir(folder))
    return list(dataset.samples()), dataset.config.metrics_map


def _promotion(place: Path) -> Any:
    desk = Releases(place / "desk" / "ledger.ndjson", tools.tiny().promotion)
    if problems := desk.verify():
        raise DamagedFileError("; ".join(problems))
    return desk.entries(), desk.release()


def _checkpoint(place: Path) -> Any:
    return load_checkpoint(place / CHECKPOINT)


def artefacts(place: Path) -> list[Artefact]:
    latest = f"{CHECKPOINT}/000003"
    found = [
        Artefact("run/run.json", lambda place: RunFolder(place / "run").card()),
        Artefact("run/environment.json", lambda place: RunFolder(place / "run").environment()),
        Artefact("run/summary.json", lambda place: RunFolder(place / "run").summary()),
        Artefact("run/config.json", lambda place: RunFolder(place / "run").resolved_config()),
        Artefact("run/anneal.json", lambda place: Tracker.read(place / "run")),
        Artefact("log.ndjson", _log),
        Artefact("log.ndjson.1", _log),
        Artefact(f"{latest}/state.json", _checkpoint),
        Artefact(f"{latest}/SHA256SUMS", _checkpoint),
        Artefact(f"{latest}/weights.safetensors", _checkpoint, text=False),
        Artefact(f"{latest}/optimizer.safetensors", _checkpoint, text=False),
        Artefact(f"{latest}/world.npz", _checkpoint, text=False),
        Artefact(f"{CHECKPOINT}/latest", lambda place: load_checkpoint(place / CHECKPOINT / "latest")),
        Artefact(f"{CHECKPOINT}/best", lambda place: load_checkpoint(place / CHECKPOINT / "best")),
        Artefact("scorecard.json", lambda place: load_scorecard(place / "scorecard.json")),
        Artefact("world.npz", lambda place: load_snapshot(place / "world.npz"), text=False),
        Artefact("ledger.ndjson", lambda place: read_ledger(place / "ledger.ndjson")),
        Artefact("ledger.ndjson.head", lambda place: read_ledger(place / "ledger.ndjson")),
        Artefact("results/faults.ndjson", lambda place: read_results(place / "results")),
        Artefact("one.take", lambda place: read_take(place / "one.take")),
        Artefact("reel", lambda place: unpack((place / "reel").read_bytes(), REEL_COLUMNS), text=False),
        Artefact("ends.json", lambda place: load_scales(place / "ends.json")),
        Artefact("rules.yaml", lambda place: read_rules(place / "rules.yaml"), sealed=False),
        Artefact("baseline.json", lambda place: read_baseline(place / "baseline.json"), sealed=False),
        Artefact("config.yaml", lambda place: load_config(place / "config.yaml"), sealed=False),
        Artefact("study.yaml", lambda place: load_spec(place / "study.yaml"), sealed=False),
    ]
    sample = [f"rollout_sample_{who}_000.{kind}" for who in ("alice", "bob") for kind in ("npz", "json")]
    for name in (*sample, "rollout_sample_manifest.json", "rollout_sample_metrics.json"):
        found.append(Artefact(f"capture/{name}", _training, text=not name.endswith(".npz")))
    found += [Artefact(f"capture/{name}", _capture) for name in ("SHA256SUMS", "events.ndjson")]
    for path in sorted(path for path in (place / "desk").rglob("*") if path.is_file() and path.name != ".lock"):
        found.append(Artefact(path.relative_to(place).as_posix(), _promotion, text=path.suffix not in (".safetensors", ".npz")))
    return found


# --- meaning ---------------------------------------------------------------------------------------------------------


def meaning(value: Any) -> Any:
    """Something that is equal where the value means the same."""
    if isinstance(value, BaseModel):
        return meaning(value.model_dump(mode="json"))
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: meaning(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, Mapping):
        return {key: meaning(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [meaning(part) for part in value]
    return value


def answer(artefact: Artefact, place: Path) -> tuple[Any, str]:
    """What is read, or the sentence that refuses it; anything else comes out as it is."""
    try:
        return meaning(artefact.read(place)), ""
    except TownletError as error:
        return None, str(error)
