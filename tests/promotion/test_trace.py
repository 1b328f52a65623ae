"""The way back from a promotion to the tick: a policy that was really trained, and every link of it tampered with."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from townlet.cli.app import main
from townlet.config import SimulationConfig, load_config
from townlet.config.learning import GateConfig, PromotionConfig
from townlet.dto.promotion import Outcome
from townlet.errors import UsageError
from townlet.evaluation.compare import load_scorecard, save_scorecard
from townlet.evaluation.scorecard import evaluate, policy_hash
from townlet.evaluation.suites import Case
from townlet.files import write_sums
from townlet.policy.capture import CaptureOptions, capture
from townlet.policy.checkpoint import load_checkpoint, save_checkpoint, weights_hash
from townlet.policy.manifest import dataset_hash, find_manifest, read_manifest
from townlet.policy.runner import TrainingHarness
from townlet.policy.training.contexts import RunOptions
from townlet.promotion.ledger import entry_hash
from townlet.promotion.releases import Releases
from townlet.promotion.trace import trace
from townlet.sealed import SEAL, seal_of
from townlet.telemetry.ndjson import read_records

pytest.importorskip("torch")

SMALL = (
    *("training.towns=2", "training.horizon=5", "training.eval_every=0", "training.eval_towns=2", "training.bc.towns=2"),
    *("training.bc.epochs=2", "policy.network.map_encoder=none", "policy.network.feature_size=16"),
    *("policy.network.conflict_size=8", "policy.network.trunk_sizes=[16]", "ppo.num_epochs=1", "ppo.num_mini_batches=1"),
)
RULES = PromotionConfig(
    suite="short",
    required_passes=1,
    gates=(GateConfig(metric="return", rule="at_least", bound=-1e6),),
    ledger="promotion/l.ndjson",
)
DESK = Releases(Path(RULES.ledger), RULES)  # all paths are as seen from the folder the tests are in
RUN, DATA, MANIFEST = Path("run"), Path("capture"), "rollout_sample_manifest.json"
LINKS = ["ledger entry", "scorecard", "weights", "run folder", "log record", "dataset", "sample", "moment", "event"]


def small(*overrides: str) -> SimulationConfig:
    return load_config("town_day", (*SMALL, *overrides))


def promoted(checkpoint: Path) -> None:
    """Measure a checkpoint in a few short towns and promote it."""
    case = Case("short", "town_day", overrides=("scenario.episode_ticks=60",), towns=5, days=1)
    policies = {"candidate": str(checkpoint), "champion": str(DESK.release() or "scripted")}
    card = evaluate(policies, [case], suite="short", window=DESK.next_window())
    save_scorecard(card, Path("card.json"))
    assert DESK.evaluate(checkpoint, Path("card.json")).outcome is Outcome.PROMOTE
    assert DESK.promote(checkpoint).outcome is Outcome.PROMOTE


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of two towns, three epochs of PPO on it, and the promotion of what came out."""
    folder = tmp_path_factory.mktemp("origin")
    with contextlib.chdir(folder):
        capture([small()], DATA, CaptureOptions(ticks=240, towns=2, epsilon=0.05))
        capture([small()], Path("other"), CaptureOptions(ticks=60))
        config = small("training.capture_dir=capture")
        result = TrainingHarness(config).run_ppo(mode="replay", options=RunOptions(epochs=3, run_dir=RUN))
        assert result.checkpoint is not None
        promoted(Path(result.checkpoint))
    return folder


@pytest.fixture
def here(origin: Path, tmp_path: Path) -> Iterator[Path]:
    with contextlib.chdir(shutil.copytree(origin, tmp_path / "copy")):
        yield Path()


