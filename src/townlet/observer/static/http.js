// @ts-check
/** The server: what is asked of it, and a take's film fetched from it. */
import { decodeReel, SourceError } from "./source.js";
import { asSentence } from "./words.js";

const PACKED_BYTES = 64 << 20;

/** @param {string} path @param {any} [body] posted as JSON where given */
export async function ask(path, body) {
  /** @type {Response} */ let answer;
  const post = { method: "POST", headers: { "content-type": "application/json", "x-townlet": "1" }, body: JSON.stringify(body) };
  try {
    answer = await fetch(`api/${path}`, body === undefined ? {} : post);
  } catch {
    throw new SourceError("The server does not answer; what is here plays on.");
  }
  if (!answer.ok) {
    const told = await answer.json().catch(() => ({}));
    throw new SourceError(asSentence(told.error ?? `the server answered ${answer.status}`));
  }
  return answer;
}

/** @param {string} path @param {any} [body] @returns {Promise<any>} */
export async function askJson(path, body) {
  return (await ask(path, body)).json();
}

export class HttpStore {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    /** @type {Map<number, Uint8Array>} */ this.packed = new Map();
    this.bytes = 0;
  }

  /** @param {number} k @param {any} table */
  async reel(k, table) {
    const here = this.packed.get(k);
    if (here) return decodeReel(here, table);
    const found = new Uint8Array(await (await ask(`takes/${this.id}/reels/${k}`)).arrayBuffer());
    this.packed.set(k, found);
    this.bytes += found.length;
    while (this.bytes > PACKED_BYTES && this.packed.size > 1) {
      const [oldest, bytes] = /** @type {[number, Uint8Array]} */ (this.packed.entries().next().value);
      this.packed.delete(oldest);
      this.bytes -= bytes.length;
    }
    return decodeReel(found, table);
  }

  /** @param {number} t @param {number} slot */
  why(t, slot) {
    return askJson(`takes/${this.id}/why/${t}/${slot}`);
  }

  /** @param {number} t */
  async ties(t) {
    return (await askJson(`takes/${this.id}/ties/${t}`)).ties;
  }

  async moments() {
    return (await askJson(`takes/${this.id}/moments`)).moments;
  }

  /** @param {string} other */
  divergence(other) {
    return askJson(`takes/${this.id}/divergence/${other}`);
  }
}
