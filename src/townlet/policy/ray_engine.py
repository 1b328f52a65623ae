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
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from townlet.config.learning import ClusterConfig, TrainingConfig
from townlet.errors import ClusterError
from townlet.files import sha256_file, short_hash
from townlet.optional import require, versions
from townlet.policy.workers import PATIENCE, Answer, Host, Worker, WorkerDied
from townlet.signals import SIGNALS
from townlet.threads import own_cores
from townlet.types import Record

log = logging.getLogger("townlet.cluster")
ANSWERS_WITHIN = 5.0  # seconds a cluster has to accept a connection
LOOK_EVERY = 1.0  # seconds between two looks whether it still does
GIVEN_UP = 30.0  # seconds without an answer of its head; after 60 Ray would end this process without a word
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
            if not self._ray.is_initialized():
                _knock(address)
                try:
                    self._ray.init(**options)
                except (ConnectionError, ValueError, RuntimeError, self._ray.exceptions.RayError) as error:
                    raise ClusterError(
                        f"the Ray cluster at {address} refuses the connection ({_why(error)}); {TOKEN}{REMEDY}"
                    ) from error
        self._watch = ClusterWatch(self._ray)

    def worker(self, make: Callable[..., object], *args: object) -> Worker:
        self._watch.wait_for_head()
        return RayWorker(self._ray, self._watch, self.cluster, make, args)

    def share(self, value: object) -> Any:
        self._watch.look()
        return self._ray.put(value)

    def cores(self) -> int:
        return max(1, int(self._ray.cluster_resources().get("CPU", 1) / self.cluster.cpus))


class ClusterWatch:
    """Looks whether the cluster is still there: Ray ends a process that has lost its node without a word."""

    def __init__(self, ray: Any) -> None:
        context = ray.get_runtime_context()
        (node,) = (node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
        self.head, self.node = context.gcs_address, f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}"
        self._looked, self._silent_since = time.monotonic(), math.inf

    def look(self) -> None:
        """Raise where this process has lost its node, or the head has been silent for too long."""
        self._looked = time.monotonic()
        if isinstance(_try_to_reach(self.node), ConnectionRefusedError):
            raise ClusterError(f"the node of this process in the Ray cluster ({self.node}) has ended; {AGAIN}")
        self._silent_since = math.inf if self.head_answers() else min(self._silent_since, self._looked)
        if time.monotonic() - self._silent_since > GIVEN_UP:
            raise ClusterError(f"the head of the Ray cluster at {self.head} has not answered for {GIVEN_UP:.0f} seconds; {AGAIN}")

    def head_answers(self) -> bool:
        """To be known before Ray is asked for what only the head can give: it waits, and ends this process after a minute."""
        return _try_to_reach(self.head) is None

    def wait_for_head(self) -> None:
        self.look()
        while self._silent_since < math.inf:
            time.sleep(LOOK_EVERY)
            self.look()

    def look_now_and_then(self) -> None:
        if time.monotonic() - self._looked > LOOK_EVERY:
            self.look()


class RayWorker:
    """The object lives in an actor somewhere in the cluster."""

    def __init__(
        self, ray: Any, watch: ClusterWatch, cluster: ClusterConfig, make: Callable[..., object], args: tuple[object, ...]
    ) -> None:
        self._ray, self._watch = ray, watch
        self.actor = ray.remote(_Actor).options(**actor_options(cluster)).remote()
        self.placed = self.actor.place.remote(_made_with())
        self.actor.hold.remote(make, args)
        self._asked: Any = self.placed
        self._since, self._told = time.monotonic(), False

    def begin(self, method: Callable[..., object], *args: object) -> None:
        self._asked = self.actor.call.remote(method, *args)

    def ready(self, timeout: float) -> bool:
        self._watch.look_now_and_then()
        found = bool(self._ray.wait([self._asked], timeout=timeout, fetch_local=False)[0])
        if not found and not self._told and time.monotonic() - self._since > SAY_AFTER and self._watch.head_answers():
            self._told = True
            if not self._ray.wait([self.placed], timeout=0)[0]:
                free = {name: amount for name, amount in self._ray.available_resources().items() if name in ("CPU", "memory")}
                log.warning("a worker has not started yet; free in the cluster: %s", free or "nothing")
        return found

    def result(self) -> Any:
        while not self.ready(1.0):
            pass  # signals are answered in between
        self._watch.look()
        try:
            host, _, apart = self._ray.get(self.placed)  # first: a node with other sources may not even read what it is asked
            if apart:
                raise ClusterError(f"the node {host} has other versions ({apart}); install the same on all nodes")
            found: Answer = Answer(*deepcopy(self._ray.get(self._asked)))  # the store's own arrays must not outlive their node
        except self._ray.exceptions.RayError as error:
            raise WorkerDied(f"a worker in the cluster ended in the middle ({_why(error)}); start it again") from error
        return found.get()

    def stop(self) -> None:
        """Nothing to do: its runs go on from their last checkpoints."""

    def close(self, patience: float = PATIENCE) -> None:
        self._ray.kill(self.actor)


class _Actor:
    """The object of a worker on a node, and what the node has to say about itself."""

    def hold(self, make: Callable[..., object], args: tuple[object, ...]) -> None:
        self._host = Host(make, args)

    def place(self, made_with: dict[str, str]) -> tuple[str, int, str]:
        """Name of the node, process, and which versions are others there than those of the owner."""
        others = {name: found for name, found in _made_with().items() if made_with.get(name) != found}
        apart = [f"{name} {found} there, {made_with.get(name, 'none')} here" for name, found in others.items()]
        return socket.gethostname(), os.getpid(), ", ".join(apart)

    def call(self, method: Callable[..., object], *args: object) -> tuple[Any, str, int]:
        return tuple(self._host.answer(method, args))


TOKEN = "if it asks for a token, set RAY_AUTH_MODE=token; else "
REMEDY = "start it, or name another with --address; without one, and without RAY_ADDRESS, a cluster is started on this machine"
AGAIN = "start it and run the command again (a training: with --resume), or go on without it (--engine local)"


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


@cache
def _made_with() -> dict[str, str]:
    """Versions that results may depend on; the sources tell two trees of one version apart."""
    package = Path(__file__).parents[1]
    sources = "\n".join(f"{path.relative_to(package)} {sha256_file(path)}" for path in sorted(package.rglob("*.py")))
    return versions("numpy", "numba") | {"sources": short_hash(sources)}


def _knock(address: str) -> None:
    """Whether anybody listens there: Ray itself would wait for a minute."""
    if address in (OWN, "auto"):
        return
    try:
        error = _try_to_reach(address.removeprefix("ray://"))
    except ValueError:
        raise ClusterError(f"{address!r} is not an address of a Ray cluster; expected HOST:PORT, such as 10.0.0.4:6379") from None
    if error is not None:
        raise ClusterError(f"no Ray cluster answers at {address} ({error.strerror or error}); {REMEDY}") from error


def _try_to_reach(address: str) -> OSError | None:
    """Why nobody answers at HOST:PORT; None where somebody does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWERS_WITHIN).close()
    except OSError as error:
        return error
    return None


def _why(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    told = lines[-1] if "ray::" in lines[0] else lines[0]  # a traceback from a node ends with what is wrong there
    return told.partition(". ")[0].removesuffix(".")


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
