"""`townlet telemetry …`: what is printed, where, and the exit codes."""

from __future__ import annotations

import io
import json
import math
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from checkpoints import write_run
from places import ROOT
from townlet.cli.telemetry import telemetry
from townlet.cli.telemetry_watch import WatchTable, chosen_rules
from townlet.config import load_config
from townlet.errors import ConfigError, TelemetryError, TownletError, UsageError
from townlet.telemetry.alarm_rules import read_rules
from townlet.telemetry.example import example_record
from townlet.telemetry.watch import Watch, watch_log


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(telemetry, [str(argument) for argument in arguments])


def refused(*arguments: Any) -> TownletError:
    error = run(*arguments).exception
    assert isinstance(error, TownletError)
    return error


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "a.jsonl", *(example_record(n) for n in range(1, 31)))


def test_validate_says_what_it_read(log: Path) -> None:
    result = run("validate", log)
    assert result.exit_code == 0
    assert (
        result.stdout == "valid: 30 records (30 of version 1.4)\n"
        "30 of them have no seal, so a changed number in them would not be noticed\n"
    )


def test_the_folder_of_a_run_stands_for_its_log(log: Path, tmp_path: Path) -> None:
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    write_run(run_folder, load_config("town_day"), telemetry=log.name)
    assert isinstance(refused("summary", run_folder), UsageError)
    log.rename(run_folder / log.name)
    for words in (("summary",), ("validate",), ("watch", "--once"), ("plot",), ("drift", "--baseline", run_folder)):
        assert run(*words, run_folder).output == run(*words, run_folder / log.name).output
    assert "30 records" in run("validate", run_folder).output


def test_validate_names_problems_and_exits_with_one(log: Path) -> None:
    write(log, example_record(1), example_record(2, lr=math.nan), example_record(3, log_stream_offset=1))
    result = run("validate", log)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{log}:2: lr: is NaN, expected a finite number",
        f"{log}:3: log_stream_offset: is 1 after 1; it must grow (do two programs write this log?)",
        "2 problems: 2 records (2 of version 1.4)",
        "2 of them have no seal, so a changed number in them would not be noticed",
    ]
    found = json.loads(run("validate", log, "--json").stdout)
    assert (found["ok"], found["problem_count"], found["problems"][0]["line"]) == (False, 2, 2)
    assert run("validate", log, "--limit", 1).stdout.splitlines()[1] == "… and 1 more (--limit)"


