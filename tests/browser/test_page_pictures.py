"""Golden pictures: a quarrel, a queue, the rims of needs and the time line, light and dark, as they were once looked at.

The scenes are laid by hand into a film, so that no rule of the town moves them. Words are not drawn but written down: fonts
differ between machines, so words, places and colours of texts are compared as such, everything else by pixels.

TOWNLET_PICTURES=renew pytest tests/browser/test_page_pictures.py     draws them anew; look at them before they are committed
"""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from page_tools import Visit

PICTURES = Path(__file__).parent / "pictures"
OFF = 32  # of 255 in any channel: another colour; edges of one shape are drawn a little differently by other versions
MOST_OFF = 24  # pixels; a rim has two hundred
TEXT_OFF = 2  # px
WORDS = """
window.words = [];
for (const kind of [CanvasRenderingContext2D, OffscreenCanvasRenderingContext2D]) {
  kind.prototype.measureText = text => ({ width: 6 * text.length });
  kind.prototype.fillText = function (text, x, y) {
    const { a, d, e, f } = this.getTransform();
    window.words.push([text, a * x + e, d * y + f, this.fillStyle]);
  };
}
"""
LAY = """scene => {
  const source = townlet.a, { head } = source, frame = source.peek(30), doing = name => head.doing.indexOf(name);
  const put = (slot, x, y, what, need, { quarrels = false, thing = 0 } = {}) => {
    frame.x[slot] = x, frame.y[slot] = y, frame.doing[slot] = doing(what) + (quarrels ? 128 : 0), frame.thing[slot] = thing;
    for (const level of frame.needs) level[slot] = 255 * need;
  };
  for (const one of ["doing", "user", "waiting", "rivalry"]) frame[one].fill(0);
  const shower = head.things.findIndex(one => one.kind === "shower"), { x, y } = head.things[shower];
  if (scene === "quarrel") {
    put(0, x - 1, y, "walks", 0.9, { quarrels: true }), put(1, x - 1, y - 1, "idle", 0.8, { quarrels: true });
    put(2, x + 1, y, "idle", 0.4), put(3, x + 1, y - 1, "idle", 0.2), put(4, x - 2, y, "idle", 1);
  } else {
    put(0, x, y, "uses", 0.9, { thing: shower + 1 }), put(1, x - 1, y, "called", 0.9, { thing: shower + 1 });
    put(2, x - 1, y - 2, "queues", 0.4, { thing: shower + 1 }), put(3, x + 2, y - 2, "queues", 0.2, { thing: shower + 1 });
    frame.user[shower] = 1, frame.waiting[shower] = 3;
  }
  townlet.player.at = 30;
  townlet.select(scene === "quarrel" ? 3 : -1);
  townlet.mapA.scale = 40;
  townlet.mapA.centre(x, y - 1);
}"""
MAP = """() => {
  words.length = 0;
  townlet.mapA.draw(townlet.a.peek(30), null, 0);
  return [townlet.mapA.canvas.toDataURL(), words];
}"""
FILL = """() => {
  const { timeline, a } = townlet, n = a.head.people.length;
  for (const reel of a.reels.values()) for (let i = 0; i < reel.ticks; i++) for (let m = 0; m < reel.groups.objects.width; m++) {
    const at = i * reel.groups.objects.width + m, turn = Math.floor((reel.first + i + 5 * m) / 12);
    reel.groups.objects.user[at] = turn % 3 ? turn % n + 1 : 0, reel.groups.objects.waiting[at] = turn % 3 === 2 ? 2 : 0;
  }
  const told = { 14: "queue_conflict", 15: "quarrel", 47: "queue_conflict", 63: "exit", 80: "perturbation", 95: "newcomer" };
  timeline.moments = Object.entries(told).map(([tick, kind]) => ({ kind, tick: Number(tick), thing: 0 }));
  timeline.filled.clear();
  timeline.chooseLanes();
  townlet.player.at = 40;
}"""
TIME_LINE = """() => {
  words.length = 0;
  townlet.timeline.dirty = true;
  townlet.timeline.draw();
  return [townlet.timeline.canvas.toDataURL(), words];
}"""
Drawn = tuple[np.ndarray, list[list[Any]]]
Open = Callable[..., Visit]


@pytest.fixture
def drawing(visit: Open, town_file: Path) -> Callable[[str], Visit]:
    def opened(scheme: str) -> Visit:
        page = visit(town_file.as_uri(), color_scheme=scheme, script=WORDS)
        page.js("townlet.openB(null)")
        page.js("townlet.a.preload()")
        page.until("townlet.looked")
        page.settle()
        return page

    return opened


