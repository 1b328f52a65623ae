"""Following a log through all that may happen to it, and the rules that alert."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from townlet import files
from townlet.errors import ConfigError, TelemetryError, UsageError
from townlet.telemetry.alarm_rules import (
    PAST,
    RecentValues,
    Rule,
    RuleState,
    default_rules,
    flag_rules,
    merged,
    read_rules,
    rules_of,
)
from townlet.telemetry.example import example_record
from townlet.telemetry.follow import Follower, NewLine, Notice
from townlet.telemetry.ndjson import TelemetryWriter
from townlet.telemetry.watch import Seen, Silence, Watch, hook_words, run_hook, watch_log


def lines(events: Iterator[NewLine | Notice]) -> tuple[list[int], list[str]]:
    """Offsets of the new lines and the kinds of the notices."""
    offsets, notices = [], []
    for event in events:
        if isinstance(event, NewLine):
            offsets.append(json.loads(event.raw)["log_stream_offset"])
        else:
            notices.append(event.what)
    return offsets, notices


def line(offset: int) -> bytes:
    return json.dumps({"log_stream_offset": offset, "pad": "x" * 40}).encode() + b"\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


def append(log: Path, *data: bytes) -> None:
    with open(log, "ab") as file:
        file.write(b"".join(data))


def test_lines_come_as_they_are_written_and_a_half_one_when_it_is_whole(log: Path) -> None:
    follower = Follower(log)
    assert lines(follower.poll()) == ([], ["waiting"])
    assert lines(follower.poll()) == ([], [])
    append(log, line(1), line(2)[:10])
    assert lines(follower.poll()) == ([1], [])
    append(log, line(2)[10:], line(3))
    assert lines(follower.poll()) == ([2, 3], [])
    follower.close()


def test_from_the_end_skips_what_is_there_also_a_half_line(log: Path) -> None:
    append(log.with_name("a.jsonl.1"), line(1))
    append(log, line(2), line(3)[:5])
    follower = Follower(log, from_start=False)
    assert lines(follower.poll()) == ([], [])
    append(log, line(3)[5:], line(4))
    assert lines(follower.poll()) == ([3, 4], [])
    follower.close()


def test_nothing_is_lost_over_a_thousand_rotations_however_seldom_one_looks(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.disk, "fsync", lambda handle: None)  # a thousand of them take seconds
    seen: list[int] = []
    follower = Follower(log)
    with TelemetryWriter(log, max_entries=2) as writer:
        for number in range(1, 2001):
            writer.write({"epoch": number})
            if number % 37 == 0 or 500 < number < 550:
                offsets, notices = lines(follower.poll())
                seen += offsets
                assert notices == []
    seen += lines(follower.poll())[0]
    assert seen == list(range(1, 2001))
    assert len(list(log.parent.iterdir())) == 1000
    follower.close()


def test_a_log_that_is_cut_back_by_a_resumed_run_goes_on_where_it_was_cut(log: Path) -> None:
    writer = TelemetryWriter(log)
    for number in range(1, 6):
        writer.write({"epoch": number})
    position = writer.position()
    for number in range(6, 9):
        writer.write({"epoch": number})
    follower = Follower(log)
    assert lines(follower.poll())[0] == list(range(1, 9))
    writer.rewind(position)
    writer.write({"epoch": 6, "resumed": True})
    assert lines(follower.poll()) == ([6], ["truncated"])
    follower.close()


def test_truncation_and_rewriting_are_told_apart_from_growth(log: Path) -> None:
    follower = Follower(log)
    append(log, line(1), line(2))
    assert lines(follower.poll()) == ([1, 2], [])
    log.write_bytes(line(7))  # shorter, other content
    assert lines(follower.poll()) == ([7], ["truncated"])
    log.write_bytes(line(8) + line(9) + line(10))  # longer than before, other content
    assert lines(follower.poll()) == ([8, 9, 10], ["rewritten"])
    follower.close()


def test_deletion_and_a_new_file_are_told(log: Path) -> None:
    follower = Follower(log)
    append(log, line(1), line(2)[:8])
    lines(follower.poll())
    log.unlink()
    assert lines(follower.poll()) == ([], ["torn", "deleted"])
    assert lines(follower.poll()) == ([], [])
    append(log, line(1))
    assert lines(follower.poll()) == ([1], [])
    other = log.with_name("other")
    append(other, line(5))
    os.replace(other, log)
    assert lines(follower.poll()) == ([5], ["replaced"])
    follower.close()


def test_an_endless_line_is_skipped_with_a_word(log: Path) -> None:
    follower = Follower(log)
    append(log, b"x" * 3_000_000)
    assert lines(follower.poll())[1][0] == "long"
    follower.close()


# --- rules -----------------------------------------------------------------------------------------------------------


def alerts(rule: Rule, values: list[float | None], **other: Any) -> list[int]:
    """Numbers of the records, from 1, at which a rule alerts."""
    state = RuleState(rule)
    return [n for n, v in enumerate(values, 1) if state.feed({"epoch": n, rule.field: v, **other}) is not None]


def test_a_rule_alerts_once_until_it_was_well_again() -> None:
    rule = Rule("kl_k3", "above", 0.1)
    assert alerts(rule, [0.05, 0.2, 0.3, 0.1, 0.2, None, 0.3]) == [2, 5]
    assert alerts(Rule("batch_entropy_mean", "below", 0.5), [0.5, 0.4]) == [2]


def test_patience_and_smoothing_let_one_noisy_epoch_pass() -> None:
    noisy = [0.05, 0.5, 0.05, 0.5, 0.5, 0.05]
    assert alerts(Rule("kl_k3", "above", 0.1), noisy) == [2, 4]
    assert alerts(Rule("kl_k3", "above", 0.1, patience=2), noisy) == [5]
    assert alerts(Rule("kl_k3", "above", 0.3, smoothing=3), noisy) == [4]  # mean of 0.5, 0.05, 0.5


def test_anneal_rules_measure_against_the_baseline_of_the_record() -> None:
    [rule] = flag_rules({"--anneal-queue-max": 0.15, "--anneal-loss-max": None})
    base = {"anneal_queue_baseline": 100.0}
    assert alerts(rule, [114.0, 116.0], anneal_cycle=1, **base) == [2]
    assert alerts(rule, [500.0], **base) == []  # no anneal stage
    assert alerts(rule, [500.0], anneal_cycle=1) == []  # no baseline yet


def test_the_defaults_come_from_the_schema_and_keep_quiet_on_a_healthy_run() -> None:
    rules = default_rules()
    assert Rule("kl_divergence", "above", 0.2) in rules
    assert Rule("anneal_loss_flag", "is", 1.0) in rules
    states = [RuleState(rule) for rule in rules]
    assert not [s for n in range(1, 200) for s in states if s.feed(example_record(n)) is not None]
    assert alerts(Rule("anneal_bc_passed", "is", 0.0), [True, False]) == [2]  # type: ignore[list-item]


def run_of(change: Callable[[int], dict[str, Any]], epochs: int = 120) -> list[str]:
    """The rules that alert by default over an imaginary run that is changed from some epoch on."""
    states = [RuleState(rule) for rule in default_rules()]
    records = [example_record(n, **change(n)) for n in range(1, epochs + 1)]
    return [alarm.field for record in records for state in states if (alarm := state.feed(record)) is not None]


def rate(n: int, before: float, after: float) -> float:
    """A number that varies by a fifth from epoch to epoch, and changes its level after epoch 60."""
    return (before if n <= 60 else after) * (1 + 0.2 * math.sin(2.1 * n))


BAD: dict[str, Callable[[int], dict[str, Any]]] = {
    "conflicts_per_resident_day": lambda n: {"conflicts_per_resident_day": rate(n, 1.4, 2.8), "episode_return_mean": 60.0},
    "exits_per_resident_day": lambda n: {"exits_per_resident_day": 0.0 if n <= 60 else 0.1},
    "episode_return_mean": lambda n: {"episode_return_mean": rate(n, 60.0, 20.0)},
    "kl_k3": lambda n: {"kl_k3": 0.01 if n <= 60 else 0.8},
    "kl_divergence": lambda n: {"kl_divergence": 0.01 if n <= 60 else 0.8},
    "loss_total": lambda n: {"loss_total": 0.3 if n <= 60 else 40.0},
    "grad_norm": lambda n: {"grad_norm": 0.7 if n <= 60 else 300.0},
    "batch_entropy_mean": lambda n: {"batch_entropy_mean": 0.5 if n <= 60 else 0.001},
    "reward_advantage_corr": lambda n: {"reward_advantage_corr": 0.2 if n <= 60 else -0.9},
    "illegal_actions": lambda n: {"illegal_actions": int(n > 60)},
    "records_dropped": lambda n: {"records_dropped": int(n > 60)},
    "anneal_queue_flag": lambda n: {"anneal_cycle": 1, "anneal_queue_flag": n > 60},
    "anneal_bc_passed": lambda n: {"anneal_cycle": 1, "anneal_bc_passed": n <= 60},
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_run_that_goes_bad_sets_off_its_alert_and_no_other(name: str) -> None:
    assert run_of(BAD[name]) == [name]
    healthy = {key: value for key, value in BAD[name](1).items() if key == "anneal_cycle"}
    assert run_of(lambda n: healthy) == []


HEALTHY: dict[str, Callable[[int], dict[str, Any]]] = {
    "conflicts swing with the time of day": lambda n: {"conflicts_per_resident_day": (0.6, 3.2, 1.2, 1.9)[n % 4]},
    "conflicts fall by half": lambda n: {"conflicts_per_resident_day": rate(n, 2.8, 1.4)},
    "conflicts rise by a quarter": lambda n: {"conflicts_per_resident_day": rate(n, 1.4, 1.75)},
    "counts double because the towns do": lambda n: {
        "queue_conflict_events": 200 if n <= 60 else 400,
        "conflicts_per_resident_day": rate(n, 1.4, 1.4),
    },
    "a small run, in which few things happen": lambda n: {"conflicts_per_resident_day": 14.0 if n % 11 == 0 else 0.0},
    "conflicts double while the returns rise": lambda n: {
        "conflicts_per_resident_day": rate(n, 1.4, 2.8),
        "episode_return_mean": rate(n, 30.0, 60.0),
    },
    "one exit now and then": lambda n: {"exits_per_resident_day": 0.0078 if n % 20 == 0 else 0.0},
    "exits of the untrained end": lambda n: {"exits_per_resident_day": max(0.0, 0.5 - n / 40)},
    "returns rise": lambda n: {"episode_return_mean": -20.0 + n if n % 4 == 0 else None},
}


@pytest.mark.parametrize("name", sorted(HEALTHY))
def test_a_healthy_run_sets_off_nothing(name: str) -> None:
    assert run_of(HEALTHY[name]) == []


def test_the_past_is_what_came_before_the_mean_that_is_compared() -> None:
    """32 records of past, two in the mean; the level must be left by the share, the margin and the spread."""
    rule = Rule("exits", "above", 0.5, PAST, smoothing=2, margin=1.0)
    level = [10.0, 12.0] * 16  # median 11, of which half and 1 more are 17.5; the spread is far smaller
    assert alerts(rule, [*level, 17.0, 17.9]) == []
    assert alerts(rule, [*level, 17.0, 18.2]) == [34]
    assert alerts(rule, [*level, *[18.0] * 50]) == [34]  # the new level is told once
    assert alerts(rule, [*level, *[18.0] * 50, 40.0, 40.0]) == [34, 83]  # and is what is compared with from then on
    assert alerts(rule, [*level[1:], 17.0, 18.2]) == []  # no past yet
    wide = [0.0, 22.0] * 16  # the same median, but they vary by 11.2, of which two and a half are 27.9
    assert alerts(rule, [*wide, 38.0, 38.0]) == []
    assert alerts(rule, [*wide, 39.0, 39.0]) == [34]
    below = Rule("exits", "below", 0.5, PAST, smoothing=2)
    assert alerts(below, [*level, 5.6, 5.5]) == []
    assert alerts(below, [*level, 5.5, 5.4]) == [34]


@pytest.mark.parametrize("past", [[1.0, 2.0, 4.0], [1e9 + k % 3 for k in range(50)], [0.1] * 9, [1e300, -1e300, 1e300]])
def test_the_spread_of_the_past_is_its_standard_deviation(past: list[float]) -> None:
    values = RecentValues(1)
    for value in (*past, 0.0):  # the last one is not past yet
        values.add(value)
    assert values.spread == pytest.approx(statistics.stdev(past), rel=1e-9, abs=1e-15)


def test_later_rules_replace_earlier_ones_on_the_same_field() -> None:
    assert merged([Rule("kl_k3", "above", 0.1)], [Rule("kl_k3", "above", 0.5), Rule("kl_k3", "below", 0.0)]) == [
        Rule("kl_k3", "above", 0.5),
        Rule("kl_k3", "below", 0.0),
    ]


def test_rules_are_read_from_yaml_and_json(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(
        "patience: 2\nmax_gap: 60\ndefaults: false\nrules:\n"
        "  - {field: kl_k3, above: 5e-2, smoothing: 3}\n  - {field: anneal_loss_flag, is: true, patience: 1}\n"
    )
    found = read_rules(tmp_path / "rules.yaml")
    assert found.rules == [Rule("kl_k3", "above", 0.05, smoothing=3, patience=2), Rule("anneal_loss_flag", "is", 1.0)]
    assert (found.defaults, found.max_gap) == (False, 60)
    (tmp_path / "rules.json").write_text('[{"field": "queue_conflict_events", "above": 0.15, "versus": "anneal_queue_baseline"}]')
    assert read_rules(tmp_path / "rules.json").rules == [
        Rule("queue_conflict_events", "above", 0.15, versus="anneal_queue_baseline")
    ]
    assert rules_of([{"field": "exits", "above": 1, "versus": "past", "smoothing": 8, "margin": 2}]).rules == [
        Rule("exits", "above", 1.0, PAST, smoothing=8, margin=2.0)
    ]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (5, "holds no list `rules`"),
        ({"rules": [], "defalts": True}, "did you mean defaults?"),
        ({"rules": [{"field": "kl_k4", "above": 1}]}, "did you mean kl_k3?"),
        ({"rules": [{"field": "kl_k3", "abov": 1}]}, "did you mean above?"),
        ({"rules": [{"field": "kl_k3"}]}, "exactly one of above, below and is"),
        ({"rules": [{"field": "kl_k3", "above": 1, "below": 0}]}, "exactly one of above, below and is"),
        ({"rules": [{"field": "kl_k3", "above": "x"}]}, "expected above or below: a number"),
        ({"rules": [{"field": "kl_k3", "is": True}]}, "expected above or below: a number"),
        ({"rules": [{"field": "anneal_loss_flag", "above": 1}]}, "expected is: true or false"),
        ({"rules": [{"field": "kl_k3", "above": 1, "patience": 0}]}, "expected a whole number from 1 to 1000000000"),
        ({"rules": [{"field": "kl_k3", "above": 1, "smoothing": 10**30}]}, "expected a whole number from 1 to 1000000000"),
        ({"rules": [{"field": "kl_k3", "above": 1, "versus": "data_mode"}]}, "neither a numeric field nor"),
        ({"rules": [{"field": "kl_k3", "above": 1, "anneal": 3}]}, "anneal is 3"),
        (
            {"rules": [{"field": "kl_k3", "above": 1, "margin": 3}]},
            "margin is 3, expected a number from 0 on beside versus",
        ),
        ({"rules": [{"field": "kl_k3", "above": 1, "versus": "past", "margin": -1}]}, "margin is -1"),
        ({"rules": [{"field": "kl_k3", "above": 1, "unless": "run_id"}]}, "unless is 'run_id', which is not a numeric field"),
        ({"rules": [7]}, "expected an object such as"),
        ({"rules": [], "max_gap": -1}, "number of seconds above 0"),
        ({"rules": [], "defaults": "no"}, "expected true or false"),
    ],
)
def test_a_rules_file_that_makes_no_sense_is_refused_in_a_sentence(tree: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        rules_of(tree)


# --- watching --------------------------------------------------------------------------------------------------------


def test_a_finished_log_is_read_to_its_end_with_all_that_it_sets_off(log: Path) -> None:
    append(log, *(json.dumps(example_record(n, kl_k3=0.3 if n == 2 else 0.01)).encode() + b"\n" for n in (1, 2)))
    append(log, b'{"epoch": oops}\n', json.dumps(example_record(2)).encode())
    events = list(watch_log(log, Watch(default_rules()), follow=False))
    assert [event.alarms[0].message for event in events if isinstance(event, Seen) and event.alarms] == [
        "epoch 2: kl_k3 is 0.3, above 0.1"
    ]
    notices = [event.message for event in events if isinstance(event, Notice)]
    assert "is not JSON" in notices[0]
    assert any("steps: is 16384 after 16384" in notice for notice in notices)
    assert any("do two programs write this log?" in notice for notice in notices)
    with pytest.raises(TelemetryError, match="does not exist"):
        list(watch_log(log.with_name("b.jsonl"), Watch([]), follow=False))


def test_a_torn_tail_of_a_finished_log_is_told(log: Path) -> None:
    append(log, json.dumps(example_record(1)).encode() + b'\n{"epo')
    events = list(watch_log(log, Watch([]), follow=False))
    assert [type(event) for event in events] == [Seen, Notice]


def test_silence_longer_than_max_gap_is_told_once_per_gap(log: Path) -> None:
    append(log, json.dumps(example_record(1)).encode() + b"\n")
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += 1.0
        if now == 12.0:
            append(log, json.dumps(example_record(2)).encode() + b"\n")

    events = list(watch_log(log, Watch([]), max_gap=5, duration=20, clock=lambda: now, sleep=sleep))
    gaps = [event for event in events if isinstance(event, Silence)]
    assert [gap.seconds for gap in gaps] == [6.0, 6.0]
    assert gaps[0].last is not None
    assert gaps[0].last["epoch"] == 1
    assert gaps[0].alarm.message == "no record for 6 s"


@pytest.mark.parametrize("option", ["max_gap", "duration", "interval"])
def test_times_must_be_above_zero(option: str, log: Path) -> None:
    with pytest.raises(UsageError, match="must be a number of seconds above 0"):
        next(watch_log(log, Watch([]), **{option: 0.0}))  # type: ignore[arg-type]


def test_the_hook_gets_the_record_on_stdin_without_a_shell(tmp_path: Path) -> None:
    state = RuleState(Rule("kl_k3", "above", 0.1))
    record = example_record(1, kl_k3=0.5)
    alarm = state.feed(record)
    assert alarm is not None
    script = (
        "import os, sys, pathlib; pathlib.Path(sys.argv[1]).write_text(os.environ['TOWNLET_ALERT'] + chr(10) + sys.stdin.read())"
    )
    assert run_hook(f'{sys.executable} -c "{script}" "{tmp_path}/$HOME; x"', record, alarm) == ""
    message, text = (tmp_path / "$HOME; x").read_text().splitlines()
    assert message == "epoch 1: kl_k3 is 0.5, above 0.1"
    assert json.loads(text) == record
    assert "cannot be run: No such file" in run_hook("no-such-program-here", record, alarm)
    assert "ended with code 3" in run_hook(f"{sys.executable} -c 'raise SystemExit(3)'", record, alarm)
    for command in ("", "'open"):
        with pytest.raises(UsageError, match="--on-alert"):
            hook_words(command)


def test_a_process_writes_and_rotates_while_another_watches(tmp_path: Path) -> None:
    """Every record is seen once and in order, and the alert comes promptly after its line."""
    log = tmp_path / "a.jsonl"
    script = textwrap.dedent(
        """
        import pathlib, sys, time
        from townlet.telemetry.ndjson import TelemetryWriter
        with TelemetryWriter(sys.argv[1], max_entries=3) as writer:
            for number in range(1, 1001):
                writer.write({"epoch": number, "telemetry_version": 1.3})
            while not pathlib.Path(sys.argv[1] + "-go").exists():
                time.sleep(0.01)
            writer.write({"epoch": number + 1, "kl_k3": 0.9, "adv_mean": time.time()})
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(log)])
    seen, alarmed = [], 0.0
    for event in watch_log(log, Watch([Rule("kl_k3", "above", 0.1)]), interval=0.02, duration=60):
        if isinstance(event, Seen):
            seen.append(event.record["log_stream_offset"])
            if len(seen) == 1000:
                (tmp_path / "a.jsonl-go").touch()
            if event.alarms:
                alarmed = time.time() - event.record["adv_mean"]
                break
    process.wait()
    assert seen == list(range(1, 1002))
    assert alarmed < 20.0  # promptly, on a machine as busy as it may be
