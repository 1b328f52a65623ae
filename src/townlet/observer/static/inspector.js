// @ts-check
/** One resident: what it needs, why it decided so, whom it feels for, what happened to it, what it sees. */
import { byId, colour, fitted, link, make } from "./dom.js";
import { clockTime, doingText, eventSentence, fixed, isClash, nameOf, nameOfLife, optionsText, optionText, percent, plain, QUIET, signed, WAYS } from "./words.js";

const TABS = ["why", "ties", "story", "sees"];
const SEEN_THERE = { steps: "steps to walk there", waiting: "how many wait there", "in use": "whether somebody uses it", rival: "rivalry with whoever is there, 0 to 1" };
const RECENT = 15; // ticks for which a clash is told beside the name

/** @param {string} name @param {number} value 0 … 1 @param {string} [shown] @param {string} [kind] @param {number} [line] */
function barRow(name, value, shown = percent(value), kind = "", line = -1) {
  const bar = make("span", { class: "bar", vars: { "--share": value.toFixed(3), "--line": line } }, line >= 0 ? make("i", { class: "line" }) : null);
  return make("div", { class: `row ${kind}` }, make("span", { class: "name", text: name }), bar, make("span", { class: "figure", text: shown }));
}

/** Why an option, or any way of an affordance, was not chosen. @param {any} why @param {string} asked */
function whyNot(why, asked) {
  const of = (/** @type {string} */ name) => name.split(":")[0] === asked, way = (/** @type {string} */ name) => (name.includes(":") ? optionText(name).split(", ").pop() : plain(name));
  const weighed = why.options.filter((/** @type {any} */ one) => of(one.name)).map((/** @type {any} */ one) => `${way(one.name)}: allowed, ${percent(one.probability)}`);
  const groups = why.masked.filter((/** @type {any} */ one) => one.options.some(of)), alone = !weighed.length && groups.length === 1;
  const barred = groups.map((/** @type {any} */ one) => (alone ? `not allowed: ${one.reason}` : `${one.options.filter(of).map(way).join(", ")}: not allowed, ${one.reason}`));
  const needs = Object.entries(why.needs).map(([name, level]) => `${plain(name)} ${percent(level)}`).join(", ");
  return `${[...weighed, ...barred].join("; ") || "there was nothing to choose"}. Needs then: ${needs}.`;
}

export class Inspector {
  /** @param {any} page what `main.js` makes: `a`, `player`, `who`, `seek(t)`, `select(slot)` */
  constructor(page) {
    this.page = page;
    this.tab = "why";
    this.shown = "";
    this.asked = ""; // the option whose absence is asked about
    for (const name of TABS) byId(`tab-${name}`).addEventListener("click", () => this.choose(name));
    byId("inspector-tabs").addEventListener("keydown", (/** @type {KeyboardEvent} */ e) => {
      const step = e.key === "ArrowRight" ? 1 : e.key === "ArrowLeft" ? -1 : 0;
      if (!step) return;
      e.stopPropagation();
      this.choose(TABS[(TABS.indexOf(this.tab) + step + TABS.length) % TABS.length]);
      byId(`tab-${this.tab}`).focus();
    });
  }

  /** @param {string} tab */
  choose(tab) {
    this.tab = tab;
    for (const name of TABS) {
      byId(`tab-${name}`).setAttribute("aria-selected", String(name === tab));
      byId(`tab-${name}`).tabIndex = name === tab ? 0 : -1;
    }
    byId("inspector-body").setAttribute("aria-labelledby", `tab-${tab}`);
    this.shown = "";
    this.show();
  }

