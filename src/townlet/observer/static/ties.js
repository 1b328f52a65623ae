// @ts-check
/** Who feels what for whom: a graph of a small town, or the neighbours of one resident and the worst feuds of a large one. */
import { byId, colour, disc, fitted, link, make } from "./dom.js";
import { clockTime, fixed, nameOf } from "./words.js";

const MOST_NODES = 60;
const ROUNDS = 220;

/** Places in the unit square by springs, the same for the same ties. @param {number[]} nodes @param {any[]} ties @returns {Map<number, number[]>} */
function springs(nodes, ties) {
  const place = new Map(nodes.map((slot, k) => [slot, [Math.cos(2 * Math.PI * k / nodes.length), Math.sin(2 * Math.PI * k / nodes.length)]]));
  const want = 1.6 / Math.sqrt(nodes.length + 1);
  for (let round = 0; round < ROUNDS; round++) {
    const heat = 0.12 * (1 - round / ROUNDS), push = new Map(nodes.map(slot => [slot, [0, 0]]));
    const move = (/** @type {number} */ a, /** @type {number} */ b, /** @type {(d: number) => number} */ force) => {
      const p = place.get(a) ?? [0, 0], q = place.get(b) ?? [0, 0], dx = p[0] - q[0], dy = p[1] - q[1], d = Math.max(0.01, Math.hypot(dx, dy)), f = force(d) / d;
      const u = push.get(a) ?? [0, 0], v = push.get(b) ?? [0, 0];
      u[0] += dx * f, u[1] += dy * f, v[0] -= dx * f, v[1] -= dy * f;
    };
    for (let i = 0; i < nodes.length; i++) for (let j = 0; j < i; j++) move(nodes[i], nodes[j], d => want * want / d);
    for (const tie of ties) if (place.has(tie.a) && place.has(tie.b)) move(tie.a, tie.b, d => -d * d / want * (0.15 + Math.max(tie.rivalry, tie.familiarity) / 2));
    for (const slot of nodes) {
      const [x, y] = push.get(slot) ?? [0, 0], p = place.get(slot) ?? [0, 0], far = Math.max(1e-9, Math.hypot(x, y));
      p[0] += x / far * Math.min(heat, far) - p[0] * 0.01;
      p[1] += y / far * Math.min(heat, far) - p[1] * 0.01;
    }
  }
  const all = [...place.values()], low = [0, 1].map(k => Math.min(...all.map(p => p[k]))), high = [0, 1].map(k => Math.max(...all.map(p => p[k])));
  for (const p of all) for (const k of [0, 1]) p[k] = high[k] - low[k] < 1e-6 ? 0.5 : (p[k] - low[k]) / (high[k] - low[k]);
  return place;
}

/** @param {number} a @param {number} b */
const pairKey = (a, b) => `${Math.min(a, b)}~${Math.max(a, b)}`;

export class Ties {
  /** @param {any} page */
  constructor(page) {
    this.page = page;
    this.canvas = byId("ties-canvas");
    /** @type {any[]} */ this.ties = [];
    this.key = this.shape = "";
    /** @type {Map<number, number[]> | null} */ this.layout = null;
    this.canvas.addEventListener("click", (/** @type {MouseEvent} */ e) => {
      let best = -1, least = 22 ** 2;
      for (const [slot, [x, y]] of this.places(this.canvas.clientWidth, this.canvas.clientHeight)) {
        const d = (x - e.offsetX) ** 2 + (y - e.offsetY) ** 2;
        if (d < least) [best, least] = [slot, d];
      }
      if (best >= 0) this.page.select(best);
    });
  }

  open() {
    this.key = "";
    this.layout = null;
  }

  async show() {
    const source = this.page.a, t = this.page.player.t, key = `${source.head.id}/${source.decisionOf(t)}/${this.page.who}`;
    if (key === this.key) return;
    this.key = key;
    let ties = [];
    try {
      ties = await source.ties(t);
    } catch (error) {
      byId("ties-note").textContent = /** @type {Error} */ (error).message;
      return;
    }
    if (this.key !== key) return;
    const { head } = source, small = head.people.length <= MOST_NODES;
    if (!small) {
      const worst = [...ties].sort((a, b) => b.rivalry - a.rivalry).slice(0, 50), mine = ties.filter((/** @type {any} */ tie) => tie.a === this.page.who || tie.b === this.page.who);
      ties = [...new Set([...mine, ...worst])];
    }
    this.ties = ties;
    const nodes = small ? head.people.map((/** @type {any} */ one) => one.slot) : [...new Set(ties.flatMap((/** @type {any} */ tie) => [tie.a, tie.b]))];
    const shape = `${head.id}/${nodes.length}/${small ? "" : this.page.who}`;
    if (!this.layout || this.shape !== shape) {
      this.layout = springs(nodes, ties);
      this.shape = shape;
    }
    byId("ties-note").textContent = small ? "Red: rivalry. Blue and dashed: trust. The thicker, the stronger. Click a resident to see only their ties." : "The 50 worst feuds, and the ties of the selected resident.";
    this.draw();
    this.list(ties);
  }

