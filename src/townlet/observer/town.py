"""A town seen from above as inline SVG: tiles, objects by kind, residents by name and worst need."""

from __future__ import annotations

from html import escape

import numpy as np
from numpy.typing import NDArray

from townlet.config.base import DAY
from townlet.config.models import SimulationConfig
from townlet.envs.scene import Figure, Scene, Thing, look
from townlet.envs.vector import VectorTown
from townlet.evaluation.suites import draw_seed
from townlet.policy.runtime import make_policy
from townlet.sim.loop import SimulationLoop
from townlet.world.state import TILES

TILE = 24
MORNING = 7 * 60 + 30  # everybody wants the shower before the shift


def town_picture(config: SimulationConfig) -> str:
    """The config's town in the morning, under scripted residents."""
    vec = VectorTown(config, 1, seed=draw_seed("evaluation", 0, config.evaluation))
    decisions = min((MORNING - vec.start_minute) % DAY, config.scenario.episode_ticks - 1) // vec.interval
    SimulationLoop(vec, make_policy("scripted", vec, seed=vec.seed)).run_decisions(decisions)
    return draw_town(look(vec))


def draw_town(scene: Scene) -> str:
    height, width = scene.tiles.shape
    parts = [_tiles(scene.tiles), *(_thing(thing) for thing in scene.things)]
    parts += [_wait(one) for one in scene.residents if one.waiting]
    parts += [_resident(one) for one in scene.residents]
    marks = dict(sorted((thing.kind, thing.mark) for thing in scene.things))
    key = "".join(f"<span><b>{escape(mark)}</b> {escape(kind.replace('_', ' '))}</span>" for kind, mark in marks.items())
    title = escape(scene.title)
    drawing = f'<svg class="map" viewBox="0 0 {width * TILE} {height * TILE}" role="img" aria-label="{title}">'
    return f'<figure><figcaption>{title}</figcaption>{drawing}{"".join(parts)}</svg><div class="key">{key}</div></figure>'


def _tiles(tiles: NDArray[np.uint8]) -> str:
    """Runs of equal tiles along a row become one rectangle."""
    parts = []
    for y, row in enumerate(tiles):
        edges = np.flatnonzero(np.diff(row)) + 1
        for start, end in zip((0, *edges), (*edges, len(row))):
            box = f'x="{start * TILE}" y="{y * TILE}" width="{(end - start) * TILE}" height="{TILE}"'
            parts.append(f'<rect class="t-{TILES[row[start]]}" {box}/>')
    return f'<g shape-rendering="crispEdges">{"".join(parts)}</g>'


def _thing(thing: Thing) -> str:
    left, top = thing.x * TILE + 2, thing.y * TILE + 2
    state = f", used by {thing.user}" if thing.user is not None else ""
    state += f", {len(thing.queue)} waiting" if thing.queue else ""
    return (
        f'<g class="thing{" busy" if thing.busy else ""}"><title>{escape(thing.id + state)}</title>'
        f'<rect x="{left}" y="{top}" width="{TILE - 4}" height="{TILE - 4}" rx="4"/>'
        f'<text x="{left + TILE / 2 - 2}" y="{top + TILE / 2 + 2}" text-anchor="middle">{escape(thing.mark)}</text></g>'
    )


def _wait(one: Figure) -> str:
    """A dashed line from whoever waits to what it waits for."""
    if one.at is None:
        return ""
    ends = [(x + 0.5) * TILE for x in (one.x, one.y, *one.at)]
    return '<line class="wait" x1="{}" y1="{}" x2="{}" y2="{}"/>'.format(*ends)


def _resident(one: Figure) -> str:
    cx, cy = (one.x + 0.5) * TILE, (one.y + 0.5) * TILE
    worst = min(one.needs.values())
    state = "good" if worst >= 0.5 else "fair" if worst >= 0.25 else "bad"
    needs = ", ".join(f"{need} {value:.2f}" for need, value in one.needs.items())
    return (
        f'<g class="resident {state}"><title>{escape(f"{one.id}: {one.doing} ({needs})")}</title>'
        f'<circle cx="{cx}" cy="{cy}" r="{TILE * 0.42}"/>'
        f'<text x="{cx}" y="{cy + 4}" text-anchor="middle">{escape(one.mark)}</text></g>'
    )
