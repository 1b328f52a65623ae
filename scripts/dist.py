#!/usr/bin/env python
"""A release: one version everywhere, wheel and source built, each installed where nothing of the tree is, the tour run with it.

The version stands in `townlet.__version__`, and nowhere else by hand: the package and CITATION.cff take it from there, and the
newest entry of CHANGELOG.md must be about it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import click

import townlet
from townlet.cli.app import run
from townlet.cli.common import note
from townlet.errors import UsageError
from townlet.files import write_text

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
CITED = re.compile(r"^version: (.*)$", re.MULTILINE)


def tour(readme: str) -> list[list[str]]:
    """The commands of the README's tour, in words."""
    block = re.search(r"^## A five-minute tour\n[^#]*?```bash\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    if block is None:
        raise UsageError("README.md has no block of commands under '## A five-minute tour'; the trial of a release follows it")
    return [shlex.split(line, comments=True) for line in block[1].splitlines() if line.strip()]


def check_version(changelog: str, citation: str, version: str = townlet.__version__) -> None:
    """Refuse a release whose papers are about another version."""
    newest = re.search(r"^## (\S+)", changelog, re.MULTILINE)
    if newest is None or newest[1] != version:
        found = "nothing" if newest is None else newest[1]
        raise UsageError(f"the newest entry of CHANGELOG.md is about {found}, the version is {version}; write the entry first")
    cited = CITED.search(citation)
    if cited is None or cited[1] != version:
        found = "nothing" if cited is None else cited[1]
        raise UsageError(f"CITATION.cff cites {found}, the version is {version}; write it with `python scripts/dist.py --cite`")


def build() -> tuple[Path, Path]:
    """The wheel and the source archive, alone in dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT)], check=True, stdout=subprocess.DEVNULL)
    return next(DIST.glob("*.whl")), next(DIST.glob("*.tar.gz"))


def try_out(archive: Path, commands: list[list[str]], site: Path | None) -> None:
    """Install one archive into an empty environment in a folder of its own, and follow the tour there.

    `site` is a folder of installed packages that are borrowed instead of downloading them.
    """
    with tempfile.TemporaryDirectory(prefix="townlet-") as place:
        home = Path(place) / "venv"
        venv.create(home, with_pip=True)
        python = home / "bin" / "python"
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        environment["PATH"] = f"{home / 'bin'}{os.pathsep}{environment['PATH']}"
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if site is None:
            install += ["-c", str(ROOT / "constraints.txt"), f"{archive}[ml,plot]"]
        else:
            packages = next((home / "lib").glob("python*/site-packages"))
            (packages / "borrowed.pth").write_text(f"{site}\n", encoding="utf-8")
            install += ["--no-deps", "--force-reinstall", str(archive)]
        subprocess.run(install, check=True, cwd=place, env=environment)
        where = "import townlet, sys; print(townlet.__file__); sys.exit(not townlet.__file__.startswith(sys.prefix))"
        subprocess.run([str(python), "-c", where], check=True, cwd=place, env=environment, stdout=subprocess.DEVNULL)
        for words in commands:
            note(f"{archive.name} $ {shlex.join(words)}")
            subprocess.run(words, check=True, cwd=place, env=environment, stdout=subprocess.DEVNULL)


@click.command()
@click.option("--cite", is_flag=True, help="Only write the version into CITATION.cff.")
@click.option("--short", is_flag=True, help="Follow only the first three commands of the tour.")
@click.option(
    "--site", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Borrow dependencies from this site-packages."
)
def dist(cite: bool, short: bool, site: Path | None) -> None:
    """Build the wheel and the source archive into dist/, and try both out where nothing of the tree is.

    \b
    Example:
      python scripts/dist.py
    """
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    if cite:
        write_text(ROOT / "CITATION.cff", CITED.sub(f"version: {townlet.__version__}", cited))
        return
    check_version((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), cited)
    commands = tour((ROOT / "README.md").read_text(encoding="utf-8"))
    for archive in build():
        try_out(archive.resolve(), commands[:3] if short else commands, None if site is None else site.resolve())
        note(f"{archive.relative_to(ROOT)} works where nothing of the tree is")


if __name__ == "__main__":
    run(dist, name="dist.py")
