"""`townlet ask`: questions about a town's day, answered in sentences or JSON."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING

import click

from townlet.cli.common import POLICY, Group, at_option, emit, json_option, options, seed_option, set_option

if TYPE_CHECKING:
    from townlet.observer.studio import Studio


@click.group(cls=Group)
def ask() -> None:
    """Ask about a day of a town: a scenario, a run, a take or a snapshot.

    \b
    Examples:
      townlet ask feuds rush_hour --at 08:00
      townlet ask worst rush_hour
      townlet ask why town_day alice use_shower --at 07:00
      townlet ask late town_day --policy random
      townlet ask differs town_day scripted random --at 07:00
    """


what_argument = click.argument("what", metavar="SCENARIO|RUN|TAKE|SNAPSHOT")


def question(answer: Callable[..., None]) -> Callable[..., None]:
    """A question about one day: options say which; the answer is given the studio and the take."""

    @wraps(answer)
    def asked(what: str, policy: str | None, seed: int | None, overrides: tuple[str, ...], **more: object) -> None:
        from townlet.observer.open_take import open_take
        from townlet.observer.studio import Studio

        studio = Studio()
        answer(studio, open_take(studio, what, policy=policy, seed=seed, overrides=overrides), **more)

    policy_option = click.option("--policy", help="Who decides: " + POLICY)
    return options(what_argument, policy_option, seed_option, set_option, json_option)(asked)


@ask.command()
@question
@at_option
def feuds(studio: Studio, take: str, at: str | None, as_json: bool) -> None:
    """Who is angry with whom, since when, and why. By default at the end of the day.

    \b
    Example:
      townlet ask feuds rush_hour --at 08:00
    """
    from townlet.observer.answers import feuds as asked
    from townlet.observer.answers import tick_in

    header = studio.known(take).header
    tick = header["first"] + header["ticks"] - 1 if at is None else tick_in(header, at)
    found = asked(studio, take, tick)
    lines = [
        f"{one['who']} → {one['whom']}: rivalry {one['rivalry']:.2f}{', avoids' if one['avoids'] else ''}"
        + (f", since {one['since']} ({_count(one['conflicts'], 'conflict')})" if one["since"] else "")
        + f": {one['last']}"
        for one in found
    ]
    emit(found, "\n".join(lines) or "nobody is angry with anybody", as_json)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


@ask.command()
@question
def worst(studio: Studio, take: str, as_json: bool) -> None:
    """The worst conflict of the day.

    \b
    Example:
      townlet ask worst rush_hour
    """
    from townlet.observer.answers import worst as asked

    found = asked(studio, take)
    text = "there was no conflict on this day" if found is None else f"{found['time']} (tick {found['tick']}): {found['text']}"
    emit(found, text, as_json)


@ask.command()
@question
@click.argument("resident")
@click.argument("option")
@at_option
def why(studio: Studio, take: str, resident: str, option: str, at: str | None, as_json: bool) -> None:
    """Why RESIDENT did not choose OPTION. With --at, at that moment; without, on the whole day.

    OPTION is an action such as use_shower or use_shower:calm.

    \b
    Example:
      townlet ask why town_day alice use_shower --at 07:00
    """
    from townlet.observer.answers import tick_in, why_never, why_not

    if at is None:
        found = why_never(studio, take, resident, option)
    else:
        found = why_not(studio, take, resident, option, tick_in(studio.known(take).header, at))
    emit(found, found["text"], as_json)


@ask.command()
@question
def late(studio: Studio, take: str, as_json: bool) -> None:
    """Who was late or absent, and what they did before.

    \b
    Example:
      townlet ask late town_day --policy random
    """
    from townlet.observer.answers import late as asked

    found = asked(studio, take)
    lines = [
        f"{row['time']} {row['resident']} is {'late' if row['kind'] == 'shift_late' else 'absent'}. Before that: "
        + ", ".join(f"{words} {count} min" for words, count in row["spent"].items())
        for row in found["late"]
    ]
    if lines:
        lines.append("by resident: " + ", ".join(f"{name} {count}" for name, count in found["by_resident"].items()))
        lines.append("by hour: " + ", ".join(f"{count} from {hour:02d}:00" for hour, count in found["by_hour"].items()))
    emit(found, "\n".join(lines) or "everybody was on time", as_json)


@ask.command()
@what_argument
@click.argument("policy_a")
@click.argument("policy_b")
@at_option
@seed_option
@set_option
@json_option
def differs(
    what: str, policy_a: str, policy_b: str, at: str | None, seed: int | None, overrides: tuple[str, ...], as_json: bool
) -> None:
    """How two policies differ on the same day. The first difference and, with --at, who does what at that moment.

    \b
    Example:
      townlet ask differs town_day scripted random --at 07:00
    """
    from townlet.observer.answers import differs as asked
    from townlet.observer.answers import tick_in
    from townlet.observer.open_take import open_takes
    from townlet.observer.story import divergence
    from townlet.observer.studio import Studio

    studio = Studio()
    a, b = open_takes(studio, what, policy=policy_a, vs=policy_b, seed=seed, overrides=overrides)
    found = divergence(studio, a, b)
    rows = [] if at is None else asked(studio, a, b, tick_in(studio.known(a).header, at))
    lines = [found["text"], *(f"{row['resident']}: {row['a']} | {row['b']}" for row in rows)]
    emit({"divergence": found, "at": at, "differs": rows}, "\n".join(lines), as_json)
