"""Studies: jobs and their hashes, contrasts worked out by hand, results kept, a stop survived."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from places import ROOT
from scorecards import FEW, town_days
from townlet.cli.study import narrow_text, report_text
from townlet.config.learning import TrainingConfig
from townlet.dto.studies import ArmResult
from townlet.errors import ConfigError, DamagedFileError, TownletError, UsageError
from townlet.evaluation.compare import summarise
from townlet.evaluation.score_scale import shipped_scales, town_hash
from townlet.evaluation.suites import Case
from townlet.files import AppendLog, FolderLock
from townlet.sealed import sealed_line
from townlet.studies.runner import finished, parse_results, read_results, report_study, run_job, run_study, training_folder
from townlet.studies.spec import BLIND, SIGHTED, UNTOLD, StudyJob, StudySpec, ablation, job_of, jobs_of, load_spec

TINY = ("training.towns=4", "training.horizon=6", "training.epochs=1", "training.eval_every=0", "training.checkpoint_every=1")


def tiny(**changes: object) -> StudySpec:
    fields: dict[str, object] = {
        "name": "tiny",
        "config": "queue_conflict",
        "mode": "rollout",
        "seeds": 2,
        "towns": 2,
        "days": None,
        "overrides": TINY,
        "arms": {"plain": (), "other": ("ppo.learning_rate=0.01",)},
        "contrasts": (("other", "plain"),),
    }
    return StudySpec.model_validate({**fields, **changes})


def keep(results: Path, job: StudyJob, mean: float) -> None:
    rows = town_days(0, 2)
    rows["return"] = [mean - 1.0, mean + 1.0]
    result = ArmResult(
        study="tiny",
        arm=job.arm,
        seed=job.seed,
        job=job.hash,
        config_hash="0",
        policy_hash="0",
        overrides=(),
        minutes=None,
        training_seconds=1.0,
        transitions=10,
        evaluation_seed=1_000_001,
        towns=2,
        measures={name: summarise(values, FEW) for name, values in rows.items()},
        versions={},
    )
    with AppendLog(results / "tiny.ndjson") as kept:
        kept.write(result.model_dump_json())


def test_jobs_go_seed_by_seed_and_their_hash_covers_what_they_depend_on() -> None:
    spec = tiny()
    assert [(job.arm, job.seed) for job in jobs_of(spec)] == [("plain", 0), ("other", 0), ("plain", 1), ("other", 1)]
    hashes = {job.hash for job in jobs_of(spec)}
    assert len(hashes) == 4
    assert job_of(spec, "plain", 0).hash == job_of(tiny(name="renamed", seeds=5), "plain", 0).hash
    assert job_of(tiny(overrides=(*TINY, "promotion.required_passes=5")), "plain", 0).hash in hashes  # learns the same
    assert job_of(tiny(towns=3), "plain", 0).hash not in hashes
    assert job_of(tiny(minutes=2.0), "plain", 0).hash not in hashes
    assert job_of(spec, "plain", 1).config.seed == 1


def test_a_spec_is_read_from_yaml_and_a_wrong_one_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text('name: one\nconfig: town_day\narms: {a: [], b: ["observations.blind=[conflict]"]}\ncontrasts: [[a, b]]\n')
    spec = load_spec(path)
    assert job_of(spec, "b", 0).config.observations.blind == ("conflict",)
    path.write_text("name: one\nconfig: town_day\narms: {a: []}\ncontrasts: [[a, c]]\n")
    with pytest.raises(ConfigError, match=r"study\.yaml:1: contrasts names the arm 'c'; choose from a"):
        load_spec(path)
    path.write_text("name: one\nconfig: town_day\narms: {a: []}\nminuts: 4\n")
    with pytest.raises(ConfigError, match="minuts"):
        load_spec(path)
    with pytest.raises(ConfigError, match="no arm 'z'"):
        job_of(spec, "z", 0)


def test_a_spec_that_is_no_mapping_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("n\n")
    with pytest.raises(ConfigError, match=r"study\.yaml:1: the whole file is 'n'; expected a mapping of keys; see"):
        load_spec(tmp_path / "study.yaml")


def test_a_flipped_bit_in_a_result_is_seen_and_so_is_a_lost_end_of_line(tmp_path: Path) -> None:
    keep(tmp_path, jobs_of(tiny())[0], 5.0)
    path = tmp_path / "tiny.ndjson"
    line = sealed_line(path.read_bytes().rstrip(b"\n"))
    path.write_bytes(line + b"\n" + line[:40])
    assert len(list(parse_results(path))) == 1  # what follows was torn by a crash
    path.write_bytes(line.replace(b'"seed":0', b'"seed":1') + b"\n")
    with pytest.raises(DamagedFileError, match=r"line 1: is not what was written \(its seal is broken\)"):
        list(parse_results(path))
    path.write_bytes(line + b"\x0b")
    with pytest.raises(DamagedFileError, match="line 1: the line is complete, but does not end with a newline"):
        list(parse_results(path))


def test_contrasts_are_paired_by_seed_with_students_interval(tmp_path: Path) -> None:
    """Differences 1, 2, 3: mean 2, s = 1, n = 3, t = 4.30265: ± 2.4841."""
    spec = tiny(seeds=3)
    for job in jobs_of(spec):
        keep(tmp_path, job, 10.0 * job.seed + (job.seed + 1 if job.arm == "other" else 0))
    report = report_study(spec, results=tmp_path)
    (row,) = [c for c in report.contrasts if c.measure == "return" and c.against == "plain"]
    assert row.difference == pytest.approx(2.0)
    assert row.low == pytest.approx(2 - 4.30265 / 3**0.5, abs=1e-3)
    assert row.seeds == 3
    tested = [c.p for c in report.contrasts if c.p is not None]
    assert row.p == pytest.approx(min(1.0, 0.0742 * len(tested)), rel=1e-2)  # t = 3.464 with 2 degrees, among so many
    assert {c.against for c in report.contrasts} == {"plain", "scripted"}
    text = report_text(report)
    assert "| other − plain | return | +2.000 | -0.484 … +4.484 |" in text
    assert "| scripted | |" in text
    narrow = narrow_text(report)
    assert max(len(line) for line in narrow.splitlines() if "  " in line) <= 80  # tables; `emit` breaks sentences
    assert "other − plain, 3 seeds" in narrow
    figures = next(line.split() for line in narrow.partition(" other ")[2].splitlines() if line.startswith("return"))
    assert figures[-3:] == ["12.00", "1.00", "23.00"]  # of 1, 12 and 23


def test_a_contrast_against_the_script_is_measured_in_the_spread_of_the_seeds(tmp_path: Path) -> None:
    """Returns 0, 10, 20 have a standard deviation of 10; the script is one figure, without a spread of its own."""
    spec = tiny(seeds=3, overrides=(*tiny().overrides, "evaluation.level=0.8"))
    for job in jobs_of(spec):
        keep(tmp_path, job, 10.0 * job.seed)
    report = report_study(spec, results=tmp_path)
    row = next(c for c in report.contrasts if (c.measure, c.arm, c.against) == ("return", "plain", "scripted"))
    script = report.baselines["scripted"]["return"].mean
    assert script is not None
    assert row.difference == pytest.approx(10.0 - script)
    assert row.cohens_d == pytest.approx((10.0 - script) / 10.0)
    assert row.high is not None
    assert row.high - row.difference == pytest.approx(1.88562 * 10 / 3**0.5, rel=1e-4)  # t of 0.9 with 2 degrees
    assert "80 % interval" in report_text(report)


def test_a_seed_that_one_arm_lacks_is_left_out_and_one_seed_has_no_interval(tmp_path: Path) -> None:
    spec = tiny()
    for job in jobs_of(spec)[:3]:
        keep(tmp_path, job, 5.0)
    report = report_study(spec, results=tmp_path)
    (row,) = [c for c in report.contrasts if c.measure == "return" and c.against == "plain"]
    assert (row.seeds, row.low, row.high) == (1, None, None)
    assert "one seed" in report_text(report)


@pytest.mark.parametrize(("engine", "why"), [("ray", "needs ray, which is not installed"), ("rya", "did you mean ray")])
def test_an_engine_that_is_not_there_is_told_before_anything_else(
    engine: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("townlet.optional.find_spec", lambda name: None if name == "ray" else find_spec(name))
    said: list[str] = []
    where = TrainingConfig(engine="process").model_copy(update={"engine": engine})
    with pytest.raises(TownletError, match=why):
        run_study(tiny(), results=tmp_path / "results", runs=tmp_path / "runs", where=where, say=said.append)
    assert said == []


def test_finished_jobs_are_not_run_again_and_a_damaged_result_is_named(tmp_path: Path) -> None:
    spec = tiny()
    for job in jobs_of(spec):
        keep(tmp_path / "results", job, 1.0)
    said: list[str] = []
    report = run_study(spec, results=tmp_path / "results", runs=tmp_path / "runs", say=said.append)
    assert len(report.results) == 4
    assert said == ["tiny: 4 jobs, 4 finished before"]
    with AppendLog(tmp_path / "results" / "tiny.ndjson") as kept:
        kept.write("{}")
    with pytest.raises(DamagedFileError, match=r"tiny\.ndjson, line 5: .* remove the line to run its job again"):
        read_results(tmp_path / "results")


def test_a_job_that_another_study_ran_is_found_by_its_hash(tmp_path: Path) -> None:
    for job in jobs_of(tiny()):
        keep(tmp_path, job, 1.0)
    renamed = tiny(name="renamed", arms={"same": (), "new": ("ppo.learning_rate=0.02",)}, contrasts=())
    assert [(result.arm, result.seed) for result in finished(renamed, tmp_path)] == [("same", 0), ("same", 1)]


def test_results_of_another_config_are_reported_as_such_and_trained_anew(tmp_path: Path) -> None:
    for job in jobs_of(tiny()):
        keep(tmp_path, job, 1.0)
    changed = tiny(overrides=(*TINY, "ppo.gamma=0.9"))
    keep(tmp_path, jobs_of(changed)[0], 3.0)
    report = report_study(changed, results=tmp_path)
    assert [result.measures["return"].mean for result in report.results] == [3.0, 1.0, 1.0, 1.0]
    assert report.older == 3
    assert "3 of them are of another config or version" in report_text(report)
    assert len(finished(changed, tmp_path)) == 1  # the others are run


def test_scores_are_on_the_scale_of_today(tmp_path: Path) -> None:
    """Results keep returns; the planner of a town may have become better since."""
    spec = tiny(config="town_day", days=1, seeds=1, arms={"plain": ()}, contrasts=())
    keep(tmp_path, jobs_of(spec)[0], 60.0)
    (result,) = report_study(spec, results=tmp_path).results
    scale = shipped_scales()[town_hash(Case("town_day", "town_day", days=1).town())]
    assert result.measures["score"].values == (scale.score(59.0), scale.score(61.0))
    assert result.measures["lead"].values == (scale.lead(59.0), scale.lead(61.0))


def test_an_ablation_is_a_study_of_three_arms() -> None:
    spec = ablation("two_bathrooms", "conflict", seeds=5, minutes=4.0)
    assert spec.name == "two_bathrooms_blind_conflict"
    assert spec.contrasts == ((SIGHTED, UNTOLD), (UNTOLD, BLIND), (SIGHTED, BLIND))
    assert job_of(spec, UNTOLD, 0).config.observations.blind == ("conflict_fields",)
    assert job_of(spec, BLIND, 0).config.observations.blind == ("conflict",)
    assert job_of(spec, SIGHTED, 3).config.observations.blind == ()
    assert job_of(spec, SIGHTED, 3).config.training.time_limit == 4.0


def test_the_minutes_of_a_job_bound_an_anneal_run_as_a_whole() -> None:
    assert job_of(tiny(mode="anneal", minutes=6.0), "plain", 0).config.training.time_limit == 6.0


def test_a_job_trains_measures_and_keeps_its_result(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    spec = tiny()
    result = run_job(spec, "other", 1, results=tmp_path / "results", runs=tmp_path / "runs")
    assert finished(spec, tmp_path / "results") == [result]
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["tiny.ndjson"]
    assert result.measures["return"].count == 2
    assert result.transitions > 0
    assert len(result.policy_hash) == 64


def test_a_second_study_leaves_a_job_alone_that_the_first_is_training(tmp_path: Path) -> None:
    """Before its first checkpoint the run of a job looked as if it had been stopped, and was removed."""
    pytest.importorskip("torch")
    folder = training_folder(job_of(tiny(), "plain", 0), tmp_path)
    with FolderLock(folder), pytest.raises(UsageError, match="is in use by process"):
        run_job(tiny(), "plain", 0, results=tmp_path / "results", runs=tmp_path)
    assert folder.is_dir()
    run_job(tiny(), "plain", 0, results=tmp_path / "results", runs=tmp_path)


def test_a_study_that_measures_otherwise_does_not_train_again(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    month, day = tiny(), tiny(name="day", days=1)
    assert job_of(month, "plain", 0).hash != job_of(day, "plain", 0).hash
    assert job_of(month, "plain", 0).training == job_of(day, "plain", 0).training != job_of(day, "plain", 1).training
    first = run_job(month, "plain", 0, results=tmp_path / "results", runs=tmp_path / "runs")
    second = run_job(day, "plain", 0, results=tmp_path / "results", runs=tmp_path / "runs")
    assert (second.policy_hash, second.training_seconds) == (first.policy_hash, first.training_seconds)
    assert first.processor_seconds is not None
    assert first.processor_seconds > 0.0
    assert second.processor_seconds is None
    text = report_text(report_study(tiny(seeds=1), results=tmp_path / "results"))
    assert f"- plain: {first.processor_seconds:.0f} to {first.processor_seconds:.0f} seconds" in text
    assert second.measures != first.measures


@pytest.mark.slow
def test_a_stopped_study_goes_on_where_it_was(tmp_path: Path) -> None:
    """Interrupted once at least one job is finished; the second start runs only the rest."""
    pytest.importorskip("torch")
    spec = tiny()
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec.model_dump(mode="json")))
    words = [
        sys.executable,
        "-m",
        "townlet",
        "study",
        str(path),
        "--results",
        str(tmp_path / "r"),
        "--runs",
        str(tmp_path / "w"),
        "--json",
    ]
    first = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not read_results(tmp_path / "r") and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(first.pid, signal.SIGINT)
    first.wait(300)
    done = len(read_results(tmp_path / "r"))
    assert done >= 1
    again = subprocess.run(words, capture_output=True, text=True, check=True)
    assert len(read_results(tmp_path / "r")) == 4
    assert f"4 jobs, {done} finished before" in again.stderr
    assert len(json.loads(again.stdout)["results"]) == 4


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "learning").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_study_can_be_run(path: Path) -> None:
    spec = load_spec(path)
    assert spec.name == path.stem
    assert len(jobs_of(spec)) == spec.seeds * len(spec.arms)
