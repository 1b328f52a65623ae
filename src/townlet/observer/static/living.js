// @ts-check
/** Takes that are simulated in the page: the engine runs them, changes and forced decisions included, and films every tick. */
import { Engine, sha256 } from "./engine.js";
import { deflated, fromBase64, inflate, numbersFor, SourceError } from "./source.js";
import { clockTime, eventSentence, nameOfLife } from "./words.js";
import { explainDecision } from "./reasons.js";

const STATION_BYTES = 48 << 20;
const NOBODY = 255;
const LINK_LIMIT = 64 << 10;

/** To the nearest whole number, halves to the even one. @param {number} x */
function nearestWhole(x) {
  const low = Math.floor(x), rest = x - low;
  return rest < 0.5 || (rest === 0.5 && low % 2 === 0) ? low : low + 1;
}

/** @param {number} value @param {any} column */
function asWhole(value, column) {
  const bits = 8 * column.bytes, low = column.signed ? -(2 ** (bits - 1)) : 0, high = column.signed ? 2 ** (bits - 1) - 1 : 2 ** bits - 1;
  return Math.max(low, Math.min(high, nearestWhole(value / (column.scale ?? 1))));
}

// --- changes: `sim/edits.py` in the page --------------------------------------------------------------------------------

const NUMBER_TEXT = "([-+]?\\d{1,9}(?:\\.\\d{1,9})?)", NAME_TEXT = "([a-z][a-z0-9_]{0,31})";
const CHANGE_FORMS = {
  perturb: new RegExp(`^perturb\\s+${NAME_TEXT}\\s+(\\d{1,6})$`), exit: new RegExp(`^exit\\s+${NAME_TEXT}$`), newcomer: /^newcomer$/,
  tie: new RegExp(`^tie\\s+${NAME_TEXT}\\s*~\\s*${NAME_TEXT}\\s+${NAME_TEXT}\\s*=\\s*${NUMBER_TEXT}$`), resident: new RegExp(`^resident\\s+${NAME_TEXT}\\.${NAME_TEXT}\\s*=\\s*${NUMBER_TEXT}$`),
  force: /^force\s+([a-z][a-z0-9_]{0,31})\s+([a-z][a-z0-9_:]{0,63})$/, rule: new RegExp(`^([a-z_][a-z0-9_.]*)\\s*=\\s*${NUMBER_TEXT}$`),
};

/** @param {string} text @param {any} living @param {any} head */
export function parseChange(text, living, head) {
  const line = text.trim();
  for (const [kind, form] of Object.entries(CHANGE_FORMS)) {
    const found = form.exec(line);
    if (!found) continue;
    const words = found.slice(1);
    if (kind === "perturb" && (!head.perturbations.includes(words[0]) || Number(words[1]) < 1)) throw new SourceError(`perturb takes ${head.perturbations.join(", ")} and 1 tick or more.`);
    if (kind === "tie" && !(words[2] in living.tie_fields)) throw new SourceError(`A tie has ${Object.keys(living.tie_fields).join(", ")}.`);
    if (kind === "tie") within(words[2], Number(words[3]), living.tie_fields[words[2]][0], living.tie_fields[words[2]][1]);
    if (kind === "force" && !head.actions.includes(words[1])) throw new SourceError(`There is no option ${words[1]}.`);
    if (kind === "rule") {
      const rule = living.rules.find((/** @type {any} */ one) => one.key === words[0]);
      if (!rule) throw new SourceError(`${words[0]} cannot be changed in a page; townlet observe can.`);
      within(words[0], Number(words[1]), rule.low ?? -Infinity, rule.high ?? Infinity);
      if (rule.whole && !Number.isInteger(Number(words[1]))) throw new SourceError(`${words[0]} is a whole number.`);
    }
    return { kind, words };
  }
  throw new SourceError(`The change “${line}” is not understood here; expected perturb, exit, newcomer, tie, resident, force or a rule.`);
}

/** @param {string} what @param {number} value @param {number} low @param {number} high */
function within(what, value, low, high) {
  if (!(value >= low && value <= high)) throw new SourceError(`${what} cannot be ${value}; expected ${low} to ${high}.`);
}

/** A town in the engine, and what may be done to it. */
class EngineTown {
  /** @param {Engine} engine @param {any} living @param {any} head */
  constructor(engine, living, head) {
    this.living = living;
    this.head = head;
    this.engine = engine;
    this.residents = head.people.length;
    this.scheduled = living.scheduled; // rows the scenario itself has
  }

