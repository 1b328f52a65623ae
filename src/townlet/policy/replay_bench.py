"""What replay data costs: the rows of `townlet bench replay`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from townlet.envs.vector import VectorTown
from townlet.files import make_folder
from townlet.policy.generate import generated_sample, generated_source
from townlet.policy.manifest import PREFIX
from townlet.policy.replay import ReplayDataset, ReplayDatasetConfig
from townlet.policy.rollout import RolloutBuffer
from townlet.policy.runtime import PolicyRuntime, make_policy
from townlet.policy.shelf import Shelf
from townlet.sim.bench import calibration, row

STREAM_BAR, RECORD_BAR, WRITE_BAR = 0.8, 2.0, 150.0
BATCH = 8


def replay_rows(*, say: Callable[[str], None], samples: int = 256, repeats: int = 5) -> list[dict[str, Any]]:
    """Streaming against in-memory from opening to the last batch, recording against simulation, and writing."""
    rows = [row("calibration: additions in plain Python", calibration(), "1/s")]
    with tempfile.TemporaryDirectory() as place:
        say(f"{samples} samples written")
        folder = make_folder(Path(place) / "capture")
        source = generated_source()
        made = [generated_sample(source, number) for number in range(samples)]
        begin = perf_counter()
        shelf = Shelf(folder, PREFIX)
        for sample in made:
            shelf.put(sample)
        shelf.close()
        rows.append(row("writing samples", shelf.nbytes / 1e6 / (perf_counter() - begin), "MB/s", WRITE_BAR))
        say("read from the disk, and from memory")
        ratios = []
        for _ in range(repeats):
            spent = [_read(folder, streaming) for streaming in (False, True)]
            ratios.append(spent[0] / spent[1])
        rows.append(row("streaming over in-memory, from opening to the last batch", median(ratios), "×", STREAM_BAR))
    say("recording over simulation")
    rows.append(row("recording over simulation alone", _recording(repeats), "×", RECORD_BAR, smaller=True))
    return rows


def _read(folder: Path, streaming: bool) -> float:
    begin = perf_counter()
    for _ in ReplayDataset(ReplayDatasetConfig.from_capture_dir(folder, batch_size=BATCH, streaming=streaming)):
        pass
    return perf_counter() - begin


def _recording(repeats: int, steps: int = 72) -> float:
    """Time of a recorded stretch over that of the same stretch without a recorder."""
    ratios = []
    for _ in range(repeats):
        spent = []
        for records in (False, True):
            vec = VectorTown("town_day", 8)
            runtime = PolicyRuntime(vec, make_policy("scripted", vec))
            buffer = RolloutBuffer(vec, steps)
            begin = perf_counter()
            for _ in range(steps):
                runtime.step(buffer if records else None)
            spent.append(perf_counter() - begin)
        ratios.append(spent[1] / spent[0])
    return median(ratios)
