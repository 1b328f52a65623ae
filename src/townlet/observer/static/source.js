// @ts-check
/**
 * Where moments come from. The rest of the page knows a source only by
 * `head, first, last, peek(t), frame(t), eventsHere(a, b), why(t, slot), ties(t), moments(), preload()`; only this file knows bytes.
 */

/** What went wrong, as a sentence for people. */
export class SourceError extends Error {}

const DECODED_BYTES = 96 << 20;
const PRELOAD_BYTES = 64 << 20;
const RETRY = 1500; // ms before a reel that did not come is sent for again

/** @param {Uint8Array} bytes @returns {Promise<Uint8Array>} */
export async function inflate(bytes) {
  const stream = new Blob([/** @type {any} */ (bytes)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** @param {Uint8Array} bytes as `zlib.compress` makes them, in base64url */
export async function deflated(bytes) {
  const packed = new Uint8Array(await new Response(new Blob([/** @type {any} */ (bytes)]).stream().pipeThrough(new CompressionStream("deflate"))).arrayBuffer());
  return btoa(Array.from(packed, byte => String.fromCharCode(byte)).join("")).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** @param {string} text base64 @returns {Uint8Array} */
export function fromBase64(text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/** An array for the whole numbers of a column. @param {any} column @param {number} size */
export function numbersFor(column, size) {
  if (column.bytes === 1) return column.signed ? new Int8Array(size) : new Uint8Array(size);
  if (column.bytes === 2) return column.signed ? new Int16Array(size) : new Uint16Array(size);
  return column.signed ? new Int32Array(size) : new Uint32Array(size);
}

/**
 * The columns of a reel: group → name → whole numbers, row after row.
 * @param {Uint8Array} data @param {Record<string, any[]>} table
 */
export async function decodeReel(data, table) {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  if (data.length < 8 || String.fromCharCode(...data.subarray(0, 4)) !== "TWR1") throw new SourceError("This reel does not begin with TWR1: the film is damaged.");
  const size = view.getUint32(4, true);
  /** @type {any} */ let header, /** @type {Uint8Array} */ body;
  try {
    header = JSON.parse(new TextDecoder().decode(data.subarray(8, 8 + size)));
    body = await inflate(data.subarray(8 + size));
  } catch {
    throw new SourceError("A reel cannot be unpacked: the film is damaged.");
  }
  let at = 0;
  /** @type {Record<string, any>} */ const groups = {};
  for (const [group, shape] of Object.entries(header.groups)) {
    const [planes, rows, width] = /** @type {number[]} */ (shape), cells = rows * width;
    if (at + planes * cells > body.length) throw new SourceError("A reel is shorter than its header tells: the film is damaged.");
    /** @type {Record<string, any>} */ const found = { rows, width };
    for (const column of table[group]) {
      const values = numbersFor(column, cells);
      for (let b = 0; b < column.bytes; b++) {
        const plane = body.subarray(at, at + cells);
        for (let i = width; i < cells; i++) plane[i] ^= plane[i - width];
        if (column.bytes === 1) values.set(plane);
        else for (let i = 0, shift = 8 * b; i < cells; i++) values[i] |= plane[i] << shift;
        at += cells;
      }
      if (column.signed && column.bytes === 3) for (let i = 0; i < cells; i++) values[i] = values[i] << 8 >> 8;
      found[column.name] = values;
    }
    groups[group] = found;
  }
  return { first: header.first, ticks: header.ticks, groups, bytes: body.length };
}

const QUEUES = 4, CALLED = 5, STATE = 127, QUARRELS = 128; // of `doing`: places in `head.doing`, and a bit above them

/** One moment. Columns are views into a reel: residents by slot, objects by index. */
class Frame {
  /** @param {any} head @param {any} reel @param {number} t */
  constructor(head, reel, t) {
    const k = t - reel.first, r = reel.groups.residents, o = reel.groups.objects, cut = (/** @type {any} */ a, /** @type {number} */ w) => a.subarray(k * w, k * w + w);
    this.t = t;
    this.reel = reel;
    this.residents = r.width;
    this.x = cut(r.x, r.width);
    this.y = cut(r.y, r.width);
    this.action = cut(r.action, r.width);
    this.doing = cut(r.doing, r.width);
    this.thing = cut(r.thing, r.width);
    this.rivalry = cut(r.rivalry, r.width);
    /** @type {Uint8Array[]} */ this.needs = head.needs.map((/** @type {any} */ need) => cut(r[need.name], r.width));
    this.user = cut(o.user, o.width);
    this.waiting = cut(o.waiting, o.width);
    this.stock = cut(o.stock, o.width);
    this.troubles = reel.groups.town.troubles[k];
  }

  /** What a slot does, a place in `head.doing`; 0 when nobody is there. @param {number} slot */
  state(slot) {
    return this.doing[slot] & STATE;
  }

  /** @param {number} slot */
  waits(slot) {
    const state = this.state(slot);
    return state === QUEUES || state === CALLED;
  }

  /** @param {number} slot */
  called(slot) {
    return this.state(slot) === CALLED;
  }

  /** @param {number} slot */
  quarrels(slot) {
    return this.doing[slot] >= QUARRELS;
  }

  /** Who lives in a slot: 0 the founder, k the k-th newcomer. @param {number} slot */
  life(slot) {
    let life = this.reel.groups.lives.life[slot];
    for (const e of this.reel.arrivals) if (e.actor === slot && e.tick < this.t) life = e.actor_life;
    return life;
  }
}

/** Reels of one take, unpacked as they are needed, within bounds. */
export class ReelSource extends EventTarget {
  /** @param {any} head @param {any} store `reel(k)`, `why(t, slot)`, `ties(t)`, `moments()`, `divergence(other)` */
  constructor(head, store) {
    super();
    this.head = head;
    this.store = store;
    this.first = head.first;
    this.last = head.first + head.ticks - 1;
    /** @type {Map<number, any>} */ this.reels = new Map();
    /** @type {Map<number, Promise<any>>} */ this.coming = new Map();
    /** @type {Map<number, any[]>} */ this.told = new Map();
    /** @type {Map<string, Promise<any>>} */ this.answers = new Map();
    /** @type {Map<number, number>} */ this.failed = new Map();
    this.bytes = 0;
    this.shot = head.lives ? head.reels : (head.shot ?? head.reels); // reels that are there without waiting; a server that still shoots says how many
    /** @type {any} */ this.lastFrame = null;
  }

  /** @param {number} t */
  clamp(t) {
    return Math.max(this.first, Math.min(this.last, t));
  }

  /** The tick from which on a moment has to be simulated first. */
  get shotUntil() {
    return Math.min(this.last + 1, this.first + this.shot * this.head.reel_ticks);
  }

  /** @param {number} t */
  reelOf(t) {
    return Math.floor((t - this.first) / this.head.reel_ticks);
  }

  /** The moment, if it is at hand; if not, it is sent for. @param {number} t @returns {Frame | null} */
  peek(t) {
    if (this.lastFrame?.t === t) return this.lastFrame;
    const k = this.reelOf(t), reel = this.reels.get(k);
    if (!reel) {
      if (performance.now() - (this.failed.get(k) ?? -Infinity) > RETRY) this.load(k).catch(() => {});
      return null;
    }
    reel.used = performance.now();
    this.lastFrame = new Frame(this.head, reel, t);
    return this.lastFrame;
  }

  /** A moment that is at hand or null; nothing is sent for. @param {number} t @returns {Frame | null} */
  glance(t) {
    const reel = t < this.first || t > this.last ? null : this.reels.get(this.reelOf(t));
    return reel ? new Frame(this.head, reel, t) : null;
  }

  /** @param {number} t @returns {Promise<Frame>} */
  async frame(t) {
    await this.load(this.reelOf(t));
    return /** @type {Frame} */ (this.peek(t));
  }

  /** @param {number} k @returns {Promise<any>} */
  load(k) {
    const here = this.reels.get(k);
    if (here) return Promise.resolve(here);
    let coming = this.coming.get(k);
    if (!coming) {
      coming = this.fetchReel(k).finally(() => this.coming.delete(k));
      this.coming.set(k, coming);
    }
    return coming;
  }

  /** @param {number} k */
  async fetchReel(k) {
    try {
      const reel = await this.store.reel(k, this.head.columns), e = reel.groups.events, names = this.head.columns.events;
      const rows = [];
      for (let i = 0; i < e.rows; i++) {
        /** @type {Record<string, any>} */ const row = {};
        for (const column of names) row[column.name] = e[column.name][i] * (column.scale ?? 1);
        row.name = this.head.events[row.kind];
        rows.push(row);
      }
      this.told.set(k, rows);
      const found = Object.assign(reel, { arrivals: rows.filter(row => row.name === "newcomer"), used: performance.now() });
      this.reels.set(k, found);
      this.bytes += found.bytes;
      this.forget(k);
      this.dispatchEvent(new CustomEvent("reel", { detail: k }));
      if (this.failed.delete(k)) this.dispatchEvent(new CustomEvent("mended"));
      return found;
    } catch (error) {
      this.failed.set(k, performance.now());
      const told = error instanceof SourceError ? error : new SourceError("The film cannot be read.");
      this.dispatchEvent(new CustomEvent("trouble", { detail: told.message }));
      throw told;
    }
  }

  /** Let go of the reels used longest ago. @param {number} keep */
  forget(keep) {
    while (this.bytes > DECODED_BYTES && this.reels.size > 4) {
      const [k, reel] = [...this.reels].filter(([n]) => n !== keep).sort((a, b) => a[1].used - b[1].used)[0];
      this.reels.delete(k);
      this.bytes -= reel.bytes;
    }
  }

  /** Unpack the whole film, if it is small. */
  async preload() {
    if (this.head.ticks * (this.head.people.length * 12 + this.head.things.length * 4) > PRELOAD_BYTES) return false;
    for (let k = 0; k < this.head.reels; k++) await this.load(k);
    return true;
  }

  /** Events of ticks a … b - 1 that are unpacked. @param {number} a @param {number} b */
  eventsHere(a, b) {
    const found = [];
    for (let k = this.reelOf(Math.max(a, this.first)); k <= this.reelOf(Math.min(b - 1, this.last)); k++)
      for (const row of this.told.get(k) ?? []) if (row.tick >= a && row.tick < b) found.push(row);
    return found;
  }

  /** What the last decision left in a column (wallet, reward, value), NaN where it is not at hand. @param {string} name @param {number} t @returns {(slot: number) => number} */
  decided(name, t) {
    const column = this.head.columns.decisions.find((/** @type {any} */ one) => one.name === name);
    const at = this.decisionOf(t), reel = column && this.reels.get(this.reelOf(at));
    const row = reel ? reel.groups.decided.tick.indexOf(at) : -1;
    if (row < 0) return () => NaN;
    const { width } = reel.groups.decisions, values = reel.groups.decisions[name];
    return slot => values[row * width + slot] * (column.scale ?? 1);
  }

  /** @param {number} t */
  decisionOf(t) {
    return t - (t - this.first) % this.head.interval;
  }

  /** @param {string} key @param {() => Promise<any>} ask */
  once(key, ask) {
    let answer = this.answers.get(key);
    if (!answer) {
      answer = ask();
      answer.catch(() => this.answers.delete(key));
      this.answers.set(key, answer);
      if (this.answers.size > 2000) this.answers.delete(this.answers.keys().next().value ?? "");
    }
    return answer;
  }

  /** @param {number} t @param {number} slot @returns {Promise<any>} null where it is not known */
  why(t, slot) {
    const at = this.decisionOf(t);
    return this.once(`why/${at}/${slot}`, () => this.store.why(at, slot));
  }

  /** @param {number} t @returns {Promise<any[]>} */
  ties(t) {
    const at = this.decisionOf(t);
    return this.once(`ties/${at}`, () => this.store.ties(at));
  }

  /** @returns {Promise<any[]>} */
  moments() {
    return this.once("moments", () => this.store.moments());
  }

  /** @param {ReelSource} other */
  divergence(other) {
    return this.once(`divergence/${other.head.id}`, () => this.store.divergence(other.head.id));
  }
}

// --- a page that carries its film ----------------------------------------------------------------------------------------

export class InlineStore {
  /** @param {any} part */
  constructor(part) {
    this.part = part;
  }

  /** @param {number} k @param {any} table */
  async reel(k, table) {
    /** @type {Uint8Array} */ let packed;
    try {
      packed = fromBase64(this.part.reels[k]);
    } catch {
      throw new SourceError("A reel of this file is not base64: the file is damaged.");
    }
    return decodeReel(packed, table);
  }

  /** @param {number} t @param {number} slot */
  async why(t, slot) {
    return this.part.why?.[`${t}/${slot}`] ?? null;
  }

  /** @param {number} t */
  async ties(t) {
    const at = Object.keys(this.part.ties ?? {}).map(Number).filter(k => k <= t).sort((a, b) => b - a)[0];
    return at === undefined ? [] : this.part.ties[at];
  }

  async moments() {
    return this.part.moments ?? [];
  }

  /** @param {string} other */
  async divergence(other) {
    return this.part.divergence?.[other] ?? null;
  }
}