  /** @param {string} field */
  clock(field) {
    return this.engine.get("s.towns", 0, field);
  }

  /** @param {number} slot @param {string} field @param {number} [k] */
  of(slot, field, k = 0) {
    return this.engine.get("s.residents", slot, field, k);
  }

  /** @param {number} slot */
  nameAt(slot) {
    return nameOfLife(this.head, slot, this.of(slot, "life"));
  }

  /** @param {string} name */
  slotOf(name) {
    for (let slot = 0; slot < this.residents; slot++) if (this.of(slot, "present") && this.nameAt(slot) === name) return slot;
    throw new SourceError(`There is no resident ${name} at that moment.`);
  }

  /** What falls on a tick of the episode, beside what the scenario schedules. @param {number} tick @param {string[]} words */
  schedule(tick, [kind, ticks]) {
    const day = this.engine.get("tables.rules", 0, "ticks_per_day"), minute = this.clock("day") * day + this.clock("minute") + tick - this.clock("tick"), row = this.scheduled++;
    if (row >= this.engine.rows("tables.scheduled")) throw new SourceError("No more perturbations fit into this town.");
    const values = { day: Math.floor(minute / day), minute: minute % day, kind: this.head.perturbations.indexOf(kind), duration: Number(ticks), resident: -1 };
    for (const [field, value] of Object.entries(values)) this.engine.set("tables.scheduled", row, field, value);
  }

  /** Another rule from now on: the town is carried over as `transplant` and `restore` do. @param {string[]} words */
  setRule([key, text]) {
    for (const { table, row, field, k, scale } of this.living.rules.find((/** @type {any} */ one) => one.key === key).cells) this.engine.set(table, row, field, scale === 1 ? Number(text) : Math.round(Number(text) * scale), k);
    for (let slot = 0; slot < this.residents; slot++) this.engine.set("s.residents", slot, "bed", this.engine.get("tables.start", slot, "bed"));
    this.engine.part("s.checked").fill(255);
    for (const field of ["events", "layout", "cut"]) this.engine.set("s.towns", 0, field, 0);
  }

  /** @param {{kind: string, words: string[]}} change of the world itself */
  change({ kind, words }) {
    const { engine } = this, now = this.clock("tick");
    if (kind === "exit") {
      const slot = this.slotOf(words[0]);
      engine.set("s.residents", slot, "exit_kind", this.head.reasons.exit.indexOf("scheduled"));
      engine.set("s.residents", slot, "exit_at", now);
    } else if (kind === "newcomer") {
      const slot = this.head.people.findIndex((/** @type {any} */ _, /** @type {number} */ i) => !this.of(i, "present"));
      if (slot < 0) throw new SourceError("Nobody can come: every place of the town is taken; let somebody leave first.");
      engine.set("s.residents", slot, "arrives_at", now);
    } else if (kind === "tie") {
      const a = this.slotOf(words[0]), b = this.slotOf(words[1]);
      this.setTie(a, b, words[2], Number(words[3]));
      this.setTie(b, a, words[2], Number(words[3]));
    } else this.setResident(this.slotOf(words[0]), words[1], Number(words[2]));
  }

  /** @param {number} slot @param {string} field @param {number} value */
  setResident(slot, field, value) {
    const { engine } = this, need = this.head.needs.findIndex((/** @type {any} */ one) => one.name === field);
    if (field === "wallet") {
      within(field, value, 0, this.living.richest);
      const coins = nearestWhole(value * this.living.money);
      engine.set("s.towns", 0, "purse", this.clock("purse") - (coins - this.of(slot, "wallet")));
      engine.set("s.residents", slot, "wallet", coins);
    } else if (field === "meals") {
      within(field, value, 0, this.living.max_meals);
      engine.set("s.residents", slot, "meals", Math.trunc(value));
    } else if (need >= 0) {
      within(field, value, 0, 1);
      engine.set("s.residents", slot, "needs", value, need);
    } else throw new SourceError(`A resident has no ${field}; expected wallet, meals, ${this.head.needs.map((/** @type {any} */ one) => one.name).join(", ")}.`);
  }

