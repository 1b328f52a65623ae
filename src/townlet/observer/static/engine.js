// @ts-check
/**
 * The town itself: the kernels that train, as WebAssembly, over an image of a town's memory (`townlet.engine`).
 * Nothing here knows an argument, a table or a field by its place: the image's header tells them.
 */

/** SHA-256 in hex; a page from a file has no other that waits for nobody. @param {Uint8Array[]} parts */
export function sha256(parts) {
  const size = parts.reduce((n, part) => n + part.length, 0), bytes = new Uint8Array((size + 72) & ~63), words = new DataView(bytes.buffer);
  let at = 0;
  for (const part of parts) bytes.set(part, at), at += part.length;
  bytes[at] = 128;
  words.setUint32(bytes.length - 8, Math.floor(size / 0x20000000));
  words.setUint32(bytes.length - 4, size << 3);
  const root = (/** @type {number} */ n, /** @type {number} */ power) => { const r = n ** power; return (r - Math.floor(r)) * 0x100000000 | 0; };
  /** @type {number[]} */ const primes = [];
  for (let n = 2; primes.length < 64; n++) if (primes.every(p => n % p)) primes.push(n);
  const k = Int32Array.from(primes, p => root(p, 1 / 3)), h = Int32Array.from(primes.slice(0, 8), p => root(p, 1 / 2)), w = new Int32Array(64);
  const turn = (/** @type {number} */ x, /** @type {number} */ n) => x >>> n | x << 32 - n;
  for (let block = 0; block < bytes.length; block += 64) {
    for (let i = 0; i < 16; i++) w[i] = words.getInt32(block + 4 * i);
    for (let i = 16; i < 64; i++) w[i] = (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >>> 10) + w[i - 7] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >>> 3) + w[i - 16];
    let [a, b, c, d, e, f, g, z] = h;
    for (let i = 0; i < 64; i++) {
      const one = z + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + (e & f ^ ~e & g) + k[i] + w[i] | 0, two = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + (a & b ^ a & c ^ b & c) | 0;
      z = g, g = f, f = e, e = d + one | 0, d = c, c = b, b = a, a = one + two | 0;
    }
    [a, b, c, d, e, f, g, z].forEach((v, i) => (h[i] += v));
  }
  return Array.from(h, v => (v >>> 0).toString(16).padStart(8, "0")).join("");
}

/** One town in a memory of its own. It stands for itself: its text is also the code of the worker that lives futures. */
export class Engine {
  /** @type {Record<string, [string, number]>} */
  static kinds = { u1: ["Uint8", 1], i1: ["Int8", 1], u2: ["Uint16", 2], i2: ["Int16", 2], u4: ["Uint32", 4], i4: ["Int32", 4], f4: ["Float32", 4], f8: ["Float64", 8], i8: ["BigInt64", 8], u8: ["BigUint64", 8] };

  /** @param {WebAssembly.Module} module @param {any} header @param {Uint8Array} image */
  constructor(module, header, image) {
    this.header = header;
    const memory = new WebAssembly.Memory({ initial: Math.ceil((header.base + header.size) / 65536) });
    const stack = new WebAssembly.Global({ value: "i32", mutable: true }, header.base);
    /** @type {Record<string, any>} */ this.entries = new WebAssembly.Instance(module, { env: { __linear_memory: memory, __stack_pointer: stack } }).exports;
    this.bytes = new Uint8Array(memory.buffer);
    this.view = new DataView(memory.buffer);
    this.bytes.set(image, header.base);
    this.begin = this.save();
  }

  /** @param {string} name of a call */
  call(name) {
    const { entry, at } = this.header.calls[name], code = this.entries[entry](at);
    if (code) throw new Error(`The engine stopped in ${entry} with ${code}.`);
  }

  /** A number of an array: of row `row`, of `field`, its k-th. @param {string} name @param {number} row @param {string} [field] @param {number} [k] */
  get(name, row, field, k = 0) {
    const array = this.header.arrays[name], [kind, offset] = field === undefined ? [array.kind, 0] : array.fields[field], [type, size] = Engine.kinds[kind];
    const found = /** @type {any} */ (this.view)[`get${type}`](array.at + row * array.item + offset + k * size, true);
    return typeof found === "bigint" ? Number(found) : found;
  }

  /** @param {string} name @param {number} row @param {string | undefined} field @param {number | bigint} value @param {number} [k] */
  set(name, row, field, value, k = 0) {
    const array = this.header.arrays[name], [kind, offset] = field === undefined ? [array.kind, 0] : array.fields[field], [type, size] = Engine.kinds[kind];
    /** @type {any} */ (this.view)[`set${type}`](array.at + row * array.item + offset + k * size, size === 8 && kind !== "f8" ? BigInt(value) : Number(value), true);
  }

  /** Rows of an array. @param {string} name */
  rows(name) {
    return this.header.arrays[name].shape.reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1);
  }

  /** The bytes of an array, or of its first rows. @param {string} name @param {number} [rows] */
  part(name, rows = this.rows(name)) {
    const array = this.header.arrays[name];
    return this.bytes.subarray(array.at, array.at + rows * array.item);
  }

  get tick() {
    return this.get("s.towns", 0, "tick");
  }

  /** A number that a call is given. @param {string} call @param {string} name @param {bigint} value */
  give(call, name, value) {
    this.view.setBigUint64(this.header.calls[call].numbers[name], value, true);
  }

  /** The first tick of an episode with another seed, of the town and of whoever decides. @param {number} seed */
  reset(seed) {
    this.restore(this.begin);
    for (const [name, call] of Object.entries(this.header.calls)) if ("seed" in call.numbers) this.give(name, "seed", BigInt(seed));
    for (const [field, value] of Object.entries({ seed, episode: -1, events_lost: 0, over: 1 })) this.set("s.towns", 0, field, value);
    this.part("targets").fill(255);
    this.call("step");
  }

  /** Let a policy choose; `choices` holds what it chose. @param {string} policy */
  decide(policy) {
    for (const call of this.header.policies[policy]) this.call(call);
  }

  step() {
    this.call("step");
  }

  /** What a run changes. */
  save() {
    return this.bytes.slice(...this.header.changes);
  }

  /** What only a change of rules changes. */
  tables() {
    return this.bytes.slice(this.header.base, this.header.changes[0]);
  }

  /** @param {Uint8Array} saved @param {Uint8Array} [tables] */
  restore(saved, tables) {
    this.bytes.set(saved, this.header.changes[0]);
    if (tables) this.bytes.set(tables, this.header.base);
  }

  /** What `VectorTown.digest` gives for the same town. */
  digest() {
    return sha256(this.header.digest.map((/** @type {string} */ name) => (name === "s.events" ? this.part(name, this.get("s.towns", 0, "events")) : this.part(name))));
  }
}
