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
from typing import Any

from pydantic import ValidationError

from townlet import files
from townlet.config.models import SimulationConfig
from townlet.errors import CheckpointError, StorageError, UsageError
from townlet.optional import versions
from townlet.policy.checkpoint import (
    BEST,
    LATEST,
    RUN_CHECKPOINTS,
    Checkpoint,
    mark,
    names,
    publish_checkpoint,
    resolve,
    weights_hash,
)

RECORD_BYTES = 3_000  # a telemetry record, generously
SMALL_FILES = 200_000  # config, environment, summary, plots


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
        files.write_json(self.path / "config.json", config)
        files.write_json(self.path / "environment.json", about)
        files.write_json(self.path / "run.json", card)

    @property
    def exists(self) -> bool:
        return (self.path / "run.json").is_file()

    def card(self) -> dict[str, Any]:
        return self._read("run.json")

    def config(self) -> dict[str, Any]:
        return self._read("config.json")

    def resolved_config(self) -> SimulationConfig:
        """The config of the run, checked as every config is."""
        self.card()
        data = files.read_bytes(self.path / "config.json", limit=1 << 26, error=CheckpointError)
        try:
            return SimulationConfig.model_validate_json(data)
        except ValidationError as error:
            where = ".".join(str(part) for part in error.errors()[0]["loc"])
            raise CheckpointError(
                f"{self.path / 'config.json'} is not a config of this version ({where}: {error.errors()[0]['msg']}); "
                "use the version of Townlet that wrote it."
            ) from error

    def environment(self) -> dict[str, Any]:
        return self._read("environment.json")

    def summary(self) -> dict[str, Any] | None:
        return self._read("summary.json") if (self.path / "summary.json").is_file() else None

    def write_summary(self, summary: Mapping[str, object]) -> None:
        files.write_json(self.path / "summary.json", summary)

    def latest(self) -> Path | None:
        """The checkpoint a resume starts from; None before the first one."""
        return pointed(self.checkpoints, LATEST)

    def best(self) -> Path | None:
        return pointed(self.checkpoints, BEST)

    def save(self, number: int, checkpoint: Checkpoint, *, best: bool = False) -> Path:
        """Checkpoint `number`, whole or not at all; then `latest` (and `best`) are moved, then the oldest are dropped."""
        folder = self.checkpoints / f"{number:06d}"
        if folder.name not in names(self.checkpoints):
            return publish_checkpoint(self.checkpoints, folder.name, checkpoint, keep=self.keep, best=best)
        # Saved before: for another reason, or by a run that was killed before it moved `latest` and has come here again.
        found = files.read_json(folder / "state.json", limit=1 << 26, error=CheckpointError)
        if found.get("weights_hash") != weights_hash(checkpoint.weights):
            return publish_checkpoint(self.checkpoints, folder.name, checkpoint, keep=self.keep, best=best, overwrite=True)
        if best:
            mark(self.checkpoints, BEST, folder.name)
        mark(self.checkpoints, LATEST, folder.name)
        return folder

    def child(self, name: str) -> RunFolder:
        return RunFolder(files.safe_join(self.path, f"stages/{name}", error=CheckpointError), self.keep)

    def _read(self, name: str) -> dict[str, Any]:
        if not self.exists:
            raise UsageError(f"{self.path} is no run folder (it has no run.json); give the folder that `townlet train` printed.")
        found = files.read_json(self.path / name, limit=1 << 26, error=CheckpointError)
        if not isinstance(found, dict):
            raise CheckpointError(f"{self.path / name} is not a JSON object; the run folder is damaged, start the run again.")
        return found


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
