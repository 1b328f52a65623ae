"""Faults under every writer: the k-th operation on the disk kills the process, is torn, refused or cut short.

Two layers count and fail operations. The seam replaces `files.disk` inside the process; the library `faults.c`, preloaded, stands
under the process and sees every call to the system, also those of other libraries. A case is a writer, the operation and the way
of each of one or several interruptions; then the writer is run again, as its user would, and what it leaves is compared with an
uninterrupted run: every file, nothing more, nothing less.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import shutil
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from scorecards import checkpoint_folder, duel
from townlet import files
from townlet.config import SimulationConfig, load_config
from townlet.dto.evaluation import Measure, ScoreScale
from townlet.envs.vector import VectorTown
from townlet.errors import StorageError
from townlet.evaluation.compare import load_scorecard, save_scorecard
from townlet.evaluation.score_scale import load_scales, save_scales
from townlet.files import Disk
from townlet.observer.standalone import write_page
from townlet.observer.studio import Studio
from townlet.observer.take import Take, read_take, write_take
from townlet.policy.capture import CaptureOptions, capture
from townlet.policy.capture_folder import SampleFilter, filter_samples
from townlet.policy.checkpoint import resolve, weights_hash
from townlet.policy.training.contexts import RunOptions
from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator
from townlet.policy.training.services import TrainingServices
from townlet.promotion.ledger import append, catch_up, read_ledger
from townlet.promotion.releases import Releases
from townlet.sim.probes import EventLog
from townlet.sim.snapshot import load_snapshot, save_snapshot, take_snapshot
from townlet.studies import runner
from townlet.studies.spec import StudySpec
from townlet.telemetry.example import example_record
from townlet.telemetry.export import to_csv, to_tensorboard
from townlet.telemetry.ndjson import TelemetryWriter
from townlet.telemetry.schema import volatile_names

KILLS = ("kill before", "kill after", "torn")
REFUSALS = ("full", "broken", "half")
WAYS = (*KILLS, *REFUSALS)  # in the order of faults.c


class Crash(BaseException):
    """The process is dead: nothing after this runs."""


class SeamDisk:
    """`files.disk` whose k-th operation fails; after a kill every further one does too. k = 0 only counts."""

    def __init__(self, k: int, way: str, *, kill: Callable[[], None] | None = None) -> None:
        self.count, self.k, self.way, self.dead = 0, k, way, False
        self._kill = kill or self._crash
        real = Disk(sync=lambda path: None, fsync=lambda handle: None)
        self.disk = Disk(**{field.name: self._wrap(field.name, vars(real)[field.name]) for field in fields(Disk)})

    def _crash(self) -> None:
        self.dead = True
        raise Crash

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any) -> Any:
            if name == "close":  # the system closes what a dead process held
                real(*arguments)
            if self.dead:
                raise Crash
            if name == "close":
                return None
            self.count += 1
            if self.count != self.k:
                return real(*arguments)
            if self.way == "kill before":
                self._kill()
            if self.way in ("full", "broken"):
                number = errno.ENOSPC if self.way == "full" else errno.EIO
                raise OSError(number, os.strerror(number))
            if name == "write" and self.way in ("torn", "half"):
                handle, data = arguments
                arguments = handle, memoryview(data)[: len(data) // 2]
            result = real(*arguments)
            if self.way in ("kill after", "torn"):
                self._kill()
            return result

        return operation


class Seam:
    """Faults inside the process. `fork`: who is killed is a process of its own, and really killed."""

    name = "seam"

    def __init__(self, *, fork: bool) -> None:
        self.fork = fork

    @contextlib.contextmanager
    def under(self, root: Path, k: int, way: str) -> Iterator[Callable[[], int]]:
        before = files.disk
        seam = SeamDisk(k, way, kill=_die if self.fork else None)
        files.disk = seam.disk
        try:
            yield lambda: seam.count
        finally:
            files.disk = before


class Preloaded:
    """Faults under the process; it must have been started with the library preloaded."""

    name = "preload"
    fork = True

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.faults_count.restype = ctypes.c_long
        self._library.faults_arm.argtypes = (ctypes.c_char_p, ctypes.c_long, ctypes.c_int)

    @contextlib.contextmanager
    def under(self, root: Path, k: int, way: str) -> Iterator[Callable[[], int]]:
        self._library.faults_arm(os.fsencode(root.resolve()), k, 1 + WAYS.index(way))
        try:
            yield self._library.faults_count
        finally:
            self._library.faults_disarm()


Layer = Seam | Preloaded


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# --- one attempt -----------------------------------------------------------------------------------------------------

DONE, KILLED, REFUSED, FAILED = "done", "killed", "refused", "failed"


@dataclass(frozen=True)
class Attempt:
    end: str
    operations: int
    words: str = ""


def attempt(layer: Layer, act: Callable[[Path], None], root: Path, k: int, way: str) -> Attempt:
    """Run the writer with one fault; `failed` is an end that no user should see."""
    if not layer.fork or not k or way not in KILLS:  # whatever is not killed needs no process of its own
        return _here(layer, act, root, k, way)
    told = root.with_name(f"{root.name}.told")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads: ours are idle
        child = os.fork()
    if child == 0:
        try:
            made = _here(layer, act, root, k, way)
            told.write_text(json.dumps([made.end, made.operations, made.words]))
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return Attempt(KILLED, k) if os.WTERMSIG(status) == signal.SIGKILL else Attempt(FAILED, k, f"signal {status}")
    made = Attempt(*json.loads(told.read_text()))
    told.unlink()
    return made


def _here(layer: Layer, act: Callable[[Path], None], root: Path, k: int, way: str) -> Attempt:
    with layer.under(root, k, way) as count:
        try:
            act(root)
            return Attempt(DONE, count())
        except Crash:
            return Attempt(KILLED, count())
        except (StorageError, OSError) as error:  # the command line makes 74 of both
            return Attempt(REFUSED, count(), str(error))
        except Exception:  # whatever else comes out is the finding
            return Attempt(FAILED, count(), traceback.format_exc(limit=-3))


# --- writers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Writer:
    """`act` is what a user runs, and runs again after an interruption; `safe` is how much of it nobody may lose any more."""

    name: str
    act: Callable[[Path], None]
    prepare: Callable[[Path], None] = lambda root: None
    safe: Callable[[Path], int] = lambda root: sum(path.is_file() and ".partial" not in str(path) for path in root.iterdir())


TINY = (
    *("training.towns=1", "training.horizon=1", "training.eval_every=2", "training.eval_towns=1"),
    *("training.checkpoint_every=2", "training.keep_checkpoints=2", "training.bc.towns=1", "training.bc.epochs=3"),
    *("policy.network.map_encoder=none", "policy.network.feature_size=4", "policy.network.conflict_size=4"),
    *("policy.network.trunk_sizes=[4]", "ppo.num_epochs=1", "ppo.num_mini_batches=1", "telemetry.max_entries=2"),
    "scenario.episode_ticks=12",
    "training.anneal_schedule=[{cycle: 0, mode: bc, epochs: 2, bc_weight: 1.0}, "
    "{cycle: 1, mode: ppo, epochs: 3, bc_weight: 0.5}, {cycle: 2, mode: ppo, epochs: 2, bc_weight: 0.0}]",
)


@cache
def tiny(*overrides: str) -> SimulationConfig:
    return load_config("kitchen_breakfast", (*TINY, *overrides))


class Scores:
    """Scores without a town: a number per name of a policy."""

    def score(self, source: Any, stop: object = None) -> dict[str, Measure]:
        value = 1.0 + sum(Path(source).name.encode()) % 3 if isinstance(source, str) else 2.0
        one = Measure(values=(value,), count=1, mean=value, iqm=value, low=None, high=None)
        return dict.fromkeys(("return", "exits", "conflicts", "self_sufficiency", "attendance", "wait_mean"), one)


def orchestrator(config: SimulationConfig) -> PolicyTrainingOrchestrator:
    services = TrainingServices.of(config)
    services.evaluation = Scores()  # type: ignore[assignment]
    return PolicyTrainingOrchestrator(config, services=services)


def train(mode: str) -> Callable[[Path], None]:
    def act(root: Path) -> None:
        run = root / "run"
        begun = (run / "run.json").exists()  # killed earlier it has not begun, and is started once more
        epochs = 5 if mode == "rollout" else None
        orchestrator(tiny()).run(mode, RunOptions(epochs=epochs, run_dir=run, resume=begun))

    return act


def _epochs(root: Path) -> int:
    """Epochs whose checkpoint is the latest, of all stages: a number in a file that is sealed."""
    return sum(resolve(path).name.isdigit() and int(resolve(path).name) for path in root.rglob("latest"))


def _whole(root: Path) -> int:
    """The capture is there, whole: with how many samples."""
    folder = root / "capture"
    return sum(name.endswith(".npz") for name in files.check_sums(folder)) if folder.exists() else 0


def _lines(name: str) -> Callable[[Path], int]:
    return lambda root: (root / name).read_bytes().count(b"\n") if (root / name).exists() else 0


def _capture(**options: Any) -> Callable[[Path], None]:
    def act(root: Path) -> None:
        capture([tiny()], root / "capture", CaptureOptions(ticks=12, **options))

    return act


def _capture_first(root: Path) -> None:
    if not (root / "capture").exists():
        _capture()(root)


def _capture_once_more(**options: Any) -> Callable[[Path], None]:
    """Until the capture is a new one; a user looks before the second try."""

    def act(root: Path) -> None:
        wanted = files.read_bytes(root / "wanted", limit=99)
        if files.sha256_file(root / "capture" / "SHA256SUMS").encode() == wanted:
            files.partial_folder(root / "capture").rmdir()  # done before: what it left is removed by the next who writes there
            return
        _capture(**options)(root)

    return act


def _prepared(**options: Any) -> Callable[[Path], None]:
    def prepare(root: Path) -> None:
        _capture(seed=7)(root)  # another than the one of the config
        trial = root / "trial"
        shutil.copytree(root, trial)
        _capture(**options)(trial)
        digest = files.sha256_file(trial / "capture" / "SHA256SUMS")
        shutil.rmtree(trial)
        (root / "wanted").write_text(digest)

    return prepare


def _rotate(root: Path) -> None:
    """A log of its own, cut back to its last position and written to its end, as a training does it."""
    state = root / "state.json"
    with TelemetryWriter(root / "log.ndjson", max_entries=2) as log:
        found = files.read_json(state, limit=1 << 16) if state.exists() else {"made": 0, "position": None}
        log.rewind(found["position"] or {"rotation": 0, "byte": 0, "offset": 0, "epochs": 0, "records_dropped": 0})
        for number in range(found["made"] + 1, 8):
            log.write(example_record(number))
            if number % 2 == 0:
                files.write_json(state, {"made": number, "position": log.position()})


def _made(root: Path) -> int:
    return int(json.loads((root / "state.json").read_bytes())["made"]) if (root / "state.json").exists() else 0


@cache
def _town() -> VectorTown:
    return VectorTown(tiny(), 1, seed=3)


def _snapshot(root: Path) -> None:
    save_snapshot(take_snapshot(_town()), root / "world.npz")
    load_snapshot(root / "world.npz")


NO_DECISION = {"decision": None, "evidence": None, "reasons": ["why"]}


def _append(root: Path) -> None:
    ledger = root / "ledger.ndjson"
    with files.FolderLock(root):
        catch_up(ledger)
        for number in range(len(read_ledger(ledger)), 3):
            append(ledger, {"kind": "rollback", "candidate": f"c{number}", "champion": "x", "source": "s", **NO_DECISION})


def _candidate(root: Path) -> None:
    checkpoint_folder(root / "candidate", "weights")
    weights = weights_hash({"name": np.frombuffer(b"weights", np.uint8)})
    for window in range(2):
        card = duel(window, {"return": 9.0, "self_sufficiency": 0.2}, candidate=weights, window=window, towns=12, intervals=False)
        save_scorecard(card, root / f"card{window}.json")


def _promote(root: Path) -> None:
    desk = Releases(root / "desk" / "ledger.ndjson", tiny().promotion)
    windows = sum(entry.kind == "window" for entry in desk.entries())
    for window in range(windows, 2):
        desk.evaluate(root / "candidate", root / f"card{window}.json")
    if not any(entry.kind == "promote" for entry in desk.entries()):
        desk.promote(root / "candidate")
    desk.promote(root / "candidate")  # promoted already: it is opened and nothing is done
    assert desk.verify() == []


STUDY = StudySpec(
    name="faults", config="kitchen_breakfast", mode="rollout", arms={"only": ()}, seeds=1, minutes=1.0, towns=1,
    overrides=(*TINY, "training.epochs=3"),
)  # fmt: skip


def _study(root: Path) -> None:
    made, measured = runner.PolicyTrainingOrchestrator, runner.measure
    runner.PolicyTrainingOrchestrator = orchestrator  # type: ignore[misc, assignment]
    runner.measure = lambda spec, job, policy: Scores().score(policy)  # type: ignore[assignment]
    try:
        kept = runner.finished(STUDY, files.make_folder(root / "results"))
        if not kept:
            runner.run_job(STUDY, "only", 0, results=root / "results", runs=root / "runs")
        assert len(runner.finished(STUDY, root / "results")) == 1
    finally:
        runner.PolicyTrainingOrchestrator, runner.measure = made, measured  # type: ignore[misc]


def _take(root: Path) -> None:
    write_take(root / "one.take", Take(town="town_day", config="0" * 16, seed=1, policy="scripted", ticks=10))
    read_take(root / "one.take")


@cache
def _played() -> tuple[Any, Any]:
    """A take, and who plays it."""
    studio = Studio()
    known = studio.new_take(tiny(), seed=1)
    return known, studio.player(known.take)


def _capture_take(root: Path) -> None:
    write_take(root / "one.take", _played()[0].take)
    if not (root / "capture").exists():
        capture([tiny()], root / "capture", CaptureOptions(ticks=12, policy=_played()[1], seed=1))


def _page(root: Path) -> None:
    """A living file: the page, its engine and its image; kept from the last process."""
    write_page(root / "town.html", {"living": list(range(2000))}, {"engine": b"engine" * 999, "image": b"image" * 999})


def _ends(root: Path) -> None:
    """What `townlet plan --ends` does, twice, beside ends that are there; and its capture."""
    for days in (7, 28):
        save_scales(root / "ends.json", [an_end("b", days)])
    assert {one.days for one in load_scales(root / "ends.json").values()} == {1, 28}
    _capture_first(root)


def an_end(town: str, days: int) -> ScoreScale:
    return ScoreScale(
        town=town * 16, scenario="town_day", days=days, towns=1, random=38.5, base=70.0, planner=76.9, bound=84.7,
        command="townlet plan town_day",
    )  # fmt: skip


def _events(root: Path) -> None:
    """`townlet run --events FILE --overwrite`."""
    vec = VectorTown(tiny(), 1, seed=3)
    log = EventLog(root / "events.ndjson", overwrite=True)
    for _ in range(4):
        for _ in range(3):
            log._log.write(b'{"event": 1}')
        log.after_step(vec, None)  # type: ignore[arg-type]
    log.finish(vec)


def _logged(root: Path) -> None:
    with TelemetryWriter(root / "log.ndjson") as log:
        for number in range(1, 4):
            log.write(example_record(number))


def _export(root: Path) -> None:
    """A table and a folder of event files."""
    to_csv(root / "log.ndjson", root / "log.csv")
    if not (root / "board").exists():
        to_tensorboard(root / "log.ndjson", root / "board")


def _filtered(root: Path) -> None:
    if not (root / "kept").exists():
        filter_samples(root / "capture", root / "kept", SampleFilter())


def _scorecard(root: Path) -> None:
    save_scorecard(duel(1), root / "scorecard.json")
    load_scorecard(root / "scorecard.json")


WRITERS = {
    writer.name: writer
    for writer in (
        Writer("rollout", train("rollout"), safe=_epochs),
        Writer("bc", train("bc"), safe=_epochs),
        Writer("anneal", train("anneal"), safe=_epochs),
        Writer("study", _study, safe=lambda root: _epochs(root) + 99 * _lines("results/faults.ndjson")(root)),
        Writer("capture", _capture_first, safe=_whole),
        Writer("capture --overwrite", _capture_once_more(overwrite=True), _prepared(overwrite=True), _whole),
        Writer("capture --append", _capture_once_more(append=True), _prepared(append=True), _whole),
        Writer("capture --take", _capture_take, safe=_whole),
        Writer("filter", _filtered, _capture(), _whole),
        Writer("rotation", _rotate, safe=_made),
        Writer("snapshot", _snapshot),
        Writer("ledger", _append, safe=_lines("ledger.ndjson")),
        Writer("promotion", _promote, _candidate, _lines("desk/ledger.ndjson")),
        Writer("take", _take),
        Writer("living file", _page),
        Writer("plan", _ends, lambda root: save_scales(root / "ends.json", [an_end("a", 1)])),
        Writer("events", _events, safe=lambda root: 0),  # --overwrite begins the log anew
        Writer("export", _export, _logged),
        Writer("scorecard", _scorecard),
    )
}  # fmt: skip

# --- what is left ----------------------------------------------------------------------------------------------------

VOLATILE = {*volatile_names(), "duration_sec", "training_seconds", "processor_seconds", "at", "hash", "previous", "byte", "seal"}
OF_LOG = ("telemetry", "log", "position")  # what may differ where a log could not be written


def _plain(value: Any, root: str) -> Any:
    """Without clocks, places and what follows from them."""
    if isinstance(value, dict):
        return {name: _plain(part, root) for name, part in value.items() if name not in VOLATILE}
    if isinstance(value, list):
        return [_plain(part, root) for part in value]
    return value.replace(root, "") if isinstance(value, str) else value


def left(root: Path, *, log: bool = True) -> dict[str, Any]:
    """Everything below a folder, by name, as far as it is a function of what was asked for. Without `log`, what a training that
    could not write its log has in common with one that could."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if name.endswith(".discarded") or (not log and ".ndjson" in path.name):
            continue  # kept on purpose: the records of epochs that were made again
        if path.is_dir():
            found[name] = "folder"
        elif name.endswith(".partial"):
            found[name] = "leftover"
        elif path.name == ".lock":
            found[name] = "lock"
        elif path.name == files.SUMS:
            found[name] = sorted(files.check_sums(path.parent))
        elif path.suffix == ".json":
            value = json.loads(path.read_bytes())
            if not log and isinstance(value, dict):
                value = {key: part for key, part in value.items() if key not in OF_LOG}
            found[name] = _plain(value, str(root))
        elif ".ndjson" in path.name and not name.endswith(".head"):
            found[name] = [_plain(json.loads(line), str(root)) for line in path.read_bytes().split(b"\n")[:-1]]
        elif name.endswith(".head"):
            found[name] = json.loads(path.read_bytes())["number"]
        else:
            found[name] = path.read_bytes()
    return found


