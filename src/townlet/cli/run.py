"""`townlet run`: simulate a scenario."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from townlet.cli.common import emit, interactive, json_option, seed_option, set_option

if TYPE_CHECKING:
    from townlet.envs.vector import VectorTown
    from townlet.sim.probes import Counts


from townlet.envs.scene import Figure, Scene, look
from townlet.envs.vector import VectorTown
from townlet.ports import Decided
from townlet.sim.probes import Counts, Probe
from townlet.world.events import EXIT, QUARREL, QUEUE_CONFLICT, USE_START

PATH = click.Path(path_type=Path, dir_okay=False)
POLICY = "scripted, random, schedule (orders of the scenario, else the script), or the folder of a checkpoint or a run."

EXITS_TOLD = {"collapse": "collapsed of hunger", "eviction": "was evicted", "scheduled": "left as scheduled"}
MOST_EXITS = 24


def open_scenario(scenario: str, overrides: tuple[str, ...], seed: int | None) -> VectorTown:
    """One town of a scenario."""
    from townlet.config.loader import load_config

    config = load_config(scenario, overrides)  # its mistakes are told before anything is compiled
    from townlet.envs.vector import VectorTown

    return VectorTown(config, 1, seed=seed)


@click.command(short_help="Simulate a scenario, with a live table of residents and queues.")
@click.argument("scenario")
@click.option("--ticks", type=click.IntRange(1), help="Minutes to simulate, in whole decisions; by default an episode.")
@click.option("--policy", default="schedule", show_default=True, help=POLICY)
@click.option("--epsilon", type=click.FloatRange(0, 1), default=0.0, show_default=True, help="Share of random choices.")
@click.option("--events", type=PATH, help="Write every event to this NDJSON file.")
@click.option("--snapshot", type=PATH, help="Save the world at the end (and every snapshot.every_ticks) to this file.")
@click.option(
    "--follow", metavar="RESIDENT", help="Follow one resident: what it chose, what it saw, and why other actions were impossible."
)
@click.option("--render", type=PATH, help="A picture of the end (.png) or a film of the run (.gif).")
@click.option("--digests", type=PATH, help="Write the digest after every decision to this NDJSON file.")
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
@seed_option
@set_option
@json_option
def run(
    scenario: str,
    ticks: int | None,
    policy: str,
    epsilon: float,
    events: Path | None,
    snapshot: Path | None,
    follow: str | None,
    render: Path | None,
    digests: Path | None,
    overwrite: bool,
    seed: int | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Simulate SCENARIO (a config file or a shipped name) and show how its residents are doing.

    On a terminal a live table shows residents, needs, queues and conflicts. Ctrl-C ends the run and keeps what was made.

    \b
    Examples:
      townlet run town_day
      townlet run queue_conflict --ticks 200 --follow alice
      townlet run rush_hour --events runs/rush.ndjson --render runs/rush.gif
    """
    from townlet.envs.render import check_picture_name, write_picture
    from townlet.files import check_free
    from townlet.policy.runtime import make_policy
    from townlet.signals import StopFlag
    from townlet.sim.loop import SimulationLoop
    from townlet.sim.probes import Counts, Digests, EventLog, Exits, Film, Follow, SnapshotEvery
    from townlet.sim.snapshot import save_snapshot, take_snapshot

    for path in (events, snapshot, render, digests):
        if path is not None:
            check_free(path, overwrite)
    if render is not None:
        check_picture_name(render)
    vec = open_scenario(scenario, overrides, seed)
    decides = make_policy(policy, vec, epsilon=epsilon, seed=vec.seed)
    wanted = ticks or vec.config.scenario.episode_ticks
    counts, exits = Counts(), Exits()
    loop = SimulationLoop(vec, decides, [counts, exits])
    film, marks = Film(), Digests()
    follows = Follow(follow, vec, (lambda text: None) if as_json else click.echo) if follow is not None else None
    if follows is not None:
        loop.hooks.append(follows)
    if events is not None:
        loop.hooks.append(EventLog(events, overwrite=overwrite))
    if render is not None and render.suffix.lower() == ".gif":
        loop.hooks.append(film)
    if digests is not None:
        loop.hooks.append(marks)
    if snapshot is not None and vec.config.snapshot.every_ticks is not None:
        loop.hooks.append(SnapshotEvery(snapshot, vec.config.snapshot.every_ticks, policy))
    if interactive() and not as_json and follow is None:
        from townlet.cli.run import RunTable

        loop.hooks.append(RunTable(vec, counts, wanted))
    began = time.perf_counter()
    stop = StopFlag()

    def stopped() -> bool:
        stop.begun = loop.ticks > 0
        return stop.asked != 0

    with stop:
        try:
            made = loop.run(wanted, stop=stopped)
        finally:
            loop.finish()
    seconds = time.perf_counter() - began
    if snapshot is not None:
        save_snapshot(take_snapshot(vec, policy=policy, memory=decides.memory()), snapshot, compress=vec.config.snapshot.compress)
    if render is not None:
        film.finish(vec) if not film.frames else None
        write_picture(render, film.frames)
    if digests is not None:
        _write_digests(digests, marks.rows)
    report = summary(vec, counts, policy=policy, ticks=made, seconds=seconds)
    report["exits"] = exits.rows
    report["files"] = [str(path) for path in (events, snapshot, render, digests) if path is not None]
    if follows is not None:
        report["followed"] = follows.rows
    emit(report, lambda: told(vec, report), as_json)
    if stop.asked:
        raise stop.interruption(f"after {made} of {wanted} ticks; what was made is kept")


