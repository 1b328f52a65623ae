"""`townlet evaluate`, `fork`, `report` and `study` from the command line: results, files, one sentence per mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checkpoints import untrained, write_run
from places import Call
from scorecards import duel
from townlet.cli.evaluate import named_policies
from townlet.config.loader import load_config
from townlet.dto.evaluation import Scorecard
from townlet.envs.vector import VectorTown
from townlet.errors import UsageError
from townlet.evaluation.compare import load_scorecard, save_scorecard
from townlet.telemetry.plot import plot_scorecard


def test_evaluate_prints_json_and_writes_every_form(call: Call, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = {"--output": tmp_path / "card.json", "--html": tmp_path / "card.html", "--png": tmp_path / "card.png"}
    words = [word for pair in files.items() for word in pair]
    code, out, err = call("evaluate", "random", "scripted", "--scenario", "town_day", "--seeds", 2, "--days", 1, "--json", *words)
    assert code == 0
    card = Scorecard.model_validate_json(out)
    assert card == load_scorecard(tmp_path / "card.json")
    assert card.policies == ("random", "scripted")
    assert (card.cases[0].towns, card.baseline) == (2, "scripted")
    assert (tmp_path / "card.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "card.html").read_text().startswith("<!doctype html>")
    assert err.count("written to") == 3


def test_evaluate_seats_a_mix_by_resident(call: Call) -> None:
    mix = ("--policy", "*=scripted", "--policy", "newcomer_*=random")
    code, out, _ = call("evaluate", *mix, "--scenario", "town_day", "--seeds", 1, "--days", 1)
    assert code == 0
    assert "mix" in out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "there is no policy to evaluate"),
        (("scripted", "scripted"), 2, "two policies are called 'scripted'"),
        (("scripted", "--suite", "grand"), 2, "there is no suite 'grand'; choose from standard, short, social, stress"),
        (("scripted", "--scenario", "twon_day"), 2, "did you mean"),
        (("scriptd", "--scenario", "town_day"), 2, "there is no policy 'scriptd'; did you mean scripted?"),
        (("runs/nowhere", "--scenario", "town_day", "--seeds", "1"), 3, "runs/nowhere"),
        (("--policy", "alice", "--scenario", "town_day"), 2, "is not RESIDENT=POLICY"),
        (
            ("--policy", "zoe=random", "--policy", "*=scripted", "--scenario", "town_day", "--seeds", "1"),
            2,
            "no resident is called 'zoe'",
        ),
    ],
)
def test_mistakes_are_one_sentence(call: Call, words: tuple[str, ...], code: int, message: str) -> None:
    found, out, err = call("evaluate", *words)
    assert (found, out) == (code, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_a_run_is_measured_in_the_town_it_was_trained_for(call: Call, tmp_path: Path) -> None:
    config, one = load_config("two_bathrooms"), tmp_path / "one/checkpoints/000001"
    for name, changed in (("one", config), ("other", config.model_copy(update={"seed": 5}))):
        untrained(tmp_path / name / "checkpoints/000001", VectorTown(changed, 1))
        write_run(tmp_path / name, changed)
    for words in ([one, tmp_path / "other/checkpoints/000001"], ["--policy", f"*={one}"]):
        code, out, err = call("evaluate", *words, "--seeds", 1, "--days", 1, "--no-looks", "--json")
        assert (code, err) == (
            0,
            "measuring in two_bathrooms, the town of the training; --suite standard measures in other towns too\n",
        )
        card = Scorecard.model_validate_json(out)
        assert [(case.name, case.config_id, case.towns) for case in card.cases] == [("two_bathrooms", "two_bathrooms", 1)]
    code, out, _ = call("evaluate", one, "--suite", "short", "--seeds", 1, "--days", 1, "--no-looks", "--json")
    assert [case.name for case in Scorecard.model_validate_json(out).cases] == ["town_day", "rush_hour", "two_bathrooms"]


def test_policies_are_named_by_word_run_or_folder() -> None:
    named = named_policies(["scripted", "mine=runs/x/checkpoints/best", "runs/y/checkpoints/best"], [])
    assert named == {"scripted": "scripted", "mine": "runs/x/checkpoints/best", "y/best": "runs/y/checkpoints/best"}
    with pytest.raises(UsageError):
        named_policies(["a=scripted", "a=random"], [])


def test_a_figure_has_a_known_ending(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a plot is written as \.png or \.svg"):
        plot_scorecard(duel(0), tmp_path / "card.pdf")


def test_fork_prints_the_effect_of_an_edit(call: Call) -> None:
    words = ("fork", "town_day", "--at", 100, "--futures", 2, "--ticks", 60)
    code, out, _ = call(*words, "--edit", "rewards.survival = 0.5")
    assert code == 0
    assert out.startswith("rewards.survival = 0.5: 2 futures of 60 ticks from tick 100")
    assert json.loads(call(*words, "--json")[1])["effects"]["return"]["effect"]["difference"] == 0.0


@pytest.mark.parametrize("edit", ["nonsense", "objects += stvoe@11,10", "exit bobby", "resident bob.hungr = 0.2"])
def test_fork_announces_nothing_before_it_refuses(call: Call, edit: str) -> None:
    words = ("fork", "town_day", "--at", 100, "--futures", 2, "--ticks", 60)
    code, out, err = call(*words, "--edit", edit)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert call(*words, "--edit", "exit bob")[2].startswith("2 futures from tick 100, each simulated with and without")


def test_report_and_study_refuse_what_is_not_there(call: Call, tmp_path: Path) -> None:
    assert call("report", tmp_path)[0] == 3
    assert call("study", tmp_path / "none.yaml")[0] == 2
    spec = tmp_path / "study.yaml"
    spec.write_text("name: one\nconfig: town_day\narms: {a: []}\n")
    code, _, err = call("study", spec, "--job", "a")
    assert (code, "is not ARM:SEED; write, for instance, a:0" in err) == (2, True)


def test_report_writes_the_page_of_a_run_with_its_scorecard(call: Call, tmp_path: Path) -> None:
    from townlet.config.loader import load_config
    from townlet.config.models import config_hash

    config = load_config("town_day", ("seed=3", "ppo.gamma=0.5"))
    write_run(tmp_path, config)
    save_scorecard(duel(0), tmp_path / "scorecard.json")
    code, out, _ = call("report", tmp_path, "--json")
    assert code == 0
    page = Path(json.loads(out)["report"]).read_text()
    again = f"train {tmp_path}/config.json --mode rollout"
    assert f"townlet {again}" in page
    assert json.loads(call(*again.split(), "--dry-run", "--json")[1])["config_hash"] == config_hash(config)
    assert 'class="map"' in page


def test_report_of_a_run_that_cannot_be_written_into(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is asked for elsewhere: what was measured is shown, though not kept in the run."""
    from townlet.config.loader import load_config
    from townlet.observer import report

    run = tmp_path / "run"
    write_run(run, load_config("town_day", ("seed=3",)))
    (run / "scorecard.json").mkdir()  # nobody can write a file there
    monkeypatch.setattr(report, "measure_run", lambda *args, **options: duel(0))
    code, _, err = call("report", run, "--output", tmp_path / "page.html")
    assert (code, "the scorecard is not kept" in err, (tmp_path / "page.html").exists()) == (0, True, True)
