"""`townlet observe`: the town in the browser."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from townlet.cli.common import FILE, POLICY, PathType, Whole, note, overwrite_option, seed_option, set_option
from townlet.errors import UsageError
from townlet.signals import ctrl_c_raises

if TYPE_CHECKING:
    from townlet.observer.app import Observatory
    from townlet.observer.library import Library
    from townlet.observer.studio import Studio


@click.command()
@click.argument("what", default="town_day", metavar="[SCENARIO|RUN|TAKE|SNAPSHOT|CHECKPOINT]")
@click.option("--policy", help="Who decides: " + POLICY)
@click.option("--vs", help="Show a second day beside it, with this policy.")
@click.option("--port", type=Whole(0, 65535), default=0, show_default="any free one", help="Port to listen on.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; by default only this machine can connect."
)
@click.option(
    "--runs",
    type=PathType(path_type=Path, file_okay=False),
    default=Path("runs"),
    show_default=True,
    help="Folder of the runs to show.",
)
@click.option("--no-open", is_flag=True, help="Print the address and open no browser.")
@click.option("--save", type=FILE, metavar="FILE.html", help="Write one HTML file that needs no server, then exit.")
@click.option("--no-engine", is_flag=True, help="With --save: write a film even if the town could run in the page.")
@overwrite_option
@seed_option
@set_option
def observe(
    what: str,
    policy: str | None,
    vs: str | None,
    port: int,
    host: str,
    runs: Path,
    no_open: bool,
    save: Path | None,
    no_engine: bool,
    overwrite: bool,
    seed: int | None,
    overrides: tuple[str, ...],
) -> None:
    """Open a town in the browser: a scenario, a run's trained town, a take, a snapshot or a checkpoint.

    Two addresses are printed: one for you, and one to give to people who may only watch. Ctrl-C ends the server.

    \b
    Examples:
      townlet observe town_day
      townlet observe runs/demo --vs scripted
      townlet observe quarrel.take --no-open --port 8080
      townlet observe town_day --vs random --save town.html
    """
    from townlet.files import check_free
    from townlet.optional import check_installed

    if save is not None:
        if save.suffix != ".html":
            raise UsageError(f"{save} is not a page; name it {save.with_suffix('.html')}")
        check_free(save, overwrite)
        studio, _, takes = _open(what, runs, policy=policy, vs=vs, seed=seed, overrides=overrides)
        _save(studio, takes, save, no_engine)
        return
    for name in ("starlette", "uvicorn"):
        check_installed(name, "the observer's server")
    from townlet.observer.app import LOOPBACK, in_address, serve

    observatory = open_observatory(what, runs, policy=policy, vs=vs, seed=seed, overrides=overrides)

    def ready(bound: int, stop: Callable[[], None]) -> None:
        address = f"http://{in_address(host)}:{bound}/?token="
        click.echo(observatory.studio.known(str(observatory.open["take"])).title)
        click.echo(f"open        {address}{observatory.act_token}")
        click.echo(f"watch only  {address}{observatory.watch_token}")
        if host not in LOOPBACK:
            note(f"anyone who reaches {host} and has an address can watch, over plain HTTP; Ctrl-C ends it")
        if not no_open and _has_screen():
            webbrowser.open(address + observatory.act_token)

    try:
        with ctrl_c_raises():
            serve(observatory, host, port, ready=ready)
    except KeyboardInterrupt:
        note("closed")


def _save(studio: Studio, takes: list[str], path: Path, filmed: bool) -> None:
    from townlet.observer.living import file_parts
    from townlet.observer.standalone import write_page

    carried = file_parts(studio, takes, filmed=filmed)
    size = write_page(path, *carried)
    kind = "the town itself, which runs in the page" if carried.lives else "a film"
    click.echo(f"→ {path} ({size / 1000:,.0f} kB: {kind})")


def _open(
    what: str, runs: Path, *, policy: str | None, vs: str | None, seed: int | None, overrides: tuple[str, ...]
) -> tuple[Studio, Library, list[str]]:
    """What was asked for as a take, and the second take beside it; no server is needed for that."""
    from townlet.config.loader import default_config
    from townlet.observer.library import Library
    from townlet.observer.open_take import open_takes
    from townlet.observer.studio import Studio
    from townlet.policy.training.run_folder import RunFolder

    promotion = default_config().promotion
    library = Library(Path(what).parent if RunFolder(Path(what)).exists else runs, Path(promotion.ledger), promotion)
    studio = Studio(library.find_policy)
    return studio, library, open_takes(studio, what, policy=policy, vs=vs, seed=seed, overrides=overrides)


def open_observatory(
    what: str,
    runs: Path,
    *,
    policy: str | None = None,
    vs: str | None = None,
    seed: int | None = None,
    overrides: tuple[str, ...] = (),
) -> Observatory:
    """Everything a server shows, with what was asked for open in it."""
    from townlet.observer.app import Observatory
    from townlet.observer.library import run_id
    from townlet.policy.training.run_folder import RunFolder

    studio, library, takes = _open(what, runs, policy=policy, vs=vs, seed=seed, overrides=overrides)
    run = run_id(Path(what)) if RunFolder(Path(what)).exists else None
    return Observatory(studio, library, futures, open={"take": takes[0], "vs": takes[1] if vs else None, "run": run})


def futures(studio: Studio, take: str, at: int, edits: list[str], count: int) -> dict[str, object]:
    """Many futures of a moment of a take, as it was and edited: `townlet fork`."""
    from townlet.studies.fork import Moment, fork

    stage = studio.stage(take)
    stage.go(stage.under_way(at))
    moment = Moment(stage.vec.config, stage.vec.save())
    return fork(moment, edits, futures=count, policy=studio.policy_spec(take)).model_dump(mode="json")


def _has_screen() -> bool:
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
