"""The command frame: quick, lazy, one sentence per error, the right exit code, quiet pipes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any
from unittest.mock import Mock

import click
import pytest

from places import ROOT
from townlet import __version__
from townlet.cli import app as frame
from townlet.cli.app import COMMANDS, app, main, run
from townlet.cli.common import dumps, emit, fit, leave, progress
from townlet.cli.doctor import GIVES
from townlet.errors import ConfigError, DivergedError, StorageError, TownletError, UsageError
from townlet.names import EXPECTED
from townlet.optional import EXTRA_OF
from townlet.threads import BLAS_THREADS

SOURCE = ROOT / "src"


def call(*args: str, command: click.Command | None = None, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(args) if command is None else run(command, args, "tool")
    out, err = capsys.readouterr()
    assert isinstance(left.value.code, int)
    return left.value.code, out, err


def shell(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), **options.pop("env", {})}
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, env=environment, **options)


def test_help_imports_nothing_heavy() -> None:
    code = "import atexit, sys\nfrom townlet.cli.app import main\n"
    heavy = ["numpy", "scipy", "pydantic", "torch", "yaml", "rich", "numba", "pettingzoo", "gymnasium", "msgspec"]
    code += (
        f"atexit.register(lambda: print([name for name in {heavy} if name in sys.modules], file=sys.stderr))\nmain(['--help'])\n"
    )
    result = shell("-c", code)
    assert result.stderr.strip() == "[]"


HUGE = "9" * 20


@pytest.mark.parametrize(
    "words",
    [
        "run town_day --town HUGE", "run town_day --ticks HUGE", "run town_day --speed nan", "run town_day --towns HUGE",
        "capture town_day --ticks HUGE --output x", "capture town_day --towns HUGE --output x",
        "capture town_day --min-reward nan --output x", "fork town_day --ticks HUGE", "scenarios new x --generate HUGE",
        "scenarios lint town_day --days nan", "snapshot bisect town_day town_day --seed-b HUGE",
        "snapshot save town_day x --at 99999999",
        "telemetry drift x --baseline y --level 2", "telemetry watch x --smoothing HUGE", "telemetry watch x --kl-threshold nan",
        "ablate town_day --minutes inf",
    ],
)  # fmt: skip
def test_a_number_that_no_town_can_hold_is_refused_in_a_sentence(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(*words.replace("HUGE", HUGE).split(), capsys=capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "range" in err or "number" in err or "after the end" in err


@pytest.mark.slow
def test_help_is_quick() -> None:
    """Against a bare interpreter that imports click: a ratio, because seconds depend on the machine."""
    times = {"bare": 9.0, "help": 9.0}
    for _ in range(5):
        for name, args in (
            ("bare", ("-c", "import click, click.shell_completion, traceback")),
            ("help", ("-m", "townlet", "--help")),
        ):
            began = time.perf_counter()
            shell(*args, check=True)
            times[name] = min(times[name], time.perf_counter() - began)
    assert times["help"] < 2.5 * times["bare"]


def test_help_shows_every_command_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call("--help", capsys=capsys)
    assert code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in out
    assert "townlet run town_day" in out
    assert "_TOWNLET_COMPLETE=bash_source" in out


def test_a_mistyped_option_gets_one_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", "town_day", "--tick", "5", capsys=capsys) == (
        2,
        "",
        "townlet: there is no option --tick; did you mean --ticks? see `townlet run --help`\n",
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("ask who town_day", "there is no command 'ask who'; did you mean why?"),
        ("runs zzz", "there is no command 'runs zzz'; `townlet runs --help` shows all"),
        ("frobnicate", "there is no command 'frobnicate'; `townlet --help` shows all"),
        ("--verson", "there is no option --verson; did you mean --version? see `townlet --help`"),
        ("run town_day --ticks 0", "--ticks: 0 is not in the range x>=1; see `townlet run --help`"),
        ("run town_day --seed x", "--seed: 'x' is not a whole number; see `townlet run --help`"),
        ("scenarios new a/b", f"NAME: 'a/b' cannot be a name; expected {EXPECTED}; see `townlet scenarios new --help`"),
    ],
)  # fmt: skip
def test_a_wrong_word_is_named_with_what_to_do(words: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*words.split(), capsys=capsys) == (2, "", f"townlet: {sentence}\n")


@pytest.mark.parametrize("words", ["telemetry validate", "run town_day --seed"])
def test_what_click_finds_wrong_begins_small_as_ours_does(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(*words.split(), capsys=capsys)
    assert code == 2
    assert err.removeprefix("townlet: ")[:1] in "abcdefghijklmnopqrstuvwxyz"


def test_on_80_columns_no_command_of_a_group_is_explained_by_half_a_sentence() -> None:
    for name in COMMANDS:
        group = vars(import_module(f"townlet.cli.{name}"))[name]
        commands = group.commands if isinstance(group, click.Group) else {}
        room = 80 - 8 - max(map(len, commands), default=0)
        assert [word for word, one in commands.items() if one.get_short_help_str(room).endswith("...")] == []


def options_of(command: click.Command) -> Iterator[click.Parameter]:
    for one in command.commands.values() if isinstance(command, click.Group) else ():
        yield from options_of(one)
    yield from command.params


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "train"])  # the config bounds what `train` is given
def test_every_number_of_a_command_has_an_end_and_is_one(name: str) -> None:
    for option in options_of(vars(import_module(f"townlet.cli.{name}"))[name]):
        if isinstance(option.type, click.types.IntParamType):
            assert isinstance(option.type, click.IntRange), option.name
            assert option.type.max is not None, option.name
        if isinstance(option.type, click.types.FloatParamType):
            with pytest.raises(click.BadParameter, match="'nan' is not a number"):
                option.type.convert("nan", option, None)


def helps(command: click.Command, path: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """`--help` of a command and of those in it, on 80 columns."""
    context = click.Context(command, parent, path, terminal_width=80)
    yield context.command_path, command.get_help(context)
    for name, one in command.commands.items() if isinstance(command, click.Group) else ():
        yield from helps(one, name, context)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_no_path_is_refused_wherever_one_is_asked_for(name: str) -> None:
    """`--run-dir "$NOT_SET"` made a run in the current folder, `--output -` a file of that name."""
    for option in options_of(vars(import_module(f"townlet.cli.{name}"))[name]):
        if isinstance(option.type, click.Path):
            with pytest.raises(click.BadParameter, match="the path is empty; name one"):
                option.type.convert("", option, None)
            with pytest.raises(click.BadParameter, match="- is neither stdin nor stdout here; name a file"):
                option.type.convert("-", option, None)


@pytest.mark.parametrize("words", ["promote history --ledger .", "train town_day --mode replay --replay-sample ."])
def test_a_folder_in_place_of_a_file_is_told(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(*words.split(), capsys=capsys)
    assert (code in (2, 64), "is a directory" in err, err.count("\n")) == (True, True, 1)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_on_80_columns_with_an_example(name: str) -> None:
    for path, text in helps(vars(import_module(f"townlet.cli.{name}"))[name], name, click.Context(app, None, "townlet")):
        assert f"\n    {path} " in f"{text} ".replace("\n", " \n"), f"`{path} --help` shows no example of it"
        assert [line for line in text.splitlines() if len(line) > 80] == []
        assert not re.search(r"None|\d{7}", text), "a limit that says nothing to a reader"


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--version", capsys=capsys) == (0, f"townlet {__version__}\n", "")


def test_a_misspelt_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("trian", capsys=capsys) == (2, "", "townlet: there is no command 'trian'; did you mean train?\n")
    assert call("zzz", capsys=capsys) == (2, "", "townlet: there is no command 'zzz'; `townlet --help` shows all\n")


def test_wrong_options_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call("config", "show", "--nope", capsys=capsys)
    assert (code, out) == (2, "")
    assert err.startswith("townlet: there is no option --")
    assert err.endswith(("--nope'; see `townlet config show --help`\n", "--nope; see `townlet config show --help`\n"))


def failing(error: BaseException) -> click.Command:
    @click.command()
    def tool() -> None:
        raise error

    return tool


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (TownletError("it failed"), 1, "it failed"),
        (UsageError("wrong"), 2, "wrong"),
        (ConfigError("bad key"), 2, "bad key"),
        (DivergedError("NaN"), 5, "NaN"),
        (StorageError("full"), 74, "full"),
        (OSError(28, "No space left on device", "a.txt"), 74, "a.txt: No space left on device; check the path"),
        (MemoryError(), 71, "there is not enough memory"),
        (ImportError("libx.so: failed to map segment from shared object"), 71, "there is not enough memory"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
            71,
            "there is not enough memory",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.Abort(), 130, "interrupted"),
        (click.ClickException("odd"), 1, "odd"),
    ],
)
def test_errors_end_as_one_sentence_with_their_code(
    error: BaseException, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, out, err = call(command=failing(error), capsys=capsys)
    assert (found, out) == (code, "")
    assert err.lstrip().startswith(f"townlet: {text}")
    assert "Traceback" not in err


def test_an_error_of_ours_is_not_taken_for_a_lack_of_memory(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="a mistake"):
        call(command=failing(RuntimeError("a mistake")), capsys=capsys)


@pytest.mark.parametrize("args", [("--debug", "config", "show", "nowhere"), ("config", "show", "nowhere", "--debug")])
def test_debug_may_stand_anywhere_and_shows_the_traceback(args: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(*args, capsys=capsys)
    assert code == 2
    assert "Traceback" in err
    assert "there is no scenario called 'nowhere'" in err


def test_a_bug_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        run(failing(ZeroDivisionError("a bug")), [])


def test_promotion_has_its_own_code_of_wrong_usage(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    promote = failing(UsageError("which one?"))
    promote.name = "promote"
    assert call(command=promote, capsys=capsys)[0] == 64
    monkeypatch.setattr(frame.LazyGroup, "get_command", lambda self, ctx, name: promote)
    assert call("promote", "--nope", capsys=capsys)[0] == 64


def test_an_option_that_is_missing_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call("replay", "export", "folder", "--output", "file", capsys=capsys)
    assert code == 2
    assert err == (
        "townlet: missing option '--format'; choose from minari, parquet, joint, vault; see `townlet replay export --help`\n"
    )


def test_a_closed_pipe_is_quiet() -> None:
    script = f"{sys.executable} -m townlet config schema | head -n 1"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SOURCE)})
    assert result.stdout.count("\n") == 1
    assert result.stderr == ""


def test_a_reader_that_is_gone_is_not_a_check_that_failed() -> None:
    """141 is what the shell says of other commands too; Click's 1 would mean an alert or a damaged log."""
    script = f"{sys.executable} -m townlet config schema | true; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SOURCE)})
    assert (result.returncode, result.stderr) == (141, "")


