"""Names are names: forty and more payloads at every door through which a name or a path comes in from a file or a command line.

Whatever is offered, nothing outside the folder of the attempt is made, changed or removed, and a refusal is one sentence.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from places import ROOT
from scorecards import checkpoint_folder, duel
from townlet import files
from townlet.cli.app import main
from townlet.config.learning import PromotionConfig
from townlet.config.loader import load_config
from townlet.errors import CheckpointError, ReplayError, TownletError, UsageError
from townlet.names import LONGEST, is_name, name_from
from townlet.observer.app import Observatory, _Routes
from townlet.observer.library import Library, run_id
from townlet.observer.studio import Studio
from townlet.observer.take import read_take
from townlet.policy.capture import CaptureOptions, capture
from townlet.policy.capture_folder import SampleFilter, filter_samples
from townlet.policy.checkpoint import Checkpoint, load_checkpoint, publish_checkpoint, resolve, tidy
from townlet.policy.replay import ReplayDatasetConfig
from townlet.policy.replay_report import validate
from townlet.policy.training.anneal import Tracker
from townlet.policy.training.contexts import RunOptions
from townlet.policy.training.orchestrator import PolicyTrainingOrchestrator
from townlet.policy.training.run_folder import RunFolder
from townlet.promotion.ledger import GENESIS, entry_hash
from townlet.promotion.releases import Releases
from townlet.studies.spec import ablation, load_spec
from townlet.testing import tiny_town

OUTSIDE = "@outside@"  # in a payload: the absolute path of the folder with what must not be touched
PAYLOADS = {
    "empty": "",
    "dot": ".",
    "dots": "..",
    "three dots": "...",
    "up": "../x",
    "two up": "../../victim",
    "three up": "../../../victim",
    "down and up": "a/../../victim",
    "dot and up": "./../x",
    "up with slash": "../victim/",
    "absolute": f"{OUTSIDE}/new",
    "absolute, there": f"{OUTSIDE}/victim",
    "absolute file": f"{OUTSIDE}/victim/keep.ndjson",
    "two slashes": f"/{OUTSIDE}/victim",
    "backslash up": "..\\x",
    "backslash": "\\x",
    "drive": "C:\\x",
    "drive with slash": "C:/x",
    "share": "\\\\host\\share",
    "percent": "%2e%2e",
    "percent slash": "%2e%2e%2fx",
    "half percent": "..%2fx",
    "nul": "x\0y",
    "only nul": "\0",
    "newline": "x\ny",
    "last newline": "x\n",
    "return": "x\r",
    "tab": "\t",
    "blank": " ",
    "blanks": "a b",
    "escape": "\x1b[31m",
    "long": "a" * 300,
    "very long": "a" * 5000,
    "deep": "a/" * 200 + "x",
    "dot leader": "\u2025",
    "wide dots": "\uff0e\uff0e/x",
    "division slash": "..\u2215x",
    "wide slash": "..\uff0fx",
    "accent": "caf\u00e9",
    "right to left": "\u202ex",
    "half a pair": "\udc80",
    "home": "~",
    "home of root": "~root",
    "variable": "$HOME",
    "variable and slash": "${HOME}/x",
    "command": "`id`",
    "flags": "-rf",
    "long flag": "--overwrite",
    "slash behind": "x/",
    "dot behind": "x/.",
    "hidden": ".hidden",
    "dot last": "x.",
    "star": "*",
    "capital": "Town",
    "device": "con",
    "null device": f"{OUTSIDE}/dev/null",  # a file of the tree: never name one of the machine, a door may be open
    "device up": "../../../dev/null",
    "link": "link",
    "through a link": "link/x",
    "run.json": "run.json",
}
TINY = (
    *("training.towns=2", "training.horizon=5", "training.eval_every=0", "training.eval_towns=2", "training.epochs=1"),
    *("policy.network.map_encoder=none", "policy.network.feature_size=16", "scenario.episode_ticks=60"),
)
Attempt = Callable[[Path, str], object]
small_town = cache(lambda: tiny_town(residents=1))
small_tree = cache(lambda: small_town().model_dump_json())


# --- what is there before an attempt -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of one life, and a finished run of one epoch, made once and copied for every attempt."""
    pytest.importorskip("torch")
    place = tmp_path_factory.mktemp("store")
    capture([small_town()], place / "cap", CaptureOptions(ticks=5))
    PolicyTrainingOrchestrator(tiny_town(*TINY)).run("rollout", RunOptions(run_dir=place / "run"))
    weights = checkpoint_folder(place / "candidate", "candidate")
    files.write_json(place / "card.json", duel(1, candidate=weights, champion="scripted").model_dump(mode="json"))
    return place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an attempt, three below a tree that must stay as it is; everything outside it is compared afterwards."""
    root = tmp_path / "some" / "where" / "inside"
    root.mkdir(parents=True)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "null").touch()
    beside = root.parent
    for folder in (tmp_path / "victim", beside.parent / "victim", beside / "victim", beside / "x", beside / "made"):
        folder.mkdir()
        (folder / "keep.txt").write_text("kept")
        (folder / "keep.ndjson").write_text('{"kept": true}\nhalf a li')
        (folder / ".state.partial").write_text("kept")
    (root / "link").symlink_to(tmp_path / "victim")
    monkeypatch.chdir(root)
    return root


def seen(top: Path, without: Path) -> dict[str, tuple[int, int, str]]:
    """Everything below a folder but one: mode, time of the last change, content."""
    found: dict[str, tuple[int, int, str]] = {}
    for folder, folders, names in os.walk(top):
        if Path(folder) == without:
            folders.clear()
            continue
        for path in (Path(folder, name) for name in (*folders, *names)):
            about = path.lstat()
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            if path != without:
                found[str(path)] = (about.st_mode, 0 if path == without.parent else about.st_mtime_ns, content)
    return found


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    tree = json.loads(path.read_text())
    change(tree)
    path.write_text(json.dumps(tree))


def bring(name: str) -> Path:
    return Path(shutil.copytree(STORE[0] / name, name))


STORE: list[Path] = []


@pytest.fixture(autouse=True)
def _store(store: Path) -> None:
    STORE[:] = [store]


def town(payload: str, *keys: str) -> Path:
    """A config file of a stranger, with the payload at a key."""
    tree: dict[str, Any] = json.loads(small_tree())
    here = tree
    for key in keys[:-1]:
        here = here[key]
    here[keys[-1]] = payload
    path = Path("strange.yaml")
    path.write_text(json.dumps(tree))  # YAML too
    return path


def call(*words: str) -> None:
    """The command line, whose refusals become errors again."""
    try:
        main(words)
    except SystemExit as left:
        if left.code:
            raise UsageError(f"exit code {left.code}") from None


# --- the doors ---------------------------------------------------------------------------------------------------------------


def scenario_name(root: Path, payload: str) -> None:
    config = load_config(town(payload, "scenario", "name"))
    capture([config, small_town()], root / "out", CaptureOptions(ticks=5))


def scenario_name_overwriting(root: Path, payload: str) -> None:
    config = load_config(town(payload, "scenario", "name"))
    for _ in range(2):
        capture([config, small_town()], root / "out", CaptureOptions(ticks=5, overwrite=True))


def scenario_name_set(root: Path, payload: str) -> None:
    call("capture", "queue_conflict", "kitchen_breakfast", "--ticks", "5", "--output", "out", "--set", f"scenario.name={payload}")


def config_id(root: Path, payload: str) -> None:
    from townlet.policy.training.run_folder import next_free

    config = load_config(town(payload, "config_id"), TINY)
    PolicyTrainingOrchestrator(config).run("rollout", RunOptions(run_dir=next_free(config.config_id, "rollout")))


def telemetry_file(root: Path, payload: str) -> None:
    config = load_config(town(payload, "telemetry", "file"), TINY)
    PolicyTrainingOrchestrator(config).run("rollout", RunOptions(run_dir=root / "run"))


def log_of_a_run(root: Path, payload: str) -> None:
    edit(bring("run") / "run.json", lambda card: card.update(telemetry=payload))
    run = RunFolder(root / "run")
    PolicyTrainingOrchestrator(run.resolved_config()).run("rollout", RunOptions(run_dir=run.path, resume=True))


def log_of_a_report(root: Path, payload: str) -> None:
    from townlet.observer.report import read_run

    edit(bring("run") / "run.json", lambda card: card.update(telemetry=payload))
    assert not [record for record in read_run(root / "run").records if record.get("kept")]  # nothing outside is read


def config_of_a_run(root: Path, payload: str) -> None:
    edit(bring("run") / "config.json", lambda tree: tree.update(config_id=payload))
    RunFolder(root / "run").resolved_config()


def anneal_state(root: Path, payload: str) -> None:
    (root / "anneal.json").write_text(json.dumps({"good": payload}))
    good = Tracker.read(root).good
    assert good is not None
    assert Path(good).resolve().is_relative_to(root), f"{good} is outside"
    load_checkpoint(good)


def _sample(payload: str, *keys: str) -> Path:
    """A capture whose sample says something else about itself, all hashes right."""
    folder = bring("cap")
    meta = next(path for path in folder.glob("*.json") if not path.name.endswith(("_manifest.json", "_metrics.json")))

    def change(tree: dict[str, Any]) -> None:
        for key in keys[:-1]:
            tree = tree[key]
        tree[keys[-1]] = payload

    edit(meta, change)
    manifest = next(folder.glob("*_manifest.json"))
    edit(manifest, lambda tree: tree["samples"][0].update(meta_sha256=files.sha256_file(meta)))
    files.write_sums(folder)
    return folder


def sample_id_appended(root: Path, payload: str) -> None:
    capture([small_town()], _sample(payload, "sample_id"), CaptureOptions(ticks=5, append=True))


def sample_id_dropped(root: Path, payload: str) -> None:
    capture([small_town()], _sample(payload, "sample_id"), CaptureOptions(ticks=5, append=True, max_bytes=1))


def sample_id_filtered(root: Path, payload: str) -> None:
    filter_samples(_sample(payload, "sample_id"), root / "out", SampleFilter())


def agent_id_appended(root: Path, payload: str) -> None:
    capture([small_town()], _sample(payload, "agent_id"), CaptureOptions(ticks=5, append=True))


def minari_name(root: Path, payload: str) -> None:
    from townlet.policy.exports import export_minari

    pytest.importorskip("minari")
    export_minari(_sample(payload, "capture", "scenario"), root / "out")


def _manifest(key: str) -> Attempt:
    def attempt(root: Path, payload: str) -> None:
        folder = bring("cap")
        manifest = next(folder.glob("*_manifest.json"))
        edit(manifest, lambda tree: tree["samples"][0].update({key: payload + ".npz" * (key == "sample")}))
        files.write_sums(folder)
        assert not validate(folder).ok
        ReplayDatasetConfig.from_capture_dir(folder)
        filter_samples(folder, root / "out", SampleFilter())

    return attempt


def manifest_file(root: Path, payload: str) -> None:
    """A capture whose manifest, and so the prefix of its files, is called otherwise."""
    folder = bring("cap")
    manifest = next(folder.glob("*_manifest.json"))
    try:
        manifest.rename(folder / f"{payload.replace('/', '')}_manifest.json")
    except (OSError, ValueError):
        raise ReplayError("no file can be called so") from None
    files.remove(folder / files.SUMS)
    capture([small_town()], folder, CaptureOptions(ticks=5, append=True))


def sums(root: Path, payload: str) -> None:
    folder = Path(shutil.copytree(STORE[0] / "candidate", "candidate"))
    with contextlib.suppress(UnicodeEncodeError), open(folder / "SHA256SUMS", "a") as stream:
        stream.write(f"{'0' * 64}  {payload}\n")
    load_checkpoint(folder)


def pointer(root: Path, payload: str) -> None:
    folder = bring("run") / "checkpoints"
    (folder / "latest").write_bytes(payload.encode("utf-8", "surrogatepass") + b"\n")
    with contextlib.suppress(CheckpointError):
        tidy(folder)
    resolve(root / "run" / "checkpoints")


def checkpoint_name(root: Path, payload: str) -> None:
    found = load_checkpoint(STORE[0] / "run" / "checkpoints")
    publish_checkpoint(root / "checkpoints", payload, Checkpoint(found.weights, found.state), keep=1)


def study_arm(root: Path, payload: str) -> None:
    _study(root, name="tiny", arms={payload: []})


def study_name(root: Path, payload: str) -> None:
    _study(root, name=payload, arms={"plain": []})


def _study(root: Path, name: str, arms: dict[str, list[str]]) -> None:
    """What a job does with its names before it trains."""
    from townlet.studies import runner

    path = Path("study.yaml")
    path.write_text(json.dumps({"name": name, "config": str(STORE[0] / "run" / "config.json"), "arms": arms, "seeds": 1}))
    spec = load_spec(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "PolicyTrainingOrchestrator", lambda config: _Untrained())
        runner.run_job(spec, next(iter(spec.arms)), 0, results=root / "results", runs=root / "runs")


class _Untrained:
    def run(self, mode: str | None, options: RunOptions) -> None:
        assert options.run_dir is not None
        files.write_text(options.run_dir / "made.txt", "made")
        raise UsageError("not in this test")


def ablated_config(root: Path, payload: str) -> None:
    assert is_name(ablation(payload, "conflict").name)


def promotion_ledger(root: Path, payload: str) -> None:
    call("promote", "evaluate", str(STORE[0] / "candidate"), "--scorecard", "none.json", "--set", f"promotion.ledger={payload}")


def promotion_ledger_in_a_config(root: Path, payload: str) -> None:
    from townlet.policy.training.services import PromotionServiceAdapter

    releases = PromotionServiceAdapter(load_config(town(payload, "promotion", "ledger"))).releases
    releases.evaluate(STORE[0] / "candidate", root / "none.json")


def _ledger(key: str) -> Attempt:
    def attempt(root: Path, payload: str) -> None:
        evidence: dict[str, Any] = {"scorecard": "0" * 64, "candidate": "a", "champion": "b", "gates": "c"}
        evidence |= {"configs": [], "seeds": []}
        entry: dict[str, Any] = {"schema_version": 1, "number": 0, "previous": GENESIS, "at": "", "kind": "promote"}
        entry |= {
            "candidate": "a" * 64,
            "champion": "scripted",
            "source": "",
            "decision": None,
            "evidence": evidence,
            "reasons": [],
        }
        (evidence if key == "scorecard" else entry)[key] = payload
        entry["hash"] = entry_hash(entry)
        (root / "ledger.ndjson").write_text(json.dumps(entry) + "\n")
        releases = Releases(root / "ledger.ndjson", PromotionConfig())
        assert releases.verify()
        release = releases.release()
        assert release is None or release.resolve().is_relative_to(root)
        releases.rollback("because")
        releases.rollback("because", "a")

    return attempt


def extends(root: Path, payload: str) -> None:
    Path("strange.yaml").write_text(json.dumps({"extends": payload}))
    load_config("strange.yaml")


def affordances(root: Path, payload: str) -> None:
    Path("strange.yaml").write_text(json.dumps({"extends": "town_day", "affordances": {"file": payload}}))
    load_config("strange.yaml")


def capture_prefix(root: Path, payload: str) -> None:
    capture([small_town()], root / "out", CaptureOptions(ticks=5, prefix=payload))


def _command(*words: str) -> Attempt:
    return lambda root, payload: call(*(word.replace("@", payload) for word in words))


@cache
def snapshot() -> Any:
    from townlet.envs.vector import VectorTown
    from townlet.sim.snapshot import take_snapshot

    return take_snapshot(VectorTown(small_town(), 1))


def snapshot_header(root: Path, payload: str) -> None:
    from townlet.sim.snapshot import load_snapshot, save_snapshot

    taken = snapshot()
    config = {**taken.header.config, "config_id": payload}
    try:
        header = taken.header.model_copy(update={"config": config, "config_id": payload})
        save_snapshot(type(taken)(header, taken.arrays, taken.memory), root / "snapshot.npz")
    except ValueError:
        raise UsageError("the header cannot be written") from None
    load_snapshot(root / "snapshot.npz")


def _take(**fields: str) -> Attempt:
    """A take of a stranger's, captured and opened."""

    def attempt(root: Path, payload: str) -> None:
        studio = Studio()
        recipe = studio.new_take(small_town(), seed=1).take.model_dump(mode="json", exclude_none=True)
        told = {key: value.replace("@", payload) for key, value in fields.items()}
        Path("one.take").write_text(json.dumps(recipe | told))
        with contextlib.suppress(TownletError):
            studio.open(read_take(Path("one.take")))
        call("capture", "--take", "one.take", "--ticks", "5", "--output", "out")

    return attempt


