// @ts-check
/** Training runs: curves with their alarms, checkpoints that can be played. */
import { byId, colour, disc, fitted, make } from "./dom.js";
import { askJson } from "./http.js";
import { fixed, plain } from "./words.js";

/** Fields of the log that are drawn: what they are called, and what they tell. @type {Record<string, [string, string]>} */
const CHARTS = {
  return_per_resident_day: ["return per resident-day", "Reward that a resident earns in a day: more is better"],
  conflicts_per_resident_day: ["conflicts per resident-day", "How often a resident is blocked, overtaken or quarrels in a day"],
  loss_total: ["loss", "What training tries to make small; alone it says little"],
  kl_k3: ["change of the policy (KL)", "How far each update moves the policy; jumps are a bad sign"],
  batch_entropy_mean: ["entropy of its choices", "How undecided the policy is: 0 when it is always sure"],
  explained_variance: ["explained variance of the critic", "How well the critic predicts the return: 1 is perfect, 0 no better than the mean"],
  grad_norm: ["gradient norm", "How strongly the data pulls at the weights; jumps are a bad sign"],
  queue_wait_mean: ["minutes waited in queues", "Mean wait in a queue"],
  exits: ["exits", "How many left the town"],
};
const MOST_RUNS = 6;
const MOST_ALARMS = 20;
/** Figures of a scorecard: what they are called, and what they tell. @type {Record<string, [string, string]>} */
const MEASURES = {
  return: ["return", "Reward per resident and day"], score: ["score", "0 is chance, 1 the planner"], lead: ["lead", "0 is the town's script, 1 the planner"], conflicts: ["conflicts a day", "Per resident and day lived"],
  exits: ["exits", "Who left, per resident and day"], attendance: ["attendance", "Share of shifts worked"], lateness: ["late", "Share of shifts begun late"], wait_mean: ["minutes waited", "Mean of a wait in a queue"],
};
const RUN_COLOURS = ["h0", "h1", "h2", "h3", "h4", "h5"];

/** Mean over a window that follows the line. @param {number[]} values */
function smoothed(values) {
  let level = NaN;
  return values.map(v => (level = Number.isFinite(v) ? (Number.isFinite(level) ? level * 0.8 + v * 0.2 : v) : level));
}

/** At most six characters, for an axis. @param {number} v */
function shortNumber(v) {
  const size = Math.abs(v);
  if (Number.isInteger(v) && size < 1000) return String(v);
  if (size >= 1000 && size < 100_000) return Math.round(v).toLocaleString("en");
  return size >= 100_000 || (size > 0 && size < 0.001) ? v.toExponential(0) : size < 0.1 ? v.toFixed(3) : v.toPrecision(3);
}

/** @param {string} title @param {any} one a case of a scorecard */
function scoreTable(title, one) {
  const shown = Object.keys(MEASURES).filter(key => one.policies.some((/** @type {any} */ policy) => policy.measures[key]?.mean !== null && policy.measures[key] !== undefined));
  const cell = (/** @type {any} */ found) => (found?.mean === null || found === undefined ? make("td", { text: "–" }) : make("td", { title: `95% interval ${fixed(found.low, 4)} … ${fixed(found.high, 4)}` }, fixed(found.mean, 3), make("span", { class: "soft", text: ` ±${fixed((found.high - found.low) / 2, 3)}` })));
  return make("section", {}, make("h3", { text: title }), make("div", { class: "scroll" }, make("table", { class: "figures" }, make("thead", {}, make("tr", {}, make("td"), ...shown.map(key => make("th", { scope: "col", text: MEASURES[key][0], title: MEASURES[key][1] })))),
    make("tbody", {}, ...one.policies.map((/** @type {any} */ policy) => make("tr", {}, make("th", { scope: "row", text: plain(policy.name) }), ...shown.map(key => cell(policy.measures[key]))))))));
}

/** Keys whose values are not the same in all configs. @param {any[]} configs @returns {[string, string[]][]} */
export function differences(configs) {
  const flat = (/** @type {any} */ value, /** @type {string} */ path, /** @type {Map<string, string>} */ into) => {
    if (value && typeof value === "object" && !Array.isArray(value)) for (const [key, one] of Object.entries(value)) flat(one, path ? `${path}.${key}` : key, into);
    else into.set(path, JSON.stringify(value)?.slice(0, 60) ?? "");
    return into;
  };
  const all = configs.map(config => flat(config, "", new Map())), keys = [...new Set(all.flatMap(one => [...one.keys()]))].sort();
  return keys.map(key => /** @type {[string, string[]]} */ ([key, all.map(one => one.get(key) ?? "–")])).filter(([, values]) => new Set(values).size > 1);
}

