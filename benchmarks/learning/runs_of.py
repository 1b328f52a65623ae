"""A training run of a benchmark, made once, and how its policy does in held-out towns."""

from __future__ import annotations

from pathlib import Path

from townlet.config.models import SimulationConfig, config_hash
from townlet.dto.evaluation import PolicyCard
from townlet.envs.vector import VectorTown
from townlet.evaluation.scorecard import run_case
from townlet.evaluation.suites import Case, draw_seed
from townlet.files import remove
from townlet.policy.training.contexts import RunOptions
from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator
from townlet.policy.training.run_folder import RunFolder

ONE_THREAD = ("training.threads=1", "training.workers=1", "training.engine=local", "training.eval_every=0")


def trained(folder: Path, config: SimulationConfig, mode: str | None = None, start_from: Path | None = None) -> str:
    """The last checkpoint of the run in this folder, which is made where it is not finished or is of another config."""
    run = RunFolder(folder)
    if not run.exists or run.summary() is None or run.card().config_hash != config_hash(config):
        if run.path.exists():
            remove(run.path)
        PolicyTrainingOrchestrator(config).run(mode, RunOptions(run_dir=folder, start_from=start_from))
    last = run.latest()
    assert last is not None
    return str(last)


def measured(config: SimulationConfig, policy: str, *, towns: int, days: int, neighbours: str | None = None) -> PolicyCard:
    """A policy in the towns of a config, on the seed of scorecards and with their weights; in every other resident, beside
    neighbours."""
    among = {} if neighbours is None else {"learners": "half", "neighbours": neighbours}
    case = Case(config.config_id, config.config_id, towns=towns, days=days, config=config, **among)
    vec = VectorTown(case.town(), towns, seed=draw_seed("evaluation", 0, config.evaluation))
    return run_case(vec, policy, policy, case)
