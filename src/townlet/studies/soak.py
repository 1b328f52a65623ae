"""Alternating capture → PPO cycles as one training run with one log, which is then validated, watched and summarised."""

from __future__ import annotations

import gc
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path

from townlet.config.models import SimulationConfig, config_hash
from townlet.dto.studies import SoakCycle, SoakResult
from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.evaluation.scorecard import run_case
from townlet.evaluation.suites import Case, draw_seed
from townlet.files import FolderLock, partial_folder, remove, sha256_file, write_text
from townlet.policy.capture import CaptureOptions, CaptureResult, capture
from townlet.policy.replay import ReplayDataset, ReplayDatasetConfig
from townlet.policy.runtime import NetworkPolicy, Policy
from townlet.policy.training.contexts import RunOptions, TrainingContext
from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator
from townlet.policy.training.session import Session
from townlet.policy.training.strategies.ppo import PPOStrategy
from townlet.telemetry.alarm_rules import default_rules
from townlet.telemetry.ndjson import read_records
from townlet.telemetry.summary import as_markdown, summarise_records
from townlet.telemetry.validate import validate_log
from townlet.telemetry.watch import Seen, Watch, event_dict, watch_log

Say = Callable[[str], None]
CAPTURED_TOWNS = 4


def run_soak(config: SimulationConfig, folder: Path, *, cycles: int = 10, say: Say = print) -> SoakResult:
    """`cycles` epochs of one run; before each, the network as it is fills a capture, and the epoch replays it beside a fresh
    rollout. The first capture is the script's."""
    if cycles < 1:
        raise UsageError(f"{cycles} cycles were asked for, expected at least 1")
    started = time.perf_counter()
    name = config.town_name
    log = folder / f"ppo_{name}.jsonl"
    with FolderLock(folder, only="work"):
        work = partial_folder(folder / "work")
        soak = SoakStrategy(config, work, lambda cycle: say(_cycle_line(name, cycle, cycles)))
        options = RunOptions(epochs=cycles, dataset=soak.capture("scripted"), run_dir=work / "run", log_path=log)
        PolicyTrainingOrchestrator(config, strategies={"ppo": lambda: soak}).run_ppo(options=options, mode="mixed")
        remove(work)
    alerts = _watch(log, folder / "watch.jsonl")
    report = validate_log([log])
    records = list(read_records(log))
    write_text(folder / "summary.md", as_markdown(summarise_records(iter(records), f"{folder.name}/{log.name}")))
    case = Case(name, name, towns=16, days=None, config=config)
    vec = VectorTown(case.town(), case.towns, seed=draw_seed("evaluation", 0, config.evaluation))
    kept = [log, folder / "watch.jsonl", folder / "summary.md"]
    return SoakResult(
        scenario=name,
        config_hash=config_hash(config),
        cycles=tuple(soak.done),
        residents=vec.num_residents,
        records=report.records,
        positions=tuple((record["epoch"], record["cycle_id"], record["log_stream_offset"]) for record in records),
        runs=len({record["run_id"] for record in records}),
        problems=tuple(str(problem) for problem in report.problems),
        alerts=tuple(alerts),
        baseline=run_case(vec, "schedule", "schedule", case).measures,
        files={path.name: sha256_file(path) for path in kept},
        seconds=time.perf_counter() - started,
    )


class SoakStrategy(PPOStrategy):
    """PPO in mode `mixed` whose stored data are captured again, by the network itself, before every epoch but the first."""

    def __init__(self, config: SimulationConfig, work: Path, report_cycle: Callable[[SoakCycle], None]) -> None:
        super().__init__()
        self.config, self.work, self.report_cycle = config, work, report_cycle
        self.done: list[SoakCycle] = []
        self._captured: CaptureResult
        self._sums = ""

    def capture(self, policy: str | Callable[[VectorTown], Policy]) -> ReplayDatasetConfig:
        """A capture of the next cycle's towns in place of the last one."""
        cycle, folder = len(self.done) + 1, self.work / "capture"
        if folder.exists():
            remove(folder)
        seed = draw_seed("training", self.config.seed * 1_000 + 500 + cycle)
        self._captured = capture([self.config], folder, CaptureOptions(towns=CAPTURED_TOWNS, seed=seed, policy=policy))
        self._sums = sha256_file(folder / "SHA256SUMS")
        return ReplayDatasetConfig.from_capture_dir(folder)

    def _epoch(self, session: Session, context: TrainingContext) -> None:
        if self.done:
            self.data = ReplayDataset(self.capture(lambda vec: NetworkPolicy(session.learner, vec.seed)))
            context.note_data(self.data.hash, self.data.config.source)
        before = session.weights_hash
        super()._epoch(session, context)
        last = session.counters.last
        cycle = {
            "cycle": len(self.done) + 1,
            "samples": self._captured.samples,
            "captured": self._captured.transitions,
            "capture_hash": self._sums,
            "weights_before": before,
            "weights_after": session.weights_hash,
            "transitions": last["transitions"],
            "loss_value": last["loss_value"],
            "kl_k3": last["kl_k3"],
            "conflict_events": last["queue_conflict_events"],
            "conflict_intensity": last["queue_conflict_intensity_sum"],
            "memory_mb": _memory_mb(),
        }
        self.done.append(SoakCycle.model_validate(cycle))
        self.report_cycle(self.done[-1])


def _cycle_line(name: str, cycle: SoakCycle, cycles: int) -> str:
    return f"  {name}: cycle {cycle.cycle} of {cycles}, {cycle.transitions} transitions, value loss {cycle.loss_value:.3f}"


def _watch(log: Path, output: Path) -> list[str]:
    """Every event of the watcher as a line; what alarmed, in words."""
    lines, alerts = [], []
    for event in watch_log(log, Watch(default_rules()), follow=False):
        fields = event_dict(event)
        fields.pop("record", None)
        lines.append(json.dumps({"log": log.name, **fields}, sort_keys=True))
        if isinstance(event, Seen):
            alerts += [alarm.message for alarm in event.alarms]
    write_text(output, "".join(line + "\n" for line in lines))
    return alerts


def _memory_mb() -> float:
    """Resident memory now; the peak where the system does not tell."""
    gc.collect()
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize() / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
