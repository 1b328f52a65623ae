"""Alternating capture → PPO cycles of one network, with every log validated, watched and summarised."""

from __future__ import annotations

import gc
import json
import resource
import time
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

from townlet.config.models import SimulationConfig, config_hash
from townlet.dto.studies import SoakCycle, SoakResult
from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.evaluation.scorecard import run_case
from townlet.evaluation.suites import Case, draw_seed
from townlet.files import partial_folder, remove, sha256_file, write_text
from townlet.policy.capture import CaptureOptions, capture
from townlet.policy.replay import ReplayDatasetConfig
from townlet.policy.training.contexts import RunOptions
from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator
from townlet.telemetry.alarm_rules import default_rules
from townlet.telemetry.ndjson import read_records
from townlet.telemetry.summary import as_markdown, summarise_records
from townlet.telemetry.validate import validate_log
from townlet.telemetry.watch import Seen, Watch, event_dict, watch_log

Say = Callable[[str], None]


def run_soak(config: SimulationConfig, folder: Path, *, cycles: int = 10, towns: int = 4, say: Say = print) -> SoakResult:
    """`cycles` times: capture with the network as it is, then one mixed epoch (replay of the capture, fresh rollout)."""
    if cycles < 1:
        raise UsageError(f"{cycles} cycles were asked for, expected at least 1")
    started = time.perf_counter()
    name = config.scenario.name or config.config_id
    work = partial_folder(folder / "work")
    done: list[SoakCycle] = []
    logs: list[Path] = []
    last: Path | None = None
    for cycle in range(1, cycles + 1):
        log = folder / f"ppo_{cycle:03d}.jsonl"
        result, last = _cycle(config, work, log, cycle, towns, last)
        done.append(result)
        logs.append(log)
        say(f"  {name}: cycle {cycle} of {cycles}, {result.transitions} transitions, value loss {result.loss_value:.3f}")
    alerts = _watch(logs, folder / "watch.jsonl")
    report = validate_log(logs)
    records = summarise_records(chain.from_iterable(read_records(log) for log in logs), f"{folder.name}/ppo_*.jsonl")
    write_text(folder / "summary.md", as_markdown(records))
    remove(work)
    case = Case(name, name, towns=16, days=None, config=config)
    vec = VectorTown(case.town(), case.towns, seed=draw_seed("evaluation", 0, config.evaluation))
    kept = [*logs, folder / "watch.jsonl", folder / "summary.md"]
    return SoakResult(
        scenario=name,
        config_hash=config_hash(config),
        cycles=tuple(done),
        residents=vec.num_residents,
        records=report.records,
        problems=tuple(str(problem) for problem in report.problems),
        alerts=tuple(alerts),
        baseline=run_case(vec, "schedule", "schedule", case).measures,
        files={path.name: sha256_file(path) for path in kept},
        seconds=time.perf_counter() - started,
    )


def _cycle(config: SimulationConfig, work: Path, log: Path, cycle: int, towns: int, last: Path | None) -> tuple[SoakCycle, Path]:
    seed = draw_seed("training", config.seed * 1_000 + 500 + cycle)
    data = work / f"capture_{cycle:03d}"
    policy = {"policy": "scripted", "epsilon": config.training.bc.epsilon} if last is None else {"policy": str(last)}
    captured = capture([config], data, CaptureOptions(towns=towns, seed=seed, **policy))
    options = RunOptions(
        epochs=1,
        dataset=ReplayDatasetConfig.from_capture_dir(data),
        run_dir=work / f"run_{cycle:03d}",
        log_path=log,
        start_from=last,
    )
    trained = PolicyTrainingOrchestrator(config).run_ppo(options=options, mode="mixed")
    if trained.checkpoint is None:
        raise UsageError(f"cycle {cycle} left no checkpoint in {options.run_dir}; nothing to go on from")
    sums = sha256_file(data / "SHA256SUMS")
    remove(data)
    if last is not None:
        remove(work / f"run_{cycle - 1:03d}")
    done = SoakCycle(
        cycle=cycle,
        samples=captured.samples,
        captured=captured.transitions,
        capture_hash=sums,
        weights_before=trained.weights_hash_start,
        weights_after=trained.weights_hash,
        transitions=trained.transitions,
        loss_value=trained.loss_value,
        kl_k3=trained.kl_k3,
        conflict_events=trained.queue_conflict_events,
        conflict_intensity=trained.queue_conflict_intensity_sum,
        memory_mb=_memory_mb(),
    )
    return done, Path(trained.checkpoint)


def _watch(logs: Iterable[Path], output: Path) -> list[str]:
    """Every event of the watcher as a line; what alarmed, in words."""
    lines, alerts = [], []
    for log in logs:
        for event in watch_log(log, Watch(default_rules()), follow=False):
            fields = event_dict(event)
            fields.pop("record", None)
            lines.append(json.dumps({"log": log.name, **fields}, sort_keys=True))
            if isinstance(event, Seen):
                alerts += [f"{log.name}: {alarm.message}" for alarm in event.alarms]
    write_text(output, "".join(line + "\n" for line in lines))
    return alerts


def _memory_mb() -> float:
    """Resident memory now; the peak where the system does not tell."""
    gc.collect()
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize() / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
