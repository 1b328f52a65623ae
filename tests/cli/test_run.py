"""`townlet run`, `townlet snapshot`, `townlet bench`, as somebody at a terminal meets them."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest

from places import Call
from townlet.cli import run as run_module
from townlet.cli.run_view import RunTable, TownView, bar
from townlet.envs.scene import look
from townlet.envs.vector import VectorTown
from townlet.policy.runtime import make_policy
from townlet.signals import StopFlag
from townlet.sim.loop import SimulationLoop
from townlet.sim.probes import Counts
from townlet.world.film import USES, read_row


def test_run_tells_how_residents_fared(call: Call) -> None:
    code, out, err = call("run", "queue_conflict", "--ticks", "200")
    assert code == 0
    assert err == ""
    assert out.startswith("queue_conflict, seed 2, schedule: 200 ticks to day 1 09:20")
    for name in ("alice", "bob", "carol", "conflicts:", "quarrels"):
        assert name in out


def test_run_tells_who_left_when_and_why(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    _, out, _ = call("run", "queue_conflict", "--ticks", "100")
    assert "\nexits: none\n" in out
    leaves = ("--set", "lifecycle.exits=[{at: '07:30', resident: alice}]", "--set", "scenario.start=06:00")
    _, out, _ = call("run", "town_day", "--ticks", "120", *leaves)
    assert "\nexits: 1 scheduled\n  day 1 07:30 alice: left as scheduled\n" in out
    starve = ("run", "town_day", "--ticks", "2880", "--policy", "scripted", "--set", "economy.stock={stove: 0, cafe_counter: 0}")
    report = json.loads(call(*starve, "--json")[1])
    assert len(report["exits"]) == report["events"]["exit"] >= 6
    assert {one["reason"] for one in report["exits"]} == {"collapse"}
    monkeypatch.setattr(run_module, "MOST_EXITS", 2)
    _, out, _ = call(*starve)
    count, first = len(report["exits"]), report["exits"][0]
    assert f"\nexits: {count} collapse\n  day {first['day']} {first['time']} {first['resident']}: collapsed\n" in out
    assert f"\n  … and {count - 2} more\n" in out


def test_run_writes_what_it_was_asked_for(call: Call, tmp_path: Path) -> None:
    names = [tmp_path / name for name in ("e.ndjson", "w.npz", "p.png", "d.ndjson")]
    flags = [word for flag, name in zip(("--events", "--snapshot", "--render", "--digests"), names) for word in (flag, name)]
    code, out, _ = call("run", "queue_conflict", "--ticks", "100", "--json", *flags)
    report = json.loads(out)
    assert code == 0
    assert report["ticks"] == 100
    assert report["files"] == [str(name) for name in names]
    assert sum(report["events"].values()) == len(names[0].read_text().splitlines())
    last = json.loads(names[3].read_text().splitlines()[-1])
    assert last == {"episode": 0, "tick": 100, "digest": report["digest"]}
    assert names[2].read_bytes().startswith(b"\x89PNG")
    code, _, err = call("run", "queue_conflict", "--ticks", "10", *flags)
    assert code == 2
    assert "already exists" in err
    assert call("run", "queue_conflict", "--ticks", "10", "--overwrite", *flags)[0] == 0


def test_two_runs_of_one_seed_are_the_same_and_another_seed_is_not(call: Call) -> None:
    digests = [
        json.loads(call("run", "town_day", "--ticks", "60", "--seed", seed, "--policy", "random", "--json")[1])["digest"]
        for seed in ("4", "4", "5")
    ]
    assert digests[0] == digests[1] != digests[2]


def test_follow_prints_a_story(call: Call) -> None:
    code, out, _ = call("run", "queue_conflict", "--ticks", "20", "--follow", "bob")
    assert code == 0
    assert "06:00 bob chose use_shower:near" in out
    assert "no work: has no job" in out
    assert "\nbob  " in out
    assert "\nalice  " not in out  # the table at the end would push the story off a small screen
    code, out, _ = call("run", "queue_conflict", "--ticks", "20", "--follow", "bob", "--json")
    assert [row["tick"] for row in json.loads(out)["followed"]] == [0, 10]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["town_dya"], 2, "did you mean town_day"),
        (["town_day", "--ticks", "-5"], 2, "-5"),
        (["town_day", "--policy", "clever"], 2, "no policy 'clever'"),
        (["town_day", "--follow", "zoe"], 2, "no resident 'zoe'"),
        (["town_day", "--render", "x.jpg"], 2, ".png"),
        (["town_day", "--set", "conflict.quarel_ticks=1"], 2, "quarrel_ticks"),
        (["town_day", "--ticks", "10", "--events", "/proc/none/e.ndjson"], 74, "cannot be written"),
        (["town_day", "--ticks", "10", "--snapshot", "/proc/none/s.npz"], 74, "cannot be written"),
    ],
)
def test_bad_input_is_answered_in_one_sentence(call: Call, words: list[str], code: int, says: str) -> None:
    left, _, err = call("run", *words)
    assert left == code
    assert says in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_the_live_table_shows_residents_queues_and_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    vec, counts = VectorTown("queue_conflict", 1), Counts()
    table = RunTable(vec, counts, 100)
    SimulationLoop(vec, make_policy("schedule", vec), [counts, table]).run(100)
    console = Console(width=110, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table._view(look(vec)))
    table.finish(vec)
    shown = console.export_text()
    for word in ("queue_conflict", "100/100 ticks", "ticks/s", "alice", "hunger", "shower_1", "conflicts", "rivalry"):
        assert word in shown


@pytest.mark.parametrize(
    ("scenario", "width", "height"), [("town_day", 80, 24), ("town_day", 120, 40), ("rush_hour", 80, 24), ("festival", 80, 24)]
)
def test_the_watched_town_fits_its_terminal_and_shows_map_people_and_news(scenario: str, width: int, height: int) -> None:
    from rich.console import Console

    vec = VectorTown(scenario, 1)
    view = TownView(vec, speed=10_000, first=10, stop=StopFlag())
    view._live.console = Console(width=width, height=height, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    loop = SimulationLoop(vec, make_policy("schedule", vec), [view])
    loop.run(120)
    shown = view._view(vec, look(vec), "08:00", vec.film[0, -1]).plain
    loop.finish()
    assert max(map(len, shown.splitlines())) <= width
    assert len(shown.splitlines()) < height
    for word in (scenario, "08:00", "██", "al alice", " ".join(vec.config.needs), "Ctrl-C", " at "):
        assert word in shown


def test_a_row_of_the_film_is_the_town_before_the_tick() -> None:
    vec = VectorTown("town_day", 1)
    vec.start_filming()
    policy = make_policy("scripted", vec)
    for _ in range(12):
        before = vec.state.residents[0].copy()
        vec.step(policy.act(vec).actions)
        people, things = read_row(vec.film[0, 0], vec.num_residents, tuple(vec.config.needs))
        assert people["x"].tolist() == before["x"].tolist()
        assert people["y"].tolist() == before["y"].tolist()
        assert people["hygiene"] == pytest.approx(before["needs"][:, 1], abs=1 / 255)
    assert (things["user"] > 0).sum() == (people["doing"] == USES).sum() > 0


def test_bars_are_as_long_as_needs() -> None:
    assert bar(1.0) == "█" * 8
    assert bar(0.5) == "████    "
    assert bar(0.0625) == "▌       "
    assert bar(0.0).strip() == ""


def test_snapshot_save_load_diff_bisect(call: Call, tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in ("a.npz", "b.npz", "c.npz"))
    assert call("snapshot", "save", "queue_conflict", a, "--at", "100")[0] == 0
    code, out, _ = call("snapshot", "load", a, "--ticks", "100", "--output", b, "--json")
    assert code == 0
    assert json.loads(out)["tick"] == 200
    call("snapshot", "save", "queue_conflict", c, "--at", "200")
    assert call("snapshot", "diff", b, c) == (0, f"{b} and {c} are equal\n", "")
    code, out, _ = call("snapshot", "diff", a, c, "--json")
    assert code == 1
    assert json.loads(out)["count"] > 10
    code, out, _ = call("snapshot", "bisect", a, a, "--policy-b", "random", "--ticks", "100", "--json")
    assert code == 1
    assert json.loads(out)["divergence"]["field"] == "action"
    code, out, _ = call("snapshot", "bisect", "queue_conflict", a, "--ticks", "20")
    assert code == 1
    assert "differ from tick" in out
    assert call("snapshot", "bisect", "queue_conflict", "queue_conflict", "--ticks", "100")[0] == 0
    code, _, err = call("snapshot", "load", a, "--config", "town_day")
    assert code == 3
    assert "was made with queue_conflict" in err
    code, _, err = call("snapshot", "load", tmp_path / "none.npz")
    assert code == 3
    assert "none.npz" in err
    assert call("snapshot", "save", "queue_conflict", a)[0] == 2


def test_a_fork_of_a_snapshot_lives_on_from_there(call: Call, tmp_path: Path) -> None:
    """Without an edit the two arms are the same, so every effect is exactly 0."""
    call("snapshot", "save", "queue_conflict", tmp_path / "a.npz", "--at", "200", "--policy", "scripted")
    code, out, _ = call("fork", tmp_path / "a.npz", "--futures", "4", "--ticks", "100", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["tick"] == 200
    assert all(effect["effect"]["difference"] == 0 for effect in found["effects"].values())


def test_bench_rows_have_names_values_bars_and_a_calibration(call: Call) -> None:
    code, out, err = call("bench", "sim", "--short", "--json")
    rows = json.loads(out)
    assert code == 0
    assert "64 towns" in err
    assert all({"name", "value", "unit", "bar", "ok"} <= set(row) for row in rows)
    assert rows[0]["name"].startswith("calibration")
    fast, seen = rows[1], rows[2]
    assert fast["bar"] == 10_000_000
    assert seen["bar"] == 2_500_000
    assert fast["value"] > seen["value"] > 10 * rows[0]["value"] / 1000
    for row in (fast, seen):
        assert row["uses_per_resident_day"] > 0


@pytest.mark.slow
def test_bench_telemetry(call: Call) -> None:
    code, out, _ = call("bench", "telemetry")
    assert code == 0
    assert "records validated" in out


@pytest.mark.slow
def test_bench_replay(call: Call) -> None:
    _, out, _ = call("bench", "replay", "--short", "--json")
    names = [row["name"] for row in json.loads(out)]
    for beginning in ("streaming over in-memory", "writing samples", "recording over simulation"):
        assert sum(name.startswith(beginning) for name in names) == 1, names


@pytest.mark.parametrize("words", [("train",), ("sim", "--short", "--peers")])
def test_a_comparison_says_where_it_lives(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = call("bench", *words)
    assert code == 2
    assert "source tree" in err


def test_of_what_happened_the_last_is_told_whole_or_not_at_all() -> None:
    """At 80 columns a sentence takes two lines: the first of those shown began in its middle."""
    from rich.console import Console

    vec = VectorTown("town_day", 1, seed=5)
    view = TownView(vec, 20, 10**6, StopFlag())
    view._live.console = Console(width=80, height=24, record=True, file=StringIO())
    SimulationLoop(vec, make_policy("schedule", vec), [view]).run(10)
    view.news.extend(f"06:{k:02} dave is overtaken by carol at table_1 after 19 min" for k in range(6))
    told = view._view(vec, look(vec), "06:00", vec.film[0, -1]).plain
    first = min(told.index(f"06:{k:02} dave") for k in range(6) if f"06:{k:02} dave" in told)
    assert told.index("carol at table_1 after") > first
