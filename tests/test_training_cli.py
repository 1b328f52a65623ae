"""`townlet train`, `townlet runs` and `scripts/run_training.py`, in process: flags, refusals, output, exit codes."""

from __future__ import annotations

import json
import re
import runpy
import signal
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

from places import ROOT, Call
from townlet import optional
from townlet.cli.train import ALGORITHMS, BOTH_WAYS, MODES, SWITCHES, VALUES, train
from townlet.config.learning import TrainingConfig
from townlet.policy.replay import ReplayDataset, ReplayDatasetConfig
from townlet.sealed import SEAL, write_sealed
from townlet.telemetry.ndjson import read_records

SCRIPT = ROOT / "scripts" / "run_training.py"
TINY = (
    *("--set", "training.towns=2", "--set", "training.horizon=5", "--set", "training.eval_every=0"),
    *("--set", "policy.network.map_encoder=none", "--set", "policy.network.feature_size=16", "--no-plots"),
)
FOUNDING = """
    --mode --replay-sample --replay-meta --replay-manifest --capture-dir --replay-batch-size --replay-shuffle --replay-seed
    --replay-drop-last --replay-streaming --bc-manifest --anneal-log-dir --anneal-exit-on-failure --train-ppo --rollout-ticks
    --rollout-save-dir --rollout-auto-seed-agents --epochs --ppo-log --ppo-ndjson --ppo-log-frequency --ppo-log-batches
    --ppo-log-max-entries --device --ppo-learning-rate --ppo-clip-param --ppo-value-loss-coef --ppo-entropy-coef
    --ppo-num-epochs --ppo-mini-batch-size --ppo-num-mini-batches --ppo-gae-lambda --ppo-gamma --max-grad-norm
    --ppo-value-clip --ppo-normalize-advantages --ppo-no-normalize-advantages
"""


