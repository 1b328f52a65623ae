// @ts-check
/** A town that the page runs itself, and the takes that live in it. */
import { Engine } from "./engine.js";
import { fromBase64, inflate, ReelSource, SourceError } from "./source.js";
import { LivingTake, parseChange, takeId } from "./living.js";

/** A town that lives in the page, and its takes. */
export class LivingTown {
  /** @param {any} parts @param {WebAssembly.Module} module @param {Uint8Array} image @param {{id: string, title: string}[]} takes what there is to choose from; those born here are added */
  constructor(parts, module, image, takes) {
    this.parts = parts;
    this.module = module;
    this.image = image;
    this.takes = takes;
    /** @type {Map<string, ReelSource>} */ this.sources = new Map();
  }

  newEngine() {
    return new Engine(this.module, this.parts.living.image, this.image);
  }

  /** Run a take; what the native town says of it is what it must end with. @param {any} head */
  add(head) {
    const take = new LivingTake(head, this.parts.living, () => this.newEngine()), native = this.parts.living.digests[head.id];
    if (native !== undefined && native !== take.digest) throw new SourceError(`The town that this page runs is not the native one: its digest is ${take.digest.slice(0, 12)}, the native one ${native.slice(0, 12)}.`);
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
    const { head } = await this.open(parent), decides = policy ?? head.take.policy;
    if (!(decides in this.parts.living.image.policies) && !(policy === null && changes.every(one => one.do.startsWith("force")))) throw new SourceError("This take is a recording and cannot play another day; choose a policy that decides.");
    const merged = [...(head.take.changes ?? []), ...changes].sort((a, b) => a.at - b.at);
    return this.bear({ ...head.take, changes: merged, digest: null, policy: decides }, head);
  }

  /** The take of a link. @param {any} take */
  async adopt(take) {
    const { head } = await this.open(this.parts.takes[0].id), same = ["town", "config", "seed", "start", "ticks"].every(key => (take[key] ?? null) === (head.take[key] ?? null));
    if (!same) throw new SourceError(`The link is of ${take.town}, seed ${take.seed}; this page has ${head.take.town}, seed ${head.take.seed}. Open it with townlet observe.`);
    if (!(take.policy in this.parts.living.image.policies)) throw new SourceError(`The policy of this link, ${take.policy}, is not in this page.`);
    return this.bear(take, head);
  }

  /** @param {any} take @param {any} like the header of another take of the town */
  bear(take, like) {
    const { living, about } = this.parts, decides = take.policy, changes = take.changes ?? [];
    for (const one of changes) parseChange(one.do, living, like);
    const name = about.policies.find((/** @type {any} */ one) => one.id === decides)?.name ?? decides, title = `${take.town}, seed ${take.seed}, ${name}${changes.length === 1 ? `, ${changes[0].do}` : changes.length ? `, ${changes.length} changes` : ""}`;
    const id = takeId(take), values = Boolean(living.image.calls[`network_${decides}`]) && like.values;
    const born = { ...like, id, title, take, parent: like.id, values, played: decides === like.take.policy ? like.played : undefined };
    born.columns = { ...like.columns, decisions: like.columns.decisions.filter((/** @type {any} */ one) => values || one.name !== "value") };
    if (!this.sources.has(id)) this.add(born);
    if (!this.takes.some(one => one.id === id)) this.takes.push({ id, title });
    return born;
  }
}
