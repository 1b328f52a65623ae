"""A chain of digests of one town, printed: run by the tests in another process, also uncompiled.

python digest_run.py SCENARIO DECISIONS [override …]
"""

from __future__ import annotations

import hashlib
import sys

import numpy as np

from townlet.config.loader import load_config
from townlet.envs.vector import VectorTown
from townlet.world.rng import PICK


def chain(vec: VectorTown, decisions: int, town: int = 0) -> str:
    """Hash over the digests of one town after every decision; its actions come from its own draws."""
    digest = hashlib.sha256()
    for _ in range(decisions):
        draws = vec.draws(PICK)
        legal = vec.masks.sum(axis=-1, dtype=np.int64)
        nth = (draws * legal).astype(np.int64)
        vec.step(np.argmax(np.cumsum(vec.masks, axis=-1, dtype=np.int64) > nth[..., None], axis=-1))
        digest.update(vec.digest(town).encode())
    return digest.hexdigest()


if __name__ == "__main__":
    scenario, decisions, *overrides = sys.argv[1:]
    print(chain(VectorTown(load_config(scenario, overrides), 1, seed=3), int(decisions)))