def test_validate_measures_drift_and_fails_beyond_the_threshold(log: Path, tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.json"
    baseline.write_text(json.dumps({"queue_wait_mean": 10.0}))
    calm = run("validate", log, "--baseline", baseline, "--relative")
    assert calm.exit_code == 0
    assert "drift in total over 30 records:\n  queue_wait_mean: mean " in calm.stdout
    loud = run("validate", log, "--baseline", baseline, "--relative", "--drift-threshold", 0.3)
    assert loud.exit_code == 1
    assert "drift in epoch 1: queue_wait_mean is " in loud.stdout
    found = json.loads(run("validate", log, "--baseline", baseline, "--drift-threshold", 0.1, "--json").stdout)
    assert found["ok"] is False
    assert found["drift"]["beyond_count"] > 0
    assert "drift in total" in run("validate", log, "--relative").stdout


def test_a_missing_log_is_an_error_of_code_three(tmp_path: Path) -> None:
    for command in (["validate"], ["summary"], ["plot"], ["watch", "--once"], ["drift", "--baseline", tmp_path / "x"]):
        error = refused(command[0], tmp_path / "none.jsonl", *command[1:])
        assert isinstance(error, TelemetryError)
        assert error.exit_code == 3


def test_a_log_without_one_record_is_refused_by_watch(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.log"
    foreign.write_text('{"level": "info", "msg": "started"}\nplain words\n')
    error = refused("watch", foreign, "--once")
    assert isinstance(error, TelemetryError)
    assert str(error).startswith(f"{foreign}: not one of its 2 lines is a telemetry record; ")
    (tmp_path / "empty.jsonl").touch()
    assert run("watch", tmp_path / "empty.jsonl", "--once").exit_code == 0


def test_summary_in_its_three_formats(log: Path, tmp_path: Path) -> None:
    assert run("summary", log).stdout.startswith("log ")
    assert run("summary", log, "--format", "markdown", "--baseline", log).stdout.startswith("# Training summary\n")
    assert json.loads(run("summary", log, "--json").stdout)["records"] == 30
    assert run("summary", log, "--format", "json", "--output", tmp_path / "s.json").stdout == ""
    assert json.loads((tmp_path / "s.json").read_text())["steps"] == 30 * 8192
    (tmp_path / "empty.jsonl").touch()
    assert "holds no epoch record" in str(refused("summary", tmp_path / "empty.jsonl"))


def test_drift_prints_a_table_and_exits_with_one_on_drift(log: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "b.jsonl", *(example_record(n, queue_wait_mean=30.0 + n % 3) for n in range(1, 31)))
    same = run("drift", log, "--baseline", log)
    assert (same.exit_code, same.stdout.splitlines()[-1]) == (0, "no drift")
    changed = run("drift", log, "--baseline", other)
    assert (changed.exit_code, changed.stdout.splitlines()[-1]) == (1, "drifted: queue_wait_mean")
    assert json.loads(run("drift", log, "--baseline", other, "--json").stdout)["alarms"] == ["queue_wait_mean"]
    assert run("drift", log, "--baseline", other, "--metric", "loss_total").exit_code == 0
    assert "is not a numeric field" in str(refused("drift", log, "--baseline", other, "--metric", "data_mode"))


def test_plot_draws_in_the_terminal_or_writes_a_file(log: Path, tmp_path: Path) -> None:
    assert "losses: loss_total" in run("plot", log).stdout
    assert json.loads(run("plot", log, "--json").stdout)["drawing"]
    pytest.importorskip("matplotlib")
    result = run("plot", log, "--output", tmp_path / "a.png")
    assert (result.stdout, result.stderr) == ("", f"{tmp_path}/a.png written\n")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_export_writes_and_refuses(log: Path, tmp_path: Path) -> None:
    result = run("export", log, "--format", "csv", "--output", tmp_path / "a.csv", "--json")
    assert json.loads(result.stdout) == {"output": str(tmp_path / "a.csv"), "format": "csv"}
    assert isinstance(refused("export", log, "--format", "csv", "--output", tmp_path / "a.csv"), UsageError)


def test_watch_once_prints_a_line_per_record_and_exits_with_the_verdict(log: Path) -> None:
    quiet = run("watch", log, "--once")
    assert quiet.exit_code == 0
    assert quiet.stderr == ""
    assert len(quiet.stdout.splitlines()) == 30
    assert quiet.stdout.startswith("epoch 1: episode_return_mean ")
    loud = run("watch", log, "--no-follow", "--queue-events-min", 1000)
    assert loud.exit_code == 1
    assert loud.stderr.startswith("ALERT epoch 1: queue_conflict_events is ")


def test_watch_takes_smoothing_patience_and_rules(log: Path, tmp_path: Path) -> None:
    write(log, *(example_record(n, kl_k3=0.5 if n == 3 else 0.01) for n in range(1, 11)))
    assert run("watch", log, "--once").exit_code == 1
    assert run("watch", log, "--once", "--patience", 2).exit_code == 0
    assert run("watch", log, "--once", "--smoothing", 10).exit_code == 0
    assert run("watch", log, "--once", "--no-defaults").exit_code == 0
    assert run("watch", log, "--once", "--kl-k3-threshold", 0.6).exit_code == 0
    rules = tmp_path / "rules.json"
    rules.write_text('{"defaults": false, "rules": [{"field": "kl_k3", "above": 0.3, "patience": 1}]}')
    assert run("watch", log, "--once", "--rules", rules).exit_code == 1
    rules.write_text('{"rules": [{"field": "kl"}]}')
    assert isinstance(refused("watch", log, "--once", "--rules", rules), ConfigError)


def test_watch_json_has_one_object_per_event(log: Path) -> None:
    with open(log, "a") as file:
        file.write("{broken\n")
    events = [json.loads(line) for line in run("watch", log, "--once", "--json", "--queue-events-min", 1000).stdout.splitlines()]
    assert [event["kind"] for event in events] == ["record"] * 30 + ["notice"]
    assert events[0]["alerts"][0]["field"] == "queue_conflict_events"
    assert events[0]["record"]["epoch"] == 1


def test_watch_follows_until_the_first_alert_and_runs_the_hook(log: Path, tmp_path: Path) -> None:
    write(log, *(example_record(n, kl_k3=0.5 if n in (2, 4) else 0.01) for n in range(1, 6)))
    result = run("watch", log, "--on-alert", f"tee {tmp_path}/alert.json")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 2
    assert json.loads((tmp_path / "alert.json").read_text())["epoch"] == 2
    going = run("watch", log, "--keep-going", "--duration", 0.05, "--interval", 0.01)
    assert going.exit_code == 1
    assert going.stderr.count("ALERT") == 2
    assert isinstance(refused("watch", log, "--on-alert", "'"), UsageError)


def test_watch_alerts_on_silence(log: Path) -> None:
    result = run("watch", log, "--max-gap", 0.05, "--interval", 0.02, "--duration", 5)
    assert result.exit_code == 1
    assert "ALERT no record for 0 s" in result.stderr


def test_the_help_of_watch_lists_every_threshold() -> None:
    watch = run("watch", "--help").stdout
    flags = """--kl-threshold --loss-threshold --grad-threshold --entropy-threshold --reward-corr-threshold --queue-events-min
        --queue-intensity-min --shared-meal-min --late-help-min --chat-quality-min --shift-takeover-max --anneal-bc-min
        --anneal-loss-max --anneal-queue-min --anneal-intensity-min --max-gap --on-alert --smoothing --patience"""
    assert [flag for flag in flags.split() if flag not in watch] == []


def test_the_live_table_shows_values_thresholds_curves_and_what_was_said(log: Path) -> None:
    rules, _ = chosen_rules(None, True, None, None, {"queue_events_min": 1000.0})
    watching = Watch(rules)
    table = WatchTable(log, watching)
    for event in watch_log(log, watching, follow=False):
        table.show(event)
    table.console = Console(width=80, file=io.StringIO())
    table.console.print(table.table())
    drawn = table.console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in drawn  # the curve gives way; nothing is cut
    assert "30 records" in " ".join(drawn.split())
    assert "245,760 steps" in drawn
    assert "! queue_conflict_events" in drawn
    assert "below 1000" in drawn
    assert "█" in drawn
    assert "ALERT epoch 1: queue_conflict_events is " in drawn


@pytest.mark.parametrize(
    ("script", "words", "told"),
    [
        ("validate_ppo_telemetry", ["--relative"], "valid: 30 records"),
        ("telemetry_watch", ["--kl-threshold", "0.5"], "epoch 30: "),
        ("telemetry_summary", ["--format", "markdown"], "# Training summary"),
        ("ppo_telemetry_plot", [], "losses: loss_total"),
    ],
)
def test_the_founding_scripts_do_the_same(
    script: str, words: list[str], told: str, log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ROOT / "scripts" / f"{script}.py"
    monkeypatch.setattr(sys, "argv", [str(path), str(log), *words])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(path), run_name="__main__")
    assert left.value.code == 0
    assert told in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [str(path), str(log.with_name("none.jsonl"))])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(path), run_name="__main__")
    assert left.value.code == 3
    assert "does not exist; give the path of a telemetry log" in capsys.readouterr().err


GUIDE = ROOT / "docs" / "telemetry" / "GUIDE.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)


@pytest.mark.parametrize("command", [line for block in blocks("bash") for line in block.splitlines()])
def test_every_command_of_the_guide_runs(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GUIDE.parents[2])
    first, second, *words = command.split()
    assert (first, second) == ("townlet", "telemetry")
    result = run(*words)
    assert result.exit_code == 0, result.output


def test_the_rules_of_the_guide_are_rules(tmp_path: Path) -> None:
    [text] = blocks("yaml")
    (tmp_path / "rules.yaml").write_text(text)
    found = read_rules(tmp_path / "rules.yaml")
    assert [rule.name for rule in found.rules] == [
        "kl_k3 above 0.05",
        "episode_return_mean below -20",
        "queue_conflict_events above 0.15 × anneal_queue_baseline",
        "late_share above 0.5 × past",
        "anneal_loss_flag is true",
    ]
    assert found.max_gap == 300
