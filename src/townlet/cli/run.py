"""`townlet run`: simulate a scenario."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from townlet.cli.common import (
    COUNT_OR_ZERO,
    FILE,
    MANY_TOWNS,
    POLICY,
    SHARE,
    TICKS,
    Number,
    at_option,
    emit,
    engine_options,
    interactive,
    json_option,
    note,
    progress,
    seed_option,
    set_option,
    spread_over,
    tick_of,
)
from townlet.errors import UsageError
from townlet.signals import StopFlag

if TYPE_CHECKING:
    from townlet.config.learning import TrainingConfig
    from townlet.config.models import SimulationConfig
    from townlet.envs.scene import Scene
    from townlet.envs.vector import VectorTown
    from townlet.observer.follow import Follow
    from townlet.policy.runtime import RememberingPolicy
    from townlet.sim.probes import Counts, Probe
    from townlet.types import Record

MOST_ROWS = 24  # residents in a table
EXIT_WORDS = {"collapse": "collapsed", "eviction": "was evicted", "scheduled": "left as scheduled"}
MOST_EXITS = 24


def open_scenario(scenario: str, overrides: tuple[str, ...], seed: int | None, policy: str, town: int = 0) -> VectorTown:
    """One town of a scenario, as the policy knows it."""
    from townlet.config.loader import load_config
    from townlet.envs.vector import VectorTown
    from townlet.policy.runtime import fitted

    config = fitted(load_config(scenario, overrides), policy)
    return VectorTown(config, 1, seed=seed, first_town=town)


@click.command()
@click.argument("scenario", required=False)
@click.option("--scenario", "named", metavar="NAME|FILE", help="The scenario, in place of the argument.")
@click.option(
    "--towns",
    type=MANY_TOWNS,
    default=1,
    show_default=True,
    help="Number of towns; of several, only sums and digests are kept.",
)
@click.option("--town", type=COUNT_OR_ZERO, default=0, show_default=True, help="Number of the first town.")
@click.option("--ticks", type=TICKS, help="Minutes to simulate, in whole decisions; by default an episode.")
@click.option("--policy", default="schedule", show_default=True, help=POLICY)
@click.option("--epsilon", type=SHARE, default=0.0, show_default=True, help="Share of random choices.")
@click.option("--events", type=FILE, help="Write every event to this NDJSON file.")
@click.option("--snapshot", type=FILE, help="Save the world at the end (and every snapshot.every_ticks) to this file.")
@click.option("--speed", type=Number(0.1, 10_000), metavar="MIN/S", help="Watch the map, at this speed.")
@click.option("--follow", metavar="RESIDENT", help="Show each choice of this resident, why it was made, and what happened then.")
@at_option
@click.option("--render", type=FILE, help="A picture of the end (.png) or a film of the run (.gif).")
@click.option("--digests", type=FILE, help="Write the digest after every decision to this NDJSON file.")
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
@engine_options
@seed_option
@set_option
@json_option
def run(
    scenario: str | None,
    named: str | None,
    towns: int,
    town: int,
    ticks: int | None,
    policy: str,
    epsilon: float,
    events: Path | None,
    snapshot: Path | None,
    speed: float | None,
    follow: str | None,
    at: str | None,
    render: Path | None,
    digests: Path | None,
    overwrite: bool,
    engine: str | None,
    workers: int,
    address: str | None,
    seed: int | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Simulate SCENARIO (a config file or a shipped name) and show how its residents are doing.

    On a terminal a live table shows residents, needs, queues and conflicts; with --speed the map as well. With --at, what is
    shown and --ticks begin there. Ctrl-C ends the run and keeps what was made.

    \b
    Examples:
      townlet run town_day
      townlet run town_day --speed 20 --at 07:00
      townlet run town_day --follow alice --at 07:00 --ticks 120
      townlet run rush_hour --events runs/rush.ndjson --render runs/rush.gif
      townlet run town_day --towns 100 --workers 2 --policy random
    """
    from townlet.config.loader import load_config
    from townlet.policy.runtime import fitted, make_policy
    from townlet.sim.loop import SimulationLoop
    from townlet.sim.probes import Counts, Exits

    scenario = named_once(scenario, named)
    files = RunFiles(events, snapshot, render, digests, overwrite=overwrite)
    if towns > 1 or workers != 1 or engine is not None or address is not None:
        only = {"--events": events, "--snapshot": snapshot, "--render": render, "--follow": follow, "--speed": speed, "--at": at}
        for flag, given in only.items():
            if given is not None:
                raise UsageError(f"{flag} is for one town here; leave it out, or run that town alone: --town K")
        config = fitted(load_config(scenario, overrides), policy)
        options = {"policy": policy, "seed": seed, "epsilon": epsilon, "ticks": ticks}
        _many(spread_over(config, engine, workers, address), config, range(town, town + towns), digests, as_json, options)
        return
    vec = open_scenario(scenario, overrides, seed, policy, town)
    decides = make_policy(policy, vec, epsilon=epsilon, seed=vec.seed)
    first = tick_of(vec.config, at)
    wanted = first + (ticks or vec.config.scenario.episode_ticks - first)
    counts, exits, stop = Counts(), Exits(), StopFlag()
    follows = None if follow is None else _follow(follow, vec, decides, first, as_json)
    loop = SimulationLoop(vec, decides, [counts, exits, *([] if follows is None else [follows]), *files.hooks(vec, policy)])
    if interactive() and not as_json and follow is None:
        from townlet.cli.run_view import RunTable, TownView

        loop.add_hook(RunTable(vec, counts, wanted) if speed is None else TownView(vec, speed, first, stop))
    elif speed is not None:
        note("--speed is for watching: it needs a terminal, and neither --json nor --follow; the run goes at full speed")

    def stopped() -> bool:
        stop.begun = loop.ticks > 0
        return stop.asked != 0

    began = time.perf_counter()
    with stop:
        try:
            made = loop.run(wanted, stop=stopped)
        finally:
            loop.finish()
    seconds = time.perf_counter() - began
    files.write(vec, decides, policy)
    report = summary(vec, counts, policy=policy, ticks=made, seconds=seconds)
    report |= {"exits": exits.rows, "files": files.names}
    if follows is not None:
        report["followed"] = follows.rows
    emit(report, lambda: run_text(vec, report, follow), as_json)
    if stop.asked:
        left = f"; continue with: townlet snapshot load {snapshot} --ticks {wanted - made}" if snapshot is not None else ""
        raise stop.interruption(f"after {made} of {wanted} ticks; what was simulated so far is kept{left}")


