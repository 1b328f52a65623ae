"""`townlet promote` and its script: the exit code is the decision, 64 is wrong usage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoints import untrained, write_run
from places import ROOT, Call
from scorecards import checkpoint_folder, duel
from townlet.config import load_config
from townlet.envs.vector import VectorTown
from townlet.evaluation.compare import save_scorecard


@pytest.fixture
def ledger_options(tmp_path: Path) -> list[str]:
    return ["--ledger", str(tmp_path / "promotion" / "ledger.ndjson")]


def card(folder: Path, weights: str, window: int, gain: float) -> Path:
    path = folder / f"{weights[:6]}_{window}.json"
    save_scorecard(duel(window, {"return": gain}, candidate=weights, window=window), path)
    return path


def test_the_drill_from_the_command_line(call: Call, ledger_options: list[str], tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    weights, worse = checkpoint_folder(good, "good"), checkpoint_folder(bad, "bad")
    code, out, _ = call("promote", "evaluate", good, "--scorecard", card(tmp_path, weights, 0, 5.0), *ledger_options)
    assert (code, out.splitlines()[-1]) == (1, "next: the same command again, which judges another window")
    code, out, _ = call("promote", "evaluate", good, "--scorecard", card(tmp_path, weights, 1, 5.0), "--json", *ledger_options)
    assert (code, json.loads(out)["outcome"]) == (0, "PROMOTE")
    assert call("promote", "evaluate", bad, "--scorecard", card(tmp_path, worse, 2, -6.0), *ledger_options)[0] == 2
    code, out, _ = call("promote", "promote", bad, *ledger_options)
    assert (code, out.splitlines()[-1]) == (
        2,
        "next: townlet promote evaluate, with the options of before, until it says PROMOTE",
    )
    code, out, _ = call("promote", "promote", good, *ledger_options)
    towns = [f"{case.name} ({case.size})" for case in duel(1, {"return": 5.0}, candidate=weights, window=1).cases]
    assert (code, out.splitlines()[-4:]) == (
        0,
        [
            f"judged in {'; '.join(towns)}",
            f"the champion is {weights[:12]} now, after scripted",
            f"release     {tmp_path / 'promotion' / 'releases' / weights}",
            'way back    townlet promote rollback --reason "…"',
        ],
    )
    assert call("promote", "promote", good, *ledger_options)[:2] == (0, out)
    code, out, _ = call("promote", "rollback", "--reason", "a\n  drill", *ledger_options)
    assert (code, out) == (0, f"the champion is scripted again, after {weights[:12]}\n")
    code, out, _ = call("promote", "history", *ledger_options)
    assert [line.split()[2:4] for line in out.splitlines()][-2:] == [["promoted", weights[:12]], ["rolled", "back"]]
    assert call("promote", "verify", *ledger_options)[0] == 0
    ledger = Path(ledger_options[1])
    ledger.write_text(ledger.read_text().replace("PROMOTE", "HOLD"))
    code, out, _ = call("promote", "verify", "--json", *ledger_options)
    assert (code, json.loads(out)["ok"]) == (2, False)


def test_missing_evidence_is_fail(call: Call, ledger_options: list[str], tmp_path: Path) -> None:
    checkpoint_folder(tmp_path / "one", "one")
    code, out, _ = call("promote", "evaluate", tmp_path / "one", "--scorecard", tmp_path / "nowhere.json", *ledger_options)
    assert (code, out.splitlines()[0]) == (2, "FAIL")
    assert call("promote", "evaluate", tmp_path / "nobody", "--scorecard", tmp_path / "nowhere.json", *ledger_options)[0] == 2


@pytest.mark.parametrize("words", [(), ("evaluate",), ("evaluate", "x", "--seeds", "none"), ("rollback",), ("elect",)])
def test_wrong_usage_is_64(call: Call, words: tuple[str, ...]) -> None:
    assert call("promote", *words)[0] == 64


def test_an_empty_ledger_has_nothing_to_roll_back(call: Call, ledger_options: list[str]) -> None:
    code, _, err = call("promote", "rollback", "--reason", "why not", *ledger_options)
    assert (code, "no earlier champion" in err) == (64, True)
    assert "the champion is the script" in call("promote", "history", *ledger_options)[1]
    assert call("promote", "verify", *ledger_options)[0] == 0


def test_the_script_leaves_with_the_same_codes(tmp_path: Path) -> None:
    weights = checkpoint_folder(tmp_path / "one", "one")
    path = card(tmp_path, weights, 0, 5.0)
    script = [sys.executable, str(ROOT / "scripts" / "promotion_evaluate.py")]
    words = [str(tmp_path / "one"), "--scorecard", str(path), "--ledger", str(tmp_path / "p" / "ledger.ndjson")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    codes = [subprocess.run(script + tail, env=environment, capture_output=True).returncode for tail in (words, ["--nonsense"])]
    assert codes == [1, 64]


def test_a_candidate_is_judged_in_the_town_it_was_trained_for_and_the_towns_are_named(
    call: Call, ledger_options: list[str], tmp_path: Path
) -> None:
    config = load_config("queue_conflict", ["config_id=bakery"])
    write_run(tmp_path / "run", config)
    untrained(tmp_path / "run" / "checkpoints" / "000001", VectorTown(config, 1))
    candidate = tmp_path / "run" / "checkpoints" / "000001"
    _, out, _ = call("promote", "evaluate", candidate, "--scenario", "--seeds", "5", "--days", "1", "--json", *ledger_options)
    found = json.loads(out)
    assert found["towns"] == ["bakery (5 towns × 3 residents × 1 day, seed 2000001)"]
    assert found["gates"]  # it was judged, not refused for its towns
    _, out, _ = call(
        "promote", "evaluate", candidate, "--scenario", "queue_conflict", "--seeds", "2", "--days", "1", *ledger_options
    )
    assert "judged in queue_conflict (2 towns × 3 residents × 1 day, seed 2000003)" in out
    code, _, err = call("promote", "evaluate", candidate, "--scenario", "--scorecard", tmp_path / "s.json", *ledger_options)
    assert (code, "leave out --scenario" in err) == (64, True)
    checkpoint_folder(tmp_path / "stray", "stray")
    code, _, err = call("promote", "evaluate", tmp_path / "stray", "--scenario", *ledger_options)
    assert (code, "is not in a run folder" in err) == (64, True)
