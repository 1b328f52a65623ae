"""The report of a run: charts against hand-made numbers, the page whole and alone."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from scorecards import FEW, policy_card, scorecard, town_days
from townlet.cli.train_progress import result_text
from townlet.config.loader import load_config
from townlet.config.models import config_hash
from townlet.dto.policy import AnnealSummary
from townlet.dto.promotion import Evidence, Outcome, PromotionDecision
from townlet.envs.scene import look
from townlet.envs.vector import VectorTown
from townlet.errors import DamagedFileError
from townlet.evaluation.compare import save_scorecard, with_effects
from townlet.observer.charts import Estimate, Series, heat_strip, interval_chart, line_chart
from townlet.observer.report import policies_of, read_run, render_report, verdict
from townlet.observer.scoreboard import scorecard_page
from townlet.observer.town import draw_town
from townlet.promotion.ledger import append
from townlet.telemetry.example import example_record
from townlet.telemetry.ndjson import TelemetryWriter

MACHINE = {"machine": "m", "system": "s", "processors": 2, "threads": 1, "command": []}
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """Checks that elements nest, and keeps what the page refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == [], f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):  # type: ignore[union-attr]
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def board(shift: float = 5.0):  # type: ignore[no-untyped-def]
    base = town_days(0, 16)
    cards = [
        policy_card("random", town_days(1, 16, {"return": -20.0})),
        policy_card("scripted", base),
        policy_card("trained <best>", town_days(2, 16, {"return": shift})),
    ]
    return scorecard(with_effects(cards, "scripted", FEW), baseline="scripted")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "demo & co"
    folder.mkdir()
    config = load_config("town_day")
    log = folder / "ppo.ndjson"
    card = {
        "run_id": "abc",
        "mode": "rollout",
        "seed": 4,
        "epochs": 8,
        "config_id": "town_day",
        "config_hash": config_hash(config),
        "telemetry": "/elsewhere/ppo.ndjson",
    }
    (folder / "run.json").write_text(json.dumps(card))
    (folder / "config.json").write_text(config.model_dump_json())
    (folder / "environment.json").write_text(json.dumps({"versions": {"townlet": "0.1.0"}, **MACHINE}))
    point = {"epoch": 1, "steps": 10, "measures": {"return": {"value": 50.0, "low": 49.0, "high": 51.0}}}
    stages = [{"evaluation": point, "ppo": {"evaluations": [point, point]}}, {"evaluation": None, "ppo": None}]
    (folder / "summary.json").write_text(json.dumps({"strategy": "anneal", "stages": stages}))
    with TelemetryWriter(log) as writer:
        for number in range(1, 9):
            writer.write(example_record(number))
    save_scorecard(board(), folder / "scorecard.json")
    return folder


def test_a_line_is_drawn_to_scale_with_gaps_left_out() -> None:
    svg = line_chart("Return", [Series("a", [0, 1, 2, 3], [0.0, None, 10.0, 5.0])])
    (points,) = re.findall(r'<polyline class="s1 line" points="([^"]+)"', svg)
    pairs = [tuple(map(float, pair.split(","))) for pair in points.split()]
    assert len(pairs) == 3
    (x0, y0), (x2, y2), (x3, y3) = pairs
    assert (x2 - x0) == pytest.approx(2 * (x3 - x2), abs=0.2)
    assert y3 == pytest.approx((y0 + y2) / 2, abs=0.2)
    assert y2 < y0  # more is higher up
    assert line_chart("none", [Series("a", [1], [None])]) == ""


def test_a_constant_line_and_a_single_point_can_be_drawn() -> None:
    assert "polyline" in line_chart("flat", [Series("a", [1, 2], [3.0, 3.0])])
    assert "circle" in line_chart("one", [Series("a", [1], [3.0])])


def test_intervals_lie_around_their_dots() -> None:
    svg = interval_chart("Return", [Estimate("a", 5.0, 4.0, 7.0), Estimate("b <c>", 1.0, 1.0, 1.0)])
    (low, high) = map(float, re.findall(r'class="s0 whisker" x1="([\d.]+)" x2="([\d.]+)"', svg)[0])
    (dot,) = map(float, re.findall(r'class="s0 dot" cx="([\d.]+)"', svg))
    assert (dot - low) == pytest.approx((high - low) / 3, abs=0.2)
    assert "b &lt;c&gt;" in svg


def test_a_heat_strip_is_darkest_where_the_share_is_greatest() -> None:
    svg = heat_strip("Rivalry", [[4.0, 0.0], [1.0, 3.0]], x=[1, 2])
    assert [float(share) for share in re.findall(r'fill-opacity="([\d.]+)"', svg)] == pytest.approx([1.0, 0.5, 0.866], abs=1e-3)