def kept_checkpoints(root: Path, payload: str) -> None:
    """What the latest checkpoint says of its folder, its sums right."""
    folder = bring("run") / "checkpoints"
    latest = resolve(folder)
    edit(latest / "state.json", lambda state: state.update(kept={"names": [payload], "best": payload}))
    files.write_sums(latest)
    tidy(folder)


def _page(ask: Callable[[_Routes, str], object]) -> Attempt:
    """A part of an address of the page."""

    def attempt(root: Path, payload: str) -> None:
        library = Library(bring("run").parent, root / "ledger.ndjson", PromotionConfig())
        ask(_Routes(Observatory(Studio(), library, lambda *words: {})), payload)

    return attempt


DOORS: dict[str, Attempt] = {
    "scenario.name, captured": scenario_name,
    "scenario.name, captured twice": scenario_name_overwriting,
    "scenario.name, --set": scenario_name_set,
    "config_id, trained": config_id,
    "telemetry.file, trained": telemetry_file,
    "run.json: the log, resumed": log_of_a_run,
    "run.json: the log, reported": log_of_a_report,
    "config.json of a run": config_of_a_run,
    "anneal.json: the good checkpoint": anneal_state,
    "sample_id, appended to": sample_id_appended,
    "sample_id, dropped": sample_id_dropped,
    "sample_id, filtered": sample_id_filtered,
    "agent_id, appended to": agent_id_appended,
    "scenario of a sample, to Minari": minari_name,
    "manifest: sample": _manifest("sample"),
    "manifest: meta": _manifest("meta"),
    "manifest: its own name": manifest_file,
    "SHA256SUMS": sums,
    "latest": pointer,
    "checkpoint name": checkpoint_name,
    "study: arm": study_arm,
    "study: name": study_name,
    "ablate CONFIG": ablated_config,
    "promotion.ledger, --set": promotion_ledger,
    "promotion.ledger, config": promotion_ledger_in_a_config,
    "ledger: candidate": _ledger("candidate"),
    "ledger: champion": _ledger("champion"),
    "ledger: scorecard": _ledger("scorecard"),
    "extends": extends,
    "affordances.file": affordances,
    "capture prefix": capture_prefix,
    "capture --prefix": _command("capture", "queue_conflict", "--ticks", "5", "--output", "out", "--prefix", "@"),
    "capture --agent-id": _command("capture", "queue_conflict", "--ticks", "5", "--output", "out", "--agent-id", "@"),
    "scenarios new": _command("scenarios", "new", "--", "@"),
    "snapshot header": snapshot_header,
    "take: town": _take(town="@"),
    "take: policy": _take(policy="@"),
    "take: snapshot": _take(start="@"),
    "take: change": _take(changes="@"),
    "state.json: kept": kept_checkpoints,
    "page: /static/…": _page(lambda routes, word: routes._static[word] if word in routes._static else routes.library.find(word)),
    "page: /api/takes/…": _page(lambda routes, word: routes.studio.known(word)),
    "page: /api/runs/…": _page(lambda routes, word: routes.library.run(word)),
    "page: /api/runs/…/records": _page(lambda routes, word: routes.library.records(run_id(Path("run")), word)),
    "page: /api/scenarios/…": _page(lambda routes, word: routes.library.yaml(word)),
    "page: a town asked for": _page(lambda routes, word: routes._make_take({"town": word})),
    "page: a town in YAML": _page(lambda routes, word: routes._make_take({"yaml": f"extends: {json.dumps(word)}\n"})),
}


