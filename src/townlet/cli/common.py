"""What commands share: options, JSON on stdout, words and progress on stderr."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO, TypeVar

import click

from townlet.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from townlet.config import SimulationConfig
    from townlet.config.learning import TrainingConfig


Command = TypeVar("Command", bound=Callable[..., object])


class Advance(Protocol):
    def __call__(self, amount: float, words: str = "") -> None: ...


class Group(click.Group):
    """Commands under one name; of a word that is none of them it says which one may be meant."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            said = " ".join([*ctx.command_path.split()[1:], args[0]])
            hint = did_you_mean(args[0], known) or f"`{ctx.command_path} --help` shows all"
            raise UsageError(f"there is no command {said!r}; {hint}")
        return super().resolve_command(ctx, args)


class PathType(click.Path):
    """A path. An empty word, such as a variable of the shell that is not set, is none: it would mean the current folder. Nor is
    `-`, which would make a file of that name: what a command prints goes to stdout anyway."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty; name one", param, ctx)
        if value == "-":
            self.fail("- is neither stdin nor stdout here; name a file (./- for one of that name)", param, ctx)
        return super().convert(value, param, ctx)


FAR = 1_000_000  # a limit from here on guards the machine; nobody needs to read it in a help text


class Whole(click.IntRange):
    """A whole number within its bounds."""

    name = "integer"

    def _describe_range(self) -> str:
        return super()._describe_range() if self.max is not None and self.max < FAR else f"x>={self.min}"


class Number(click.FloatRange):
    """A number within its bounds; `nan` and `inf` are none."""

    name = "float"

    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number that can be worked with", param, ctx)
        return number


PATH = PathType(path_type=Path)
FILE = PathType(path_type=Path, dir_okay=False)
SEED = Whole(0, (1 << 63) - 1)
COUNT = Whole(1, 10**9)
COUNT_OR_ZERO = Whole(0, 10**9)
TICKS = Whole(1, 10_000_000)
DAYS = Whole(1, 365)
TOWNS = Whole(1, 10_000)  # side by side
MANY_TOWNS = Whole(1, 10_000_000)  # one after another
NUMBER = Number()
SHARE = Number(0, 1)
POSITIVE = Number(0, min_open=True)
POLICY = "scripted, random, schedule (orders of the scenario, else the script), or the folder of a checkpoint or a run."
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout instead of text.")
set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a config key, such as ppo.learning_rate=1e-4; may be repeated.",
)
at_option = click.option("--at", metavar="HH:MM|TICK", help="Moment: a clock time such as 07:00, or a tick.")
seed_option = click.option("--seed", type=SEED, default=None, help="Seed; by default that of the config.")
days_option = click.option("--days", type=DAYS, default=28, show_default=True, help="Days per town.")
window_option = click.option(
    "--window", type=Whole(0, 499_999), default=0, show_default=True, help="Number of the evaluation seed to use."
)
overwrite_option = click.option("--overwrite", is_flag=True, help="Replace an existing file.")


def options(*given: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, shown by `--help` in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(given):
            command = option(command)
        return command

    return decorate


engine_options = options(  # where a command's work is done, and by how many
    click.option("--engine", metavar="NAME", help="Where: local, process or ray; by default processes for several workers."),
    click.option("--workers", type=Whole(0, 4096), default=1, show_default=True, help="Jobs at once; 0: all cores."),
    click.option("--address", metavar="HOST:PORT", help="A running Ray cluster; means --engine ray."),
)


def engine_for(engine: str | None, address: str | None) -> str | None:
    """The engine that was asked for: an address is that of a Ray cluster."""
    if address is not None and engine not in (None, "ray"):
        raise UsageError(f"--address names a Ray cluster, but the engine is {engine}; use --engine ray, or leave out the address")
    return engine if address is None else "ray"


def spread_over(config: SimulationConfig, engine: str | None, workers: int, address: str | None) -> TrainingConfig:
    """What `run_jobs` needs to know; what a worker reserves in a cluster is said by the config (`training.cluster`)."""
    engine = engine_for(engine, address) or ("local" if workers == 1 else "process")
    training = config.training
    cluster = training.cluster if address is None else training.cluster.model_copy(update={"address": address})
    return training.model_copy(update={"engine": engine, "workers": workers, "cluster": cluster})


class NameType(click.ParamType[str]):
    """A name: of a scenario, a resident, the files of a capture. Not a path."""

    name = "name"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from townlet.names import EXPECTED, is_name

        if not is_name(value):
            self.fail(f"{value!r:.60} cannot be a name; expected {EXPECTED}", param, ctx)
        return str(value)


NAME = NameType()


class LogType(PathType):
    """A telemetry log, or the folder of the run that keeps it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.is_dir():
            return path
        from townlet.policy.training.run_folder import RunFolder

        run = RunFolder(path)
        log = run.log() if run.exists else None
        if log is None:
            raise UsageError(f"{path} is a folder without a log; give a log (NDJSON) or the folder that `townlet train` printed")
        return log