def _write_digests(path: Path, rows: list[tuple[int, int, str]]) -> None:
    import json

    from townlet.files import write_text

    lines = (json.dumps({"episode": episode, "tick": tick, "digest": digest}) for episode, tick, digest in rows)
    write_text(path, "".join(line + "\n" for line in lines))


def summary(vec: VectorTown, counts: Counts, *, policy: str, ticks: int, seconds: float) -> dict[str, Any]:
    from townlet.world.events import QUEUE_CONFLICT, USE_START
    from townlet.world.state import TERMS

    events = counts.events
    days = max(1e-9, ticks * vec.num_residents / vec.config.world.ticks_per_day)
    return {
        "scenario": vec.config.scenario.name or vec.config.config_id,
        "config_hash": vec.config_hash,
        "seed": vec.seed,
        "policy": policy,
        "ticks": ticks,
        "residents": vec.num_residents,
        "ticks_per_second": ticks / max(1e-9, seconds),
        "decisions": counts.decisions,
        "illegal_actions": counts.illegal,
        "events": dict(sorted(events.by_kind().items())),
        "events_lost": vec.events_lost,
        "conflicts": {reason: count for reason, count in sorted(events.by_reason().items()) if count},
        "conflict_intensity": events.intensity,
        "conflicts_per_resident_day": events.count(QUEUE_CONFLICT) / days,
        "uses_per_resident_day": events.count(USE_START) / days,
        "reward_per_resident_day": float(counts.reward.sum()) / days,
        "reward_terms": dict(zip(TERMS, (counts.reward / days).tolist())),
        "digest": vec.digest(),
    }


def exit_lines(exits: list[dict[str, Any]]) -> list[str]:
    """How many left and why, then who and when."""
    counts = Counter(one["reason"] for one in exits)
    lines = ["exits: " + (", ".join(f"{count} {reason}" for reason, count in sorted(counts.items())) or "none")]
    lines += [f"  day {one['day']} {one['time']} {one['resident']}: {EXITS_TOLD[one['reason']]}" for one in exits[:MOST_EXITS]]
    return lines + ([f"  … and {len(exits) - MOST_EXITS} more"] if len(exits) > MOST_EXITS else [])


def told(vec: VectorTown, report: dict[str, Any]) -> str:
    from townlet.cli.run import plain_table
    from townlet.envs.scene import look

    scene = look(vec)
    reasons = ", ".join(f"{count} {reason}" for reason, count in report["conflicts"].items()) or "none"
    lines = [
        f"{report['scenario']}, seed {report['seed']}, {report['policy']}: "
        f"{report['ticks']} ticks to day {scene.day} {scene.time}, "
        f"{report['ticks_per_second']:,.0f} ticks/s",
        "",
        *plain_table(scene),
        "",
        *exit_lines(report["exits"]),
        f"conflicts: {reasons}; {report['events'].get('quarrel', 0)} quarrels",
        f"per resident-day: {report['conflicts_per_resident_day']:.2f} conflicts, {report['uses_per_resident_day']:.1f} uses, "
        f"reward {report['reward_per_resident_day']:+.2f}",
    ]
    if report["events_lost"]:
        lines.append(f"{report['events_lost']} events did not fit into their columns; raise world.event_capacity")
    lines += [f"→ {name}" for name in report["files"]]
    return "\n".join(lines)


