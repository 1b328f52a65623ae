"""The lines of figures below the bar of a training."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import TextIO

import pytest
from rich.console import Console

from townlet.cli.common import note
from townlet.cli.train_progress import Bar, TrainingProgress

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


def full_disk() -> TextIO:
    return open("/dev/full", "w", buffering=1)


def gone_reader() -> TextIO:
    """As `tee` is behind a training, when Ctrl-C has ended both and only the training has something to save."""
    read, write = os.pipe()
    os.close(read)
    return open(write, "w", buffering=1)


@pytest.mark.parametrize("stream", [full_disk, gone_reader])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what was not written, when the stream is closed
def test_words_that_cannot_be_written_end_no_training(stream: Callable[[], TextIO], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream())
    told = TrainingProgress()
    told.begin("ppo", 1)
    told.advance({"return_per_resident_day": 1.0})
    told.say("epoch 1: a return")
    note("a word")
