"""Threads that share work."""

from __future__ import annotations

import os
import pickle
import signal
from functools import partial
from threading import Thread

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


def test_two_who_share_the_threads_get_their_own_errors() -> None:
    """An error of a job comes back to whoever gave the job, also where another thread gives jobs to the same pool meanwhile."""
    found = list[str]()

    def give(word: str) -> None:
        for _ in range(50):
            with pytest.raises(ValueError, match=word):
                Threads(2).run([lambda: None, partial(fail, word)])
        found.append(word)

    def fail(word: str) -> None:
        raise ValueError(word)

    givers = [Thread(target=give, args=(word,)) for word in ("one", "other")]
    for giver in givers:
        giver.start()
    for giver in givers:
        giver.join()
    assert sorted(found) == ["one", "other"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_has_threads_of_its_own() -> None:
    done = list[int]()
    Threads(2).run([partial(done.append, 0), partial(done.append, 1)])
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        Threads(2).run([partial(done.append, 2), partial(done.append, 3)])
        os._exit(0 if sorted(done) == [0, 1, 2, 3] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_towns_of_one_thread_can_be_pickled() -> None:
    """SuperSuit and others send environments to processes."""
    vec = VectorTown("town_day", 2)
    assert pickle.loads(pickle.dumps(vec)).digest() == vec.digest()
