"""The lines of figures below the bar of a training."""

from __future__ import annotations

import io

from rich.console import Console

from townlet.cli.train_progress import Bar

FIGURES = [
    "return/resident-day 55",
    "conflicts/resident-day 3.4",
    "rivalry 0.579",
    "KL 0.000515",
    "entropy 1.06",
    "value loss 1.2",
]


def lines(width: int) -> list[str]:
    bar = Bar(console=Console(width=width, file=io.StringIO()))
    bar.figures = FIGURES
    return str(list(bar.get_renderables())[-1]).splitlines()


def test_a_narrow_terminal_has_two_lines_leaves_out_whole_figures_and_cuts_none() -> None:
    assert lines(200) == ["  ".join(FIGURES)]
    assert lines(80) == ["  ".join(FIGURES[:4]), "  ".join(FIGURES[4:])]
    assert lines(79) == ["  ".join(FIGURES[:4]), "  ".join(FIGURES[4:])]
    assert lines(51) == ["  ".join(FIGURES[:2]), "  ".join(FIGURES[2:5])]
    assert lines(30) == FIGURES[:2]
