"""What a page carries to simulate its town itself: engine, image, and what its words and changes need to know of the town."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Collection, Sequence
from typing import NamedTuple

from townlet import __version__
from townlet.engine.image import MOST_IMAGE, town_image
from townlet.engine.module import engine_module
from townlet.engine.network import KernelNetwork, runs_in_the_kernel
from townlet.envs.vector import VectorTown
from townlet.observer.changeable import rules_to_change
from townlet.observer.standalone import film_parts
from townlet.observer.story import MOMENTS
from townlet.observer.studio import Studio
from townlet.observer.take import RECORDED
from townlet.policy.runtime import NetworkPolicy, load_network
from townlet.sim.edits import RICHEST, TIE_FIELDS
from townlet.types import Record
from townlet.world.actions import FIRST_AFFORDANCE, FIRST_INTERACT
from townlet.world.state import HALF_DISTANCE, HALF_QUEUE, MAX_MEALS, MONEY, TERMS

MOST_BESIDE = 8  # takes that a server sends to live in one page


class Carried(NamedTuple):
    """What `standalone.page_html` is given: what there is to tell, and in a living file the engine and a town's image."""

    parts: Record
    blobs: dict[str, bytes]

    @property
    def lives(self) -> bool:
        return bool(self.blobs)


def file_parts(studio: Studio, takes: Sequence[str], *, filmed: bool = False) -> Carried:
    """A file in which the takes live, or, where that is not asked for or cannot be, are filmed."""
    living = None if filmed else living_parts(studio, takes)
    if living is None:
        return Carried(film_parts(studio, takes), {})
    return living._replace(blobs={"engine": engine_module(), **living.blobs})


def living_parts(studio: Studio, takes: Sequence[str], rules: list[Record] | None = None) -> Carried | None:
    """The parts of a file in which these takes live; None where their town is too large for a page, or made by the server.

    `rules` are those of `rules_to_change`, where somebody has them: they take seconds to find.
    """
    first = studio.known(takes[0]).take
    if not all(studio.known(name).header["lives"] for name in takes):
        return None
    vec = studio.town(first)
    networks = {}
    for name in takes:
        policy = studio.known(name).take.policy
        folder = studio.checkpoint(policy)
        if folder is not None:
            network = load_network(folder, vec)
            if runs_in_the_kernel(network.spec):
                networks[policy] = KernelNetwork(network)
    scheduled = vec.tables.scheduled.shape[1]
    image = town_image(vec, {name: one.network for name, one in networks.items()}, seed=first.seed)
    if len(image.data) > MOST_IMAGE:
        return None
    heads = [_head(studio, name, networks, image.header["policies"]) for name in takes]
    living = {
        "image": image.header,
        "digests": {head["id"]: head.pop("digest") for head in heads},
        "scheduled": scheduled,
        "rules": rules_to_change(vec.config, vec) if rules is None else rules,
        "moments": MOMENTS,
        **_knowledge(vec),
    }
    known = {one["id"]: one["name"] for one in studio.policies}
    about = {
        "version": __version__,
        "role": "act",
        "policies": [{"id": name, "name": known.get(name, name)} for name in image.header["policies"]],
        "towns": [],
    }
    parts = {"about": about, "open": {"take": takes[0], "vs": (*takes, None)[1], "run": None}, "living": living, "takes": heads}
    return Carried(parts, {"image": image.data})


def beside(studio: Studio, name: str) -> list[str]:
    """A take, and before others those of the same town and morning that can live beside it."""

    def morning(one: str) -> tuple[str, int, str | None]:
        take = studio.known(one).take
        return take.config, take.seed, take.start

    others = [one for one in studio.takes if one != name and morning(one) == morning(name)]
    return [name, *(one for one in others if studio.known(one).header["lives"])][:MOST_BESIDE]


def packed(carried: Carried) -> bytes:
    """What lives, for `served.js`: the size of its description, the description, the image; deflated."""
    told = json.dumps(carried.parts, separators=(",", ":"), allow_nan=False).encode()
    return zlib.compress(struct.pack("<I", len(told)) + told + carried.blobs["image"], 6)


def _head(studio: Studio, name: str, networks: dict[str, KernelNetwork], policies: Collection[str]) -> Record:
    """A take's header, with the digest it ends with, and its decisions where no policy of the engine makes them."""
    known = studio.known(name)
    take, head = known.take, Record(known.header)
    network = networks.get(take.policy)

    def by_kernel(vec: VectorTown) -> NetworkPolicy:
        assert network is not None
        policy = NetworkPolicy(network, take.seed, kind="checkpoint")
        policy.reset(vec)
        return policy

    stage = studio.new_stage(take, None if network is None else by_kernel)
    while stage.at < stage.decisions:
        stage.shoot()
    head["digest"] = stage.vec.digest()
    if network is not None:
        head["values"] = network.spec.town_size == 0
    elif take.policy not in policies:
        head["played"] = studio.decisions(name).text()
        head["values"] = False
    if not head["values"]:
        columns = head["columns"]
        head["columns"] = columns | {"decisions": [one for one in columns["decisions"] if one["name"] != "value"]}
    return head


def _knowledge(vec: VectorTown) -> Record:
    """What the page needs to explain reasons and to offer changes."""
    specs = vec.config.affordances.specs
    return {
        "money": MONEY,
        "richest": RICHEST,
        "max_meals": MAX_MEALS,
        "half_distance": HALF_DISTANCE,
        "half_queue": HALF_QUEUE,
        "tie_fields": TIE_FIELDS,
        "terms": TERMS,
        "primitive": vec.primitive,
        "nearest": vec.catalogue.level == "candidates",
        "recorded": RECORDED,
        "first_use": FIRST_INTERACT if vec.primitive else FIRST_AFFORDANCE,
        "uses_each": vec.catalogue.per_affordance,
        "features": [{"name": field.name, "group": field.group} for field in vec.spec.fields],
        "affordances": [
            {
                "id": spec.id,
                "objects": spec.objects,
                "own_home": spec.own_home,
                "requires": spec.requires,
                "hours": spec.hours,
                "takes_meals": spec.takes_meals,
                "gives_meals": spec.gives_meals,
            }
            for spec in specs
        ],
    }