  /** The numbers of a tie now: they fall towards zero as time passes. @param {number} row */
  tieNow(row) {
    const passed = this.clock("tick") - this.engine.get("s.ties", row, "since");
    /** @type {Record<string, number>} */ const found = {};
    for (const name of Object.keys(this.living.tie_fields)) {
      const value = this.engine.get("s.ties", row, name), left = Math.max(Math.abs(value) - this.engine.get("tables.rules", 0, `${name}_decay`) * passed, 0);
      found[name] = left ? Math.sign(value) * left : 0;
    }
    return found;
  }

  /** @param {number} a @param {number} b @param {string} field @param {number} value */
  setTie(a, b, field, value) {
    const { engine } = this, edges = engine.header.arrays["s.ties"].shape[2], room = Math.min(engine.get("tables.rules", 0, "max_edges"), edges), first = a * edges;
    const others = Array.from({ length: edges }, (_, s) => engine.get("s.ties", first + s, "other"));
    const strength = (/** @type {number} */ s) => Math.max(...Object.values(this.tieNow(first + s)).map(Math.abs));
    let s = others.indexOf(b);
    const there = s >= 0;
    if (!there) s = others.slice(0, room).findIndex(other => other < 0);
    if (s < 0) s = Array.from({ length: room }, (_, k) => k).reduce((best, k) => (strength(k) < strength(best) ? k : best), 0);
    const row = first + s, names = Object.keys(this.living.tie_fields);
    if (!there) {
      for (const name of [...names, "peak"]) engine.set("s.ties", row, name, 0);
      engine.set("s.ties", row, "other", b);
    }
    for (const [name, now] of Object.entries(this.tieNow(row))) engine.set("s.ties", row, name, now);
    engine.set("s.ties", row, "since", this.clock("tick"));
    engine.set("s.ties", row, field, value);
    if (field === "rivalry" && value > engine.get("tables.rules", 0, "avoid_threshold")) engine.set("s.ties", row, "peak", Math.max(engine.get("s.ties", row, "peak"), value));
  }

  ties() {
    const edges = this.engine.header.arrays["s.ties"].shape[2], found = [], short = (/** @type {number} */ x) => Math.round(x * 1e4) / 1e4;
    for (let row = 0; row < this.residents * edges; row++) {
      const a = Math.floor(row / edges), b = this.engine.get("s.ties", row, "other"), since = this.engine.get("s.ties", row, "since");
      if (b < 0) continue;
      const now = Object.fromEntries(Object.entries(this.tieNow(row)).map(([name, value]) => [name, short(value)]));
      found.push({ a, b, a_name: this.nameAt(a), b_name: this.nameAt(b), ...now, since: since > 0 ? since : null });
    }
    return found;
  }
}

// --- takes --------------------------------------------------------------------------------------------------------------

