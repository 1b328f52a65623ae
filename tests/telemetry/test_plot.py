"""Figures, drawings in the terminal, and exports that other tools read back."""

from __future__ import annotations

import csv
import errno
import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from townlet import files
from townlet.errors import MissingPackageError, StorageError, TelemetryError, UsageError
from townlet.telemetry import drawing, plot
from townlet.telemetry.example import example_record
from townlet.telemetry.export import EXPORTS, export
from townlet.telemetry.ndjson import TelemetryWriter
from townlet.telemetry.schema import FIELDS


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "run_a.jsonl"
    with TelemetryWriter(path, max_entries=20) as writer:
        for number in range(1, 51):
            writer.write(example_record(number))
    return path


@pytest.fixture
def other(tmp_path: Path) -> Path:
    path = tmp_path / "run_b.jsonl"
    with TelemetryWriter(path) as writer:
        for number in range(1, 31):
            writer.write(example_record(number, seed=1, data_mode="replay", episode_return_mean=None if number % 2 else -3.0))
    return path


# --- characters ------------------------------------------------------------------------------------------------------


def test_sparklines_span_low_to_high_and_leave_gaps() -> None:
    assert drawing.sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert drawing.sparkline([1, float("nan"), 2]) == "▁ █"
    assert drawing.sparkline([5, 5]) == "▄▄"
    assert drawing.sparkline([]) == ""
    assert len(drawing.sparkline(range(1000), 30)) == 30


def test_thinning_takes_means_of_neighbours() -> None:
    assert list(drawing.thinned([1, 3, 5, 7], 2)) == [2.0, 6.0]
    assert np.isnan(drawing.thinned([np.nan, np.nan, 1.0, 1.0], 2)[0])


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (float("nan"), "–"), (1234567, "1,234,567"), (0.00001, "1.00e-05"), (0.123456, "0.1235"), (-2, "-2")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert drawing.short(value) == text


def test_a_rising_line_rises_in_braille() -> None:
    rows = drawing.chart([("x", np.arange(40.0))], width=20, height=4)
    assert rows[0].startswith("39 ┤")
    assert rows[3].startswith(" 0 ┤")
    blank = [len(row.split("┤")[1].rstrip()) - len(row.split("┤")[1].replace("⠀", "").rstrip()) for row in rows[:4]]
    assert blank == sorted(blank, reverse=True)  # the higher the row, the further right its dots


def test_several_runs_have_marks_of_their_own_and_a_legend() -> None:
    rows = drawing.chart([("one", [0.0, 0.0]), ("two", [1.0, 1.0])], width=10, height=3)
    assert "▲" in rows[0]
    assert "●" in rows[2]
    assert rows[-1].split() == ["●", "one", "▲", "two"]
    assert drawing.chart([("x", [float("nan")])]) == ["(no numbers)"]
    met = drawing.chart([("one", [0.0, 1.0]), ("two", [1.0, 1.0])], width=20, height=3, margin=9, ends=("epoch 1", "epoch 2"))
    assert met[-1].split() == ["●", "one", "▲", "two", "∗", "several"]
    assert met[-2] == " " * 11 + "epoch 1      epoch 2"
    assert met[0].index("┤") == 10


def test_a_short_strip_is_stretched_over_the_whole_width() -> None:
    assert drawing.strip(np.array([[0.0, 1.0], [1.0, 0.0]]), 6) == ["███   ", "   ███"]


def test_the_terminal_shows_every_panel_of_the_schema(log: Path, other: Path) -> None:
    drawn = plot.terminal(plot.read_runs([log, other]), width=60)
    for item in FIELDS:
        assert f"{item.panel}: {item.name}" in drawn or not item.panel
    assert "highest rivalry felt: run_b (darker = more decisions)" in drawn
    assert all(len(line) <= 74 for line in drawn.splitlines())


# --- matplotlib ------------------------------------------------------------------------------------------------------


