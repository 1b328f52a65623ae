"""SIGINT and SIGTERM at random moments of five commands: the right code, one sentence, within 5 s, and nothing lost.

python tests/faults/moments.py [--moments 200] [--anew 20] [--commands a,b] [--output FILE]

A moment lies anywhere between the instruction that sets the handlers and the last of the process. Most processes are forked from
one that has imported everything, so that moments fall into the work; `--anew` of each command are started from nothing, so that
they fall into the imports too. After the signal the command is run again, or resumed, and what it leaves is compared with an
uninterrupted run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEED = 17
LIMIT = 5.0
SENTENCE = re.compile(r"townlet: [Ss]topped by (SIGINT|SIGTERM)[^\n]*\n")
_TERM = 1 << (signal.SIGTERM - 1)


@dataclass(frozen=True)
class Command:
    words: tuple[str, ...]
    again: tuple[str, ...] = ()  # how a user goes on when something is there; otherwise with the same words
    there: str = "nothing"  # what is there then


def commands() -> dict[str, Command]:
    from faults import fault_tools as tools

    sets = tuple(
        word
        for one in (*tools.TINY, "training.eval_every=4", "training.eval_days=1", "evaluation.resamples=20")
        for word in ("--set", one)
    )
    train = ("train", "kitchen_breakfast", "--run-dir", "run", "--no-plots")
    resume = ("train", "--resume", "run", "--no-plots")
    capture = ("capture", "kitchen_breakfast", "--towns", "4", "--ticks", "120", "--output", "out")
    towns = ("--scenario", "kitchen_breakfast", "--seeds", "2", "--days", "1")
    logs = ("--events", "events.ndjson", "--digests", "digests.ndjson", "--overwrite")
    return {
        "train": Command((*train, "--mode", "rollout", "--epochs", "12", *sets), resume, "run/run.json"),
        "anneal": Command((*train, "--mode", "anneal", *sets), resume, "run/run.json"),
        "capture": Command(capture, (*capture, "--overwrite"), "out"),
        "evaluate": Command(("evaluate", "scripted", "random", *towns, "--output", "card.json")),
        "run": Command(("run", "kitchen_breakfast", "--ticks", "600", *logs)),
    }


@dataclass
class Ended:
    code: int
    said: str
    seconds: float = 0.0  # from the signal to the end
    sent: bool = True


class Starter:
    """Starts commands: forked from this process, in which everything is imported, or anew."""

    def __init__(self) -> None:
        self.child = False

    def start(self, words: tuple[str, ...], place: Path, *, anew: bool) -> int | None:
        """The process's number; None in the forked process itself."""
        errors = os.open(place / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        nothing = os.open(os.devnull, os.O_RDWR)
        if anew:
            process = subprocess.Popen([sys.executable, "-m", "townlet", *words], cwd=place / "in", stderr=errors, stdout=nothing)
            process.returncode = 0  # waited for by number
            number: int | None = process.pid
        else:
            number = os.fork() or None
            if number is None:
                os.dup2(errors, 2)
                os.dup2(nothing, 1)
                os.dup2(nothing, 0)
                os.chdir(place / "in")
                for one in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(one, signal.SIG_DFL)
                sys.argv = ["townlet", *words]
                self.child = True
        os.close(errors)
        os.close(nothing)
        return number


def interrupted(number: int, place: Path, moment: float | None, how: signal.Signals) -> Ended:
    """Wait for the handlers, then for the moment, then send; the whole life of the process where there is no moment."""
    while not _answers(number):
        time.sleep(0.0005)
    ready = time.monotonic()
    if moment is None:
        _, status = os.waitpid(number, 0)
        return Ended(os.waitstatus_to_exitcode(status), _said(place), time.monotonic() - ready)
    while time.monotonic() - ready < moment:
        time.sleep(0.0005)
    done, status = os.waitpid(number, os.WNOHANG)
    if done:
        return Ended(os.waitstatus_to_exitcode(status), _said(place), sent=False)
    os.kill(number, how)
    sent = time.monotonic()
    _, status = os.waitpid(number, 0)
    return Ended(os.waitstatus_to_exitcode(status), _said(place), time.monotonic() - sent)


def _answers(number: int) -> bool:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{number}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) & _TERM)
            if line.startswith("State:") and "Z" in line:
                return True
    return True


def _said(place: Path) -> str:
    return (place / "said").read_text(errors="replace")