LOG = LogType(path_type=Path)


class OutputType(PathType):
    """A file to write. One with the same ending is replaced; nothing else is, and no part of a run, a capture or a checkpoint."""

    def __init__(self, *endings: str) -> None:
        super().__init__(path_type=Path, dir_okay=False)
        self.endings = endings

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from townlet.files import check_free
        from townlet.policy.training.run_folder import check_not_of_a_run

        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        check_free(path, overwrite=True)
        check_not_of_a_run(path)
        if os.path.lexists(path) and path.suffix not in self.endings:
            raise UsageError(f"{path} already exists and does not end in {' or '.join(self.endings)}; choose another file")
        return path


PAGE = OutputType(".html")
PICTURE = OutputType(".png", ".svg")
TEXT = OutputType(".json", ".md", ".txt")


def tick_of(config: SimulationConfig, at: str | None) -> int:
    """The tick of an episode that `--at` names."""
    from townlet.config.base import tick_at

    tick = 0 if at is None else tick_at(at, start=config.scenario.start, day=config.world.ticks_per_day)
    episode = config.scenario.episode_ticks
    if tick >= episode:
        raise UsageError(f"--at {at} is after the end of the episode, which has {episode} ticks; name an earlier moment")
    return tick


def dumps(value: object) -> str:
    """JSON of plain values; a number that is not finite is written as null, because JSON has none."""
    return json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def emit(value: object, text: str | Callable[[], str], as_json: bool) -> None:
    """The result of a command on stdout: JSON when asked for, else its text."""
    click.echo(dumps(value) if as_json else fit(text() if callable(text) else text, sys.stdout))


def note(message: str) -> None:
    """A word to the person at the terminal, on stderr."""
    tell(fit(message, sys.stderr))


def tell(words: str) -> None:
    """Words on stderr. Where they cannot be written (its disk is full, its reader gone), no work ends because of that."""
    with suppress(OSError):
        click.echo(words, err=True)


def fit(text: str, stream: TextIO) -> str:
    """On a terminal, lines that are too long are broken between words, but not in a `command`; files and pipes get them whole."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size((80, 24)).columns
    lines: list[str] = []
    for line in text.split("\n"):
        if len(line) <= width or "\x1b" in line:  # colours take no room
            lines.append(line)
            continue
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        whole = re.sub("`[^`]*`", lambda command: command[0].replace(" ", "\0"), line)
        lines += textwrap.wrap(
            whole, width, subsequent_indent=indent, replace_whitespace=False, break_long_words=False, break_on_hyphens=False
        )
    return "\n".join(lines).replace("\0", " ")


def leave(code: int) -> None:
    """End the command with an exit code; nothing when it is 0."""
    if code:
        raise click.exceptions.Exit(code)


def interactive() -> bool:
    """Somebody is watching stderr."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def progress(label: str, total: float | None) -> Iterator[Advance]:
    """A bar on stderr when it is a terminal, else nothing: `advance(amount, words)` moves it."""
    if not interactive():

        def stand(amount: float, words: str = "") -> None:
            """Nobody is watching."""

        yield stand
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[words]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total, words="")

        def advance(amount: float, words: str = "") -> None:
            bar.update(task, advance=amount, words=words)

        yield advance


@contextmanager
def evaluating(label: str, total: int | None) -> Iterator[Callable[[str, str, int, int], None]]:
    """The `progress` of an evaluation: a bar with the case and the policy at work."""
    with progress(label, total) as advance:
        yield lambda case, policy, done, _: advance(1 if done else 0, f"{case}: {policy}")
