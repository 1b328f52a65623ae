// node digests.mjs FOLDER: the towns of FOLDER/runs.json in the engine; prints the digest that each ends with, one a line.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, script] = process.argv.slice(2), runs = JSON.parse(readFileSync(`${folder}/runs.json`, "utf8"));
const { Engine } = await import(pathToFileURL(script).href), module = await WebAssembly.compile(readFileSync(`${folder}/engine.wasm`));
for (const { town, policy, seeds, decisions } of runs) {
  const engine = new Engine(module, JSON.parse(readFileSync(`${folder}/${town}.json`, "utf8")), readFileSync(`${folder}/${town}.bin`));
  for (const seed of seeds) {
    engine.reset(seed);
    for (let k = 0; k < decisions; k++) {
      engine.decide(policy);
      engine.step();
    }
    console.log(engine.digest());
  }
}
