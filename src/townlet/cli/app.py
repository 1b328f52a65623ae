"""`townlet`: a table of commands whose modules are imported when they are called, and the one place where errors end."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple, NoReturn

import click
from click.shell_completion import CompletionItem

from townlet import __version__, signals
from townlet.cli.common import Group, note, tell
from townlet.errors import ClusterError, TownletError, UsageError, did_you_mean
from townlet.threads import one_blas_thread


class Command(NamedTuple):
    group: str
    help: str
    usage_code: int = 2  # exit code of wrong usage


SIMULATE, DATA, LEARN, PROVE, TOOLS = "Simulate", "Data", "Train", "Measure and release", "Tools"
COMMANDS = {  # the command NAME is the click object NAME of townlet/cli/NAME.py
    "run": Command(SIMULATE, "Simulate a scenario, with a live table of residents and queues."),
    "observe": Command(SIMULATE, "Watch a town in the browser: play a day, compare, ask why and what if."),
    "ask": Command(SIMULATE, "Ask about a day: feuds, the worst conflict, who was late and why."),
    "scenarios": Command(SIMULATE, "List, show, lint, compare and make scenarios."),
    "snapshot": Command(SIMULATE, "Save, load and compare worlds; find where two runs differ first."),
    "fork": Command(SIMULATE, "Change a town at one moment and compare its futures."),
    "capture": Command(DATA, "Record replay data: samples, metrics and events."),
    "replay": Command(DATA, "Inspect, validate, filter and export replay data."),
    "train": Command(LEARN, "Train a policy: behaviour cloning, PPO, anneal."),
    "runs": Command(LEARN, "List and compare training runs."),
    "telemetry": Command(LEARN, "Validate, watch, summarise, compare, plot and export training logs."),
    "evaluate": Command(PROVE, "Measure policies in towns that training never saw."),
    "tune": Command(PROVE, "Tune the script for a town."),
    "plan": Command(PROVE, "Plan with knowledge of the future: how good can a town be?"),
    "bound": Command(PROVE, "Compute a return that no policy can exceed."),
    "ablate": Command(PROVE, "Train with and without an observation: what is it worth?"),
    "study": Command(PROVE, "Run an experiment: every arm on every seed. Can be stopped and continued."),
    "promote": Command(PROVE, "Judge, release and roll back policies; every decision is recorded.", 64),
    "accept": Command(PROVE, "Run the acceptance cycles and write their reports."),
    "report": Command(TOOLS, "Write one HTML page about a run."),
    "bench": Command(TOOLS, "Measure speed: simulator, training, replay, telemetry."),
    "config": Command(TOOLS, "Show a complete config, or all keys with their meaning."),
    "doctor": Command(TOOLS, "Show what is installed and how to install the rest."),
}
EPILOG = """\b
Examples:
  townlet run town_day --ticks 600
  townlet train town_day --set ppo.learning_rate=1e-4
  townlet evaluate scripted random --suite standard --json

\b
Completion of commands and options (bash; the same for zsh and fish):
  eval "$(_TOWNLET_COMPLETE=bash_source townlet)"
"""


class LazyGroup(Group):
    """Knows names and one-line helps from the table; a command's module is imported when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"townlet.cli.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group in dict.fromkeys(entry.group for entry in COMMANDS.values()):
            with formatter.section(group):
                formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items() if entry.group == group])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [CompletionItem(name, help=entry.help) for name, entry in COMMANDS.items() if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)


@click.command(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="townlet", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error; works anywhere in the line.")
def app(debug: bool) -> None:
    """A fast, deterministic small town, and the pipeline that trains, measures and promotes its policies."""


def main(args: Sequence[str] | None = None) -> NoReturn:
    """The console command."""
    run(app, args, "townlet")


def run(command: click.Command, args: Sequence[str] | None = None, name: str | None = None) -> NoReturn:
    """Call a command and leave with its exit code; an error is one sentence on stderr. Scripts use it too."""
    if args is None:
        signals.answer()
        one_blas_thread()
    words = list(sys.argv[1:] if args is None else args)
    options = words[: words.index("--")] if "--" in words else words
    debug = "--debug" in options
    words = [word for word in options if word != "--debug"] + words[len(options) :]
    entry = COMMANDS.get(next((word for word in words if word in COMMANDS), "") if command is app else command.name or "")
    sys.exit(_exit_code(command, words, name, debug, entry.usage_code if entry else 2))


def _exit_code(command: click.Command, words: list[str], name: str | None, debug: bool, usage_code: int) -> int:
    color = False if os.environ.get("NO_COLOR") else None
    try:
        try:
            code = command.main(words, prog_name=name, standalone_mode=False, color=color)
            sys.stdout.flush()
        except SystemExit as left:  # Click's: 0 behind a completion, 1 where the reader is gone, as if a check had failed
            if left.code:
                raise BrokenPipeError from left
            raise
        except (TownletError, OSError, MemoryError, RuntimeError, ImportError, click.ClickException):
            if debug:
                traceback.print_exc()
            raise
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader is gone: say nothing, also when closing
        return 141
    except click.exceptions.NoArgsIsHelpError as error:
        tell(error.format_message())
        return usage_code
    except click.UsageError as error:
        return _say(_plain(error), usage_code)
    except click.ClickException as error:
        return _say(error.format_message(), error.exit_code)
    except UsageError as error:
        return _say(str(error), usage_code)
    except ClusterError as error:
        signals.end_now(_say(str(error), error.exit_code))  # Ray ends a process that frees what lay on a lost node, with 1
        return error.exit_code
    except TownletError as error:
        return _say(str(error), error.exit_code)
    except OSError as error:
        place = f"{error.filename}: " if error.filename is not None else ""
        return _say(f"{place}{error.strerror or error}; check the path, its permissions and the space left", 74)
    except (KeyboardInterrupt, click.Abort):
        return _say("interrupted", 130)
    except (MemoryError, RuntimeError, ImportError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in _NO_MEMORY):
            raise
        return _say("there is not enough memory; use fewer towns or residents, or a smaller batch", 71)
    return code if isinstance(code, int) else 0


_NO_MEMORY = ("can't allocate memory", "out of memory", "failed to map segment")  # as torch says it, and who loads it


def _plain(error: click.UsageError) -> str:
    """What Click found wrong, in our words, and where to read on."""
    message = error.format_message().rstrip(".")
    message = message[:1].lower() + message[1:]
    if isinstance(error, click.NoSuchOption):
        near = did_you_mean(error.option_name, error.possibilities or ())
        message = f"there is no option {error.option_name}" + (f"; {near}" if near else "")
    elif isinstance(error, click.MissingParameter):
        message = " ".join(message.split()).replace(". Choose from:", "; choose from")
    elif isinstance(error, click.BadParameter) and error.param is not None:
        message = f"{error.param.get_error_hint(error.ctx).replace(chr(39), '')}: {error.message.rstrip('.')}"
    message = message.replace("valid integer", "whole number").replace("valid float", "number")
    if error.ctx is None:
        return message
    return f"{message}{'' if message.endswith('?') else ';'} see `{error.ctx.command_path} --help`"


def _say(message: str, code: int) -> int:
    note(f"townlet: {message}")
    return code
