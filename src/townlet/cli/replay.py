"""`townlet replay inspect | validate | stats | filter | export`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from townlet.cli.common import COUNT_OR_ZERO, NAME, NUMBER, PATH, Group, emit, json_option, leave, note

path_argument = click.argument("path", type=PATH)
step_option = click.option(
    "--step", type=COUNT_OR_ZERO, default=0, show_default=True, help="Decision to show of a single sample."
)


@click.group(cls=Group)
def replay() -> None:
    """Look at replay data. PATH is a sample (.npz), a manifest (.json, .yaml) or a capture folder.

    \b
    Examples:
      townlet replay validate runs/demos
      townlet replay stats docs/samples/replay_manifest.json
      townlet replay export runs/demos --format parquet --output demos.parquet
    """


@replay.command()
@path_argument
@json_option
def validate(path: Path, as_json: bool) -> None:
    """Check everything and report all problems. Exits with 1 when there is one.

    \b
    Example:
      townlet replay validate runs/demos
    """
    from townlet.policy.replay_report import validate as check

    report = check(path)
    verdict = "valid" if report.ok else f"{len(report.problems)} problem{'s' * (len(report.problems) > 1)}"
    lines = [f"{path}: {report.samples} samples, {report.transitions} decisions: {verdict}"]
    lines += [f"  {problem}" for problem in report.problems] + [f"  note: {text}" for text in report.notes]
    emit(asdict(report) | {"ok": report.ok}, "\n".join(lines), as_json)
    leave(0 if report.ok else 1)


@replay.command()
@path_argument
@step_option
@json_option
def inspect(path: Path, step: int, as_json: bool) -> None:
    """Show the samples of a dataset, or one decision of a sample.

    \b
    Examples:
      townlet replay inspect runs/demos
      townlet replay inspect runs/demos/rollout_sample_alice_000.npz --step 3
    """
    from townlet.policy.replay_report import dataset_table, sample_view, view_text
    from townlet.telemetry.drawing import table

    if path.suffix == ".npz":
        view = sample_view(path, step)
        emit(view.model_dump(mode="json"), lambda: view_text(view), as_json)
        return
    head, rows = dataset_table(path)
    emit([dict(zip(head, row)) for row in rows], lambda: "\n".join(table(head, [[str(c) for c in row] for row in rows])), as_json)


@replay.command()
@path_argument
@click.option("--plot", type=PATH, help="Also draw the histograms into this PNG or SVG.")
@json_option
def stats(path: Path, plot: Path | None, as_json: bool) -> None:
    """Show sizes, rewards, conflicts, rivalry and queues of a dataset.

    \b
    Example:
      townlet replay stats runs/demos --plot stats.png
    """
    from townlet.policy.replay_report import stats as figures
    from townlet.policy.replay_report import stats_text

    found = figures(path)
    value = asdict(found) | {"bytes_per_resident_day": found.bytes_per_resident_day}
    emit(value, lambda: stats_text(found), as_json)
    if plot is not None:
        from townlet.telemetry.plot import plot_histograms

        plot_histograms(found.histograms, plot, title=f"{found.label}: {found.transitions} decisions")
        note(f"drawn into {plot}")


@replay.command("filter")
@path_argument
@click.option("--output", type=PATH, required=True, help="Capture folder to make.")
@click.option("--agent-id", "--agent", "agents", type=NAME, multiple=True, help="Keep this resident; may be repeated.")
@click.option("--scenario", "scenarios", type=NAME, multiple=True, help="Keep this scenario; may be repeated.")
@click.option("--min-length", type=COUNT_OR_ZERO, default=0, help="Keep lives of at least this many decisions.")
@click.option("--min-reward", type=NUMBER, help="Keep lives whose rewards sum to at least this.")
@click.option("--overwrite", is_flag=True, help="Move an existing folder aside.")
@json_option
def filter_(
    path: Path,
    output: Path,
    agents: tuple[str, ...],
    scenarios: tuple[str, ...],
    min_length: int,
    min_reward: float | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Copy the samples that pass into a new capture folder.

    \b
    Example:
      townlet replay filter runs/demos --output runs/alice --agent alice
    """
    from townlet.policy.capture_folder import SampleFilter, filter_samples

    keep = SampleFilter(agents, scenarios, min_length, min_reward)
    kept, seen = filter_samples(path, output, keep, overwrite=overwrite)
    emit({"kept": kept, "of": seen, "folder": str(output)}, f"{kept} of {seen} samples → {output}", as_json)


@replay.command()
@path_argument
@click.option(
    "--format", "kind", type=click.Choice(["minari", "parquet", "joint", "vault"]), required=True, help="One of those above."
)
@click.option("--output", type=PATH, required=True, help="Parquet file, or folder of datasets or Vaults.")
@click.option("--overwrite", is_flag=True, help="Replace a file, move a folder aside.")
@json_option
def export(path: Path, kind: str, output: Path, overwrite: bool, as_json: bool) -> None:
    """Write the data for other tools.

    \b
    parquet  a table with a row per decision of a resident
    joint    a table with a row per town and decision, all residents side by side
    minari   a Minari dataset per scenario, each life an episode
    vault    a flashbax Vault per scenario, as OG-MARL reads it: joint episodes

    \b
    Example:
      townlet replay export runs/demos --format parquet --output demos.parquet
    """
    from townlet.policy import exports

    write = {
        "parquet": exports.export_parquet,
        "joint": exports.export_joint,
        "minari": exports.export_minari,
        "vault": exports.export_vault,
    }
    result = write[kind](path, output, overwrite=overwrite)
    emit(result, "\n".join(f"{name}: {value}" for name, value in result.items()), as_json)


@click.command()
@path_argument
@click.option("--validate", "check", is_flag=True, help="Check everything; exit code 1 when something is wrong.")
@step_option
@json_option
@click.pass_context
def run_replay(context: click.Context, path: Path, check: bool, step: int, as_json: bool) -> None:
    """Show or check a replay sample, a manifest or a capture folder.

    \b
    Example:
      python scripts/run_replay.py docs/samples/observation_hybrid_sample_base.npz --validate
    """
    if check:
        context.invoke(validate, path=path, as_json=as_json)
    else:
        context.invoke(inspect, path=path, step=step, as_json=as_json)
