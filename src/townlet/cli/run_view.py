"""How a run looks on a terminal: a table at full speed, or the map tick by tick at a speed one can watch."""

from __future__ import annotations

import textwrap
import time
from collections import deque
from collections.abc import Mapping

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from townlet.cli.run import MOST_ROWS
from townlet.config.base import clock
from townlet.envs.events import step_records
from townlet.envs.render import GLYPHS
from townlet.envs.scene import Figure, Scene, look
from townlet.envs.vector import VectorTown
from townlet.observer.answers import DOING_WORDS
from townlet.observer.words import tell
from townlet.ports import Decided
from townlet.signals import StopFlag
from townlet.sim.probes import Counts, Probe
from townlet.types import Array
from townlet.world.events import EXIT, QUARREL, QUEUE_CONFLICT, USE_START
from townlet.world.film import ABSENT, DOING, QUARRELS, read_row
from townlet.world.state import TILES

Row = Mapping[str, Array]  # of a film: a field → its value for each resident, or each object
REFRESH = 0.1  # seconds
BAR = 8
SHARES = " ▏▎▍▌▋▊▉█"


def bar(level: float, width: int = BAR) -> str:
    """A need as a bar of eighths."""
    eighths = round(max(0.0, min(1.0, level)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (SHARES[rest] if rest else "")).ljust(width)


def need_style(level: float) -> str:
    return "green" if level >= 0.5 else "yellow" if level >= 0.25 else "bold red"


class RunTable(Probe):
    """Draws the town on the terminal a few times a second, whatever the speed of the run."""

    def __init__(self, vec: VectorTown, counts: Counts, ticks: int) -> None:
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

    def _view(self, scene: Scene) -> Group:
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
        lines: list[RenderableType] = [head, table]
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
    def _row(one: Figure) -> tuple[RenderableType, ...]:
        needs = [Text(bar(level), style=need_style(level)) for level in one.needs.values()]
        doing = Text(("quarrels, " if one.quarrels else "") + one.doing, style="red" if one.quarrels else "")
        return one.id, *needs, f"{one.wallet:.2f}", f"{one.rivalry:.2f}", doing


FRAME = 0.05  # seconds between two pictures, at least
SIDE = 30  # columns of the list beside the map
NEWS = 6  # events that are remembered
TOLD = ("queue_conflict", "quarrel", "exit", "newcomer", "perturbation", "shift_late", "shift_absent", "reconciliation")
TILE_STYLES = {"wall": "bright_black", "road": "bright_black"}


class TownView(Probe):
    """The map, everybody's needs and what they do, tick by tick: `speed` ticks a second, from tick `first` on."""

    def __init__(self, vec: VectorTown, speed: float, first: int, stop: StopFlag) -> None:
        self.speed, self.first, self.stop = speed, first, stop
        self.news: deque[str] = deque(maxlen=NEWS)
        self._due = self._drawn = time.perf_counter()
        vec.start_filming()
        self._live = Live(console=Console(stderr=True), auto_refresh=False, screen=True)
        if first == 0:
            self._live.start()

    def before_step(self, world: VectorTown, decision: Decided) -> None:
        self._tick, self._minute = (int(world.state.towns[0][name]) for name in ("tick", "minute"))

    def after_step(self, world: VectorTown, decision: Decided) -> None:
        ticks = int(world.state.towns[0]["tick"]) - self._tick
        if self._tick < self.first or ticks <= 0:
            self._due = time.perf_counter()
            return
        if not self._live.is_started:
            self._live.start()
        scene, day = look(world), world.config.world.ticks_per_day
        happened = [record for record in step_records(world) if record["type"] in TOLD]
        for k in range(ticks):
            now = clock((self._minute + k) % day)
            self.news.extend(f"{now} {tell(record)}" for record in happened if record["tick"] == self._tick + k)
            if not self.stop.asked and self._wait():
                self._live.update(self._view(world, scene, now, world.film[0, k]), refresh=True)

    def finish(self, world: VectorTown) -> None:
        self._live.stop()

    def _wait(self) -> bool:
        """Until the next tick is due; whether it is time for a picture."""
        self._due += 1.0 / self.speed
        left = self._due - time.perf_counter()
        if left > 0:
            time.sleep(left)
        elif left < -1.0:  # the machine was busy: go on from here
            self._due = time.perf_counter()
        now = time.perf_counter()
        if now - self._drawn < FRAME * 0.9:
            return False
        self._drawn = now
        return True

    def _view(self, world: VectorTown, scene: Scene, now: str, row: Array) -> Text:
        """Map at the left, people at the right, what happened below them; cut to the terminal."""
        width, height = self._live.console.size
        seen, things = read_row(row, world.num_residents, tuple(world.config.needs))
        people = [slot for slot in range(world.num_residents) if seen["doing"][slot] & ~QUARRELS != ABSENT]
        town = self._map(scene, seen, things, people, height - 2, width - SIDE - 1)
        wide = max((line.cell_len for line in town), default=0)
        side = self._people(world, scene, seen, people, width - wide - 1, height - 2)
        head = Text(f"{scene.scenario}  day {scene.day}  {now}", style="bold")
        head.append(f"  {self.speed:g} min/s, Ctrl-C ends it", style="dim")
        lines = [head]
        for k in range(max(len(town), len(side))):
            left = town[k].copy() if k < len(town) else Text()
            left.pad_right(wide + 1 - left.cell_len)
            lines.append(left + (side[k] if k < len(side) else Text()))
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return Text("\n").join(lines[: height - 1])

    def _map(self, scene: Scene, seen: Row, things: Row, people: list[int], rows: int, columns: int) -> list[Text]:
        """Two characters a tile, one where that is too wide; of a larger town the part around its first resident."""
        height, width = scene.tiles.shape
        size = 2 if 2 * width <= columns else 1
        cells = [[(GLYPHS[TILES[tile]] * size, TILE_STYLES.get(TILES[tile], "")) for tile in line] for line in scene.tiles]
        for one, user in zip(scene.things, things["user"]):
            mark = one.mark.upper() if user else one.mark
            cells[one.y][one.x] = (mark[:size], "yellow" if user else "cyan")
        marks = {one.slot: one.mark for one in scene.residents}
        for slot in people:
            mark, hot = marks.get(slot, "??").lower(), seen["doing"][slot] & QUARRELS
            worst = min(seen[need][slot] for need in scene.need_names)
            style = "bold reverse red" if hot else f"reverse {need_style(worst)}"
            cells[seen["y"][slot]][seen["x"][slot]] = ((mark[0] + "!" if hot else mark)[:size], style)
        x, y = (int(seen[axis][people[0]]) if people else 0 for axis in ("x", "y"))
        top = min(max(0, y - rows // 2), max(0, height - rows))
        left = min(max(0, x - columns // size // 2), max(0, width - columns // size))
        shown = [line[left : left + columns // size] for line in cells[top : top + rows]]
        return [Text.assemble(*line) for line in shown]

    def _people(self, world: VectorTown, scene: Scene, seen: Row, people: list[int], width: int, rows: int) -> list[Text]:
        """Each resident with its needs and what it does, in one line where there is room, else in two; then the news."""
        marks = {one.slot: one for one in scene.residents}
        ids, needs = world.object_ids(0), scene.need_names
        wide = [max(4, len(need)) for need in needs]
        name = min(11, max((len(one.id) for one in scene.residents), default=0))
        one_line = width >= 3 + name + sum(wide) + len(needs) + 24
        indent = 3 + name if one_line else 2
        if indent + sum(wide) + len(needs) > width:
            wide = [4] * len(needs)
        head = "".join(f" {need:<{size}.{size}}" for need, size in zip(needs, wide))
        lines = [Text(" " * indent + head, style="dim")]
        room = max(2, rows - 3)
        for slot in people[: room // (1 if one_line else 2)]:
            who, doing = marks.get(slot), int(seen["doing"][slot])
            thing = int(seen["thing"][slot])
            words = DOING_WORDS[DOING[doing & ~QUARRELS]].format(o=ids[thing - 1] if thing else "something")
            does = Text("quarrels, " + words, style="red") if doing & QUARRELS else Text(words, style="dim")
            text = Text(f"{who.mark.lower() if who else '??'} {(who.id if who else 'has left'):<{name}.{name}}")
            bars = Text.assemble(
                *((f" {bar(seen[need][slot], size)}", need_style(seen[need][slot])) for need, size in zip(needs, wide))
            )
            if one_line:
                lines.append(text + bars + Text("  ") + does)
            else:
                lines += [text + Text(" ") + does, Text(" " * indent) + bars]
        hidden = len(people) - room // (1 if one_line else 2)
        if hidden > 0:
            lines.append(Text(f"… and {hidden} more", style="dim"))
        told: list[str] = []
        for line in reversed(self.news):  # the last ones that there is room for, whole
            parts = textwrap.wrap(line, max(20, width), subsequent_indent=" " * 6)
            if told and len(lines) + len(told) + len(parts) > rows:
                break
            told = parts + told
        return lines + [Text(line) for line in told]