def drawn(page: Visit, scene: str, change: str = "") -> Drawn:
    """The picture right after a change: in the same turn, so that a page that shows it only a frame later is found out."""
    address, words = page.js(f"() => {{ {change}; return ({TIME_LINE if scene == 'time_line' else MAP})(); }}")
    picture = np.array(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGB"))
    left, top = (0, 0) if scene == "time_line" else (picture.shape[1] // 2 - 140, picture.shape[0] // 2 - 100)
    width, height = (1160, 110) if scene == "time_line" else (280, 200)
    inside = [one for one in words if left <= one[1] < left + width and top <= one[2] < top + height]
    return picture[top : top + height, left : left + width], [[one[0], one[1] - left, one[2] - top, one[3]] for one in inside]


def pixels_off(found: np.ndarray, golden: np.ndarray) -> int:
    if found.shape != golden.shape:
        return max(found.size, golden.size)
    return int((np.abs(found.astype(int) - golden.astype(int)).max(axis=-1) > OFF).sum())


def words_off(found: list[list[Any]], golden: list[list[Any]]) -> list[object]:
    """Words that are not there, are others, stand elsewhere or have another colour."""
    pairs = list(zip(found, golden))
    moved = [(a, b) for a, b in pairs if (a[0], a[3]) != (b[0], b[3]) or max(abs(a[k] - b[k]) for k in (1, 2)) > TEXT_OFF]
    return [*moved, *found[len(pairs) :], *golden[len(pairs) :]]


def golden(name: str) -> Drawn:
    with Image.open(PICTURES / f"{name}.png") as picture:
        return np.array(picture.convert("RGB")), json.loads(picture.info["words"])


def write(path: Path, picture: np.ndarray, words: list[list[Any]]) -> None:
    said = PngImagePlugin.PngInfo()
    said.add_text("words", json.dumps([[text, round(x, 1), round(y, 1), colour] for text, x, y, colour in words]))
    Image.fromarray(picture).save(path, pnginfo=said, optimize=True)


def lay(scene: str) -> str:
    return f"({FILL if scene == 'time_line' else LAY})({scene!r})"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("scene", ["quarrel", "queue", "time_line"])
def test_it_looks_as_it_was_once_looked_at(drawing: Callable[[str], Visit], scene: str, scheme: str, tmp_path: Path) -> None:
    picture, words = drawn(drawing(scheme), scene, lay(scene))
    if os.environ.get("TOWNLET_PICTURES") == "renew":
        write(PICTURES / f"{scene}_{scheme}.png", picture, words)
    expected, said = golden(f"{scene}_{scheme}")
    write(tmp_path / "found.png", picture, words)
    assert pixels_off(picture, expected) <= MOST_OFF, f"compare {tmp_path / 'found.png'} with {PICTURES}/{scene}_{scheme}.png"
    assert words_off(words, said) == []


PLANTED = {
    "a resident one tile further": ("quarrel", "townlet.a.peek(30).x[4] += 1"),
    "a resident a quarter of a tile further": (
        "quarrel", "const own = townlet.mapA.spread.bind(townlet.mapA); townlet.mapA.spread = (X, Y) => own(x => X(x + 0.25), Y)"
    ),
    "no rims": (
        "quarrel", """const own = townlet.mapA.drawResident.bind(townlet.mapA);
        townlet.mapA.drawResident = (c, ...rest) => { c.stroke = () => {}; own(c, ...rest); delete c.stroke; }"""
    ),
    "a rim of another need": ("queue", "townlet.a.peek(30).needs.forEach(level => (level[0] = 100))"),
    "no star": ("quarrel", "townlet.a.peek(30).doing[0] -= 128"),
    "another colour": ("quarrel", "townlet.mapA.shade = () => 'h3'"),
    "no badge": ("queue", "townlet.mapA.drawBadges = () => {}"),
    "a thing that is not in use": ("queue", "townlet.a.peek(30).user.fill(0)"),
    "no lines to what is waited for": ("queue", "townlet.mapA.drawLines = () => {}"),
    "a conflict less": ("time_line", "townlet.timeline.moments.splice(2, 1)"),
    "nobody left": ("time_line", "townlet.timeline.moments.splice(3, 1)"),
    "a lane that tells nothing of who waits": ("time_line", "townlet.timeline.values(townlet.timeline.lanes[1]).wait.fill(0)"),
    "the playhead elsewhere": ("time_line", "townlet.player.at = 41"),
}  # fmt: skip


@pytest.mark.parametrize("change", PLANTED)
def test_what_is_drawn_otherwise_is_noticed(drawing: Callable[[str], Visit], change: str) -> None:
    scene, script = PLANTED[change]
    page = drawing("light")
    expected, _ = golden(f"{scene}_light")
    assert pixels_off(drawn(page, scene, lay(scene))[0], expected) <= MOST_OFF
    assert pixels_off(drawn(page, scene, script)[0], expected) > 2 * MOST_OFF


def test_words_are_compared_as_words() -> None:
    said = [["frank", 10.0, 20.0, "#ffffff"], ["3", 50.0, 20.0, "#ffffff"]]
    assert words_off([["frank", 10.8, 19.4, "#ffffff"], ["3", 51.0, 21.0, "#ffffff"]], said) == []
    for other in (
        [["frank", 10.0, 20.0, "#ffffff"], ["4", 50.0, 20.0, "#ffffff"]],
        [["frank", 30.0, 20.0, "#ffffff"], ["3", 50.0, 20.0, "#ffffff"]],
        [["frank", 10.0, 20.0, "#000000"], ["3", 50.0, 20.0, "#ffffff"]],
        said[:1],
    ):
        assert words_off(other, said)


def test_edges_that_are_drawn_a_little_differently_are_not_taken_for_another_picture() -> None:
    expected, _ = golden("quarrel_light")
    blurred = (expected[:, 1:].astype(int) * 9 + expected[:, :-1].astype(int)) // 10  # a tenth of a pixel to the right
    assert pixels_off(blurred.astype(np.uint8), expected[:, 1:]) <= MOST_OFF
