"""Arms × seeds: two processes of one thread each, every finished job kept, continued after a stop."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from townlet.config.loader import load_config
from townlet.config.models import SimulationConfig, config_hash
from townlet.dto.evaluation import MEASURES, Measure
from townlet.dto.studies import ArmResult, Contrast, StudyReport
from townlet.envs.vector import VectorTown
from townlet.errors import DamagedFileError, TownletError, UsageError
from townlet.evaluation.compare import ends
from townlet.evaluation.scorecard import policy_hash, run_case
from townlet.evaluation.suites import Case, draw_seed
from townlet.files import AppendLog, make_folder, read_bytes, remove, safe_join, write_json
from townlet.optional import versions
from townlet.policy.training.contexts import RunOptions
from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator
from townlet.policy.training.run_folder import RunFolder
from townlet.signals import StopFlag
from townlet.statistics import cohens_d, paired_difference
from townlet.studies.spec import StudyJob, StudySpec, job_of, jobs_of

RESULTS = Path("benchmarks/learning/results")
RUNS = Path("runs/studies")
RESULT_LIMIT = 16 << 20
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
Say = Callable[[str], None]


class JobFailed(TownletError):
    """A job of a study ended with an error; the finished ones are kept."""


def run_study(
    spec: StudySpec, *, results: Path = RESULTS, runs: Path = RUNS, processes: int = 2, say: Say = print
) -> StudyReport:
    """Run what is not finished yet, then report on all of it."""
    spec_file = make_folder(safe_join(runs, spec.name, error=UsageError)) / "spec.json"
    write_json(spec_file, spec.model_dump(mode="json"))
    jobs = jobs_of(spec)
    kept = read_results(results)
    todo = [job for job in jobs if job.hash not in kept]
    say(f"{spec.name}: {len(jobs)} jobs, {len(jobs) - len(todo)} finished before")
    _run_all(todo, spec_file, results, runs, processes, say)
    return report_study(spec, results=results)


def run_job(spec: StudySpec, arm: str, seed: int, *, results: Path = RESULTS, runs: Path = RUNS) -> ArmResult:
    """Train one arm on one seed, measure its best checkpoint, keep the result."""
    job = job_of(spec, arm, seed)
    run = training_folder(job, runs)
    summary = run.summary() if run.exists else None
    if summary is None:
        summary = _train(spec, job, run)
    checkpoint = run.best() or run.latest()
    if checkpoint is None:
        raise JobFailed(f"{run.path} holds no checkpoint after training; its log says why")
    measures = measure(spec, job, os.fspath(checkpoint))
    result = ArmResult(
        study=spec.name,
        arm=arm,
        seed=seed,
        job=job.hash,
        config_hash=config_hash(job.config),
        policy_hash=policy_hash(os.fspath(checkpoint)),
        overrides=(*spec.overrides, *spec.arms[arm]),
        minutes=spec.minutes,
        training_seconds=float(summary["duration_sec"]),
        transitions=_transitions(summary),
        evaluation_seed=_seed(_measured(spec, job)),
        towns=spec.towns,
        measures=measures,
        versions=versions("numpy"),
    )
    with AppendLog(results_file(spec, results)) as kept:
        kept.write(result.model_dump_json(), sync=True)
    return result


def training_folder(job: StudyJob, runs: Path) -> RunFolder:
    """Where a job is trained, by whichever study."""
    return RunFolder(safe_join(runs, f"trained/{job.training}", error=UsageError))


def _train(spec: StudySpec, job: StudyJob, run: RunFolder) -> dict[str, Any]:
    """The result of the training, which goes on from its last checkpoint where it was stopped."""
    resume = run.exists and any(run.path.glob("**/checkpoints/latest"))
    if not resume and run.path.exists():
        remove(run.path)  # stopped before its first checkpoint
    options = RunOptions(run_dir=run.path, resume=resume, command=("townlet", "study", spec.name, f"{job.arm}:{job.seed}"))
    return PolicyTrainingOrchestrator(job.config).run(spec.mode, options).model_dump(mode="json")


def results_file(spec: StudySpec, results: Path) -> Path:
    """Where a study keeps its finished jobs, one line each."""
    return safe_join(results, f"{spec.name}.ndjson", error=UsageError)


def measure(spec: StudySpec, job: StudyJob, policy: str) -> dict[str, Measure]:
    """A policy in the held-out towns of the study, seen as the arm sees them and scored with the committed weights."""
    config = _measured(spec, job)
    case = Case(spec.name, config.config_id, towns=spec.towns, days=spec.days, config=config)
    vec = VectorTown(case.town(), spec.towns, seed=_seed(config))
    return run_case(vec, policy, policy, case).measures


def _measured(spec: StudySpec, job: StudyJob) -> SimulationConfig:
    """The config of the towns an arm is measured in."""
    return job.config if spec.scenario is None else load_config(spec.scenario, [*spec.overrides, *spec.arms[job.arm]])


def _seed(config: SimulationConfig) -> int:
    return draw_seed("evaluation", 0, config.evaluation)


def read_results(results: Path) -> dict[str, ArmResult]:
    """Every finished job by its hash, whichever study ran it; a line that cannot be read is named, never run over."""
    return {kept.job: kept for path in sorted(results.glob("*.ndjson")) for kept in parse_results(path)}


def parse_results(path: Path) -> Iterator[ArmResult]:
    """The finished jobs in one file, line by line."""
    lines = read_bytes(path, limit=RESULT_LIMIT).split(b"\n")[:-1]  # what follows the last newline was never kept
    for number, line in enumerate(lines, 1):
        try:
            yield ArmResult.model_validate_json(line)
        except ValueError as error:
            raise DamagedFileError(
                f"{path}, line {number}: is not a result of version 1; remove the line to run its job again"
            ) from error


def finished(spec: StudySpec, results: Path) -> list[ArmResult]:
    """The kept results of a study's jobs, in the order of its jobs and under its own names of the arms."""
    kept = read_results(results)
    return [kept[job.hash].model_copy(update={"arm": job.arm}) for job in jobs_of(spec) if job.hash in kept]


