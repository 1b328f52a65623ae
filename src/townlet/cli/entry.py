"""The console command: answers signals before anything else is imported."""

from __future__ import annotations

from typing import NoReturn

from townlet import signals


def main() -> NoReturn:
    signals.answer()
    from townlet.cli.app import main as command

    command()
