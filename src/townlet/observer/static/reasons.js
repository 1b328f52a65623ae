// @ts-check
/** Why somebody decided so, read from the engine's memory: `observer/witness.py` and `sim/mask_reasons.py` in the page. */
import { clockTime, optionText, plain, WAYS } from "./words.js";

/** @param {number} minute */
const clockOf = minute => `${String(Math.floor(minute / 60) % 24).padStart(2, "0")}:${String(minute % 60).padStart(2, "0")}`;

/** Every option the mask forbids, by reason. @param {any} take a `LivingTake` that stands before the decision @param {number} slot */
function maskedOptions(take, slot) {
  const { engine, town, head, living } = take, me = (/** @type {string} */ field, k = 0) => town.of(slot, field, k);
  /** @type {Map<string, string[]>} */ const found = new Map();
  head.actions.forEach((/** @type {string} */ name, /** @type {number} */ a) => {
    if (engine.get("b.masks", slot * head.actions.length + a)) return;
    const reason = !me("present") ? "the place is empty" : me("using") >= 0 ? `is using ${head.things[me("using")].id} and has to finish or leave it first` : reasonOf(take, slot, name, a);
    found.set(reason, [...(found.get(reason) ?? []), name]);
  });
  return [...found].map(([reason, options]) => ({ reason, options }));
}

/** @param {any} take @param {number} slot @param {string} name @param {number} action @returns {string} */
function reasonOf(take, slot, name, action) {
  const { engine, town, living } = take, me = (/** @type {string} */ field) => town.of(slot, field);
  if (name === "work") {
    if (me("job") < 0) return "has no job";
    const start = engine.get("tables.jobs", me("job"), "start"), end = start + engine.get("tables.jobs", me("job"), "length");
    return `the shift is ${clockOf(start)}–${clockOf(end % 1440)}; it opens ${engine.get("tables.rules", 0, "work_ahead")} min before`;
  }
  if (name === "home") return "is at home";
  if (name === "chat") {
    const ready = me("chat_ready") - town.clock("tick");
    return ready > 0 ? `talked a while ago, not again for ${ready} min` : "nobody next to them is free to talk";
  }
  if (name === "leave") return "neither uses nor waits for anything";
  if (name.startsWith("move_")) return "no way there";
  if (name === "reserve") return "is not on its way to an object that is taken and that nobody waits for";
  if (name === "yield") return "nobody waits behind it";
  const at = action - living.first_use;
  return noUse(take, slot, Math.floor(at / living.uses_each), living.nearest ? at % living.uses_each : -1);
}

/** @param {any} take @param {number} slot @param {number} a @param {number} nearest which of its things, -1 any */
function noUse(take, slot, a, nearest) {
  const { engine, town, living, head } = take, me = (/** @type {string} */ field, k = 0) => town.of(slot, field, k), spec = living.affordances[a], tick = town.clock("tick"), minute = town.clock("minute");
  const spike = engine.get("s.towns", 0, "active_until", head.perturbations.indexOf("price_spike")) > tick ? engine.get("tables.rules", 0, "price_spike_factor") : 1;
  const price = Math.trunc(engine.get("tables.affordances", a, "price") * spike);
  if (me("wallet") < price) return `costs ${(price / living.money).toFixed(2)} and the wallet holds ${(me("wallet") / living.money).toFixed(2)}`;
  if (me("meals") < spec.takes_meals) return "has no meal in hand";
  if (me("meals") + spec.gives_meals > living.max_meals) return `has ${me("meals")} meals in hand, ${living.max_meals} are the most`;
  const all = candidatesOf(take, slot, a), things = nearest < 0 ? all : all.slice(nearest, nearest + 1);
  if (!all.length) return `has no ${spec.objects.join(" or ")} ${spec.own_home ? "at home" : "that can be reached"}`;
  if (!things.length) return `there ${all.length === 1 ? "is" : "are"} only ${all.length}`;
  const left = new Map();
  for (let k = 0; k < engine.header.arrays["s.residents"].fields.cooldown_object[2]; k++) if (me("cooldown_until", k) > tick) left.set(me("cooldown_object", k), me("cooldown_until", k) - tick);
  const free = things.filter(thing => !left.has(thing));
  if (!free.length) return `used it just now, not again for ${Math.min(...things.map(thing => left.get(thing)))} min`;
  if (!free.some(thing => engine.get("s.checked", thing) & 1)) return spec.hours && !(spec.hours[0] <= minute && minute < spec.hours[1]) ? `open ${clockOf(spec.hours[0])}–${clockOf(spec.hours[1])}` : `needs ${spec.requires}`;
  if (living.primitive) return "stands too far away";
  return spec.requires ? `needs ${spec.requires}` : "cannot be reached";
}

/** @param {any} take @param {number} slot @param {number} a @returns {number[]} */
function candidatesOf({ engine, town, living }, slot, a) {
  if (living.affordances[a].own_home) {
    const home = town.of(slot, "home"), first = engine.get("tables.buildings", home, "first_bed");
    return Array.from({ length: engine.get("tables.buildings", home, "beds") }, (_, k) => first + k);
  }
  const [, , width, uses, kept] = engine.header.arrays["tables.nearest"].shape, row = ((town.of(slot, "y") * width + town.of(slot, "x")) * uses + a) * kept;
  return Array.from({ length: kept }, (_, k) => engine.get("tables.nearest", row + k, "object")).filter(thing => thing >= 0);
}

