"""A signal ends a command with its code and one sentence, wherever it comes; a run that has something to save saves it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from faults import fault_tools as tools
from townlet.errors import InterruptedRun
from townlet.files import FolderLock
from townlet.policy.training.contexts import RunOptions
from townlet.signals import StopFlag, ctrl_c_raises

SAY = "townlet: stopped by {}\n"
HANG = "import time; print('here', flush=True); time.sleep(600)"


def started(code: str) -> subprocess.Popen[str]:
    """A process that says `here` when it has come to the moment that is looked at."""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["import", "command", "end"])
def test_a_signal_while_there_is_nothing_to_save_leaves_at_once_with_its_code(moment: str, number: signal.Signals) -> None:
    """While modules are imported, inside a command, and after it; a library that is in the middle does not see an exception."""
    code = {
        "import": f"import builtins, sys; from townlet.cli import entry; sys.modules['townlet.cli.app'] = None\n"
        f"class Slow:\n def find_spec(self, *a):\n  {HANG}\n"
        "del sys.modules['townlet.cli.app']; sys.meta_path.insert(0, Slow()); entry.main()",
        "command": f"from townlet import signals; signals.answer()\ntry:\n {HANG}\nexcept BaseException: print('raised')",
        "end": f"import atexit, sys; from townlet import signals; signals.answer()\ndef late():\n {HANG}\n"
        "atexit.register(late); sys.argv = ['townlet', '--version']\n"
        "sys.stdout = open('/dev/null', 'w'); out = sys.__stdout__; import builtins\n"
        "real = print\nbuiltins.print = lambda *a, **k: real(*a, **{**k, 'file': out})\n"
        "from townlet.cli.entry import main; main()",
    }[moment]
    process = started(code)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err, out) == (128 + number, SAY.format("Ctrl-C" if number == signal.SIGINT else number.name), "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_interpreter_is_taken_apart_changes_nothing(number: signal.Signals) -> None:
    """When modules are cleared handlers have their default back already: a process that has done its work would be killed."""
    code = (
        "import os, sys, time, townlet.signals as signals\nsignals.answer()\n"
        "class Late:\n def __del__(self, write=os.write, sleep=time.sleep):\n  write(1, b'here\\n'); sleep(1.5)\n"
        "sys.modules['late'] = Late(); sys.exit(0)"
    )
    process = started(code)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err, out) == (0, "", "")


def test_the_first_signal_of_a_run_that_has_begun_asks_and_the_second_leaves() -> None:
    code = (
        "import time; from townlet import signals; signals.answer()\n"
        "with signals.StopFlag() as stop:\n stop.begun = True; print('here', flush=True)\n"
        " while not stop.asked: time.sleep(0.01)\n print('asked', flush=True); time.sleep(600)"
    )
    process = started(code)
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert process.stdout.readline() == "asked\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, SAY.format("Ctrl-C"))


def test_a_run_that_has_not_begun_leaves_at_the_first_signal_and_says_so() -> None:
    code = f"from townlet import signals; signals.answer()\nwith signals.StopFlag():\n {HANG}"
    process = started(code)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (143, SAY.format("SIGTERM before there was anything new to save"))


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_a_signal_that_was_ignored_when_the_command_began_stays_ignored(name: str) -> None:
    """`nohup`, and what a shell starts in the background."""
    code = (
        f"import os, signal; signal.signal(signal.{name}, signal.SIG_IGN)\nfrom townlet import signals; signals.answer()\n"
        f"with signals.StopFlag() as stop:\n os.kill(os.getpid(), signal.{name}); print('here', flush=True)\n"
        "raise SystemExit(stop.asked)"
    )
    process = started(code)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_run_whose_terminal_is_closed_saves_its_state(tmp_path: Path) -> None:
    """It has nobody to speak to any more, and must not fall over that."""
    code = (
        "import pathlib, sys, time; from townlet import signals; signals.answer()\n"
        "with signals.StopFlag() as stop:\n stop.begun = True; print('here', flush=True)\n"
        " while not stop.asked: time.sleep(0.01)\n"
        " print('asked', file=sys.stderr, flush=True); print('saving', flush=True)\n"
        f" pathlib.Path({str(tmp_path / 'saved')!r}).write_text('state')\n"
        "sys.exit(stop.interruption('there').exit_code)"
    )
    number, terminal = pty.fork()
    if number == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
        os.execv(sys.executable, [sys.executable, "-c", code])
    while b"here" not in os.read(terminal, 100):
        pass
    os.close(terminal)
    _, status = os.waitpid(number, 0)
    assert (os.waitstatus_to_exitcode(status), (tmp_path / "saved").exists()) == (129, True)


@pytest.mark.parametrize(("closed", "words", "code"), [(1, "--version", 0), (2, "nonsense", 2), (0, "--version", 0)])
def test_a_command_whose_streams_are_closed_does_its_work(closed: int, words: str, code: int) -> None:
    command = f"{sys.executable} -m townlet {words} {'<' if closed == 0 else closed}{'' if closed == 0 else '>'}&-"
    found = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, "Traceback" in found.stderr) == (code, False)


def test_no_file_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    """A sentence to stderr would be written into it."""
    log = tmp_path / "log"
    code = f"from townlet import signals; signals.answer(); log = open({str(log)!r}, 'w'); signals.leave(15)"
    found = subprocess.run(["bash", "-c", f'{sys.executable} -c "{code}" 2>&- >&- <&-'], timeout=60, check=False)
    assert (found.returncode, log.read_text()) == (143, "")


def test_a_library_s_flag_is_set_and_its_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopFlag() as stop:
        signal.raise_signal(signal.SIGTERM)
    assert (stop.asked, signal.getsignal(signal.SIGTERM)) == (signal.SIGTERM, before)
    with pytest.raises(KeyboardInterrupt), ctrl_c_raises():
        signal.raise_signal(signal.SIGINT)


def test_a_stopped_run_has_the_checkpoints_of_one_that_was_not(tmp_path: Path) -> None:
    """A stop saves a checkpoint off schedule; it goes when the next one is saved."""
    pytest.importorskip("torch")
    tools.train("rollout")(tmp_path / "whole")

    run = tmp_path / "parts" / "run"
    orchestrator = tools.orchestrator(tools.tiny())
    orchestrator.progress = StopAtOnce()
    with pytest.raises(InterruptedRun) as stopped:
        orchestrator.run("rollout", RunOptions(epochs=5, run_dir=run))
    assert stopped.value.exit_code == 143
    assert (run / "checkpoints" / "000001").is_dir()
    tools.train("rollout")(tmp_path / "parts")
    assert tools.different(tools.left(tmp_path / "whole"), tools.left(tmp_path / "parts")) == []


@pytest.mark.parametrize("mode", ["rollout", "anneal"])
def test_a_stop_in_the_middle_of_an_evaluation_is_answered_there_and_the_resumed_run_makes_it(mode: str, tmp_path: Path) -> None:
    """Every evaluation is stopped once; the run ends as one that was not."""
    pytest.importorskip("torch")
    tools.train(mode)(tmp_path / "whole")
    run, calls, said = tmp_path / "parts" / "run", list[object](), list[str]()
    while not said or said[-1]:
        orchestrator = tools.orchestrator(tools.tiny())
        orchestrator.services.evaluation = StoppedScores(calls)  # type: ignore[assignment]
        options = RunOptions(epochs=5 if mode == "rollout" else None, run_dir=run, resume=(run / "run.json").exists())
        said.append("")
        with suppress(InterruptedRun):
            orchestrator.run(mode, options)
            continue
        said[-1] = f"stopped after {len(calls)}"
    assert len(said) > 2
    assert tools.different(tools.left(tmp_path / "whole"), tools.left(tmp_path / "parts")) == []


class StoppedScores(tools.Scores):
    """Every second score is stopped in the middle, as by a signal."""

    def __init__(self, calls: list[object]) -> None:
        self.calls = calls

    def score(self, source: Any, stop: Any = None) -> Any:
        if stop is not None:
            self.calls.append(source)
            if len(self.calls) % 2:
                signal.raise_signal(signal.SIGTERM)
                assert stop()
                raise InterruptedRun("stopped")
        return super().score(source)


class StopAtOnce:
    def begin(self, what: str, total: int, done: int = 0) -> None:
        pass

    def advance(self, figures: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    def say(self, sentence: str) -> None:
        pass


def test_a_lock_of_a_dead_process_is_taken_over_and_a_number_in_it_is_not_believed(tmp_path: Path) -> None:
    code = f"import os; from townlet.files import FolderLock; FolderLock({str(tmp_path)!r}); print('here', flush=True)\n"
    started(code + "os.kill(os.getpid(), 9)").communicate(timeout=60)
    (tmp_path / ".lock").write_text(f"{os.getppid()}\n")  # of a process that lives and is another
    with FolderLock(tmp_path):
        assert int((tmp_path / ".lock").read_text()) == os.getpid()
