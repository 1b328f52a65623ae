// @ts-check
/** The time line: what happened when, lanes of things or residents, and the playhead. */
import { colour, fitted, HUES } from "./dom.js";
import { DOING_COLOURS } from "./map.js";
import { clockTime, clockDay, doingText, isClash, nameOf } from "./words.js";

const AXIS = 18;
const STRIP = 34;
const LANE = 15;
const DIFFERS = 12;
const SURPRISE = 16;
const BIN = 10; // ticks a bar of conflicts

export class TimeLine {
  /** @param {any} canvas @param {any} player */
  constructor(canvas, player) {
    this.canvas = canvas;
    this.player = player;
    /** @type {any} */ this.source = null;
    /** @type {any} */ this.other = null;
    /** @type {any[]} */ this.moments = [];
    /** @type {any[]} */ this.otherMoments = [];
    this.lanesOf = "things";
    /** @type {number[]} */ this.lanes = [];
    this.who = -1;
    this.from = 0;
    this.to = 1;
    /** @type {Map<string, any>} */ this.filled = new Map();
    this.parted = -1;
    this.dirty = true;
    this.listen();
  }

  /** @param {any} source @param {any} other */
  open(source, other) {
    this.source = source;
    this.other = other;
    this.from = source.first;
    this.to = source.last + 1;
    this.filled.clear();
    this.chooseLanes();
  }

  get left() {
    return this.canvas.clientWidth < 600 ? 8 : 118;
  }

  get small() {
    return this.canvas.clientHeight < 90;
  }

  /** The things people clash over first, then others that are shared; or the selected resident and those it met. */
  chooseLanes() {
    if (!this.source) return;
    const { things, people } = this.source.head, counts = new Map();
    const room = Math.max(1, Math.floor((this.canvas.clientHeight - this.top - 6) / LANE));
    if (this.lanesOf === "things") {
      for (const one of this.moments) if (one.thing !== null && one.thing >= 0) counts.set(one.thing, (counts.get(one.thing) ?? 0) + 1);
      const shared = things.map((/** @type {any} */ _, /** @type {number} */ m) => m).filter((/** @type {number} */ m) => things[m].kind !== "bed");
      this.lanes = shared.sort((/** @type {number} */ a, /** @type {number} */ b) => (counts.get(b) ?? 0) - (counts.get(a) ?? 0) || a - b).slice(0, room);
    } else {
      for (const one of this.moments) if (this.who < 0 || one.slots.includes(this.who)) for (const slot of one.slots) counts.set(slot, (counts.get(slot) ?? 0) + 1);
      if (this.who >= 0) counts.set(this.who, 1e9);
      this.lanes = people.map((/** @type {any} */ one) => one.slot).sort((/** @type {number} */ a, /** @type {number} */ b) => (counts.get(b) ?? 0) - (counts.get(a) ?? 0) || a - b).slice(0, room);
    }
    this.dirty = true;
  }

  /** @param {number} t */
  x(t) {
    return this.left + (this.canvas.clientWidth - this.left - 8) * (t - this.from) / (this.to - this.from);
  }

  /** @param {number} px */
  tickAt(px) {
    return Math.floor(this.from + (px - this.left) / (this.canvas.clientWidth - this.left - 8) * (this.to - this.from));
  }

