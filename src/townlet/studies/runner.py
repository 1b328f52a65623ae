"""Arms × seeds: a worker of one thread for each job, every finished job kept, continued after a stop."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import process_time

import numpy as np

from townlet import files
from townlet.config.learning import TrainingConfig
from townlet.config.loader import load_config
from townlet.config.models import SimulationConfig, config_hash
from townlet.dto.evaluation import MEASURES, Measure
from townlet.dto.studies import ArmResult, Contrast, StudyReport
from townlet.envs.vector import VectorTown
from townlet.errors import DamagedFileError, TownletError, UsageError
from townlet.evaluation.compare import effect_with, summarise
from townlet.evaluation.scorecard import policy_hash, run_case, scale_of
from townlet.evaluation.suites import Case, draw_seed
from townlet.optional import check_installed, versions
from townlet.policy.jobs import check_engine, run_jobs
from townlet.policy.training.contexts import RunOptions
from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator
from townlet.policy.training.run_folder import RunFolder
from townlet.sealed import BROKEN_SEAL, seal_holds, sealed_line, unsealed
from townlet.signals import StopFlag
from townlet.statistics import holm, student_interval, student_p
from townlet.studies.spec import StudyJob, StudySpec, job_of, jobs_of
from townlet.types import Record

RESULTS = Path("benchmarks/learning/results")
RUNS = Path("runs/studies")
RESULT_LIMIT = 16 << 20
TWO_PROCESSES = TrainingConfig(engine="process", workers=2)
Say = Callable[[str], None]


class JobFailed(TownletError):
    """A job of a study ended with an error; the finished ones are kept."""


def run_study(
    spec: StudySpec, *, results: Path = RESULTS, runs: Path = RUNS, where: TrainingConfig = TWO_PROCESSES, say: Say = print
) -> StudyReport:
    """Run what is not finished yet, then report on all of it."""
    files.write_json(
        files.make_folder(files.safe_join(runs, spec.name, error=UsageError)) / "spec.json", spec.model_dump(mode="json")
    )
    jobs = jobs_of(spec)
    kept = read_results(results)
    todo = [job for job in jobs if job.hash not in kept]
    if todo:
        check_installed("torch", "a study")
        check_engine(where.engine)
    say(f"{spec.name}: {len(jobs)} jobs, {len(jobs) - len(todo)} finished before")
    _run_all(spec, todo, results, runs, where, say)
    return report_study(spec, results=results)


def run_job(spec: StudySpec, arm: str, seed: int, *, results: Path = RESULTS, runs: Path = RUNS) -> ArmResult:
    """Train one arm on one seed, measure its best checkpoint, keep the result."""
    job = job_of(spec, arm, seed)
    return keep_result(spec, results, train_arm(*_as_sent(spec, job, runs)))


def keep_result(spec: StudySpec, results: Path, found: str) -> ArmResult:
    result = ArmResult.model_validate_json(found)
    with files.AppendLog(results_file(spec, results)) as kept:
        kept.write(sealed_line(found.encode()), sync=True)
    return result


def _as_sent(spec: StudySpec, job: StudyJob, runs: Path) -> tuple[str, ...]:
    """A job as plain strings, for a worker that may be on another machine."""
    texts = (spec.model_dump_json(), job.config.model_dump_json(), _measured(spec, job).model_dump_json())
    return *texts, job.arm, str(job.seed), job.hash, str(training_folder(job, runs).absolute())


def train_arm(spec_text: str, config_text: str, measured_text: str, arm: str, seed_text: str, digest: str, folder: str) -> str:
    """The result of one job, as JSON. Its run stays in the folder: it goes on where it was left, and is not trained again."""
    spec, seed, run = StudySpec.model_validate_json(spec_text), int(seed_text), RunFolder(Path(folder))
    config, measured = (SimulationConfig.model_validate_json(text) for text in (config_text, measured_text))
    kept, used = run.summary() if run.exists else None, None
    if kept is not None:
        trained = kept.as_record()
    else:
        resume = run.exists and any(run.path.glob("**/checkpoints/latest"))
        if not resume and run.path.exists():
            with files.FolderLock(run.path):  # not by another study, which is at work in it
                files.remove(run.path)  # stopped before its first checkpoint
        options = RunOptions(run_dir=run.path, resume=resume, command=("townlet", "study", spec.name, f"{arm}:{seed}"))
        begun = process_time()
        trained = PolicyTrainingOrchestrator(config).run(spec.mode, options).model_dump(mode="json")
        used = None if resume else process_time() - begun
    checkpoint = run.best() or run.latest()
    if checkpoint is None:
        raise JobFailed(f"{folder} holds no checkpoint after training; its log says why")
    return ArmResult(
        study=spec.name,
        arm=arm,
        seed=seed,
        job=digest,
        config_hash=config_hash(config),
        policy_hash=policy_hash(os.fspath(checkpoint)),
        overrides=(*spec.overrides, *spec.arms[arm]),
        minutes=spec.minutes,
        training_seconds=float(trained["duration_sec"]),
        processor_seconds=used,
        transitions=_transitions(trained),
        evaluation_seed=_seed(measured),
        towns=spec.towns,
        measures=measure(spec, measured, os.fspath(checkpoint)),
        versions=versions("numpy"),
    ).model_dump_json()


def training_folder(job: StudyJob, runs: Path) -> Path:
    """Where a job is trained, for whichever study."""
    return files.safe_join(runs, f"trained/{job.training}", error=UsageError)


def results_file(spec: StudySpec, results: Path) -> Path:
    """Where a study keeps its finished jobs, one line each."""
    return files.safe_join(results, f"{spec.name}.ndjson", error=UsageError)


def _case(spec: StudySpec, config: SimulationConfig) -> Case:
    return Case(spec.name, config.config_id, towns=spec.towns, days=spec.days, config=config)


def measure(spec: StudySpec, config: SimulationConfig, policy: str) -> dict[str, Measure]:
    """A policy in the held-out towns of the study, seen as the arm sees them and scored with the committed weights."""
    case = _case(spec, config)
    vec = VectorTown(case.town(), spec.towns, seed=_seed(config))
    return run_case(vec, policy, policy, case).measures


def _measured(spec: StudySpec, job: StudyJob) -> SimulationConfig:
    """The config of the towns an arm is measured in."""
    if spec.scenario is None:
        return job.config
    return load_config(spec.scenario, [*spec.overrides, *spec.arms[job.arm]], recipe=spec.recipe)


def _seed(config: SimulationConfig) -> int:
    return draw_seed("evaluation", 0, config.evaluation)


def read_results(results: Path) -> dict[str, ArmResult]:
    """Every finished job by its hash, whichever study ran it; a line that cannot be read is named, never run over."""
    return {kept.job: kept for path in sorted(results.glob("*.ndjson")) for kept in parse_results(path)}


def parse_results(path: Path) -> Iterator[ArmResult]:
    """The finished jobs in one file, line by line."""
    *lines, torn = files.read_bytes(path, limit=RESULT_LIMIT).split(b"\n")  # what follows the last newline was never kept
    if seal_holds(torn[:-1]):
        raise DamagedFileError(f"{path}, line {len(lines) + 1}: the line is complete, but does not end with a newline; add one")
    for number, line in enumerate(lines, 1):
        result = unsealed(line)
        if result is None:
            raise DamagedFileError(f"{path}, line {number}: {BROKEN_SEAL}; remove the line to run its job again")
        try:
            yield ArmResult.model_validate_json(result)
        except ValueError as error:
            raise DamagedFileError(
                f"{path}, line {number}: is not a result of version 1; remove the line to run its job again"
            ) from error


def finished(spec: StudySpec, results: Path) -> list[ArmResult]:
    """The kept results of a study's jobs, in the order of its jobs and under its own names of the arms."""
    kept = read_results(results)
    return [kept[job.hash].model_copy(update={"arm": job.arm}) for job in jobs_of(spec) if job.hash in kept]


