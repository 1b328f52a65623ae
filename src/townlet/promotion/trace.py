"""The way back from a promotion: ledger entry, scorecard, weights, run folder, log record, dataset, sample, moment, event.

Every link is opened and compared with what the one before it says; the first that does not hold is named.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from townlet import files
from townlet.config.models import config_hash
from townlet.dto.evaluation import SCORECARD_LIMIT
from townlet.dto.promotion import Evidence, LedgerEntry, Trace, TraceLink
from townlet.errors import DamagedFileError, UsageError
from townlet.evaluation.compare import parse_scorecard
from townlet.policy.capture_events import read_event_records
from townlet.policy.checkpoint import load_checkpoint
from townlet.policy.manifest import EVENTS_NAME, Manifest, ReplayEntry, check_listed, dataset_hash, find_manifest, read_manifest
from townlet.policy.sample import SampleMeta
from townlet.policy.training.open_run import run_id
from townlet.policy.training.run_folder import RunCard, RunFolder
from townlet.promotion.ledger import FIRST_CHAMPION
from townlet.promotion.releases import CANDIDATE, CheckpointFacts, Releases, read_checkpoint
from townlet.telemetry.ndjson import epoch_records
from townlet.types import Record

RECORD_KEYS = ("epoch", "cycle_id", "anneal_cycle")  # which record of a log is meant
WAITED = ("use_start", "queue_leave")


def trace(
    releases: Releases,
    number: int | None = None,
    *,
    run: Path | None = None,
    data: Path | None = None,
    sample: str | None = None,
) -> Trace:
    """Walk back from an entry of the ledger, by default the one that made the champion.

    `run` and `data` say where the run folder and its data are when they have been moved; `sample` is the id of the one to look
    at, by default the first in which something happened.
    """
    walk = _Walk(releases, number, run, data, sample)
    try:
        walk.back()
    except DamagedFileError as error:
        return Trace(links=tuple(walk.met), broken=walk.at, reason=str(error))
    return Trace(links=tuple(walk.met), broken=None, reason=None)


@dataclass
class _Walk:
    """`at` is the link being opened, `met` those that hold."""

    releases: Releases
    number: int | None
    run: Path | None
    data: Path | None
    sample: str | None
    at: str = ""
    met: list[TraceLink] = field(default_factory=list)

    def back(self) -> None:
        self.at = "ledger entry"
        entry, evidence = self._entry()
        self._holds(f"{entry.number}, {entry.kind}", self.releases.ledger)

        self.at = "scorecard"
        self._holds(evidence.scorecard or "", self._scorecard(evidence))

        self.at = "weights"
        checkpoint = self._weights(entry, evidence)
        self._holds(checkpoint.weights, checkpoint.source)

        self.at = "run folder"
        folder, card = self._run(entry, checkpoint)
        self._holds(card.run_id, folder.path)

        self.at = "log record"
        self._holds(*self._record(folder, card, checkpoint))

        self.at = "dataset"
        if card.dataset_hash is None:
            self._holds("none was given: the run learned in its own towns, from its config and seed", folder.path)
            return
        where, manifest = self._dataset(folder, card)
        self._holds(card.dataset_hash, where)

        self.at = "sample"
        lives = self._lives(manifest)
        life = self._chosen(lives, manifest)
        meta, events, path = life.meta, life.events, life.path
        self._holds(meta.sample_id, path)

        self.at = "moment"
        if meta.generation == 1:
            raise DamagedFileError(
                f"{path} is a sample of the first generation, which does not say when it happened; capture it again"
            )
        event = next((e for e in events or () if e["type"] == "queue_conflict"), events[0] if events else None)
        tick = meta.first_tick if event is None else int(event["tick"])
        place = f"town {meta.capture.town}, episode {meta.capture.episode}, tick {tick}"
        self._holds(f"{place} of {meta.capture.config_id}, seed {meta.capture.seed}", path.with_suffix(".json"))

        self.at = "event"
        for each in lives:
            _count(each)
        if event is None:
            self._holds("none of this resident was kept", path.parent)
            return
        told = " ".join(str(event[name]) for name in ("actor", "type", "object_id", "rival") if name in event)
        self._holds(f"{event['event_id']}: {told}", path.parent / EVENTS_NAME)

    def _holds(self, found: str, where: Path | str) -> None:
        self.met.append(TraceLink(name=self.at, found=found, where=str(where)))

    def _entry(self) -> tuple[LedgerEntry, Evidence]:
        """The entry meant, with its evidence; a rollback leads to the promotion of the champion it brought back."""
        entries = self.releases.entries()
        if self.number is not None and not 0 <= self.number < len(entries):
            raise UsageError(f"the ledger has no entry {self.number}, its entries are 0 to {len(entries) - 1}")
        name = self.releases.champion() if self.number is None else entries[self.number].candidate
        if name == FIRST_CHAMPION:
            raise UsageError(
                "the scripted townspeople were not trained, so there is nothing to trace; name the entry of a candidate"
            )
        entry = None if self.number is None else entries[self.number]
        if entry is None or entry.kind == "rollback":
            entry = next(e for e in reversed(entries) if e.kind == "promote" and e.candidate == name)
        evidence = entry.evidence
        if evidence is None:
            raise DamagedFileError(f"entry {entry.number} of {self.releases.ledger} has no evidence; nothing was decided on it")
        _equal("the evidence", {"candidate": entry.candidate, "champion": entry.champion}, evidence.model_dump())
        return entry, evidence

    def _scorecard(self, evidence: Evidence) -> Path:
        if evidence.scorecard is None:
            raise DamagedFileError("the window was judged without a scorecard; it was missing or damaged then")
        path = self.releases.evidence(evidence.scorecard)
        data = files.read_bytes(path, limit=SCORECARD_LIMIT)
        if files.sha256_bytes(data) != evidence.scorecard:
            raise DamagedFileError(f"{path} was changed since it was judged; restore the evidence")
        try:
            cards = [case.policy(CANDIDATE) for case in parse_scorecard(data, path).cases]
        except StopIteration as error:
            raise DamagedFileError(f"{path} is not a scorecard of a {CANDIDATE}; measure it again") from error
        for card in cards:
            _equal(str(path), {"policy_hash": evidence.candidate, "dataset_hash": evidence.dataset}, card.model_dump())
        return path

    def _weights(self, entry: LedgerEntry, evidence: Evidence) -> CheckpointFacts:
        """The release and the checkpoint it was copied from, as far as they are there; what was judged must be among them."""
        release = self.releases.release_of(entry.candidate)
        places = [release] if entry.kind == "promote" else []
        source = self._source(entry)
        if source.exists():
            places.append(source)
        if not places:
            raise DamagedFileError(
                f"{source} is missing, and there is no release of it; say where its run is with --run, or restore the checkpoint"
            )
        found = [read_checkpoint(place) for place in places]
        for one in found:
            if one.weights != entry.candidate:
                raise DamagedFileError(
                    f"{one.source} holds weights {one.weights[:12]}, expected {entry.candidate[:12]}; restore it"
                )
        judged: CheckpointFacts | None = next((one for one in reversed(found) if one.sums == evidence.checkpoint), None)
        if judged is None:
            raise DamagedFileError(f"{found[-1].source} was changed since it was judged (its {files.SUMS} differs); restore it")
        facts = {
            "run_id": evidence.run_id,
            "config_hash": evidence.training_config,
            "dataset_hash": evidence.dataset,
            "started_from": evidence.started_from,
        }
        _equal(f"{judged.source}/state.json", facts, judged.state)
        return judged

    def _source(self, entry: LedgerEntry) -> Path:
        """The checkpoint that was judged, in the run folder that was moved where it is no longer at its place."""
        source = Path(entry.source)
        if self.run is None or source.exists():
            return source
        inside = (self.run.joinpath(*source.parts[n:]) for n in range(1, len(source.parts)))
        return next((place for place in inside if place.is_dir()), source)

    def _run(self, entry: LedgerEntry, checkpoint: CheckpointFacts) -> tuple[RunFolder, RunCard]:
        """The run the checkpoint lies in: its card, its config and its summary."""
        above = Path(entry.source).parents
        found = [RunFolder(self.run)] if self.run is not None else [run for place in above if (run := RunFolder(place)).exists]
        if not found or not found[0].exists:
            raise DamagedFileError(f"{self.run or entry.source} is not in a run folder (run.json); say where that is with --run")
        folder, path = found[0], found[0].path / "run.json"
        card, config, state = folder.card(), folder.resolved_config(), checkpoint.state
        told, own = card.model_dump(), config_hash(config)
        _equal(str(path), {"config_id": config.config_id, "config_hash": own, "seed": config.seed}, told)
        _equal(str(path), {name: state.get(name) for name in ("run_id", "config_hash", "dataset_hash", "started_from")}, told)
        _equal(str(path), {"run_id": run_id(own, card.mode, card.epochs, card.dataset_hash, card.started_from)}, told)
        summary, latest = folder.summary(), folder.latest()
        if summary is not None:
            _equal(f"{folder.path}/summary.json", {"dataset_hash": card.dataset_hash}, summary.as_record())
            if latest is not None:
                weights = load_checkpoint(latest, with_optimizer=False, with_world=False).state["weights_hash"]
                _equal(f"{folder.path}/summary.json", {"weights_hash": weights}, summary.as_record())
        return folder, card

    def _record(self, folder: RunFolder, card: RunCard, checkpoint: CheckpointFacts) -> tuple[str, Path]:
        """The log record of the checkpoint's epoch; it must equal the copy in the checkpoint."""
        expected: Record = checkpoint.state.get("standing", {}).get("last", {})
        position: Record = checkpoint.state.get("telemetry", {})
        if not expected or not position or card.telemetry is None:
            return "none was written: cloning writes none, and a log can be turned off", folder.path
        _equal(f"{checkpoint.source}/state.json", {"policy_hash": checkpoint.weights}, expected)
        log = folder.path / card.telemetry
        skipped = (int(position["epochs"]) - 1) % folder.resolved_config().telemetry.frequency
        if skipped or position["records_dropped"]:
            return "none was written for this epoch: telemetry.frequency left it out, or the disk was full", log
        key = [expected.get(name) for name in RECORD_KEYS]
        found = [record for record in epoch_records(log) if [record.get(name) for name in RECORD_KEYS] == key]
        if len(found) != 1:
            raise DamagedFileError(f"{log} holds {len(found)} records of epoch {key[0]}, expected one; restore the log")
        _equal(f"{log}, epoch {key[0]}", expected, found[0])
        return f"epoch {key[0]}", log

    def _dataset(self, folder: RunFolder, card: RunCard) -> tuple[Path, Manifest]:
        """The data the run was given: what the manifest records of every file gives their hash."""
        if self.data is None and card.dataset is None:
            raise DamagedFileError(
                "the run was given data in memory, of which only the hash is known; say where they are with --data"
            )
        path = self.data or folder.path / str(card.dataset)
        where = files.real_path(path)
        if where.suffix == ".npz":
            manifest = Manifest(where, (ReplayEntry.of(where),))
        else:
            manifest = read_manifest(find_manifest(where) if where.is_dir() else where)
            if (manifest.path.parent / files.SUMS).is_file():
                check_listed(manifest.path.parent, manifest)
        found = dataset_hash(manifest.entries)
        if found != card.dataset_hash:
            raise DamagedFileError(
                f"{path} holds other data ({found[:12]}) than the run was given ({str(card.dataset_hash)[:12]}); restore them"
            )
        return path, manifest

    def _lives(self, manifest: Manifest) -> list[_Life]:
        """Every sample, checked against its hashes, and the events of its resident."""
        tables: dict[Path, dict[tuple[int, int, str], list[Record]] | None] = {}
        lives = []
        for entry in manifest.entries:
            meta = entry.read().meta
            path = entry.sample.parent / EVENTS_NAME
            if path not in tables:
                tables[path] = _by_actor(path) if path.is_file() else None
            table, place = tables[path], meta.capture
            last = meta.first_tick + meta.timesteps * meta.decision_interval
            rows = None if table is None else table.get((place.town, place.episode, meta.agent_id), [])
            own = None if rows is None else [row for row in rows if meta.first_tick <= int(row["tick"]) < last]
            lives.append(_Life(meta, entry.sample, own))
        return lives

    def _chosen(self, lives: list[_Life], manifest: Manifest) -> _Life:
        if self.sample is None:
            return next((life for life in lives if life.events), lives[0])
        found = next((life for life in lives if life.meta.sample_id == self.sample), None)
        if found is None:
            raise UsageError(f"{manifest.path} lists no sample {self.sample!r}; name one of its ids, or none for the first")
        return found