export class Runs {
  /** @param {any} page */
  constructor(page) {
    this.page = page;
    /** @type {any[]} */ this.runs = [];
    /** @type {Set<string>} */ this.chosen = new Set();
    /** @type {Map<string, {records: any[], alarms: any[], next: string}>} */ this.logs = new Map();
    /** @type {Map<string, Promise<any>>} */ this.abouts = new Map(); // config and more, by run
    this.cursor = NaN; // steps under the pointer, common to all charts
  }

  open() {}

  async show() {
    if (!this.runs.length) byId("runs-note").textContent = "Reading the runs …";
    try {
      this.runs = (await askJson("runs")).runs;
    } catch (error) {
      byId("runs-note").textContent = /** @type {Error} */ (error).message;
      return;
    }
    if (!this.chosen.size && this.runs.length) this.chosen.add(this.page.library.about.open?.run ?? this.runs[0].id);
    byId("runs-note").textContent = this.runs.length ? "" : "There is no run in this folder yet. Start one in a terminal with townlet train town_day --mode anneal, and its curves grow here.";
    this.list();
    const reading = "Reading the curves …", note = byId("runs-note");
    if ([...this.chosen].some(id => !this.logs.has(id))) note.textContent = reading;
    await this.refresh();
    if (note.textContent === reading) note.textContent = "";
    await this.details();
  }

  /** A run has begun, has grown or has ended. */
  async grow() {
    try {
      this.runs = (await askJson("runs")).runs;
    } catch (error) {
      byId("runs-note").textContent = /** @type {Error} */ (error).message;
    }
    this.list();
    await this.refresh();
  }

  list() {
    const list = byId("runs-list"), rows = this.runs.map(run => {
      const box = make("input", { type: "checkbox", on: { change: () => this.toggle(run.id) } }), k = [...this.chosen].indexOf(run.id);
      box.checked = k >= 0;
      const points = (run.checkpoints ?? []).map((/** @type {any} */ point) => make("span", { class: "point" }, make("span", { text: `checkpoint ${point.name}${point.best ? " (best)" : ""}` }),
        make("button", { class: "chip", text: "play", "aria-label": `Play ${point.name} of ${run.name}`, on: { click: () => this.play(run, point, false) } }),
        make("button", { class: "chip", text: "beside the script", "aria-label": `Play ${point.name} of ${run.name} beside the script`, on: { click: () => this.play(run, point, true) } })));
      return make("li", {}, make("label", {}, box, make("i", { class: "hue", vars: { "--hue": k >= 0 ? `var(--${RUN_COLOURS[k]})` : "var(--rule)" } }), make("b", { text: run.name }), make("span", { class: "soft", text: [run.mode, run.town, run.updates ? `${run.updates} records` : "no records yet: the curves begin with the first", run.problem ?? run.state].filter(Boolean).join(" · ") }), run.alarms ? make("b", { class: "tag bad", text: run.alarms === 1 ? "1 alarm" : `${run.alarms} alarms` }) : null), ...points);
    });
    while (list.children.length > rows.length) list.lastChild.remove();
    rows.forEach((row, k) => { // what has not changed stays, with the focus that it may have
      const old = list.children[k];
      if (!old) return void list.append(row);
      old.querySelector(".soft").textContent = row.querySelector(".soft")?.textContent ?? "";
      if (!old.isEqualNode(row)) old.replaceWith(row);
    });
  }

  /** @param {string} id */
  async toggle(id) {
    if (this.chosen.has(id)) this.chosen.delete(id);
    else if (this.chosen.size < MOST_RUNS) this.chosen.add(id);
    else this.page.tell(`At most ${MOST_RUNS} runs are laid over each other.`);
    this.list();
    await this.refresh();
    await this.details();
  }

  /** A checkpoint plays in the town it was trained in. @param {any} run @param {any} point @param {boolean} beside the script as B */
  async play(run, point, beside) {
    const { page } = this;
    try {
      const { library } = page, head = await askJson("takes", { run: run.id, policy: point.policy }), other = beside ? await askJson("takes", { parent: head.id, changes: [], policy: "scripted" }) : null;
      await library.refresh();
      page.openView("town");
      await page.openB(null);
      await page.openA(head.id);
      if (other) await page.openB(other.id);
      page.fillTakes();
    } catch (error) {
      page.tell(/** @type {Error} */ (error).message);
    }
  }