def test_the_table_is_as_long_as_it_says() -> None:
    assert len(PAYLOADS) >= 40
    assert f"{len(PAYLOADS)} payloads × {len(DOORS)} doors" in (ROOT / "docs" / "RELIABILITY.md").read_text()
    assert sorted(name for name, text in PAYLOADS.items() if is_name(text)) == ["device", "link", "run.json"]


@pytest.mark.parametrize("door", DOORS)
def test_nothing_outside_is_touched(door: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every payload at one door, each in a fresh folder."""
    before = seen(tmp_path, place)
    for name, payload in PAYLOADS.items():
        refused: TownletError | None = None
        try:
            DOORS[door](place, payload.replace(OUTSIDE, str(tmp_path)))
        except TownletError as error:
            refused = error
        assert seen(tmp_path, place) == before, name
        if refused is not None:
            sentence = str(refused)
            assert refused.exit_code in (2, 3, 74), (name, sentence)
            assert "\n" not in sentence, (name, sentence)
            assert 10 < len(sentence) < 700, (name, sentence)
        said = capsys.readouterr().err
        assert "Traceback" not in said, name
        assert not said or said.startswith("townlet: "), (name, said)
        _clear(place)


def _clear(place: Path) -> None:
    for path in place.iterdir():
        if path.name != "link":
            files.remove(path)


# --- links in folders of strangers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["checkpoints", "ppo.ndjson", "ppo.ndjson.1", "ppo.ndjson.discarded", ".lock"])
def test_a_link_in_a_run_folder_leads_nowhere(name: str, place: Path, tmp_path: Path) -> None:
    """A resumed run writes its checkpoints, log and lock; none of them may be somebody else's file or folder."""
    run = RunFolder(bring("run"))
    aim = tmp_path / "victim" / ("keep.ndjson" if "." in name else "")
    files.remove(run.path / name)
    (run.path / name).symlink_to(aim)
    before = seen(tmp_path, place)
    with pytest.raises(TownletError):
        PolicyTrainingOrchestrator(run.resolved_config()).run("rollout", RunOptions(run_dir=run.path, resume=True))
    assert seen(tmp_path, place) == before


@pytest.mark.parametrize("name", ["releases", "evidence", ".lock"])
def test_a_link_beside_a_ledger_leads_nowhere(name: str, place: Path, tmp_path: Path) -> None:
    (place / name).symlink_to(tmp_path / "victim" / ("keep.txt" if name == ".lock" else ""))
    write = Path(shutil.copy(STORE[0] / "card.json", place / "card.json"))
    before = seen(tmp_path, place)
    releases = Releases(place / "ledger.ndjson", PromotionConfig())
    with contextlib.suppress(TownletError):
        releases.evaluate(STORE[0] / "candidate", write)
        releases.promote(STORE[0] / "candidate")
    assert seen(tmp_path, place) == before


def test_a_link_in_the_folder_of_a_study_is_not_followed_when_an_unfinished_job_is_removed(place: Path, tmp_path: Path) -> None:
    (place / "runs").mkdir()
    (place / "runs" / "trained").symlink_to(tmp_path / "victim")
    before = seen(tmp_path, place)
    with pytest.raises(UsageError, match=r"leads out of .*runs through a link"):
        study_arm(place, "plain")
    assert seen(tmp_path, place) == before


def test_what_was_half_written_is_put_beside_and_never_through_a_link(place: Path, tmp_path: Path) -> None:
    (place / f".a.json.{os.getpid()}.partial").symlink_to(tmp_path / "victim" / "keep.txt")
    files.write_json(place / "a.json", {})
    assert (tmp_path / "victim" / "keep.txt").read_text() == "kept"
    assert [path.name for path in place.iterdir() if path.name != "link"] == ["a.json"]


# --- what is removed ---------------------------------------------------------------------------------------------------------


def test_an_appended_capture_removes_its_own_old_folder_only(place: Path) -> None:
    """Also when a folder beside it looks like one, or its name holds the letters of a pattern."""
    folder = bring("cap").rename("c[a]p")
    for name in ("cap.old-1", "c[a]p.old-7"):
        Path(name).mkdir()
    capture([small_town()], folder, CaptureOptions(ticks=5, append=True))
    assert sorted(path.name for path in place.iterdir()) == ["c[a]p", "c[a]p.old-7", "cap.old-1", "link"]


def test_an_event_log_never_replaces_a_folder(place: Path, tmp_path: Path) -> None:
    from townlet.sim.probes import EventLog

    with pytest.raises(UsageError, match="is a folder; name a file"):
        EventLog(tmp_path / "victim", overwrite=True)
    assert (tmp_path / "victim" / "keep.txt").is_file()


def test_a_lock_sweeps_only_what_a_writer_left(place: Path) -> None:
    for name in (".run.json.123.partial", ".mine.partial", "mine.12.partial"):
        Path(name).write_text("half")
    with files.FolderLock(place):
        pass
    assert sorted(path.name for path in place.glob("*partial")) == [".mine.partial", "mine.12.partial"]


# --- the type itself ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("My Town", "my_town"),
        ("town_day", "town_day"),
        ("../../victim", "victim"),
        ("日本", "unnamed"),
        ("-a.b", "a_b"),
        ("x" * 500, "x" * LONGEST),
    ],
)
def test_a_name_is_made_from_any_words(words: str, name: str) -> None:
    assert name_from(words) == name
    assert is_name(name)


