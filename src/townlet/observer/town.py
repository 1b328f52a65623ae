"""A town seen from above as inline SVG: tiles, objects by kind, residents by name, queues by what they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from townlet.config.base import clock
from townlet.config.models import SimulationConfig
from townlet.envs.vector import VectorTown
from townlet.evaluation.suites import draw_seed
from townlet.policy.runtime import make_policy
from townlet.world.state import TILES

TILE = 24
NOON = 12 * 60


def town_picture(config: SimulationConfig, *, minute: int = NOON, policy: str = "scripted") -> str:
    """The config's town at a time of day, under scripted residents."""
    vec = VectorTown(config, 1, seed=draw_seed("evaluation", 0))
    chooser = make_policy(policy, vec)
    chooser.reset(vec)
    decisions = min((minute - vec.start_minute) % 1440, config.scenario.episode_ticks - 1) // vec.interval
    for _ in range(decisions):
        decision = chooser.act(vec)
        vec.step(decision.actions, decision.targets)
    return draw_town(vec)


def draw_town(vec: VectorTown, town: int = 0) -> str:
    compiled = vec.town_of(town)
    height, width = compiled.layout.tiles.shape
    residents = vec.state.residents[town]
    present = np.flatnonzero(residents["present"])
    kinds = sorted({compiled.kinds[row["kind"]] for row in compiled.layout.objects})
    marks = marks_of(kinds)
    parts = [_tiles(compiled.layout.tiles)]
    for index, row in enumerate(compiled.layout.objects):
        kind = compiled.kinds[row["kind"]]
        busy = " busy" if vec.state.objects[town, index]["user"] >= 0 else ""
        parts.append(_object(int(row["x"]), int(row["y"]), marks[kind], compiled.object_ids[index], busy))
    parts += [_resident(int(residents[i]["x"]), int(residents[i]["y"]), vec.resident_id(town, int(i))) for i in present]
    now = clock(int(vec.state.towns[town]["minute"]))
    key = "".join(f"<span><b>{escape(mark)}</b> {escape(kind.replace('_', ' '))}</span>" for kind, mark in marks.items())
    title = f"{vec.config.config_id} at {now}: {len(present)} residents"
    drawing = f'<svg class="map" viewBox="0 0 {width * TILE} {height * TILE}" role="img" aria-label="{escape(title)}">'
    return f'<figure><figcaption>{escape(title)}</figcaption>{drawing}{"".join(parts)}</svg><div class="key">{key}</div></figure>'


def _tiles(tiles: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> str:
    """Runs of equal tiles along a row become one rectangle."""
    parts = []
    for y, row in enumerate(tiles):
        edges = np.flatnonzero(np.diff(row)) + 1
        for start, end in zip((0, *edges), (*edges, len(row))):
            box = f'x="{start * TILE}" y="{y * TILE}" width="{(end - start) * TILE}" height="{TILE}"'
            parts.append(f'<rect class="t-{TILES[row[start]]}" {box}/>')
    return f'<g shape-rendering="crispEdges">{"".join(parts)}</g>'


def _object(x: int, y: int, mark: str, name: str, busy: str) -> str:
    left, top = x * TILE + 2, y * TILE + 2
    box = f'<rect x="{left}" y="{top}" width="{TILE - 4}" height="{TILE - 4}" rx="4"/>'
    return (
        f'<g class="thing{busy}"><title>{escape(name)}</title>{box}'
        f'<text x="{left + TILE / 2 - 2}" y="{top + TILE / 2 + 2}" text-anchor="middle">{escape(mark)}</text></g>'
    )


def _resident(x: int, y: int, name: str) -> str:
    cx, cy = x * TILE + TILE / 2, y * TILE + TILE / 2
    return (
        f'<g class="resident"><title>{escape(name)}</title><circle cx="{cx}" cy="{cy}" r="{TILE * 0.42}"/>'
        f'<text x="{cx}" y="{cy + 4}" text-anchor="middle">{escape(name[:2])}</text></g>'
    )


def marks_of(kinds: Sequence[str]) -> dict[str, str]:
    """Two letters per kind that tell it from the others: the first, and the earliest that is not taken yet."""
    marks: dict[str, str] = {}
    for kind in kinds:
        letters = kind.replace("_", "")
        tries = [letters[0].upper() + letter for letter in letters[1:]] or [letters[0].upper()]
        marks[kind] = next((mark for mark in tries if mark not in marks.values()), tries[0])
    return marks