def known(spec: StudySpec, results: Path) -> list[ArmResult]:
    """As `finished`, but a job without a result has the last one of its arm and seed, from another config or version."""
    path = results_file(spec, results)
    older = {(kept.arm, kept.seed): kept for kept in parse_results(path)} if path.is_file() else {}
    mine = {(kept.arm, kept.seed): kept for kept in finished(spec, results)}
    places = [(job.arm, job.seed) for job in jobs_of(spec)]
    return [(older | mine)[place] for place in places if place in older | mine]


def _placed(result: ArmResult, spec: StudySpec, measured: SimulationConfig) -> ArmResult:
    """The result with score and lead on the current scale: the town may have been planned again since."""
    case = _case(spec, measured)
    scale, returns = scale_of(case.town(), case), result.measures["return"].values
    places = {"score": [None], "lead": [None]} if scale is None else scale.place(returns)
    found = {name: summarise(values, measured.evaluation) for name, values in places.items()}
    return result.model_copy(update={"measures": result.measures | found})


def report_study(spec: StudySpec, *, results: Path = RESULTS) -> StudyReport:
    """What the known results say; seeds that not every arm of a contrast has are left out of it."""
    found, hashes = known(spec, results), {job.hash for job in jobs_of(spec)}
    first = job_of(spec, next(iter(spec.arms)), 0)
    measured = _measured(spec, first)
    rules = measured.evaluation
    found = [_placed(result, spec, measured) for result in found]
    baselines = {name: measure(spec, measured, name) for name in dict.fromkeys((rules.baseline, "random"))}
    contrasts = [c for a, b in spec.contrasts for c in _contrasts(found, a, b, rules.level)]
    for arm in spec.arms:
        contrasts += _against_baseline(found, arm, rules.baseline, baselines[rules.baseline], rules.level)
    return StudyReport(
        study=spec.name,
        config=spec.config,
        minutes=spec.minutes,
        level=rules.level,
        results=tuple(found),
        older=sum(result.job not in hashes for result in found),
        baselines=baselines,
        contrasts=_corrected(contrasts),
        command=f"townlet study benchmarks/learning/{spec.name}.yaml",
    )