def different(whole: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """In words, at most a few."""
    more = [f"{name} is there" for name in found if name not in whole]
    less = [f"{name} is missing" for name in whole if name not in found]
    other = [f"{name} differs" for name in whole if name in found and whole[name] != found[name]]
    return (more + less + other)[:6]


def leftovers(root: Path) -> list[str]:
    return [path.name for path in root.rglob("*") if ".partial" in path.name or path.name.startswith(".publishing")]


# --- a case ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    writer: str
    faults: tuple[tuple[int, str], ...]  # operation and way of each interruption, one after the other

    def __str__(self) -> str:
        return f"{self.writer}: " + ", then ".join(f"{way} at operation {k}" for k, way in self.faults)


@dataclass(frozen=True)
class Finding:
    case: Case
    kind: str  # different, leftovers, cannot go on, failed
    words: str


def uninterrupted(writer: Writer, place: Path) -> dict[str, Any]:
    root = fresh(writer, place)
    writer.act(root)
    return left(root)


def fresh(writer: Writer, place: Path) -> Path:
    """The writer's folder as it is before, prepared once and then copied."""
    ready = place.parent / f"prepared {writer.name}"
    if not ready.exists():
        ready.mkdir(parents=True)
        writer.prepare(ready)
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(ready, place)
    return place


def operations(layer: Layer, writer: Writer, place: Path) -> int:
    """How many the writer does when nothing fails."""
    made = attempt(layer, writer.act, fresh(writer, place), 0, "kill before")
    assert made.end == DONE, made.words
    return made.operations


def findings(layer: Layer, case: Case, whole: dict[str, Any], place: Path, floor: Floor | None = None) -> list[Finding]:
    """Interrupt, go on to the end, compare. Empty when all is well. `floor` knows what earlier cases had made safe."""
    writer = WRITERS[case.writer]
    root = fresh(writer, place)
    dropped, safe = False, writer.safe(root)
    for number, (k, way) in enumerate(case.faults):
        made = attempt(layer, writer.act, root, k, way)
        if made.end == FAILED:
            return [Finding(case, "failed", made.words)]
        dropped |= made.end == DONE and way in REFUSALS  # a training goes on without its log
        least = max(safe, floor.of(k, way) if floor is not None and number == 0 else 0)
        safe = writer.safe(root)
        if safe < least:
            return [Finding(case, "lost", f"{safe} of {least} that were safe")]
        if floor is not None and number == 0:
            floor.raise_to(k, way, safe)
    made = attempt(layer, writer.act, root, 0, "kill before")
    if made.end != DONE:
        return [Finding(case, "cannot go on", made.words)]
    found = []
    if words := leftovers(root):
        found.append(Finding(case, "leftovers", ", ".join(words[:4])))
    if apart := different(whole, left(root)):
        same = dropped and not different(_without_log(whole), _without_log(left(root, log=False))) and _a_part(whole, left(root))
        found += [] if same else [Finding(case, "different", "; ".join(apart))]
    return found


class Floor:
    """What was safe when the process was killed at an operation is safe at every later one: runs are the same up to there."""

    def __init__(self) -> None:
        self._safe: dict[str, list[tuple[int, int]]] = {}

    def of(self, k: int, way: str) -> int:
        return max((safe for at, safe in self._safe.get(way, ()) if at <= k), default=0)

    def raise_to(self, k: int, way: str, safe: int) -> None:
        if way in KILLS:
            self._safe.setdefault(way, []).append((k, safe))


def _a_part(whole: dict[str, Any], found: dict[str, Any]) -> bool:
    """A log that could not be written holds some of the records of one that could, none of them changed."""

    def records(of: dict[str, Any]) -> list[Any]:
        logs = [value for name, value in of.items() if ".ndjson" in name and isinstance(value, list)]
        counted = ("log_stream_offset", "records_dropped")
        return [{key: part for key, part in record.items() if key not in counted} for log in logs for record in log]

    everything = records(whole)
    return all(record in everything for record in records(found))


def _without_log(found: dict[str, Any]) -> dict[str, Any]:
    def bare(value: Any) -> Any:
        return {key: bare(part) for key, part in value.items() if key not in OF_LOG} if isinstance(value, dict) else value

    return {name: bare(value) for name, value in found.items() if ".ndjson" not in name}