class RunFiles:
    """The files that a run of one town leaves, as far as they were asked for. What could not be written in the end is told here,
    before anything is simulated."""

    def __init__(
        self, events: Path | None, snapshot: Path | None, render: Path | None, digests: Path | None, *, overwrite: bool
    ) -> None:
        from townlet.envs.render import check_picture_name
        from townlet.files import check_free
        from townlet.sim.probes import Digests, PictureEvery

        self.events, self.snapshot, self.render, self.digests, self.overwrite = events, snapshot, render, digests, overwrite
        asked = [path for path in (events, snapshot, render, digests) if path is not None]
        self.names = [str(path) for path in asked]
        for path in asked:
            check_free(path, overwrite)
        if render is not None:
            check_picture_name(render)
        self._film, self._marks = PictureEvery(), Digests()

    def hooks(self, vec: VectorTown, policy: str) -> list[Probe]:
        """What must watch the run for its file."""
        from townlet.sim.probes import EventLog, SnapshotEvery

        every = vec.config.snapshot.every_ticks
        found: list[Probe] = []
        if self.events is not None:
            found.append(EventLog(self.events, overwrite=self.overwrite))
        if self.render is not None and self.render.suffix.lower() == ".gif":
            found.append(self._film)
        if self.digests is not None:
            found.append(self._marks)
        if self.snapshot is not None and every is not None:
            found.append(SnapshotEvery(self.snapshot, every, policy))
        return found

    def write(self, vec: VectorTown, decides: RememberingPolicy, policy: str) -> None:
        """What is written at the end of the run."""
        from townlet.envs.render import write_picture
        from townlet.files import write_text
        from townlet.sim.snapshot import save_snapshot, take_snapshot

        if self.snapshot is not None:
            taken = take_snapshot(vec, policy=policy, memory=decides.memory())
            save_snapshot(taken, self.snapshot, compress=vec.config.snapshot.compress)
        if self.render is not None:
            if not self._film.frames:
                self._film.finish(vec)
            write_picture(self.render, self._film.frames)
        if self.digests is not None:
            rows = (dict(zip(("episode", "tick", "digest"), row)) for row in self._marks.rows)
            write_text(self.digests, "".join(json.dumps(row) + "\n" for row in rows))


def _follow(resident: str, vec: VectorTown, decides: RememberingPolicy, first: int, as_json: bool) -> Follow:
    from townlet.observer.follow import Follow

    say = (lambda text: None) if as_json else click.echo
    return Follow(resident, vec, decides, say, first=first, width=max(40, shutil.get_terminal_size((80, 24)).columns))


def named_once(scenario: str | None, named: str | None) -> str:
    if (scenario is None) == (named is None):
        raise UsageError("name one scenario, such as town_day: as the argument, or with --scenario")
    return str(named) if scenario is None else scenario


