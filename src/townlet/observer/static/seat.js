// @ts-check
/** A seat for a person: one resident's decisions are yours, the others decide as before, on the same luck. */
import { byId, make } from "./dom.js";
import { fixed, nameOf, optionsText, optionText, percent } from "./words.js";
import { takeFile } from "./living.js";
import { deflated } from "./source.js";

/** The take of what was played, with every decision in it: whoever reads it needs no policy. @param {any} source of a living take */
async function playedTake(source) {
  const { head, store } = source, n = head.people.length, raw = new Uint8Array(n * store.decisions + 1);
  store.shots.forEach((/** @type {any} */ shot, /** @type {number} */ k) => shot.actions.forEach((/** @type {number} */ action, /** @type {number} */ slot) => (raw[slot * store.decisions + k] = shot.active[slot] ? action : 255)));
  raw[raw.length - 1] = 1;
  return { ...head.take, policy: store.living.recorded, decisions: await deflated(raw), digest: store.digest };
}

export class Seat {
  /** @param {any} page */
  constructor(page) {
    this.page = page;
    this.open = this.ended = this.busy = false;
    /** @type {any} */ this.base = null; // the take as its policies play it
    /** @type {any} */ this.mine = null; // as it was played so far
    this.slot = -1;
    this.name = "";
    this.decision = this.from = 0;
    /** @type {any[]} */ this.options = [];
    /** @type {{at: number, do: string}[]} */ this.forces = [];
    byId("seat-undo").addEventListener("click", () => this.undo());
    byId("seat-end").addEventListener("click", () => this.end());
    byId("seat-save").addEventListener("click", () => this.save());
    byId("seat-leave").addEventListener("click", () => this.leave());
  }

  /** Begin at the decision under way. */
  async begin() {
    const { page } = this;
    if (this.shown) return;
    if (!page.lives(page.a)) return void page.tell("This is a recording; to take over, open the town with townlet observe.");
    if (page.who < 0) return void page.tell("Select a resident first, then take over.");
    page.player.pause();
    this.base = this.mine = page.a;
    this.slot = page.who;
    this.name = nameOf(this.base.head, this.base.peek(page.player.t), this.slot);
    this.forces = [];
    this.decision = Math.min(this.base.store.decisions - 1, Math.floor((page.player.t - this.base.first) / this.base.head.interval));
    this.from = this.decision;
    this.open = true;
    await page.openB(null);
    await this.ask();
  }

  /** Whether the panel is about this seat: somebody else may be looked at meanwhile. */
  get shown() {
    return this.open && this.page.who === this.slot && (this.busy || this.page.a === this.mine);
  }

  show() {
    byId("seat").hidden = !this.shown;
    byId("take-over").hidden = this.shown || !this.page.lives(this.page.a);
    byId("inspector-tabs").hidden = byId("inspector-body").hidden = this.shown;
  }

  get tick() {
    return this.base.first + this.decision * this.base.head.interval;
  }

  /** Stand before a decision and offer what can be done. */
  async ask() {
    const { page } = this;
    page.seek(this.tick);
    const why = await page.a.why(this.tick, this.slot), focused = byId("seat-options").querySelector(":focus-visible");
    this.ended = false;
    this.show();
    byId("seat-undo").hidden = this.decision <= this.from;
    for (const id of ["seat-save", "seat-leave"]) byId(id).hidden = true;
    byId("seat-end").hidden = false;
    if (!why.active || why.resident !== this.name) return this.end();
    byId("seat-said").textContent = `What does ${this.name} do now? Choose with a click or 1 … 9; enter leaves this decision to the policy, escape all others.`;
    this.options = why.options;
    byId("seat-options").replaceChildren(...why.options.map((/** @type {any} */ one, /** @type {number} */ k) => make("button", { class: "option", on: { click: () => this.choose(one.name) } },
      k < 9 ? make("kbd", { text: k + 1 }) : make("span"), make("span", { text: optionText(one.name) }), make("span", { class: "figure soft", text: percent(one.probability) }))));
    byId("seat-masked").replaceChildren(...why.masked.flatMap((/** @type {any} */ one) => [make("dt", { text: one.reason }), make("dd", { text: optionsText(one.options, this.page.a.head.actions) })]));
    if (focused) byId("seat-options").querySelector("button")?.focus();
  }

  /** A key of the seat; whether it was one. @param {string} key */
  key(key) {
    if (!this.shown) return false;
    if (key === "Escape") this.ended ? this.leave() : this.end();
    else if (key === "Backspace") this.undo();
    else if (this.ended) return false;
    else if (key === "Enter") this.choose(null);
    else if (!/^[1-9]$/.test(key)) return false;
    else if (this.options[Number(key) - 1]) this.choose(this.options[Number(key) - 1].name);
    return true;
  }

  /** @param {string | null} option null: as its policy would */
  async choose(option) {
    if (this.busy) return;
    if (option !== null) this.forces = [...this.forces, { at: this.tick, do: `force ${this.name} ${option}` }];
    this.decision += 1;
    await this.replay();
  }

  async undo() {
    if (this.busy || this.decision <= this.from) return;
    this.decision -= 1;
    this.forces = this.forces.filter(one => one.at < this.tick);
    await this.replay();
  }

  /** The day with what was played so far. */
  async replay() {
    const { page } = this, { living } = page.library, before = page.a.head.id;
    this.busy = true;
    try {
      const head = this.forces.length ? await living.branch(this.base.head.id, this.forces, null) : this.base.head;
      if (before !== head.id) await page.openA(head.id);
      if (before !== head.id && before !== this.base.head.id) living.forget(before);
      this.mine = page.a;
      page.fillTakes();
      if (this.decision >= this.base.store.decisions) this.end();
      else await this.ask();
    } finally {
      this.busy = false;
    }
  }

  /** Your return against the policy's, on the same luck. */
  end() {
    this.ended = true;
    const { page } = this, mine = page.a.store.returnOf(this.slot), theirs = this.base.store.returnOf(this.slot);
    byId("seat-said").textContent = page.a === this.base ? `You left every decision to the policy. Reward of ${this.name} over the day: ${fixed(mine)}.` : `Reward of ${this.name} over the day: ${fixed(mine)} with you, ${fixed(theirs)} with the policy and the same luck.`;
    byId("seat-options").replaceChildren();
    byId("seat-masked").replaceChildren();
    byId("seat-end").hidden = true;
    for (const id of ["seat-save", "seat-leave"]) byId(id).hidden = false;
    if (page.a !== this.base) page.openB(this.base.head.id);
  }

  async save() {
    const take = await playedTake(this.page.a), link = make("a", { href: URL.createObjectURL(new Blob([takeFile(take)], { type: "application/json" })), download: `${this.name}.take` });
    link.click();
  }

  leave() {
    this.open = false;
    this.page.inspector.shown = "";
    this.page.showTables();
  }
}
