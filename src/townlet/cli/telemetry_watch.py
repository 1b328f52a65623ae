"""`townlet telemetry watch`: follow a log with a live table, and say when a threshold is passed."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from townlet.cli.common import COUNT, LOG, NUMBER, PATH, Whole, json_option, leave, note, options
from townlet.errors import TelemetryError
from townlet.signals import ctrl_c_raises
from townlet.telemetry.schema import ANNEAL_ALERTS, FIELDS, PAST_ALERTS

if TYPE_CHECKING:
    from rich.console import Group

    from townlet.telemetry.alarm_rules import Alarm, Rule
    from townlet.telemetry.watch import Event, Watch

ALWAYS = (
    *("episode_return_mean", "loss_total", "kl_divergence", "batch_entropy_mean", "queue_conflict_events"),
    *("conflicts_per_resident_day", "steps_per_second"),
)
CURVE = 40  # records in a sparkline


def threshold_options(command: Callable[..., object]) -> Callable[..., object]:
    """One option per declared alert, with its default from the schema."""
    flags: list[tuple[str, str]] = []
    for item in FIELDS:
        if item.alert is not None:
            usual = "" if item.alert.threshold is None else f" [default: {item.alert.threshold:g}]"
            flags.append((item.alert.flag, f"Alert when {item.name} is {item.alert.side} this.{usual}"))
    for flag, (name, side, versus) in ANNEAL_ALERTS.items():
        share = f" this share more than {versus}" if versus else f" {side} this"
        flags.append((flag, f"In anneal stages: alert when {name} is{share}."))
    for flag, (name, side, usual_share, *_) in PAST_ALERTS.items():
        text = f"Alert when {name} goes {side} its own past in this log by more than this share."
        flags.append((flag, f"{text} [default: {usual_share:g}]"))
    return options(*(click.option(flag, type=NUMBER, help=text) for flag, text in flags))(command)


@click.command()
@click.argument("log", type=LOG)
@click.option("--follow/--no-follow", default=True, help="Go on reading as the log grows (default), or stop at its end.")
@click.option("--once", is_flag=True, help="The same as --no-follow.")
@click.option("--from-end", is_flag=True, help="Skip the records that the log already has.")
@click.option("--rules", "rules_file", type=PATH, help="YAML or JSON file of rules; flags win over it.")
@click.option("--no-defaults", is_flag=True, help="Watch only what the flags and the rules file name.")
@click.option(
    "--smoothing",
    type=Whole(1, 1_000_000),
    help="Compare the mean of the last N records, as soon as there are N.  [default: 1]",
)
@click.option("--patience", type=COUNT, help="Alert after this many bad records in a row.  [default: 1]")
@click.option("--max-gap", type=NUMBER, metavar="SECONDS", help="Alert when no record comes for this long.")
@click.option("--keep-going", is_flag=True, help="Continue after an alert; the exit code still reports it.")
@click.option(
    "--on-alert", metavar="CMD", help="Run this on an alert: no shell, the record on stdin, the words in TOWNLET_ALERT."
)
@click.option("--duration", type=NUMBER, metavar="SECONDS", help="Stop following after this long.")
@click.option("--interval", type=NUMBER, default=0.2, show_default=True, metavar="SECONDS", help="How often to look.")
@json_option
@threshold_options
def watch(
    log: Path,
    follow: bool,
    once: bool,
    from_end: bool,
    rules_file: Path | None,
    no_defaults: bool,
    smoothing: int | None,
    patience: int | None,
    max_gap: float | None,
    keep_going: bool,
    on_alert: str | None,
    duration: float | None,
    interval: float,
    as_json: bool,
    **thresholds: float | None,
) -> None:
    """Follow a growing, rotating log and alert on thresholds. Exits with 1 on an alert.

    \b
    Examples:
      townlet telemetry watch runs/demo
      townlet telemetry watch runs/demo --kl-threshold 0.1 --max-gap 120

    \b
    A rules file:
      rules: [{field: kl_k3, above: 0.05, patience: 3}, {field: exits, above: 0}]
      max_gap: 120
    """
    from townlet.telemetry.watch import Watch, hook_words, run_hook, watch_log

    follow = follow and not once
    if on_alert is not None:
        hook_words(on_alert)
    rules, file_gap = chosen_rules(rules_file, not no_defaults, smoothing, patience, thresholds)
    watching = Watch(rules)
    screen = make_screen(log, watching, as_json)
    alerts = 0
    events = watch_log(
        log,
        watching,
        follow=follow,
        from_start=not from_end,
        max_gap=max_gap if max_gap is not None else file_gap,
        duration=duration,
        interval=interval,
    )
    with screen.live:
        for event in quietly(events):
            screen.show(event)
            for alarm, record in alarms_of(event):
                alerts += 1
                if on_alert is not None and (wrong := run_hook(on_alert, record, alarm)):
                    note(wrong)
            if alerts and follow and not keep_going:
                break
    report = watching.report
    if not follow and report.bad_lines and not report.records and not report.batches:
        raise TelemetryError(
            f"{log}: not one of its {report.bad_lines} lines is a telemetry record; "
            "watch the log of a training run (ppo.ndjson in its folder), or see why with: townlet telemetry validate"
        )
    leave(1 if alerts else 0)


def quietly(events: Iterator[Event]) -> Iterator[Event]:
    """Ctrl-C ends a watch; it is no failure of anything."""
    try:
        with ctrl_c_raises():
            yield from events
    except KeyboardInterrupt:
        note("stopped")


def alarms_of(event: Event) -> list[tuple[Alarm, dict[str, object] | None]]:
    from townlet.telemetry.watch import Seen, Silence

    if isinstance(event, Seen):
        return [(alarm, event.record) for alarm in event.alarms]
    return [(event.alarm, event.last)] if isinstance(event, Silence) else []


def chosen_rules(
    path: Path | None, defaults: bool, smoothing: int | None, patience: int | None, thresholds: dict[str, float | None]
) -> tuple[list[Rule], float | None]:
    """Defaults, then the file, then the flags; smoothing and patience given by flag hold for all."""
    from townlet.telemetry.alarm_rules import default_rules, flag_rules, merged, read_rules

    gap = None
    rules: list[Rule] = []
    if path is not None:
        found = read_rules(path)
        rules, gap, defaults = found.rules, found.max_gap, defaults and found.defaults
    by_flag = {"--" + name.replace("_", "-"): value for name, value in thresholds.items()}
    rules = merged(merged(default_rules() if defaults else [], rules), flag_rules(by_flag))
    if smoothing is not None:
        rules = [replace(rule, smoothing=1 if rule.side == "is" else smoothing) for rule in rules]
    if patience is not None:
        rules = [replace(rule, patience=patience) for rule in rules]
    return rules, gap


# --- what the user sees ----------------------------------------------------------------------------------------------


class Lines:
    """One line per event: on stdout the records, on stderr notices and alerts."""

    live: AbstractContextManager[object] = nullcontext()

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def show(self, event: Event) -> None:
        from townlet.telemetry.watch import Seen, event_dict

        if self.as_json:
            click.echo(json.dumps(event_dict(event), allow_nan=False, default=str))
        elif isinstance(event, Seen):
            click.echo(record_line(event.record))
        for text, alert in sentences(event):
            if alert or not self.as_json:
                note(f"ALERT {text}" if alert else text)


def sentences(event: Event) -> list[tuple[str, bool]]:
    """What there is to say of an event besides the record itself; True marks an alert."""
    from townlet.telemetry.follow import Notice

    if isinstance(event, Notice):
        return [(event.message, False)]
    return [(alarm.message, True) for alarm, _ in alarms_of(event)]


def record_line(record: dict[str, object]) -> str:
    from townlet.telemetry.drawing import short
    from townlet.telemetry.series import number

    parts = [f"{name} {short(number(record[name]))}" for name in ALWAYS if record.get(name) is not None]
    return f"epoch {short(number(record.get('epoch')))}: " + ", ".join(parts)


def limit_text(rule: Rule) -> str:
    """`above 0.2`; of a rule against another figure or the past, `rises 50%`."""
    from townlet.telemetry.drawing import short

    if not rule.versus:
        return f"{rule.side} {short(rule.threshold)}"
    return f"{'rises' if rule.side == 'above' else 'falls'} {rule.threshold:.0%}"


class WatchTable:
    """A table that is redrawn with each record: latest, smoothed, threshold and curve of every watched field."""

    def __init__(self, log: Path, watching: Watch) -> None:
        from rich.console import Console
        from rich.live import Live

        self.log = log
        self.watching = watching
        self.count = 0
        self.record: dict[str, object] = {}
        self.said: deque[tuple[str, bool]] = deque(maxlen=6)
        self.curves: dict[str, deque[float]] = {}
        self.console = Console()
        self.live = Live(console=self.console, auto_refresh=False, get_renderable=self.table)

    def show(self, event: Event) -> None:
        from townlet.telemetry.series import number
        from townlet.telemetry.watch import Seen

        self.said.extend(sentences(event))
        if isinstance(event, Seen):
            self.count += 1
            self.record = event.record
            for name in self.names():
                self.curves.setdefault(name, deque(maxlen=CURVE)).append(number(event.record.get(name)))
        self.live.refresh()

    def names(self) -> list[str]:
        watched = [state.rule.field for state in self.watching.states if state.rule.side != "is"]
        return list(dict.fromkeys((*ALWAYS, *watched)))

    def table(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        from townlet.telemetry.drawing import short, sparkline
        from townlet.telemetry.series import number

        epoch, steps = (short(number(self.record.get(name))) for name in ("epoch", "steps"))
        head = ("metric", "latest", "watched", "alert")
        states = {state.rule.field: state for state in self.watching.states}
        rows: list[tuple[tuple[str, ...], list[float], bool]] = []
        for name in self.names():
            curve = [value for value in self.curves.get(name, ()) if value == value]
            state = states.get(name)
            bad = state is not None and state.bad > 0
            limit = "" if state is None else limit_text(state.rule)
            if curve:
                rows.append((("! " * bad + name, short(curve[-1]), short(state.value) if state else "", limit), curve, bad))
        taken = sum(max(len(cell) for cell in column) + 2 for column in zip(head, *(cells for cells, *_ in rows)))
        room = min(CURVE, self.console.width - taken)  # what the curve may take; nothing else is cut
        title = Text(f"{self.log}  ·  {self.count} records  ·  epoch {epoch}  ·  {steps} steps", style="italic")
        table = Table(box=None, pad_edge=False)
        for name in (*head, "curve"):
            table.add_column(name, justify="right" if name in ("latest", "watched") else "left", no_wrap=True)
        for cells, curve, bad in rows:
            table.add_row(*cells, sparkline(curve, room) if room > 0 else "", style="bold red" if bad else "")
        lines = [Text(("ALERT " if alert else "") + text, style="bold red" if alert else "dim") for text, alert in self.said]
        return Group(title, *([table] if rows else []), *lines)


def make_screen(log: Path, watching: Watch, as_json: bool) -> Lines | WatchTable:
    return WatchTable(log, watching) if sys.stdout.isatty() and not as_json else Lines(as_json)