def _many(
    training: TrainingConfig, config: SimulationConfig, towns: range, digests: Path | None, as_json: bool, options: Record
) -> None:
    """Town after town: a bar on the terminal, sums at the end, digests as they come."""
    from townlet.files import AppendLog, remove
    from townlet.policy.many_towns import ManyTowns, simulate_towns

    sums, began = ManyTowns(), time.perf_counter()
    if digests is not None and digests.exists():
        remove(digests)
    with StopFlag() as stop, ExitStack() as stack:
        advance = stack.enter_context(progress("towns", len(towns)))
        log = None if digests is None else stack.enter_context(AppendLog(digests))
        for row in simulate_towns(training, config, towns, stop=lambda: stop.asked != 0, **options):
            stop.begun = True
            sums.add(row)
            advance(1)
            if log is not None:
                log.write(json.dumps({"town": row["town"], "digest": row["digest"]}))
    report = {"scenario": config.town_name, "policy": options["policy"], "first_town": towns[0]}
    report |= sums.summary(time.perf_counter() - began)
    emit(report, lambda: many_text(report), as_json)
    if stop.asked:
        raise stop.interruption(f"after {sums.towns} of {len(towns)} towns; run the rest with --town {towns[0] + sums.towns}")


def many_text(report: Record) -> str:
    lines = [
        f"{report['scenario']}, {report['policy']}: {report['towns']} towns, {report['residents']:,} residents, "
        f"{report['decisions']:,} decisions in {report['seconds'] / 60:.1f} min "
        f"({report['resident_ticks_per_second']:,.0f} resident-ticks/s), at most {report['peak_memory_mb']:,.0f} MB",
        "per resident-day (deviation between towns):",
    ]
    for name, found in report["per_resident_day"].items():
        deviation = "" if found["deviation"] is None else f"  ± {found['deviation']:.4f}"
        lines.append(f"  {name:<10}{found['mean']:9.3f}{deviation}  ({found['least']:.3f} … {found['most']:.3f})")
    return "\n".join([*lines, f"digest of all digests: {report['digest'][:16]}"])


def summary(vec: VectorTown, counts: Counts, *, policy: str, ticks: int, seconds: float) -> dict[str, object]:
    from townlet.world.events import QUEUE_CONFLICT, USE_START
    from townlet.world.state import TERMS

    events = counts.events
    days = max(1e-9, ticks * vec.num_residents / vec.config.world.ticks_per_day)
    return {
        "scenario": vec.config.town_name,
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


def exit_lines(exits: list[Record]) -> list[str]:
    """How many left and why, then who and when."""
    counts = Counter(one["reason"] for one in exits)
    lines = ["exits: " + (", ".join(f"{count} {reason}" for reason, count in sorted(counts.items())) or "none")]
    lines += [f"  day {one['day']} {one['time']} {one['resident']}: {EXIT_WORDS[one['reason']]}" for one in exits[:MOST_EXITS]]
    return lines + ([f"  … and {len(exits) - MOST_EXITS} more"] if len(exits) > MOST_EXITS else [])


def run_text(vec: VectorTown, report: Record, follow: str | None) -> str:
    """The end of a run. Where a resident was followed, the table holds its row only: what it did stays on the screen."""
    from townlet.envs.scene import look

    scene = look(vec)
    if follow is not None:
        scene = replace(scene, residents=tuple(one for one in scene.residents if one.id == follow))
    reasons = ", ".join(f"{count} {reason}" for reason, count in report["conflicts"].items()) or "none"
    lines = [
        f"{report['scenario']}, seed {report['seed']}, {report['policy']}: "
        f"{report['ticks']} ticks to day {scene.day} {scene.time}, "
        f"{report['ticks_per_second']:,.0f} ticks/s",
        "",
        *plain_table(scene),
        "",
        *exit_lines(report["exits"]),
        f"conflicts: {reasons}; quarrels: {report['events'].get('quarrel', 0)}",
        f"per resident-day: {report['conflicts_per_resident_day']:.2f} conflicts, {report['uses_per_resident_day']:.1f} uses, "
        f"reward {report['reward_per_resident_day']:+.2f}",
    ]
    if report["events_lost"]:
        lines.append(f"{report['events_lost']} events did not fit; raise world.event_capacity to keep them all")
    lines += [f"→ {name}" for name in report["files"]]
    return "\n".join(lines)


def plain_table(scene: Scene) -> list[str]:
    """The same for a file or a pipe."""
    shown = scene.residents[:MOST_ROWS]
    wide = max([8, *(len(one.id) for one in shown)])
    lines = [f"{'resident':<{wide}}" + "".join(f" {need:>5}" for need in scene.need_names) + "  coins rivalry  doing"]
    for one in shown:
        needs = "".join(f" {level:{max(5, len(need))}.2f}" for need, level in one.needs.items())
        doing = f"{'quarrels, ' if one.quarrels else ''}{one.doing}"
        lines.append(f"{one.id:<{wide}}{needs}{one.wallet:7.2f}{one.rivalry:8.2f}  {doing}")
    if len(scene.residents) > MOST_ROWS:
        lines.append(f"… and {len(scene.residents) - MOST_ROWS} more")
    return lines