  show() {
    const { page } = this, { who } = page, source = page.a;
    byId("inspector-empty").hidden = who >= 0;
    byId("inspector-full").hidden = who < 0;
    if (who < 0) return;
    page.seat.show();
    const frame = source.peek(page.player.t);
    if (!frame) return;
    const { head } = source;
    byId("who-name").textContent = nameOf(head, frame, who);
    byId("who-doing").textContent = doingText(head, frame, who);
    const person = head.people[who], facts = frame.life(who) ? [] : [person.home && `lives in ${plain(person.home)}`, person.job && `${plain(person.job.id)} at ${plain(person.job.site)}`];
    const wallet = source.decided("wallet", frame.t)(who);
    if (Number.isFinite(wallet)) facts.push(`${wallet.toFixed(2)}\u00a0coins`);
    byId("who-facts").textContent = facts.filter(Boolean).join(" · ");
    const now = page.moments.filter((/** @type {any} */ one) => one.slots.includes(who) && one.tick <= frame.t && one.tick > frame.t - RECENT).pop();
    byId("who-now").hidden = !now;
    byId("who-now").textContent = now ? `${clockTime(head, now.tick)} ${now.text}` : "";
    this.showNeeds(frame);
    const key = `${head.id}/${this.tab}/${who}/${this.tab === "story" ? `${frame.t}/${source.told.size}` : source.decisionOf(frame.t)}`;
    if (key === this.shown) return;
    if (page.player.playing && page.player.perSecond > 60 && this.tab !== "why") return;
    this.shown = key;
    this.fill(key, frame);
  }

  /** @param {any} frame */
  showNeeds(frame) {
    const { head } = this.page.a, box = byId("who-needs"), who = this.page.who;
    if (box.children.length !== head.needs.length || box.dataset.take !== head.id) {
      box.dataset.take = head.id;
      box.replaceChildren(...head.needs.map((/** @type {any} */ need) => {
        const row = barRow(plain(need.name), 0, "", "need", need.line);
        row.append(make("canvas", { class: "spark", "aria-hidden": "true" }));
        return row;
      }));
    }
    head.needs.forEach((/** @type {any} */ need, /** @type {number} */ k) => {
      const row = box.children[k], level = frame.needs[k][who] / 255;
      row.querySelector(".bar").style.setProperty("--share", level.toFixed(3));
      row.querySelector(".figure").textContent = percent(level);
      row.classList.toggle("low", level < need.line);
      this.spark(row.querySelector("canvas"), k, need.line);
    });
  }

  /** The day of a need. @param {any} canvas @param {number} k @param {number} line */
  spark(canvas, k, line) {
    const here = fitted(canvas), source = this.page.a, who = this.page.who;
    if (!here) return;
    const { c, width, height } = here, ticks = source.head.ticks, name = source.head.needs[k].name;
    c.clearRect(0, 0, width, height);
    c.strokeStyle = colour("rule");
    c.setLineDash([2, 2]);
    c.beginPath();
    c.moveTo(0, height - line * height), c.lineTo(width, height - line * height);
    c.stroke();
    c.setLineDash([]);
    c.strokeStyle = colour("soft");
    c.lineWidth = 1.2;
    c.beginPath();
    let broken = true;
    for (let x = 0; x < width; x++) {
      const t = source.first + Math.floor(x / width * ticks), reel = source.reels.get(source.reelOf(t));
      if (!reel) {
        broken = true;
        continue;
      }
      const level = reel.groups.residents[name][(t - reel.first) * reel.groups.residents.width + who] / 255, y = height - 1 - level * (height - 2);
      if (broken) c.moveTo(x, y);
      else c.lineTo(x, y);
      broken = false;
    }
    c.stroke();
    c.fillStyle = colour("ink");
    c.fillRect((this.page.player.t - source.first) / ticks * width, 0, 1.5, height);
  }

  /** @param {string} key @param {any} frame */
  async fill(key, frame) {
    const source = this.page.a, who = this.page.who;
    /** @type {Node[]} */ let nodes;
    try {
      if (this.tab === "why") nodes = this.whyNodes(await source.why(frame.t, who), (await source.ties(frame.t)).filter((/** @type {any} */ tie) => tie.a === who));
      else if (this.tab === "ties") nodes = this.tieNodes(await source.ties(frame.t), frame);
      else if (this.tab === "story") nodes = this.storyNodes(frame);
      else nodes = this.seesNodes(await source.why(frame.t, who));
    } catch (error) {
      nodes = [make("p", { class: "soft", text: /** @type {Error} */ (error).message })];
    }
    if (this.shown === key) byId("inspector-body").replaceChildren(...nodes);
  }

