"""Services that strategies use: towns and captures, replay datasets, scores, promotion. None of them needs torch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from townlet.config.loader import load_config
from townlet.config.models import SimulationConfig
from townlet.dto.evaluation import Measure
from townlet.dto.policy import MeasureInterval, ReplayBatchSummary, ReplaySummary, RolloutFrame
from townlet.dto.promotion import PromotionDecision
from townlet.envs.vector import VectorTown
from townlet.errors import ReplayError, UsageError
from townlet.evaluation.compare import save_scorecard
from townlet.evaluation.scorecard import PolicySource, run_case
from townlet.evaluation.suites import Case, draw_seed, suite_cases
from townlet.policy.capture import CaptureOptions, capture, run_towns, seed_residents
from townlet.policy.replay import ReplayDataset, ReplayDatasetConfig, ReplaySample
from townlet.policy.workers import simulator_threads
from townlet.promotion.releases import Releases
from townlet.promotion.window import measure_window
from townlet.scenarios.random_town import varied_towns

log = logging.getLogger("townlet.training")


@dataclass
class RolloutCaptureService:
    """Towns of the config: batches to learn in, and captures of scripted residents."""

    config: SimulationConfig

    def layouts(self, config: SimulationConfig | None = None) -> list[SimulationConfig]:
        """The config's own town, then those of `training.scenarios` and `training.drawn_towns`, under its rules."""
        config = config or self.config
        training = config.training
        others = [*map(load_config, training.scenarios), *varied_towns(training.drawn_towns)]
        length = {"episode_ticks": config.scenario.episode_ticks}
        lent = (
            {"config_id": other.config_id, "scenario": other.scenario.model_copy(update=length), "jobs": other.jobs}
            for other in others
        )
        return [_lasting(one) for one in (config, *(config.model_copy(update=parts) for parts in lent))]

    def towns(
        self,
        num_towns: int,
        *,
        index: int = 0,
        first_town: int = 0,
        stagger: bool = False,
        config: SimulationConfig | None = None,
    ) -> VectorTown:
        """A batch of towns for training, on the index-th training seed, started as `training.start` says."""
        config = config or self.config
        start = config.training.start
        clock = None if start == "scenario" else start if isinstance(start, str) else f"{start // 60:02d}:{start % 60:02d}"
        seed = draw_seed("training", config.seed * 1_000 + index)
        training = config.training
        return VectorTown(
            self.layouts(config),
            num_towns,
            seed=seed,
            start=clock,
            stagger=stagger,
            wallets=training.wallets,
            conflict_weights=training.conflict_weights,
            threads=simulator_threads(training),
            first_town=first_town,
        )

    def capture(
        self,
        ticks: int | None = None,
        *,
        output_dir: Path | str | None = None,
        auto_seed_agents: bool = False,
        policy: str = "schedule",
        epsilon: float | None = None,
    ) -> CapturedRollout:
        """One town over `ticks`, in memory or also as a capture folder; empty, with a warning, when nobody takes a decision."""
        config = seed_residents(self.config) if auto_seed_agents else self.config
        interval = config.policy.interval
        ticks = ticks or config.training.rollout_ticks or config.training.horizon * interval
        if not config.scenario.residents or ticks < interval:
            why = f"{ticks} ticks are less than one decision ({interval})" if config.scenario.residents else "it has no residents"
            log.warning(
                "capture_rollout: nothing was captured in %s: %s; place residents, use --rollout-auto-seed-agents, or ask for "
                "more ticks",
                config.config_id,
                why,
            )
            return CapturedRollout((), 0)
        options = CaptureOptions(ticks=ticks, seed=draw_seed("training", config.seed), policy=policy, epsilon=epsilon)
        if output_dir is not None:
            capture([config], Path(output_dir), options)
            return CapturedRollout(tuple(ReplayDataset(ReplayDatasetConfig.from_capture_dir(output_dir)).samples()), ticks)
        return CapturedRollout(tuple(run_towns(config, options, ticks, first=0, towns=1).samples), ticks)


def _lasting(config: SimulationConfig) -> SimulationConfig:
    """The config with episodes of `training.episode_days`."""
    if config.training.episode_days is None:
        return config
    return config.lasting(config.training.episode_days * config.world.ticks_per_day)


@dataclass(frozen=True)
class CapturedRollout:
    """Samples of a capture in memory, one per resident and life."""

    samples: tuple[ReplaySample, ...]
    ticks: int

    def __len__(self) -> int:
        return len(self.samples)

    def build_dataset(self, **options: Any) -> ReplayDataset:
        """The interface of a dataset read from files, without files."""
        return ReplayDataset.of(self.samples, **options)

    def frames(self) -> Iterator[RolloutFrame]:
        """Every decision as a typed frame, resident after resident."""
        for sample in self.samples:
            meta = sample.meta
            for t in range(sample.steps):
                yield RolloutFrame(
                    agent_id=meta.agent_id,
                    town=meta.capture.town,
                    life=meta.capture.life,
                    tick=meta.first_tick + t * meta.decision_interval,
                    features=sample.features[t],
                    map=None if sample.maps is None else sample.maps[t],
                    action_mask=sample.masks[t] if sample.masks is not None else np.ones(meta.action_dim, bool),
                    action=int(sample.actions[t]),
                    log_prob=float(sample.log_probs[t]),
                    value=float(sample.values[t]),
                    reward=float(sample.rewards[t]),
                    terminated=bool(sample.terminated[t]),
                    truncated=bool(sample.truncated[t]),
                    expert_action=None if sample.expert is None else int(sample.expert[t]),
                )


