"""`import townlet`: what there is can be seen, and nothing is paid for before it is used."""

from __future__ import annotations

import pydoc
import subprocess
import sys

import pytest

import townlet


def test_dir_and_help_show_everything_there_is() -> None:
    assert set(townlet.__all__) == {*townlet._LAZY, "__version__"} <= set(dir(townlet))
    page = pydoc.plain(pydoc.render_doc(townlet))
    for name in townlet._LAZY:
        assert name in townlet.__doc__ or name[0].isupper()
        assert f"{name}(" in page, f"help(townlet) does not show {name}"
        assert vars(townlet).get(name) is None, "a name is looked up, never copied"
        assert getattr(townlet, name).__doc__


def test_a_wrong_name_is_answered_with_the_right_ones() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'loadrun'; it has .*load_run"):
        townlet.loadrun  # noqa: B018


def test_importing_townlet_imports_no_library() -> None:
    code = "import sys, townlet; dir(townlet); print(sorted({'numpy', 'numba', 'pydantic', 'click', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_town_says_what_it_is() -> None:
    vec = townlet.make_vec("queue_conflict", 2, seed=4)
    assert repr(vec) == (
        f"<VectorTown queue_conflict: 2 towns × 3 residents, {vec.features.shape[2]} features, {vec.num_actions} actions, "
        "seed 4, tick 0>"
    )
    config = townlet.load_config("queue_conflict", ["seed=4"])
    assert repr(config) == f"<SimulationConfig queue_conflict: episodes of {config.scenario.episode_ticks} ticks, seed 4>"
    assert "config_id='queue_conflict'" in str(config)
    env = townlet.parallel_env("queue_conflict", seed=4)
    env.reset()
    assert repr(env) == f"<TownParallelEnv queue_conflict: 3 of {len(env.possible_agents)} agents here>"
