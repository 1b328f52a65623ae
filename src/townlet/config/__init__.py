"""The config: `load_config(path_or_name, overrides)` and the models it returns."""

from townlet.config.learning import PPOConfig
from townlet.config.loader import load_config
from townlet.config.models import SimulationConfig, config_hash

__all__ = ["PPOConfig", "SimulationConfig", "config_hash", "load_config"]
