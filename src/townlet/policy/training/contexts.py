"""What a strategy is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from townlet.config.models import SimulationConfig
from townlet.dto.policy import EpochFigures
from townlet.dto.policy import TrainingResult as TrainingResult
from townlet.errors import whole_number
from townlet.policy.replay import ReplayDataset, ReplayDatasetConfig
from townlet.policy.training.run_folder import RunFolder
from townlet.policy.training.services import TrainingServices
from townlet.signals import StopFlag
from townlet.telemetry.ndjson import TelemetryWriter
from townlet.types import Record

if TYPE_CHECKING:
    from townlet.policy.training.strategies.base import TrainingStrategy


@runtime_checkable
class Progress(Protocol):
    """Where a run says how it goes; the command line draws it on stderr. `advance` is given all that is known of an epoch."""

    def begin(self, what: str, total: int, done: int = 0) -> None: ...
    def advance(self, figures: Record) -> None: ...
    def say(self, sentence: str) -> None: ...


class NoProgress:
    """Progress that nobody watches."""

    def begin(self, what: str, total: int, done: int = 0) -> None:
        pass

    def advance(self, figures: Record) -> None:
        pass

    def say(self, sentence: str) -> None:
        pass


@dataclass(frozen=True)
class RunOptions:
    """What a run is asked for beside its config."""

    epochs: int | None = None  # default: training.epochs
    dataset: ReplayDatasetConfig | ReplayDataset | None = None
    run_dir: Path | None = None  # None: nothing is kept but the log
    resume: bool = False
    log_path: Path | None = None  # default: telemetry.file in the run folder
    start_from: Path | None = None  # a checkpoint to begin with
    allow_inexact: bool = False  # resume with other versions or threads
    command: tuple[str, ...] = ()
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.epochs is not None:
            whole_number("epochs", self.epochs, 1)


@dataclass(frozen=True)
class StagePlan:
    """The place of a strategy in a longer schedule; the default is a run of its own."""

    cycle: int = -1  # entry of the anneal schedule
    bc_weight: tuple[float, float] = (0.0, 0.0)  # of the auxiliary loss, at the first and after the last epoch
    scripted_share: float = 0.0
    start_from: Path | None = None  # checkpoint whose network, optimiser and towns go on
    notes: Mapping[str, float | bool | str | None] = field(default_factory=dict)  # anneal_* fields of the records
    good_epochs: tuple[EpochFigures, ...] = ()  # the last ones of the last good PPO stage
    steps: int = 0  # decisions trained on before this stage
    collections: int = -1  # number of the last collection before this stage
    log_position: Mapping[str, int | str] | None = None  # of the telemetry log when the stage begins

    def bc_weight_at(self, progress: float) -> float:
        """The weight moves in a straight line; progress is 0 at the first epoch and 1 after the last."""
        first, last = self.bc_weight
        return first + (last - first) * progress


@dataclass
class TrainingContext:
    config: SimulationConfig
    services: TrainingServices
    strategies: Mapping[str, Callable[[], TrainingStrategy]] = field(default_factory=dict)
    mode: str = "rollout"
    epochs: int = 1
    dataset: ReplayDatasetConfig | ReplayDataset | None = None
    dataset_hash: str | None = None  # of the data given, filled in by `prepare`; None: the run learns in its own towns only
    dataset_source: Path | None = None  # where those data are, filled in with it
    started_from: str | None = None  # hash of the weights of `RunOptions.start_from`
    disk_needed: int = 0  # bytes the run folder will hold at most, filled in by `prepare`
    run: RunFolder | None = None
    run_id: str = ""
    telemetry: TelemetryWriter = field(default_factory=lambda: TelemetryWriter(None))
    log_batches: bool = False
    plan: StagePlan = field(default_factory=StagePlan)
    progress: Progress = field(default_factory=NoProgress)
    stop: StopFlag = field(default_factory=StopFlag)
    deadline: float = inf  # of perf_counter: when the run ends by itself

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def seconds_left(self) -> float:
        return self.deadline - perf_counter()

    def note_data(self, digest: str | None, source: Path | None) -> None:
        """Write down which data the run is given, if any."""
        if digest is not None:
            self.dataset_hash, self.dataset_source = digest, source

    def strategy(self, name: str) -> TrainingStrategy:
        return self.strategies[name]()

    def stage(self, name: str, *, mode: str, epochs: int, plan: StagePlan, share: float = 1.0) -> TrainingContext:
        """The context of one entry of a schedule: its own folder inside the run's, the same log, the same stop flag, and a share
        of the time that is left."""
        run = None if self.run is None else self.run.child(name)
        deadline = self.deadline if share == 1.0 else perf_counter() + share * self.seconds_left
        return replace(self, mode=mode, epochs=epochs, plan=plan, run=run, deadline=deadline)
