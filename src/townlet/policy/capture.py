"""Capture: run towns, turn lives into samples, and publish a complete folder (`capture_folder`) or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from townlet import files
from townlet.config.learning import TrainingConfig
from townlet.config.models import SimulationConfig
from townlet.config.scenario import ResidentConfig
from townlet.envs.events import event_records, run_id_of
from townlet.envs.vector import VectorTown
from townlet.errors import InterruptedRun, UsageError, whole_number
from townlet.names import check_name
from townlet.policy.capture_folder import CaptureWriter, SampleFilter, carry_over, gather, totals
from townlet.policy.jobs import run_jobs
from townlet.policy.manifest import PREFIX
from townlet.policy.rollout import RolloutBuffer, collect, next_sample_id, source_of
from townlet.policy.runtime import SCRIPTS, Policy, PolicyRuntime, carried, fitted, make_policy
from townlet.policy.sample import ReplaySample, SampleMeta
from townlet.policy.trajectory import to_disk
from townlet.ports import Decided
from townlet.sim.probes import Probe
from townlet.types import Array, Record

BUFFER_BYTES = 128 << 20  # towns are run in groups whose frames fit into this …
GROUP_LIVES = 2000  # … with about this many lives at most: a stopped capture still writes its group
FRAME_BYTES = 2048  # of one decision of one resident, about
SEEDED_RESIDENTS = 2
LONGEST_PREFIX = 64  # with a resident's id and a number it is a name

Progress = Callable[[int, int], None]  # ticks done, ticks in all


@dataclass(frozen=True)
class CaptureOptions:
    """How to run and what to keep. Without `ticks` an episode of the scenario."""

    ticks: int | None = None
    towns: int = 1
    seed: int | None = None
    start: str | None = None
    policy: str | Callable[[VectorTown], Policy] = "schedule"
    epsilon: float | None = None  # None: `training.bc.epsilon` where a script acts, so that its log-probabilities say something
    keep: SampleFilter = field(default_factory=SampleFilter)
    prefix: str = PREFIX
    compress: bool = False
    max_bytes: int | None = None
    append: bool = False
    overwrite: bool = False
    auto_seed_agents: bool = False

    def __post_init__(self) -> None:
        for name, value in (("ticks", self.ticks), ("towns", self.towns), ("max_bytes", self.max_bytes)):
            if value is not None:
                whole_number(name, value, 1)
        check_name(self.prefix, "the prefix of a capture")
        if len(self.prefix) > LONGEST_PREFIX:
            raise UsageError(f"the prefix of a capture has {len(self.prefix)} letters, expected at most {LONGEST_PREFIX}")


@dataclass(frozen=True)
class CaptureResult:
    folder: str
    samples: int
    dropped: int  # rotated out or filtered
    transitions: int
    bytes: int
    ticks: int
    events_lost: int  # beyond the columns of a step; 0 unless a town is very busy
    interrupted: bool
    scenarios: dict[str, dict[str, float]]  # totals by scenario


def capture(
    configs: Sequence[SimulationConfig],
    out: Path,
    options: CaptureOptions | None = None,
    *,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    where: TrainingConfig | None = None,
) -> CaptureResult:
    """Run every scenario and publish `out`; several get a folder each inside it and one manifest over all. `where` names an
    engine that groups of towns are run on; without it they are run here."""
    options = options or CaptureOptions()
    if not configs:
        raise UsageError("there is no scenario to capture; name one, such as town_day")
    if options.append and len(configs) > 1:
        raise UsageError(f"--append adds to the capture of one scenario, but {len(configs)} were named; append them one by one")
    files.check_free(out, options.overwrite or options.append, "folder")
    names = [config.town_name for config in configs]
    if len(set(names)) < len(names):
        raise UsageError(f"the scenario {max(names, key=names.count)} is named twice; name each once")
    ticks = [options.ticks or config.scenario.episode_ticks for config in configs]
    with files.filling(out) as partial:
        writers, done = [], 0
        for name, config, wanted in zip(names, configs, ticks):
            if stop is not None and stop():
                break
            folder = partial if len(configs) == 1 else partial / name
            writer = CaptureWriter(files.make_folder(folder), options.prefix, options.max_bytes)
            first_town = carry_over(out, writer) if options.append and out.exists() else 0
            base, total = done, sum(ticks) * options.towns

            def report(now: int, base: int = base, total: int = total) -> None:
                if progress is not None:
                    progress(base + now, total)

            done += _run(config, wanted, writer, options, first_town, report, stop or (lambda: False), where or TrainingConfig())
            writer.close()
            if not writer.samples:
                files.remove(folder)
            writers.append((name, writer))
        interrupted = stop is not None and stop()
        if not any(writer.samples for _, writer in writers):
            if interrupted:
                raise InterruptedRun("stopped before the first decision; nothing was captured")
            raise UsageError(
                "nothing was captured: no life passes the filters (--agent-id, --min-length, --min-reward); loosen them"
            )
        if len(configs) > 1:
            gather(partial, writers, options.prefix)
        allowed = options.overwrite or options.append
        files.publish_folder(partial, out, overwrite=allowed, keep_old=not options.append)  # appended: the new one holds all
    return CaptureResult(
        folder=str(out),
        samples=sum(len(writer.samples) for _, writer in writers),
        dropped=sum(writer.dropped for _, writer in writers),
        transitions=sum(meta.timesteps for _, writer in writers for meta in writer.metas),
        bytes=sum(writer.nbytes for _, writer in writers),
        ticks=done,
        events_lost=sum(writer.events_lost for _, writer in writers),
        interrupted=interrupted,
        scenarios={name: totals(writer.metas) for name, writer in writers if writer.samples},
    )


def _run(
    config: SimulationConfig,
    ticks: int,
    writer: CaptureWriter,
    options: CaptureOptions,
    first_town: int,
    report: Callable[[int], None],
    stop: Callable[[], bool],
    where: TrainingConfig,
) -> int:
    """All towns of one scenario, in groups that fit into memory, on their engine; returns the town-ticks made."""
    if options.auto_seed_agents:
        config = seed_residents(config)
    steps = max(1, ticks // config.policy.interval)
    here, last = where.engine == "local", first_town + options.towns
    group = max(1, min(GROUP_LIVES, BUFFER_BYTES // (FRAME_BYTES * steps)) // max(1, len(config.scenario.residents)))
    if not here:
        group = min(group, -(-options.towns // max(1, where.workers)))
        options = replace(options, policy=carried(options.policy) if isinstance(options.policy, str) else options.policy)
    groups = [(first, min(group, last - first)) for first in range(first_town, last, group)]
    watch = _Progress(report)
    parts = (
        (run_towns(config, options, ticks, *towns, watch, stop) for towns in groups if not stop())
        if here
        else _elsewhere(groups, config, options, ticks, stop, where)
    )
    numbers, done = writer.numbers(), 0
    for part in parts:
        for sample in part.samples:
            name = next_sample_id(writer.prefix, sample.meta.agent_id, numbers)
            sample = replace(sample, meta=sample.meta.model_copy(update={"sample_id": name}))
            if options.keep.keeps(sample.meta, float(sample.rewards.sum(dtype="f8"))):
                writer.put(sample, compress=options.compress)
            else:
                writer.dropped += 1
        writer.events += part.events
        writer.events_lost += part.events_lost
        done += part.ticks
        report(done)
    return done


class CapturedTowns(NamedTuple):
    """What is kept of towns that were run side by side; their samples are numbered by whoever writes them."""

    samples: Iterable[ReplaySample]
    events: list[Record]
    events_lost: int
    ticks: int  # of all towns together


def _elsewhere(
    groups: Sequence[tuple[int, int]],
    config: SimulationConfig,
    options: CaptureOptions,
    ticks: int,
    stop: Callable[[], bool],
    where: TrainingConfig,
) -> Iterator[CapturedTowns]:
    for done in run_jobs(where, run_towns_as_arrays, groups, shared=(config, options, ticks), stop=stop):
        lives, *rest = done.get()
        yield CapturedTowns((ReplaySample.of(arrays, SampleMeta.model_validate_json(meta)) for arrays, meta in lives), *rest)


def run_towns_as_arrays(
    config: SimulationConfig, options: CaptureOptions, ticks: int, first: int, towns: int
) -> tuple[list[tuple[dict[str, Array], str]], list[Record], int, int]:
    """`run_towns` in another process: each sample as plain arrays and JSON."""
    part = run_towns(config, options, ticks, first, towns)
    lives = [(to_disk(sample), sample.meta.model_dump_json()) for sample in part.samples]
    return lives, part.events, part.events_lost, part.ticks


def run_towns(
    config: SimulationConfig,
    options: CaptureOptions,
    ticks: int,
    first: int,
    towns: int,
    watch: Probe | None = None,
    stop: Callable[[], bool] | None = None,
) -> CapturedTowns:
    """A group of towns, lived through and cut into lives."""
    vec = VectorTown(fitted(config, options.policy), towns, seed=options.seed, first_town=first, start=options.start)
    policy = policy_of(vec, options)
    buffer = RolloutBuffer(vec, max(1, ticks // vec.interval))
    collect(policy, buffer, [] if watch is None else [watch], stop=stop)
    samples = buffer.samples(source_of(vec, policy, ticks=ticks, prefix=options.prefix))
    events = list(event_records(vec, *buffer.events(), run_id=run_id_of(vec)))
    return CapturedTowns(samples, events, vec.events_lost, buffer.steps * vec.interval * towns)


def policy_of(vec: VectorTown, options: CaptureOptions) -> PolicyRuntime:
    """Who acts in the captured towns."""
    if not isinstance(options.policy, str):
        return PolicyRuntime(vec, options.policy(vec))
    soft = vec.config.training.bc.epsilon if options.policy in SCRIPTS else 0.0
    epsilon = soft if options.epsilon is None else options.epsilon
    return PolicyRuntime(vec, make_policy(options.policy, vec, epsilon=epsilon, seed=vec.seed))


class _Progress(Probe):
    """Tells how many town-ticks have been made, decision by decision."""

    def __init__(self, report: Callable[[int], None]) -> None:
        self.report, self.done = report, 0

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        self.done += world.interval * world.num_towns
        self.report(self.done)


def seed_residents(config: SimulationConfig) -> SimulationConfig:
    """A scenario without residents gets a few, in its homes by turns; another one stays as it is."""
    if config.scenario.residents:
        return config
    sites = {job.site for job in config.jobs.values()}
    homes = [name for name in config.scenario.buildings if name not in sites]
    residents = tuple(
        ResidentConfig(id=f"resident_{i + 1}", home=homes[i % len(homes)] if homes else None) for i in range(SEEDED_RESIDENTS)
    )
    scenario = config.scenario.model_copy(update={"residents": residents, "ties": (), "circles": ()})
    return config.model_copy(update={"scenario": scenario})
