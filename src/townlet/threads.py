"""How many threads: cores of this process, threads of NumPy's products. It is imported before NumPy."""

from __future__ import annotations

import os

MOST_THREADS = 64  # that share the towns of one process
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")  # the first that is set counts


def one_blas_thread() -> None:
    """For a command, before numpy is imported: one thread for NumPy's products, unless the user has set a number. The products
    are small; other threads would only spin beside them, which takes up to four times the processor time."""
    if not any(name in os.environ for name in BLAS_THREADS):
        os.environ[BLAS_THREADS[0]] = "1"


def own_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