  /** Fetch what was written since the last time, one fetch after the other. */
  refresh() {
    this.fetching = (this.fetching ?? Promise.resolve()).then(() => this.fetchRecords());
    return this.fetching;
  }

  /** @param {string} id */
  about(id) {
    const found = this.abouts.get(id) ?? askJson(`runs/${encodeURIComponent(id)}`);
    found.catch(() => this.abouts.delete(id));
    this.abouts.set(id, found);
    return found;
  }

  async fetchRecords() {
    for (const id of this.chosen) {
      const log = this.logs.get(id) ?? { records: [], alarms: [], next: "" };
      this.logs.set(id, log);
      try {
        const { world, policy } = (await this.about(id)).config, decisions = world.ticks_per_day / (policy.action_level === "primitive" ? 1 : policy.decision_interval);
        for (let more = true; more; ) {
          const news = await askJson(`runs/${encodeURIComponent(id)}/records?after=${encodeURIComponent(log.next)}`);
          if (news.cut) log.records = log.alarms = [];
          log.records = log.records.concat(news.records.filter((/** @type {any} */ record) => (record.kind ?? "epoch") === "epoch"));
          for (const record of log.records) record.return_per_resident_day ??= record.episode_return_mean / record.episode_length_mean * decisions; // logs before it was a field
          log.alarms = log.alarms.concat(news.alarms ?? []);
          log.next = news.next;
          more = Boolean(news.more);
        }
      } catch (error) {
        byId("runs-note").textContent = /** @type {Error} */ (error).message;
      }
    }
    this.charts();
    this.alarms();
  }

  /** What the rules found, the newest first. */
  alarms() {
    const rows = [...this.chosen].flatMap(id => (this.logs.get(id)?.alarms ?? []).map(alarm => ({ ...alarm, run: this.runs.find(run => run.id === id)?.name ?? id }))).reverse();
    byId("runs-alarms").replaceChildren(...rows.slice(0, MOST_ALARMS).map(one => make("li", {}, make("b", { text: `${one.run}, ` }), one.message)));
    byId("runs-alarms-head").textContent = !this.runs.length ? "" : rows.length ? `${rows.length} alarm${rows.length > 1 ? "s" : ""}${rows.length > MOST_ALARMS ? `, the newest ${MOST_ALARMS}` : ""}` : "No alarms";
  }

  /** How the policies of a run did in towns they had not seen, and in what the configs of several runs differ. */
  async details() {
    const ids = [...this.chosen], nodes = [];
    const [cards, runs] = await Promise.all([Promise.all(ids.map(id => askJson(`runs/${encodeURIComponent(id)}/scorecard`))), Promise.all(ids.map(id => this.about(id)))]);
    for (const [k, { scorecards }] of cards.entries()) for (const card of scorecards) for (const one of card.cases ?? []) nodes.push(scoreTable(`Scorecard of ${runs[k].name}: ${one.towns} unseen towns of ${one.name}, ${one.days} days each`, one));
    for (const { scorecards } of cards) for (const card of scorecards) if (card.problem) nodes.push(make("p", { text: card.problem }));
    const differing = differences(runs.map(run => run.config));
    if (differing.length) nodes.push(make("h3", { text: "How their configs differ" }), make("table", { class: "figures" }, make("thead", {}, make("tr", {}, make("td"), ...runs.map(run => make("th", { scope: "col", text: run.name })))),
      make("tbody", {}, ...differing.slice(0, 40).map(([key, values]) => make("tr", {}, make("th", { scope: "row", text: key }), ...values.map(value => make("td", { text: value })))))));
    if (ids.join() === [...this.chosen].join()) byId("runs-details").replaceChildren(...nodes);
  }

  charts() {
    const box = byId("runs-charts");
    const there = Object.keys(CHARTS).filter(name => [...this.chosen].some(id => this.logs.get(id)?.records.some(record => Number.isFinite(record[name]))));
    if (box.dataset.names !== there.join()) {
      box.dataset.names = there.join();
      box.replaceChildren(...there.map(name => {
        const canvas = make("canvas", { role: "img", "data-name": name, on: {
          pointermove: (/** @type {PointerEvent} */ e) => this.point(canvas, e.offsetX),
          pointerleave: () => this.point(canvas, NaN),
        } });
        return make("figure", { class: "chart" }, make("figcaption", {}, make("span", { text: CHARTS[name][0], title: `${CHARTS[name][1]} (${name})` }), make("output", { class: "soft" })), canvas);
      }));
    }
    for (const canvas of box.querySelectorAll("canvas")) this.drawChart(canvas);
  }