/** @param {any} value as Python's `json.dumps(value, sort_keys=True, separators=(",", ":"))` writes it @returns {string} */
function canonicalText(value) {
  if (Array.isArray(value)) return `[${value.map(canonicalText).join(",")}]`;
  if (value && typeof value === "object") return `{${Object.keys(value).sort().map(key => `${canonicalText(key)}:${canonicalText(value[key])}`).join(",")}}`;
  return JSON.stringify(value).replace(/[\u007f-\uffff]/g, c => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** What is written of a take: what is not said is not written. @param {any} take */
function takeText(take) {
  return canonicalText(Object.fromEntries(Object.entries(take).filter(([, value]) => value !== null && value !== undefined && !(Array.isArray(value) && !value.length))));
}

/** A take as a file, sealed as `observer/take.py` seals it. @param {any} take */
export function takeFile(take) {
  const text = takeText(take).slice(0, -1);
  return `${text},"seal":"${sha256([new TextEncoder().encode(text)]).slice(0, 32)}"}\n`;
}

/** @param {any} take */
export function takeId(take) {
  return sha256([new TextEncoder().encode(takeText(take))]).slice(0, 12);
}

/** A take as the part of an address behind `#take=`. @param {any} take */
export async function linkOfTake(take) {
  return deflated(new TextEncoder().encode(takeText(take)));
}

/** @param {string} text behind `#take=` */
export async function takeOfLink(text) {
  try {
    if (text.length > LINK_LIMIT) throw new Error();
    return JSON.parse(new TextDecoder().decode(await inflate(fromBase64(text.replaceAll("-", "+").replaceAll("_", "/")))));
  } catch {
    throw new SourceError("The take of this link cannot be read; copy the link again.");
  }
}

/** One take, run from its first decision to its last, and the store a `ReelSource` shows it from. */
export class LivingTake {
  /** @param {any} head @param {any} living what the file tells of the town @param {() => Engine} makeEngine */
  constructor(head, living, makeEngine) {
    this.head = head;
    this.living = living;
    this.town = new EngineTown(makeEngine(), living, head);
    this.engine = this.town.engine;
    this.interval = head.interval;
    this.decisions = Math.ceil(head.ticks / head.interval);
    this.changes = (head.take.changes ?? []).map((/** @type {any} */ one) => ({ at: one.at, ...parseChange(one.do, living, head) }));
    /** @type {any[]} */ this.shots = [];
    /** @type {any[]} */ this.rows = [];
    /** @type {Map<number, {changed: Uint8Array, fixed: Uint8Array}>} */ this.stations = new Map();
    this.digest = "";
    this.film = new Uint8Array(this.decisions * head.interval * this.engine.header.arrays.film.shape[2]);
    this.every = Math.max(1, Math.ceil(this.decisions * this.engine.save().length / STATION_BYTES), Math.ceil(60 / head.interval));
    this.run();
  }

  /** The first decision at or after a tick. @param {number} tick */
  decisionAt(tick) {
    return Math.max(0, Math.ceil((tick - this.head.first) / this.interval));
  }

  run() {
    for (const { at, kind, words } of this.changes) {
      if (at < this.head.first || at >= this.head.first + this.head.ticks) throw new SourceError("That change is outside this day.");
      if (kind === "perturb") this.town.schedule(at, words);
    }
    this.fixed = this.engine.tables();
    for (let k = 0; k < this.decisions; k++) {
      this.arrive(k);
      if (k % this.every === 0) this.stations.set(k, { changed: this.engine.save(), fixed: this.fixed });
      this.shoot(k);
    }
    this.digest = this.engine.digest();
  }

  /** What is to change before a decision. @param {number} k */
  arrive(k) {
    const due = this.changes.filter((/** @type {any} */ one) => this.decisionAt(one.at) === k);
    for (const change of due) if (change.kind === "rule") this.town.setRule(change.words);
    if (due.some((/** @type {any} */ one) => one.kind === "rule")) this.fixed = this.engine.tables();
    for (const change of due) if (["exit", "newcomer", "tie", "resident"].includes(change.kind)) this.town.change(change);
  }

  /** @param {number} k */
  decide(k) {
    this.choose(k);
    this.command(k);
  }

  /** Let whoever decides choose. @param {number} k */
  choose(k) {
    const { engine } = this, played = this.head.played, n = this.town.residents;
    if (!played) return void engine.decide(this.head.take.policy);
    engine.part("targets").fill(255);
    for (let slot = 0; slot < n; slot++) {
      const action = played.actions[slot * this.decisions + k];
      engine.set("choices", slot, undefined, action === NOBODY ? 0 : action);
      if (played.targets) engine.set("targets", slot, undefined, played.targets[slot * this.decisions + k] - 1);
    }
  }

  /** Whoever is told to does what it is told. @param {number} k */
  command(k) {
    for (const one of this.changes) {
      if (one.kind !== "force" || this.decisionAt(one.at) !== k) continue;
      const slot = this.town.slotOf(one.words[0]);
      this.engine.set("choices", slot, undefined, this.head.actions.indexOf(one.words[1]));
      this.engine.set("targets", slot, undefined, -1);
    }
  }

  /** @param {number} k */
  shoot(k) {
    const { engine, head } = this, n = this.town.residents, slots = Array.from({ length: n }, (_, slot) => slot);
    const shot = { tick: engine.tick, active: slots.map(slot => engine.get("b.active", slot)), wallets: slots.map(slot => this.town.of(slot, "wallet") / this.living.money), lives: slots.map(slot => this.town.of(slot, "life")) };
    this.decide(k);
    const actions = slots.map(slot => engine.get("choices", slot)), values = head.values ? slots.map(slot => engine.get("values", slot)) : null;
    engine.step();
    this.film.set(engine.part("film", engine.rows("film")), k * engine.part("film").length);
    for (let i = 0, count = this.town.clock("events"); i < count; i++) {
      /** @type {Record<string, any>} */ const row = {};
      for (const column of head.columns.events) row[column.name] = asWhole(engine.get("s.events", i, column.name), column);
      this.rows.push(row);
    }
    this.shots.push({ ...shot, actions, values, rewards: slots.map(slot => engine.get("b.rewards", slot)) });
  }

  /** Stand before a decision. @param {number} decision */
  go(decision) {
    const near = decision - decision % this.every, { changed, fixed } = /** @type {any} */ (this.stations.get(near));
    this.engine.restore(changed, fixed);
    for (let k = near; k < decision; k++) {
      this.decide(k);
      this.engine.step();
      this.arrive(k + 1);
    }
  }

  // --- what a source asks for ---------------------------------------------------------------------------------------------

  /** @param {number} k */
  async reel(k) {
    const { head } = this, n = this.town.residents, m = head.things.length, a = head.first + k * head.reel_ticks, ticks = Math.min(head.reel_ticks, head.first + head.ticks - a), bytes = this.engine.header.arrays.film.shape[2];
    /** @type {Record<string, any>} */ const groups = {};
    let plane = 0; // where a column begins in a row of the film
    for (const [group, width] of /** @type {[string, number][]} */ ([["residents", n], ["objects", m], ["town", 1]])) {
      groups[group] = { rows: ticks, width };
      for (const column of head.columns[group]) {
        const values = numbersFor(column, ticks * width);
        for (let b = 0; b < column.bytes; b++, plane += width)
          for (let t = 0, from = (a - head.first) * bytes + plane; t < ticks; t++, from += bytes) for (let i = 0; i < width; i++) values[t * width + i] |= this.film[from + i] << 8 * b;
        groups[group][column.name] = values;
      }
    }
    const events = this.rows.filter(row => row.tick >= a && row.tick < a + ticks), decided = this.shots.filter(shot => shot.tick >= a && shot.tick < a + ticks);
    groups.events = { rows: events.length, width: 1 };
    for (const column of head.columns.events) groups.events[column.name] = numbersFor(column, events.length).map((_, i) => events[i][column.name]);
    groups.decisions = { rows: decided.length, width: n };
    const columns = { action: (/** @type {any} */ s) => s.actions.map((/** @type {number} */ one, /** @type {number} */ i) => (s.active[i] ? one : NOBODY)), reward: (/** @type {any} */ s) => s.rewards, wallet: (/** @type {any} */ s) => s.wallets, value: (/** @type {any} */ s) => s.values };
    for (const column of head.columns.decisions) {
      const values = numbersFor(column, decided.length * n);
      decided.forEach((shot, row) => columns[/** @type {keyof typeof columns} */ (column.name)](shot).forEach((/** @type {number} */ v, /** @type {number} */ i) => (values[row * n + i] = asWhole(v, column))));
      groups.decisions[column.name] = values;
    }
    groups.decided = { rows: decided.length, width: 1, tick: Int32Array.from(decided, shot => shot.tick) };
    groups.lives = { rows: 1, width: n, life: Int32Array.from(this.shots[Math.floor((a - head.first) / this.interval)].lives) };
    return { first: a, ticks, groups, bytes: ticks * bytes };
  }

  /** @param {number} t @param {number} slot */
  async why(t, slot) {
    return explainDecision(this, t, slot);
  }

  /** @param {number} t */
  async ties(t) {
    this.go(Math.floor((t - this.head.first) / this.interval));
    return this.town.ties();
  }

  async moments() {
    const { head } = this, found = [], scale = Object.fromEntries(head.columns.events.map((/** @type {any} */ one) => [one.name, one.scale ?? 1]));
    for (const raw of this.rows) {
      const kind = head.events[raw.kind], weight = this.living.moments[kind];
      if (weight === undefined || raw.tick < head.first || raw.tick >= head.first + head.ticks) continue;
      const row = { ...raw, name: kind, intensity: raw.intensity * scale.intensity, amount: raw.amount * scale.amount };
      found.push({ tick: row.tick, time: clockTime(head, row.tick), kind, text: eventSentence(head, row), slots: [row.actor, row.rival].filter(slot => slot >= 0), thing: row.object >= 0 ? row.object : null, strength: weight * Math.max(row.intensity, kind === "queue_conflict" ? 0 : 1) });
    }
    return found;
  }

  async divergence() {
    return null; // the page finds it in the films
  }

  /** Rewards of a resident over the whole take. @param {number} slot */
  returnOf(slot) {
    return this.shots.reduce((sum, shot) => sum + shot.rewards[slot], 0);
  }
}
