"""The line of figures below the bar of a training."""

from __future__ import annotations

import io

from rich.console import Console

from townlet.cli.train_progress import Bar


def test_a_narrow_terminal_leaves_out_whole_figures_and_cuts_none() -> None:
    figures = ["return/resident-day 55", "conflicts/resident-day 3.4", "KL 0.00515", "entropy 1.06"]
    for width, shown in ((200, 4), (65, 3), (60, 2), (30, 1), (10, 0)):
        bar = Bar(console=Console(width=width, file=io.StringIO()))
        bar.figures = figures
        assert str(list(bar.get_renderables())[-1]) == "  ".join(figures[:shown])
