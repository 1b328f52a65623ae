"""How training looks on a terminal: a bar with the time left, the figures that matter below it, and the result in a few lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from time import perf_counter
from types import TracebackType

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from townlet.cli.common import interactive, tell
from townlet.dto.policy import AnnealSummary, BCTrainingResult, DryRun, OfflineTrainingResult, PPOTrainingResult, TrainingResult
from townlet.types import Record

LABELS = {  # what is shown of an epoch, the most important first: a narrow terminal leaves out the last
    "return_per_resident_day": "return/resident-day",
    "conflicts_per_resident_day": "conflicts/resident-day",
    "conflict.rivalry_max_mean_avg": "rivalry",
    "kl_k3": "KL",
    "loss": "loss",
    "accuracy": "accuracy",
    "batch_entropy_mean": "entropy",
    "loss_value": "value loss",
    "steps_per_second": "steps/s",
}
PLAIN_EVERY = 15.0  # seconds between lines when nobody watches a terminal


class Bar(Progress):
    """A bar and, below it, two lines with as many of the figures as the terminal has room for."""

    figures: Sequence[str] = ()

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        if self.figures:
            whole = "  ".join(figure.replace(" ", "\xa0") for figure in self.figures)  # no line ends within a figure
            lines = wrap(whole, self.console.width, max_lines=2, placeholder="", break_on_hyphens=False)
            yield Text("\n".join(lines).replace("\xa0", " "))


class TrainingProgress:
    """A bar on a terminal; a line now and then elsewhere; nothing when quiet."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self._bar: Bar | None = None
        self._task = TaskID(0)
        self._what, self._total, self._done = "", 0, 0
        self._told_at = perf_counter()

    def __enter__(self) -> TrainingProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def begin(self, what: str, total: int, done: int = 0) -> None:
        self._what, self._total, self._done = what, total, done
        if self._bar is not None:
            self._bar.reset(self._task, total=total, completed=done, description=what)
            self._bar.figures = ()
        elif interactive() and not self.quiet:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("epoch"),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("left"),
            )
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(what, total=total, completed=done)

    def advance(self, figures: Record) -> None:
        self._done += 1
        known = {label: value for name, label in LABELS.items() if (value := figures.get(name)) is not None}
        shown = [f"{label} {value:,.0f}" if value >= 1000 else f"{label} {value:.3g}" for label, value in known.items()]
        if self._bar is not None:
            self._bar.figures = shown
            self._bar.update(self._task, completed=self._done)
        elif not self.quiet and (perf_counter() - self._told_at > PLAIN_EVERY or self._done == self._total):
            self._told_at = perf_counter()
            tell(f"{self._what} {self._done}/{self._total}: {'  '.join(shown)}")

    def say(self, sentence: str) -> None:
        if self._bar is not None:
            self._bar.console.print(sentence, highlight=False)
        elif not self.quiet:
            tell(sentence)


def result_text(result: TrainingResult) -> str:
    """A result for people: what was learned, how long it took, where it is."""
    lines = [_headline(result)]
    if result.checkpoint is not None:
        lines.append(f"checkpoint  {result.checkpoint}")
    if result.run_dir is not None:
        lines.append(f"run folder  {result.run_dir}")
    if result.checkpoint is not None and result.run_dir is not None:
        lines.append(f"next        townlet report {result.run_dir}, townlet observe {result.run_dir}")
    return "\n".join(lines)


def _headline(result: TrainingResult) -> str:
    if isinstance(result, DryRun):
        most = "at most " if result.mode == "bc" else ""
        return (
            f"would train {result.mode} for {most}{result.epochs} epochs on {result.config_id} ({result.config_hash}), "
            f"keeping up to {result.disk_bytes / 1e6:,.1f} MB; nothing was written"
        )
    if isinstance(result, BCTrainingResult):
        change = "–" if result.change_accuracy is None else f"{result.change_accuracy:.3f}"
        return (
            f"cloning {'passed' if result.passed else 'did not pass'} its gate: held-out accuracy {result.accuracy:.3f}, "
            f"on changes {change} (majority {result.majority_accuracy:.3f}, repeat the last {result.repeat_accuracy:.3f}) "
            f"after {result.epochs} epochs, {result.duration_sec:.1f} s"
        )
    if isinstance(result, AnnealSummary):
        verdict, *reasons = result.told()
        return "\n".join((f"{verdict}, {len(result.stages)} stages, {result.duration_sec:.1f} s", *reasons))
    if isinstance(result, OfflineTrainingResult):
        own, data = ("–" if value is None else f"{value:.2f}" for value in (result.held_out_return, result.dataset_return))
        return (
            f"{result.algorithm}: {result.epochs} passes over the data, {result.updates:,} updates; return on held-out towns "
            f"{own} (of the lives in the data, as they were paid: {data}), {result.duration_sec:.1f} s"
        )
    assert isinstance(result, PPOTrainingResult)
    earned = result.return_per_resident_day
    score = "" if earned is None else f", return {earned:.2f} per resident-day in the last training epoch"
    return (
        f"ppo {result.data_mode}: {result.epochs} epochs, {result.steps:,} decisions, value loss "
        f"{result.loss_value_first:.3f} → {result.loss_value:.3f}, KL {result.kl_k3:.4f}{score}, {result.duration_sec:.1f} s"
    )
