"""What a page carries to simulate its town itself: engine, image, and what its words and changes need to know of the town."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from townlet import __version__
from townlet.engine.image import town_image
from townlet.engine.module import engine_module
from townlet.engine.network import KernelNetwork, runs_in_the_kernel
from townlet.envs.vector import VectorTown
from townlet.observer.changeable import rules_to_change
from townlet.observer.standalone import film_parts
from townlet.observer.story import MOMENTS
from townlet.observer.studio import Studio
from townlet.observer.take import RECORDED
from townlet.policy.runtime import NetworkPolicy, load_network
from townlet.sim.edits import RICHEST, TIE_FIELDS, ConfigEdit, parse_edit
from townlet.world.actions import FIRST_AFFORDANCE, FIRST_INTERACT
from townlet.world.state import HALF_DISTANCE, MAX_MEALS, MONEY, TERMS

MOST_IMAGE = 4 << 20  # bytes; a larger town is filmed


class Carried(NamedTuple):
    """What `standalone.page_html` is given."""

    parts: dict[str, Any]
    blobs: dict[str, bytes]

    @property
    def lives(self) -> bool:
        return bool(self.blobs)


def file_parts(studio: Studio, takes: Sequence[str], *, filmed: bool = False) -> Carried:
    """A file in which the takes live, or, where that is not asked for or cannot be, are filmed."""
    living = None if filmed else living_parts(studio, takes)
    return Carried(film_parts(studio, takes), {}) if living is None else living


def living_parts(studio: Studio, takes: Sequence[str]) -> Carried | None:
    """The parts of a file in which these takes live; None where their town is too large for a page, or made by the server."""
    first = studio.known(takes[0]).take
    if any(_is_made_by_the_server(studio, name) for name in takes):
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
        "rules": rules_to_change(vec.config, vec),
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
    return Carried(parts, {"engine": zlib.compress(engine_module(), 9), "image": zlib.compress(image.data, 9)})


def _is_made_by_the_server(studio: Studio, name: str) -> bool:
    """Another config from some minute on: the page cannot compile one."""
    return any(isinstance(parse_edit(change.do), ConfigEdit) for change in studio.known(name).take.changes)


def _head(studio: Studio, name: str, networks: dict[str, KernelNetwork], policies: Collection[str]) -> dict[str, Any]:
    """A take's header, with the digest it ends with, and its decisions where no policy of the engine makes them."""
    known = studio.known(name)
    take, head = known.take, dict(known.header)
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


def _knowledge(vec: VectorTown) -> dict[str, Any]:
    """What reasons and changes are told with."""
    specs = vec.config.affordances.specs
    return {
        "money": MONEY,
        "richest": RICHEST,
        "max_meals": MAX_MEALS,
        "half_distance": HALF_DISTANCE,
        "tie_fields": TIE_FIELDS,
        "terms": TERMS,
        "primitive": vec.primitive,
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
