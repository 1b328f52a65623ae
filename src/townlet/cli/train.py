"""`townlet train`, and the founding flags that `scripts/run_training.py` shares with it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from townlet.cli.common import FILE, PATH, emit, engine_for, json_option, leave, note, seed_option, set_option, spread_over
from townlet.errors import InterruptedRun, MissingPackageError, StorageError, TelemetryError, UsageError

if TYPE_CHECKING:
    from townlet.config.models import SimulationConfig
    from townlet.dto.policy import ReplayBatchSummary, TrainingResult
    from townlet.policy.replay import ReplayDatasetConfig
    from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator

Flags = Mapping[str, Any]  # as click gives them, by name
MODES = ("replay", "rollout", "mixed", "bc", "anneal")
ALGORITHMS = ("bc", "awr", "cql", "iql")  # and PPO, by --train-ppo

# flag -> (config key, type, help); a flag is an override of the config and is checked by it
VALUES: dict[str, tuple[str, object, str]] = {
    "--mode": ("training.source", click.Choice(MODES), "Where the data comes from, and which strategy learns."),
    "--algorithm": ("training.algorithm", click.Choice(ALGORITHMS), "How to learn from replay data alone; by default awr."),
    "--replay-manifest": ("training.replay_manifest", str, "Manifest of replay data."),
    "--capture-dir": ("training.capture_dir", str, "Capture folder of replay data, with its metrics."),
    "--replay-batch-size": ("training.replay.batch_size", int, "Samples per replay batch."),
    "--replay-seed": ("training.replay.seed", int, "Seed of the shuffle."),
    "--bc-manifest": ("training.bc.manifest", str, "Manifest of demonstrations."),
    "--rollout-ticks": ("training.rollout_ticks", int, "Ticks per collection."),
    "--epochs": ("training.epochs", int, "Collections, or passes over the data; of an anneal run, those of each PPO stage."),
    "--engine": ("training.engine", str, "Where rollouts are made: local, process or ray."),
    "--workers": ("training.workers", int, "Cores, or rollout workers; 0 for all there are."),
    "--address": ("training.cluster.address", str, "HOST:PORT of a Ray cluster; means --engine ray."),
    "--device": ("training.device", str, "Device of torch: cpu, cuda or cuda:N."),
    "--ppo-log-frequency": ("telemetry.frequency", int, "Write every n-th epoch, and the last."),
    "--ppo-log-max-entries": ("telemetry.max_entries", int, "Records per file before it is rotated."),
    "--ppo-learning-rate": ("ppo.learning_rate", float, "Step size of the optimiser."),
    "--ppo-clip-param": ("ppo.clip_param", float, "Clip range of the ratio."),
    "--ppo-value-loss-coef": ("ppo.value_loss_coef", float, "Weight of the value loss."),
    "--ppo-entropy-coef": ("ppo.entropy_coef", float, "Weight of the entropy bonus."),
    "--ppo-num-epochs": ("ppo.num_epochs", int, "Optimisation passes over an epoch's data."),
    "--ppo-mini-batch-size": ("ppo.mini_batch_size", int, "Transitions per mini-batch."),
    "--ppo-num-mini-batches": ("ppo.num_mini_batches", int, "Mini-batches per pass."),
    "--ppo-gae-lambda": ("ppo.gae_lambda", float, "λ of the advantage estimate."),
    "--ppo-gamma": ("ppo.gamma", float, "Discount per decision."),
    "--max-grad-norm": ("ppo.max_grad_norm", float, "Largest norm of a gradient; longer ones are cut."),
    "--ppo-value-clip": ("ppo.value_clip", float, "Clip range of the value."),
}
SWITCHES: dict[str, tuple[str, str]] = {
    "--replay-shuffle": ("training.replay.shuffle", "Shuffle samples by seed and epoch."),
    "--replay-drop-last": ("training.replay.drop_last", "Leave out a last, smaller batch."),
    "--replay-streaming": ("training.replay.streaming", "Read samples while training."),
    "--rollout-auto-seed-agents": ("training.rollout_auto_seed_agents", "Place residents when the scenario has none."),
    "--ppo-log-batches": ("telemetry.batches", "Also write a record per mini-batch."),
}
WHERE = ("engine", "workers", "address")  # change no bit: a run may be resumed with others
BOTH_WAYS = {"--ppo-normalize-advantages/--ppo-no-normalize-advantages": "ppo.advantage_normalization"}


def founding_flags(function: Callable[..., object]) -> Callable[..., object]:
    """Every flag of the founding documents, as one decorator."""
    options = [
        click.option("--recipe", metavar="NAME", help="Train with the settings of a shipped config, such as demo."),
        click.option("--replay-sample", type=FILE, help="One replay sample (.npz) instead of a manifest."),
        click.option("--replay-meta", type=FILE, help="Metadata of that sample, if it is not next to it."),
        click.option("--train-ppo", is_flag=True, help="Train on the replay data with PPO, instead of only reading it."),
        click.option("--anneal-log-dir", type=PATH, help="Folder of the anneal log and its summary."),
        click.option("--anneal-exit-on-failure", is_flag=True, help="Exit with 1 unless the anneal run passes."),
        click.option("--rollout-save-dir", type=PATH, help="Capture a rollout into this folder and train on it."),
        click.option("--ppo-log", "--ppo-ndjson", "ppo_log", type=PATH, help="Telemetry log; by default in the run folder."),
        click.option("--run-dir", type=PATH, help="Folder of the run; by default the next free one under runs/."),
        click.option(
            "--resume", type=PATH, metavar="RUN", help="Continue a run; the result is the same as without the stop, bit for bit."
        ),
        click.option("--allow-inexact", is_flag=True, help="Also resume with other versions or threads; the result may differ."),
        click.option("--start-from", type=PATH, metavar="CHECKPOINT", help="Start with the network of this checkpoint."),
        click.option("--plots/--no-plots", default=True, help="Draw curves.png into the run folder (needs matplotlib)."),
        click.option("--dry-run", is_flag=True, help="Check everything and say what would be done; write nothing."),
    ]
    options += [click.option(flag, type=kind, default=None, help=text) for flag, (_, kind, text) in VALUES.items()]
    options += [click.option(flag, is_flag=True, default=None, help=text) for flag, (_, text) in SWITCHES.items()]
    options += [click.option(flag, default=None, help="Normalise advantages per mini-batch.") for flag in BOTH_WAYS]
    for option in reversed([*options, set_option, seed_option, json_option]):
        function = option(function)
    return function


def overrides_of(flags: Flags) -> tuple[str, ...]:
    """The flags that were given as `key=value`, so that they are checked like the config itself."""
    from townlet.config.loader import GivenAs

    keys = {flag: key for flag, (key, *_) in VALUES.items()} | {flag: key for flag, (key, _) in SWITCHES.items()} | BOTH_WAYS
    found = list(flags["overrides"])
    for flag, key in keys.items():
        on, _, off = flag.partition("/")
        value = flags[on.removeprefix("--").replace("-", "_")]
        if isinstance(value, bool):
            found.append(GivenAs.of(f"{key}={str(value).lower()}", on if value else off))
        elif value is not None:
            found.append(GivenAs.of(f"{key}={value}", f"{on} {value}"))
    if flags["train_ppo"] and flags["resume"] is None:
        found.append(GivenAs.of("training.algorithm=ppo", "--train-ppo"))
    if flags["seed"] is not None:
        found.append(GivenAs.of(f"seed={flags['seed']}", f"--seed {flags['seed']}"))
    return tuple(found)


@click.command()
@click.argument("config", required=False)
@founding_flags
def train(config: str | None, **flags: object) -> None:
    """Train in the town of CONFIG (a file or a shipped name) and keep the run in a folder.

    \b
    Examples:
      townlet train town_day --mode anneal --run-dir runs/first
      townlet train bakery.yaml --recipe demo
      townlet train town_day --mode rollout --set ppo.learning_rate=1e-4
      townlet train --resume runs/first
    """
    train_command(config, flags, always_train=True)


def train_command(source: str | None, flags: Flags, *, always_train: bool) -> None:
    from townlet.cli.train_progress import TrainingProgress
    from townlet.policy.training.contexts import RunOptions
    from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator
    from townlet.policy.training.run_folder import next_free

    flags = {**flags, "engine": engine_for(flags["engine"], flags["address"])}
    config, run_dir = _config(source, flags)
    dataset = _single_sample(config, flags)
    mode = _mode(config, dataset, flags)
    _check_data(mode, flags)
    if flags["rollout_save_dir"] is not None:
        _save_rollout(config, flags)
        if not always_train and not flags["train_ppo"] and flags["mode"] is None:
            return
        config, mode = _on_saved(config, flags["rollout_save_dir"], mode, ppo=flags["mode"] == "rollout")
    _check_algorithm(mode, flags)
    watcher = TrainingProgress(quiet=flags["as_json"])
    orchestrator = PolicyTrainingOrchestrator(config, progress=watcher)
    asked = ("algorithm", "resume", "rollout_save_dir")
    trains = always_train or flags["train_ppo"] or any(flags[name] is not None for name in asked)
    if mode == "replay" and not trains:
        _iterate(orchestrator, dataset, flags["as_json"])
        return
    log = flags["ppo_log"]
    if flags["anneal_log_dir"] is not None:
        log = log or flags["anneal_log_dir"] / config.telemetry.file
    if run_dir is None and not flags["dry_run"]:
        run_dir = next_free(config.config_id, mode)
    options = RunOptions(
        dataset=dataset,
        run_dir=run_dir,
        resume=flags["resume"] is not None,
        log_path=log,
        start_from=flags["start_from"],
        allow_inexact=flags["allow_inexact"],
        command=tuple(sys.argv[1:]),
        dry_run=flags["dry_run"],
    )
    with watcher:
        try:
            result = orchestrator.run(mode, options)
        except InterruptedRun as error:
            error.args = (f"{error}; continue with `townlet train --resume {run_dir}`",)
            raise
    _publish(result, f"{config.config_id}, {mode}", flags, plots=flags["plots"] and mode != "bc")


def _mode(config: SimulationConfig, dataset: ReplayDatasetConfig | None, flags: Flags) -> str:
    """The mode of the run that is resumed, or that of the config; where data were named and no mode, replay is meant."""
    from townlet.policy.training.run_folder import RunFolder

    training = config.training
    if flags["resume"] is not None:
        return RunFolder(flags["resume"]).card().mode
    has_data = dataset is not None or training.replay_manifest or training.capture_dir
    return "replay" if has_data and flags["mode"] is None and training.source == "rollout" else training.source


def _check_data(mode: str, flags: Flags) -> None:
    from townlet.policy.training.orchestrator import REPLAY_MODES

    if flags["bc_manifest"] is not None and mode not in ("bc", "anneal"):
        raise UsageError(f"--bc-manifest names demonstrations, which the mode {mode} does not clone; use --mode bc or anneal")
    for flag in ("replay_manifest", "capture_dir"):
        if flags[flag] is not None and mode not in REPLAY_MODES:
            told = f"--{flag.replace('_', '-')} names data, which the mode {mode} does not read"
            raise UsageError(f"{told}; use --mode replay or mixed, or name demonstrations for cloning with --bc-manifest")


def _check_algorithm(mode: str, flags: Flags) -> None:
    if flags["anneal_exit_on_failure"] and mode != "anneal":
        raise UsageError(f"--anneal-exit-on-failure judges an anneal run, the mode is {mode}; leave one of them out")
    if flags["train_ppo"] and mode in ("bc", "anneal"):
        raise UsageError(f"--train-ppo trains with PPO, the mode is {mode}; leave one of them out")
    if flags["algorithm"] is not None and (flags["train_ppo"] or mode != "replay"):
        other = "--train-ppo says PPO" if flags["train_ppo"] else f"the mode is {mode}"
        raise UsageError(f"--algorithm is how stored data are learned from, but {other}; leave one of them out")


def _publish(result: TrainingResult, title: str, flags: Flags, *, plots: bool) -> None:
    """Write the summary and the curves that were asked for, print the result, leave with its exit code."""
    from townlet.cli.train_progress import result_text
    from townlet.dto.policy import AnnealSummary
    from townlet.sealed import write_sealed

    value = result.model_dump(mode="json")
    if flags["anneal_log_dir"] is not None and not flags["dry_run"]:
        write_sealed(flags["anneal_log_dir"] / "anneal_summary.json", value)
    if plots and not flags["dry_run"]:
        _draw(result, title)
    emit(value, lambda: result_text(result), flags["as_json"])
    failed = isinstance(result, AnnealSummary) and result.status != "PASS"
    leave(1 if flags["anneal_exit_on_failure"] and failed else 0)


def _config(source: str | None, flags: Flags) -> tuple[SimulationConfig, Path | None]:
    """The config to train with, and the run folder: of the run that is resumed, or as the flags say."""
    from townlet.config.loader import load_config, override_words
    from townlet.policy.training.run_folder import RunFolder

    overrides = overrides_of(flags)
    if flags["resume"] is None:
        if source is None:
            raise UsageError(
                "there is nothing to train on; name a scenario, such as town_day, or continue a run with --resume RUN"
            )
        config = load_config(source, overrides, recipe=flags["recipe"])
        if flags["epochs"] is not None:
            config = load_config(source, (*overrides, config.training.with_epochs(flags["epochs"])), recipe=flags["recipe"])
        return config, flags["run_dir"]
    extra = [f"--{name.replace('_', '-')}" for name in ("run_dir", "recipe", "rollout_save_dir") if flags[name] is not None]
    moved = {f"{VALUES[f'--{name}'][0]}={flags[name]}" for name in WHERE if flags[name] is not None}
    extra = [*(override_words(word) for word in overrides if word not in moved), *extra]
    if extra:
        raise UsageError(f"a resumed run keeps its settings; leave out {extra[0]}")
    run = RunFolder(flags["resume"])
    config = run.resolved_config()
    own = config.training
    workers = own.workers if flags["workers"] is None else flags["workers"]
    where = spread_over(config, flags["engine"] or own.engine, workers, flags["address"])
    return config.model_copy(update={"training": where}), run.path


def _single_sample(config: SimulationConfig, flags: Flags) -> ReplayDatasetConfig | None:
    from townlet.policy.replay import ReplayDatasetConfig, ReplayEntry

    if flags["replay_sample"] is None:
        if flags["replay_meta"] is not None:
            raise UsageError("--replay-meta belongs to a sample; name it with --replay-sample")
        return None
    if config.training.replay_manifest is not None:
        raise UsageError("--replay-sample and --replay-manifest both name data; give one of them")
    entry = ReplayEntry.of(flags["replay_sample"], flags["replay_meta"])
    source = flags["replay_sample"] if flags["replay_meta"] is None else None
    return ReplayDatasetConfig(entries=(entry,), batch_size=1, label=flags["replay_sample"].stem, source=source)


def _save_rollout(config: SimulationConfig, flags: Flags) -> None:
    """`--rollout-save-dir`: a rollout of `--rollout-ticks` goes into that folder."""
    from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator

    other = [flag for flag in ("replay_manifest", "capture_dir", "replay_sample", "bc_manifest") if flags[flag] is not None]
    if other:
        raise UsageError(f"--rollout-save-dir and --{other[0].replace('_', '-')} both name the data; give one of them")
    if flags["dry_run"]:
        raise UsageError("--rollout-save-dir writes a capture and --dry-run writes nothing; leave one of them out")
    folder = flags["rollout_save_dir"]
    captured = PolicyTrainingOrchestrator(config).capture_rollout(output_dir=folder)
    if not len(captured):
        raise UsageError(
            f"nothing was captured into {folder}: {config.config_id} has no residents, or --rollout-ticks is less than one "
            "decision; use --rollout-auto-seed-agents, or more ticks"
        )
    note(f"captured {len(captured)} samples, {sum(sample.steps for sample in captured.samples)} decisions in {folder}")


def _on_saved(config: SimulationConfig, folder: Path, mode: str, *, ppo: bool) -> tuple[SimulationConfig, str]:
    """Config and mode to train on a saved rollout: cloning clones it, the others replay it; `--mode rollout` is PPO on it."""
    training = config.training
    changes: dict[str, object] = {"replay_manifest": None, "capture_dir": str(folder)}
    if mode in ("bc", "anneal"):
        changes["bc"] = training.bc.model_copy(update={"manifest": str(folder)})
    if ppo:
        changes["algorithm"] = "ppo"
    config = config.model_copy(update={"training": training.model_copy(update=changes)})
    return config, "replay" if mode == "rollout" else mode


def _iterate(orchestrator: PolicyTrainingOrchestrator, dataset: ReplayDatasetConfig | None, as_json: bool) -> None:
    def show(batch: ReplayBatchSummary) -> None:
        if not as_json:
            click.echo(
                f"batch {batch.batch}: {batch.samples} sample(s), {batch.transitions} decisions, "
                f"rivalry_max mean {batch.rivalry_max_mean:.3f} max {batch.rivalry_max_max:.3f}, "
                f"rivalry_avoid_count mean {batch.rivalry_avoid_count_mean:.3f} max {batch.rivalry_avoid_count_max:.3f}, "
                f"{_queues(batch)}"
            )

    summary = orchestrator.run_replay_dataset(dataset, show)
    baseline = ", ".join(f"{name} {value:.4g}" for name, value in summary.baseline.items())
    text = f"{summary.dataset}: {summary.samples} samples, {summary.transitions} decisions; baseline {baseline}"
    emit(summary.model_dump(mode="json"), text, as_json)


def _queues(batch: ReplayBatchSummary) -> str:
    if batch.queue_conflict_events is None or batch.queue_conflict_intensity_sum is None:
        return "queue conflicts not recorded"
    return f"queue conflicts {batch.queue_conflict_events:.0f} of intensity {batch.queue_conflict_intensity_sum:.2f}"


def _draw(result: TrainingResult, title: str) -> None:
    from townlet.optional import installed
    from townlet.telemetry.plot import plot_logs

    log = result.model_dump().get("telemetry_log")
    if log is None or result.run_dir is None or not Path(log).exists() or not installed("matplotlib"):
        return
    try:
        plot_logs([log], Path(result.run_dir) / "curves.png", title=title)
    except (StorageError, TelemetryError, MissingPackageError) as error:  # the training itself is done
        note(f"no curves.png: {error}")
