"""SIGINT and SIGTERM at random moments of five commands: the right code, one sentence, within 5 s, and nothing lost.

python tests/faults/moments.py [--moments 200] [--commands a,b] [--minutes 60]
                                 [--commits a,b] [--output FILE]

Each command is started from nothing. A moment lies anywhere between the instruction that sets the handlers and the last of the
process, and is counted in seconds it has computed, so that a busy machine does not move it; nor does waiting for a processor
count as the command's own. After the signal the command is run again, or resumed (forked from this process, in which everything
is imported), and what it leaves is compared with an uninterrupted run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
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
SENTENCE = re.compile(r"townlet: [Ss]topped by (Ctrl-C|SIGTERM)[^\n]*\n")
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
    seconds: float = 0.0  # from the signal to the end, but for those in which it waited for a processor that others had
    computed: float = 0.0  # of processors, also from the signal to the end
    sent: bool = True


def start(words: tuple[str, ...], place: Path) -> int:
    """A command from nothing; the process's number."""
    with (place / "said").open("wb") as said:
        command = [sys.executable, "-m", "townlet", *words]
        process = subprocess.Popen(command, cwd=place / "in", stderr=said, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    process.returncode = 0  # waited for by number
    return process.pid


def fork(words: tuple[str, ...], place: Path) -> int | None:
    """The same from this process, in which everything is imported; None in the forked process itself, which is to go on."""
    number = os.fork() or None
    if number is None:
        os.dup2(os.open(place / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.chdir(place / "in")
        sys.argv = ["townlet", *words]
    return number


def interrupted(number: int, place: Path, moment: float | None, how: signal.Signals) -> Ended:
    """Wait for the handlers, then until the process has computed for `moment` seconds more, then send; its whole life where there
    is no moment."""
    while not _answers(number):
        time.sleep(0.0005)
    before = _computed(number)
    if moment is not None:
        until = before + moment
        while before < until and not _ended(number):
            time.sleep(0.002)
            before = _computed(number)
        time.sleep(moment % 0.01)  # the system counts in hundredths
        if _ended(number):
            _, status = os.waitpid(number, 0)
            return Ended(os.waitstatus_to_exitcode(status), _said(place), sent=False)
        os.kill(number, how)
    began, waited = time.monotonic(), _waited(number)
    os.waitid(os.P_PID, number, os.WEXITED | os.WNOWAIT)
    seconds, computed = time.monotonic() - began - (_waited(number) - waited), _computed(number) - before
    _, status = os.waitpid(number, 0)
    return Ended(os.waitstatus_to_exitcode(status), _said(place), seconds, computed)


def _stat(number: int) -> list[str]:
    return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()


def _ended(number: int) -> bool:
    return _stat(number)[0] == "Z"


def _computed(number: int) -> float:
    return sum(map(int, _stat(number)[11:13])) / os.sysconf("SC_CLK_TCK")


def _waited(number: int) -> float:
    return int(Path(f"/proc/{number}/schedstat").read_text().split()[1]) / 1e9


def _answers(number: int) -> bool:
    """It has set its handlers, or is gone."""
    lines = dict(line.split(":\t", 1) for line in Path(f"/proc/{number}/status").read_text().splitlines() if ":\t" in line)
    return lines["State"].startswith("Z") or bool(int(lines["SigCgt"], 16) & _TERM)


def _said(place: Path) -> str:
    return (place / "said").read_text(errors="replace")


@dataclass
class Trial:
    name: str
    command: Command
    slowest: float
    computed: float
    kinds: Counter[str]
    life: float = 0.0  # seconds that it computes when it is left alone
    whole: dict[str, Any] = field(default_factory=dict)

    def judge(self, ended: Ended, how: signal.Signals) -> None:
        """Code, words and time."""
        told = SENTENCE.sub("", ended.said)
        if ended.code == 128 + how and SENTENCE.search(ended.said) and not told.startswith("Traceback"):
            kind = "stopped"
        elif ended.code == 0 and ended.computed < self.life / 2 and "Traceback" not in ended.said:
            kind = "had ended its work"
        else:
            kind = "wrong code or words"
        if ended.seconds > LIMIT:
            kind = "too slow"
        self.slowest, self.computed = max(self.slowest, ended.seconds), max(self.computed, ended.computed)
        told = f"{how.name}, code {ended.code}, {ended.seconds:.1f} s, {ended.computed:.1f} s computed: {ended.said[-300:]}"
        self.count(kind, told)

    def count(self, kind: str, words: str) -> None:
        self.kinds[kind] += 1
        if kind not in FINE:
            print(f"{self.name}: {kind}: {words}", file=sys.stderr, flush=True)


FINE = ("stopped", "had ended its work")


def main() -> int | None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--commands", default="")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which it stops; the next call goes on")
    parser.add_argument("--commits", default="", help="what was measured at others than these and this one is begun anew")
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    sys.path.insert(0, str(HERE.parent))
    from faults import fault_tools as tools
    from faults.table import is_of, note_commit

    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_DFL)  # a shell may have let us ignore them, and so would whoever is started here
    end = time.monotonic() + asked.minutes * 60
    rows = {row["command"]: row for row in json.loads(asked.output.read_text())} if asked.output.exists() else {}
    rows = {name: row for name, row in rows.items() if is_of(row, asked.commits)}
    listed, place = commands(), Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    for name in asked.commands.split(",") if asked.commands else listed:
        row = rows.setdefault(name, {"command": name, "moments": 0, "slowest_seconds": 0.0, "computed_seconds": 0.0, "ends": {}})
        if row["moments"] >= asked.moments or time.monotonic() > end:
            continue
        note_commit(row)
        trial = Trial(name, listed[name], row["slowest_seconds"], row["computed_seconds"], Counter(row["ends"]))
        _warm(trial.command.words, _emptied(place))
        whole = interrupted(start(trial.command.words, _emptied(place)), place, None, signal.SIGTERM)
        assert whole.code == 0, whole.said
        trial.life, trial.whole = whole.computed, tools.left(place / "in")
        draw = random.Random(f"{SEED} {name} {row['moments']}")
        while row["moments"] < asked.moments and time.monotonic() < end:
            how = draw.choice((signal.SIGINT, signal.SIGTERM))
            ended = interrupted(start(trial.command.words, _emptied(place)), place, draw.random() * trial.life, how)
            if not ended.sent:
                continue
            trial.judge(ended, how)
            go_on = trial.command.again if (place / "in" / trial.command.there).exists() else trial.command.words
            if (child := fork(go_on, place)) is None:
                return None
            _compare(trial, interrupted(child, place, None, how), place, tools)
            row["moments"] += 1
            row |= {"slowest_seconds": round(trial.slowest, 2), "computed_seconds": round(trial.computed, 2)}
            row["ends"] = dict(trial.kinds)
            asked.output.write_text(json.dumps(list(rows.values()), indent=1) + "\n")
        print(json.dumps(row), file=sys.stderr, flush=True)
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
