"""Ray, the engine for more than one machine: workers are actors, what many of them read goes through the object store.

Ray repeats nothing by itself: a lost actor, node or object is a `WorkerDied`, and the owner of the worker repeats its share.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from townlet.config.learning import ClusterConfig, TrainingConfig
from townlet.errors import ClusterError
from townlet.optional import require, versions
from townlet.policy.workers import PATIENCE, Answer, Host, Worker, WorkerDied
from townlet.signals import SIGNALS
from townlet.threads import own_cores
from townlet.types import Record

log = logging.getLogger("townlet.cluster")
ANSWERS_WITHIN = 5.0  # seconds a cluster has to accept a connection
SAY_AFTER = 20.0  # seconds without a place in the cluster
OWN = "local"  # address of a cluster that is started here
SETTINGS = {  # of Ray, unless somebody has set them: it tells nobody about us, and workers are no background work
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
}


class RayEngine:
    """Workers in the cluster of `training.cluster.address`, else of `RAY_ADDRESS`, else in one that is started on this machine
    and ends with this process."""

    def __init__(self, training: TrainingConfig) -> None:
        self.cluster, options = training.cluster, init_options(training)
        address = options["address"]
        with _our_signals():
            self._ray = _import_ray(own=address == OWN)
            if self._ray.is_initialized():
                return
            _knock(address)
            try:
                self._ray.init(**options)
            except (ConnectionError, ValueError, RuntimeError, self._ray.exceptions.RayError) as error:
                raise ClusterError(
                    f"The Ray cluster at {address} refuses the connection ({_why(error)}); {TOKEN}{REMEDY}"
                ) from error

    def worker(self, make: Callable[..., object], *args: object) -> Worker:
        return RayWorker(self._ray, self.cluster, make, args)

    def share(self, value: object) -> Any:
        return self._ray.put(value)

    def cores(self) -> int:
        return max(1, int(self._ray.cluster_resources().get("CPU", 1) / self.cluster.cpus))


class RayWorker:
    """The object lives in an actor somewhere in the cluster."""

    def __init__(self, ray: Any, cluster: ClusterConfig, make: Callable[..., object], args: tuple[object, ...]) -> None:
        self._ray = ray
        self.actor = ray.remote(_Actor).options(**actor_options(cluster)).remote(make, args, _made_with())
        self.placed = self.actor.place.remote()
        self._asked: Any = self.placed
        self._since, self._told = time.monotonic(), False

    def begin(self, method: Callable[..., object], *args: object) -> None:
        self._asked = self.actor.call.remote(method, *args)

    def ready(self, timeout: float) -> bool:
        found = bool(self._ray.wait([self._asked], timeout=timeout, fetch_local=False)[0])
        if not found and not self._told and time.monotonic() - self._since > SAY_AFTER:
            self._told = True
            if not self._ray.wait([self.placed], timeout=0)[0]:
                free = {name: amount for name, amount in self._ray.available_resources().items() if name in ("CPU", "memory")}
                log.warning("a worker has not started yet; free in the cluster: %s", free or "nothing")
        return found

    def result(self) -> Any:
        while not self.ready(1.0):
            pass  # signals are answered in between
        try:
            found: Answer = Answer(*self._ray.get(self._asked))
        except self._ray.exceptions.RayError as error:
            raise WorkerDied(f"A worker in the cluster ended in the middle ({_why(error)}); start it again.") from error
        return found.get()

    def stop(self) -> None:
        """Nothing to do: its runs go on from their last checkpoints."""

    def close(self, patience: float = PATIENCE) -> None:
        self._ray.kill(self.actor)


class _Actor(Host):
    """The object of a worker on a node, which must have the versions of the owner."""

    def __init__(self, make: Callable[..., object], args: tuple[object, ...], made_with: dict[str, str]) -> None:
        super().__init__(make, args)
        here = _made_with()
        apart = [f"{name} {here[name]} there, {made_with[name]} here" for name in here if here[name] != made_with[name]]
        self._refusal = f"A node of the cluster has other versions ({', '.join(apart)}); install the same." if apart else ""

    def place(self) -> tuple[str, int]:
        return socket.gethostname(), os.getpid()

    def call(self, method: Callable[..., object], *args: object) -> tuple[Any, str, int]:
        return tuple(Answer(None, self._refusal, ClusterError.exit_code) if self._refusal else self.answer(method, args))


TOKEN = "if it asks for a token, set RAY_AUTH_MODE=token; else "
REMEDY = "start it, or name another with --address; without one, and without RAY_ADDRESS, a cluster is started on this machine."


def init_options(training: TrainingConfig) -> Record:
    """How to join the cluster, or to start one with room for all workers."""
    cluster = training.cluster
    address = cluster.address or os.environ.get("RAY_ADDRESS", OWN)
    options: Record = {"address": address, "log_to_driver": cluster.logs, "logging_level": "error"}
    if address != OWN:
        return options
    workers = max(training.workers, own_cores())
    resources = {name: amount * workers for name, amount in cluster.resources.items()}
    return options | {"num_cpus": math.ceil(workers * cluster.cpus), "resources": resources, "include_dashboard": False}


def actor_options(cluster: ClusterConfig) -> Record:
    """What a worker reserves, and where it may stand."""
    return {
        "num_cpus": cluster.cpus,
        "memory": None if cluster.memory_mb is None else cluster.memory_mb << 20,
        "resources": dict(cluster.resources),
        "scheduling_strategy": "SPREAD" if cluster.placement == "spread" else "DEFAULT",
        "max_restarts": 0,
    }


def _import_ray(*, own: bool) -> Any:
    """Ray reads its environment when it is imported, and nodes that are started later inherit it: where this process is in a
    cluster already, it stays as it is. A cluster of our own asks for a token that nobody else knows."""
    if (running := sys.modules.get("ray")) is not None and running.is_initialized():
        return running
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if own and "RAY_AUTH_MODE" not in os.environ:
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    return require("ray", "The engine ray")


def _made_with() -> dict[str, str]:
    """Versions that results may depend on."""
    return versions("numpy", "numba")


def _knock(address: str) -> None:
    """Whether anybody listens there: Ray itself would wait for a minute."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address in (OWN, "auto"):
        return
    try:
        number = int(port)
        socket.create_connection((host.strip("[]"), number), timeout=ANSWERS_WITHIN).close()
    except ValueError:
        raise ClusterError(
            f"{address!r} is not an address of a Ray cluster; expected HOST:PORT, such as 10.0.0.4:6379."
        ) from None
    except OSError as error:
        raise ClusterError(f"No Ray cluster answers at {address} ({error.strerror or error}); {REMEDY}") from error


def _why(error: BaseException) -> str:
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return first.partition(". ")[0].removesuffix(".")


@contextmanager
def _our_signals() -> Iterator[None]:
    """Ray sets answers to signals of its own; ours are put back."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in SIGNALS} if main else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
