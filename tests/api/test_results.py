"""Results as objects: records, frames and pictures of what the pipeline leaves behind."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import townlet
from townlet.api import pipeline, results
from townlet.api.results import Result, to_frame
from townlet.dto.studies import ArmResult
from townlet.errors import MissingPackageError, TelemetryError, TownletError, UsageError
from townlet.policy.replay import samples_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> townlet.Capture:
    return townlet.capture("queue_conflict", tmp_path_factory.mktemp("library") / "capture", ticks=240)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> townlet.Run:
    pytest.importorskip("torch")
    keys = ["training.towns=2", "training.horizon=6", "training.eval_towns=1", "policy.network.map_encoder=none"]
    where = tmp_path_factory.mktemp("library") / "run"
    return townlet.train("queue_conflict", mode="rollout", epochs=2, run_dir=where, overrides=keys)


@pytest.fixture(scope="module")
def scores() -> townlet.Scores:
    own = townlet.own_policy(lambda town: town.masks.argmax(-1), "first legal")
    return townlet.evaluate({"scripted": "scripted", "mine": own}, "queue_conflict", towns=2)


def drawn(result: Result, path: Path) -> bool:
    """The picture is written, and is the one a notebook shows."""
    pytest.importorskip("matplotlib")
    picture = result.plot()
    assert picture.figure.axes[0].get_title(loc="left") in repr(picture)
    shown = picture._repr_png_()
    return shown[:4] == b"\x89PNG" and picture.save(path / "x.png").read_bytes() == shown


def test_a_capture_is_lives_decisions_and_events(captured: townlet.Capture, tmp_path: Path) -> None:
    lives, samples = captured.records(), list(samples_of(captured.path))
    assert repr(captured) == f"<Capture {captured.path}: 3 lives of 3 residents, {sum(s.steps for s in samples)} decisions>"
    assert [row["sample_id"] for row in lives] == [sample.meta.sample_id for sample in samples]
    assert [row["reward_sum"] for row in lives] == [sample.meta.metrics["reward_sum"] for sample in samples]
    steps = list(captured.decisions())
    assert [row["reward"] for row in steps] == np.concatenate([sample.rewards for sample in samples]).tolist()
    assert steps[1]["tick"] == samples[0].meta.first_tick + samples[0].meta.decision_interval
    assert steps[0]["action"] in samples[0].meta.action_names
    events = captured.events
    assert f"{len(events)} events" in repr(events)
    assert events.records() == townlet.load_events(captured.path / "events.ndjson").records()
    assert len(townlet.load_capture(captured.path)) == 3
    assert drawn(captured, tmp_path)
    assert drawn(events, tmp_path)


def test_a_run_is_its_log(trained: townlet.Run, tmp_path: Path) -> None:
    assert repr(trained) == f"<Run {trained.path}: rollout in queue_conflict, finished>"
    assert [record["epoch"] for record in trained.records()] == [1, 2]
    assert trained.summary is not None
    assert trained.summary["epochs"] == 2
    assert trained.config.training.towns == 2
    assert trained.checkpoint is not None
    assert drawn(townlet.load_run(trained.path), tmp_path)
    (trained.path / "ppo.ndjson").rename(tmp_path / "ppo.ndjson")
    try:
        with pytest.raises(TelemetryError, match="holds no log"):
            trained.records()
    finally:
        (tmp_path / "ppo.ndjson").rename(trained.path / "ppo.ndjson")


def test_a_run_is_evaluated_and_shown(trained: townlet.Run, tmp_path: Path) -> None:
    found = townlet.evaluate(trained, towns=1)
    assert found.card.policies == ("run",)
    assert found.card.cases[0].name == trained.config.config_id  # its own town
    assert found.card.cases[0].policies[0].source == str(trained.checkpoint)
    page = townlet.save_page(trained, tmp_path / "town.html", vs="scripted")
    assert '<script type="text/plain" id="film">' in page.read_text(encoding="utf-8")


def test_a_run_goes_on(trained: townlet.Run) -> None:
    with pytest.raises(UsageError, match="leave out mode, recipe, epochs, data and overrides"):
        townlet.train(run_dir=trained.path, resume=True, epochs=3)
    with pytest.raises(UsageError, match="leave out mode, recipe, epochs, data and overrides"):
        townlet.train(run_dir=trained.path, resume=True, data="elsewhere")
    with pytest.raises(UsageError, match="name its folder"):
        townlet.train(resume=True)
    assert townlet.train(run_dir=trained.path, resume=True).records() == trained.records()


def test_scores_have_a_row_per_measure(scores: townlet.Scores, tmp_path: Path) -> None:
    assert repr(scores) == "<Scores of scripted, mine in queue_conflict>"
    rows = {(row["policy"], row["measure"]): row for row in scores.records()}
    mine, card = rows["mine", "return"], scores.card.cases[0].policy("mine")
    assert (mine["mean"], mine["low"]) == (card.measures["return"].mean, card.measures["return"].low)
    assert mine["difference"] == pytest.approx(mine["mean"] - rows["scripted", "return"]["mean"])
    assert rows["scripted", "return"]["difference"] is None
    assert card.kind == "first legal"
    assert "self-suff." in str(scores)
    again = townlet.load_scorecard(scores.save(tmp_path / "card.json"))
    assert again.records() == scores.records()
    assert drawn(scores, tmp_path)


def test_a_policy_of_ones_own_must_give_whole_numbers_for_everybody() -> None:
    wrong = townlet.own_policy(lambda town: town.rewards, "wrong")
    with pytest.raises(UsageError, match=r"the policy wrong gave float32\(1, 3\), expected whole numbers of shape \(1, 3\)"):
        townlet.evaluate({"wrong": wrong}, "queue_conflict", towns=1)


def test_a_path_is_a_policy_as_its_text_is(trained: townlet.Run) -> None:
    by_path, by_text = (townlet.evaluate(one, "queue_conflict", towns=1) for one in (trained.path, str(trained.path)))
    assert by_path.records() == by_text.records()


def test_data_that_the_mode_would_not_read_are_refused(captured: townlet.Capture, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the mode rollout does not read data; use mode replay or mixed"):
        townlet.train("queue_conflict", mode="rollout", data=captured.path, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("epochs", [0, -1])
def test_a_run_without_epochs_is_refused(epochs: int, tmp_path: Path) -> None:
    """0 meant those of the config, and -1 ended in a KeyError."""
    pytest.importorskip("torch")
    with pytest.raises(UsageError, match=f"epochs is {epochs}, expected a whole number, 1 or more"):
        townlet.train("queue_conflict", mode="rollout", epochs=epochs, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("read", [townlet.load_capture, townlet.load_events, townlet.load_policy])
def test_a_name_that_is_too_long_is_told_in_a_sentence(read: Callable[[str], object]) -> None:
    with pytest.raises(TownletError, match="xxx"):
        read("x" * 5000)


@pytest.mark.parametrize("start", ["soon", "24:00", "7"])
def test_an_episode_begins_at_a_time_of_the_day(start: str, tmp_path: Path) -> None:
    """A capture ended with a traceback, and 24:00 was a minute that no day has."""
    told = f"the time is '{start}', expected a clock time such as 07:00, or random"
    with pytest.raises(UsageError, match=told):
        townlet.parallel_env("queue_conflict", start=start)
    with pytest.raises(UsageError, match=told):
        townlet.capture("queue_conflict", tmp_path / "capture", ticks=20, start=start)
    assert not list(tmp_path.iterdir())


def finished_job(scores: townlet.Scores, arm: str, seed: int) -> ArmResult:
    words: Any = {"study": "sight", "arm": arm, "job": f"{arm}_{seed}", "config_hash": "c", "policy_hash": "p", "overrides": ()}
    numbers: Any = {"seed": seed, "minutes": None, "training_seconds": 1.0, "transitions": 9, "evaluation_seed": 1, "towns": 2}
    return ArmResult(**words, **numbers, measures=scores.card.cases[0].policy("mine").measures, versions={})


def test_a_study_is_read_by_its_results_and_by_its_spec(scores: townlet.Scores, tmp_path: Path) -> None:
    jobs = [finished_job(scores, "sighted", seed) for seed in (0, 1)] + [finished_job(scores, "blind", 0)]
    (tmp_path / "sight.ndjson").write_text("".join(job.model_dump_json() + "\n" for job in jobs), encoding="utf-8")
    found = townlet.load_study(tmp_path / "sight.ndjson")
    assert repr(found) == "<Study sight: sighted × 2, blind × 1>"
    rows = [row for row in found.records() if row["measure"] == "conflicts"]
    assert [(row["arm"], row["seed"]) for row in rows] == [("sighted", 0), ("sighted", 1), ("blind", 0)]
    assert rows[0]["mean"] == jobs[0].measures["conflicts"].mean
    assert drawn(found, tmp_path)
    with pytest.raises(UsageError, match="no measure 'joy'"):
        found.plot("joy")
    spec = townlet.load_study(ROOT / "benchmarks/learning/two_bathrooms_sight.yaml", tmp_path)
    assert repr(spec) == "<Study two_bathrooms_sight: nothing finished>"
    assert drawn(spec, tmp_path)


RECORDS: list[dict[str, Any]] = [{"a": 1, "reasons": {"slow": 2}}, {"a": None, "b": "x", "reasons": {"slow": 3, "late": 1}}]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_records_become_a_frame(library: str) -> None:
    pytest.importorskip(library)
    frame = to_frame(RECORDS, library)
    assert type(frame).__module__.startswith(library)
    assert set(frame.columns) == {"a", "b", "reasons.slow", "reasons.late"}
    assert list(frame["reasons.slow"]) == [2, 3]


def test_whichever_is_installed_makes_the_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("polars")
    monkeypatch.setattr(results, "installed", lambda name: name == "polars")
    assert type(to_frame(RECORDS)).__module__.startswith("polars")
    monkeypatch.setattr(results, "installed", lambda name: False)
    with pytest.raises(MissingPackageError, match=r"a frame needs pandas or polars, .* pip install pandas"):
        to_frame(RECORDS)
    with pytest.raises(UsageError, match="library is 'arrow'"):
        to_frame(RECORDS, "arrow")


def examples() -> Iterator[tuple[str, str]]:
    """The indented lines of the docstrings are Python."""
    for module in (pipeline, results):
        for name, thing in inspect.getmembers(module, inspect.isfunction):
            if name in townlet.__all__ and thing.__module__ == module.__name__:
                lines = (inspect.getdoc(thing) or "").splitlines()
                yield name, "\n".join(line.strip() for line in lines if line.startswith("    "))


def test_every_function_has_an_example() -> None:
    found = dict(examples())
    others = {"load_config", "make_vec", "parallel_env", "parallel_vec"}
    assert set(found) == {name for name in townlet.__all__ if name[0].islower()} - others
    assert not [name for name, text in found.items() if not text]


@pytest.mark.parametrize(("name", "text"), list(examples()), ids=[name for name, _ in examples()])
def test_the_examples_run(
    name: str,
    text: str,
    captured: townlet.Capture,
    trained: townlet.Run,
    scores: townlet.Scores,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As they are printed, in a small town: the files they name are those of this test."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    Path("runs/demo").mkdir(parents=True)
    Path("runs/first").symlink_to(trained.path)
    Path("runs/first_capture").symlink_to(captured.path)
    Path("benchmarks").symlink_to(ROOT / "benchmarks")
    scores.save("runs/demo/scorecard.json")
    small = ["training.towns=2", "training.horizon=6", "training.epochs=1", "policy.network.map_encoder=none"]
    text = text.replace('"town_day", mode="anneal", overrides=[', f'"queue_conflict", mode="rollout", overrides={small} + [')
    exec(text.replace("towns=8", "ticks=60"), {"townlet": townlet, "run": trained})
