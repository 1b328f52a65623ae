// @ts-check
/** A town as it is written, beside its map: read, changed, painted, linted while one types, and run. */
import { byId, make } from "./dom.js";
import { askJson } from "./http.js";
import { TownMap } from "./map.js";
import { plain } from "./words.js";

const TILE_MARKS = { "#": "wall", ".": "floor", "+": "door", "=": "road" };

export class Scenario {
  /** @param {any} page */
  constructor(page) {
    this.page = page;
    this.filled = false;
    this.brush = "";
    /** @type {any} */ this.pending = 0;
    this.map = new TownMap(byId("scenario-map"), () => {}, (x, y) => this.paint(x, y));
    this.map.redraw = () => this.map.draw(null, null, 0);
    byId("scenario-name").addEventListener("change", () => this.read(byId("scenario-name").value));
    byId("scenario-text").addEventListener("input", () => this.lintSoon());
    byId("scenario-run").addEventListener("click", () => this.run());
  }

  open() {}

  async show() {
    requestAnimationFrame(() => this.map.redraw());
    if (this.filled) return;
    this.filled = true;
    this.tell([{ level: "…", text: "Reading the towns" }]);
    try {
      const { scenarios } = await askJson("scenarios");
      byId("scenario-name").replaceChildren(...scenarios.map((/** @type {any} */ one) => make("option", { value: one.name, text: one.residents === null || one.residents === undefined ? one.name : `${one.name} (${one.residents})` })));
      const now = this.page.a?.head.take.town, first = scenarios.some((/** @type {any} */ one) => one.name === now) ? now : scenarios[0]?.name;
      byId("scenario-name").value = first;
      await this.read(first);
    } catch (error) {
      this.tell([{ level: "error", text: /** @type {Error} */ (error).message }]);
    }
  }

  /** @param {string} name */
  async read(name) {
    byId("scenario-text").value = (await askJson(`scenarios/${encodeURIComponent(name)}`)).yaml;
    await this.lint();
  }

  lintSoon() {
    clearTimeout(this.pending);
    this.pending = setTimeout(() => this.lint(), 500);
  }

  /** @param {any[]} findings */
  tell(findings) {
    byId("scenario-findings").replaceChildren(...findings.map(one => make("li", { class: one.level }, make("b", { class: `tag ${one.level === "error" ? "bad" : "quiet"}`, text: one.name ? `${one.level}: ${plain(one.name)}` : one.level }), make("p", { text: one.text }), one.remedy && one.level !== "ok" ? make("p", { class: "soft", text: one.remedy }) : null)));
  }

  async lint() {
    const text = byId("scenario-text").value;
    if (!this.map.source) this.tell([{ level: "…", text: "Looking at the town" }]);
    try {
      const { ok, findings, town } = await askJson("lint", { yaml: text });
      if (byId("scenario-text").value !== text) return;
      this.tell(ok && !findings.length ? [{ level: "ok", text: "Nothing to mend." }] : findings);
      if (town) {
        this.map.open({ head: town });
        this.map.redraw();
        this.fillPalette();
      }
    } catch (error) {
      this.tell([{ level: "error", text: /** @type {Error} */ (error).message }]);
    }
  }

  /** Where the drawn map stands in the text: the first character of each of its rows. @returns {number[]} */
  rows() {
    const text = byId("scenario-text").value, begin = /^( *)map: *\|-?\n/m.exec(text), found = [];
    if (!begin) return [];
    for (let at = begin.index + begin[0].length; at < text.length; ) {
      const end = text.indexOf("\n", at) < 0 ? text.length : text.indexOf("\n", at), line = text.slice(at, end), indent = line.length - line.trimStart().length;
      if (!line.trim() || indent <= begin[1].length) break;
      found.push(at + indent);
      at = end + 1;
    }
    return found;
  }

  /** What can be painted: the marks of tiles, and those that the drawing uses for things. */
  fillPalette() {
    const text = byId("scenario-text").value, rows = this.rows(), used = new Set(rows.flatMap(at => [...text.slice(at, text.indexOf("\n", at))].filter(mark => !(mark in TILE_MARKS)))), { head } = this.map.source;
    const kinds = new Map(head.things.map((/** @type {any} */ thing) => [text[(rows[thing.y] ?? -1) + thing.x], thing.kind]));
    byId("scenario-palette").hidden = !rows.length;
    byId("scenario-palette").replaceChildren(...[...Object.entries(TILE_MARKS), ...[...used].sort().map(mark => [mark, plain(kinds.get(mark) ?? "mark")])].map(([mark, name]) => make("button", { title: `Paint: ${name}`, "aria-label": `Paint ${name}`, "aria-pressed": String(mark === this.brush), on: { click: () => {
      this.brush = mark === this.brush ? "" : mark;
      this.fillPalette();
    } } }, make("kbd", { text: mark }), ` ${name}`)));
  }

  /** @param {number} x @param {number} y */
  paint(x, y) {
    const box = byId("scenario-text"), at = this.rows()[y];
    if (!this.brush) return void this.page.tell("Choose above the map what to paint with.");
    if (at === undefined || x < 0 || x >= this.map.source.head.map.width) return;
    box.value = box.value.slice(0, at + x) + this.brush + box.value.slice(at + x + 1);
    this.lintSoon();
  }

  async run() {
    try {
      const head = await askJson("takes", { yaml: byId("scenario-text").value, policy: "scripted" });
      await this.page.library.refresh();
      await this.page.openB(null);
      await this.page.openA(head.id);
      this.page.fillTakes();
      this.page.openView("town");
    } catch (error) {
      this.tell([{ level: "error", text: /** @type {Error} */ (error).message }]);
    }
  }
}
