"""`townlet config show | schema`."""

from __future__ import annotations

import click

from townlet.cli.common import Group, dumps, emit, json_option, set_option
from townlet.errors import UsageError


@click.group(cls=Group)
def config() -> None:
    """Look at configs: what a file means with everything it extends, and which keys there are.

    \b
    Examples:
      townlet config show town_day --set ppo.gamma=0.98 --section ppo
      townlet config schema --page > docs/config_reference.md
    """


@config.command()
@click.argument("source", metavar="CONFIG")
@click.option("--section", default=None, help="Only one section, such as ppo or conflict.rivalry.")
@click.option("--hash", "only_hash", is_flag=True, help="Only the hash; every file made with this config has it.")
@set_option
@json_option
def show(source: str, section: str | None, only_hash: bool, overrides: tuple[str, ...], as_json: bool) -> None:
    """Print CONFIG with all defaults. CONFIG is a file or a shipped name; what it extends is included.

    \b
    Example:
      townlet config show town_day --section conflict.rivalry
    """
    from townlet.config.loader import load_config, to_yaml
    from townlet.config.models import config_hash

    loaded = load_config(source, overrides)
    if only_hash:
        emit({"config_hash": config_hash(loaded)}, config_hash(loaded), as_json)
        return
    value = loaded.model_dump(mode="json")
    for part in section.split(".") if section else ():
        if not isinstance(value, dict) or part not in value:
            raise UsageError(f"there is no section {section!r} in the config; `townlet config schema` lists all keys")
        value = value[part]
    emit(value, lambda: to_yaml(value).rstrip("\n"), as_json)


@config.command()
@click.option("--page", is_flag=True, help="Print the reference page (Markdown) instead of a table.")
@json_option
def schema(page: bool, as_json: bool) -> None:
    """Print every key with its type, range, default and meaning. --json gives the JSON Schema.

    \b
    Example:
      townlet config schema --json > townlet.schema.json
    """
    from townlet.config.models import SimulationConfig
    from townlet.config.reference import keys, page_text

    if as_json:
        click.echo(dumps(SimulationConfig.model_json_schema()))
    elif page:
        click.echo(page_text(), nl=False)
    else:
        click.echo("\n".join(f"{key.path} = {key.default}  ({key.kind}): {key.meaning}" for key in keys()))
