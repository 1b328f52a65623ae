// @ts-check
/** Things, who uses them and who waits. */
import { byId, link, make } from "./dom.js";
import { nameOf } from "./words.js";

const MOST_THINGS = 200;

export class Queues {
  /** @param {any} page */
  constructor(page) {
    this.page = page;
  }

  open() {}

  show() {
    const source = this.page.a, frame = source.peek(this.page.player.t), { head } = source;
    if (!frame) return;
    const queues = new Map(), joined = new Map(), clashes = new Map();
    for (const e of source.eventsHere(source.first, frame.t + 1)) {
      if (e.name === "queue_join") joined.set(`${e.actor}/${e.object}`, e.tick);
      if (e.name === "queue_conflict" && e.object >= 0) clashes.set(e.object, (clashes.get(e.object) ?? 0) + 1);
    }
    for (let i = 0; i < frame.residents; i++) {
      if (!frame.waits(i) || !frame.thing[i]) continue;
      const m = frame.thing[i] - 1;
      if (!queues.has(m)) queues.set(m, []);
      queues.get(m).push({ slot: i, since: joined.get(`${i}/${m}`) ?? frame.t, called: frame.called(i) });
    }
    const rows = head.things.map((/** @type {any} */ thing, /** @type {number} */ m) => ({ m, thing, queue: (queues.get(m) ?? []).sort((/** @type {any} */ a, /** @type {any} */ b) => Number(b.called) - Number(a.called) || a.since - b.since), clashes: clashes.get(m) ?? 0 }))
      .filter((/** @type {any} */ row) => frame.t >= row.thing.from && (row.thing.until === null || frame.t < row.thing.until) && (row.thing.kind !== "bed" || row.queue.length || row.clashes));
    rows.sort((/** @type {any} */ a, /** @type {any} */ b) => b.queue.length - a.queue.length || b.clashes - a.clashes || Number(frame.user[b.m] > 0) - Number(frame.user[a.m] > 0) || a.m - b.m);
    const person = (/** @type {number} */ slot, text = "") => make("span", { class: "person" }, link(nameOf(head, frame, slot), () => this.page.select(slot)), text ? make("span", { class: "soft", text }) : null);
    byId("queues-body").replaceChildren(...rows.slice(0, MOST_THINGS).map((/** @type {any} */ row) => make("tr", {},
      make("th", { scope: "row" }, link(row.thing.id, () => this.page.lookAt(row.thing.x, row.thing.y))),
      make("td", {}, frame.user[row.m] ? person(frame.user[row.m] - 1) : make("span", { class: "soft", text: "free" })),
      make("td", { class: "line" }, row.queue.length ? null : make("span", { class: "soft", text: "–" }), ...row.queue.map((/** @type {any} */ one) => person(one.slot, ` ${one.called ? "called" : `${frame.t - one.since} min`}`))),
      make("td", { class: "number", text: frame.stock[row.m] === 255 ? "–" : String(frame.stock[row.m]) }),
      make("td", { class: `number ${row.clashes ? "bad" : ""}`, text: String(row.clashes) }))));
    const waiting = [...queues.values()].reduce((n, q) => n + q.length, 0);
    byId("queues-count").textContent = `${waiting ? `${waiting} waiting at ${queues.size} ${queues.size === 1 ? "thing" : "things"}` : "Nobody waits just now"}${rows.length > MOST_THINGS ? `; the first ${MOST_THINGS} of ${rows.length} things` : ""}`;
  }
}
