"""What training left on the disk, as JSON: runs, their records by cursor, scorecards, the ledger. Runs have opaque ids."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from townlet.config.learning import PromotionConfig
from townlet.config.loader import load_config, shipped_configs
from townlet.errors import TakeError, TownletError
from townlet.evaluation.compare import load_scorecard
from townlet.files import read_bytes, short_hash
from townlet.observer.studio import SEEN
from townlet.policy.checkpoint import RUN_CHECKPOINTS, names, read_state
from townlet.policy.training.run_folder import RunFolder, find_runs
from townlet.promotion.releases import Releases
from townlet.telemetry.alarm_rules import default_rules
from townlet.telemetry.follow import NewLine
from townlet.telemetry.ndjson import UNREADABLE, log_parts
from townlet.telemetry.watch import Seen, Watch
from townlet.types import Record

MOST_BYTES = 4 << 20  # of log in one answer
YAML_LIMIT = 1 << 20


class Library:
    """Runs directly under `folder`, and the ledger of promotions."""

    def __init__(self, folder: Path, ledger: Path, rules: PromotionConfig) -> None:
        self.folder, self.releases = folder, Releases(ledger, rules)
        self._scenarios: list[Record] = []
        self._counted: dict[str, tuple[tuple[int, int], int, list[str]]] = {}  # run → size and time of its log, records, alarms
        self._known: dict[str, tuple[tuple[int, bool], tuple[str, ...]]] = {}  # run → its `_state`
        self._alarms: dict[str, int] = {}  # run → alarms that are no news
        self._looked = False

    # --- runs ---------------------------------------------------------------------------------------------------------

    def runs(self) -> list[Record]:
        return [self._row_or_problem(run) for run in find_runs(self.folder)]

    def run(self, name: str) -> Record:
        run = self.find(name)
        stages = [stage.name for stage in sorted((run.path / "stages").glob("*")) if stage.is_dir()]
        config, card = run.resolved_config().model_dump(mode="json"), run.card().model_dump()
        summary = run.summary()
        told = None if summary is None else summary.as_record()
        return self._row(run) | {"config": config, "card": card, "stages": stages, "summary": told}

    def find(self, name: str) -> RunFolder:
        for run in find_runs(self.folder):
            if run_id(run.path) == name:
                return run
        raise TakeError(f"there is no run {name!r:.60} here; it may have been removed")

    def find_policy(self, policy: str) -> tuple[str, Path] | None:
        """Name and folder of the checkpoint with these weights, of whichever run."""
        for run in find_runs(self.folder):
            with suppress(TownletError, OSError):  # one that is damaged is not the one meant
                for folder in (run.checkpoints / one for one in _checkpoints(run)):
                    if weights_id(folder) == policy:
                        return checkpoint_name(folder), folder
        return None

    def _count(self, run: RunFolder) -> tuple[int, list[str]]:
        """Records of a run and what its alarms say, read again when its log has changed."""
        log, name = run.log(), run_id(run.path)
        if log is None:
            return 0, []
        stamp = log.stat().st_size, log.stat().st_mtime_ns
        if name not in self._counted or self._counted[name][0] != stamp:
            read = self.records(name, "")
            self._counted[name] = stamp, len(read["records"]), [str(alarm["message"]) for alarm in read["alarms"]]
        return self._counted[name][1:]

    @staticmethod
    def _state(run: RunFolder) -> tuple[tuple[int, bool], tuple[str, ...]]:
        """Bytes of a run's log and whether the run has ended; its checkpoints."""
        log = run.log()
        return (0 if log is None else log.stat().st_size, run.ended), _checkpoints(run)

    def _row_or_problem(self, run: RunFolder) -> Record:
        """One damaged run does not hide the others."""
        try:
            return self._row(run)
        except (TownletError, OSError) as error:  # damaged, or removed while it was read
            nothing: Record = {"updates": 0, "alarms": 0, "mode": None, "town": None, "epochs": None, "checkpoints": []}
            return nothing | {"id": run_id(run.path), "name": run.path.name, "state": "damaged", "problem": str(error)}

    def _row(self, run: RunFolder) -> Record:
        self._known.setdefault(run_id(run.path), self._state(run))  # what comes after a list was asked for is news
        card, summary = run.card(), run.summary()
        best, latest = run.best(), run.latest()
        updates, alarms = self._count(run)
        self._alarms.setdefault(run_id(run.path), len(alarms))
        return {
            "id": run_id(run.path),
            "name": run.path.name,
            "updates": updates,
            "alarms": len(alarms),
            "mode": card.mode,
            "town": card.config_id,
            "state": "unfinished" if summary is None else summary.state,
            "epochs": None if summary is None else summary.epochs,
            "checkpoints": [
                {
                    "id": one,
                    "name": one,
                    "policy": weights_id(run.checkpoints / one),
                    "best": best is not None and best.name == one,
                    "latest": latest is not None and latest.name == one,
                }
                for one in _checkpoints(run)
            ],
        }

    def records(self, name: str, cursor: str) -> Record:
        """Records after a cursor, with the alarms of the default rules; `cut` when the log is no longer what was read."""
        run = self.find(name)
        log = run.log()
        if log is None:
            return {"records": [], "alarms": [], "next": "", "cut": False}
        data = b"".join(read_bytes(part, limit=1 << 30, error=TakeError) for part in log_parts(log))
        data = data[: data.rfind(b"\n") + 1]
        at = _place(data, cursor)
        cut = at is None
        begin = at or 0
        end = min(len(data), begin + MOST_BYTES)
        end = data.rfind(b"\n", 0, end) + 1
        watch, found, alarms = Watch(default_rules()), [], []
        for number, raw in enumerate(data[:end].split(b"\n")[:-1]):  # rules look back, so they see the whole log
            after = begin <= 0
            begin -= len(raw) + 1
            for event in watch.feed(NewLine(log, number + 1, raw)):
                if isinstance(event, Seen) and after:
                    found.append(_finite(event.record))
                    alarms += [_finite(alarm._asdict()) for alarm in event.alarms]
        return {"records": found, "alarms": alarms, "next": _cursor(data[:end]), "cut": cut, "more": end < len(data)}

    def scorecards(self, name: str) -> list[Record]:
        run = self.find(name)
        found = []
        for path in sorted(run.path.glob("*scorecard*.json"))[:16]:
            try:
                found.append(_finite(load_scorecard(path).model_dump(mode="json")))
            except TownletError as error:
                found.append({"problem": str(error)})  # one that is damaged does not hide the others
        return found

    def changes(self) -> list[tuple[str, Record]]:
        """News since the last time: `record` where a run has grown or ended, `alarm` where that set one off, `checkpoint`."""
        found: list[tuple[str, Record]] = []
        for run in find_runs(self.folder):
            with suppress(TownletError, OSError):  # damaged or removed: the list of runs says so, the others go on
                found += self._changes(run)
        self._looked = True
        return found

    def _changes(self, run: RunFolder) -> Iterator[tuple[str, Record]]:
        name, now = run_id(run.path), self._state(run)
        before = self._known.get(name, ((0, False), ()) if self._looked else now)  # a new run is news as a whole
        self._known[name] = now
        if before[0] != now[0]:
            yield "record", {"run": name}
            alarms = self._count(run)[1]
            told, self._alarms[name] = self._alarms.get(name, len(alarms)), len(alarms)
            if len(alarms) > told:
                yield "alarm", {"run": name, "text": f"{run.path.name}: {alarms[-1]}"}
        yield from (("checkpoint", {"run": name, "id": one}) for one in now[1] if one not in before[1])

    # --- releases -----------------------------------------------------------------------------------------------------

    def ledger(self) -> Record:
        problems = self.releases.verify()
        entries = [] if problems and not self.releases.ledger.exists() else self._entries()
        text = "; ".join(problems) if problems else "ledger, evidence and releases hold together"
        return {"entries": entries, "verify": {"ok": not problems, "text": text}}

    def _entries(self) -> list[Record]:
        try:
            return [entry.model_dump(mode="json") for entry in self.releases.entries()]
        except TownletError:
            return []  # `verify` says why

    # --- scenarios ----------------------------------------------------------------------------------------------------

    def scenarios(self) -> list[Record]:
        if not self._scenarios:
            self._scenarios = [_scenario(name) for name in shipped_configs()]
        return self._scenarios

    @staticmethod
    def yaml(name: str) -> str:
        known = shipped_configs()
        if name not in known:
            raise TakeError(f"there is no scenario {name!r:.60}; there are {', '.join(known)}")
        return read_bytes(known[name], limit=YAML_LIMIT, error=TakeError).decode()


