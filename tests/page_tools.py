"""What tests of the page share."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from townlet.config import load_config
from townlet.observer.header import table_of
from townlet.observer.reel import numbers, unpack


@dataclass
class Visit:
    """A page, and everything it asked for and complained about."""

    page: Any
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def js(self, text: str, *args: Any) -> Any:
        return self.page.evaluate(text, *args)

    def key(self, name: str) -> None:
        self.page.keyboard.press(name)

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    @property
    def tick(self) -> int:
        return int(self.js("townlet.player.t"))

    def until(self, condition: str) -> None:
        """Wait for an expression to hold. (Playwright's own wait evaluates text in the page, which its policy forbids.)"""
        for _ in range(2000):
            if self.js(f"Boolean({condition})"):
                return
            self.page.wait_for_timeout(30)
        raise AssertionError(f"in vain: {condition}")

    def settle(self) -> None:
        """Until everything asked for has been drawn."""
        self.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def short(name: str, ticks: int) -> Any:
    return load_config(name, [f"scenario.episode_ticks={ticks}"])


@dataclass
class Served:
    address: str
    observatory: Any
    runs: Path


# what axe-core finds in the page as it is
FINDINGS = """axe.run(document, {resultTypes: ['violations']}).then(found => found.violations
  .filter(one => ['serious', 'critical'].includes(one.impact))
  .map(one => `${one.id}: ${one.help} (${one.nodes[0].target.join(' ')}: ${one.nodes[0].html.slice(0, 120)})`))"""
DECODED = """async () => {
  const source = townlet.a, found = [];
  for (let k = 0; k < source.head.reels; k++) {
    const { groups } = await source.load(k), told = {};
    for (const [group, columns] of Object.entries(source.head.columns))
      for (const column of columns) told[`${group}.${column.name}`] = Array.from(groups[group][column.name]);
    found.push(told);
  }
  return found;
}"""


def raw_columns(part: dict[str, Any]) -> list[dict[str, list[int]]]:
    """Every column of every reel as whole numbers, as Python reads it."""
    table, found = table_of(part["header"]), []
    for text in part["reels"]:
        reel, told = unpack(base64.b64decode(text), table), {}
        for group, columns in table.items():
            at = 0
            for column in columns:
                planes = reel.planes[group][at : at + column.bytes]
                told[f"{group}.{column.name}"] = numbers(planes, column._replace(scale=1.0)).ravel().tolist()
                at += column.bytes
        found.append(told)
    return found