@pytest.mark.parametrize(("words", "code"), [("scenarios show nowhere", 2), ("scenarios list > /dev/full", 74)])
def test_an_error_that_nobody_can_be_told_keeps_its_exit_code(words: str, code: int) -> None:
    """stderr on a full disk: the 1 of a traceback would mean a check that failed."""
    script = f"{sys.executable} -m townlet {words} 2> /dev/full"
    assert subprocess.run(["bash", "-c", script], env={**os.environ, "PYTHONPATH": str(SOURCE)}).returncode == code


@pytest.mark.parametrize(
    ("given", "expected"), [({}, "1"), ({"OMP_NUM_THREADS": "3"}, "None"), ({"OPENBLAS_NUM_THREADS": "2"}, "2")]
)
def test_a_command_takes_one_thread_of_blas_before_numpy_comes_unless_told_otherwise(
    given: dict[str, str], expected: str
) -> None:
    """Its number is read when numpy is loaded."""
    code = "import click, os, sys; from townlet.cli.app import run\n"
    code += 'run(click.command()(lambda: click.echo(f\'{os.environ.get("OPENBLAS_NUM_THREADS")} {"numpy" in sys.modules}\')))'
    without = {name: value for name, value in os.environ.items() if name not in BLAS_THREADS}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=without | {"PYTHONPATH": str(SOURCE)} | given
    )
    assert result.stdout == f"{expected} False\n"


