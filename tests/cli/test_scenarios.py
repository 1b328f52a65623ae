"""`townlet scenarios`: what it prints, what it writes, how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from scenario_towns import redraw, tree
from townlet.cli.scenarios import scenarios
from townlet.config.loader import load_config, to_yaml
from townlet.errors import ConfigError, UsageError
from townlet.scenarios.compile import read_plan
from townlet.scenarios.shipped import FOUNDING


def call(*words: str) -> Result:
    result = CliRunner().invoke(scenarios, list(words), catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_list_names_the_founding_five_first() -> None:
    entries = json.loads(call("list", "--json").stdout)
    assert tuple(one["name"] for one in entries[:5]) == FOUNDING
    day = next(one for one in entries if one["name"] == "town_day")
    assert (day["residents"], day["rows"], day["columns"]) == (8, 24, 24)


def test_list_as_text_has_a_line_per_scenario_and_says_what_it_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = call("list").stdout.splitlines()
    assert len([line for line in lines if not line.startswith(" ")]) == 13
    assert max(map(len, lines)) <= 80
    assert "    Three residents want the only shower again and again; with a cooldown of" in lines
    assert any(line.startswith("metropolis") and "10,000 residents" in line for line in lines)


def test_show_draws_the_map_and_names_who_lives_there() -> None:
    text = call("show", "queue_conflict").stdout
    assert "#b....+....s#" in text
    assert "alice: lives in house, works as –" in text


def test_show_names_the_nearest_scenario_for_a_misspelt_one() -> None:
    with pytest.raises(ConfigError, match="town_day"):
        call("show", "town_dya")


def test_show_does_not_draw_a_map_wider_than_a_terminal() -> None:
    assert "too wide to draw here" in call("show", "metropolis").stdout


def test_lint_ends_with_0_when_all_is_well_and_1_when_not(tmp_path: Path) -> None:
    assert call("lint", "queue_conflict", "kitchen_breakfast").exit_code == 0
    town = tree()
    town["scenario"]["map"] = redraw({6: "############"})
    path = tmp_path / "sealed.yaml"
    path.write_text(to_yaml(town))
    result = call("lint", str(path), "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)[0]
    assert [one["name"] for one in report["verdicts"] if not one["ok"]] == ["reachability"]
    assert "FAIL reachability" in call("lint", str(path)).stdout


def test_diff_shows_the_keys_that_differ_and_ends_with_1() -> None:
    result = call("diff", "town_day", "newcomer", "--json")
    assert result.exit_code == 1
    keys = [row["key"] for row in json.loads(result.stdout)]
    assert "config_id" in keys
    assert "lifecycle.exits[0]" in keys
    same = call("diff", "town_day", "town_day")
    assert same.exit_code == 0
    assert same.stdout == "no difference\n"


def test_diff_compares_maps_row_by_row(tmp_path: Path) -> None:
    paths = []
    for i, rows in enumerate(({}, {2: "#....+..n..#"})):
        town = tree()
        town["scenario"]["map"] = redraw(rows)
        town["scenario"]["legend"]["n"] = "bench"
        town["scenario"]["name"] = "bent"
        paths.append(tmp_path / f"{i}.yaml")
        paths[-1].write_text(to_yaml(town))
    result = call("diff", *map(str, paths))
    assert result.stdout == "scenario.map[2]: #....+.....# → #....+..n..#\n"


def test_new_writes_a_template_and_refuses_to_overwrite_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    assert call("new", "mine", "--output", str(path)).exit_code == 0
    assert load_config(path).config_id == "mine"
    with pytest.raises(UsageError, match="already exists"):
        call("new", "mine", "--output", str(path))
    assert call("new", "mine", "--output", str(path), "--overwrite").exit_code == 0


def test_new_takes_the_name_of_a_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("new", "mine.yaml").stdout.startswith("mine.yaml is written; `townlet run mine.yaml` runs it\n")
    assert load_config("mine.yaml").config_id == "mine"


def test_new_with_a_seed_writes_a_town_that_can_live(tmp_path: Path) -> None:
    path = tmp_path / "drawn.yaml"
    result = call("new", "drawn", "--generate", "7", "--output", str(path), "--json")
    assert json.loads(result.stdout) == {"path": str(path), "ok": True, "failed": []}
    assert call("lint", str(path), "--days", "7").exit_code == 0


def test_new_draws_a_town_by_size_crowding_and_feuds_with_the_verdict_of_the_linter(tmp_path: Path) -> None:
    showers, feuds = [], []
    for crowding, share in ((1, 0), (3, 1)):
        path = tmp_path / f"crowded_{crowding}.yaml"
        given = ("--residents", "30", "--crowding", str(crowding), "--feuds", str(share))
        result = call("new", "crowded", *given, "--output", str(path))
        assert result.exit_code == 0
        assert "the linter says that it can work" in result.stdout
        plan = read_plan(load_config(path))
        assert len(plan.residents) == 30
        showers.append(sum(one.kind == "shower" for one in plan.objects))
        feuds.append(len({tie.resident for tie in plan.ties if tie.rivalry >= 0.6}))
    assert showers == [4, 2]  # nine to a shower, or 27
    assert feuds[0] == 0 < 20 <= feuds[1]
    path = tmp_path / "bare.yaml"
    result = call("new", "bare", "--residents", "40", "--crowding", "20", "--output", str(path))
    assert (result.exit_code == 0) == ("it can work" in result.stdout)
    with pytest.raises(UsageError, match="give that number too"):
        call("new", "other", "--feuds", "0.5", "--output", str(tmp_path / "other.yaml"))


def test_new_refuses_a_name_that_is_no_name() -> None:
    result = call("new", "My Town")
    assert result.exit_code == 2
    assert "'My Town' cannot be a name; expected lower-case letters, digits" in result.stderr


@pytest.mark.parametrize("name", ["2024", "null", "1e3", "true"])
def test_new_takes_a_name_that_yaml_would_read_as_something_else(name: str, tmp_path: Path) -> None:
    path = tmp_path / "town.yaml"
    assert call("new", name, "--output", str(path)).exit_code == 0
    assert load_config(path).config_id == name
    assert call("new", name, "--generate", "7", "--output", str(path), "--overwrite").exit_code == 0
    assert load_config(path).scenario.name == name