  /** @param {any} why @param {any[]} ties of the resident */
  whyNodes(why, ties) {
    if (!why) return [make("p", { class: "soft", text: "Reasons were not kept for this resident in this file. Open the town with townlet observe to see them." })];
    if (!why.active) return [make("p", { class: "soft", text: "No decision at this moment." })];
    const nodes = [make("p", { class: "lead", text: why.sentence })], { avoid_line: line } = this.page.a.head;
    const rivals = ties.filter(tie => tie.rivalry >= line).sort((p, q) => q.rivalry - p.rivalry).slice(0, 3);
    if (rivals.length) nodes.push(make("p", { class: "small", text: `Keeps out of the way of ${rivals.map(tie => `${tie.b_name} (rivalry ${tie.rivalry.toFixed(2)})`).join(", ")}.` }));
    nodes.push(make("p", { class: "soft small", text: `Decided at ${why.time}.${why.forced ? " The decision was set from outside." : ""}${why.illegal ? " The choice was not allowed and counted as waiting." : ""}${why.script === why.chosen && this.page.a.head.take.policy !== "scripted" ? " The script would have done the same." : ""}` }));
    nodes.push(make("h3", { text: "Options" }));
    const options = why.options.filter((/** @type {any} */ o) => o.probability >= 0.0005 || o.name === why.chosen || o.name === why.script).slice(0, 12);
    const rows = options.map((/** @type {any} */ o) => {
      const row = barRow(optionText(o.name), o.probability, percent(o.probability), o.name === why.chosen ? "chosen" : "");
      if (o.name === why.chosen) row.querySelector(".name").append(make("b", { class: "tag", text: "chosen" }));
      if (o.name === why.script && why.script !== why.chosen) row.querySelector(".name").append(make("b", { class: "tag quiet", text: "script" }));
      return row;
    });
    nodes.push(make("div", { class: "bars" }, ...rows), ...this.whyNotNodes(why));
    nodes.push(...this.candidateNodes(why.sees, why.chosen));
    nodes.push(make("h3", { text: "What came of it" }));
    const terms = Object.entries(why.reward.terms).filter(([, v]) => Math.abs(/** @type {number} */ (v)) >= 0.00005).sort((a, b) => Math.abs(/** @type {number} */ (b[1])) - Math.abs(/** @type {number} */ (a[1])));
    const most = Math.max(0.001, ...terms.map(([, v]) => Math.abs(/** @type {number} */ (v))));
    nodes.push(make("div", { class: "bars" }, ...terms.map(([name, v]) => barRow(plain(name), Math.abs(/** @type {number} */ (v)) / most, signed(/** @type {number} */ (v)), /** @type {number} */ (v) < 0 ? "minus" : "plus"))));
    nodes.push(make("p", { class: "small", text: `Reward ${signed(why.reward.total)}${why.value === null ? "" : `; expected from here on: ${signed(why.value, 2)}`}` }));
    if (why.masked.length) nodes.push(make("details", {}, make("summary", { text: "Impossible" }), make("dl", { class: "masked" }, ...why.masked.flatMap((/** @type {any} */ m) => [make("dt", { text: optionsText(m.options, this.page.a.head.actions) }), make("dd", { text: m.reason })]))));
    return nodes;
  }

  /** The question why not, and its answer. @param {any} why */
  whyNotNodes(why) {
    const kinds = [...new Set(this.page.a.head.actions.map((/** @type {string} */ name) => name.split(":")[0]))].filter(kind => kind !== why.chosen.split(":")[0]);
    const answer = make("p", { class: "small", id: "why-not-answer", "aria-live": "polite", text: kinds.includes(this.asked) ? whyNot(why, this.asked) : "" });
    const choice = make("select", { id: "why-not", on: { change: () => {
      this.asked = choice.value;
      answer.textContent = this.asked ? whyNot(why, this.asked) : "";
    } } }, make("option", { value: "", text: "choose …" }), ...kinds.map(kind => make("option", { value: kind, text: optionText(kind) })));
    choice.value = kinds.includes(this.asked) ? this.asked : "";
    return [make("label", { class: "field ask" }, make("span", { text: "Why not" }), choice), answer];
  }

