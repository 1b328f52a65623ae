"""The declaration, what is generated from it, and the reduction to older versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import telemetry_reference as reference

from batch_records import example_batch
from places import ROOT
from townlet.bench.telemetry import share_of_training, telemetry_rows
from townlet.telemetry.example import example_record
from townlet.telemetry.ndjson import TelemetryWriter
from townlet.telemetry.schema import BATCH_FIELDS, FIELDS, PANELS, VERSIONS, comparable, field, project
from townlet.telemetry.validate import check_record

DOCS = ROOT / "docs"

# The fields as the design lists them, written out once more on purpose: a field that vanishes or moves must be noticed.
AS_DESIGNED = {
    1.0: "epoch updates transitions loss_policy loss_value loss_entropy loss_total clip_fraction adv_mean adv_std grad_norm "
    "kl_divergence telemetry_version lr steps conflict.rivalry_max_mean_avg conflict.rivalry_max_max_avg "
    "conflict.rivalry_avoid_count_mean_avg conflict.rivalry_avoid_count_max_avg",
    1.1: "epoch_duration_sec data_mode cycle_id batch_entropy_mean batch_entropy_std grad_norm_max kl_divergence_max "
    "reward_advantage_corr rollout_ticks log_stream_offset queue_conflict_events queue_conflict_intensity_sum",
    1.2: "",
    1.3: "run_id config_hash dataset_hash policy_hash kl_k3 explained_variance entropy_coef steps_per_second "
    "sim_steps_per_second episode_return_mean episode_length_mean queue_wait_mean queue_wait_gini rivalry_histogram "
    "conflict_reasons mask_fill_mean illegal_actions exits records_dropped",
    1.4: "conflicts_per_resident_day exits_per_resident_day late_share attendance dataset_return",
}
OPTIONAL = {
    1.0: "baseline_sample_count baseline_reward_mean baseline_reward_sum baseline_reward_sum_mean baseline_log_prob_mean",
    1.1: "shared_meal_events late_help_events shift_takeover_events chat_success_events chat_failure_events chat_quality_mean "
    "adv_zero_std_batches adv_min_std clip_fraction_max clip_triggered_minibatches",
    1.2: "anneal_cycle anneal_stage anneal_dataset anneal_bc_accuracy anneal_bc_threshold anneal_bc_passed anneal_loss_baseline "
    "anneal_queue_baseline anneal_intensity_baseline anneal_loss_flag anneal_queue_flag anneal_intensity_flag",
    1.3: "kind nonfinite",
    1.4: "return_per_resident_day seal",
}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_field_of_the_design_is_declared_in_its_version(version: float) -> None:
    declared = [item for item in FIELDS if item.since == version]
    assert [item.name for item in declared if item.required] == AS_DESIGNED[version].split()
    assert [item.name for item in declared if not item.required] == OPTIONAL[version].split()


def test_names_flags_and_panels_are_unique_and_known() -> None:
    assert len({item.name for item in FIELDS}) == len(FIELDS)
    flags = [item.alert.flag for item in FIELDS if item.alert is not None]
    assert len(set(flags)) == len(flags)
    assert {item.panel for item in FIELDS} == {"", *PANELS}
    assert all(item.meaning.endswith(".") for item in (*FIELDS, *BATCH_FIELDS))


def test_generated_files_are_fresh() -> None:
    assert reference.stale(DOCS) == [], f"run: {reference.COMMAND}"


def test_a_stale_file_is_noticed_and_written_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main(["--write", str(tmp_path)]) == 0
    (tmp_path / reference.REFERENCE).write_text("old")
    assert reference.main(["--write", str(tmp_path), "--check"]) == 1
    assert capsys.readouterr().out.endswith("REFERENCE.md is stale\n")
    assert reference.main(["--write", str(tmp_path)]) == 0
    assert reference.stale(tmp_path) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_the_json_schemas_say_what_the_validator_says(version: float) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    check = jsonschema.Draft202012Validator(reference.json_schema(version))

    def refused(record: dict[str, Any]) -> bool:
        return bool(list(check.iter_errors(record)))

    good = example_record(3, version)
    assert not refused(good)
    for change in ({"lr": "x"}, {"epoch": 1.5}, {"clip_fraction": 2}, {"loss_total": None}, {"telemetry_version": 9}):
        assert refused(good | change)
        assert check_record(good | change)
    assert refused({name: value for name, value in good.items() if name != "steps"})
    assert refused(good | {"undeclared": 1}) == (version >= 1.3)
    assert not refused(good | {"queue_conflict_events": 3.0, "conflict_reasons": {"blocked": 3}})


def test_the_schemas_of_batch_records_take_one_of_their_version() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    now = example_batch(1, 0)
    older = {name: value for name, value in now.items() if not name.startswith("conflict.")} | {"telemetry_version": 1.3}
    for version, record in ((1.4, now), (1.3, older)):
        jsonschema.validate(record, reference.json_schema(version, batch=True))
        assert check_record(record) == []
    assert check_record(older | {"telemetry_version": 1.4}) == [
        (f"conflict.{name}", "is missing; required from version 1.4 on")
        for name in ("rivalry_max_mean", "rivalry_max_max", "rivalry_avoid_count_mean", "rivalry_avoid_count_max")
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_record_is_reduced_to_a_valid_one_of_an_older_version(version: float) -> None:
    record = example_record(4, queue_conflict_events=None, queue_conflict_intensity_sum=None, conflict_reasons=None)
    record["anneal_stage"] = "ppo"
    older = project(record, version)
    assert check_record(older) == []
    assert older["telemetry_version"] == version
    assert all(field(name).since <= version for name in older)
    assert older["loss_total"] == record["loss_total"]
    assert ("anneal_stage" in older) == (version >= 1.2)


def test_clock_fields_are_left_out_of_comparisons() -> None:
    one, two = example_record(1), example_record(1, epoch_duration_sec=99.0, steps_per_second=1.0, sim_steps_per_second=2.0)
    assert one != two
    assert comparable(one) == comparable(two)


def test_the_bench_measures_writing_and_validating_and_the_share_of_a_run(tmp_path: Path) -> None:
    with TelemetryWriter(tmp_path / "a.jsonl") as writer:
        for number in range(1, 4):
            writer.write(example_record(number, epoch_duration_sec=2.0))
    rows = telemetry_rows(records=2100, repeats=1, log=tmp_path / "a.jsonl")  # more than are made up: some are written again
    assert [(row["name"], row["unit"], row["bar"]) for row in rows] == [
        ("record written", "ms", 0.1),
        ("records validated", "1/s", 50_000.0),
        ("share of training time", "share", 0.01),
    ]
    assert all(row["value"] > 0 for row in rows)
    assert share_of_training(tmp_path / "a.jsonl", 0.02) == pytest.approx(0.01)
    assert json.dumps(rows)
