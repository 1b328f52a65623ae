"""The façade of training: selects a strategy, hands out services, opens the run folder. Importable without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from townlet.config.models import SimulationConfig
from townlet.dto.policy import AnnealSummary, BCTrainingResult, PPOTrainingResult, ReplayBatchSummary, ReplaySummary
from townlet.errors import UsageError
from townlet.policy.capture import seed_residents
from townlet.policy.replay import ReplayDataset, ReplayDatasetConfig
from townlet.policy.training.contexts import NoProgress, Progress, RunOptions, TrainingContext, TrainingResult
from townlet.policy.training.open_run import dry_run, opened_run, planned_epochs
from townlet.policy.training.run_folder import next_free
from townlet.policy.training.services import CapturedRollout, TrainingServices
from townlet.policy.training.strategies import STRATEGIES, STRATEGY_OF_MODE, available, strategy_of
from townlet.policy.training.strategies.base import TrainingStrategy

REPLAY_MODES = ("replay", "mixed")
Data = ReplayDatasetConfig | ReplayDataset
Result = TypeVar("Result", bound=TrainingResult)


class PolicyTrainingOrchestrator:
    def __init__(
        self,
        config: SimulationConfig,
        *,
        services: TrainingServices | None = None,
        strategies: Mapping[str, Callable[[], TrainingStrategy]] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.config = seed_residents(config) if config.training.rollout_auto_seed_agents else config
        self.services = services or TrainingServices.of(self.config)
        self.strategies = dict(STRATEGIES) | dict(strategies or {})
        self.progress = progress or NoProgress()

    def available_strategies(self) -> tuple[str, ...]:
        """Names of the strategies that can run here."""
        return available(self.strategies)

    def run(self, mode: str | None = None, options: RunOptions | None = None) -> TrainingResult:
        """Train in `mode` (a strategy by its name), by default that of the config. All inputs are checked first."""
        mode, algorithm = mode or self.config.training.source, self.config.training.algorithm
        if mode == "ppo":
            mode, algorithm = self._ppo_mode(), "ppo"
        return self._run("replay" if mode == "offline" else mode, options or RunOptions(), algorithm)

    def _run(self, mode: str, options: RunOptions, algorithm: str) -> TrainingResult:
        asked = {"algorithm": algorithm} if mode in REPLAY_MODES else {}  # elsewhere it is never looked at
        config = self.config.model_copy(update={"training": self.config.training.model_copy(update=asked)})
        modes = {name: strategy_of(name, algorithm) for name in STRATEGY_OF_MODE}
        modes |= {name: name for name in self.strategies if name not in STRATEGIES}
        if mode not in modes:
            raise UsageError(f"the mode is {mode!r}; it must be one of {', '.join(modes)}")
        dataset = options.dataset
        if dataset is None and mode in REPLAY_MODES:
            dataset = self.services.replay.dataset_config()
        context = TrainingContext(
            config=config,
            services=self.services,
            strategies=self.strategies,
            mode=mode,
            epochs=planned_epochs(self.config.training, mode, options),
            dataset=dataset,
            log_batches=self.config.telemetry.batches,
            progress=self.progress,
        )
        strategy = context.strategy(modes[mode])
        strategy.prepare(context)
        if options.dry_run:
            return dry_run(context, options, strategy.name)
        if self.config.training.time_limit is not None:
            context.deadline = perf_counter() + 60.0 * self.config.training.time_limit
        with opened_run(context, options):
            result = strategy.run(context)
            if context.run is not None:
                context.run.write_summary(result.model_dump(mode="json"))
        return result

    def run_bc_training(
        self, manifest: Path | str | None = None, options: RunOptions | None = None, *, epochs: int | None = None
    ) -> BCTrainingResult:
        """Behaviour cloning on a manifest (by default `training.bc.manifest`), or on fresh scripted demonstrations."""
        options = _with(options, epochs=epochs)
        manifest = manifest or self.config.training.bc.manifest
        if manifest is not None and options.dataset is None:
            options = replace(options, dataset=self.services.replay.dataset_config(Path(manifest)))
        return _as(BCTrainingResult, self.run("bc", options))

    def run_ppo(
        self,
        dataset: Data | None = None,
        options: RunOptions | None = None,
        *,
        mode: str | None = None,
        epochs: int | None = None,
    ) -> PPOTrainingResult:
        """PPO on a dataset (mode `replay`), or in the given mode."""
        mode = mode or (self._ppo_mode() if dataset is None else "replay")
        return _as(PPOTrainingResult, self._run(mode, _with(options, dataset=dataset, epochs=epochs), "ppo"))

    def run_anneal(self, options: RunOptions | None = None) -> AnnealSummary:
        """The schedule of the config; without a run folder in the next free one under runs/, for it keeps its stages."""
        if options is None or options.run_dir is None:
            options = _with(options, run_dir=next_free(self.config.config_id, "anneal"))
        return _as(AnnealSummary, self.run("anneal", options))

    def capture_rollout(
        self, ticks: int | None = None, *, output_dir: Path | str | None = None, auto_seed_agents: bool = False
    ) -> CapturedRollout:
        """Frames of the config's town under its scripted residents, also as a capture folder; `build_dataset` feeds `run_ppo`."""
        return self.services.capture.capture(ticks, output_dir=output_dir, auto_seed_agents=auto_seed_agents)

    def build_replay_dataloader(self, dataset: Data | None = None) -> ReplayDataset:
        return self.services.replay.build(dataset)

    def run_replay_dataset(
        self, dataset: Data | None = None, on_batch: Callable[[ReplayBatchSummary], None] | None = None
    ) -> ReplaySummary:
        """Iterate over a dataset once, without training, and say what is in it."""
        return self.services.replay.summary(self.build_replay_dataloader(dataset), on_batch)

    def _ppo_mode(self) -> str:
        source = self.config.training.source
        return source if STRATEGY_OF_MODE[source] == "ppo" else "rollout"


def _with(options: RunOptions | None, **given: Any) -> RunOptions:
    return replace(options or RunOptions(), **{name: value for name, value in given.items() if value is not None})


def _as(kind: type[Result], result: TrainingResult) -> Result:
    if not isinstance(result, kind):
        raise TypeError(f"the strategy {result.strategy} gave a {type(result).__name__}, expected a {kind.__name__}")
    return result