/** How likely each option is, 0 where the mask forbids it. @param {any} take that has just decided @param {number} slot @param {number} meant what its policy chose */
function weights({ engine, head }, slot, meant) {
  const { policy } = head.take;
  const count = head.actions.length, allowed = (/** @type {number} */ a) => engine.get("b.masks", slot * count + a) !== 0, found = new Array(count).fill(0);
  if (policy === "random") {
    const total = found.filter((_, a) => allowed(a)).length;
    return found.map((_, a) => (allowed(a) ? 1 / total : 0));
  }
  if (!engine.header.calls[`network_${policy}`]) return found.map((_, a) => Number(a === meant));
  const logits = found.map((_, a) => (allowed(a) ? engine.get("logits", slot * count + a) : -Infinity)), top = Math.max(...logits), parts = logits.map(x => Math.exp(x - top)), total = parts.reduce((x, y) => x + y, 0);
  return parts.map(x => x / total);
}

/** Everything about one decision. @param {any} take @param {number} t @param {number} slot */
export function explainDecision(take, t, slot) {
  const { engine, town, head, living } = take, decision = Math.floor((t - head.first) / head.interval), short = (/** @type {number} */ x, digits = 6) => Number(x.toFixed(digits));
  take.go(decision);
  const tick = engine.tick, active = engine.get("b.active", slot) !== 0, resident = town.nameAt(slot);
  if (!active) return { tick: t, decided: tick, slot, resident, active };
  const masked = maskedOptions(take, slot), features = living.features.map((/** @type {any} */ _, /** @type {number} */ k) => short(engine.get("b.features", slot * living.features.length + k), 4));
  const seen = Object.fromEntries(living.features.map((/** @type {any} */ one, /** @type {number} */ k) => [one.name, features[k]])), needs = head.needs.map((/** @type {any} */ need, /** @type {number} */ k) => [need.name, town.of(slot, "needs", k)]);
  /** @type {string | null} */ let script = null;
  if (engine.header.policies.scripted) {
    engine.decide("scripted");
    script = head.actions[engine.get("choices", slot)];
  }
  take.choose(decision);
  const weighed = weights(take, slot, engine.get("choices", slot)), options = weighed.map((p, a) => ({ action: a, name: head.actions[a], probability: short(p) })).filter(one => engine.get("b.masks", slot * head.actions.length + one.action)).sort((p, q) => weighed[q.action] - weighed[p.action]);
  take.command(decision);
  const action = engine.get("choices", slot), chosen = head.actions[action], forced = take.changes.some((/** @type {any} */ one) => one.kind === "force" && one.words[0] === resident && take.decisionAt(one.at) === decision), value = head.values ? engine.get("values", slot) : null;
  engine.step();
  const terms = living.terms.map((/** @type {string} */ name, /** @type {number} */ k) => [name, engine.get("b.terms", slot * living.terms.length + k)]), illegal = engine.get("b.illegal", slot) !== 0;
  /** @type {Record<string, any>} */ const sees = {}, /** @type {Record<string, any>} */ fields = {};
  for (const { id } of living.affordances) sees[id] = Object.fromEntries(Object.keys(WAYS).filter(how => `${id}_${how}_distance` in seen).map(how => {
    const row = Object.fromEntries(["distance", "queue", "busy", "rivalry"].map(field => [field, seen[`${id}_${how}_${field}`]]));
    const count = (/** @type {number} */ x, /** @type {number} */ half) => (x < 1 ? Math.round(half * x / (1 - x)) : -1);
    return [how, { ...row, steps: count(row.distance, living.half_distance), waiting: count(row.queue, living.half_queue) }];
  }));
  for (const one of living.features) (fields[one.group] ??= {})[one.name] = seen[one.name];
  const reward = { total: short(terms.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one[1], 0)), terms: Object.fromEntries(terms.filter((/** @type {any} */ one) => one[1]).map((/** @type {any} */ one) => [one[0], short(one[1])])) };
  const told = { tick: t, decided: tick, time: clockTime(head, tick), slot, resident, active, options, masked, sees, script, fields, chosen, probability: weighed[action], illegal, forced, reward, value, needs: Object.fromEntries(needs) };
  return { ...told, sentence: decisionSentence(told) };
}

/** A decision in a sentence: `sentence` of `observer/witness.py`. @param {any} row */
function decisionSentence(row) {
  const share = (/** @type {number} */ p) => `${Math.round(p * 100)}%`, said = (/** @type {any[]} */ list) => list.slice(0, 2).map(one => `“${optionText(one.name)}” (${share(one.probability)})`).join(" and ");
  const others = row.options.filter((/** @type {any} */ one) => one.name !== row.chosen && one.probability >= 0.01), likelier = others.filter((/** @type {any} */ one) => one.probability > row.probability);
  const chosen = `“${optionText(row.chosen)}”`, worst = Object.entries(row.needs).reduce((low, one) => (one[1] < low[1] ? one : low));
  const first = row.forced ? `${row.resident} was told to choose ${chosen}` : `${row.resident} chose ${chosen} (${share(row.probability)})`;
  const second = likelier.length ? `, although it leaned to ${said(likelier)}` : others.length ? `; next came ${said(others)}` : "";
  const script = row.script !== null && row.script !== row.chosen ? `; the script would have chosen “${optionText(row.script)}”` : "";
  return `${first}${second}${script}. Lowest need: ${plain(worst[0])}, ${share(worst[1])}.`;
}