@dataclass
class ReplayDatasetService:
    """Which replay data a run reads, opened and summarised."""

    config: SimulationConfig

    def resolve(self, source: Path | str | None = None) -> Path:
        """The manifest or capture folder to read: the one given, else `training.replay_manifest`, else `training.capture_dir`."""
        training = self.config.training
        found = source or training.replay_manifest or training.capture_dir
        if found is None:
            raise UsageError(
                "there is no replay data: give --replay-manifest FILE or --capture-dir FOLDER, or set training.replay_manifest"
            )
        path = Path(found)
        if not path.exists():
            raise ReplayError(f"{path} does not exist; expected a manifest or a capture folder, made by `townlet capture`")
        return path

    def dataset_config(self, source: Path | str | None = None) -> ReplayDatasetConfig:
        """The data to read, batched as `training.replay` says."""
        path = self.resolve(source)
        training = self.config.training
        options = training.replay.model_dump() | {"normalize_conflict_features": training.normalize_conflict_features}
        if options["seed"] is None:
            options["seed"] = self.config.seed
        if path.is_dir():
            return ReplayDatasetConfig.from_capture_dir(path, **options)
        return ReplayDatasetConfig.from_manifest(path, **options)

    def build(self, dataset: ReplayDatasetConfig | ReplayDataset | None = None) -> ReplayDataset:
        """Open a dataset: all its metadata are checked, and its arrays too unless they are streamed."""
        if isinstance(dataset, ReplayDataset):
            return dataset
        return ReplayDataset(dataset or self.dataset_config())

    def summary(self, data: ReplayDataset, on_batch: Callable[[ReplayBatchSummary], None] | None = None) -> ReplaySummary:
        """What one pass over the data finds, batch by batch."""
        started, batches = perf_counter(), []
        for number, batch in enumerate(data):
            size = {"samples": len(batch.metadata), "transitions": batch.transitions}
            batches.append(ReplayBatchSummary(batch=number, **size, **batch.conflict_stats))
            if on_batch is not None:
                on_batch(batches[-1])
        return ReplaySummary(
            duration_sec=perf_counter() - started,
            dataset=data.config.label,
            samples=sum(batch.samples for batch in batches),
            transitions=sum(batch.transitions for batch in batches),
            batches=tuple(batches),
            baseline=data.baseline_metrics(),
        )


@dataclass
class EvaluationService:
    """Scores of a policy in the config's own town on the validation seed, with the committed reward weights."""

    config: SimulationConfig
    _towns: VectorTown | None = field(default=None, repr=False)

    def score(self, source: PolicySource, stop: Callable[[], bool] = lambda: False) -> dict[str, Measure]:
        training = self.config.training
        towns, days = training.eval_towns, training.eval_days
        case = Case("training", self.config.config_id, towns=towns, days=days, config=self.config)
        if self._towns is None:
            seed = draw_seed("validation", 0, self.config.evaluation)
            self._towns = VectorTown(case.town(), case.towns, seed=seed, threads=simulator_threads(training))
        return run_case(self._towns, "policy", source, case, stop=stop).measures


def intervals(measures: dict[str, Measure]) -> dict[str, MeasureInterval]:
    """The measures that exist, as value and interval."""
    return {
        name: MeasureInterval(value=measure.mean, low=measure.low, high=measure.high)
        for name, measure in measures.items()
        if measure.mean is not None
    }


@dataclass
class PromotionServiceAdapter:
    """Puts a trained checkpoint before the promotion gates: measured beside the champion, judged, written into the ledger."""

    config: SimulationConfig

    @property
    def releases(self) -> Releases:
        return Releases.of(self.config)

    def consider(self, candidate: Path, scorecard: Path) -> PromotionDecision:
        """One window: the scorecard of candidate and champion on that window's seed is written, then judged. A run that is
        resumed after that has no second one."""
        releases = self.releases
        if (judged := releases.judged(scorecard)) is not None:
            return judged
        rules, suite = self.config.evaluation, self.config.promotion.suite
        save_scorecard(measure_window(releases, candidate, suite_cases(suite, rules), rules, suite=suite), scorecard)
        return releases.evaluate(candidate, scorecard)


@dataclass
class TrainingServices:
    capture: RolloutCaptureService
    replay: ReplayDatasetService
    evaluation: EvaluationService
    promotion: PromotionServiceAdapter

    @classmethod
    def of(cls, config: SimulationConfig) -> TrainingServices:
        return cls(
            RolloutCaptureService(config),
            ReplayDatasetService(config),
            EvaluationService(config),
            PromotionServiceAdapter(config),
        )