def test_colours_are_left_out_when_asked() -> None:
    code = "import click; from townlet.cli.app import run; run(click.command()(lambda: click.secho('red', fg='red')), [])"
    assert "\x1b" not in shell("-c", code, env={"NO_COLOR": "1"}).stdout


def test_commands_complete_without_importing_them() -> None:
    words = {"_TOWNLET_COMPLETE": "bash_complete", "COMP_WORDS": "townlet te", "COMP_CWORD": "1"}
    result = shell("-c", "from townlet.cli.app import main; main()", env=words)
    assert result.stdout == "plain,telemetry\n"


# --- shared helpers --------------------------------------------------------------------------------------------------


def test_json_has_no_nan() -> None:
    assert json.loads(dumps({"a": float("nan"), "b": [1.5, float("inf")], 3: (1, None)})) == {
        "a": None,
        "b": [1.5, None],
        "3": [1, None],
    }


def test_results_go_to_stdout_as_text_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"a": 1}, "one", as_json=False)
    emit({"a": 1}, lambda: "never", as_json=True)
    assert capsys.readouterr().out == 'one\n{\n  "a": 1\n}\n'


def test_a_line_is_broken_between_words_but_not_in_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((40, 24)))
    said = "the state is saved. Continue with `townlet train --resume runs/a`."
    told = fit(said, Mock(isatty=lambda: True))
    assert told.splitlines() == ["the state is saved. Continue with", "    `townlet train --resume runs/a`."]
    assert fit(said, Mock(isatty=lambda: False)) == said