def test_a_promotion_leads_back_to_the_event_by_program(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = trace(DESK)
    assert (found.broken, found.reason) == (None, None)
    assert [link.name for link in found.links] == LINKS
    told = {link.name: link for link in found.links}
    assert told["ledger entry"].found == "1, promote"
    assert told["log record"].found == "epoch 3"
    sample = json.loads((DATA / f"{told['sample'].found}.json").read_text())
    event_id, _, rest = told["event"].found.partition(": ")
    event = next(
        e for line in (DATA / "events.ndjson").read_text().splitlines() if (e := json.loads(line))["event_id"] == event_id
    )
    assert (event["actor"], event["type"]) == (sample["agent_id"], "queue_conflict")
    assert rest.startswith(f"{event['actor']} queue_conflict {event['object_id']}")
    place = sample["capture"]
    expected = f"town {place['town']}, episode {place['episode']}, tick {event['tick']} of town_day, seed {place['seed']}"
    assert told["moment"].found == expected
    with pytest.raises(SystemExit) as left:
        main(["promote", "trace", "--ledger", RULES.ledger])
    assert left.value.code == 0
    out = capsys.readouterr().out.splitlines()
    assert [line[:13].strip() for line in out] == [*LINKS, "every link ho"]


def test_one_hash_of_weights_and_one_of_data_stand_everywhere(here: Path) -> None:
    checkpoint = RUN / "checkpoints" / "000003"
    found = load_checkpoint(checkpoint)
    weights, data = weights_hash(found.weights), dataset_hash(read_manifest(find_manifest(DATA)).entries)
    assert len(weights) == len(data) == 64
    assert (found.state["weights_hash"], found.state["dataset_hash"]) == (weights, data)
    record = list(read_records(RUN / "ppo.ndjson"))[-1]
    assert (record["policy_hash"], record["dataset_hash"]) == (weights, data)
    summary = json.loads((RUN / "summary.json").read_text())
    assert (summary["weights_hash"], summary["dataset_hash"]) == (weights, data)
    assert json.loads((RUN / "run.json").read_text())["dataset_hash"] == data
    card = load_scorecard(Path("card.json")).cases[0].policy("candidate")
    assert (card.policy_hash, card.dataset_hash) == (weights, data)
    entry = DESK.entries()[-1]
    assert entry.evidence is not None
    assert (entry.candidate, entry.evidence.candidate, entry.evidence.dataset) == (weights, weights, data)
    assert DESK.champion() == policy_hash(str(DESK.release())) == weights
    capture([small()], Path("own"), CaptureOptions(ticks=20, policy=str(checkpoint)))
    assert {json.loads(path.read_text())["policy"]["hash"] for path in Path("own").glob("*_000.json")} == {weights}


def test_the_hash_of_data_sees_arrays_metadata_events_and_order(here: Path) -> None:
    entries = read_manifest(find_manifest(DATA)).entries
    bare = [type(entry)(entry.sample, entry.meta) for entry in entries]
    first = dataset_hash(entries)
    assert dataset_hash(bare) == first
    assert dataset_hash(reversed(entries)) != first
    harness = TrainingHarness(small("training.capture_dir=capture"))
    assert harness.build_replay_dataloader().hash == first
    for path in (entries[0].sample, entries[0].meta, DATA / "events.ndjson"):
        before = path.read_bytes()
        path.write_bytes(before + b" ")
        assert dataset_hash(bare) != first, path
        path.write_bytes(before)
    one, other = (harness.capture_rollout(60).build_dataset() for _ in range(2))
    assert one.hash == other.hash != first


# --- tampering -------------------------------------------------------------------------------------------------------


def edit(path: Path, **changes: Any) -> None:
    """Changed and sealed anew: what a seal cannot see, the other links must."""
    found = json.loads(path.read_text()) | changes
    if found.pop(SEAL, None) is not None:
        found[SEAL] = seal_of(found)
    path.write_text(json.dumps(found))


def flip(path: Path, position: int = -20) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def swap(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def forge(entry: dict[str, Any] | None = None, **evidence: Any) -> None:
    """A forger of the ledger who hashes everything again, the chain and its head."""
    lines, previous = [json.loads(line) for line in DESK.ledger.read_text().splitlines()], "0" * 64
    for fields in lines:
        fields |= {**(entry or {}), "previous": previous}
        fields["evidence"] |= evidence
        previous = fields["hash"] = entry_hash(fields)
    text = "".join(json.dumps(fields, sort_keys=True, separators=(",", ":")) + "\n" for fields in lines)
    DESK.ledger.write_text(text)
    head = DESK.ledger.with_name(DESK.ledger.name + ".head")
    head.write_text(json.dumps({"number": len(lines) - 1, "hash": previous}))


def release() -> Path:
    found = DESK.release()
    assert found is not None
    return found


def latest() -> Path:
    return RUN / "checkpoints" / "000003"


def evidence() -> Path:
    return next(DESK.ledger.parent.glob("evidence/*.json"))


def both(change: Callable[[Path], None]) -> None:
    """Change the checkpoint and its release alike, and write their sums anew."""
    for folder in (release(), latest()):
        change(folder)
        write_sums(folder)


def other_run(folder: Path) -> None:
    edit(folder / "state.json", run_id="0" * 16)


def other_weights(folder: Path) -> None:
    found = load_checkpoint(folder)
    shutil.rmtree(folder)
    found.weights["policy.weight"] = found.weights["policy.weight"] + np.float32(1)
    save_checkpoint(folder, found)


def record(**changes: Any) -> None:
    log = RUN / "ppo.ndjson"
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:-1], json.dumps(json.loads(lines[-1]) | changes)]) + "\n")