  /** @param {any[]} ties */
  list(ties) {
    const source = this.page.a, { head } = source, first = new Map();
    for (const e of source.eventsHere(source.first, this.page.player.t + 1)) if (e.name === "queue_conflict" && !first.has(pairKey(e.actor, e.rival))) first.set(pairKey(e.actor, e.rival), e.tick);
    const told = (/** @type {any} */ tie) => `${tie.rivalry.toFixed(2)} ${tie.trust.toFixed(2)}`, byPair = new Map(ties.map(tie => [`${tie.a}~${tie.b}`, told(tie)]));
    const mutual = (/** @type {any} */ tie) => byPair.get(`${tie.b}~${tie.a}`) === told(tie); // told once
    const rows = ties.filter(tie => tie.a < tie.b || !mutual(tie)).sort((a, b) => b.rivalry - a.rivalry || b.trust - a.trust).slice(0, 40).map(tie => make("tr", {},
      make("th", { scope: "row" }, link(tie.a_name, () => this.page.select(tie.a))),
      make("td", {}, make("span", { class: "soft", text: mutual(tie) ? "↔ " : "→ " }), link(tie.b_name, () => this.page.select(tie.b))),
      make("td", { class: `number ${tie.rivalry >= head.avoid_line ? "bad" : ""}`, text: tie.rivalry.toFixed(2) }), make("td", { class: "number", text: fixed(tie.trust) }),
      make("td", {}, this.since(first.get(pairKey(tie.a, tie.b)), tie.rivalry))));
    byId("ties-body").replaceChildren(...rows);
  }

  /** @param {number | undefined} tick of the first clash of the two in this film @param {number} rivalry */
  since(tick, rivalry) {
    if (tick === undefined) return make("span", { class: "soft", text: rivalry > 0 ? "before this day" : "–" });
    return link(clockTime(this.page.a.head, tick), () => this.page.seek(tick), "time");
  }

  /** @param {number} width @param {number} height @returns {Map<number, number[]>} */
  places(width, height) {
    const edge = 30;
    return new Map([...(this.layout ?? [])].map(([slot, [x, y]]) => [slot, [edge + x * (width - 2 * edge), edge + y * (height - 2 * edge)]]));
  }

  draw() {
    const here = this.layout ? fitted(this.canvas) : null;
    if (!here) return;
    const source = this.page.a, frame = source.peek(this.page.player.t), { c, width, height } = here, places = this.places(width, height), who = this.page.who;
    c.clearRect(0, 0, width, height);
    for (const tie of [...this.ties].sort((a, b) => a.rivalry - b.rivalry)) {
      const p = places.get(tie.a), q = places.get(tie.b);
      if (!p || !q) continue;
      const rival = tie.rivalry >= 0.1 && tie.rivalry >= tie.trust, strength = rival ? tie.rivalry : tie.trust;
      if (strength < 0.08) continue;
      c.strokeStyle = colour(rival ? "bad" : "h0");
      c.globalAlpha = who < 0 || tie.a === who || tie.b === who ? 0.3 + strength * 0.6 : 0.12;
      c.lineWidth = 0.8 + strength * 3.5;
      c.setLineDash(rival ? [] : [6, 4]);
      const mx = (p[0] + q[0]) / 2 + (q[1] - p[1]) * 0.12, my = (p[1] + q[1]) / 2 - (q[0] - p[0]) * 0.12; // each direction has its own bow
      c.beginPath();
      c.moveTo(p[0], p[1]);
      c.quadraticCurveTo(mx, my, q[0], q[1]);
      c.stroke();
    }
    c.setLineDash([]);
    c.globalAlpha = 1;
    c.textAlign = "center";
    c.textBaseline = "middle";
    for (const [slot, [x, y]] of places) {
      c.fillStyle = colour(slot === who ? "ink" : "person");
      disc(c, x, y, 13);
      c.fill();
      c.font = "700 10px system-ui, sans-serif";
      c.fillStyle = colour(slot === who ? "paper" : "oncolour");
      c.fillText(source.head.people[slot].mark.toLowerCase(), x, y + 0.5);
      c.font = "11px system-ui, sans-serif";
      c.fillStyle = colour("ink");
      c.fillText(nameOf(source.head, frame, slot), x, y + 21);
    }
  }
}
