// @ts-check
/** Everybody in a table: the map's twin for those who cannot or need not look at it. */
import { byId, link, make } from "./dom.js";
import { doingText, isClash, margin, nameOf, percent, plain } from "./words.js";

const ROW = 36;
const SPARE = 8;
const TITLES = { margin: "How far the worst need is above the line at which the script acts; minus: below it", rivalry: "How angry they are with their worst rival, 0 to 1; red: they keep away from each other", conflicts: "Conflicts and quarrels so far today", wallet: "Coins in hand at the last decision" };

export class People {
  /** @param {any} page */
  constructor(page) {
    this.page = page;
    this.sort = "margin";
    this.down = false; // ascending: whoever is worst off first
    this.box = byId("people-scroll");
    this.box.addEventListener("scroll", () => this.rows());
    /** @type {any[]} */ this.list = [];
  }

  /** Column heads: key, text, and whether the first click sorts downwards. */
  columns() {
    const { head } = this.page.a;
    return [["name", "Resident", false], ...head.needs.map((/** @type {any} */ need) => [`need:${need.name}`, plain(need.name), false]), ["margin", "Margin", false], ["rivalry", "Rivalry", true], ["conflicts", "Conflicts", true],
      ["wallet", "Coins", true], ["doing", "Doing", false]];
  }

  open() {
    const cells = this.columns().map(([key, text, down]) => make("th", { scope: "col", "aria-sort": "none", "data-key": key, class: `c-${String(key).split(":")[0]}` },
      make("button", { text, title: TITLES[/** @type {keyof typeof TITLES} */ (key)], on: { click: () => this.sortBy(key, down) } })));
    byId("people-head").replaceChildren(make("tr", {}, ...cells));
  }

  /** @param {string} key @param {boolean} down */
  sortBy(key, down) {
    this.down = this.sort === key ? !this.down : down;
    this.sort = key;
    this.box.scrollTop = 0;
    this.show();
  }

  show() {
    const source = this.page.a, frame = source.peek(this.page.player.t), { head } = source;
    if (!frame) return;
    const clashes = new Map();
    for (const e of source.eventsHere(source.first, frame.t + 1))
      if (isClash(e.name)) for (const slot of [e.actor, e.rival]) if (slot >= 0) clashes.set(slot, (clashes.get(slot) ?? 0) + 1);
    const wallet = source.decided("wallet", frame.t), list = [];
    for (let slot = 0; slot < frame.residents; slot++) {
      if (!frame.state(slot)) continue;
      list.push({ slot, name: nameOf(head, frame, slot), margin: margin(head, frame, slot), wallet: wallet(slot), rivalry: frame.rivalry[slot] / 255, conflicts: clashes.get(slot) ?? 0 });
    }
    const need = head.needs.findIndex((/** @type {any} */ n) => this.sort === `need:${n.name}`);
    const value = (/** @type {any} */ row) => need >= 0 ? frame.needs[need][row.slot] : this.sort === "doing" ? doingText(head, frame, row.slot) : row[this.sort];
    const turn = this.down ? -1 : 1;
    list.sort((a, b) => {
      const x = value(a), y = value(b);
      return (x < y ? -turn : x > y ? turn : 0) || a.slot - b.slot;
    });
    this.list = list;
    this.frame = frame;
    for (const th of byId("people-head").querySelectorAll("th")) th.setAttribute("aria-sort", th.dataset.key === this.sort ? (this.down ? "descending" : "ascending") : "none");
    byId("people-count").textContent = `${list.length} resident${list.length === 1 ? "" : "s"}${this.sort === "margin" && !this.down ? ", those in the greatest need first" : ""}; click a row to read why, a column to sort`;
    byId("people-table").setAttribute("aria-rowcount", String(list.length + 1));
    this.rows();
  }

  /** The rows in the window; the others are only height. */
  rows() {
    if (!this.frame) return;
    const { head } = this.page.a, { list, frame } = this, from = Math.max(0, Math.floor(this.box.scrollTop / ROW) - SPARE), to = Math.min(list.length, from + Math.ceil(this.box.clientHeight / ROW) + 2 * SPARE);
    const gap = (/** @type {number} */ rows) => make("tr", { class: "gap", "aria-hidden": "true", vars: { "--gap": `${rows * ROW}px` } }, make("td", { colspan: this.columns().length }));
    const shown = list.slice(from, to).map((row, k) => {
      const needs = head.needs.map((/** @type {any} */ need, /** @type {number} */ n) => {
        const level = frame.needs[n][row.slot] / 255;
        return make("td", { class: "c-need" }, make("span", { class: `bar ${level < need.line ? "low" : ""}`, vars: { "--share": level.toFixed(3), "--line": need.line } }, make("i", { class: "line" })), make("span", { class: "figure", text: percent(level) }));
      });
      const pick = link(row.name, () => {}); // for the keyboard: its click is one on the row
      return make("tr", { "aria-rowindex": from + k + 2, "aria-selected": row.slot === this.page.who ? "true" : null, class: row.slot === this.page.who ? "selected" : null, "data-slot": row.slot, on: { click: () => this.page.select(row.slot) } },
        make("th", { scope: "row", class: "c-name", title: row.name }, pick), ...needs,
        make("td", { class: `c-margin number ${row.margin < 0 ? "bad" : ""}`, text: `${row.margin < 0 ? "−" : "+"}${percent(Math.abs(row.margin))}` }),
        make("td", { class: `c-rivalry number ${row.rivalry >= head.avoid_line ? "bad" : ""}`, text: row.rivalry.toFixed(2) }),
        make("td", { class: "c-conflicts number", text: String(row.conflicts) }),
        make("td", { class: "c-wallet number", text: Number.isFinite(row.wallet) ? row.wallet.toFixed(2) : "–" }),
        make("td", { class: "c-doing", text: doingText(head, frame, row.slot) }));
    });
    const focused = /** @type {any} */ (document.activeElement)?.closest?.("#people-body tr")?.dataset.slot;
    byId("people-body").replaceChildren(gap(from), ...shown, gap(list.length - to));
    if (focused !== undefined) byId("people-body").querySelector(`tr[data-slot="${focused}"] button`)?.focus();
  }
}
