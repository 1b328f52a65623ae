"""The engine is the town: the same digests natively and in Node, for every policy; what is not the same is noticed."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from engine_tools import digests_in_node, native_digests, runs_of, some_network, write_runs
from places import ROOT
from townlet.config.loader import shipped_configs
from townlet.engine.module import engine_module, module_path
from townlet.engine.network import KernelNetwork
from townlet.envs.vector import VectorTown
from townlet.policy.runtime import make_policy
from townlet.world import _cache
from townlet.world.rng import _UNIT

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


@needs_node
def test_node_ends_with_the_digest_of_the_native_town(tmp_path: Path) -> None:
    runs = runs_of(["town_day", "newcomer"], [3, 8], 60)
    runs.append({"town": "town_day", "policy": "random", "seeds": [5], "decisions": 60})
    write_runs(tmp_path, engine_module(), runs)
    found = digests_in_node(tmp_path)
    assert found == native_digests(runs)
    assert len(set(found)) == len(found)


def test_the_digests_that_are_committed_are_equal_and_those_of_this_town() -> None:
    rows = json.loads((ROOT / "benchmarks/page/digests.json").read_text())["rows"]
    assert {row["town"] for row in rows} == set(shipped_configs())
    assert [row for row in rows if not row["native"] == row["node"] == row["chromium"]] == []
    small = {row["policy"]: row for row in rows if row["town"] == "newcomer" and row["seed"] == 1}
    runs = runs_of(["newcomer"], [1], small["scripted"]["decisions"])
    assert native_digests(runs) == [small[run["policy"]]["native"] for run in runs]


@needs_node
def test_a_kernel_with_one_constant_changed_is_noticed(tmp_path: Path) -> None:
    module = engine_module()
    unit = b"\x44" + struct.pack("<d", _UNIT)  # f64.const: what makes a draw of 53 bits
    assert unit in module
    changed = module.replace(unit, b"\x44" + struct.pack("<d", _UNIT * (1 + 2**-52)))
    runs = [{"town": "newcomer", "policy": "random", "seeds": [3], "decisions": 60}]
    write_runs(tmp_path, changed, runs)
    assert digests_in_node(tmp_path) != native_digests(runs)


def test_the_module_is_kept_by_the_text_of_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an edit another one is looked for, so a stale one is never found (`test_kernel_cache` has the edits)."""
    here = module_path()
    assert here.parent == _cache.cache_folder()
    monkeypatch.setattr(_cache, "_version", lambda: "another")
    assert not module_path().exists()
    assert module_path().name == here.name


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_the_kernel_of_a_network_decides_as_numpy_does(activation: str) -> None:
    vec = VectorTown("town_day", 1, seed=3)
    network, chance = some_network(vec, activation), make_policy("random", vec, seed=3)
    kernel = KernelNetwork(network)
    same = total = 0
    for k in range(40):
        features, masks, draws = vec.features[0], vec.masks[0], np.random.default_rng(k).random(vec.num_residents)
        expected, found = (one.act(features, None, masks, draws=draws) for one in (network, kernel))
        scale = float(np.abs(expected.values).max())  # sums run in another order: what is small by cancelling is less exact
        np.testing.assert_allclose(found.values, expected.values, rtol=1e-4, atol=1e-5 * scale)
        same, total = same + int((found.actions == expected.actions).sum()), total + found.actions.size
        agree = found.actions == expected.actions
        np.testing.assert_allclose(found.log_probs[agree], expected.log_probs[agree], rtol=1e-3, atol=1e-5)
        vec.step(chance.act(vec).actions)
    assert same >= total - 1  # a draw may lie between the two roundings of one distribution function
