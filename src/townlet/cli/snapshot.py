"""`townlet snapshot`: save, load and compare worlds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from townlet.cli.common import (
    FILE,
    POLICY,
    SEED,
    TICKS,
    Group,
    Whole,
    at_option,
    emit,
    json_option,
    leave,
    overwrite_option,
    seed_option,
    set_option,
    tick_of,
)
from townlet.cli.run import open_scenario
from townlet.errors import UsageError

if TYPE_CHECKING:
    from townlet.dto.snapshot import Divergence, SnapshotHeader
    from townlet.envs.vector import VectorTown
    from townlet.policy.runtime import RememberingPolicy
    from townlet.sim.snapshot import Snapshot

SHOWN = 20


@click.group(cls=Group)
def snapshot() -> None:
    """Worlds in a file: save one, continue it exactly, compare two, find where two runs begin to differ.

    \b
    Example:
      townlet snapshot save town_day runs/noon.npz --at 12:00
    """


@snapshot.command()
@click.argument("scenario")
@click.argument("file", type=FILE)
@at_option
@click.option("--policy", default="schedule", show_default=True, help=POLICY)
@click.option("--compress", is_flag=True, help="Compress the arrays.")
@overwrite_option
@seed_option
@set_option
@json_option
def save(
    scenario: str,
    file: Path,
    at: str | None,
    policy: str,
    compress: bool,
    overwrite: bool,
    seed: int | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run SCENARIO for some ticks and put the world into FILE.

    \b
    Example:
      townlet snapshot save town_day runs/noon.npz --at 12:00
    """
    from townlet.files import check_free
    from townlet.policy.runtime import make_policy
    from townlet.sim.loop import SimulationLoop
    from townlet.sim.snapshot import save_snapshot, take_snapshot

    check_free(file, overwrite)
    vec = open_scenario(scenario, overrides, seed, policy)
    decides = make_policy(policy, vec, seed=vec.seed)
    if ticks := tick_of(vec.config, at):
        SimulationLoop(vec, decides).run(ticks)
    taken = take_snapshot(vec, policy=policy, memory=decides.memory())
    save_snapshot(taken, file, compress=compress or vec.config.snapshot.compress)
    _show(taken.header, f"saved to {file}", as_json, {"file": str(file)})


