// @ts-check
/** The town in words: clock, names, what someone does, what happened. */

/** @param {number} n */
const two = n => String(n).padStart(2, "0");

/** @param {any} head @param {number} t */
export function clockTime(head, t) {
  const minute = (head.start_minute + t - head.first) % head.ticks_per_day, ofDay = Math.floor(minute * 1440 / head.ticks_per_day);
  return `${two(Math.floor(ofDay / 60))}:${two(ofDay % 60)}`;
}

/** @param {any} head @param {number} t */
export function clockDay(head, t) {
  return head.start_day + Math.floor((head.start_minute + t - head.first) / head.ticks_per_day) + 1;
}

/** The tick of a time of day, the next one from `t` on; null when the text is no time. @param {any} head @param {number} t @param {string} text */
export function tickOfTime(head, t, text) {
  const found = /^(\d{1,2}):(\d{2})$/.exec(text.trim());
  if (!found || Number(found[1]) > 23 || Number(found[2]) > 59) return null;
  const minute = Math.round((Number(found[1]) * 60 + Number(found[2])) * head.ticks_per_day / 1440);
  const now = (head.start_minute + t - head.first) % head.ticks_per_day, last = head.first + head.ticks - 1;
  const ahead = t + (minute - now + head.ticks_per_day) % head.ticks_per_day;
  if (ahead <= last) return ahead;
  const before = ahead - head.ticks_per_day;
  return before >= head.first ? before : null;
}

/** @param {any} head @param {number} slot @param {number} life */
export function nameOfLife(head, slot, life) {
  return life > 0 ? `newcomer_${life}` : head.people[slot].id;
}

/** @param {any} head @param {any} frame @param {number} slot */
export function nameOf(head, frame, slot) {
  return nameOfLife(head, slot, frame ? frame.life(slot) : 0);
}

/** What a server says, as a sentence of its own. @param {string} text */
export function asSentence(text) {
  const said = text.replace(/`([^`]*)`/g, "“$1”");
  return said[0].toUpperCase() + said.slice(1) + (/[.!?…”]$/.test(said) ? "" : ".");
}

/** @param {string} text */
export function plain(text) {
  return text.replaceAll("_", " ");
}

const OPTIONS = { work: "go to work", home: "go home", leave: "step back", rest_sleep: "sleep" }; // where the name says too little
export const WAYS = { near: "nearest", calm: "calmest", 1: "nearest", 2: "second nearest", 3: "third nearest", 4: "fourth nearest" };

/** An option for people: `use_shower:calm` → `use shower, calmest`; `observer/words.py` says the same. @param {string} option */
export function optionText(option) {
  const [what, way] = option.split(":");
  return plain(OPTIONS[/** @type {keyof typeof OPTIONS} */ (what)] ?? what) + (way === undefined ? "" : way in WAYS ? `, ${WAYS[/** @type {keyof typeof WAYS} */ (way)]}` : ` ${plain(way)}`);
}

/** Options in few words: what is there in all its ways is named once. @param {string[]} options @param {string[]} all of the town */
export function optionsText(options, all) {
  const kindOf = (/** @type {string} */ name) => name.split(":")[0], kinds = [...new Set(options.map(kindOf))];
  return kinds.flatMap(kind => {
    const mine = options.filter(name => kindOf(name) === kind);
    return mine.length === all.filter(name => kindOf(name) === kind).length ? [optionText(kind)] : mine.map(optionText);
  }).join(" · ");
}

const DOING_TEXT = {
  absent: "is not there", idle: "idles", walks: "walks to", uses: "uses", queues: "waits for", called: "is called to",
  works: "works", to_work: "goes to work", to_home: "goes home", to_chat: "looks for a chat", leaves: "steps back",
};

/** @param {any} head @param {any} frame @param {number} slot */
export function doingText(head, frame, slot) {
  const name = /** @type {keyof typeof DOING_TEXT} */ (head.doing[frame.state(slot)]), thing = frame.thing[slot];
  const text = DOING_TEXT[name] ?? plain(name);
  const to = ["walks", "uses", "queues", "called"].includes(name) ? (thing ? ` ${head.things[thing - 1].id}` : name === "walks" ? " somewhere" : "") : "";
  return (frame.quarrels(slot) ? "quarrels, " : "") + (name === "walks" && !thing ? "walks" : text + to);
}

export const QUIET = new Set(["bump", "queue_join", "use_start", "use_end", "queue_interaction"]);

/** @param {string} kind of an event */
export function isClash(kind) {
  return kind === "queue_conflict" || kind === "quarrel";
}

/** What happened; the sentences come with the take. @param {any} head @param {any} e */
export function eventSentence(head, e) {
  const reason = head.reasons[e.name]?.[e.reason] ?? "";
  /** @type {Record<string, string>} */ const said = {
    a: e.actor >= 0 ? nameOfLife(head, e.actor, e.actor_life) : "somebody",
    b: e.rival >= 0 ? nameOfLife(head, e.rival, e.rival_life) : "somebody",
    o: e.object >= 0 ? head.things[e.object].id : "something",
    reason: head.reason_words[reason] ?? plain(reason),
    waited: e.waited > 0 ? ` after ${e.waited} min` : "",
    amount: e.amount.toFixed(0),
    done: e.amount > 0 ? "is done with" : "leaves",
  };
  return head.words[e.name].replace(/\{(\w+)[^}]*\}/g, (/** @type {string} */ _, /** @type {string} */ key) => said[key]);
}

/** How far the worst need is above its line; below 0 it is under. @param {any} head @param {any} frame @param {number} slot */
export function margin(head, frame, slot) {
  let worst = 9;
  for (let k = 0; k < head.needs.length; k++) worst = Math.min(worst, frame.needs[k][slot] / 255 - head.needs[k].line);
  return worst;
}

/** 0 good, 1 fair, 2 bad. @param {any} frame @param {number} slot */
export function needLevel(frame, slot) {
  let worst = 255;
  for (const need of frame.needs) if (need[slot] < worst) worst = need[slot];
  return worst < 64 ? 2 : worst < 128 ? 1 : 0;
}

/** @param {number} share */
export function percent(share) {
  return share > 0 && share < 0.01 ? "<1%" : `${Math.round(share * 100)}%`;
}

/** @param {number} value */
export function fixed(value, digits = 2) {
  return value.toFixed(digits).replace("-", "−");
}

/** @param {number} value */
export function signed(value, digits = 3) {
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;
}
