"""Counterfactuals: exactly nothing without an edit, the expected direction with one, and edits that cannot be."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest

from places import ROOT
from townlet.cli.common import tick_of
from townlet.config.loader import load_config
from townlet.config.models import SimulationConfig
from townlet.envs.vector import VectorTown
from townlet.errors import ConfigError, ScenarioError, UsageError
from townlet.scenarios.compile import compile_town
from townlet.sim.edits import apply_edits, parse_edit
from townlet.sim.snapshot import save_snapshot, take_snapshot
from townlet.studies.fork import Moment, fork, moment_of_scenario, moment_of_snapshot


@pytest.fixture(scope="module")
def morning() -> Moment:
    return moment_of_scenario("town_day", 200)


@pytest.mark.parametrize("edits", [[], ["conflict.quarrel_ticks = 5"]], ids=["no edit", "an edit that changes nothing"])
def test_without_a_change_the_effect_is_exactly_0_in_every_future(morning: Moment, edits: list[str]) -> None:
    assert morning.config.conflict.quarrel_ticks == 5
    result = fork(morning, edits, futures=6, ticks=300)
    assert result.effects
    for found in result.effects.values():
        assert found.before.values == found.after.values
        assert found.effect.difference == found.effect.low == found.effect.high == 0.0
    assert result.tick == 200


def test_without_an_edit_the_futures_are_simulated_once(morning: Moment, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(config: SimulationConfig, towns: int) -> VectorTown:
        made.append(towns)
        return VectorTown(config, towns)

    monkeypatch.setattr("townlet.studies.fork.VectorTown", counted)
    fork(morning, [], futures=3, ticks=30)
    assert made == [1, 3]  # first one town, in which the edits are tried
    fork(morning, ["conflict.quarrel_ticks = 9"], futures=3, ticks=30)
    assert made == [1, 3, 1, 3, 3]


def test_futures_differ_and_the_first_is_what_happens_anyway(morning: Moment) -> None:
    result = fork(morning, [], futures=6, ticks=400, policy="random")
    assert len(set(result.effects["return"].before.values)) == 6


def test_removing_the_showers_makes_the_town_worse(morning: Moment) -> None:
    showers = [name for name in compile_town(morning.config).object_ids if name.startswith("shower")]
    edits = [f"objects -= {name}" for name in reversed(showers)]
    result = fork(morning, edits, futures=4)
    assert result.effects["return"].effect.high < 0


def test_objects_may_be_removed_while_they_are_used_and_queued_for() -> None:
    """The first moment of the morning at which somebody uses something other than a bed: that thing goes."""
    for at in range(20, 400, 20):
        moment = moment_of_scenario("town_day", at)
        town, using = compile_town(moment.config), moment.arrays["residents"]["using"][0]
        names = [town.object_ids[o] for o in using if o >= 0 and not town.object_ids[o].startswith("bed")]
        if names:
            break
    result = fork(moment, [f"objects -= {names[0]}"], futures=2, ticks=200)
    assert result.effects["return"].before.values != result.effects["return"].after.values


def test_a_shower_more_is_found_and_used(morning: Moment) -> None:
    tiles, occupant = compile_town(morning.config).layout.tiles, morning.arrays["grid"]["occupant"][0]
    free = [(int(x), int(y)) for y, x in np.argwhere((tiles == 0) & (occupant < 0))]
    for x, y in free:
        try:
            config = apply_edits(morning.config, [parse_edit(f"objects += shower@{x},{y}")])
            compile_town(config)
        except ScenarioError:
            continue
        break
    assert len(compile_town(config).object_ids) == len(compile_town(morning.config).object_ids) + 1
    result = fork(morning, [f"objects += shower@{x},{y}"], futures=4)
    assert result.effects["conflicts"].effect.pairs == 4


def test_a_resident_may_be_taken_away_for_good(morning: Moment) -> None:
    """Seven live where eight did: exactly one founder in eight is gone, in every future."""
    empty = ["residents -= bob", "lifecycle.newcomers_per_day = 0"]
    found = fork(morning, empty, futures=4, ticks=600).effects["founders"]
    assert [round(value, 6) for value in found.after.values] == [0.875] * 4
    assert found.before.mean == 1.0
    assert parse_edit("residents -= bob") == parse_edit("exit bob")


def test_a_config_edit_changes_the_rules(morning: Moment) -> None:
    result = fork(morning, ["rewards.survival = 0.5"], futures=2, ticks=100)
    assert result.effects["return"].effect.low > 100


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ("objects * 3", r"is not understood; write `objects \+= shower@5,10`"),
        ("objects -= nothing_1", "no object 'nothing_1' to remove; this town has"),
        ("conflict.quarel_ticks = 3", "no config key 'quarel_ticks' there; did you mean quarrel_ticks?"),
        ("conflict.quarrel_ticks = -3", "cannot be used: conflict.quarrel_ticks"),
    ],
)
def test_edits_that_cannot_be_are_refused_in_words(edit: str, message: str) -> None:
    with pytest.raises((UsageError, ConfigError), match=message):
        apply_edits(load_config("town_day"), [parse_edit(edit)])


def test_an_object_of_unknown_kind_or_on_another_is_refused(morning: Moment) -> None:
    with pytest.raises(ScenarioError):
        compile_town(apply_edits(morning.config, [parse_edit("objects += throne@1,1")]))
    row = compile_town(morning.config).layout.objects[0]
    with pytest.raises(ScenarioError):
        fork(morning, [f"objects += shower@{row['x']},{row['y']}"], futures=1)


def test_nobody_is_walled_in_by_a_new_object(morning: Moment) -> None:
    one = morning.arrays["residents"][0, 0]
    with pytest.raises(UsageError, match="somebody stands on column"):
        fork(morning, [f"objects += bench@{one['x']},{one['y']}"], futures=1)


def test_the_end_of_the_episode_has_no_future(morning: Moment) -> None:
    vec = VectorTown(morning.config, 1)
    arrays = vec.save()
    arrays["towns"]["tick"] = morning.config.scenario.episode_ticks
    with pytest.raises(UsageError, match="the end of its episode"):
        fork(Moment(morning.config, arrays), [], futures=1)
    with pytest.raises(UsageError, match="expected at least 1"):
        fork(morning, [], futures=0)
    with pytest.raises(UsageError, match="ends at tick"):
        moment_of_scenario("town_day", 10**6)


def test_a_town_whose_first_episode_was_to_be_cut_forks_as_long_as_asked(morning: Moment) -> None:
    arrays = {name: array.copy() for name, array in morning.arrays.items()}
    arrays["towns"]["cut"] = 900
    whole, cut = (fork(moment, [], futures=2, ticks=100) for moment in (morning, Moment(morning.config, arrays)))
    assert cut.effects == whole.effects


def test_a_snapshot_forks_like_the_scenario_it_was_taken_from(morning: Moment, tmp_path: Path) -> None:
    vec = VectorTown(morning.config, 1)
    vec.restore(morning.arrays)
    save_snapshot(take_snapshot(vec), tmp_path / "morning.npz")
    kept = moment_of_snapshot(tmp_path / "morning.npz")
    edits = ["conflict.quarrel_ticks = 30"]
    a, b = (fork(moment, edits, futures=2, ticks=100) for moment in (morning, kept))
    assert a == b
    with pytest.raises(UsageError, match="there is no town 3"):
        moment_of_snapshot(tmp_path / "morning.npz", 3)


def test_the_example_of_the_readme_helps() -> None:
    """One more stove where it is wanted: fewer conflicts, clear of zero."""
    readme = (ROOT / "README.md").read_text()
    line = next(line for line in readme.splitlines() if line.startswith("townlet fork ")).partition("#")[0]
    words = shlex.split(line)[2:]
    given = dict(zip(words[1::2], words[2::2]))
    moment = moment_of_scenario(words[0], tick_of(load_config(words[0]), given["--at"]))
    result = fork(moment, [given["--edit"]], futures=int(given["--futures"]), ticks=int(given["--ticks"]))
    assert result.effects["conflicts"].effect.high < 0
