"""Environments. Importing this package registers `Townlet/<Scenario>-v0` with Gymnasium for every shipped scenario.

Nothing is read or compiled until one is made: `gymnasium.make("Townlet/TownDay-v0")`.
"""

from __future__ import annotations

from gymnasium.envs.registration import register, registry

from townlet.config.loader import shipped_configs


def environment_id(scenario: str) -> str:
    """town_day → Townlet/TownDay-v0"""
    return f"Townlet/{''.join(word.capitalize() for word in scenario.split('_'))}-v0"


for _name in shipped_configs():
    if environment_id(_name) not in registry:
        register(environment_id(_name), entry_point="townlet.envs.gym:ResidentEnv", kwargs={"scenario": _name})