class _Life(NamedTuple):
    meta: SampleMeta
    path: Path  # of its arrays
    events: list[Record] | None  # its resident was the actor of, in its time; None where none were kept beside it


def _by_actor(path: Path) -> dict[tuple[int, int, str], list[Record]]:
    """The events of a capture by town, episode and actor."""
    table: dict[tuple[int, int, str], list[Record]] = {}
    for row in read_event_records(path):
        if "actor" in row:
            table.setdefault((row.get("town", 0), row.get("episode", 0), row["actor"]), []).append(row)
    return table


def _count(life: _Life) -> None:
    """Compare the event counts in the metrics of a sample with its events."""
    if life.events is None:
        return
    waits = [int(event["waited"]) for event in life.events if event["type"] in WAITED and event["waited"] > 0]
    counted = {
        "queue_conflict_events": sum(event["type"] == "queue_conflict" for event in life.events),
        "wait_count": len(waits),
        "wait_sum": sum(waits),
    }
    known = {name: value for name, value in life.meta.metrics.items() if name in counted}
    _equal(f"{life.path.parent / EVENTS_NAME}, where {life.meta.sample_id} is counted,", known, counted)


def _equal(where: str, expected: Record, found: Record) -> None:
    """Raise a sentence about the first fact that is not as expected."""
    for name, value in expected.items():
        if name not in found or found[name] != value:
            raise DamagedFileError(
                f"{where} has {name} {found.get(name, 'missing')!r}, expected {value!r}; it was changed, restore it"
            )