def _run_all(spec: StudySpec, todo: Sequence[StudyJob], results: Path, runs: Path, where: TrainingConfig, say: Say) -> None:
    names = [f"{job.arm}, seed {job.seed}" for job in todo]
    jobs = [_as_sent(spec, job, runs) for job in todo]
    failed: list[str] = []
    ended = 0
    with StopFlag() as stop:
        stop.begun = True  # jobs, which save what they have
        found = run_jobs(
            where,
            train_arm,
            jobs,
            ordered=False,
            begun=lambda number: say(f"  {names[number]}: started"),
            stop=lambda: stop.asked != 0,
        )
        for done in found:
            ended += 1
            if done.error is None:
                keep_result(spec, results, done.value)
            else:
                failed.append(f"{names[done.number]} ({done.error})")
            say(f"  {names[done.number]}: {'finished' if done.error is None else 'failed'}")
        if stop.asked:
            raise stop.interruption(f"with {len(todo) - ended} jobs left; run the study again to continue")
    if failed:
        raise JobFailed(f"{len(failed)} jobs failed: {', '.join(failed)}; run the study again to retry them, the others are kept")


Measures = Mapping[str, Measure]


def _contrasts(found: Sequence[ArmResult], arm: str, against: str, level: float) -> Iterator[Contrast]:
    mine, other = ({one.seed: one.measures for one in found if one.arm == name} for name in (arm, against))
    return _of_pairs([(mine[seed], other[seed]) for seed in sorted(mine.keys() & other.keys())], arm, against, level)


def _against_baseline(found: Sequence[ArmResult], arm: str, name: str, base: Measures, level: float) -> Iterator[Contrast]:
    return _of_pairs([(result.measures, base) for result in found if result.arm == arm], arm, name, level)


def _of_pairs(paired: Sequence[tuple[Measures, Measures]], arm: str, against: str, level: float) -> Iterator[Contrast]:
    """A contrast of every measure that some pair has."""
    for name in MEASURES:
        means = [(one[name].mean, other[name].mean) for one, other in paired]
        known = np.array([pair for pair in means if None not in pair], np.float64)
        if len(known):
            a, b = known.T
            effect = effect_with(student_interval(a - b, level=level), a, b).model_dump(exclude={"pairs"})
            p = student_p(a - b) if len(known) > 1 else None
            yield Contrast(measure=name, arm=arm, against=against, p=p, seeds=len(known), **effect)


def _corrected(contrasts: Sequence[Contrast]) -> tuple[Contrast, ...]:
    """The contrasts with p-values corrected for their number (Holm)."""
    tested = [row for row in contrasts if row.p is not None]
    corrected = iter(holm([row.p for row in tested if row.p is not None]))
    return tuple(row if row.p is None else row.model_copy(update={"p": next(corrected)}) for row in contrasts)


def _transitions(result: Record) -> int:
    """Transitions a run was trained on: its own, or those of its stages."""
    parts = [part for stage in result.get("stages", ()) for part in stage.values() if isinstance(part, dict)]
    return int(result.get("transitions", 0)) + sum(map(_transitions, parts))
