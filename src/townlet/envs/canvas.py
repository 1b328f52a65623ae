"""Boxes, discs, lines and letters on an array of pixels; what lies outside is cut off. Coordinates are (x, y)."""

from __future__ import annotations

from functools import cache

import numpy as np

from townlet.envs.font import ADVANCE, HEIGHT, text_dots
from townlet.types import Array

Colour = tuple[int, int, int]


class Canvas:
    def __init__(self, width: int, height: int, colour: Colour) -> None:
        self.pixels = np.full((height, width, 3), colour, np.uint8)  # (H, W, 3)

    def box(self, x: int, y: int, width: int, height: int, colour: Colour) -> None:
        self.pixels[max(0, y) : max(0, y + height), max(0, x) : max(0, x + width)] = colour

    def frame(self, x: int, y: int, width: int, height: int, colour: Colour, thick: int = 1) -> None:
        self.box(x, y, width, thick, colour)
        self.box(x, y + height - thick, width, thick, colour)
        self.box(x, y, thick, height, colour)
        self.box(x + width - thick, y, thick, height, colour)

    def stamp(self, x: int, y: int, shape: Array, colour: Colour) -> None:
        """Colour the pixels under a shape (h, w) of booleans whose upper left corner is (x, y)."""
        height, width = self.pixels.shape[:2]
        top, left = max(0, -y), max(0, -x)
        cut = shape[top : max(0, height - y), left : max(0, width - x)]
        self.pixels[y + top : y + top + cut.shape[0], x + left : x + left + cut.shape[1]][cut] = colour

    def disc(self, x: int, y: int, radius: int, colour: Colour) -> None:
        self.stamp(x - radius, y - radius, _disc(radius), colour)

    def line(self, start: tuple[int, int], end: tuple[int, int], colour: Colour, thick: int = 1, dash: int = 0) -> None:
        steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
        for k in range(steps + 1):
            if dash == 0 or (k // dash) % 2 == 0:
                x = round(start[0] + (end[0] - start[0]) * k / steps)
                y = round(start[1] + (end[1] - start[1]) * k / steps)
                self.box(x - thick // 2, y - thick // 2, thick, thick, colour)

    def text(self, x: int, y: int, words: str, colour: Colour, scale: int = 1) -> None:
        self.stamp(x, y, np.kron(text_dots(words), np.ones((scale, scale), np.bool_)), colour)

    def centred(self, x: int, y: int, words: str, colour: Colour, scale: int = 1) -> None:
        width = (ADVANCE * len(words) - 1) * scale
        self.text(x - width // 2, y - HEIGHT * scale // 2, words, colour, scale)


@cache
def _disc(radius: int) -> Array:
    across = np.arange(-radius, radius + 1)
    return np.asarray(across[None, :] ** 2 + across[:, None] ** 2 <= (radius + 0.3) ** 2)