def _scenario(name: str) -> Record:
    scenario = load_config(name).scenario
    people = len(scenario.residents) if scenario.generate is None else scenario.generate.residents
    return {"name": name, "description": scenario.description, "residents": people}


def _checkpoints(run: RunFolder) -> tuple[str, ...]:
    return tuple(names(run.checkpoints)) if run.checkpoints.is_dir() else ()


def weights_id(checkpoint: Path) -> str:
    """How takes name a checkpoint: by the beginning of its weights hash."""
    return str(read_state(checkpoint)["weights_hash"])[:SEEN]


def checkpoint_name(checkpoint: Path) -> str:
    """For people: its run, and which one where the run has several."""
    if checkpoint.parent.name != RUN_CHECKPOINTS:
        return checkpoint.name
    run = checkpoint.parent.parent.name
    return run if len(names(checkpoint.parent)) == 1 else f"{run}/{checkpoint.name}"


def run_id(path: Path) -> str:
    return short_hash(str(path.resolve()), 12)


def _cursor(read: bytes) -> str:
    """Where a reader stands: bytes read, and the checksum of the last line, to notice when the log is cut back."""
    last = read[read.rfind(b"\n", 0, len(read) - 1) + 1 :]
    return f"{len(read)}-{zlib.crc32(last):08x}" if read else ""


def _place(data: bytes, cursor: str) -> int | None:
    if not cursor:
        return 0
    size, _, _ = cursor.partition("-")
    if not size.isdigit() or not 0 < int(size) <= len(data) or _cursor(data[: int(size)]) != cursor:
        return None
    return int(size)


def _finite(value: object) -> Any:
    """JSON has no NaN: null."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except UNREADABLE:
        return None
