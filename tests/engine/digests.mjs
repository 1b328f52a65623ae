// The towns of a folder's runs.json in the engine, each from its first tick: the digests that they end with.
// In Node: `node digests.mjs FOLDER` prints them, one a line; in a browser a page of that folder calls `digestsOf`.

/** @param {any} Engine @param {(name: string) => Promise<Uint8Array>} read a file of the folder */
export async function digestsOf(Engine, read) {
  const json = async name => JSON.parse(new TextDecoder().decode(await read(name)));
  const module = await WebAssembly.compile(await read("engine.wasm")), found = [];
  for (const { town, policy, seeds, decisions } of await json("runs.json")) {
    const engine = new Engine(module, await json(`${town}.json`), await read(`${town}.bin`));
    for (const seed of seeds) {
      engine.reset(seed);
      for (let k = 0; k < decisions; k++) {
        engine.decide(policy);
        engine.step();
      }
      found.push(engine.digest());
    }
  }
  return found;
}

if (typeof process !== "undefined") {
  const { readFile } = await import("node:fs/promises"), { pathToFileURL } = await import("node:url"), [folder] = process.argv.slice(2);
  const { Engine } = await import(pathToFileURL(`${folder}/engine.mjs`).href);
  console.log((await digestsOf(Engine, name => readFile(`${folder}/${name}`))).join("\n"));
}
