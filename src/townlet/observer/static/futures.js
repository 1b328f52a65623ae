// @ts-check
/** Many futures of one moment, as it was and changed, on the same luck: lived in a worker, or by the server where the page cannot. */
import { byId, make } from "./dom.js";
import { Engine } from "./engine.js";
import { SourceError } from "./source.js";
import { clockTime, signed } from "./words.js";

const FUTURES = 64;
const SEVERAL = "A and B differ in more than one moment; futures need a single change.";
/** What is counted to the end of the episode, over everybody. */
const COUNTED = { reward: "reward, all together", queue_conflict: "conflicts", quarrel: "quarrels", waited: "minutes waited", exit: "exits" };

/** What the server measures instead, per resident-day. */
const MEASURED = { return: "return per resident-day", conflicts: "conflicts per resident-day", quarrels: "quarrels per resident-day", wait_mean: "minutes waited, mean", exits: "exits per resident-day" };

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

/** What is changed in one of two takes and not in the other. @param {any} a @param {any} b heads @returns {any[]} */
function changesOf(a, b) {
  const mine = a.take.changes ?? [], theirs = b.take.changes ?? [], only = (/** @type {any[]} */ list, /** @type {any[]} */ other) => list.filter(one => !other.some(two => two.at === one.at && two.do === one.do));
  const parted = [...only(mine, theirs), ...only(theirs, mine)];
  if (!parted.length && a.take.policy === b.take.policy) throw new SourceError("A and B are the same, and so are their futures.");
  if (a.played || b.played) throw new SourceError("A recording has only one future; choose a policy that decides.");
  return parted;
}

/** @param {any} a @param {any} b sources of two living takes of one town */
function armsOf(a, b) {
  const parted = changesOf(a.head, b.head).map(one => b.store.decisionAt(one.at)), decision = a.head.take.policy === b.head.take.policy ? Math.min(...parted) : 0;
  if (parted.some(one => one !== decision)) throw new SourceError(SEVERAL);
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

/** @param {string} name @param {number} before @param {number} after @param {{mean: number, low: number, high: number}} effect @param {boolean} same */
function futuresRow(name, before, after, { mean, low, high }, same) {
  return make("tr", { class: low > 0 || high < 0 ? "sure" : null }, make("th", { scope: "row", text: name }), make("td", { text: before.toFixed(2) }), make("td", { text: after.toFixed(2) }), make("td", { text: same ? "the same" : signed(mean, 2) }), make("td", { text: same ? "–" : `${signed(low, 2)} … ${signed(high, 2)}` }));
}

/** In the page. @param {any} page @param {(words: string) => void} tell */
async function livedHere({ a, b, library }, tell) {
  const { arms, tick } = armsOf(a, b), mean = (/** @type {number[]} */ list) => list.reduce((x, y) => x + y, 0) / list.length;
  const [before, after] = await liveFutures(library.living, arms, FUTURES, done => tell(`${done} of ${FUTURES} futures …`));
  return { tick, rows: Object.entries(COUNTED).map(([key, name]) => {
    const one = before.map(row => row[key]), two = after.map(row => row[key]);
    return futuresRow(name, mean(one), mean(two), pairedEffect(one, two), one.every((value, k) => value === two[k]));
  }) };
}

/** By the server: B is A with things added or taken away. @param {any} page */
async function livedThere({ a: { head: a }, b: { head: b }, library }) {
  const changes = changesOf(a, b);
  if (a.take.policy !== b.take.policy || new Set(changes.map(one => one.at)).size > 1 || changes.some(one => !b.take.changes.includes(one))) throw new SourceError(SEVERAL);
  const effects = await library.futures(a, changes, FUTURES);
  return { tick: changes[0].at, rows: Object.entries(MEASURED).filter(([key]) => effects[key]).map(([key, name]) => {
    const { before, after, effect: { difference, low, high } } = effects[key];
    return futuresRow(name, before.mean, after.mean, { mean: difference, low, high }, !difference && !low && !high);
  }) };
}

/** The dialog. @param {any} page */
export async function showFutures(page) {
  const body = byId("futures-body"), said = byId("futures-said"), tell = (/** @type {string} */ words) => (said.textContent = words);
  body.replaceChildren();
  byId("futures-dialog").showModal();
  tell("Simulating …");
  try {
    const { tick, rows } = await (page.lives(page.a) && page.lives(page.b) ? livedHere(page, tell) : livedThere(page));
    tell(`${FUTURES} futures from ${clockTime(page.a.head, tick)} to the end, each simulated as in A and as in B with the same luck. Bold: the difference is larger than chance.`);
    body.replaceChildren(...rows);
  } catch (error) {
    tell(/** @type {Error} */ (error).message);
  }
}
