"""kill -9 at any moment: the run goes on from its last checkpoint to exactly the end it would have had."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from townlet import files
from townlet.config import SimulationConfig
from townlet.policy import checkpoint
from townlet.policy.checkpoint import load_checkpoint
from townlet.policy.runner import TrainingHarness
from townlet.policy.training import collect, run_folder
from townlet.policy.training.contexts import RunOptions
from townlet.telemetry import ndjson
from townlet.telemetry.ndjson import read_records
from townlet.telemetry.schema import comparable

learner = pytest.importorskip("townlet.policy.training.learner", exc_type=ImportError)
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

# moment -> (owner of the function, its name): the process is killed as it is about to call it for the n-th time
MOMENTS: dict[str, tuple[Any, str]] = {
    "rollout": (collect.Collector, "before_step"),
    "update": (learner.PPOLearner, "_step"),
    "checkpoint file": (files, "write_bytes"),
    "checkpoint folder": (files, "publish_folder"),
    "file of the run": (files, "write_json"),
    "pointer": (checkpoint, "mark"),
    "log": (ndjson.AppendLog, "write"),
    "rotation": (ndjson.TelemetryWriter, "_rotate"),
    "summary": (run_folder.RunFolder, "write_summary"),
}
QUICK = [("rollout", 15), ("update", 9), ("checkpoint file", 9), ("checkpoint folder", 2), ("log", 4), ("rotation", 2)]
ALL = [
    *(("rollout", n) for n in (1, 8, 26, 34)),
    *(("update", n) for n in (1, 7, 14, 23)),
    *(("checkpoint file", n) for n in (5, 8, 11, 14)),
    *(("checkpoint folder", n) for n in (1, 3)),
    *(("pointer", n) for n in (1, 2, 3)),
    *(("log", n) for n in (1, 3, 6)),
    *(("rotation", n) for n in (1, 2)),
    *(("file of the run", n) for n in (1, 3)),
    ("summary", 1),
]
SETTINGS = ("telemetry.max_entries=2", "training.checkpoint_every=2", "training.horizon=5")


def run_until_killed(config: SimulationConfig, options: RunOptions, moment: str, call: int) -> int:
    """Train in a child process that kills itself; returns the signal that ended it, 0 when it came to its end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads: ours are idle
        child = os.fork()
    if child == 0:
        owner, name = MOMENTS[moment]
        real: Callable[..., Any] = vars(owner)[name]
        count = 0

        def deadly(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        setattr(owner, name, deadly)
        try:
            TrainingHarness(config).run("rollout", options)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def the_same(whole: Path, parts: Path) -> None:
    left, right = (load_checkpoint(run / "checkpoints" / "latest") for run in (whole, parts))
    for part in ("weights", "optimizer", "world"):
        a, b = vars(left)[part], vars(right)[part]
        assert a.keys() == b.keys()
        assert [name for name in a if a[name].tobytes() != b[name].tobytes()] == []
    assert left.state["standing"] == right.state["standing"]
    logs = [[comparable(record) for record in read_records(run / "ppo.ndjson")] for run in (whole, parts)]
    assert logs[0] == logs[1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[SimulationConfig, Path]:
    from townlet.config import load_config

    small = ("training.towns=2", "training.eval_every=0", "policy.network.map_encoder=none", "policy.network.feature_size=16")
    config = load_config("town_day", (*small, *SETTINGS, "ppo.num_epochs=2", "ppo.num_mini_batches=2"))
    run = tmp_path_factory.mktemp("whole") / "run"
    TrainingHarness(config).run("rollout", RunOptions(epochs=6, run_dir=run))
    return config, run


@pytest.mark.parametrize(("moment", "call"), QUICK)
def test_a_killed_run_goes_on_bit_for_bit(whole: Any, tmp_path: Path, moment: str, call: int) -> None:
    _kill_and_resume(*whole, tmp_path / "run", moment, call)


@pytest.mark.slow
@pytest.mark.parametrize(("moment", "call"), ALL)
def test_a_run_killed_at_many_moments_goes_on_bit_for_bit(whole: Any, tmp_path: Path, moment: str, call: int) -> None:
    _kill_and_resume(*whole, tmp_path / "run", moment, call)


def _kill_and_resume(config: SimulationConfig, whole: Path, run: Path, moment: str, call: int) -> None:
    assert run_until_killed(config, RunOptions(epochs=6, run_dir=run), moment, call) == signal.SIGKILL
    begun = (run / "run.json").exists()  # killed earlier it has not begun, and is started once more
    TrainingHarness(config).run("rollout", RunOptions(epochs=6, run_dir=run, resume=begun))
    the_same(whole, run)
