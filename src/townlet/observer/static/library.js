// @ts-check
/** What this page shows: the film it carries, the town that lives in it, or what its server has. */
import { Engine, sha256 } from "./engine.js";
import { askJson, fromBase64, HttpStore, inflate, InlineStore, ReelSource, SourceError } from "./source.js";
import { LivingTake, parseChange, takeText } from "./living.js";

/** @typedef {{about: any, takes: any[], open: (id: string) => Promise<ReelSource>, branch: (parent: string, changes: any[], policy: string | null) => Promise<any>, offline: boolean, living: LivingTown | null}} Library */

/** @param {string} id of an element with the base64 of something deflated */
async function carriedBytes(id) {
  try {
    return await inflate(fromBase64(document.getElementById(id)?.textContent ?? ""));
  } catch {
    throw new SourceError("The film in this file cannot be read: the file is damaged. Write it again with townlet observe --save.");
  }
}

/** A town that lives in the page, and its takes. */
export class LivingTown {
  /** @param {any} parts @param {WebAssembly.Module} module @param {Uint8Array} image */
  constructor(parts, module, image) {
    this.parts = parts;
    this.module = module;
    this.image = image;
    /** @type {Map<string, ReelSource>} */ this.sources = new Map();
    this.takes = parts.takes.map((/** @type {any} */ head) => ({ id: head.id, title: head.title }));
  }

  newEngine() {
    return new Engine(this.module, this.parts.living.image, this.image);
  }

  /** Run a take; what the native town says of it is what it must end with. @param {any} head */
  add(head) {
    const take = new LivingTake(head, this.parts.living, () => this.newEngine()), native = this.parts.living.digests[head.id];
    if (native !== undefined && native !== take.digest) throw new SourceError(`The town that this page runs is not the town that was saved: its digest is ${take.digest.slice(0, 12)}, the native one ${native.slice(0, 12)}. The file is damaged; write it again with townlet observe --save.`);
    const source = new ReelSource(head, take);
    this.sources.set(head.id, source);
    return source;
  }

  /** @param {string} id */
  async open(id) {
    return this.sources.get(id) ?? this.add(await this.unpacked(this.parts.takes.find((/** @type {any} */ head) => head.id === id)));
  }

  /** @param {string} id of a take that nobody shows any more */
  forget(id) {
    this.sources.delete(id);
    this.takes.splice(0, this.takes.length, ...this.takes.filter((/** @type {any} */ take) => take.id !== id));
  }

  /** A header whose recorded decisions are bytes: resident by resident, the last byte telling how many a decision has. @param {any} head */
  async unpacked(head) {
    if (typeof head.played !== "string") return head;
    const raw = await inflate(fromBase64(head.played.replaceAll("-", "+").replaceAll("_", "/"))), count = head.people.length * Math.ceil(head.ticks / head.interval);
    const targets = raw[raw.length - 1] === 3 ? new Uint16Array(raw.slice(count, 3 * count).buffer) : null;
    return { ...head, played: { actions: raw.subarray(0, count), targets } };
  }

  /** The parent with more changes, or another policy. @param {string} parent @param {any[]} changes @param {string | null} policy */
  async branch(parent, changes, policy) {
    const { head } = await this.open(parent), { living, about } = this.parts, decides = policy ?? head.take.policy;
    if (!(decides in living.image.policies) && !(policy === null && changes.every(one => one.do.startsWith("force")))) throw new SourceError("The decisions of this take were recorded, and know no other day; choose who decides.");
    for (const one of changes) parseChange(one.do, living, head);
    const merged = [...(head.take.changes ?? []), ...changes].sort((a, b) => a.at - b.at), take = { ...head.take, changes: merged, digest: null, policy: decides };
    const name = about.policies.find((/** @type {any} */ one) => one.id === decides)?.name ?? decides, title = `${take.town}, seed ${take.seed}, ${name}${merged.length ? `, ${merged.length} change${merged.length > 1 ? "s" : ""}` : ""}`;
    const id = sha256([new TextEncoder().encode(takeText(take))]).slice(0, 12), values = Boolean(living.image.calls[`network_${decides}`]) && head.values;
    const born = { ...head, id, title, take, parent, values, played: decides === head.take.policy ? head.played : undefined };
    born.columns = { ...head.columns, decisions: head.columns.decisions.filter((/** @type {any} */ one) => values || one.name !== "value") };
    if (!this.sources.has(id)) {
      this.add(born);
      this.takes.push({ id, title });
    }
    return born;
  }
}

/** @returns {Promise<Library>} */
export async function openLibrary() {
  if (document.getElementById("film")) {
    const parts = JSON.parse(new TextDecoder().decode(await carriedBytes("film")));
    const about = { ...parts.about, open: parts.open };
    if (parts.living) {
      const [module, image] = await Promise.all([carriedBytes("engine").then(bytes => WebAssembly.compile(/** @type {any} */ (bytes))), carriedBytes("image")]), living = new LivingTown(parts, module, image);
      return { about, takes: living.takes, offline: true, living, open: id => living.open(id), branch: (...what) => living.branch(...what) };
    }
    const byTake = new Map(parts.takes.map((/** @type {any} */ part) => [part.header.id, part]));
    const takes = parts.takes.map((/** @type {any} */ part) => ({ id: part.header.id, title: part.header.title }));
    const refuse = async () => { throw new SourceError("A film cannot branch; open the town with townlet observe."); };
    return { about, takes, offline: true, living: null, open: async id => new ReelSource(byTake.get(id).header, new InlineStore(byTake.get(id))), branch: refuse };
  }
  const [about, { takes }] = await Promise.all([askJson("about"), askJson("takes")]);
  const branch = async (/** @type {string} */ parent, /** @type {any[]} */ changes, /** @type {string | null} */ policy) => {
    const head = await askJson("takes", { parent, changes, policy });
    if (!takes.some((/** @type {any} */ take) => take.id === head.id)) takes.push({ id: head.id, title: head.title });
    return head;
  };
  return { about, takes, offline: false, living: null, open: async id => new ReelSource(await askJson(`takes/${id}`), new HttpStore(id)), branch };
}
