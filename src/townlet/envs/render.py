"""Pictures of a town: an RGB array for films and notebooks, text for terminals, PNG and GIF files.

On the map a resident is a disc with two letters; its rim tells its worst need (green, amber, red). A dashed line leads from
whoever waits to what it waits for, a number counts the queue, and a red burst marks a quarrel. The panel beside it has a row
per resident with a bar for each need. The name of a building stands on the wall above its floor.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from townlet.envs.scene import Figure, Room, Scene, Thing, look
from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.files import write_bytes
from townlet.types import Array
from townlet.world.state import TILES

Colour = tuple[int, int, int]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

TILE_COLOURS: dict[str, Colour] = {
    "floor": (241, 237, 227), "wall": (112, 106, 96), "door": (205, 170, 115), "road": (217, 213, 203), "object": (241, 237, 227),
}  # fmt: skip
TILE_PIXELS = np.array([TILE_COLOURS[name] for name in TILES], np.uint8)  # (K, 3)
INK, SOFT, PAPER, WHITE = (34, 33, 31), (107, 103, 95), (251, 250, 247), (255, 255, 255)
GOOD, FAIR, BAD = (0, 128, 95), (222, 148, 0), (204, 41, 0)
RESIDENT, WAITS, BUSY = (0, 94, 148), (156, 79, 128), (204, 102, 0)
NEED_COLOURS: tuple[Colour, ...] = (  # in the order of the needs
    (213, 94, 0), (0, 114, 178), (0, 128, 95), (204, 121, 167), (86, 180, 233), (148, 103, 20),
)  # fmt: skip
BARS = 222  # pixels for the bars of all needs
CELL, PANEL, ROW = 28, 336, 30
SMALL, LARGE = 10, 17  # sizes of letters
MOST_PIXELS = 1200
MOST_ROWS = 64
FILM = (".gif",)
FRAME_MS = 150  # of a film
STILL = (".png",)


def need_colour(need: float) -> Colour:
    return GOOD if need >= 0.5 else FAIR if need >= 0.25 else BAD


def picture(scene: Scene) -> Array:
    """The town and its people.  # (H, W, 3) u1"""
    rows, columns = scene.tiles.shape
    cell = max(2, min(CELL, MOST_PIXELS // max(rows, columns)))
    shown = scene.residents[:MOST_ROWS]
    height = max(rows * cell, 84 + ROW * min(len(shown), 12))
    per_column = max(1, (height - 84) // ROW)
    panels = max(1, -(-len(shown) // per_column)) if cell >= 12 else 1
    image = Image.new("RGB", (columns * cell + panels * PANEL, height), PAPER)
    canvas = ImageDraw.Draw(image)
    image.paste(Image.fromarray(TILE_PIXELS[scene.tiles].repeat(cell, 0).repeat(cell, 1)), (0, 0))
    _map(canvas, scene, cell)
    left = columns * cell + 16
    _head(canvas, scene, left)
    for k, one in enumerate(shown if cell >= 12 else shown[:per_column]):
        _row(canvas, one, left + (k // per_column) * PANEL, 80 + (k % per_column) * ROW)
    if 80 + ROW * len(shown) + 70 < height:
        _key(canvas, scene, left, height)
    return np.array(image)


# --- the map -------------------------------------------------------------------------------------------------------------


def _map(canvas: ImageDraw.ImageDraw, scene: Scene, cell: int) -> None:
    for one in scene.residents:
        if one.waiting and one.at is not None:
            _dashes(canvas, _centre(one.x, one.y, cell), _centre(*one.at, cell), max(1, cell // 10), max(2, cell // 5))
    for thing in scene.things:
        _thing(canvas, thing, cell)
    for room in scene.rooms if cell >= 12 else ():
        _label(canvas, room, cell)
    where = {one.id: (one.x, one.y) for one in scene.residents}
    for actor, rival, _ in scene.clashes:
        if actor in where and rival in where:
            canvas.line((_centre(*where[actor], cell), _centre(*where[rival], cell)), BAD, max(2, cell // 8))
    for one in scene.residents:
        _resident(canvas, one, cell)
    for thing in scene.queues:
        _badge(canvas, thing, cell)


def _centre(x: int, y: int, cell: int) -> tuple[int, int]:
    return x * cell + cell // 2, y * cell + cell // 2


def _thing(canvas: ImageDraw.ImageDraw, thing: Thing, cell: int) -> None:
    x, y = thing.x * cell, thing.y * cell
    edge = BUSY if thing.busy else SOFT
    if cell < 12:
        _box(canvas, x, y, cell, cell, edge)
        return
    inner = (x + 2, y + 2, x + cell - 3, y + cell - 3)
    canvas.rectangle(inner, (255, 236, 214) if thing.busy else WHITE, edge, 2 if thing.busy else 1)
    _centred(canvas, x + cell // 2, y + cell // 2, thing.mark, INK)


def _resident(canvas: ImageDraw.ImageDraw, one: Figure, cell: int) -> None:
    x, y = _centre(one.x, one.y, cell)
    worst = need_colour(min(one.needs.values()))
    if cell < 12:
        colour = BAD if one.quarrels else worst if min(one.needs.values()) < 0.25 else RESIDENT
        _box(canvas, one.x * cell, one.y * cell, cell, cell, colour)
        return
    radius = cell // 2 - 1
    if one.quarrels:
        reach = radius + max(3, cell // 5)
        for dx, dy in ((reach, 0), (0, reach), (reach * 7 // 10, reach * 7 // 10), (reach * 7 // 10, -reach * 7 // 10)):
            canvas.line((x - dx, y - dy, x + dx, y + dy), BAD, 3)
    canvas.circle((x, y), radius, WHITE)
    canvas.circle((x, y), radius - 1, worst)
    canvas.circle((x, y), radius - 4, WAITS if one.waiting else RESIDENT)
    _centred(canvas, x, y, one.mark, WHITE)


def _badge(canvas: ImageDraw.ImageDraw, thing: Thing, cell: int) -> None:
    if cell >= 12:
        x, y = thing.x * cell + cell - 3, thing.y * cell + 3
        canvas.circle((x, y), 6, WAITS)
        _centred(canvas, x, y, str(min(9, len(thing.queue))), WHITE)


def _label(canvas: ImageDraw.ImageDraw, room: Room, cell: int) -> None:
    """The name of a building, as much of it as is as wide as its floor, on the wall above."""
    words = room.id.replace("_", " ")
    while words and letters(SMALL).getlength(words) > room.width * cell:
        words = words[:-1]
    middle = room.x * cell + room.width * cell // 2, room.y * cell - cell // 2
    canvas.text(middle, words, WHITE, letters(SMALL), anchor="mm", stroke_width=1, stroke_fill=TILE_COLOURS["wall"])


def _box(canvas: ImageDraw.ImageDraw, x: int, y: int, width: int, height: int, colour: Colour) -> None:
    if width > 0:
        canvas.rectangle((x, y, x + width - 1, y + height - 1), colour)


def _centred(canvas: ImageDraw.ImageDraw, x: int, y: int, words: str, colour: Colour) -> None:
    canvas.text((x, y), words, colour, letters(SMALL), anchor="mm")


def _dashes(canvas: ImageDraw.ImageDraw, start: tuple[int, int], end: tuple[int, int], thick: int, dash: int) -> None:
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    points = [(start[0] + (end[0] - start[0]) * k / steps, start[1] + (end[1] - start[1]) * k / steps) for k in range(steps + 1)]
    for k in range(0, steps, 2 * dash):
        canvas.line((points[k], points[min(k + dash, steps)]), WAITS, thick)


@cache
def letters(size: int) -> Font:
    """Pillow's own font."""
    return ImageFont.load_default(size)


# --- the panel -----------------------------------------------------------------------------------------------------------


def _head(canvas: ImageDraw.ImageDraw, scene: Scene, left: int) -> None:
    canvas.text((left, 6), scene.scenario[:26], INK, letters(LARGE))
    canvas.text((left, 28), f"day {scene.day}  {scene.time}", SOFT, letters(LARGE))
    waiting = sum(len(thing.queue) for thing in scene.things)
    words = [f"{waiting} waiting", f"{len(scene.clashes)} conflicts", *(name.replace("_", " ") for name in scene.troubles)]
    canvas.text((left, 50), ", ".join(words)[:58], BAD if scene.clashes or scene.troubles else SOFT, letters(SMALL))
    names = scene.need_names
    for k, need in enumerate(names):
        canvas.text((left + 92 + k * (BARS // len(names)), 64), need[: BARS // len(names) // 6], NEED_COLOURS[k], letters(SMALL))


def _row(canvas: ImageDraw.ImageDraw, one: Figure, left: int, top: int) -> None:
    canvas.circle((left + 8, top + 8), 9, need_colour(min(one.needs.values())))
    canvas.circle((left + 8, top + 8), 7, WAITS if one.waiting else RESIDENT)
    _centred(canvas, left + 8, top + 8, one.mark, WHITE)
    canvas.text((left + 24, top - 3), one.id[:11], INK, letters(SMALL))
    each = BARS // len(one.needs)
    for k, level in enumerate(one.needs.values()):
        x, length = left + 92 + k * each, each - 8
        _box(canvas, x, top, length, 7, (226, 222, 212))
        _box(canvas, x, top, round(length * level), 7, NEED_COLOURS[k] if level >= 0.25 else BAD)
    words = "quarrels, " + one.doing if one.quarrels else one.doing
    colour = BAD if one.quarrels else WAITS if one.waiting else SOFT
    canvas.text((left + 24, top + 9), words[:52], colour, letters(SMALL))


def _key(canvas: ImageDraw.ImageDraw, scene: Scene, left: int, bottom: int) -> None:
    """What the marks mean, at the foot of the panel."""
    marks = sorted({(thing.mark, thing.kind.replace("_", " ")) for thing in scene.things})
    words = [f"{mark} {kind}" for mark, kind in marks]
    lines = [", ".join(words[k : k + 4]) for k in range(0, len(words), 4)]
    lines += ["rim: worst need; purple: waits; number: queue", "orange box: in use; red: conflict, quarrel"]
    for k, line in enumerate(lines):
        canvas.text((left, bottom - 4 - 12 * (len(lines) - k)), line, SOFT, letters(SMALL))


# --- text ----------------------------------------------------------------------------------------------------------------

GLYPHS = {"floor": " ", "wall": "█", "door": "+", "road": "·", "object": " "}


def rendered(vec: VectorTown, mode: str | None) -> Array | str | None:
    """The first town as an environment's `render_mode` asks for it; for people ("human") it is printed."""
    if mode is None:
        return None
    scene = look(vec)
    if mode == "rgb_array":
        return picture(scene)
    if mode == "ansi":
        return ansi(scene)
    print(ansi(scene), flush=True)
    return None


def ansi(scene: Scene) -> str:
    """The map in characters, two per tile, and a row per resident."""
    cells = [[GLYPHS[TILES[tile]] * 2 for tile in line] for line in scene.tiles]
    for thing in scene.things:
        cells[thing.y][thing.x] = thing.mark.upper() if thing.busy else thing.mark
    for one in scene.residents:
        cells[one.y][one.x] = one.mark.lower() if not one.quarrels else one.mark[0].lower() + "!"
    lines = [f"{scene.title}, day {scene.day}, tick {scene.tick}", *("".join(line).rstrip() for line in cells)]
    names = scene.need_names
    lines.append(f"{'':4}{'resident':<14}" + "".join(f"{need:>9}" for need in names) + "  doing")
    for one in scene.residents[:MOST_ROWS]:
        needs = "".join(f"{level:9.2f}" for level in one.needs.values())
        lines.append(f"{one.mark.lower():<4}{one.id:<14}{needs}  {'quarrels, ' if one.quarrels else ''}{one.doing}")
    for thing in scene.queues:
        lines.append(f"queue at {thing.id}: {', '.join(thing.queue)}")
    lines += [f"conflict: {actor} and {rival} over {thing}" for actor, rival, thing in scene.clashes]
    return "\n".join(lines) + "\n"


# --- files ---------------------------------------------------------------------------------------------------------------


def check_picture_name(path: Path) -> None:
    """Refuse, before anything is run, a file that could not be written at the end."""
    if path.suffix.lower() not in STILL + FILM:
        raise UsageError(f"{path} is not a picture file; name it .png (the last moment) or .gif (a film)")


def write_picture(path: Path, frames: Sequence[Array]) -> None:
    """A PNG of the last frame, or a GIF of all."""
    check_picture_name(path)
    buffer = io.BytesIO()
    stills = [Image.fromarray(frame) for frame in frames]
    if path.suffix.lower() in FILM:
        palette = [still.quantize(64) for still in stills]
        palette[0].save(buffer, "GIF", save_all=True, append_images=palette[1:], duration=FRAME_MS, loop=0)
    else:
        stills[-1].save(buffer, "PNG", optimize=True)
    write_bytes(path, buffer.getvalue())