  /** What they saw of the things they chose among. @param {any} sees @param {string} chosen */
  candidateNodes(sees, chosen) {
    const what = chosen.split(":")[0], rows = Object.entries(sees?.[what] ?? {}).filter(([, one]) => one.steps >= 0);
    if (!rows.length) return [];
    const head = make("tr", {}, make("td"), ...Object.entries(SEEN_THERE).map(([text, title]) => make("th", { text, title, scope: "col" })));
    const body = rows.map(([way, one]) => make("tr", { class: `${what}:${way}` === chosen ? "chosen" : null }, make("th", { text: WAYS[/** @type {keyof typeof WAYS} */ (way)] ?? way, scope: "row" }),
      ...[one.steps, one.waiting || "–", one.busy ? "yes" : "–", one.rivalry ? one.rivalry.toFixed(2) : "–"].map(text => make("td", { text }))));
    return [make("h3", { text: `What they saw: ${optionText(what)}` }), make("table", { class: "figures" }, make("thead", {}, head), make("tbody", {}, ...body))];
  }

  /** @param {any[]} ties @param {any} frame */
  tieNodes(ties, frame) {
    const { who } = this.page, source = this.page.a, { head } = source;
    const mine = ties.filter(tie => tie.a === who).sort((a, b) => b.rivalry - a.rivalry || b.trust - a.trust);
    if (!mine.length) return [make("p", { class: "soft", text: "It knows nobody yet." })];
    const events = source.eventsHere(source.first, frame.t + 1);
    return mine.map(tie => {
      const between = events.filter((/** @type {any} */ e) => !QUIET.has(e.name) && ((e.actor === who && e.rival === tie.b) || (e.actor === tie.b && e.rival === who))).slice(-3).reverse();
      const name = link(tie.b_name, () => this.page.select(tie.b));
      const links = between.map((/** @type {any} */ e) => make("li", {}, this.momentLink(e.tick), ` ${eventSentence(head, e)}`));
      return make("section", { class: "tie" }, make("h3", {}, name, tie.rivalry >= head.avoid_line ? make("b", { class: "tag bad", text: "avoids" }) : null),
        make("div", { class: "bars" }, barRow("rivalry", tie.rivalry, tie.rivalry.toFixed(2), "minus"), barRow("trust", Math.abs(tie.trust), fixed(tie.trust), tie.trust < 0 ? "minus" : "plus"), barRow("familiarity", Math.min(1, tie.familiarity), tie.familiarity.toFixed(2))),
        links.length ? make("ul", { class: "plain" }, ...links) : null);
    });
  }

  /** @param {number} t */
  momentLink(t) {
    return link(clockTime(this.page.a.head, t), () => this.page.seek(t), "time");
  }

  /** @param {any} frame */
  storyNodes(frame) {
    const { who } = this.page, source = this.page.a, { head } = source, life = frame.life(who);
    const mine = source.eventsHere(source.first, source.last + 1).filter((/** @type {any} */ e) => e.name !== "bump" && ((e.actor === who && e.actor_life === life) || (e.rival === who && e.rival_life === life)));
    if (!mine.length) return [make("p", { class: "soft", text: "Nothing has happened yet." })];
    const row = (/** @type {any} */ e) => make("li", { class: isClash(e.name) ? "sharp" : "" }, this.momentLink(e.tick), make("span", { text: eventSentence(head, e) }));
    const past = mine.filter((/** @type {any} */ e) => e.tick <= frame.t).reverse(), ahead = mine.filter((/** @type {any} */ e) => e.tick > frame.t);
    const nodes = [make("p", { class: "soft small", text: `The day of ${nameOfLife(head, who, life)}, newest first.` })];
    if (ahead.length) nodes.push(make("details", {}, make("summary", { text: `Still to come (${ahead.length})` }), make("ol", { class: "story" }, ...ahead.slice(0, 40).map(row))));
    return [...nodes, make("ol", { class: "story" }, ...past.slice(0, 80).map(row))];
  }

  /** @param {any} why */
  seesNodes(why) {
    if (!why?.fields) return [make("p", { class: "soft", text: "What they saw is not kept in this file; open the town with townlet observe. Key 7 shows on the map how far they see." })];
    const said = make("p", { class: "soft small", text: "All that the policy knows when it decides, as numbers. Key 7 shows on the map how far they see." });
    return [said, ...Object.entries(why.fields).map(([group, fields], k) => make("details", { open: k < 2 }, make("summary", { text: plain(group) }),
      make("table", { class: "figures" }, make("tbody", {}, ...Object.entries(/** @type {any} */ (fields)).map(([name, value]) => make("tr", {}, make("th", { text: plain(name), scope: "row" }), make("td", { text: typeof value === "number" ? value.toFixed(3) : String(value) })))))))];
  }
}
