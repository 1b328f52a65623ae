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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from townlet import files
from townlet.config.models import SimulationConfig, config_hash
from townlet.dto.policy import EvaluationPoint
from townlet.errors import CheckpointError, StorageError, UsageError
from townlet.optional import versions
from townlet.policy.checkpoint import (
    BEST,
    LATEST,
    RUN_CHECKPOINTS,
    Checkpoint,
    publish_checkpoint,
    read_state,
    resolve,
    tidy,
    weights_hash,
)
from townlet.sealed import read_sealed, write_sealed

RECORD_BYTES = 3_000  # a telemetry record, generously
SMALL_FILES = 200_000  # config, environment, summary, plots


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
    status: Literal["PASS", "HOLD", "FAIL"] = "PASS"
    epochs: int = 0
    evaluations: list[EvaluationPoint] = []
    stages: list[SummaryStage] = []
    episode_return_mean: float | None = None


def environment(command: tuple[str, ...], threads: int) -> dict[str, Any]:
    return {
        "versions": versions("numpy", *(["torch"] if "torch" in sys.modules else [])),
        "machine": platform.machine(),
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "threads": threads,
        "command": list(command),
    }


@dataclass
class RunFolder:
    path: Path
    keep: int = 5

    @property
    def checkpoints(self) -> Path:
        return files.safe_join(self.path, RUN_CHECKPOINTS, error=CheckpointError)

    def create(self, card: Mapping[str, object], config: Mapping[str, object], about: Mapping[str, object]) -> None:
        """Write down what the run is; `run.json` last, so that a folder with it is complete."""
        files.make_folder(self.path)
        files.write_json(self.path / "config.json", config)  # the hash of it in the card is its seal
        write_sealed(self.path / "environment.json", about)
        write_sealed(self.path / "run.json", card)

    @property
    def exists(self) -> bool:
        return (self.path / "run.json").is_file()

    def card(self) -> dict[str, Any]:
        return self._read("run.json", RunCard)

    def config(self) -> dict[str, Any]:
        return self.resolved_config().model_dump(mode="json")

    def resolved_config(self) -> SimulationConfig:
        """The config of the run, checked as every config is."""
        card = self.card()
        data = files.read_bytes(self.path / "config.json", limit=1 << 26, error=CheckpointError)
        try:
            config = SimulationConfig.model_validate_json(data)
        except ValidationError as error:
            where = ".".join(str(part) for part in error.errors()[0]["loc"])
            raise CheckpointError(
                f"{self.path / 'config.json'} is not a config of this version ({where}: {error.errors()[0]['msg']}); "
                "use the version of Townlet that wrote it."
            ) from error
        if config_hash(config) != card["config_hash"]:
            raise CheckpointError(
                f"{self.path / 'config.json'} is not that of run.json (config_hash {config_hash(config)}, expected "
                f"{card['config_hash']}); restore the file, or start the run again."
            )
        return config

    def environment(self) -> dict[str, Any]:
        return self._read("environment.json", RunEnvironment)

    def summary(self) -> dict[str, Any] | None:
        return self._read("summary.json", RunSummary) if (self.path / "summary.json").is_file() else None

    def write_summary(self, summary: Mapping[str, object]) -> None:
        write_sealed(self.path / "summary.json", summary)

    def latest(self) -> Path | None:
        """The checkpoint a resume starts from; None before the first one."""
        return pointed(self.checkpoints, LATEST)

    def best(self) -> Path | None:
        return pointed(self.checkpoints, BEST)

    def save(self, number: int, checkpoint: Checkpoint, *, best: bool = False, scheduled: bool = True) -> Path:
        """Checkpoint `number`, whole or not at all; one that is not `scheduled` stays until the next."""
        name, latest = f"{number:06d}", self.latest()
        saved_before = latest is not None and latest.name == name and (not best or self.best() == latest)
        if latest is not None and saved_before and read_state(latest)["weights_hash"] == weights_hash(checkpoint.weights):
            return latest
        return publish_checkpoint(self.checkpoints, name, checkpoint, keep=self.keep, best=best, scheduled=scheduled)

    def recover(self) -> None:
        """Remove what an interruption has left; for the one who holds the lock."""
        if self.path.is_dir():
            files.sweep(self.path)
        tidy(self.checkpoints)

    def child(self, name: str) -> RunFolder:
        return RunFolder(files.safe_join(self.path, f"stages/{name}", error=CheckpointError), self.keep)

    def _read(self, name: str, model: type[BaseModel]) -> dict[str, Any]:
        if not self.exists:
            raise UsageError(
                f"{self.path} is not a run folder (it has no run.json); give the folder that `townlet train` printed."
            )
        remedy = "restore the file, or start the run again"
        found = read_sealed(self.path / name, model, remedy=remedy, error=CheckpointError)
        return found.model_dump(mode="json", exclude_unset=True) if model is RunSummary else found.model_dump(mode="json")


def pointed(root: Path, pointer: str) -> Path | None:
    """The checkpoint that `latest` or `best` names, if there is one."""
    if not (root / pointer).is_file():
        return None
    return resolve(root / pointer)


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
            f"The run needs about {needed / 1e6:,.0f} MB in {path}, {free / 1e6:,.0f} MB are free; "
            "free some space, lower training.keep_checkpoints or choose another --run-dir."
        )


def find_runs(folder: Path) -> list[RunFolder]:
    """The runs directly under a folder, by name."""
    if not folder.is_dir():
        return []
    return [run for path in sorted(folder.iterdir()) if (run := RunFolder(path)).exists]


def config_differences(configs: Sequence[Mapping[str, object]]) -> dict[str, list[Any]]:
    """Dotted keys in which configs differ, with the value of each."""
    flat = [_flatten(config) for config in configs]
    keys = sorted(set().union(*flat)) if flat else []
    found = {key: [one.get(key) for one in flat] for key in keys}
    return {key: values for key, values in found.items() if any(value != values[0] for value in values)}


def _flatten(config: Mapping[str, object], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