def test_a_config_without_a_name_is_called_like_its_file(place: Path) -> None:
    Path("My Town.yaml").write_text("scenario: {size: [4, 4]}\n")
    config = load_config("My Town.yaml")
    assert (config.config_id, config.scenario.name) == ("my_town", "my_town")


def test_a_wrong_name_is_told_with_its_line(place: Path) -> None:
    Path("strange.yaml").write_text("extends: town_day\nscenario:\n  name: ../../victim\n")
    with pytest.raises(UsageError) as refused:
        load_config("strange.yaml")
    assert str(refused.value) == (
        "strange.yaml:3: scenario.name: '../../victim' cannot be a name; expected lower-case letters, digits, _, - and single "
        "dots, a letter or digit first, at most 128"
    )


def test_every_name_that_is_shipped_or_committed_is_one() -> None:
    root = ROOT
    for path in sorted((root / "configs").rglob("*.yaml")):
        if path.parent.name != "affordances":
            config = load_config(path)
            assert is_name(config.config_id)
            assert is_name(config.scenario.name)
    for path in sorted((root / "benchmarks" / "learning").glob("*.yaml")):
        assert load_spec(path).arms
    assert validate(root / "docs" / "samples" / "replay_manifest.json").ok


def test_a_log_kept_elsewhere_is_named_again(place: Path) -> None:
    """A resumed run goes on with it when it is told to, and changes nothing outside because its own folder says so."""
    log = place.parent / "elsewhere.ndjson"
    config = tiny_town(*TINY, "training.epochs=2")
    PolicyTrainingOrchestrator(config).run("rollout", RunOptions(run_dir=place / "run", log_path=log))
    kept = log.read_bytes()
    with pytest.raises(UsageError, match=r"kept its log outside, in .*elsewhere\.ndjson; name it again with --ppo-log"):
        PolicyTrainingOrchestrator(config).run("rollout", RunOptions(run_dir=place / "run", resume=True))
    assert log.read_bytes() == kept
    PolicyTrainingOrchestrator(config).run("rollout", RunOptions(run_dir=place / "run", resume=True, log_path=log))
