"""The header of a snapshot: which town, at which moment, and how to know that it is whole."""

from __future__ import annotations

from pydantic import Field

from townlet.dto import Frozen

SNAPSHOT_SCHEMA = 2


class SnapshotHeader(Frozen):
    schema_version: int = Field(description="Version of the file.")
    townlet: str = Field(description="Version of Townlet that wrote it.")
    config_id: str
    config_hash: str = Field(description="Hash of the config; a snapshot continues only under the same one.")
    action_catalogue_hash: str
    config: dict[str, object] = Field(description="The whole config, resolved.")
    seed: int = Field(ge=0, lt=2**63)
    num_towns: int = Field(ge=1)
    start: str | None = Field(None, description="Clock time of an episode's first tick when it is not the scenario's, or random.")
    tick: int = Field(ge=0, description="Of the first town, since the start of its episode.")
    digest: str = Field(description="Of state, rewards, breakdown, events, observations and masks.")
    compressed: bool = Field(False, description="The arrays are deflated.")
    policy: str = Field("", description="Who decided, when it is known.")


class Divergence(Frozen):
    """One value in which two worlds differ."""

    town: int
    tick: int
    table: str = Field(description="residents, ties, objects, towns or grid; or decision.")
    resident: str | None = Field(None, description="Whose value, when it is a resident's.")
    object_id: str | None = None
    field: str
    a: object
    b: object
