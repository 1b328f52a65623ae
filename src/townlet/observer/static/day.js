// @ts-check
/** The day at a glance, while nobody is selected: what is worth seeing, who was late, what differs now; and the tour. */
import { byId, link, make } from "./dom.js";
import { clockTime, doingText, nameOf, nameOfLife } from "./words.js";

const MOST = 10; // moments of a tour
const APART = 15; // ticks between two of them
const SECONDS = 5;
const BEFORE_WORK = 90; // ticks that are looked at where somebody was late
const ROWS = 12;

/** The strongest moments of a day, in order of time, none beside another. @param {any[]} moments */
function highlights(moments) {
  /** @type {any[]} */ const found = [];
  for (const one of [...moments].sort((p, q) => q.strength - p.strength || p.tick - q.tick))
    if (found.length < MOST && found.every(other => Math.abs(other.tick - one.tick) >= APART)) found.push(one);
  return found.sort((p, q) => p.tick - q.tick);
}

export class Day {
  /** @param {any} page */
  constructor(page) {
    this.page = page;
    this.shown = "";
    this.touring = 0; // counts tours: one that is no longer the newest ends
    page.player.addEventListener("moved", (/** @type {CustomEvent} */ e) => {
      if (["pause", "step", "seek"].includes(e.detail) && !this.steering) this.touring++;
    });
  }

  show() {
    const { page } = this, { a, b, player } = page;
    if (page.who >= 0) return;
    this.showDifferences();
    const key = `${a.head.id}/${page.looked}/${page.moments.length}/${a.told.size}/${a.shot}`;
    if (key === this.shown || (player.playing && player.perSecond > 60)) return;
    this.shown = key;
    const best = highlights(page.moments);
    byId("day-moments").replaceChildren(...best.map(one => this.row(one.tick, one.text, one.kind === "exit" || one.kind === "quarrel" ? "sharp" : "", one.slots[0])));
    byId("day-none").hidden = best.length > 0;
    byId("day-none").textContent = a.shot < a.head.reels ? "The day is still being simulated; its strongest moments are told when it is done." : !page.looked ? "Looking for the strongest moments …" : "A quiet day: no conflict, and nobody came or left.";
    byId("tour").disabled = !best.length;
    this.showLate();
  }

  /** @param {number} tick @param {string} text @param {string} kind @param {number} [slot] who is selected with the moment */
  row(tick, text, kind, slot) {
    const { page } = this;
    return make("li", { class: kind }, link(clockTime(page.a.head, tick), () => page.seek(tick), "time"),
      make("button", { class: "link plainly", text, on: { click: () => {
        page.seek(tick);
        if (slot !== undefined) page.select(slot);
      } } }));
  }

  /** What everybody who does something else does in A and in B. */
  showDifferences() {
    const { a, b, player } = this.page, box = byId("day-differs"), p = a.peek(player.t), q = b?.peek(b.clamp(player.t));
    box.hidden = !p || !q;
    if (!p || !q) return;
    const rows = [];
    for (let slot = 0; slot < Math.min(p.residents, q.residents); slot++) {
      const one = doingText(a.head, p, slot), two = doingText(b.head, q, slot);
      if (one !== two) rows.push(make("tr", {}, make("th", { scope: "row" }, link(nameOf(a.head, p, slot), () => this.page.select(slot))), make("td", { text: one }), make("td", { text: two })));
    }
    byId("day-when").textContent = `What differs at ${clockTime(a.head, p.t)}`;
    byId("day-table").hidden = !rows.length;
    byId("day-rows").replaceChildren(...rows.slice(0, ROWS));
    byId("day-more").textContent = rows.length > ROWS ? `and ${rows.length - ROWS} more` : rows.length ? "" : "Everybody does the same in A and B.";
  }

  /** Who came late or not at all, and what the time before went into. */
  showLate() {
    const { a } = this.page, { head } = a, all = a.eventsHere(a.first, a.last + 1).filter((/** @type {any} */ e) => e.name === "shift_late" || e.name === "shift_absent").reverse(), hours = new Map();
    const after = new Map(), late = all.filter((/** @type {any} */ e) => {
      const once = !(after.get(e.actor) - e.tick < head.ticks_per_day); // a shift counts once: late, and then it did not come at all
      after.set(e.actor, e.tick);
      return once;
    }).reverse();
    for (const e of late) {
      const hour = clockTime(head, e.tick).slice(0, 2);
      hours.set(hour, (hours.get(hour) ?? 0) + 1);
    }
    byId("day-late-title").hidden = !late.length && a.told.size < head.reels;
    byId("day-late-count").textContent = late.length ? `${late.length}: ${[...hours].map(([hour, n]) => `${n} at ${hour} h`).join(", ")}` : a.told.size < head.reels ? "" : "Everybody was on time.";
    byId("day-late").replaceChildren(...late.slice(0, ROWS).map((/** @type {any} */ e) => {
      const row = this.row(e.tick, `${nameOfLife(head, e.actor, e.actor_life)} ${e.name === "shift_late" ? "is late" : "does not come"}`, "", e.actor);
      row.lastChild.append(make("span", { class: "soft small", text: ` · before: ${this.spent(e)}` }));
      return row;
    }));
  }

  /** @param {any} e */
  spent(e) {
    const { a } = this.page, counts = new Map();
    for (let t = Math.max(a.first, e.tick - BEFORE_WORK); t < e.tick; t++) {
      const frame = a.glance(t);
      if (!frame) continue;
      const text = doingText(a.head, frame, e.actor);
      counts.set(text, (counts.get(text) ?? 0) + 1);
    }
    return [...counts].sort((p, q) => q[1] - p[1]).slice(0, 2).map(([text, n]) => `${text} ${n} min`).join(", ");
  }

  /** Five seconds around each of the strongest moments, until somebody else takes the playhead. */
  async tour() {
    const { page } = this, { player } = page, mine = ++this.touring;
    if (!page.moments.length) await page.findMoments();
    const stops = highlights(page.moments), before = Math.floor(SECONDS / 2 * player.perSecond);
    page.openView("town");
    byId("play").focus(); // so that space ends it
    for (const [k, one] of stops.entries()) {
      this.steering = true;
      player.seek(Math.max(player.first, one.tick - before));
      player.play();
      this.steering = false;
      page.tell(`Tour ${k + 1} of ${stops.length} · ${clockTime(page.a.head, one.tick)} ${one.text}`, true);
      page.speak(one.text);
      while (player.playing && player.t < one.tick + before) {
        await new Promise(done => setTimeout(done, 50));
        if (mine !== this.touring) return void (byId("status").hidden = true);
      }
    }
    player.pause();
    byId("status").hidden = true;
  }
}