def test_a_png_is_written(other: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert plot.plot_logs([other], tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_numbers_at_both_ends_of_what_a_double_holds_are_drawn(tmp_path: Path) -> None:
    """The axis between them had no length."""
    pytest.importorskip("matplotlib")
    with TelemetryWriter(path := tmp_path / "far.ndjson") as writer:
        for number, value in enumerate((1.7e308, -1.7e308), start=1):
            writer.write(example_record(number, loss_total=value))
    assert plot.plot_logs([path], tmp_path / "far.png").read_bytes().startswith(b"\x89PNG")


def test_an_svg_names_every_panel_and_run_and_has_the_same_bytes_each_time(log: Path, other: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first, second = (plot.plot_logs([log, other], tmp_path / f"{n}.svg", labels=["first", "second"]) for n in (1, 2))
    text = first.read_text()
    assert text == second.read_text()
    for word in (*plot.PANELS, "first", "second", "highest rivalry felt: first", "decisions trained on", "loss_value"):
        assert f">{word}<" in text


def test_the_panels_hold_the_numbers_of_the_log(log: Path) -> None:
    pytest.importorskip("matplotlib")
    [run] = plot.read_runs([log])
    drawn = plot.figure([run])
    titles = [axes.get_title(loc="left") for axes in drawn.axes]
    assert titles[: len(plot.PANELS)] == list(plot.PANELS)
    losses = drawn.axes[titles.index("losses")]
    curves = losses.get_lines()
    assert [curve.get_label() for curve in curves] == ["loss_policy", "loss_value", "loss_total"]
    expected = [example_record(n)["loss_value"] for n in range(1, 51)]
    assert list(curves[1].get_ydata()) == pytest.approx(expected)
    assert list(curves[1].get_xdata()) == [8192 * n for n in range(1, 51)]
    assert {curve.get_color() for curve in curves} <= set(plot.OKABE_ITO)
    spans = {axes.get_xlim() for axes in drawn.axes[: len(plot.PANELS)]}
    assert len(spans) == 1  # what happened at the same time stands at the same place
    assert losses.get_yscale() == "symlog"  # the policy loss is seen beside the value loss


@pytest.mark.parametrize("fastest", [95e3, 190e3, 900e3, 9e6])
def test_figures_beside_the_throughput_do_not_lie_on_each_other(fastest: float, tmp_path: Path) -> None:
    """In the curves of the demo, 80k and 90k were written over 100k."""
    pytest.importorskip("matplotlib")
    with TelemetryWriter(tmp_path / "run.jsonl") as writer:
        for number in range(1, 11):
            writer.write(example_record(number, steps_per_second=66e3, sim_steps_per_second=fastest))
    drawn = plot.figure(plot.read_runs([tmp_path / "run.jsonl"]))
    drawn.canvas.draw()
    axes = drawn.axes[plot.PANELS.index("throughput")]
    texts = [text for which in ("major", "minor") for text in axes.get_yticklabels(which=which) if text.get_text()]
    boxes = sorted((box.y0, box.y1) for text in texts if axes.bbox.y0 <= (box := text.get_window_extent()).y0 <= axes.bbox.y1)
    assert len(boxes) >= 2
    assert all(below[1] <= above[0] + 1 for below, above in pairwise(boxes))


def test_runs_differ_in_more_than_colour_and_share_the_scale_of_their_strips(log: Path, other: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = plot.figure(plot.read_runs([log, other]))
    curves = [curve for curve in drawn.axes[plot.PANELS.index("returns")].get_lines() if len(curve.get_xdata())]
    assert len({curve.get_marker() for curve in curves}) == len({curve.get_color() for curve in curves}) == 2
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["run_a", "run_b"]
    assert len({axes.images[0].get_clim() for axes in drawn.axes if axes.images}) == 1


def test_old_logs_have_fewer_panels(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "old.jsonl"
    path.write_text("".join(json.dumps(example_record(n, 1.0)) + "\n" for n in (1, 2, 3)))
    drawn = plot.figure(plot.read_runs([path]))
    assert [axes.get_title(loc="left") for axes in drawn.axes] == ["losses", "kl and clip", "rivalry"]


def test_wrong_endings_labels_and_missing_packages_are_told(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"ends in \.pdf; a plot is written as \.png or \.svg"):
        plot.plot_logs([log], tmp_path / "a.pdf")
    with pytest.raises(UsageError, match="2 labels for 1 logs"):
        plot.read_runs([log], ["a", "b"])
    monkeypatch.setattr("townlet.optional.installed", lambda name: name != "matplotlib")
    with pytest.raises(MissingPackageError, match=r"needs matplotlib.*townlet\[plot\]"):
        plot.plot_logs([log], tmp_path / "a.png")
    assert plot.terminal(plot.read_runs([log]))


def test_runs_of_the_same_name_are_told_apart(tmp_path: Path, log: Path) -> None:
    (tmp_path / "x").mkdir()
    copy = tmp_path / "x" / "run_a.jsonl"
    copy.write_bytes(log.read_bytes())
    assert [run.label for run in plot.read_runs([log, copy])] == [str(log), str(copy)]


# --- exports ---------------------------------------------------------------------------------------------------------


def test_csv_has_a_row_per_epoch_and_a_column_per_field(log: Path, tmp_path: Path) -> None:
    rows = list(csv.DictReader(export(log, tmp_path / "a.csv", "csv").read_text().splitlines()))
    assert [int(row["epoch"]) for row in rows] == list(range(1, 51))
    assert float(rows[4]["loss_total"]) == example_record(5)["loss_total"]
    assert rows[0]["dataset_hash"] == ""
    assert json.loads(rows[0]["conflict_reasons"]) == example_record(1)["conflict_reasons"]


def test_parquet_is_typed_and_says_what_its_columns_mean(log: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(export(log, tmp_path / "a.parquet", "parquet"))
    assert table.num_rows == 50
    assert str(table.schema.field("epoch").type) == "int64"
    assert str(table.schema.field("loss_total").type) == "double"
    assert table.schema.field("queue_wait_mean").metadata[b"unit"] == b"ticks"
    assert table.column("rivalry_histogram")[0].as_py() == pytest.approx(example_record(1)["rivalry_histogram"])
    assert dict(table.column("conflict_reasons")[0].as_py()) == example_record(1)["conflict_reasons"]
    assert table.column("dataset_hash").null_count == 50


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What an event file holds, read back with tensorboardX's own protocol buffers."""
    proto = pytest.importorskip("tensorboardX.proto.event_pb2")
    [file] = folder.iterdir()
    data, found = file.read_bytes(), {}
    place = 0
    while place < len(data):
        size = int.from_bytes(data[place : place + 8], "little")
        event = proto.Event.FromString(data[place + 12 : place + 12 + size])
        place += 12 + size + 4
        for value in event.summary.value:
            if value.WhichOneof("value") == "simple_value":
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def test_tensorboard_events_hold_every_number_by_panel(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    log = tmp_path / "short.jsonl"
    with TelemetryWriter(log) as writer:
        for number in range(1, 6):
            writer.write(example_record(number))
    found = scalars(export(log, tmp_path / "tb", "tensorboard"))
    assert found["losses/loss_total"][4] == (8192 * 5, pytest.approx(example_record(5)["loss_total"]))
    assert found["conflicts/queue_conflict_events"][0][1] == example_record(1)["queue_conflict_events"]
    assert found["other/conflict_reasons/blocked"][0][1] == example_record(1)["conflict_reasons"]["blocked"]
    assert all(len(points) == 5 for points in found.values())


@pytest.mark.parametrize("form", ["tensorboard", "csv", "parquet"])
def test_a_full_disk_is_told_in_one_sentence_and_nothing_half_written_stays(
    form: str, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("tensorboardX", "pyarrow"):
        pytest.importorskip(package)

    def full(handle: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(files.disk, "write", full)
    with pytest.raises(StorageError, match="No space left on device; free some space and run again"):
        export(other, tmp_path / "out", form)
    assert sorted(tmp_path.iterdir()) == before


def test_what_is_there_is_not_overwritten_unasked(log: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("mine")
    with pytest.raises(UsageError, match="already exists; choose another place, or --overwrite"):
        export(log, tmp_path / "a.csv", "csv")
    export(log, tmp_path / "a.csv", "csv", overwrite=True)
    assert (tmp_path / "a.csv").read_text().startswith("epoch,")


def test_unknown_exports_and_trackers_that_are_not_installed_are_told(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="'excel' is not an export format; choose one of tensorboard, csv"):
        export(log, tmp_path / "a", "excel")
    monkeypatch.setattr("townlet.optional.installed", lambda name: False)
    for name in ("wandb", "mlflow"):
        with pytest.raises(MissingPackageError, match=f"pip install {name}"):
            export(log, tmp_path / "a", name)
    with pytest.raises(TelemetryError, match="does not exist"):
        export(tmp_path / "none.jsonl", tmp_path / "b.csv", "csv")
    assert not (tmp_path / "b.csv").exists()


class Recorder:
    """Stands for an experiment tracker: keeps what it was told."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.opened: list[dict[str, Any]] = []
        self.finished = 0

    def init(self, **about: Any) -> Recorder:
        self.opened.append(about)
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        self.logged.append((step, values))

    def finish(self) -> None:
        self.finished += 1

    def set_tracking_uri(self, uri: str) -> None:
        self.opened.append({"uri": uri})

    def set_experiment(self, name: str) -> None:
        self.opened.append({"experiment": name})

    def start_run(self, run_name: str) -> Recorder:
        self.opened.append({"run": run_name})
        return self

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    log_metrics = log


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_an_installed_tracker_gets_every_epoch(name: str, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = Recorder()
    monkeypatch.setattr("townlet.telemetry.export.require", lambda asked, why: {name: tracker}[asked])
    EXPORTS[name](log, tmp_path / "out")
    assert [step for step, _ in tracker.logged] == [8192 * n for n in range(1, 51)]
    assert tracker.logged[2][1]["losses/loss_total"] == example_record(3)["loss_total"]
    assert tracker.finished == 1
