"""Needs are data: a need declared in YAML is felt, seen, paid for, met by the script and judged, without a line of code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenario_towns import load, redraw, tree
from townlet.cli.run import plain_table
from townlet.config.loader import default_config, load_config
from townlet.config.models import SimulationConfig
from townlet.config.needs import MAX_NEEDS, THREE
from townlet.envs.render import picture
from townlet.envs.scene import look
from townlet.envs.vector import VectorTown
from townlet.errors import ConfigError
from townlet.evaluation.scorecard import evaluate
from townlet.evaluation.suites import Case
from townlet.observations.spec import ObservationSpec
from townlet.policy.runtime import make_policy
from townlet.scenarios.lint import lint
from townlet.testing import check_scenario
from townlet.world.state import EVENTS, RESIDENT
from world_tools import Play

FUN = {"decay": 0.002, "weight": 0.05, "start": 0.5}
READ = {"id": "read", "objects": ["bookshelf"], "ticks": 20, "effects": {"fun": 0.4, "energy": -0.01}}


def town(**changes: Any) -> dict[str, Any]:
    """The small town of the scenario tests with a bookshelf in its kitchen, and the need for it."""
    base = tree()
    base["scenario"]["map"] = redraw({1: "#bb..#k.s..#"})
    base["scenario"]["legend"]["k"] = "bookshelf"
    return {**base, "needs": {"fun": FUN}, "affordances": {"add": [READ]}, **changes}


def test_a_declared_need_is_seen_and_nothing_else_moves(tmp_path: Path) -> None:
    config = load(tmp_path, town())
    names = ObservationSpec.of(config).feature_names
    plain = ObservationSpec.of(load(tmp_path, {**town(), "needs": {}, "affordances": {"add": [{**READ, "effects": {}}]}}))
    assert names == (*plain.feature_names[:3], "need_fun", *plain.feature_names[3:])
    assert ObservationSpec.of(default_config()).feature_names[:3] == ("need_hunger", "need_hygiene", "need_energy")
    play = Play(config)
    assert play.sees("alice", "need_fun") == pytest.approx(0.5)
    assert play.vec.spec.hash != plain.hash


def test_every_field_is_written_where_the_spec_names_it(tmp_path: Path) -> None:
    """The same town, with a fourth need that changes nothing: every other field and the mask are the same bytes."""
    idle = {"decay": 0.0, "weight": 0.0, "act_below": 0.0, "start": 0.7}
    for variant in ("hybrid", "full", "compact"):
        features = {"features": {"systems": {"observations": variant}}}
        one = VectorTown(load(tmp_path, tree() | features), 2)
        two = VectorTown(load(tmp_path, tree() | features | {"needs": {"fun": idle}}), 2)
        for _ in range(60):
            for vec in (one, two):
                vec.step(make_policy("scripted", vec).act(vec).actions)
            for k, name in enumerate(one.spec.feature_names):
                np.testing.assert_array_equal(one.features[..., k], two.features[..., two.spec.offsets[name]], err_msg=name)
            np.testing.assert_array_equal(one.masks, two.masks)
            np.testing.assert_array_equal(one.buffers.maps, two.buffers.maps)
            np.testing.assert_array_equal(one.terms, two.terms)


def test_it_falls_is_paid_for_and_rises_with_what_raises_it(tmp_path: Path) -> None:
    """0.5 − 0.002 = 0.498 after a tick: −0.02 × 0.05 × 0.502². Twenty ticks of reading give 0.4, each tick takes 0.002."""
    config = load(tmp_path, town(policy={"decision_interval": 1}))
    without = load(tmp_path, town(policy={"decision_interval": 1}, needs={"fun": {**FUN, "weight": 0.0}}))
    play, other = Play(config).go(), Play(without).go()
    assert play["alice"]["needs"][3] == pytest.approx(0.498)
    assert play.term("alice", "needs") - other.term("alice", "needs") == pytest.approx(-0.02 * 0.05 * 0.502**2)
    play.until("use_start", alice="read")
    before = play["alice"]["needs"][3]
    play.until("use_end", alice="read")
    assert play["alice"]["needs"][3] == pytest.approx(before + 0.4 * 19 / 20 - 19 * 0.002)


def test_a_personality_may_weigh_it(tmp_path: Path) -> None:
    base = town(policy={"decision_interval": 1}, personalities={"stoic": {"needs": {"fun": 0.0, "hunger": 0.5}}})
    base["scenario"]["residents"][1]["profile"] = "stoic"
    play = Play(load(tmp_path, base)).go()
    assert play["alice"]["weights"][:4].tolist() == [1.0, 0.6, 0.8, 0.05]
    assert play["bob"]["weights"][:4].tolist() == [0.5, 0.6, 0.8, 0.0]
    lack = 0.5 * 0.201**2 + 0.6 * 0.2007**2 + 0.8 * 0.0508**2
    assert play.term("bob", "needs") == pytest.approx(-0.02 * lack)


def test_scripted_townspeople_meet_a_need_they_have_never_heard_of(tmp_path: Path) -> None:
    assert uses(load(tmp_path, town()))["read"] >= 4
    assert uses(load(tmp_path, town(needs={"fun": {**FUN, "act_below": 0.0}})))["read"] == 0
    assert uses(load(tmp_path, town(affordances={"add": [{**READ, "effects": {"fun": 0.05}}]})))["read"] == 0, "not worth it"


def test_they_take_what_is_open_and_sleep_when_it_is_not(tmp_path: Path) -> None:
    """A shelf behind hours: everything is read within them, and nobody gets up at night to find it closed."""
    sleep = {}
    for name, hours in (("no need", None), ("closed at night", ["14:00", "16:00"])):
        add = {"add": [READ if hours is None else {**READ, "hours": hours}]}
        vec = VectorTown(
            load(tmp_path, town(affordances=add, needs={"fun": {**FUN, "act_below": 0.0 if hours is None else 0.4}})), 2
        )
        policy = make_policy("scripted", vec)
        read, bed = (vec.catalogue.affordances.index(what) for what in ("read", "rest_sleep"))
        sleep[name] = 0
        for _ in range(144):
            vec.step(policy.act(vec).actions)
            using = np.where(vec.state.residents["using"] >= 0, vec.state.residents["affordance"], -1)
            assert not (using == read).any() or 840 < vec.state.towns["minute"][0] <= 990
            sleep[name] += int((using == bed).sum())
    assert sleep["closed at night"] >= 0.9 * sleep["no need"] > 0


def uses(config: SimulationConfig) -> dict[str, int]:
    """Uses of a day under the script, by affordance."""
    vec = VectorTown(config, 1)
    policy = make_policy("scripted", vec)
    told = dict.fromkeys(vec.catalogue.affordances, 0)
    for _ in range(144):
        vec.step(policy.act(vec).actions)
        for row in vec.events():
            if EVENTS[row["kind"]] == "use_start":
                told[vec.catalogue.affordances[vec.state.objects[0, row["object"]]["affordance"]]] += 1
    return told


def test_at_the_bottom_it_collapses_when_the_need_says_so(tmp_path: Path) -> None:
    """0.5 at 0.01 a tick is at 0.03 after 47 ticks; 5 ticks there are a collapse; without `collapse` nothing happens."""
    deadly = {"decay": 0.01, "weight": 0.05, "start": 0.5, "at_bottom": "collapse", "collapse_ticks": 5}
    quick = {"policy": {"decision_interval": 1}}
    play = Play(load(tmp_path, town(needs={"fun": deadly}, **quick)))
    play.until("exit", 80)
    assert play.town["tick"] in (51, 52)  # as 0.5 − 47 × 0.01 is rounded
    assert play.vec.terminated.all()
    harmless = Play(load(tmp_path, town(needs={"fun": {**deadly, "at_bottom": "nothing"}}, **quick))).go(80)
    assert not harmless.told("exit")
    assert not harmless["alice"]["starving"].any()


def test_the_linter_misses_what_raises_it(tmp_path: Path) -> None:
    report = lint(load(tmp_path, town()))
    assert report.ok, report
    without = lint(load(tmp_path, tree() | {"needs": {"fun": FUN}}))
    failed = {verdict.name: verdict.found for verdict in without.verdicts if not verdict.ok}
    assert failed == {"capacity": "nothing here raises fun"}
    deadly = lint(load(tmp_path, tree() | {"needs": {"fun": {**FUN, "at_bottom": "collapse"}}}))
    assert any("nothing raises fun; the first collapse comes after 26" in verdict.found for verdict in deadly.verdicts)


def test_tables_pictures_and_scorecards_show_it(tmp_path: Path) -> None:
    config = load(tmp_path, town())
    vec = VectorTown(config, 1)
    scene = look(vec)
    assert scene.need_names == (*THREE, "fun")
    assert plain_table(scene)[0].split()[:5] == ["resident", "hunger", "hygiene", "energy", "fun"]
    assert picture(scene).shape[2] == 3
    check_scenario(config, decisions=20)


def test_the_room_for_needs_is_said(tmp_path: Path) -> None:
    many = {f"need_{k}": {"decay": 0.0, "weight": 0.0} for k in range(MAX_NEEDS - 3)}
    assert len(load(tmp_path, tree() | {"needs": many}).needs) == MAX_NEEDS == RESIDENT["needs"].shape[0]
    with pytest.raises(ConfigError, match=r"bent\.yaml:\d+: needs: there are 7 needs \(hunger, .*\), at most 6 have room"):
        load(tmp_path, tree() | {"needs": many | {"one_more": {"decay": 0.0, "weight": 0.0}}})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"affordances": {"add": [{**READ, "effects": {"fum": 0.4}}]}},
            r"specs\[6\]\.effects\.fum: there is no need 'fum'; did",
        ),
        ({"personalities": {"stoic": {"needs": {"fum": 2.0}}}}, r"personalities\.stoic\.needs\.fum: there is no need 'fum'; did"),
        ({"evaluation": {"need_weights": {"fum": 2.0}}}, r"evaluation\.need_weights\.fum: there is no need 'fum'; did you mean"),
        ({"needs": {"wallet": FUN}}, r"needs: a need cannot be called 'wallet': preconditions use the word for something else"),
        ({"world": {"need_decay": {"hunger": 1}}}, r"world\.need_decay is not a known key; write needs\.<need>\.decay"),
        ({"rewards": {"needs": {"hunger": 1}}}, r"rewards\.needs is not a known key; write needs\.<need>\.weight"),
        ({"behavior": {"act_below": {"hunger": 1}}}, r"act_below is not a known key; write needs\.<need>\.act_below"),
        ({"lifecycle": {"collapse_hunger": 0.1}}, r"is not a known key; write needs\.hunger\.collapse_below"),
    ],
)
def test_a_wrong_name_is_refused_with_its_line(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=r"bent\.yaml:\d+: .*" + told) as refused:
        load(tmp_path, town(**changes))
    line = int(str(refused.value).split(":")[1])
    words = ("fum", "needs", "need_decay", "act_below", "collapse_hunger")
    assert any(word in "\n".join((tmp_path / "bent.yaml").read_text().splitlines()[line - 2 : line + 1]) for word in words)


def test_two_things_to_do_cannot_share_an_object(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="both 'use_shower' and 'read' use the object 'shower'; an object offers one"):
        load(tmp_path, town(affordances={"add": [{**READ, "objects": ["shower"]}]}))


def test_a_scorecard_tells_how_often_each_need_was_met(tmp_path: Path) -> None:
    config = load(tmp_path, town())
    card = evaluate({"scripted": "scripted"}, (Case("bent", "bent", towns=2, days=1, config=config),))
    needs = card.cases[0].policies[0].needs
    assert list(needs) == [*THREE, "fun"]
    assert all(0.0 < share <= 1.0 for share in needs.values())


def test_at_the_festival_they_read_by_day_and_dance_when_the_band_plays() -> None:
    """Scripted residents, two days: books before 20:00, the stage from then on, and fun does not run out."""
    vec = VectorTown(load_config("festival", ["scenario.episode_ticks=2880"]), 4)
    policy = make_policy("scripted", vec)
    read, dance = (vec.catalogue.affordances.index(what) for what in ("read", "dance"))
    hours: dict[int, list[int]] = {read: [], dance: []}
    while not vec.state.towns["over"].any():
        vec.step(policy.act(vec).actions)
        for row in vec.events():
            what = int(vec.state.objects[0, row["object"]]["affordance"])
            if EVENTS[row["kind"]] == "use_start" and what in hours:
                hours[what].append((360 + int(row["tick"])) % 1440)
    assert len(hours[read]) >= 4 * 8 * 2
    assert 480 <= min(hours[read]) <= max(hours[read]) < 1200
    assert len(hours[dance]) >= 4 * 8 / 2
    assert 1200 <= min(hours[dance]) <= max(hours[dance]) < 1380
    assert vec.state.residents["needs"][..., 3].mean() > 0.4
    assert vec.state.residents["present"].all()


def test_the_linter_passes_the_festival_over_a_week() -> None:
    report = lint(load_config("festival"), days=7)
    assert report.ok, [verdict for verdict in report.verdicts if not verdict.ok]