@dataclass
class Trial:
    name: str
    command: Command
    whole: dict[str, Any] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    examples: list[str] = field(default_factory=list)

    def judge(self, ended: Ended, how: signal.Signals) -> None:
        """Code, words and time."""
        told = SENTENCE.sub("", ended.said)
        if ended.code == 128 + how and SENTENCE.search(ended.said) and not told.startswith("Traceback"):
            kind = "stopped"
        elif ended.code == 0 and "Traceback" not in ended.said:
            kind = "had ended its work"
        else:
            kind = "wrong code or words"
        if ended.seconds > LIMIT:
            kind = "too slow"
        self.slowest = max(self.slowest, ended.seconds)
        self.count(kind, f"{how.name}, code {ended.code}, {ended.seconds:.1f} s: {ended.said[-300:]}")

    def count(self, kind: str, words: str) -> None:
        self.kinds[kind] += 1
        if kind not in FINE and len(self.examples) < 5:
            self.examples.append(f"{self.name}: {kind}: {words}")


FINE = ("stopped", "had ended its work")


def main() -> int | None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--anew", type=int, default=20, help="of them, in processes started from nothing")
    parser.add_argument("--commands", default="")
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    sys.path.insert(0, str(HERE.parent))
    from faults import fault_tools as tools

    starter, draw = Starter(), random.Random(SEED)
    rows = {row["command"]: row for row in json.loads(asked.output.read_text())} if asked.output.exists() else {}
    listed, place = commands(), Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    for name in asked.commands.split(",") if asked.commands else listed:
        trial = Trial(name, listed[name])
        times = {}
        _warm(trial.command.words, _emptied(place))
        for anew in (False, True):
            number = starter.start(trial.command.words, _emptied(place), anew=anew)
            if number is None:
                return None
            whole = interrupted(number, place, None, signal.SIGTERM)
            assert whole.code == 0, whole.said
            times[anew] = whole.seconds
            trial.whole = tools.left(place / "in")
        sent = 0
        while sent < asked.moments:
            anew, how = sent < asked.anew, draw.choice((signal.SIGINT, signal.SIGTERM))
            number = starter.start(trial.command.words, _emptied(place), anew=anew)
            if number is None:
                return None
            ended = interrupted(number, place, draw.random() * times[anew], how)
            if not ended.sent:
                continue
            sent += 1
            trial.judge(ended, how)
            go_on = trial.command.again if (place / "in" / trial.command.there).exists() else trial.command.words
            number = starter.start(go_on, place, anew=False)
            if number is None:
                return None
            _compare(trial, interrupted(number, place, None, how), place, tools)
            rows[name] = {"command": name, "moments": sent, "anew": min(sent, asked.anew)}
            rows[name] |= {"slowest_seconds": round(trial.slowest, 2), "ends": dict(trial.kinds)}
            asked.output.write_text(json.dumps(list(rows.values()), indent=1) + "\n")
        print(json.dumps(rows[name]), file=sys.stderr, flush=True)
        for line in trial.examples:
            print("   ", line, file=sys.stderr, flush=True)
    shutil.rmtree(place)  # by this process: forked ones leave by another way
    return int(any(kind not in FINE for row in rows.values() for kind in row["ends"]))


def _warm(words: tuple[str, ...], place: Path) -> None:
    """Once in this very process, so that those forked from it have everything loaded."""
    from townlet.cli.app import main as command

    with contextlib.chdir(place / "in"), contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        command(words)


def _emptied(place: Path) -> Path:
    shutil.rmtree(place / "in", ignore_errors=True)
    (place / "in").mkdir()
    return place


def _compare(trial: Trial, again: Ended, place: Path, tools: Any) -> None:
    """What is there after the command was run again, against the uninterrupted one; but for a capture that was moved aside."""
    if again.code:
        trial.count("cannot go on", again.said[-300:])
        return
    root = place / "in"
    for aside in root.glob("out.old-*"):
        shutil.rmtree(aside)
    if words := tools.leftovers(root):
        trial.count("leftovers", ", ".join(words))
    if apart := tools.different(trial.whole, tools.left(root)):
        trial.count("different", "; ".join(apart))


if __name__ == "__main__":
    ended = main()
    if ended is None:  # the forked process: the command, to the very end of the interpreter
        from townlet.cli import entry

        entry.main()
    sys.exit(ended)