def test_the_page_is_whole_alone_and_says_everything(run: Path) -> None:
    text = render_report(read_run(run), town="<figure>town</figure>", commands=["townlet train town_day"])
    page = Page(text)
    words = " ".join(page.words)
    assert page.links == []
    assert "url(" not in text
    assert "script" not in page.tags
    assert not re.search(r"https?://", text)
    assert "prefers-color-scheme:dark" in text
    assert 'name="viewport"' in text
    for expected in (
        "demo & co",
        "trained <best>",
        "Return on held-out seeds",
        "Conflicts",
        config_hash(load_config("town_day")),
        "townlet train town_day",
    ):
        assert expected in words
    assert words.index("exits") < words.index("return (more is better)")
    assert page.tags.count("svg") >= 10


def test_an_anneal_run_shows_its_verdict_and_what_promotion_said(run: Path) -> None:
    gates = PromotionDecision(
        outcome=Outcome.HOLD,
        window="pass",
        passes=1,
        required=2,
        gates=(),
        reasons=("1 of 2 windows in a row passed every gate",),
    )
    for status, reasons, decision, says in (
        ("PASS", (), gates, ("anneal PASS", "promotion HOLD", "1 of 2 windows in a row")),
        (
            "HOLD",
            ("stage 1: KL rose",),
            None,
            ("anneal HOLD", "stage 1: KL rose", "not judged for promotion: only runs that pass are"),
        ),
        ("PASS", (), None, ("not judged for promotion: `townlet promote evaluate runs/x`",)),
    ):
        result = AnnealSummary(
            duration_sec=1.0, run_dir="runs/x", status=status, reasons=reasons, epochs=1, stages=(), promotion=decision
        )
        (run / "summary.json").write_text(result.model_dump_json())
        words = "".join(Page(render_report(read_run(run))).words)
        assert all(word in words for word in says)
        assert all(word in result_text(result) for word in says)


def test_what_the_ledger_says_of_a_run_later_stands_in_its_report(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run)
    summary = AnnealSummary(duration_sec=1.0, run_dir="runs/x", status="PASS", reasons=(), epochs=1, stages=())
    (run / "summary.json").write_text(summary.model_dump_json())
    card = read_run(run).run
    assert card is not None
    for run_id, outcome in ((card.run_id, Outcome.HOLD), (card.run_id, Outcome.PROMOTE), ("another", Outcome.FAIL)):
        decision = PromotionDecision(outcome=outcome, window="pass", passes=1, required=2, gates=(), reasons=())
        hashes = dict.fromkeys(("scorecard", "candidate", "champion", "gates", "checkpoint"), "a") | {"run_id": run_id}
        evidence = Evidence(**hashes, configs=(), seeds=(), training_config=None, dataset=None, started_from=None)
        fields = {"kind": "window", "candidate": "a", "champion": "scripted", "source": "runs/x", "reasons": ()}
        append(
            Path("promotion/ledger.ndjson"),
            fields | {"decision": decision.model_dump(mode="json"), "evidence": evidence.model_dump(mode="json")},
        )
    words = "".join(Page(render_report(read_run(run))).words)
    assert "promotion PROMOTE" in words
    assert "not judged" not in words
    Path("promotion/ledger.ndjson").write_text("torn")
    assert any("ledger.ndjson" in sentence for sentence in read_run(run).damaged)


def test_the_verdict_says_which_way_the_interval_lies() -> None:
    assert "more than scripted with" in verdict(board(5.0))
    assert "less than scripted with" in verdict(board(-5.0))
    assert "not clearly different from scripted with" in verdict(board(0.0))


def test_a_run_without_scorecard_or_log_still_makes_a_page(run: Path) -> None:
    (run / "scorecard.json").unlink()
    (run / "ppo.ndjson").unlink()
    (run / "summary.json").unlink()
    text = render_report(read_run(run))
    assert "Config and hashes" in Page(text).words
    assert policies_of(run) == {}


def test_what_is_no_run_or_damaged_is_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match="is not a run folder"):
        read_run(tmp_path)
    (run / "run.json").write_text("[1, 2]")
    damaged = read_run(run).damaged
    assert [sentence for sentence in damaged if "run.json holds a list, expected a JSON object" in sentence]


def test_a_scorecard_page_colours_by_the_interval() -> None:
    text = scorecard_page(board())
    Page(text)
    assert '<td class="good">' in text
    assert '<td class="bad">' in text


def test_the_town_is_drawn_with_every_object_and_resident() -> None:
    vec = VectorTown("town_day", 1)
    svg = draw_town(look(vec))
    Page(svg)
    assert svg.count('class="thing') == len(vec.object_ids(0))
    assert svg.count('<g class="resident') == vec.num_residents
