"""Threads that share work."""

from __future__ import annotations

import os
import pickle
import signal
from threading import Thread

import numpy as np
import pytest

from townlet.envs.threads import SLOTS, Call, run_in_threads
from townlet.envs.vector import VectorTown
from townlet.types import Array
from townlet.world._jit import JIT, entry

JOBS, TIMES = 3, 200


@entry
def add(numbers: Array, at: int, added: float) -> None:
    numbers[at] += added


@entry
def double(numbers: Array, at: int) -> None:
    numbers[at] *= 2


@entry
def copy(numbers: Array, others: Array) -> None:
    for k in range(len(numbers)):
        numbers[k] = others[k]


@entry
def refuse(numbers: Array, at: int) -> None:
    if at < len(numbers):
        raise ValueError("no such number")


@entry
def total(numbers: Array) -> float:
    found = 0.0
    for number in numbers:
        found += number
    return found


def jobs(numbers: Array) -> list[list[Call]]:
    """Each thread has a number: one is added, then it is doubled."""
    return [[Call(add, (numbers, k, 1.0)), Call(double, (numbers, k))] for k in range(JOBS)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_every_call_is_made_in_order_with_its_own_arguments(dtype: type[np.generic]) -> None:
    numbers, expected = np.zeros(16 * JOBS, dtype), 0
    for _ in range(20):
        run_in_threads(JOBS, jobs(numbers))
        expected = 2 * (expected + 1)
        assert numbers[:JOBS].tolist() == [expected] * JOBS
        assert not numbers[JOBS:].any()


def test_a_job_may_have_many_calls_and_a_thread_many_jobs() -> None:
    numbers = np.zeros(2)
    for _ in range(5 * SLOTS):
        run_in_threads(2, [[Call(add, (numbers, k, 1.0))] * SLOTS for k in range(2)])
    assert numbers.tolist() == [5 * SLOTS**2] * 2
    if JIT:
        with pytest.raises(ValueError, match=f"a job of {SLOTS + 1} calls was given to a thread, whose box holds {SLOTS}"):
            run_in_threads(2, [[], [Call(add, (numbers, 1, 1.0))] * (SLOTS + 1)])


def test_arguments_may_be_of_one_type_and_the_same_entry_of_several() -> None:
    for dtype in (np.float64, np.float32, np.int64):
        here, there, given = np.zeros((2, 3), dtype), np.zeros(3, dtype), np.arange(3).astype(dtype)
        run_in_threads(2, [[Call(copy, (here[0], given))], [Call(copy, (there, given)), Call(copy, (here[1], there))]])
        assert here.tolist() == [[0, 1, 2]] * 2


@pytest.mark.skipif(not JIT, reason="what is not compiled is called here")
def test_what_returns_something_is_refused_and_the_threads_go_on() -> None:
    numbers = np.ones(2)
    with pytest.raises(TypeError, match="total returns float64, which nobody would receive"):
        run_in_threads(2, [[], [Call(total, (numbers,))]])
    run_in_threads(2, [[], [Call(add, (numbers, 1, 1.0))]])
    assert numbers.tolist() == [1, 2]


def test_an_error_here_waits_for_the_others() -> None:
    numbers = np.zeros(2)
    with pytest.raises(ZeroDivisionError):
        run_in_threads(2, [[Call(lambda: 1 // 0, ())], [Call(add, (numbers, 1, 1.0))]])
    assert numbers.tolist() == [0, 1 if JIT else 0]


@pytest.mark.skipif(not JIT, reason="what is not compiled is called here, and its own error is seen")
@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_there_is_raised_here_and_nothing_follows_it(failing: int) -> None:
    for _ in range(3):
        numbers = np.zeros(2)
        calls: list[Call] = [Call(add, (numbers, 1, 1.0))] * 3
        calls[failing] = Call(refuse, (numbers, 1))
        with pytest.raises(RuntimeError, match=r"^refuse raised an error in another thread"):
            run_in_threads(2, [[Call(add, (numbers, 0, 1.0))], calls])
        assert numbers.tolist() == [1, failing]
    with pytest.raises(ValueError, match="no such number"):
        refuse(numbers, 1)


def test_two_who_share_the_threads_get_all_their_work_done() -> None:
    """Whoever finds them busy works alone; nothing is done twice."""
    counted = [np.zeros(2), np.zeros(2)]

    def give(numbers: Array) -> None:
        for _ in range(TIMES):
            run_in_threads(2, [[Call(add, (numbers, k, 1.0))] for k in range(2)])

    givers = [Thread(target=give, args=(numbers,)) for numbers in counted]
    for giver in givers:
        giver.start()
    for giver in givers:
        giver.join()
    assert [numbers.tolist() for numbers in counted] == [[TIMES, TIMES]] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_has_threads_of_its_own() -> None:
    numbers = np.zeros(JOBS)
    run_in_threads(JOBS, jobs(numbers))
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        run_in_threads(JOBS, jobs(numbers))
        os._exit(0 if numbers.tolist() == [6.0] * JOBS else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_towns_of_one_thread_can_be_pickled() -> None:
    """SuperSuit and others send environments to processes."""
    vec = VectorTown("town_day", 2)
    assert pickle.loads(pickle.dumps(vec)).digest() == vec.digest()