MOST_ROWS = 24
REFRESH = 0.1  # seconds
BAR = 8
SHARES = " ▏▎▍▌▋▊▉█"


def bar(level: float) -> str:
    """A need as a bar of eighths."""
    eighths = round(max(0.0, min(1.0, level)) * BAR * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (SHARES[rest] if rest else "")).ljust(BAR)


def need_style(level: float) -> str:
    return "green" if level >= 0.5 else "yellow" if level >= 0.25 else "bold red"


class RunTable(Probe):
    """Draws the town on the terminal a few times a second, whatever the speed of the run."""

    def __init__(self, vec: VectorTown, counts: Counts, ticks: int) -> None:
        from rich.console import Console
        from rich.live import Live

        self.counts, self.total, self.done = counts, ticks, 0
        self._began = self._drawn = time.perf_counter()
        self._live = Live(self._view(look(vec)), console=Console(stderr=True), auto_refresh=False, transient=True)
        self._live.start(refresh=True)

    def before_step(self, world: VectorTown, decision: Decided) -> None:
        self._tick = int(world.state.towns[0]["tick"])

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        self.done += max(0, int(world.state.towns[0]["tick"]) - self._tick)
        now = time.perf_counter()
        if now - self._drawn >= REFRESH:
            self._drawn = now
            self._live.update(self._view(look(world)), refresh=True)

    def finish(self, world: VectorTown) -> None:
        self._live.stop()

    def _view(self, scene: Scene) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        speed = self.done / max(1e-9, time.perf_counter() - self._began)
        head = Text(f"{scene.scenario}  day {scene.day}  {scene.time}", style="bold")
        head.append(f"   {self.done}/{self.total} ticks, {speed:,.0f} ticks/s", style="dim")
        table = Table(box=None, pad_edge=False)
        table.add_column("resident")
        for need in scene.need_names:
            table.add_column(need)
        for name in ("coins", "rivalry", "doing"):
            table.add_column(name, justify="left" if name == "doing" else "right")
        for one in scene.residents[:MOST_ROWS]:
            table.add_row(*self._row(one))
        lines: list[Any] = [head, table]
        if len(scene.residents) > MOST_ROWS:
            lines.append(Text(f"… and {len(scene.residents) - MOST_ROWS} more", style="dim"))
        for thing in scene.queues[:6]:
            lines.append(Text(f"{thing.id}: {thing.user or 'free'} ← {', '.join(thing.queue)}", style="magenta"))
        events = self.counts.events
        counted = ((QUEUE_CONFLICT, "conflicts"), (QUARREL, "quarrels"), (USE_START, "uses"))
        told = [f"{events.count(kind)} {name}" for kind, name in counted]
        told += [f"{events.count(EXIT)} exits"] if events.count(EXIT) else []
        told += [name.replace("_", " ") for name in scene.troubles]
        lines.append(Text(", ".join(told), style="red" if scene.clashes or scene.troubles else "dim"))
        return Group(*lines)

    @staticmethod
    def _row(one: Figure) -> tuple[Any, ...]:
        from rich.text import Text

        needs = [Text(bar(level), style=need_style(level)) for level in one.needs.values()]
        doing = Text(("quarrels, " if one.quarrels else "") + one.doing, style="red" if one.quarrels else "")
        return one.id, *needs, f"{one.wallet:.2f}", f"{one.rivalry:.2f}", doing


def plain_table(scene: Scene) -> list[str]:
    """The same for a file or a pipe."""
    lines = [f"{'resident':<14}" + "".join(f"{need:>9}" for need in scene.need_names) + f"{'coins':>8}{'rivalry':>9}  doing"]
    for one in scene.residents[:MOST_ROWS]:
        needs = "".join(f"{level:9.2f}" for level in one.needs.values())
        lines.append(f"{one.id:<14}{needs}{one.wallet:8.2f}{one.rivalry:9.2f}  {'quarrels, ' if one.quarrels else ''}{one.doing}")
    if len(scene.residents) > MOST_ROWS:
        lines.append(f"… and {len(scene.residents) - MOST_ROWS} more")
    return lines
