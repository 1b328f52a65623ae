"""Watch a log: follow it, feed every record to the rules, and tell what happens, as a stream of events."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from townlet.errors import UsageError
from townlet.telemetry.alarm_rules import Alarm, Rule, RuleState
from townlet.telemetry.follow import Follower, NewLine, Notice
from townlet.telemetry.ndjson import UNREADABLE, log_parts
from townlet.telemetry.validate import LogChecker, Report

HOOK_SECONDS = 30.0
NOTICES = 5  # at most, of one line


class Seen(NamedTuple):
    """One record, and what it set off."""

    record: dict[str, object]
    alarms: list[Alarm]


class Silence(NamedTuple):
    """No record for longer than `max_gap`."""

    seconds: float
    last: dict[str, object] | None

    @property
    def alarm(self) -> Alarm:
        message = f"no record for {self.seconds:.0f} s"
        return Alarm("max gap", "", self.seconds, self.seconds, float("nan"), message)


Event = Seen | Notice | Silence


class Watch:
    """The rules over the records of one log. `feed` takes lines; what is wrong with one becomes a notice, never an end."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.states = [RuleState(rule) for rule in rules]
        self.report = Report(limit=NOTICES)  # emptied with each record
        self._checker = LogChecker(self.report)

    def feed(self, line: NewLine) -> Iterator[Event]:
        yield from self._check(line)
        try:
            record = msgspec.json.decode(line.raw)
        except UNREADABLE:
            return
        if not isinstance(record, dict) or record.get("kind") == "batch":
            return
        alarms = [alarm for alarm in (state.feed(record) for state in self.states) if alarm is not None]
        yield Seen(record, alarms)

    def _check(self, line: NewLine) -> Iterator[Notice]:
        self.report.problems.clear()
        self.report.notes.clear()
        self._checker.check(line.path, line.number, line.raw)
        yield from (Notice("invalid", str(problem)) for problem in self.report.problems)
        yield from (Notice("note", str(note)) for note in self.report.notes)


def watch_log(
    path: Path | str,
    watch: Watch,
    *,
    follow: bool = True,
    from_start: bool = True,
    max_gap: float | None = None,
    duration: float | None = None,
    interval: float = 0.2,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Event]:
    """Everything that happens to a log: what it holds already, then, with `follow`, what is added to it or done to it.

    Ends at the end of the file without `follow`, else after `duration` seconds or never. `max_gap` counts from the last record.
    """
    for name, value in (("--max-gap", max_gap), ("--duration", duration), ("--interval", interval)):
        if value is not None and not value > 0:
            raise UsageError(f"{name} is {value}; it must be a number of seconds above 0")
    if not follow:
        log_parts(path)  # says so when there is no log
    follower = Follower(path, from_start=from_start)
    began = heard = clock()
    last: dict[str, object] | None = None
    silent = False
    try:
        while True:
            for event in chain(follower.poll(), () if follow else follower.finish()):
                if isinstance(event, Notice):
                    yield event
                    continue
                for result in watch.feed(event):
                    if isinstance(result, Seen):
                        last, heard, silent = result.record, clock(), False
                    yield result
            if not follow:
                return
            now = clock()
            if max_gap is not None and now - heard > max_gap and not silent:
                silent = True
                yield Silence(now - heard, last)
            if duration is not None and now - began >= duration:
                return
            sleep(interval)
    finally:
        follower.close()


def hook_words(command: str) -> list[str]:
    """The words of `--on-alert`, as a shell would split them."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--on-alert {command!r} cannot be split into words: {error}; close its quotes") from error
    if not words:
        raise UsageError("--on-alert is empty; give a command, such as 'notify-send Townlet'")
    return words


def run_hook(command: str, record: Mapping[str, object] | None, alarm: Alarm) -> str:
    """Run `--on-alert`: no shell, the record as JSON on stdin, the alert in TOWNLET_ALERT. Returns what went wrong, or ""."""
    words = hook_words(command)
    try:
        done = subprocess.run(
            words,
            input=msgspec.json.encode(record) + b"\n",
            env=os.environ | {"TOWNLET_ALERT": alarm.message},
            timeout=HOOK_SECONDS,
            stdout=subprocess.DEVNULL,
            check=False,
        )
    except OSError as error:
        return f"--on-alert {words[0]!r} cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"--on-alert {words[0]!r} was ended after {HOOK_SECONDS:.0f} s"
    return f"--on-alert {words[0]!r} ended with code {done.returncode}" if done.returncode else ""


def event_dict(event: Event) -> dict[str, object]:
    """One line of `--json`."""
    if isinstance(event, Notice):
        return {"kind": "notice", "what": event.what, "message": event.message}
    if isinstance(event, Silence):
        return {"kind": "silence", "seconds": event.seconds, "alerts": [event.alarm._asdict()]}
    return {"kind": "record", "alerts": [alarm._asdict() for alarm in event.alarms], "record": event.record}