def last_lines(number: int) -> None:
    log = RUN / "ppo.ndjson"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join([*lines[:2], *lines[2:] * number]))


def sample_file(suffix: str) -> Path:
    return sorted(DATA.glob(f"rollout_sample_*_001{suffix}"))[0]


def listed(change: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Change the rows of the manifest, and write the sums anew."""
    found = json.loads((DATA / MANIFEST).read_text())
    change(found["samples"])
    (DATA / MANIFEST).write_text(json.dumps(found))
    write_sums(DATA)


def forge_sample() -> None:
    """Another town in the metadata, with manifest and sums made to fit."""
    swap(sample_file(".json"), '"town": 1', '"town": 7')
    from townlet.files import sha256_file

    def fit(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["meta_sha256"] = sha256_file(DATA / row["meta"])

    listed(fit)


def forge_events() -> None:
    swap(DATA / "events.ndjson", '"queue_conflict"', '"queue_leave"')
    write_sums(DATA)


CHECKPOINTS = RUN / "checkpoints"
TAMPERINGS: dict[str, tuple[str, str, Callable[[], Any]]] = {  # what -> the link that is named, a word of its reason, how
    "an outcome of the ledger": ("ledger entry", "its content", lambda: swap(DESK.ledger, "PROMOTE", "HOLD")),
    "the number of an entry": ("ledger entry", "its content", lambda: swap(DESK.ledger, '"number":1', '"number":2')),
    "the head of the ledger": ("ledger entry", ".head", lambda: edit(Path("promotion/l.ndjson.head"), hash="0" * 64)),
    "the ledger gone": ("ledger entry", "is missing", lambda: DESK.ledger.unlink()),
    "a candidate forged": ("ledger entry", "candidate", lambda: forge({"candidate": "a" * 64})),
    "a scorecard changed": ("scorecard", "was changed", lambda: swap(evidence(), '"short"', '"other"')),
    "a scorecard gone": ("scorecard", "evidence", lambda: evidence().unlink()),
    "data forged in the ledger": ("scorecard", "dataset_hash", lambda: forge(dataset="b" * 64)),
    "data struck from the ledger": ("scorecard", "dataset_hash", lambda: forge(dataset=None)),
    "weights forged in the ledger": ("scorecard", "policy_hash", lambda: forge({"candidate": "a" * 64}, candidate="a" * 64)),
    "a checkpoint forged in the ledger": ("weights", "was changed since", lambda: forge(checkpoint="c" * 64)),
    "a run forged in the ledger": ("weights", "run_id", lambda: forge(run_id="d" * 16)),
    "a config forged in the ledger": ("weights", "config_hash", lambda: forge(training_config="e" * 16)),
    "a first checkpoint forged in the ledger": ("weights", "started_from", lambda: forge(started_from="f" * 64)),
    "weights of the release": ("weights", "weights.safetensors", lambda: flip(release() / "weights.safetensors")),
    "state of the release": ("weights", "state.json", lambda: edit(release() / "state.json", dataset_hash=None)),
    "the release gone": ("weights", "does not exist", lambda: shutil.rmtree(release())),
    "weights of the run": ("weights", "weights.safetensors", lambda: flip(latest() / "weights.safetensors")),
    "sums of the run's checkpoint": ("weights", "SHA256SUMS", lambda: flip(latest() / "SHA256SUMS", 0)),
    "state of both, summed anew": ("weights", "was changed since", lambda: both(other_run)),
    "other weights in both": ("weights", "holds weights", lambda: both(other_weights)),
    "the epochs of the run": ("run folder", "run_id", lambda: edit(RUN / "run.json", epochs=300)),
    "the mode of the run": ("run folder", "run_id", lambda: edit(RUN / "run.json", mode="mixed")),
    "the id of the run": ("run folder", "run_id", lambda: edit(RUN / "run.json", run_id="0" * 16)),
    "the seed of the run": ("run folder", "seed", lambda: edit(RUN / "run.json", seed=99)),
    "the data of the run": ("run folder", "dataset_hash", lambda: edit(RUN / "run.json", dataset_hash="0" * 64)),
    "the first weights of the run": ("run folder", "started_from", lambda: edit(RUN / "run.json", started_from="0" * 64)),
    "the config of the run": ("run folder", "config_hash", lambda: swap(RUN / "config.json", '"gamma": 0.99', '"gamma": 0.98')),
    "the run gone": ("run folder", "--run", lambda: (RUN / "run.json").unlink()),
    "the weights of the summary": ("run folder", "summary.json", lambda: edit(RUN / "summary.json", weights_hash="0" * 64)),
    "a loss of the record": ("log record", "loss_value", lambda: record(loss_value=0.0)),
    "the weights of the record": ("log record", "policy_hash", lambda: record(policy_hash="0" * 64)),
    "the data of the record": ("log record", "dataset_hash", lambda: record(dataset_hash=None)),
    "the run of the record": ("log record", "run_id", lambda: record(run_id="0" * 16)),
    "the epoch of the record": ("log record", "0 records of epoch 3", lambda: record(epoch=4)),
    "a record twice": ("log record", "2 records of epoch 3", lambda: last_lines(2)),
    "a record gone": ("log record", "0 records of epoch 3", lambda: last_lines(0)),
    "the log gone": ("log record", "does not exist", lambda: (RUN / "ppo.ndjson").unlink()),
    "other data in place": ("dataset", "holds other data", lambda: edit(RUN / "run.json", dataset="../other")),
    "a sample struck from the manifest": ("dataset", "holds other data", lambda: listed(lambda rows: rows.pop())),
    "samples in another order": ("dataset", "holds other data", lambda: listed(lambda rows: rows.reverse())),
    "a hash in the manifest": ("dataset", "SHA256SUMS lists another", lambda: flip(DATA / MANIFEST, -60)),
    "the manifest gone": ("dataset", "no manifest", lambda: (DATA / MANIFEST).unlink()),
    "an event changed": ("dataset", "events.ndjson", lambda: swap(DATA / "events.ndjson", '"tick":', '"tick":1')),
    "an event forged": ("dataset", "holds other data", forge_events),
    "the metadata of a sample forged": ("dataset", "holds other data", forge_sample),
    "an array of a sample": ("sample", "_001.npz", lambda: flip(sample_file(".npz"), 4000)),
    "the town of a sample": ("sample", "_001.json", lambda: swap(sample_file(".json"), '"town": 1', '"town": 7')),
    "the tick of a sample": ("sample", "_001.json", lambda: swap(sample_file(".json"), '"first_tick": ', '"first_tick": 1')),
    "a sample gone": ("sample", "_001.npz", lambda: sample_file(".npz").unlink()),
}  # fmt: skip


@pytest.mark.parametrize("what", TAMPERINGS)
def test_a_tampered_link_is_refused_by_name(here: Path, what: str) -> None:
    link, word, tamper = TAMPERINGS[what]
    tamper()
    found = trace(DESK)
    assert (found.broken, found.reason is not None and word in found.reason) == (link, True), found.reason
    assert [one.name for one in found.links] == LINKS[: LINKS.index(link)]


def test_the_command_names_the_broken_link_and_leaves_with_2(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(loss_value=0.0)
    with pytest.raises(SystemExit) as left:
        main(["promote", "trace", "--ledger", RULES.ledger])
    out = capsys.readouterr().out.splitlines()
    assert (left.value.code, len(out)) == (2, 5)
    assert out[-1].startswith("log record    does not hold: run/ppo.ndjson, epoch 3 has loss_value 0.0, expected ")


def test_events_that_were_doctored_before_the_training_contradict_their_sample(here: Path) -> None:
    forge_events()
    config = small("training.capture_dir=capture")
    result = TrainingHarness(config).run_ppo(mode="replay", options=RunOptions(epochs=1, run_dir=Path("second")))
    promoted(Path(result.checkpoint or ""))
    found = trace(DESK)
    assert (found.broken, "queue_conflict_events" in (found.reason or "")) == ("event", True)


# --- other runs ------------------------------------------------------------------------------------------------------


def test_what_was_moved_is_found_where_it_is_said_to_be(here: Path) -> None:
    DATA.rename("elsewhere")
    RUN.rename("moved")
    assert trace(DESK).broken == "run folder"
    assert trace(DESK, run=Path("moved")).broken == "dataset"
    assert trace(DESK, run=Path("moved"), data=Path("elsewhere")).broken is None
    window = trace(DESK, 0)  # of which there is no release
    assert window.broken == "weights"
    assert "say where its run is with --run" in str(window.reason)
    assert trace(DESK, 0, run=Path("moved"), data=Path("elsewhere")).broken is None
    assert trace(DESK, run=Path("moved"), data=Path("elsewhere") / MANIFEST).broken is None
    ids = [entry.sample.stem for entry in read_manifest(Path("elsewhere") / MANIFEST).entries]
    found = trace(DESK, run=Path("moved"), data=Path("elsewhere"), sample=ids[-1])
    assert next(link.found for link in found.links if link.name == "sample") == ids[-1]
    with pytest.raises(UsageError, match="lists no sample 'nobody'"):
        trace(DESK, run=Path("moved"), data=Path("elsewhere"), sample="nobody")


def test_a_window_and_a_rollback_lead_back_and_the_script_does_not(here: Path) -> None:
    assert trace(DESK, 0).broken is None
    with pytest.raises(UsageError, match="its entries are 0 to 1"):
        trace(DESK, 2)
    first = DESK.champion()
    DESK.rollback("a drill")
    with pytest.raises(UsageError, match="scripted townspeople were not trained"):
        trace(DESK)
    DESK.rollback("and back", to=first)
    assert [link.found for link in trace(DESK).links][:1] == ["1, promote"]


def test_a_checkpoint_that_was_changed_after_its_window_is_not_promoted(here: Path) -> None:
    DESK.rollback("a drill")
    promoted_again = RUN / "checkpoints" / "000003"
    case = Case("short", "town_day", overrides=("scenario.episode_ticks=60",), towns=5, days=1)
    policies = {"candidate": str(promoted_again), "champion": "scripted"}
    save_scorecard(evaluate(policies, [case], suite="short", window=1), Path("card.json"))
    assert DESK.evaluate(promoted_again, Path("card.json")).outcome is Outcome.PROMOTE
    edit(promoted_again / "state.json", run_id="0" * 16)
    write_sums(promoted_again)
    decision = DESK.promote(promoted_again)
    assert (decision.outcome, "was changed since it was judged" in decision.reasons[0]) == (Outcome.HOLD, True)


@pytest.mark.parametrize("mode", ["rollout", "bc", "anneal"])
def test_runs_without_data_or_without_a_record_say_so(tmp_path: Path, mode: str) -> None:
    schedule = (
        "training.anneal_schedule=[{cycle: 0, mode: bc, epochs: 1, bc_weight: 1.0, scripted_share: 0.5}, "
        "{cycle: 1, mode: ppo, epochs: 1, bc_weight: 0.0, scripted_share: 0.0}]"
    )
    calm = ("ppo.learning_rate=1e-7", "training.anneal_guards={conflict_rise: 1e6, return_fall: 1, value_loss_factor: 1e6}")
    with contextlib.chdir(tmp_path):
        capture([small()], DATA, CaptureOptions(ticks=240, epsilon=0.05))
        config = small(
            schedule, *calm, *([] if mode == "rollout" else [f"training.bc.manifest={DATA / MANIFEST}"]), "training.epochs=2"
        )
        result = TrainingHarness(config).run(mode, RunOptions(run_dir=RUN))
        promoted(Path(result.checkpoint or ""))
        found = trace(DESK)
        assert found.broken is None
        told = {link.name: link.found for link in found.links}
        evidence = DESK.entries()[-1].evidence
        assert evidence is not None
        assert told["log record"].startswith("none was written: cloning" if mode == "bc" else "epoch ")
        if mode == "rollout":
            assert evidence.dataset is None
            assert list(told) == LINKS[:6]
            assert told["dataset"].startswith("none was given: the run learned in its own towns")
        else:
            assert evidence.dataset == told["dataset"] == dataset_hash(read_manifest(find_manifest(DATA)).entries)
            assert list(told) == LINKS
        if mode == "anneal":
            assert {record["dataset_hash"] for record in read_records(RUN / "ppo.ndjson")} == {evidence.dataset}


def test_a_run_that_starts_from_a_checkpoint_names_its_weights(here: Path) -> None:
    start = RUN / "checkpoints" / "000003"
    first = load_checkpoint(start).state["weights_hash"]
    result = TrainingHarness(small()).run("rollout", RunOptions(epochs=1, run_dir=Path("second"), start_from=start))
    card = json.loads(Path("second/run.json").read_text())
    alone = TrainingHarness(small()).run("rollout", RunOptions(epochs=1, run_dir=Path("third")))
    assert card["started_from"] == first
    assert card["run_id"] != json.loads(Path("third/run.json").read_text())["run_id"]
    assert load_checkpoint(alone.checkpoint or "").state["started_from"] is None
    promoted(Path(result.checkpoint or ""))
    entry = DESK.entries()[-1]
    assert entry.evidence is not None
    assert (entry.evidence.started_from, trace(DESK).broken) == (first, None)
    again = TrainingHarness(small()).run("rollout", RunOptions(epochs=1, run_dir=Path("second"), resume=True))
    assert again.checkpoint == result.checkpoint
