// @ts-check
/** Many futures of one moment, as it was and changed, on the same luck, lived in a worker: `townlet fork` in the page. */
import { byId, make } from "./dom.js";
import { Engine } from "./engine.js";
import { SourceError } from "./source.js";
import { clockTime, signed } from "./words.js";

const FUTURES = 64;
/** What is counted to the end of the episode, over everybody. */
const COUNTED = { reward: "reward, all together", queue_conflict: "conflicts", quarrel: "quarrels", waited: "minutes waited", exit: "exits" };

/**
 * One future of an arm: the town goes on under another id, whose luck is its own and the same in both arms. Runs in the worker too.
 * @param {Engine} engine @param {any} arm @param {number} k
 */
function liveFuture(engine, arm, k) {
  engine.restore(arm.changed, arm.fixed);
  engine.set("s.towns", 0, "id", engine.get("s.towns", 0, "id") + k);
  /** @type {Record<string, number>} */ const found = { reward: 0, queue_conflict: 0, quarrel: 0, waited: 0, exit: 0 };
  const residents = engine.rows("b.rewards");
  for (let first = true; !engine.get("s.towns", 0, "over"); first = false) {
    engine.part("targets").fill(255);
    engine.decide(arm.policy);
    if (first) for (const [slot, action] of arm.forced) engine.set("choices", slot, undefined, action);
    engine.step();
    for (let slot = 0; slot < residents; slot++) found.reward += engine.get("b.rewards", slot);
    for (let i = 0, count = engine.get("s.towns", 0, "events"); i < count; i++) {
      const name = arm.events[engine.get("s.events", i, "kind")];
      if (name in found) found[name] += 1;
      if (name === "use_start" || name === "queue_leave") found.waited += Math.max(0, engine.get("s.events", i, "waited"));
    }
  }
  return found;
}

/** @param {any} a @param {any} b sources of two living takes of one town */
function armsOf(a, b) {
  const same = (/** @type {any} */ one, /** @type {any[]} */ list) => list.some(other => other.at === one.at && other.do === one.do), mine = a.head.take.changes ?? [], theirs = b.head.take.changes ?? [];
  const parted = [...mine.filter((/** @type {any} */ one) => !same(one, theirs)), ...theirs.filter((/** @type {any} */ one) => !same(one, mine))].map(one => b.store.decisionAt(one.at));
  const decision = a.head.take.policy === b.head.take.policy ? Math.min(...parted) : 0;
  if (!Number.isFinite(decision)) throw new SourceError("A and B are the same, and so are their futures.");
  if (parted.some(one => one !== decision)) throw new SourceError("A and B differ at several moments; futures need a single change.");
  if ([a, b].some(source => source.head.played)) throw new SourceError("A recording has only one future; choose a policy that decides.");
  const arms = [a, b].map(({ store, head }) => {
    store.go(decision);
    const forced = store.changes.filter((/** @type {any} */ one) => one.kind === "force" && store.decisionAt(one.at) === decision).map((/** @type {any} */ one) => [store.town.slotOf(one.words[0]), head.actions.indexOf(one.words[1])]);
    return { changed: store.engine.save(), fixed: store.engine.tables(), policy: head.take.policy, events: head.events, forced };
  });
  return { arms, tick: a.head.first + decision * a.head.interval };
}

/** @type {any} */ let rules; // a page may make a policy of one name once

/** An address that the page itself made. @param {string} address */
function trusted(address) {
  rules ??= /** @type {any} */ (window).trustedTypes?.createPolicy("townlet", { createScriptURL: (/** @type {string} */ text) => text });
  return rules ? rules.createScriptURL(address) : address;
}

/** @param {any} living the `LivingTown` @param {any[]} arms @param {number} count @param {(done: number) => void} tell @returns {Promise<Record<string, number>[][]>} */
function liveFutures(living, arms, count, tell) {
  const code = `${Engine}\n${liveFuture}\nonmessage = ({ data }) => { const engine = new Engine(data.module, data.header, data.image); for (let k = 0; k < data.count; k++) postMessage(data.arms.map(arm => liveFuture(engine, arm, k))); };`;
  const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" })), worker = new Worker(trusted(address));
  return new Promise((resolve, reject) => {
    /** @type {Record<string, number>[][]} */ const found = arms.map(() => []);
    worker.onmessage = ({ data }) => {
      data.forEach((/** @type {any} */ one, /** @type {number} */ k) => found[k].push(one));
      tell(found[0].length);
      if (found[0].length < count) return;
      worker.terminate();
      URL.revokeObjectURL(address);
      resolve(found);
    };
    worker.onerror = () => reject(new SourceError("The futures could not be simulated here."));
    worker.postMessage({ module: living.module, header: living.parts.living.image, image: living.image, arms, count });
  });
}

/** Mean of paired differences and its 95 % interval (Student's t). @param {number[]} before @param {number[]} after */
function pairedEffect(before, after) {
  const n = before.length, apart = after.map((x, i) => x - before[i]), mean = apart.reduce((x, y) => x + y, 0) / n;
  const spread = Math.sqrt(apart.reduce((sum, x) => sum + (x - mean) ** 2, 0) / Math.max(1, n - 1)), half = (1.96 + 2.4 / Math.max(1, n - 1)) * spread / Math.sqrt(n);
  return { mean, low: mean - half, high: mean + half };
}

/** The dialog. @param {any} page */
export async function showFutures(page) {
  const body = byId("futures-body"), said = byId("futures-said"), { a, b } = page;
  body.replaceChildren();
  byId("futures-dialog").showModal();
  try {
    const { arms, tick } = armsOf(a, b), mean = (/** @type {number[]} */ list) => list.reduce((x, y) => x + y, 0) / list.length;
    said.textContent = "Living them …";
    const [before, after] = await liveFutures(page.library.living, arms, FUTURES, done => (said.textContent = `${done} of ${FUTURES} futures …`));
    said.textContent = `${FUTURES} futures from ${clockTime(a.head, tick)} to the end, each simulated as in A and as in B with the same luck. Bold: the difference is larger than chance.`;
    body.replaceChildren(...Object.entries(COUNTED).map(([key, name]) => {
      const one = before.map(row => row[key]), two = after.map(row => row[key]), effect = pairedEffect(one, two), sure = effect.low > 0 || effect.high < 0, same = one.every((value, k) => value === two[k]);
      return make("tr", { class: sure ? "sure" : null }, make("th", { scope: "row", text: name }), make("td", { text: mean(one).toFixed(2) }), make("td", { text: mean(two).toFixed(2) }), make("td", { text: same ? "the same" : signed(effect.mean, 2) }), make("td", { text: same ? "–" : `${signed(effect.low, 2)} … ${signed(effect.high, 2)}` }));
    }));
  } catch (error) {
    said.textContent = /** @type {Error} */ (error).message;
  }
}
