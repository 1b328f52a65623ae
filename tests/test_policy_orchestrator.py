"""The façade: strategies by name, fakes, checks before writing, results as DTOs, size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest

from places import ROOT
from townlet.config import PPOConfig, SimulationConfig, load_config
from townlet.dto.policy import TrainingResult
from townlet.errors import TownletError, UsageError
from townlet.policy import runtime
from townlet.policy.replay import ReplayDatasetConfig
from townlet.policy.runner import PolicyRuntime, PolicyTrainingOrchestrator, TrainingHarness
from townlet.policy.training.contexts import RunOptions, TrainingContext
from townlet.policy.training.services import TrainingServices
from townlet.policy.training.strategies import STRATEGY_OF_MODE

PACKAGE = ROOT / "src" / "townlet" / "policy" / "training"


@pytest.fixture
def config() -> SimulationConfig:
    return load_config("town_day", ["training.towns=2"])


class Recording:
    name: ClassVar[str] = "ppo"
    requires_torch: ClassVar[bool] = False

    def __init__(self) -> None:
        self.seen: list[TrainingContext] = []
        self.refuses = False

    def prepare(self, context: TrainingContext) -> None:
        self.seen.append(context)
        if self.refuses:
            raise UsageError("these inputs are wrong")

    def run(self, context: TrainingContext) -> TrainingResult:
        return TrainingResult(strategy=self.name, duration_sec=0.0, run_dir=str(context.run.path) if context.run else None)


def test_founding_names_lead_to_the_orchestrator(config: SimulationConfig) -> None:
    assert TrainingHarness is PolicyTrainingOrchestrator
    assert runtime.PolicyRuntime is PolicyRuntime
    services = TrainingServices.of(config)
    assert TrainingHarness(config, services=services).services is services
    assert PPOConfig().clip_param == 0.2


@pytest.mark.parametrize("mode", sorted(STRATEGY_OF_MODE))
def test_every_mode_reaches_the_strategy_it_names(config: SimulationConfig, mode: str, tmp_path: Path) -> None:
    fake = Recording()
    strategies = {"offline" if mode == "replay" else STRATEGY_OF_MODE[mode]: lambda: fake}
    dataset = TrainingHarness(config).capture_rollout(20).build_dataset()
    result = TrainingHarness(config, strategies=strategies).run(mode, RunOptions(run_dir=tmp_path / "run", dataset=dataset))
    assert fake.seen[0].mode == mode
    assert result.run_dir == str(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["strategy"] == "ppo"
    card = json.loads((tmp_path / "run" / "run.json").read_text())
    assert card["mode"] == mode
    assert (tmp_path / "run" / "config.json").is_file()
    assert "numpy" in json.loads((tmp_path / "run" / "environment.json").read_text())["versions"]


def test_the_calls_of_the_founding_documents_work_as_they_are_typed(
    config: SimulationConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fake, other = Recording(), Recording()
    harness = TrainingHarness(config, strategies={"ppo": lambda: fake, "bc": lambda: fake, "anneal": lambda: other})
    rollout = harness.capture_rollout(ticks=20, output_dir="cap")
    assert len(rollout) == len(list(Path("cap").glob("*.npz"))) == 8
    data = ReplayDatasetConfig.from_capture_dir("cap")
    assert rollout.build_dataset().baseline_metrics() == harness.build_replay_dataloader(data).baseline_metrics()
    assert harness.run_replay_dataset(data).samples == 8
    for call in (lambda: harness.run_ppo(data, epochs=3), lambda: harness.run_bc_training("cap", epochs=3), harness.run_anneal):
        with pytest.raises(TypeError, match="gave a TrainingResult"):  # the recording is no real training
            call()
    assert [(context.mode, context.epochs) for context in fake.seen] == [("replay", 3), ("bc", 3)]
    assert other.seen[0].run is not None
    assert other.seen[0].run.path == Path("runs/town_day_anneal_001")


def test_nothing_is_written_when_the_inputs_are_wrong(config: SimulationConfig, tmp_path: Path) -> None:
    fake = Recording()
    fake.refuses = True
    with pytest.raises(UsageError, match="these inputs are wrong"):
        TrainingHarness(config, strategies={"ppo": lambda: fake}).run("rollout", RunOptions(run_dir=tmp_path / "run"))
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_checks_and_writes_nothing(config: SimulationConfig, tmp_path: Path) -> None:
    fake = Recording()
    options = RunOptions(run_dir=tmp_path / "run", epochs=7, dry_run=True)
    result = TrainingHarness(config, strategies={"ppo": lambda: fake}).run("rollout", options)
    assert result.model_dump()["epochs"] == 7
    assert list(tmp_path.iterdir()) == []


def test_a_strategy_of_ones_own_is_listed_and_runs_by_its_name(config: SimulationConfig, tmp_path: Path) -> None:
    class Own(Recording):
        name: ClassVar[str] = "evolution"

    fake = Own()
    harness = TrainingHarness(config, strategies={"evolution": lambda: fake})
    assert "evolution" in harness.available_strategies()
    result = harness.run("evolution", RunOptions(run_dir=tmp_path / "run", epochs=4))
    assert (result.strategy, fake.seen[0].mode, fake.seen[0].epochs) == ("evolution", "evolution", 4)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["mode"] == "evolution"
    with pytest.raises(UsageError, match="must be one of replay, rollout, mixed, bc, anneal, evolution"):
        harness.run("revolution")


def test_every_strategy_that_is_listed_runs_by_its_name(config: SimulationConfig) -> None:
    dataset = TrainingHarness(config).capture_rollout(20).build_dataset()
    for name in TrainingHarness(config).available_strategies():
        fake = Recording()
        TrainingHarness(config, strategies={name: lambda fake=fake: fake}).run(name, RunOptions(dataset=dataset))
        assert fake.seen[0].mode == {"ppo": "rollout", "offline": "replay"}.get(name, name)


@pytest.mark.parametrize(("algorithm", "strategy"), [("ppo", "ppo"), ("awr", "offline"), ("cql", "offline")])
def test_stored_data_are_learned_from_as_the_algorithm_says(config: SimulationConfig, algorithm: str, strategy: str) -> None:
    training = config.training.model_copy(update={"algorithm": algorithm})
    fake, dataset = Recording(), TrainingHarness(config).capture_rollout(20).build_dataset()
    harness = TrainingHarness(config.model_copy(update={"training": training}), strategies={strategy: lambda: fake})
    harness.run("replay", RunOptions(dataset=dataset))
    assert [(seen.mode, seen.config.training.algorithm) for seen in fake.seen] == [("replay", algorithm)]


def test_an_unknown_mode_and_a_second_writer_are_refused(config: SimulationConfig, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be one of replay, rollout"):
        TrainingHarness(config).run("walk")
    outer = TrainingHarness(config, strategies={"ppo": Recording})

    class Nested(Recording):
        def run(self, context: TrainingContext) -> TrainingResult:
            outer.run("rollout", RunOptions(run_dir=tmp_path / "run", resume=True))
            return super().run(context)

    with pytest.raises(TownletError, match="in use by process"):
        TrainingHarness(config, strategies={"ppo": Nested}).run("rollout", RunOptions(run_dir=tmp_path / "run"))


def test_a_dataset_is_iterated_without_training(config: SimulationConfig) -> None:
    harness = TrainingHarness(config)
    data = harness.capture_rollout(40).build_dataset(batch_size=3)
    seen: list[int] = []
    summary = harness.run_replay_dataset(data, lambda batch: seen.append(batch.samples))
    assert seen == [3, 3, 2]
    assert summary.samples == 8
    assert summary.transitions == data.transitions
    assert summary.baseline["sample_count"] == 8
    assert len(list(harness.build_replay_dataloader(data))) == 3


def test_modules_stay_small() -> None:
    assert len((PACKAGE / "orchestrator.py").read_text().splitlines()) < 150
    for path in (PACKAGE / "strategies").glob("*.py"):
        assert len(path.read_text().splitlines()) < 200, path.name
