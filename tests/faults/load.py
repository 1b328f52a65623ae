"""Eight runs, eight captures and eight watchers on one machine: is memory flat, is nothing lost, do watchers keep up?

python tests/faults/load.py [--minutes 60] [--each 8] [--nice 0] [--output FILE]

Runs train and captures are taken, again and again, until the time is over; every run has a watcher. Then all are stopped, and
what they left is read: every log whole and every record of it seen by its watcher, every capture valid, every checkpoint sound.
A record counts from the moment it is in the log until its watcher has printed it.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

LOOK_EVERY = 0.05  # seconds between looks at the logs
MEMORY_EVERY = 10.0
PAUSE = 4.0  # between two captures of one process
SETTLED = 0.2  # of the time, after which memory should be flat
RUN = (
    *(
        "training.towns=4",
        "training.horizon=32",
        "training.eval_every=50",
        "training.eval_towns=2",
        "training.checkpoint_every=20",
    ),
    *("training.keep_checkpoints=3", "telemetry.max_entries=200", "policy.network.map_encoder=none"),
    *("policy.network.feature_size=16", "policy.network.trunk_sizes=[32]", "scenario.episode_ticks=240"),
)
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def captures_without_end(folder: str) -> None:
    """Into one folder: a capture, then more towns appended, within a bound; every fiftieth time it is validated."""
    from townlet.config.loader import load_config
    from townlet.policy.capture import CaptureOptions, capture
    from townlet.policy.replay_report import validate

    config, made = load_config("queue_conflict"), 0
    while True:
        capture([config], Path(folder), CaptureOptions(ticks=240, append=made > 0, max_bytes=2_000_000))
        made += 1
        if made % 50 == 0:
            report = validate(Path(folder))
            assert report.ok, report.problems
        Path(folder).with_suffix(".count").write_text(f"{made}\n")
        time.sleep(PAUSE)


class Watched:
    """A run and its watcher: when each record came into the log, and when the watcher printed it."""

    def __init__(self, place: Path, number: int) -> None:
        self.place, self.number = place, number
        self.folder = place / f"run{number}"
        self.log = self.folder / "ppo.ndjson"
        watch = [sys.executable, "-m", "townlet", "telemetry", "watch", str(self.log), "--json", "--keep-going", "--no-defaults"]
        self.watcher = _start(watch, place / f"watch{number}.err", 0, stdout=subprocess.PIPE)
        assert self.watcher.stdout is not None
        os.read(self.watcher.stdout.fileno(), 1 << 16)  # it says that it waits for the log
        os.set_blocking(self.watcher.stdout.fileno(), False)
        self.came: dict[int, float] = {}  # offset of a record → moment
        self.delays: list[float] = []
        self.seen = 0
        self._rest = b""
        self._identity, self._at, self._tail = 0, 0, b""

    def start(self, nice: int) -> None:
        words = [sys.executable, "-m", "townlet", "train", "kitchen_breakfast", "--mode", "rollout", "--epochs", "1000000"]
        words += ["--run-dir", str(self.folder), "--seed", str(self.number)]
        for one in RUN:
            words += ["--set", one]
        self.run = _start(words, self.place / f"run{self.number}.err", nice)

    def look(self) -> None:
        """At the log: which records are new."""
        try:
            with self.log.open("rb") as stream:
                about = os.fstat(stream.fileno())
                if about.st_ino != self._identity:  # rotated, or the first
                    self._identity, self._at, self._tail = about.st_ino, 0, b""
                stream.seek(self._at)
                data = stream.read()
        except FileNotFoundError:
            return
        now = time.monotonic()
        self._at += len(data)
        *lines, self._tail = (self._tail + data).split(b"\n")
        for line in lines:
            self.came.setdefault(json.loads(line)["log_stream_offset"], now)

    def read(self) -> None:
        """What the watcher has printed."""
        assert self.watcher.stdout is not None
        data = self.watcher.stdout.read() or b""
        now = time.monotonic()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            record = json.loads(line).get("record")
            if record is not None:
                self.seen += 1
                came = self.came.pop(record["log_stream_offset"], None)
                self.delays.append(0.0 if came is None else now - came)  # seen before we looked


def _start(words: list[str], errors: Path, nice: int, **options: Any) -> subprocess.Popen[bytes]:
    """Who is held back gets a session of its own: Linux weighs sessions first, then the processes inside one."""
    process = subprocess.Popen(
        ["nice", "-n", str(nice), *words], env=os.environ | ONE_THREAD, stderr=errors.open("wb"), start_new_session=nice > 0,
        **{"stdout": subprocess.DEVNULL, **options},
    )  # fmt: skip
    session = Path(f"/proc/{process.pid}/autogroup")
    if nice > 0 and session.exists():
        session.write_text(f"{nice}\n")
    return process


def load(place: Path, minutes: float, each: int, nice: int) -> dict[str, Any]:
    watched = [Watched(place, number) for number in range(each)]
    for one in watched:
        one.start(nice)
    script = [sys.executable, __file__, "--capture-into"]
    capturing = [_start([*script, str(place / f"capture{n}")], place / f"capture{n}.err", nice) for n in range(each)]
    selector = selectors.DefaultSelector()
    for one in watched:
        assert one.watcher.stdout is not None
        selector.register(one.watcher.stdout, selectors.EVENT_READ, one)
    processes = {f"run {n}": one.run for n, one in enumerate(watched)} | {f"capture {n}": one for n, one in enumerate(capturing)}
    processes |= {f"watcher {n}": one.watcher for n, one in enumerate(watched)}
    memory: dict[str, list[int]] = {name: [] for name in processes}
    began = weighed = time.monotonic()
    while time.monotonic() - began < minutes * 60:
        for key, _ in selector.select(LOOK_EVERY):
            key.data.read()
        for one in watched:
            one.look()
        if time.monotonic() - weighed > MEMORY_EVERY:
            weighed = time.monotonic()
            for name, process in processes.items():
                if process.poll() is not None:
                    raise SystemExit(f"{name} ended with {process.returncode}: {_errors(place, name)}")
                memory[name].append(psutil.Process(process.pid).memory_info().rss >> 10)
    alive = sum(process.poll() is None for process in processes.values())
    for process in (*capturing, *(one.run for one in watched)):
        process.send_signal(signal.SIGTERM)
    while any(process.poll() is None for process in (*capturing, *(one.run for one in watched))):
        for key, _ in selector.select(LOOK_EVERY):
            key.data.read()
    codes = [one.run.wait() for one in watched]
    end = time.monotonic() + 5
    while time.monotonic() < end:  # the watchers print what is left
        for key, _ in selector.select(LOOK_EVERY):
            key.data.read()
    for one in watched:
        one.watcher.send_signal(signal.SIGINT)
        one.watcher.wait()
    return _figures(place, watched, len(capturing), memory, alive, codes) | {
        "minutes": minutes,
        "nice of runs and captures": nice,
    }


def _errors(place: Path, name: str) -> str:
    return (place / f"{name.replace('watcher', 'watch').replace(' ', '')}.err").read_text()[-2000:]


def _figures(
    place: Path, watched: list[Watched], captures: int, memory: dict[str, list[int]], alive: int, codes: list[int]
) -> dict[str, Any]:
    from townlet.policy.checkpoint import load_checkpoint
    from townlet.policy.replay_report import validate
    from townlet.telemetry.ndjson import read_records

    records = [list(read_records(one.log)) for one in watched]
    gaps = sum([record["log_stream_offset"] for record in found] != list(range(1, len(found) + 1)) for found in records)
    sound = sum(bool(load_checkpoint(one.folder / "checkpoints").weights) for one in watched)
    reports = [validate(place / f"capture{n}") for n in range(captures)]
    print("".join(f"{problem}\n" for report in reports for problem in report.problems), end="", file=sys.stderr)
    counted = [int((place / f"capture{n}.count").read_text()) for n in range(captures)]
    delays = sorted(delay for one in watched for delay in one.delays)
    growth = {}
    for name, weights in memory.items():
        later = weights[int(len(weights) * SETTLED) :]
        third = max(1, len(later) // 3)
        kind = name.split()[0]
        growth[kind] = max(growth.get(kind, 0.0), max(later[-third:]) / max(later[:third]) - 1)
    return {
        "runs": len(watched),
        "alive at the end": alive,
        "exit codes of the runs": sorted(set(codes)),
        "records": sum(map(len, records)),
        "logs with gaps": gaps,
        "records not seen by their watcher": sum(len(found) - one.seen for found, one in zip(records, watched)),
        "delay of a watcher in seconds": {
            "median": round(delays[len(delays) // 2], 3),
            "of 1,000 the slowest": round(delays[int(len(delays) * 0.999)], 3),
            "slowest": round(delays[-1], 3),
            "above 2 s": sum(delay > 2 for delay in delays),
        },
        "checkpoints sound": sound,
        "captures": sum(counted),
        "captures valid": sum(report.ok for report in reports),
        "largest growth of memory, last third over first": {kind: round(share, 3) for kind, share in growth.items()},
        "largest memory in MB": {
            kind: max(max(weights) for name, weights in memory.items() if name.startswith(kind)) >> 10
            for kind in ("run", "capture", "watcher")
        },
        "load of the machine, last 15 minutes": round(os.getloadavg()[2], 1),
        "processors": os.cpu_count(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--each", type=int, default=8)
    parser.add_argument("--nice", type=int, default=0, help="of runs and captures; watchers are not held back")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--capture-into", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.capture_into:
        captures_without_end(asked.capture_into)
    place = Path(tempfile.mkdtemp(prefix="townlet-load-"))
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from faults.table import note_commit

    found = load(place, asked.minutes, asked.each, asked.nice)
    note_commit(found)
    text = json.dumps(found, indent=1) + "\n"
    print(text)
    if asked.output is not None:
        asked.output.write_text(text)
    delay, lost = found["delay of a watcher in seconds"]["above 2 s"], found["records not seen by their watcher"]
    whole = found["captures valid"] == found["checkpoints sound"] == found["runs"] and not found["logs with gaps"]
    if not whole or lost:
        print(f"What they left stays in {place}.", file=sys.stderr)
        return 1
    shutil.rmtree(place)
    return int(bool(delay))


if __name__ == "__main__":
    sys.exit(main())
