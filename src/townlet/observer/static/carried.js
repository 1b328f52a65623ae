// @ts-check
/** The page of a file: the film it carries, or the town that lives in it. */
import { openPage } from "./main.js";
import { LivingTown } from "./library.js";
import { fromBase64, inflate, InlineStore, ReelSource, SourceError } from "./source.js";

/** @param {string} id of an element with the base64 of something deflated */
async function carriedBytes(id) {
  try {
    return await inflate(fromBase64(document.getElementById(id)?.textContent ?? ""));
  } catch {
    throw new SourceError("The film in this file cannot be read: the file is damaged. Write it again with townlet observe --save.");
  }
}

/** @returns {Promise<import("./main.js").Library>} */
async function carriedLibrary() {
  const parts = JSON.parse(new TextDecoder().decode(await carriedBytes("film"))), about = { ...parts.about, open: parts.open };
  const takes = parts.takes.map((/** @type {any} */ part) => part.header ?? part).map((/** @type {any} */ { id, title }) => ({ id, title }));
  if (parts.living) {
    const [module, image] = await Promise.all([carriedBytes("engine").then(bytes => WebAssembly.compile(/** @type {any} */ (bytes))), carriedBytes("image")]), living = new LivingTown(parts, module, image, takes);
    return { about, takes, offline: true, living, open: id => living.open(id), branch: (...what) => living.branch(...what), adopt: take => living.adopt(take) };
  }
  const byTake = new Map(parts.takes.map((/** @type {any} */ part) => [part.header.id, part]));
  const refuse = async () => { throw new SourceError("A film cannot branch; open the town with townlet observe."); };
  return { about, takes, offline: true, living: null, open: async id => new ReelSource(byTake.get(id).header, new InlineStore(byTake.get(id))), branch: refuse, adopt: refuse };
}

openPage(carriedLibrary(), () => ({}));
