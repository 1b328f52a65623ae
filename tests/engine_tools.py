"""What tests of the engine share: towns, networks and the digests that the native town ends with.

python engine_tools.py TOWN POLICY SEED DECISIONS THREADS prints one, for tests that run it in another process
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from townlet.engine.image import town_image
from townlet.engine.network import KernelNetwork, make_network
from townlet.envs.vector import VectorTown
from townlet.observer import standalone
from townlet.policy.inference import NumpyPolicy, weight_shapes
from townlet.policy.network import NetworkSpec
from townlet.policy.runtime import NetworkPolicy, make_policy

PROGRAM = Path(__file__).parent / "engine" / "digests.mjs"
STATIC = Path(standalone.__file__).parent / "static"
IN_PAGE = """async () => {
  const [{ digestsOf }, { Engine }] = await Promise.all([import("./digests.mjs"), import("./engine.mjs")]);
  return digestsOf(Engine, async name => new Uint8Array(await (await fetch(name)).arrayBuffer()));
}"""


def some_network(vec: VectorTown, activation: str = "relu") -> NumpyPolicy:
    """An untrained network over a town's observations, with everything that a trained one may have."""
    spec = NetworkSpec(
        features=vec.features.shape[2],
        actions=vec.num_actions,
        conflict_columns=tuple(int(k) for k in vec.step_arguments(vec._no_targets, vec._no_targets)[5]),
        feature_size=24,
        conflict_size=9,
        trunk_sizes=(17, 12),
        activation=activation,
        normalize_observations=True,
    )
    luck = np.random.default_rng(5)
    weights = {name: luck.normal(0.0, 0.7, shape).astype(np.float32) for name, shape in weight_shapes(spec).items()}
    weights |= {name: np.abs(weights[name]) + 0.5 for name in ("observation_var", "value_var")}
    return NumpyPolicy(spec, weights)


def native_digest(name: str, policy: str, seed: int, decisions: int, threads: int = 1) -> str:
    """Of the first of as many towns as there are threads."""
    vec = VectorTown(name, threads, seed=seed, threads=threads)
    if policy == "network":
        chooser: Any = NetworkPolicy(KernelNetwork(some_network(vec)), seed)
        chooser.reset(vec)
    else:
        chooser = make_policy(policy, vec, seed=seed)
    for _ in range(decisions):
        vec.step(chooser.act(vec).actions)
    return vec.digest(0)


def write_image(folder: Path, name: str) -> None:
    vec = VectorTown(name, 1)
    image = town_image(vec, {"network": make_network(some_network(vec))})
    (folder / f"{name}.json").write_text(json.dumps(image.header))
    (folder / f"{name}.bin").write_bytes(image.data)


def write_runs(folder: Path, module: bytes, runs: Sequence[dict[str, Any]]) -> None:
    """A folder that Node or a browser simulates: the module, the towns' images, what to run, and the programs that do."""
    for name in {run["town"] for run in runs}:
        write_image(folder, name)
    (folder / "engine.wasm").write_bytes(module)
    (folder / "runs.json").write_text(json.dumps(runs))
    shutil.copy(STATIC / "engine.js", folder / "engine.mjs")
    shutil.copy(PROGRAM, folder)


def digests_in_node(folder: Path) -> list[str]:
    """The digest of each seed of each run of `write_runs`, simulated by Node."""
    command = ["node", str(folder / PROGRAM.name), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


class Quiet(SimpleHTTPRequestHandler):
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript"}

    def log_message(self, *_: object) -> None:
        """Nothing."""


def digests_in_chromium(browser: Any, folder: Path) -> list[str]:
    """The same by a page of that folder."""
    (folder / "index.html").write_text("<!doctype html><title>digests</title>")
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        found = page.evaluate(IN_PAGE)
        context.close()
        server.shutdown()
    return list(found)


def runs_of(towns: list[str], seeds: list[int], decisions: int) -> list[dict[str, Any]]:
    policies = ("scripted", "network")
    return [{"town": t, "policy": p, "seeds": seeds, "decisions": decisions} for t in towns for p in policies]


def native_digests(runs: Sequence[dict[str, Any]]) -> list[str]:
    return [native_digest(run["town"], run["policy"], seed, run["decisions"]) for run in runs for seed in run["seeds"]]


if __name__ == "__main__":
    print(native_digest(*sys.argv[1:3], *map(int, sys.argv[3:])))