def test_the_flags_offer_the_modes_and_algorithms_of_the_config() -> None:
    """They stand in both, so that `townlet train --help` need not load the config."""
    keys = TrainingConfig.model_fields
    assert get_args(keys["source"].annotation) == MODES
    assert {*get_args(keys["algorithm"].annotation)} == {*ALGORITHMS, "ppo"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def script(call: Call) -> Call:
    return partial(call, command=runpy.run_path(str(SCRIPT))["run_training"])


def test_a_stopped_run_says_in_one_sentence_how_it_goes_on(here: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path ran into the next sentence: "… checkpoints/000001 Continue with"."""
    pytest.importorskip("torch")

    def stop(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("townlet.cli.train_progress.TrainingProgress.advance", stop)
    code, out, err = call("train", "town_day", "--mode", "rollout", *TINY, "--epochs", 3, "--run-dir", "runs/a")
    assert (code, out) == (143, "")
    assert err.endswith("the state is saved in runs/a/checkpoints/000001; continue with `townlet train --resume runs/a`\n")


def test_every_founding_flag_is_there() -> None:
    known = {name for option in train.params for name in (*option.opts, *option.secondary_opts)}
    assert set(FOUNDING.split()) <= known


def test_every_flag_that_changes_the_config_names_a_key_of_it() -> None:
    from townlet.config.models import SimulationConfig

    keys = [key for key, *_ in VALUES.values()] + [key for key, _ in SWITCHES.values()] + list(BOTH_WAYS.values())
    for key in keys:
        model: Any = SimulationConfig
        for part in key.split("."):
            assert part in model.model_fields, key
            model = model.model_fields[part].annotation


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("town_day", "--ppo-gamma", "1.5"), 2, "ppo.gamma"),
        (("town_day", "--ppo-learning-rate", "0"), 2, "ppo.learning_rate"),
        (("town_day", "--mode", "fly"), 2, "--mode"),
        (("town_dya", "--mode", "rollout"), 2, "town_day"),
        ((), 2, "there is nothing to train on; name a scenario"),
        (("town_day", "--replay-meta", "x.json"), 2, "--replay-sample"),
        (("town_day", "--mode", "replay"), 2, "there is no replay data"),
        (("town_day", "--replay-manifest", "none.json", "--train-ppo"), 3, "none.json does not exist"),
        (("town_day", "--mode", "bc", "--capture-dir", "cap"), 2, "which the mode bc does not read"),
        (("town_day", "--replay-sample", "none.npz"), 3, "none"),
        (("town_day", "--mode", "bc", "--train-ppo"), 2, "leave one of them out"),
        (("town_day", "--mode", "rollout", "--algorithm", "awr"), 2, "the mode is rollout; leave one of them out"),
        (("town_day", "--mode", "replay", "--train-ppo", "--algorithm", "iql"), 2, "--train-ppo says PPO; leave one of them out"),
        (("--resume", "nowhere"), 2, "is not a run folder"),
        (("--resume", "nowhere", "--epochs", "3"), 2, "a resumed run keeps its settings; leave out --epochs 3\n"),
        (("--resume", "nowhere", "--set", "seed=3"), 2, "a resumed run keeps its settings; leave out --set seed=3\n"),
        (("town_day", "--epochs", "0"), 2, "townlet: --epochs 0: training.epochs is 0; expected greater than or equal to 1"),
        (("town_day", "--ppo-clip-param", "-1"), 2, "townlet: --ppo-clip-param -1.0: ppo.clip_param is -1.0; expected greater"),
        (("town_day", "--set", "training.epochs=0"), 2, "townlet: --set training.epochs=0: training.epochs is 0"),
        (("--resume", "nowhere", "--rollout-save-dir", "cap"), 2, "leave out --rollout-save-dir"),
        (("town_day", "--rollout-save-dir", "cap", "--capture-dir", "x", "--mode", "mixed"), 2, "both name the data"),
        (("town_day", "--rollout-save-dir", "cap", "--train-ppo", "--dry-run"), 2, "writes nothing"),
        (("town_day", "--device", "moon", "--mode", "rollout"), 2, "moon"),
        (("town_day", "--mode", "rollout", "--bc-manifest", "x.json"), 2, "which the mode rollout does not clone"),
        (("town_day", "--mode", "rollout", "--anneal-exit-on-failure"), 2, "judges an anneal run, the mode is rollout"),
        (("town_day", "--mode", "rollout", "--engine", "process", "--address", "h:1"), 2, "but the engine is process"),
        (("town_day", "--mode", "rollout", "--start-from", "nowhere", "--dry-run"), 3, "nowhere does not exist"),
        (("town_day", "--mode", "rollout", "--ppo-log", ".", "--dry-run"), 2, ". is a folder"),
    ],
)
def test_wrong_usage_is_one_sentence_and_leaves_nothing(
    here: Path, script: Call, args: tuple[str, ...], code: int, words: str
) -> None:
    pytest.importorskip("torch")
    found, out, err = script(*args)
    assert (found, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1
    assert list(here.iterdir()) == []


@pytest.mark.skipif(optional.installed("ray"), reason="ray would look for the cluster")
def test_an_address_means_a_cluster(here: Path, call: Call) -> None:
    """The run was made on this machine, without a word."""
    pytest.importorskip("torch")
    code, _, err = call("train", "town_day", "--mode", "rollout", "--address", "10.0.0.4:6379", "--dry-run")
    assert (code, "The engine ray needs ray" in err) == (4, True)


def test_reading_a_capture_prints_the_conflict_of_each_batch_and_trains_nothing(here: Path, script: Call) -> None:
    code, _, err = script("town_day", "--rollout-save-dir", "cap", "--rollout-ticks", "100", *TINY)
    assert code == 0
    assert "captured 8 samples" in err
    code, out, _ = script("town_day", "--replay-manifest", "cap/rollout_sample_manifest.json", "--replay-batch-size", "3")
    assert code == 0
    lines = out.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["batch 0", "batch 1", "batch 2"]
    assert "rivalry_max mean" in lines[0]
    assert re.search(r"queue conflicts \d+ of intensity \d+\.\d\d$", lines[0])
    assert lines[-1].startswith("rollout_sample_manifest: 8 samples, 80 decisions")
    assert sorted(path.name for path in here.iterdir()) == ["cap"]
    sample = sorted((here / "cap").glob("*.npz"))[0]
    code, out, _ = script("town_day", "--replay-sample", str(sample), "--json")
    assert json.loads(out)["samples"] == 1


@pytest.mark.parametrize(
    ("words", "mode"),
    [((), "replay"), (("--mode", "rollout"), "replay"), (("--mode", "mixed"), "mixed"), (("--mode", "bc"), "bc")],
)
def test_a_rollout_that_is_saved_is_what_is_trained_on(here: Path, call: Call, words: tuple[str, ...], mode: str) -> None:
    pytest.importorskip("torch")
    flags = ("--rollout-save-dir", "cap", "--rollout-ticks", "100", "--epochs", "1", "--run-dir", "run", *words)
    code, out, err = call("train", "town_day", *flags, *TINY, "--json")
    assert code == 0, err
    assert json.loads(out)["dataset_hash"] == ReplayDataset(ReplayDatasetConfig.from_capture_dir("cap")).hash
    card = json.loads(Path("run/run.json").read_text())
    assert (card["mode"], card["dataset"]) == (mode, "../cap")
    if words == ("--mode", "rollout"):
        assert json.loads(out)["strategy"] == "ppo"
    assert call("train", "--resume", "run")[0] == 0


def test_the_founding_script_trains_on_the_rollout_it_saved_when_a_mode_is_named(here: Path, script: Call) -> None:
    pytest.importorskip("torch")
    flags = ("--rollout-save-dir", "cap", "--rollout-ticks", "100", "--mode", "rollout", "--epochs", "1", "--run-dir", "run")
    code, out, err = script("town_day", *flags, *TINY, "--json")
    assert (code, json.loads(out)["strategy"]) == (0, "ppo"), err


def test_a_town_without_residents_is_trained_in_on_request(here: Path, call: Call) -> None:
    pytest.importorskip("torch")
    nobody = ("--set", "scenario.residents=[]", "--set", "scenario.ties=[]", "--set", "scenario.circles=[]")
    flags = ("--mode", "rollout", "--epochs", "1", "--run-dir", "run", *nobody, *TINY, "--json")
    assert call("train", "town_day", *flags, "--dry-run")[0] != 0
    code, out, err = call("train", "town_day", *flags, "--rollout-auto-seed-agents")
    assert (code, json.loads(out)["transitions"]) == (0, 2 * 2 * 5), err  # towns × residents × decisions
    assert call("train", "--resume", "run")[0] == 0


def test_an_algorithm_trains_on_a_capture_and_is_resumed(here: Path, script: Call) -> None:
    pytest.importorskip("torch")
    script("town_day", "--rollout-save-dir", "cap", "--rollout-ticks", "100", *TINY)
    words = ("--capture-dir", "cap", "--algorithm", "iql", "--epochs", "2", "--run-dir", "run", *TINY)
    code, out, err = script("town_day", *words)
    assert code == 0, err
    assert out.startswith("iql: 2 passes over the data")
    assert json.loads(Path("run/config.json").read_text())["training"]["algorithm"] == "iql"
    made = json.loads(Path("run/summary.json").read_text())
    code, out, err = script("--resume", "run", "--json")
    assert (code, json.loads(out)["weights_hash"]) == (0, made["weights_hash"])


def test_train_ppo_on_a_capture_logs_and_exits_with_0(here: Path, script: Call) -> None:
    pytest.importorskip("torch")
    script("town_day", "--rollout-save-dir", "cap", "--rollout-ticks", "100", *TINY)
    args = ("--capture-dir", "cap", "--train-ppo", "--epochs", "4", "--ppo-log", "log.jsonl", "--ppo-log-frequency", "2")
    code, out, _ = script("town_day", *args, "--ppo-log-max-entries", "1", "--ppo-no-normalize-advantages", *TINY, "--json")
    assert code == 0
    assert json.loads(out)["data_mode"] == "replay"
    assert [record["epoch"] for record in read_records(Path("log.jsonl"))] == [1, 3, 4]  # the last one always
    assert Path("log.jsonl.1").is_file()
    run_dir = json.loads(out)["run_dir"]
    code, _, said = script("--resume", run_dir, "--json")
    assert (code, said.count("\n")) == (2, 1)
    assert f"kept its log outside, in {here / 'log.jsonl'}; name it again with --ppo-log" in said
    code, again, _ = script("--resume", run_dir, "--ppo-log", "log.jsonl", "--json")
    assert (code, json.loads(again)["weights_hash"]) == (0, json.loads(out)["weights_hash"])
    config = json.loads((here / run_dir / "config.json").read_text())
    assert config["ppo"]["advantage_normalization"] is False


def test_a_run_is_kept_listed_compared_and_resumed(here: Path, call: Call) -> None:
    pytest.importorskip("torch")
    assert call("train", "town_day", "--mode", "rollout", "--epochs", "1", *TINY, "--plots")[0] == 0
    assert (here / "runs" / "town_day_rollout_001" / "curves.png").exists() == optional.installed("matplotlib")
    assert call("train", "town_day", "--mode", "rollout", "--epochs", "1", "--ppo-gamma", "0.9", *TINY)[0] == 0
    code, out, _ = call("runs", "list", "--json")
    assert code == 0
    assert [row["run"] for row in json.loads(out)] == ["runs/town_day_rollout_001", "runs/town_day_rollout_002"]
    code, out, _ = call("runs", "compare", "runs/town_day_rollout_001", "runs/town_day_rollout_002", "--json")
    assert json.loads(out)["config"]["ppo.gamma"] == [0.99, 0.9]
    code, out, _ = call("runs", "compare", "runs/town_day_rollout_001", "runs/town_day_rollout_002")
    assert "ppo.gamma" in out
    code, out, _ = call("train", "--resume", "runs/town_day_rollout_001", "--json")
    assert (code, json.loads(out)["epochs"]) == (0, 1)


ANNEAL = (
    "training.anneal_schedule=[{cycle: 0, mode: bc, epochs: 2, bc_weight: 1.0, scripted_share: 0.5}, "
    "{cycle: 1, mode: ppo, epochs: 3, bc_weight: 0.0, scripted_share: 0.0}]"
)


@pytest.mark.parametrize(
    ("mode", "flags", "epochs"),
    [
        ("rollout", ("--epochs", "2"), 2),
        ("replay", ("--epochs", "2", "--capture-dir", "cap"), 2),
        ("mixed", ("--epochs", "2", "--capture-dir", "cap"), 2),
        ("bc", ("--epochs", "3"), 3),
        ("bc", ("--set", "training.bc.epochs=2"), 2),
        ("anneal", (), 5),
        ("anneal", ("--epochs", "1"), 3),  # of the PPO stage
    ],
)
@pytest.mark.parametrize("named", ["by flag", "by config"])
def test_a_dry_run_counts_the_epochs_that_are_then_made(
    here: Path, call: Call, mode: str, flags: tuple[str, ...], epochs: int, named: str
) -> None:
    pytest.importorskip("torch")
    call("capture", "town_day", "--ticks", "60", "--output", "cap")
    small = ("--set", ANNEAL, "--set", "training.bc.towns=2", "--set", "training.eval_towns=2", "--set", "training.epochs=9")
    asked = ("--mode", mode) if named == "by flag" else ("--set", f"training.source={mode}")
    words = ("train", "town_day", *asked, *TINY, *small, *flags)
    code, out, err = call(*words, "--dry-run", "--json")
    assert code == 0, err
    planned = json.loads(out)
    assert (planned["mode"], planned["epochs"]) == (mode, epochs)
    code, out, err = call(*words, "--run-dir", "run", "--json")
    assert code == 0, err
    assert json.loads(out)["epochs"] == epochs
    assert json.loads(Path("run/run.json").read_text())["epochs"] == epochs
    held = sum(path.stat().st_size for path in Path("run").rglob("*") if path.is_file())
    assert held <= planned["disk_bytes"]


def test_an_anneal_run_is_listed_and_compared(here: Path, call: Call) -> None:
    pytest.importorskip("torch")
    small = ("--set", ANNEAL, "--set", "training.bc.towns=2", "--set", "training.eval_towns=2")
    out = call("train", "town_day", "--mode", "anneal", *TINY, *small, "--run-dir", "runs/a", "--json")[1]
    summary = json.loads(out)
    best = max(stage["evaluation"]["measures"]["return"]["value"] for stage in summary["stages"])
    (row,) = json.loads(call("runs", "list", "--json")[1])
    assert (row["mode"], row["state"], row["stages"], row["epochs"], row["planned"]) == ("anneal", summary["status"], 2, 5, 5)
    assert row["return"] == best
    assert call("runs", "list")[1].splitlines()[0].split()[4:8] == ["stages", "epochs", "return", "latest"]
    out = call("runs", "compare", "runs/a", "--json")[1]
    told, bc, ppo = json.loads(out)["runs"]["runs/a"], summary["stages"][0]["bc"], summary["stages"][1]["ppo"]
    assert (told["accuracy"], told["loss_value"], told["kl_k3"]) == (bc["accuracy"], ppo["loss_value"], ppo["kl_k3"])
    assert told["guards"] == sum(len(stage["guards"]) for stage in summary["stages"])
    (here / "runs" / "a" / "summary.json").unlink()
    tracker = json.loads((here / "runs" / "a" / "anneal.json").read_text())
    del tracker[SEAL]
    write_sealed(here / "runs" / "a" / "anneal.json", tracker | {"done": tracker["done"][:1]})
    (row,) = json.loads(call("runs", "list", "--json")[1])
    assert (row["state"], row["stages"], row["epochs"], row["planned"]) == ("unfinished", 1, 2, 5)


def test_a_dry_run_writes_nothing(here: Path, call: Call) -> None:
    pytest.importorskip("torch")
    code, out, _ = call("train", "town_day", "--mode", "anneal", "--dry-run", *TINY)
    assert code == 0
    assert out.startswith("would train anneal")
    assert list(here.iterdir()) == []


def test_an_anneal_that_does_not_pass_can_fail_the_command(here: Path, call: Call) -> None:
    """Two epochs of cloning do not reach the gate: HOLD, which is exit 1 only when asked for."""
    pytest.importorskip("torch")
    schedule = "training.anneal_schedule=[{cycle: 0, mode: bc, epochs: 1}, {cycle: 1, mode: ppo, epochs: 1}]"
    args = ("train", "town_day", "--mode", "anneal", "--set", schedule, "--set", "training.eval_towns=2", *TINY)
    bc = ("--set", "training.bc.towns=2", "--set", "training.bc.batch_size=512", "--set", "training.anneal_guards.kl_bound=10")
    code, out, _ = call(*args, *bc, "--anneal-exit-on-failure", "--anneal-log-dir", "logs")
    assert code == 1
    assert "anneal HOLD" in out or "anneal FAIL" in out
    assert json.loads((here / "logs" / "anneal_summary.json").read_text())["status"] in ("HOLD", "FAIL")
    assert (here / "logs" / "ppo.ndjson").is_file()


def test_training_without_torch_is_refused_with_the_install_line(here: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("townlet.optional.installed", lambda name: name != "torch")
    code, out, err = call("train", "town_day", "--mode", "rollout")
    assert (code, out) == (4, "")
    assert "pip install 'townlet[ml]'" in err
    assert list(here.iterdir()) == []
