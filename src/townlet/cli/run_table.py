"""The live table of `townlet run`: residents, needs, queues, conflicts, speed."""

from __future__ import annotations

import time
from typing import Any

from townlet.envs.scene import Figure, Scene, look
from townlet.envs.vector import VectorTown
from townlet.ports import Decided
from townlet.sim.probes import Counts, Probe
from townlet.world.events import EXIT, QUARREL, QUEUE_CONFLICT, USE_START

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
