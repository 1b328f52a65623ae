"""Threads that share work."""

from __future__ import annotations

import pickle
from functools import partial

import pytest

from townlet.envs.threads import Threads
from townlet.envs.vector import VectorTown


def test_every_job_is_done_and_an_error_comes_back() -> None:
    threads, done = Threads(3), list[int]()
    threads.run([partial(done.append, k) for k in range(3)])
    assert sorted(done) == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):
        threads.run([lambda: None, lambda: 1 // 0])
    threads.run([partial(done.append, 3)])
    assert done[-1] == 3


def test_towns_of_one_thread_can_be_pickled() -> None:
    """SuperSuit and others send environments to processes."""
    vec = VectorTown("town_day", 2)
    assert pickle.loads(pickle.dumps(vec)).digest() == vec.digest()