  /** @param {any} canvas @param {number} px */
  point(canvas, px) {
    const [low, high] = this.range();
    this.cursor = Number.isFinite(px) ? low + (px - 44) / (canvas.clientWidth - 52) * (high - low) : NaN;
    this.charts();
  }

  range() {
    let low = Infinity, high = -Infinity;
    for (const id of this.chosen) for (const record of this.logs.get(id)?.records ?? []) [low, high] = [Math.min(low, record.steps), Math.max(high, record.steps)];
    return low < high ? [low, high] : [low - 1, low + 1];
  }

  /** @param {any} canvas */
  drawChart(canvas) {
    const here = fitted(canvas), name = canvas.dataset.name;
    if (!here) return;
    const { c, width, height } = here, [low, high] = this.range(), series = [...this.chosen].map(id => this.logs.get(id)?.records ?? []);
    const values = series.flatMap(records => records.map(record => record[name])).filter(Number.isFinite);
    let least = Math.min(...values), most = Math.max(...values);
    if (least === most) [least, most] = [least - 1, most + 1];
    const X = (/** @type {number} */ steps) => 44 + (steps - low) / (high - low) * (width - 52), Y = (/** @type {number} */ v) => height - 16 - (v - least) / (most - least) * (height - 26);
    c.clearRect(0, 0, width, height);
    c.font = "10px system-ui, sans-serif";
    c.textBaseline = "middle";
    for (const share of [0, 0.5, 1]) {
      const v = least + (most - least) * share;
      c.fillStyle = colour("rule");
      c.fillRect(44, Y(v), width - 52, 1);
      c.fillStyle = colour("soft");
      c.textAlign = "right";
      c.fillText(shortNumber(v), 40, Y(v));
    }
    c.textAlign = "left";
    c.fillText(low.toLocaleString("en"), 44, height - 5);
    c.textAlign = "right";
    c.fillText(`${high.toLocaleString("en")} steps`, width - 8, height - 5);
    /** @type {string[]} */ const told = [];
    c.fillStyle = colour("rule");
    for (const records of series) records.forEach((record, i) => i && record.anneal_cycle !== records[i - 1].anneal_cycle && c.fillRect(X(record.steps), 8, 1, height - 24)); // where a stage begins
    [...this.chosen].forEach((id, k) => {
      const records = (this.logs.get(id)?.records ?? []).filter(record => Number.isFinite(record[name])), raw = records.map(record => record[name]), soft = smoothed(raw);
      c.strokeStyle = c.fillStyle = colour(RUN_COLOURS[k % RUN_COLOURS.length]);
      for (const [list, alpha, wide] of /** @type {[number[], number, number][]} */ ([[raw, 0.35, 1], [soft, 1, 2]])) {
        c.globalAlpha = alpha;
        c.lineWidth = wide;
        c.beginPath();
        list.forEach((v, i) => c.lineTo(X(records[i].steps), Y(v)));
        c.stroke();
      }
      c.globalAlpha = 1;
      for (const alarm of this.logs.get(id)?.alarms ?? []) {
        if (alarm.field !== name) continue;
        const at = records.find(record => record.epoch === alarm.epoch && record[name] === alarm.value);
        if (!at) continue;
        c.fillStyle = colour("bad");
        c.beginPath();
        c.moveTo(X(at.steps), Y(at[name]) - 4), c.lineTo(X(at.steps) - 5, Y(at[name]) - 13), c.lineTo(X(at.steps) + 5, Y(at[name]) - 13);
        c.fill();
      }
      if (Number.isFinite(this.cursor) && records.length) {
        const near = records.reduce((best, record) => (Math.abs(record.steps - this.cursor) < Math.abs(best.steps - this.cursor) ? record : best));
        c.fillStyle = colour(RUN_COLOURS[k % RUN_COLOURS.length]);
        disc(c, X(near.steps), Y(near[name]), 3.5);
        c.fill();
        told.push(shortNumber(near[name]));
      } else if (raw.length) told.push(shortNumber(raw[raw.length - 1]));
    });
    canvas.setAttribute("aria-label", `${CHARTS[name][0]}: last ${told.join(", ")}`);
    canvas.previousSibling.querySelector("output").textContent = told.join(" · ");
  }
}