def test_leave_ends_with_a_code_but_not_with_zero(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    @click.argument("code", type=int)
    def tool(code: int) -> None:
        leave(code)

    assert call("0", command=tool, capsys=capsys)[0] == 0
    assert call("1", command=tool, capsys=capsys)[0] == 1


def test_progress_is_silent_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("work", 3) as advance:
        advance(1)
        advance(2, "nearly")
    assert capsys.readouterr() == ("", "")


def test_progress_is_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("townlet.cli.common.interactive", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress("work", 3) as advance:
        advance(3, "done")
    out, err = capsys.readouterr()
    assert out == ""
    assert "work" in err
    assert "3/3" in err


# --- config and doctor -----------------------------------------------------------------------------------------------


def test_config_show_resolves_and_selects(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call("config", "show", "town_day", "--set", "ppo.gamma=0.5", "--section", "ppo", "--json", capsys=capsys)
    assert code == 0
    assert json.loads(out)["gamma"] == 0.5
    assert call("config", "show", "town_day", "--section", "conflict.rivalry", capsys=capsys)[1].startswith(
        "increment_per_conflict: 0.3\n"
    )
    first = call("config", "show", "town_day", "--hash", capsys=capsys)[1]
    assert len(first) == 17
    assert call("config", "show", "town_day", "--hash", "--set", "seed=77", capsys=capsys)[1] != first
    assert call("config", "show", "town_day", "--section", "pppo", capsys=capsys)[0] == 2


def test_config_schema_in_three_forms(capsys: pytest.CaptureFixture[str]) -> None:
    assert "ppo.learning_rate = `0.0003`" in call("config", "schema", capsys=capsys)[1]
    assert call("config", "schema", "--page", capsys=capsys)[1].startswith("# Config reference\n")
    schema = json.loads(call("config", "schema", "--json", capsys=capsys)[1])
    assert schema["additionalProperties"] is False
    assert "ppo" in schema["properties"]


def test_doctor_tells_what_is_there_and_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = call("doctor", "--json", capsys=capsys)
    report = json.loads(out)
    assert set(GIVES) == set(EXTRA_OF.values())
    assert (code, report["ok"], report["townlet"]) == (0, True, __version__)
    assert all(report["base"].values())
    assert report["kernel_cache"]["writable"] in (True, False)
    monkeypatch.setattr("townlet.cli.doctor.installed", lambda name: name not in ("torch", "numba"))
    code, out, _ = call("doctor", capsys=capsys)
    assert code == 0
    assert "install with: pip install 'townlet[ml]'" in out
    assert "missing torch" in out
    monkeypatch.setattr("townlet.cli.doctor._version", lambda name: None if name == "msgspec" else "1.0")
    code, out, _ = call("doctor", capsys=capsys)
    assert code == 1
    assert "MISSING msgspec" in out