@snapshot.command()
@click.argument("file", type=FILE)
@click.option("--ticks", type=Whole(0, TICKS.max), default=0, show_default=True, help="Continue for this many ticks.")
@click.option("--policy", help="Who decides; by default the policy that was saved.")
@click.option("--config", "scenario", help="Refuse a snapshot that was not made with this config.")
@click.option("--output", type=FILE, help="Save the world again after those ticks.")
@overwrite_option
@set_option
@json_option
def load(
    file: Path,
    ticks: int,
    policy: str | None,
    scenario: str | None,
    output: Path | None,
    overwrite: bool,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Check FILE, say what it holds, and continue from there.

    \b
    Example:
      townlet snapshot load runs/noon.npz --ticks 120 --output runs/two.npz
    """
    from townlet.config.loader import load_config
    from townlet.files import check_free
    from townlet.sim.loop import SimulationLoop
    from townlet.sim.snapshot import load_snapshot, save_snapshot, take_snapshot

    if output is not None:
        check_free(output, overwrite)
    found = load_snapshot(file, None if scenario is None else load_config(scenario, overrides))
    vec, decides, spec = _resume(found, policy)
    made = SimulationLoop(vec, decides).run(ticks) if ticks else 0
    taken = take_snapshot(vec, policy=spec, memory=decides.memory(), start=found.header.start)
    if output is not None:
        save_snapshot(taken, output, compress=vec.config.snapshot.compress)
    words = f"{file} is valid" + (f"; {made} ticks later" if made else "") + (f", saved to {output}" if output else "")
    _show(
        taken.header, words, as_json, {"file": str(file), "ticks_made": made, "output": None if output is None else str(output)}
    )


@snapshot.command()
@click.argument("a", type=FILE)
@click.argument("b", type=FILE)
@json_option
def diff(a: Path, b: Path, as_json: bool) -> None:
    """Every value in which the worlds of two snapshots differ. Exits with 1 when there is one.

    \b
    Example:
      townlet snapshot diff runs/noon.npz runs/two.npz
    """
    from townlet.sim.divergence import differences
    from townlet.sim.snapshot import load_snapshot, open_town

    one, two = load_snapshot(a), load_snapshot(b)
    if (one.header.num_towns, one.header.action_catalogue_hash) != (two.header.num_towns, two.header.action_catalogue_hash):
        raise UsageError(f"{a} and {b} have different towns or actions; compare snapshots of one scenario")
    found = list(differences(open_town(one), open_town(two)))
    value = {"a": str(a), "b": str(b), "count": len(found), "differences": [item.model_dump() for item in found]}
    emit(value, lambda: _differences_text(found, f"{a} and {b}"), as_json)
    leave(1 if found else 0)


@snapshot.command()
@click.argument("a")
@click.argument("b")
@click.option("--ticks", type=TICKS, help="Ticks to compare; by default an episode.")
@click.option("--policy-a", default="schedule", show_default=True, help="Who decides in A: " + POLICY)
@click.option("--policy-b", default="schedule", show_default=True, help="Who decides in B.")
@click.option("--seed-a", type=SEED, help="Seed of A instead of that of its config.")
@click.option("--seed-b", type=SEED, help="Seed of B instead of that of its config.")
@click.option("--set-a", multiple=True, metavar="KEY=VALUE", help="Config key of A; may be repeated.")
@click.option("--set-b", multiple=True, metavar="KEY=VALUE", help="Config key of B; may be repeated.")
@json_option
def bisect(
    a: str,
    b: str,
    ticks: int | None,
    policy_a: str,
    policy_b: str,
    seed_a: int | None,
    seed_b: int | None,
    set_a: tuple[str, ...],
    set_b: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run A and B side by side and find their first difference. A and B are scenarios or snapshots.

    Exits with 1 when there is one.

    \b
    Examples:
      townlet snapshot bisect town_day town_day --set-b conflict.quarrel_ticks=6
      townlet snapshot bisect runs/noon.npz runs/noon.npz --policy-b random
    """
    from townlet.sim.divergence import first_divergence

    one, decides_a = _open(a, policy_a, seed_a, set_a)
    two, decides_b = _open(b, policy_b, seed_b, set_b)
    length = ticks or one.config.scenario.episode_ticks
    found, compared = first_divergence(one, two, decides_a, decides_b, length)
    value = {"a": a, "b": b, "same_ticks": compared, "divergence": None if found is None else found.model_dump()}
    emit(value, lambda: _divergence_text(found, compared), as_json)
    leave(0 if found is None else 1)


# --- parts ---------------------------------------------------------------------------------------------------------------


def _resume(found: Snapshot, policy: str | None) -> tuple[VectorTown, RememberingPolicy, str]:
    """The towns of a snapshot and whoever decided in them, with its memory when it is the same one."""
    from townlet.policy.runtime import make_policy
    from townlet.sim.snapshot import open_town

    vec = open_town(found)
    spec = policy or found.header.policy or "schedule"
    decides = make_policy(spec, vec, seed=vec.seed)
    if spec == found.header.policy:
        decides.recall(found.memory)
    return vec, decides, spec


def _open(name: str, policy: str, seed: int | None, overrides: tuple[str, ...]) -> tuple[VectorTown, RememberingPolicy]:
    from townlet.policy.runtime import make_policy
    from townlet.sim.snapshot import load_snapshot

    if not (name.endswith((".npz", ".snapshot")) and Path(name).is_file()):
        vec = open_scenario(name, overrides, seed, policy)
        return vec, make_policy(policy, vec, seed=vec.seed)
    if overrides or seed is not None:
        raise UsageError(f"{name} is a snapshot, which has its own config and seed; leave out --set and --seed for it")
    vec, decides, _ = _resume(load_snapshot(name), policy)
    return vec, decides


def _show(header: SnapshotHeader, words: str, as_json: bool, more: dict[str, object]) -> None:
    shown = header.model_dump(exclude={"config"})
    text = [words, *(f"  {key:<22}{value}" for key, value in shown.items() if value not in (None, ""))]
    emit(shown | more, "\n".join(text), as_json)


def _line(found: Divergence) -> str:
    whose = found.resident or found.object_id or found.table
    return f"tick {found.tick:<6} {whose:<16} {found.field:<24} {found.a}  →  {found.b}"


def _differences_text(found: list[Divergence], what: str) -> str:
    if not found:
        return f"{what} are equal"
    more = [f"… and {len(found) - SHOWN} more (--json has all)"] if len(found) > SHOWN else []
    return "\n".join([f"{len(found)} values differ:", *(_line(item) for item in found[:SHOWN]), *more])


def _divergence_text(found: Divergence | None, compared: int) -> str:
    if found is None:
        return f"the two runs are the same for {compared} ticks"
    whose = found.resident or found.object_id or "the town"
    return f"the two runs differ from tick {found.tick}: {whose}, {found.field} ({found.table}): {found.a} in A, {found.b} in B"
