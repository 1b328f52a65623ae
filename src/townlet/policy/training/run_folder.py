"""The folder of a run: resolved config, environment, checkpoints (`latest`, `best`, the last few), telemetry, summary, lock.

runs/NAME/
  run.json            what was asked for: mode, epochs, seed, dataset, hashes; `--resume` reads it
  config.json         the config as it was resolved
  environment.json    versions, machine, threads, command
  ppo.ndjson          one record per epoch (and its rotated parts)
  checkpoints/NNNNNN/ whole or not there; `latest` and `best` name two of them
  stages/             the runs of an anneal schedule, each of the same form
  summary.json        the result, written last
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from townlet import files
from townlet.config.models import SimulationConfig, config_hash
from townlet.dto.policy import EvaluationPoint
from townlet.errors import CheckpointError, StorageError, UsageError, first_problem
from townlet.names import is_name
from townlet.optional import versions
from townlet.policy.checkpoint import (
    BEST,
    LATEST,
    RUN_CHECKPOINTS,
    Checkpoint,
    load_checkpoint,
    names,
    pointed,
    publish_checkpoint,
    read_state,
    resolve,
    tidy,
    weights_hash,
)
from townlet.sealed import read_sealed, write_sealed
from townlet.types import Record

RECORD_BYTES = 3_000  # a telemetry record, generously
OWN_FILES = ("run.json", "config.json", "environment.json", "summary.json", "anneal.json")
SMALL_FILES = 200_000  # config, environment, summary, plots
Model = TypeVar("Model", bound=BaseModel)


def next_free(config_id: str, mode: str) -> Path:
    """The folder of the next run under runs/."""
    number = 1
    while (path := Path("runs") / f"{config_id}_{mode}_{number:03d}").exists():
        number += 1
    return path


class RunCard(BaseModel):
    """`run.json`."""

    model_config = ConfigDict(extra="forbid")

    run_id: str
    mode: str
    epochs: int
    seed: int
    config_id: str
    config_hash: str
    dataset_hash: str | None = None
    dataset: str | None = None  # where the data are, seen from the run folder
    started_from: str | None = None  # hash of the weights it began with
    telemetry: str | None = None  # the log: its name in the folder, or a path elsewhere


class RunEnvironment(BaseModel):
    """`environment.json`."""

    model_config = ConfigDict(extra="forbid")

    versions: dict[str, str]
    machine: str
    system: str
    processors: int | None
    threads: int
    command: list[str]

    @classmethod
    def here(cls, config: SimulationConfig, command: Sequence[str]) -> Self:
        return cls(
            versions=versions("numpy", *(["torch"] if "torch" in sys.modules else [])),
            machine=platform.machine(),
            system=platform.platform(),
            processors=os.cpu_count(),
            threads=config.training.threads,
            command=list(command),
        )


class _Read(BaseModel):
    model_config = ConfigDict(extra="allow", allow_inf_nan=False)


class SummaryPart(_Read):
    evaluations: list[EvaluationPoint] = []


class SummaryStage(_Read):
    evaluation: EvaluationPoint | None = None
    ppo: SummaryPart | None = None


class RunSummary(_Read):
    """`summary.json`: the result of any strategy, of which these are read."""

    strategy: str
    checkpoint: str | None = None
    dataset_hash: str | None = None
    weights_hash: str | None = None
    status: Literal["PASS", "HOLD", "FAIL"] | None = None  # of an anneal run
    epochs: int | None = None
    evaluations: list[EvaluationPoint] = []
    stages: list[SummaryStage] = []
    return_per_resident_day: float | None = None

    @property
    def state(self) -> str:
        return self.status or "finished"

    def all_evaluations(self) -> list[EvaluationPoint]:
        """Of the run and of the stages inside it, in the order they were made."""
        found = [*self.evaluations]
        for stage in self.stages:
            found += [] if stage.ppo is None else stage.ppo.evaluations
            found += [] if stage.evaluation is None else [stage.evaluation]
        return found

    def as_record(self) -> Record:
        """All that the strategy wrote."""
        return self.model_dump(mode="json", exclude_unset=True)


@dataclass
class RunFolder:
    path: Path
    keep: int = 5
    top: RunFolder | None = None  # of a stage: the run that it belongs to
    held: os.stat_result | None = None  # the folder itself, while this process writes into it

    @property
    def checkpoints(self) -> Path:
        return files.safe_join(self.path, RUN_CHECKPOINTS, error=CheckpointError)

    def create(self, card: RunCard, config: SimulationConfig, environment: RunEnvironment) -> None:
        """Write down what the run is; `run.json` last, so that a folder with it is complete."""
        self.check_new()
        files.make_folder(self.path)
        files.write_json(self.path / "config.json", config.model_dump(mode="json"))  # the hash of it in the card is its seal
        write_sealed(self.path / "environment.json", environment.model_dump())
        write_sealed(self.path / "run.json", card.model_dump())

    @property
    def exists(self) -> bool:
        """Something stands at the place of run.json, even if it is no file: whoever reads it says so."""
        return os.path.lexists(self.path / "run.json")

    def check_new(self) -> None:
        if self.exists:
            raise UsageError(
                f"{self.path} already holds a run; continue it with --resume {self.path}, or choose another --run-dir"
            )

    def hold(self) -> None:
        """For the one who holds the lock: from here on nothing is written into another folder that stands at this path."""
        self.held = self.path.stat()

    def _check_held(self) -> None:
        run = self.top or self
        if run.held is not None and not (run.path.is_dir() and os.path.samestat(run.held, run.path.stat())):
            raise StorageError(
                f"{run.path} was moved or removed while the run wrote into it; find the folder and go on from its last "
                "checkpoint with --resume"
            )

    def card(self) -> RunCard:
        return self._read("run.json", RunCard)

    def resolved_config(self) -> SimulationConfig:
        """The config of the run, checked as every config is."""
        expected = self.card().config_hash
        data = files.read_bytes(self.path / "config.json", limit=1 << 26, error=CheckpointError)
        try:
            config = SimulationConfig.model_validate_json(data)
        except ValidationError as error:
            raise CheckpointError(
                f"{self.path / 'config.json'} is not a config of this version ({first_problem(error)}); "
                "use the version of Townlet that wrote it"
            ) from error
        if (found := config_hash(config, stored=True)) != expected:
            raise CheckpointError(
                f"{self.path / 'config.json'} is not that of run.json (config_hash {found}, expected {expected}); restore the "
                "file, or start the run again"
            )
        return config

    def environment(self) -> RunEnvironment:
        return self._read("environment.json", RunEnvironment)

    def log(self) -> Path | None:
        return self.find_log(self.card().telemetry)

    def find_log(self, named: str | None) -> Path | None:
        """The log of that name, if it is in the folder; else any log in it."""
        names = [named] if named is not None and is_name(named) else []
        names += sorted(path.name for path in self.path.glob("*.ndjson"))
        return next((path for name in names if (path := files.safe_join(self.path, name)).is_file()), None)

    @property
    def ended(self) -> bool:
        return (self.path / "summary.json").is_file()

    def summary(self) -> RunSummary | None:
        """None before the run has ended."""
        return self._read("summary.json", RunSummary) if self.ended else None

    def write_summary(self, summary: Mapping[str, object]) -> None:
        """The result. Of a run that had ended before and was resumed, the one that is there: it knows how long that took."""
        self._check_held()
        with suppress(CheckpointError):  # damaged: written anew
            there = self.summary()
            if there is not None and there.as_record() | {"duration_sec": summary["duration_sec"]} == summary:
                return
        write_sealed(self.path / "summary.json", summary)

    def latest(self) -> Path | None:
        """The checkpoint a resume starts from; None before the first one."""
        return pointed(self.checkpoints / LATEST)

    def best(self) -> Path | None:
        return pointed(self.checkpoints / BEST)

    def save(self, number: int, checkpoint: Checkpoint, *, best: bool = False, scheduled: bool = True) -> Path:
        """Checkpoint `number`, whole or not at all; one that is not `scheduled` stays until the next."""
        self._check_held()
        try:
            return self._save(f"{number:06d}", checkpoint, best=best, scheduled=scheduled)
        except (CheckpointError, StorageError):
            self._check_held()  # moved in the middle: not the file that was not found is what is wrong
            raise

    def _save(self, name: str, checkpoint: Checkpoint, *, best: bool, scheduled: bool) -> Path:
        latest = self.latest()
        if latest is not None and latest.name == name and (not best or self.best() == latest):
            there, state = read_state(latest), checkpoint.state
            same = there.get("standing") == state.get("standing")  # but for an evaluation that came later
            if same and there["weights_hash"] == weights_hash(checkpoint.weights):
                return latest
        return publish_checkpoint(self.checkpoints, name, checkpoint, keep=self.keep, best=best, scheduled=scheduled)

    def recover(self) -> Checkpoint | None:
        """Remove what an interruption has left; for the one who holds the lock. The checkpoint to go on from, if there is one."""
        if self.path.is_dir():
            files.sweep(self.path)
        self.latest()  # one that leads nowhere says itself what is there
        try:
            tidy(self.checkpoints)
            return None if self.latest() is None else load_checkpoint(self.checkpoints)
        except CheckpointError as error:
            others = [name for name in names(self.checkpoints) if name != resolve(self.checkpoints).name]
            if not others:
                raise
            pointer = self.checkpoints / LATEST
            raise CheckpointError(f"{error}; or write the name of another into {pointer}: {', '.join(others)}") from None

    def child(self, name: str) -> RunFolder:
        return RunFolder(files.safe_join(self.path, f"stages/{name}", error=CheckpointError), self.keep, self)

    def _read(self, name: str, model: type[Model]) -> Model:
        if not self.exists:
            raise UsageError(
                f"{self.path} is not a run folder (it has no run.json); give the folder that `townlet train` printed"
            )
        remedy = "restore the file, or start the run again"
        return read_sealed(self.path / name, model, remedy=remedy, error=CheckpointError)


def check_not_of_a_run(path: Path) -> None:
    """What a command writes never takes the place of what a run needs."""
    if path.name in OWN_FILES and RunFolder(path.parent).exists:
        raise UsageError(f"{path} belongs to the run in {path.parent}; name another file")


def disk_estimate(weight_bytes: int, world_bytes: int, keep: int, records: int) -> int:
    """Bytes a run will hold at most: weights and two Adam moments per checkpoint, the world, the log."""
    return (keep + 3) * (3 * weight_bytes + world_bytes) + records * RECORD_BYTES + SMALL_FILES


def check_disk(path: Path, needed: int) -> None:
    """Refuse to start what cannot end: the run's folder needs more than the disk has."""
    there = path.absolute()
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    if needed > free:
        raise StorageError(
            f"the run needs about {needed / 1e6:,.1f} MB in {path}, {free / 1e6:,.1f} MB are free; "
            "free some space, lower training.keep_checkpoints or choose another --run-dir"
        )


def find_runs(folder: Path) -> list[RunFolder]:
    """The runs directly under a folder, by name."""
    if not folder.is_dir():
        return []
    return [run for path in sorted(folder.iterdir()) if (run := RunFolder(path)).exists]


def run_of(checkpoint: Path) -> RunFolder | None:
    """The run that a checkpoint was made by, where it still lies in its folder; of a run, the run itself."""
    return next((run for path in (checkpoint, *files.real_path(checkpoint).parents) if (run := RunFolder(path)).exists), None)