  listen() {
    const canvas = this.canvas;
    let dragging = false;
    const seek = (/** @type {PointerEvent} */ e) => this.player.seek(this.tickAt(e.offsetX));
    canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ e) => {
      dragging = true;
      canvas.setPointerCapture(e.pointerId);
      seek(e);
    });
    canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ e) => {
      if (dragging) seek(e);
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (dragging = false));
    canvas.addEventListener("dblclick", () => {
      if (!this.source) return;
      this.from = this.source.first;
      this.to = this.source.last + 1;
      this.dirty = true;
      this.draw();
    });
    canvas.addEventListener("wheel", (/** @type {WheelEvent} */ e) => {
      if (!this.source) return;
      e.preventDefault();
      const whole = this.source.last + 1 - this.source.first;
      if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) return void this.shift((e.deltaX || e.deltaY) / 600 * (this.to - this.from));
      const at = this.from + (e.offsetX - this.left) / (canvas.clientWidth - this.left - 8) * (this.to - this.from);
      const span = Math.max(Math.min(30, whole), Math.min(whole, (this.to - this.from) * Math.exp(e.deltaY * 0.0015)));
      this.from = at - (at - this.from) * span / (this.to - this.from);
      this.to = this.from + span;
      this.shift(0);
    }, { passive: false });
  }

  /** @param {number} by ticks */
  shift(by) {
    const span = this.to - this.from, { first, last } = this.source;
    this.from = Math.max(first, Math.min(last + 1 - span, this.from + by));
    this.to = this.from + span;
    this.dirty = true;
    this.draw();
  }

  /** What a lane showed at every tick seen so far. @param {number} lane @returns {{value: Int32Array, wait: Uint8Array}} */
  values(lane) {
    const key = `${this.lanesOf}/${lane}`, { source } = this;
    let found = this.filled.get(key);
    if (!found) {
      found = { value: new Int32Array(source.head.ticks).fill(-1), wait: new Uint8Array(source.head.ticks), reels: new Set() };
      this.filled.set(key, found);
    }
    for (const [k, reel] of source.reels) {
      if (found.reels.has(k)) continue;
      found.reels.add(k);
      const { residents: r, objects: o } = reel.groups;
      for (let i = 0; i < reel.ticks; i++) {
        const at = reel.first - source.first + i;
        if (this.lanesOf === "things") {
          found.value[at] = o.user[i * o.width + lane] - 1;
          found.wait[at] = o.waiting[i * o.width + lane];
        } else {
          found.value[at] = r.doing[i * r.width + lane] & 127;
          found.wait[at] = r.doing[i * r.width + lane] & 128;
        }
      }
    }
    return found;
  }

  /** Residents that differ between A and B, per tick. */
  differs() {
    const { source, other } = this;
    let found = this.filled.get("differs");
    if (!found) {
      found = { value: new Int32Array(source.head.ticks).fill(-1), reels: new Set() };
      this.filled.set("differs", found);
    }
    for (const [k, a] of source.reels) {
      const b = other.reels.get(k);
      if (!b || found.reels.has(k) || a.groups.residents.width !== b.groups.residents.width) continue;
      found.reels.add(k);
      const r = a.groups.residents, q = b.groups.residents, n = r.width;
      for (let i = 0; i < Math.min(a.ticks, b.ticks); i++) {
        let count = 0;
        for (let j = i * n; j < (i + 1) * n; j++) if (r.x[j] !== q.x[j] || r.y[j] !== q.y[j] || r.doing[j] !== q.doing[j] || r.thing[j] !== q.thing[j]) count++;
        found.value[a.first - source.first + i] = count;
      }
    }
    return found.value;
  }

  /** How wrong the critic was at each decision: |r + γV′ − V| of the selected one, or the mean of all who decided. @returns {Map<number, number>} */
  surprise() {
    const { source } = this, { interval, gamma, columns, reel_ticks } = source.head, found = new Map();
    const scale = (/** @type {string} */ name) => columns.decisions.find((/** @type {any} */ one) => one.name === name)?.scale ?? 1, perValue = scale("value"), perReward = scale("reward");
    const row = (/** @type {number} */ t) => {
      const reel = source.reels.get(Math.floor((t - source.first) / reel_ticks)), k = reel ? reel.groups.decided.tick.indexOf(t) : -1;
      return k < 0 ? null : { d: reel.groups.decisions, at: k * reel.groups.decisions.width };
    };
    for (let t = source.first, now = row(t), next; t <= source.last; t += interval, now = next) {
      next = row(t + interval);
      if (!now || !next) continue;
      let sum = 0, count = 0;
      for (let i = 0; i < now.d.width; i++) {
        if ((this.who >= 0 && i !== this.who) || now.d.action[now.at + i] === 255 || next.d.action[next.at + i] === 255) continue;
        sum += Math.abs(now.d.reward[now.at + i] * perReward + (gamma * next.d.value[next.at + i] - now.d.value[now.at + i]) * perValue);
        count++;
      }
      if (count) found.set(t, sum / count);
    }
    return found;
  }

  /** @param {any} c @param {number} y @param {number} width */
  drawSurprise(c, y, width) {
    const found = this.surprise(), most = Math.max(1e-9, ...found.values()), { interval } = this.source.head, wide = Math.max(1, (width - this.left - 8) / (this.to - this.from) * interval - 1);
    this.laneName(c, "surprise", y + SURPRISE / 2);
    c.fillStyle = colour("h3");
    for (const [t, size] of found) if (t + interval > this.from && t < this.to) c.fillRect(Math.max(this.left, this.x(t)), y + SURPRISE - 2 - (SURPRISE - 3) * size / most, wide, (SURPRISE - 3) * size / most);
  }

  /** Where lanes begin. */
  get top() {
    return AXIS + STRIP + (this.other ? DIFFERS : 0) + (this.source?.head.values ? SURPRISE : 0);
  }

  draw() {
    const here = fitted(this.canvas);
    if (!here || !this.source) return;
    const { c, width, height } = here;
    if (this.dirty || !this.still || this.still.width !== this.canvas.width || this.still.height !== this.canvas.height) {
      this.still = new OffscreenCanvas(this.canvas.width, this.canvas.height);
      const s = /** @type {any} */ (this.still.getContext("2d"));
      s.scale(here.ratio, here.ratio);
      this.drawStill(s, width, height);
      this.dirty = false;
    }
    c.save();
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, this.canvas.width, this.canvas.height);
    c.drawImage(this.still, 0, 0);
    c.restore();
    const x = this.x(this.player.t + 0.5);
    if (x >= this.left - 1 && x <= width) {
      c.fillStyle = colour("ink");
      c.fillRect(x - 1, AXIS - 4, 2, height);
      c.beginPath();
      c.roundRect(x - 5, AXIS - 8, 10, 8, 3);
      c.fill();
    }
    const { head } = this.source, t = this.player.t;
    this.canvas.setAttribute("aria-valuemin", String(this.source.first));
    this.canvas.setAttribute("aria-valuemax", String(this.source.last));
    this.canvas.setAttribute("aria-valuenow", String(t));
    this.canvas.setAttribute("aria-valuetext", `Day ${clockDay(head, t)}, ${clockTime(head, t)}`);
  }

  /** Everything but the playhead. @param {any} c @param {number} width @param {number} height */
  drawStill(c, width, height) {
    const { head, first, last } = this.source, span = this.to - this.from;
    c.fillStyle = colour("card");
    c.fillRect(0, 0, width, height);
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "middle";
    const steps = [5, 15, 30, 60, 120, 180, 360, 720, 1440], step = steps.find(n => (width - this.left) * n / span >= 56) ?? 1440;
    for (let t = first; t <= last + 1; t++) {
      const minute = (head.start_minute + t - first) % head.ticks_per_day;
      if (minute % step || t < this.from || t > this.to) continue;
      const x = this.x(t);
      c.fillStyle = colour("rule");
      c.fillRect(x, AXIS - 2, 1, height);
      c.fillStyle = colour("soft");
      c.textAlign = x > width - 40 ? "right" : x < this.left + 14 ? "left" : "center";
      c.fillText(clockTime(head, t), x, 8);
    }
    if (this.source.shotUntil <= last) {
      c.fillStyle = colour("hover");
      c.fillRect(this.x(Math.max(this.from, this.source.shotUntil)), AXIS, width, height);
      c.fillStyle = colour("accent");
      c.fillRect(this.left, AXIS - 2, Math.max(0, this.x(this.source.shotUntil) - this.left), 2);
    }
    this.drawConflicts(c, width);
    let y = AXIS + STRIP;
    if (this.other && !this.small) {
      this.laneName(c, "differs", y + 5);
      const values = this.differs(), per = (width - this.left - 8) / span;
      c.fillStyle = colour("wait");
      for (let t = Math.floor(this.from); t < this.to; t++) {
        const n = values[t - first];
        if (n <= 0) continue;
        c.globalAlpha = 0.25 + 0.75 * Math.min(1, n / head.people.length);
        c.fillRect(this.x(t), y + 1, per + 0.5, 8);
      }
      c.globalAlpha = 1;
      y += DIFFERS;
    }
    if (head.values && !this.small) {
      this.drawSurprise(c, y, width);
      y += SURPRISE;
    }
    for (const lane of this.small ? [] : this.lanes) {
      if (y + LANE > height + 2) break;
      this.drawLane(c, lane, y, width);
      y += LANE;
    }
  }

  /** @param {any} c @param {string} text @param {number} y */
  laneName(c, text, y) {
    if (this.left < 60) return;
    c.fillStyle = colour("soft");
    c.textAlign = "left";
    let shown = text;
    while (shown.length > 3 && c.measureText(shown).width > this.left - 14) shown = `${shown.slice(0, -2)}…`;
    c.fillText(shown, 8, y);
  }

  /** @param {any} c @param {number} width */
  drawConflicts(c, width) {
    const { first } = this.source, bins = new Map(), floor = AXIS + STRIP - 4, per = (width - this.left - 8) / (this.to - this.from);
    this.laneName(c, "conflicts", AXIS + STRIP / 2);
    const count = (/** @type {any[]} */ list) => {
      bins.clear();
      for (const one of list) if (isClash(one.kind)) bins.set(Math.floor((one.tick - first) / BIN), (bins.get(Math.floor((one.tick - first) / BIN)) ?? 0) + 1);
      return Math.max(1, ...bins.values());
    };
    const most = Math.max(count(this.otherMoments), count(this.moments)), tall = this.other ? (STRIP - 8) / 2 : STRIP - 8, base = this.other ? AXIS + STRIP / 2 - 1 : floor;
    c.fillStyle = colour("bad");
    for (const [k, n] of bins) if (first + k * BIN + BIN > this.from && first + k * BIN < this.to) c.fillRect(Math.max(this.left, this.x(first + k * BIN)), base - tall * n / most, Math.max(1, per * BIN - 1), tall * n / most);
    if (this.other) {
      count(this.otherMoments);
      c.fillStyle = colour("fair");
      for (const [k, n] of bins) if (first + k * BIN + BIN > this.from && first + k * BIN < this.to) c.fillRect(Math.max(this.left, this.x(first + k * BIN)), base + 1, Math.max(1, per * BIN - 1), tall * n / most);
    }
    for (const one of this.moments) {
      if (one.tick < this.from || one.tick >= this.to) continue;
      const x = this.x(one.tick + 0.5);
      if (one.kind === "exit") {
        c.strokeStyle = colour("ink");
        c.lineWidth = 2;
        c.beginPath();
        c.moveTo(x - 4, AXIS + 3), c.lineTo(x + 4, AXIS + 11), c.moveTo(x + 4, AXIS + 3), c.lineTo(x - 4, AXIS + 11);
        c.stroke();
      } else if (one.kind === "perturbation") {
        c.fillStyle = colour("h5");
        c.fillRect(x, AXIS, 3, STRIP - 4);
      } else if (one.kind === "newcomer") {
        c.fillStyle = colour("good");
        c.fillRect(x - 3, AXIS + 5, 7, 2), c.fillRect(x - 0.5, AXIS + 2, 2, 8);
      }
    }
    c.fillStyle = colour("rule");
    c.fillRect(this.left, base, width - this.left - 8, 1);
    if (this.parted >= 0) {
      c.fillStyle = colour("wait");
      c.fillRect(this.x(this.parted), AXIS - 2, 2, 2000);
    }
  }

  /** @param {any} c @param {number} lane @param {number} y @param {number} width */
  drawLane(c, lane, y, width) {
    const { head, first } = this.source, { value, wait } = this.values(lane);
    this.laneName(c, this.lanesOf === "things" ? head.things[lane].id : nameOf(head, this.source.lastFrame, lane), y + LANE / 2);
    let t = Math.max(first, Math.floor(this.from));
    const end = Math.min(this.source.last + 1, Math.ceil(this.to));
    while (t < end) {
      const v = value[t - first], w = wait[t - first] > 0;
      let stop = t + 1;
      while (stop < end && value[stop - first] === v && wait[stop - first] > 0 === w) stop++;
      const x = Math.max(this.left, this.x(t)), wide = Math.max(0.6, Math.min(width - 8, this.x(stop)) - x);
      const hue = this.lanesOf === "things" ? (v >= 0 ? HUES[v % HUES.length] : "") : v > 0 ? DOING_COLOURS[v] : "";
      if (hue) {
        c.fillStyle = colour(hue);
        c.fillRect(x, y + 2, wide - (wide > 3 ? 0.7 : 0), LANE - 6);
        if (this.lanesOf === "things" && wide > 46) {
          c.fillStyle = colour("oncolour");
          c.textAlign = "left";
          c.fillText(head.people[v].id.slice(0, Math.floor(wide / 7)), x + 3, y + 2 + (LANE - 6) / 2 + 0.5);
        }
      }
      if (w) {
        c.fillStyle = colour("bad");
        c.fillRect(x, y + LANE - 4, wide, 2);
      }
      t = stop;
    }
  }

  /** What is under a point, in words. @param {number} py @param {number} t */
  tell(py, t) {
    const frame = this.source.glance(t), { head } = this.source, differs = this.other ? DIFFERS : 0, bin = Math.floor((t - this.source.first) / BIN);
    const clashes = (/** @type {any[]} */ list) => list.filter(one => isClash(one.kind) && Math.floor((one.tick - this.source.first) / BIN) === bin).length;
    if (t >= this.source.shotUntil) return "not simulated yet: a jump to here takes a moment";
    if (py < AXIS) return "";
    if (py < AXIS + STRIP) return this.other ? `conflicts in ten minutes: ${clashes(this.moments)} in A (red), ${clashes(this.otherMoments)} in B (amber)` : `conflicts in ten minutes: ${clashes(this.moments)}`;
    if (this.small) return "";
    if (py < AXIS + STRIP + differs) return `${Math.max(0, this.differs()[t - this.source.first])} residents do something else in B`;
    if (py < this.top) return "surprise: how far what came was from what the policy expected";
    const lane = this.lanes[Math.floor((py - this.top) / LANE)];
    if (lane === undefined || !frame) return "";
    if (this.lanesOf === "people") return `${nameOf(head, frame, lane)} ${doingText(head, frame, lane)}`;
    return `${head.things[lane].id}: ${frame.user[lane] ? nameOf(head, frame, frame.user[lane] - 1) : "free"}${frame.waiting[lane] ? `, ${frame.waiting[lane]} waiting` : ""}`;
  }
}