def report_study(spec: StudySpec, *, results: Path = RESULTS) -> StudyReport:
    """What the finished jobs say; seeds that not every arm of a contrast has finished are left out of it."""
    found = finished(spec, results)
    first = job_of(spec, next(iter(spec.arms)), 0)
    rules = _measured(spec, first).evaluation
    baselines = {name: measure(spec, first, name) for name in dict.fromkeys((rules.baseline, "random"))}
    contrasts = [c for a, b in spec.contrasts for c in _contrasts(found, a, b, rules.level)]
    for arm in spec.arms:
        contrasts += _against_baseline(found, arm, rules.baseline, baselines[rules.baseline], rules.level)
    return StudyReport(
        study=spec.name,
        config=spec.config,
        minutes=spec.minutes,
        level=rules.level,
        results=tuple(found),
        baselines=baselines,
        contrasts=tuple(contrasts),
        command=f"townlet study benchmarks/learning/{spec.name}.yaml",
    )


def _run_all(todo: Sequence[StudyJob], spec_file: Path, results: Path, runs: Path, processes: int, say: Say) -> None:
    waiting, running = list(todo), dict[subprocess.Popen[bytes], StudyJob]()
    failed: list[str] = []
    with StopFlag() as stop:
        stop.begun = True  # jobs, which save what they have
        try:
            while (waiting or running) and not stop.asked:
                while waiting and len(running) < processes:
                    job = waiting.pop(0)
                    words = [sys.executable, "-m", "townlet", "study", str(spec_file), "--job", f"{job.arm}:{job.seed}"]
                    words += ["--results", str(results), "--runs", str(runs)]
                    running[subprocess.Popen(words, env=os.environ | ONE_THREAD, stdout=subprocess.DEVNULL)] = job
                    say(f"  {job.arm}, seed {job.seed}: started")
                time.sleep(0.2)
                for process, job in [item for item in running.items() if item[0].poll() is not None]:
                    del running[process]
                    if process.returncode:
                        failed.append(f"{job.arm}, seed {job.seed} (exit code {process.returncode})")
                    say(f"  {job.arm}, seed {job.seed}: {'finished' if process.returncode == 0 else 'failed'}")
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait()
        if stop.asked:
            raise stop.interruption(f"with {len(waiting) + len(running)} jobs left; run the study again to go on")
    if failed:
        raise JobFailed(f"{len(failed)} jobs failed: {', '.join(failed)}; run the study again to retry them, the others are kept")


def _contrasts(found: Sequence[ArmResult], arm: str, against: str, level: float) -> list[Contrast]:
    mine = {result.seed: result for result in found if result.arm == arm}
    other = {result.seed: result for result in found if result.arm == against}
    seeds = sorted(mine.keys() & other.keys())
    rows = []
    for name in MEASURES:
        pairs = [(mine[seed].measures[name].mean, other[seed].measures[name].mean) for seed in seeds]
        rows += _contrast(name, arm, against, [(a, b) for a, b in pairs if a is not None and b is not None], level)
    return rows


def _against_baseline(found: Sequence[ArmResult], arm: str, name: str, base: dict[str, Measure], level: float) -> list[Contrast]:
    rows = []
    for measure_name in MEASURES:
        fixed = base[measure_name].mean
        means = [result.measures[measure_name].mean for result in found if result.arm == arm]
        rows += _contrast(measure_name, arm, name, [(a, fixed) for a in means if a is not None and fixed is not None], level)
    return rows


def _contrast(name: str, arm: str, against: str, pairs: Sequence[tuple[float, float]], level: float) -> list[Contrast]:
    if not pairs:
        return []
    a, b = np.array(pairs).T
    interval, d = paired_difference(a, b, level=level, method="student"), cohens_d(a, b)
    low, high = ends(interval)
    return [
        Contrast(
            measure=name,
            arm=arm,
            against=against,
            difference=interval.value,
            low=low,
            high=high,
            cohens_d=d if np.isfinite(d) else None,
            seeds=len(pairs),
        )
    ]


def _transitions(result: dict[str, object]) -> int:
    """Transitions a run was trained on: its own, or those of its stages."""
    own = result.get("transitions")
    if isinstance(own, int):
        return own
    stages = result.get("stages")
    return (
        sum(_transitions(part) for stage in stages for part in stage.values() if isinstance(part, dict))
        if isinstance(stages, tuple | list)
        else 0
    )
