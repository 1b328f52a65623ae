"""Opening a new or resumed run: its epochs, its folder and lock, its log, its stop flag."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from townlet import files
from townlet.config.learning import TrainingConfig
from townlet.config.models import config_hash
from townlet.dto.policy import DryRun
from townlet.errors import CheckpointError, UsageError
from townlet.names import check_name
from townlet.policy.checkpoint import load_checkpoint
from townlet.policy.training.contexts import RunOptions, TrainingContext
from townlet.policy.training.run_folder import RunCard, RunEnvironment, RunFolder, check_disk, check_not_of_a_run
from townlet.telemetry.ndjson import TelemetryWriter, log_parts


def planned_epochs(training: TrainingConfig, mode: str, options: RunOptions) -> int:
    """Epochs of a run of this mode, where nothing ends it early."""
    if options.epochs is not None:
        if mode == "anneal":
            raise UsageError("the epochs of an anneal run are those of training.anneal_schedule; leave out epochs")
        return options.epochs
    if options.resume and options.run_dir is not None:
        return RunFolder(options.run_dir).card().epochs
    if mode == "anneal":
        return sum(stage.epochs for stage in training.anneal_schedule)
    return training.bc.epochs if mode == "bc" else training.epochs


@contextmanager
def opened_run(context: TrainingContext, options: RunOptions) -> Iterator[None]:
    """Within it `context.run`, `telemetry` and `stop` are live. Nothing is written before the checks have passed."""
    settings = context.config.telemetry
    context.started_from = _first_weights(options)
    context.run_id = run_id(config_hash(context.config), context.mode, context.epochs, context.dataset_hash, context.started_from)
    with ExitStack() as stack:
        log = options.log_path
        if options.run_dir is not None:
            context.run = RunFolder(options.run_dir, context.config.training.keep_checkpoints)
            _check_folder(context.run, context, options)
            log = log or _log_of(context.run, options, settings.file)
            _lock_log(log, context, stack)
            stack.enter_context(files.FolderLock(options.run_dir))
            if not options.resume:
                context.run.create(
                    _card(context, context.run, log), context.config, RunEnvironment.here(context.config, options.command)
                )
            context.run.hold()
        elif options.resume:
            raise UsageError("there is nothing to resume without a run folder; name it with --resume RUN")
        elif log is not None:
            _lock_log(log, context, stack)
        if options.start_from is not None:
            context.plan = replace(context.plan, start_from=options.start_from)
        writer = TelemetryWriter(
            log if settings.enabled else None, frequency=settings.frequency, max_entries=settings.max_entries
        )
        if log is not None and not options.resume:
            _set_aside(log)
        context.telemetry = stack.enter_context(writer)
        stack.enter_context(context.stop)
        yield


def dry_run(context: TrainingContext, options: RunOptions, strategy: str) -> DryRun:
    """What would be done, once the inputs, the first weights and the place of the run have been checked."""
    context.started_from = _first_weights(options)
    if options.run_dir is not None:
        _check_folder(RunFolder(options.run_dir), context, options)
    if options.log_path is not None:
        _check_log(options.log_path)
    return DryRun(
        strategy=strategy,
        duration_sec=0.0,
        mode=context.mode,
        epochs=context.epochs,
        config_id=context.config.config_id,
        config_hash=config_hash(context.config),
        dataset_hash=context.dataset_hash,
        disk_bytes=context.disk_needed,
    )


def run_id(config: str, mode: str, epochs: int, dataset: str | None, started_from: str | None) -> str:
    """A hash of config (with its seed), data, first weights and what was asked: the same for a run and its repetition."""
    return files.short_hash("\n".join((config, mode, str(epochs), dataset or "", started_from or "")))


def _first_weights(options: RunOptions) -> str | None:
    """Hash of the weights that a run starts from; None where it starts with new ones. A resumed run has it in its card."""
    if options.start_from is not None:
        return str(load_checkpoint(options.start_from, with_optimizer=False, with_world=False).state["weights_hash"])
    if options.resume and options.run_dir is not None:
        return RunFolder(options.run_dir).card().started_from
    return None


def _card(context: TrainingContext, run: RunFolder, log: Path) -> RunCard:
    data, inside = context.dataset_source, log.absolute().parent == run.path.absolute()
    return RunCard(
        run_id=context.run_id,
        mode=context.mode,
        epochs=context.epochs,
        seed=context.seed,
        config_id=context.config.config_id,
        config_hash=config_hash(context.config),
        dataset_hash=context.dataset_hash,
        dataset=None if data is None else os.path.relpath(data, run.path),  # both may be moved together
        started_from=context.started_from,
        telemetry=log.name if inside else str(log.absolute()),
    )


def _log_of(run: RunFolder, options: RunOptions, name: str) -> Path:
    """The log in the run folder. A log that a run kept elsewhere must be named again on resume: no file in the folder may make us
    change something outside it."""
    written = run.card().telemetry if options.resume else None
    if written is not None and Path(written).is_absolute():
        raise UsageError(f"the run in {run.path} kept its log outside, in {written}; name it again with --ppo-log {written}")
    name = check_name(written or name, f"the log that {run.path / 'run.json'} names", error=CheckpointError)
    for part in {name, *(path.name for path in run.path.glob(f"{name}.*"))}:
        files.safe_join(run.path, part, error=CheckpointError)  # also its rotated, discarded and previous parts
    return run.path / name


def _check_folder(run: RunFolder, context: TrainingContext, options: RunOptions) -> None:
    if not options.resume:
        run.check_new()
        check_disk(run.path, context.disk_needed)
        return
    card = run.card()
    for name, begun, now in (
        ("config hash", card.config_hash, config_hash(context.config)),
        ("mode", card.mode, context.mode),
        ("epochs", card.epochs, context.epochs),
        ("first weights", card.started_from, context.started_from),
    ):
        if begun != now:
            raise UsageError(
                f"the run in {run.path} has the {name} {begun!r}, now it is {now!r}; "
                "resume it as it was started, or start a new run"
            )
    if card.dataset_hash != context.dataset_hash:
        raise CheckpointError(f"the data of the run in {run.path} have changed since it began; restore them, or start a new run")
    there, here = run.environment().model_dump(), RunEnvironment.here(context.config, options.command).model_dump()
    for name in ("versions", "threads", "machine"):
        if there[name] != here[name] and not options.allow_inexact:
            raise UsageError(
                f"the run in {run.path} was made with {name} {there[name]}, here it is {here[name]}: the result could differ "
                "in the last bits; use the same, or accept that with --allow-inexact"
            )


def _lock_log(log: Path, context: TrainingContext, stack: ExitStack) -> None:
    """One run writes a log: that of its own folder is under the folder's lock, and so is one in the folder of another run."""
    if context.config.telemetry.enabled:
        _check_log(log)
        if context.run is None or files.real_path(log.parent) != files.real_path(context.run.path):
            stack.enter_context(files.FolderLock(log.parent, only="" if RunFolder(log.parent).exists else log.name))


def _check_log(log: Path) -> None:
    if log.is_dir():
        raise UsageError(f"{log} is a folder; name the log as a file in it")
    files.check_plain(log)
    check_not_of_a_run(log)


def _set_aside(log: Path) -> None:
    """A new run begins a new log; what other runs left there is kept as `<name>.old-1`, `<name>.old-2`, …"""
    if log.exists():
        for part in log_parts(log):
            files.move(part, files.aside(part))
