// @ts-check
/** The page: opens what there is to see and keeps its parts together. */
import { byId, calm, dress, link, make, onThemeChange, seldom } from "./dom.js";
import { linkOfTake, takeId, takeOfLink } from "./living.js";
import { clockDay, clockTime, doingText, isClash, nameOf, optionText, plain, tickOfTime } from "./words.js";
import { Player, SPEEDS } from "./player.js";
import { OVERLAYS, TownMap } from "./map.js";
import { TimeLine } from "./timeline.js";
import { Inspector } from "./inspector.js";
import { People } from "./people.js";
import { Queues } from "./queues.js";
import { Ties } from "./ties.js";
import { bindKeys } from "./keys.js";
import { showFutures } from "./futures.js";
import { Seat } from "./seat.js";
import { Day } from "./day.js";

/**
 * What there is to see, and who can make more of it: `carried.js` or `served.js`.
 * @typedef {{about: any, takes: {id: string, title: string}[], offline: boolean, living: any, open: (id: string) => Promise<any>, branch: (parent: string, changes: any[], policy: string | null) => Promise<any>, adopt: (take: any) => Promise<any>, wake?: (ids: string[]) => Promise<boolean>, publish?: (id: string) => Promise<void>, refused?: string}} Library
 */

const TIMELESS = ["runs", "releases", "scenario"]; // views that no playhead moves
const phone = matchMedia("(max-width: 760px)");
const MANY = 1_000_000; // resident-ticks above which a server is not asked to look through a whole film unless told to

const AROUND = [[0, 0], [0, 1], [0, -1], [1, 0], [-1, 0]];

/** A free tile for one more thing of a kind, in a room that has one, with room around it. @param {any} head @param {any} frame where everybody is @param {string} kind @returns {string} column,row */
function placeFor(head, frame, kind) {
  const { tiles } = head.map, taken = new Set(head.things.map((/** @type {any} */ one) => `${one.x},${one.y}`)), stood = new Set(Array.from(frame?.x ?? [], (x, slot) => `${x},${frame.y[slot]}`)), [like] = head.things.filter((/** @type {any} */ one) => one.kind === kind);
  const inRoom = (/** @type {any} */ room, /** @type {number} */ x, /** @type {number} */ y) => x >= room.x && x < room.x + room.w && y >= room.y && y < room.y + room.h, room = head.buildings.find((/** @type {any} */ one) => inRoom(one, like.x, like.y));
  let best = "", least = Infinity;
  tiles.forEach((/** @type {string} */ row, /** @type {number} */ y) => [...row].forEach((tile, x) => {
    const far = Math.abs(x - like.x) + Math.abs(y - like.y);
    if (far < least && tile === "0" && !stood.has(`${x},${y}`) && (!room || inRoom(room, x, y)) && AROUND.every(([dx, dy]) => !taken.has(`${x + dx},${y + dy}`) && tiles[y + dy]?.[x + dx] !== "2")) [best, least] = [`${x},${y}`, far];
  }));
  return best;
}

class Page {
  /** @param {Library} library @param {(page: Page) => Record<string, any>} moreViews */
  constructor(library, moreViews) {
    this.library = library;
    /** @type {any} */ this.a = null;
    /** @type {any} */ this.b = null;
    this.following = false;
    this.opened = ""; // the take the page opened with
    this.view = "town";
    /** @type {any[]} */ this.moments = [];
    this.looked = false; // whether the moments of A are known
    this.caption = "";
    this.player = new Player(0, 0, t => this.atHand(t));
    this.mapA = new TownMap(byId("map-a"), slot => this.select(slot));
    this.mapB = new TownMap(byId("map-b"), slot => this.select(slot));
    this.mapA.twin = this.mapB;
    this.mapB.twin = this.mapA;
    this.mapA.redraw = this.mapB.redraw = () => this.drawSoon();
    this.timeline = new TimeLine(byId("timeline"), this.player);
    this.inspector = new Inspector(this);
    this.seat = new Seat(this);
    /** @type {Record<string, any>} */ this.views = { people: new People(this), queues: new Queues(this), ties: new Ties(this), ...moreViews(this) };
    this.viewNames = ["town", ...Object.keys(this.views)];
    this.day = new Day(this);
    /** @type {WeakSet<any>} */ this.heard = new WeakSet();
    this.drawing = false;
    this.showSeldom = seldom(() => this.showTables(), 250);
    this.timelineSoon = seldom(() => {
      this.timeline.dirty = true;
      this.drawSoon();
    }, 300);
    this.player.addEventListener("moved", e => this.moved(/** @type {CustomEvent} */ (e).detail));
    this.bind();
  }

  /** @param {number} t */
  atHand(t) {
    const next = Math.min(this.a.last, t + 1), ahead = Math.min(this.a.last, t + this.a.head.reel_ticks);
    this.a.peek(ahead);
    if (this.b) this.b.peek(this.b.clamp(ahead));
    return this.a.peek(t) !== null && this.a.peek(next) !== null && (!this.b || this.b.peek(this.b.clamp(t)) !== null);
  }

  // --- takes --------------------------------------------------------------------------------------------------------------

  /** @param {string} id */
  async openA(id) {
    const source = await this.library.open(id), before = this.player.t;
    this.player.first = source.first;
    this.player.last = source.last;
    this.player.at = source.clamp(before);
    if (this.who >= source.head.people.length) this.who = -1;
    this.adoptA(source);
    byId("take-a").value = id;
    await this.openB(this.b && this.b.head.id !== id ? this.b.head.id : null);
    await source.frame(this.player.t).catch(() => {});
    this.moved("open");
  }

  /** Show this source as A, wherever the playhead stands. @param {any} source */
  adoptA(source) {
    this.a = source;
    this.listenTo(source);
    this.mapA.open(source);
    byId("title").textContent = source.head.take.town ?? source.head.title;
    document.title = `${source.head.title} · Townlet`;
    byId("caption-a").textContent = this.shortTitle(source.head.title);
    this.showEngine();
    const unit = source.head.ticks_per_day === 1440 ? "min" : "ticks";
    byId("speed").replaceChildren(...SPEEDS.map((speed, k) => make("option", { value: k, text: speed >= 3000 ? "fastest" : `${speed} ${unit}/s` })));
    byId("speed").value = String(this.player.speed);
    for (const view of Object.values(this.views)) view.open();
    this.moments = [];
    this.looked = false;
    this.caption = "";
    source.preload().catch(() => {});
    if (source.shot === source.head.reels || source.head.people.length * source.head.ticks <= MANY) this.findMoments();
  }

  /** @param {string | null} id */
  async openB(id) {
    this.adoptB(id === null ? null : await this.library.open(id));
    byId("take-b").value = id ?? "";
    this.mapA.fit();
    if (this.who >= 0) this.openSheet(true);
    this.showTables();
    this.moveToEngine();
  }

  /** Show this source beside A. @param {any} source */
  adoptB(source) {
    this.b = source;
    byId("figure-b").hidden = !this.b;
    byId("maps").classList.toggle("two", Boolean(this.b));
    byId("divergence").hidden = true;
    this.timeline.parted = -1;
    this.timeline.otherMoments = [];
    this.timeline.open(this.a, this.b);
    this.timeline.moments = this.moments;
    if (this.b) {
      this.listenTo(this.b);
      this.mapB.open(this.b);
      byId("caption-b").textContent = this.shortTitle(this.b.head.title);
      this.b.preload().catch(() => {});
      this.showParting(this.a, this.b);
    }
    byId("futures").hidden = !(this.b && ((this.lives(this.a) && this.lives(this.b)) || (this.b.head.parent && this.library.about.role === "act")));
    this.timeline.chooseLanes();
    this.drawSoon();
  }

  /** Whether a take is simulated in this page. @param {any} source */
  lives(source) {
    return Boolean(source?.store.digest);
  }

  /** From the server's film to the town itself, if it can live here. */
  async moveToEngine() {
    const { library, a, b } = this;
    if (!library.wake || this.seat.open) return;
    await a.preload().catch(() => {}); // first what is to be seen
    const moved = await library.wake([a, b].filter(Boolean).map(source => source.head.id));
    const living = moved ? await Promise.all([a, b].map(source => source && library.open(source.head.id))) : [];
    for (const source of living) await source?.frame(source.clamp(this.player.t)); // so that the map is never empty between the two
    if (a !== this.a || b !== this.b) return;
    if (moved) {
      this.adoptA(living[0]);
      this.adoptB(living[1]);
      this.inspector.shown = "";
      this.moved("engine");
    } else this.showEngine();
  }

  /** Where the town is simulated, and how that is known to be right. */
  showEngine() {
    const { digest } = this.a.store, native = this.library.living?.parts.living.digests[this.a.head.id], box = byId("digest");
    box.hidden = !digest && !this.library.refused;
    box.textContent = digest ? `${native ? "✓ " : ""}simulated here · ${digest.slice(0, 8)}` : "the server's film";
    box.title = !digest ? `${this.library.refused} The page shows the server's film.` : native ? `The town runs in this page. Its state ends with the digest ${digest}, the same as the native run's.` : `The town runs in this page. Digest of its last state: ${digest}`;
  }

  /** @param {any} source */
  listenTo(source) {
    if (this.heard.has(source)) return;
    this.heard.add(source);
    source.addEventListener("reel", () => {
      this.timelineSoon();
      this.showSeldom();
    });
    source.addEventListener("trouble", (/** @type {any} */ e) => this.tell(e.detail, true));
    source.addEventListener("mended", () => (byId("status").hidden = true));
  }

  async findMoments() {
    const { a } = this;
    if (a.shot < a.head.reels) this.tell("Looking through the whole day; that takes a while.");
    const moments = await a.moments().catch(() => []);
    if (a !== this.a) return;
    this.moments = this.timeline.moments = moments;
    this.looked = true;
    this.timeline.chooseLanes();
    this.moved("moments");
  }

  /** @param {any} a @param {any} b */
  async showParting(a, b) {
    const [divergence, moments] = await Promise.all([a.divergence(b).catch(() => null), b.moments().catch(() => [])]);
    if (a !== this.a || b !== this.b) return;
    this.timeline.otherMoments = moments;
    const found = divergence ?? (await this.findDivergence(a, b));
    const box = byId("divergence");
    box.hidden = false;
    if (found.tick === null) box.textContent = "In A and B everybody does the same to the end of the day.";
    else {
      this.timeline.parted = found.tick;
      box.replaceChildren(link(found.text, () => {
        if (found.slot !== undefined && found.slot !== null) this.select(found.slot);
        this.seek(found.tick);
      }));
    }
    this.timeline.dirty = true;
    this.drawSoon();
  }

  /** The first moment in which A and B are not the same, from the films alone. @param {any} a @param {any} b */
  async findDivergence(a, b) {
    for (let t = Math.max(a.first, b.first); t <= Math.min(a.last, b.last); t++) {
      const p = a.glance(t) ?? (await a.frame(t)), q = b.glance(t) ?? (await b.frame(t));
      for (let slot = 0; slot < Math.min(p.residents, q.residents); slot++) {
        if (p.action[slot] === q.action[slot] && p.x[slot] === q.x[slot] && p.y[slot] === q.y[slot] && p.doing[slot] === q.doing[slot]) continue;
        const { actions } = a.head, name = nameOf(a.head, p, slot), act = p.action[slot] !== q.action[slot];
        const said = act ? `chooses “${optionText(actions[p.action[slot]])}” in A, “${optionText(actions[q.action[slot]])}” in B` : `${doingText(a.head, p, slot)} in A, ${doingText(b.head, q, slot)} in B`;
        return { tick: t, slot, text: `They first differ at ${clockTime(a.head, t)}: ${name} ${said}.` };
      }
    }
    return { tick: null };
  }

  toggleCompare() {
    if (this.b) return void this.openB(null);
    const other = this.library.takes.find((/** @type {any} */ take) => take.id !== this.a.head.id);
    if (other) this.openB(other.id);
    else this.tell("There is no second day to compare with. Press b to make one.");
  }

  /** A title without the town and the seed that all takes share. @param {string} title */
  shortTitle(title) {
    const words = this.library.takes.map(take => take.title.split(", ")), common = [0, 1].filter(k => words.every(one => one.length > 2 && one[k] === words[0][k]));
    return title.split(", ").filter((_, k) => !common.includes(k)).join(", ");
  }

  fillTakes() {
    const { takes } = this.library, options = () => takes.map((/** @type {any} */ take) => make("option", { value: take.id, text: this.shortTitle(take.title) }));
    byId("take-a").replaceChildren(...options());
    byId("take-b").replaceChildren(make("option", { value: "", text: "nothing" }), ...options());
    byId("take-b-field").hidden = takes.length < 2;
    byId("take-a").value = this.a?.head.id ?? "";
    byId("take-b").value = this.b?.head.id ?? "";
  }

  /** Whether this page may branch; if not it says why. */
  mayAct() {
    const { offline, living, about } = this.library;
    if (living || (!offline && about.role === "act")) return true;
    this.tell(offline ? "This is a recording and cannot be changed; open the town with townlet observe." : "This link is for watching only. To act, open the other link that townlet observe printed.");
    return false;
  }

  branch() {
    if (!this.mayAct()) return;
    this.player.pause();
    byId("branch-when").textContent = `Something is different from ${clockTime(this.a.head, this.player.t)} on. A stays as it is; the new day runs beside it as B, with the same luck.`;
    byId("branch-error").textContent = "";
    byId("branch-things").hidden = !this.library.offline;
    byId("branch-do").value = "";
    const offer = (/** @type {string[]} */ can) => byId("branch-idea").value || byId("branch-idea").replaceChildren(make("option", { value: "", text: "nothing, or what is written below" }), ...this.ideas(can).map(([group, rows]) => make("optgroup", { label: group }, ...rows.map(([text, change]) => make("option", { value: change, text })))));
    byId("branch-idea").value = "";
    offer([]);
    this.a.why(this.player.t, Math.max(0, this.who)).then((/** @type {any} */ why) => offer((why.options ?? []).map((/** @type {any} */ one) => one.name)), () => {}); // a film without whys has none to offer
    byId("branch-policy").replaceChildren(make("option", { value: "", text: "the same" }), ...(this.library.about.policies ?? []).map((/** @type {any} */ one) => make("option", { value: one.id, text: one.name })));
    byId("branch-dialog").showModal();
  }

  /** What people ask for most, by group: in words, and as it is written. @param {string[]} can what the resident can do now @returns {[string, [string, string][]][]} */
  ideas(can) {
    const { head } = this.a, frame = this.a.peek(this.player.t), here = this.who >= 0 ? this.who : 0, name = nameOf(head, frame, here), living = this.library.living?.parts.living;
    const rival = this.moments.find(one => one.slots.includes(here) && one.slots.length > 1)?.slots.find((/** @type {number} */ slot) => slot !== here) ?? (here ? 0 : 1), other = rival < head.people.length ? nameOf(head, frame, rival) : "";
    const shared = head.things.filter((/** @type {any} */ one) => one.kind !== "bed" && !this.library.offline);
    /** @type {[string, [string, string][]][]} */ const found = [
      ["The town", [...head.perturbations.map((/** @type {string} */ kind) => [`${head.reason_words[kind] ?? plain(kind)} for an hour`, `perturb ${kind} 60`]), ...(frame && head.people.some((/** @type {any} */ _, /** @type {number} */ slot) => !frame.state(slot)) ? [["somebody moves in", "newcomer"]] : []), ...[...new Set(shared.map((/** @type {any} */ one) => one.kind))].flatMap(kind => {
        const place = placeFor(head, this.a.peek(this.a.decisionOf(this.player.t)), kind);
        return place ? [[`one more ${plain(kind)}`, `objects += ${kind}@${place}`]] : [];
      }), ...shared.map((/** @type {any} */ one) => [`without ${plain(one.id)}`, `objects -= ${one.id}`])]],
      [name, [...head.needs.map((/** @type {any} */ need) => [`${plain(need.name)} falls to 20%`, `resident ${name}.${need.name} = 0.2`]), ["has no money", `resident ${name}.wallet = 0`], ...(other ? [[`cannot stand ${other}`, `tie ${name}~${other} rivalry = 0.9`], [`holds nothing against ${other}`, `tie ${name}~${other} rivalry = 0`]] : []), ["leaves the town", `exit ${name}`]]],
    ];
    if (can.length) found.push([`${name} decides now`, can.map(option => [optionText(option), `force ${name} ${option}`])]);
    if (living) found.push(["A rule", living.rules.map((/** @type {any} */ one) => [`${one.key} = ${one.value}`, `${one.key} = ${one.value}`])]);
    return found;
  }

  async makeBranch() {
    const text = byId("branch-do").value.trim(), policy = byId("branch-policy").value || null;
    byId("branch-error").textContent = text || policy ? "" : "Choose what changes, or who else decides.";
    if (!text && !policy) return;
    try {
      const head = await this.library.branch(this.a.head.id, text ? [{ at: this.player.t, do: text }] : [], policy);
      this.fillTakes();
      byId("branch-dialog").close();
      this.openView("town");
      await this.openB(head.id);
    } catch (error) {
      byId("branch-error").textContent = /** @type {Error} */ (error).message;
    }
  }

  // --- moving through time ------------------------------------------------------------------------------------------------

  /** @param {number} t */
  seek(t) {
    this.player.seek(t);
  }

  /** @param {number} by */
  stepDecision(by) {
    const { interval } = this.a.head, at = this.a.decisionOf(this.player.t);
    this.player.step((by > 0 ? at + interval : at < this.player.t ? at : at - interval) - this.player.t);
  }

  /** @param {number} by 1 next, -1 previous moment */
  async jump(by) {
    if (!this.moments.length) await this.findMoments();
    const t = this.player.t, list = by > 0 ? this.moments.filter(one => one.tick > t) : this.moments.filter(one => one.tick < t);
    const one = by > 0 ? list[0] : list[list.length - 1];
    if (!one) return void this.tell(by > 0 ? "No moment after this one." : "No moment before this one.");
    this.goTo(one);
  }

  async jumpToWorst() {
    if (!this.moments.length) await this.findMoments();
    const worst = this.moments.filter(one => isClash(one.kind)).sort((p, q) => q.strength - p.strength || p.tick - q.tick)[0];
    if (!worst) return this.tell("There was no conflict on this day.");
    this.goTo(worst);
    this.select(worst.slots[0]);
  }

  /** @param {any} one */
  goTo(one) {
    this.player.pause();
    this.seek(one.tick);
    this.speak(one.text);
  }

  /** @param {string} why */
  moved(why) {
    const { head } = this.a, t = this.player.t;
    byId("clock").textContent = `Day ${clockDay(head, t)} · ${clockTime(head, t)}`;
    byId("tick").textContent = `tick ${t}`;
    if (["play", "pause", "end", "open"].includes(why)) dress(byId("play"), this.player.playing ? "pause" : "play", this.player.playing ? "Pause (space)" : "Play (space)");
    if (why === "speed") byId("speed").value = String(this.player.speed);
    if (["pause", "step", "seek", "end"].includes(why)) {
      this.speak(`Day ${clockDay(head, t)}, ${clockTime(head, t)}`);
      if (!this.a.peek(t)) this.a.frame(t).then(() => this.moved("arrived")).catch(() => {});
      if (this.b && !this.b.peek(this.b.clamp(t))) this.b.frame(this.b.clamp(t)).then(() => this.drawSoon()).catch(() => {});
    }
    this.drawSoon();
    if (why === "frame") this.showSeldom();
    else this.showTables();
  }

  drawSoon() {
    if (this.drawing || !this.a) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      this.draw();
    });
  }

  draw() {
    const begun = performance.now(), { t } = this.player, part = this.player.playing && this.player.perSecond <= 60 ? this.player.at - t : 0;
    for (const [map, source] of /** @type {[TownMap, any][]} */ ([[this.mapA, this.a], [this.mapB, this.b]])) {
      if (!source || this.view !== "town") continue;
      const at = source.clamp(t), frame = source.peek(at), next = part && at < source.last ? source.glance(at + 1) : null;
      if (frame && this.following && this.who >= 0 && frame.state(this.who) && map === this.mapA && map.scale) {
        const on = next && !calm.matches && Math.abs(next.x[this.who] - frame.x[this.who]) + Math.abs(next.y[this.who] - frame.y[this.who]) <= 2 ? part : 0;
        map.redraw = () => {};
        map.centre(frame.x[this.who] + ((next?.x[this.who] ?? 0) - frame.x[this.who]) * on, frame.y[this.who] + ((next?.y[this.who] ?? 0) - frame.y[this.who]) * on);
        map.redraw = () => this.drawSoon();
      }
      map.draw(frame, next, part);
    }
    this.timeline.draw();
    this.cost = performance.now() - begun;
  }

  /** What is in words, a few times a second while it plays. */
  showTables() {
    if (!this.a) return;
    const frame = this.a.peek(this.player.t);
    byId("loading").hidden = frame !== null;
    if (!frame) return;
    const { head } = this.a, troubles = head.perturbations.filter((/** @type {string} */ _, /** @type {number} */ k) => frame.troubles >> k & 1);
    byId("troubles").textContent = troubles.map(plain).join(", ");
    byId("troubles").hidden = !troubles.length;
    let waiting = 0, present = 0, quarrels = 0;
    for (let i = 0; i < frame.residents; i++) {
      present += Number(frame.state(i) > 0);
      waiting += Number(frame.waits(i));
      quarrels += Number(frame.quarrels(i));
    }
    byId("map-a").setAttribute("aria-label", `Map of ${head.take.town ?? "the town"} at ${clockTime(head, frame.t)}: ${present} residents, ${waiting} waiting, ${quarrels} quarrelling. The view People tells the same in a table.`);
    this.showCaption(frame);
    this.inspector.show();
    this.day.show();
    this.views[this.view]?.show();
  }

  /** What happens just now, with those it happens to. @param {any} frame */
  showCaption(frame) {
    const { head } = this.a, recent = this.moments.filter(one => one.tick <= frame.t && one.tick > frame.t - 10).slice(-2).reverse(), key = `${head.id}/${recent.map(one => one.tick + one.text).join()}`;
    if (key === this.caption) return;
    this.caption = key;
    const rows = recent.map(one => make("p", { class: isClash(one.kind) ? "sharp" : "" },
      link(clockTime(head, one.tick), () => this.seek(one.tick), "time"), ` ${one.text} `,
      ...one.slots.map((/** @type {number} */ slot) => make("button", { class: "chip", text: nameOf(head, frame, slot), "aria-label": `Select ${nameOf(head, frame, slot)}`, on: { click: () => this.select(slot) } }))));
    byId("caption").replaceChildren(...rows);
  }

  // --- choosing -----------------------------------------------------------------------------------------------------------

  /** The slot of the selected resident, -1 for nobody: what is drawn next shows it, whoever draws. */
  get who() {
    return this.mapA.who;
  }

  set who(slot) {
    this.mapA.who = this.mapB.who = this.timeline.who = slot;
  }

  /** @param {number} slot */
  select(slot) {
    this.who = slot;
    this.timeline.chooseLanes();
    this.openSheet(slot >= 0);
    this.inspector.shown = "";
    if (slot < 0) this.following = false;
    this.moved("select");
  }

  /** The panel beside the map is a sheet on a phone, and the map then shows whom it is about. @param {boolean} open */
  openSheet(open) {
    byId("inspector").classList.toggle("open", open);
    document.body.classList.toggle("inspecting", open);
    byId("day-open").setAttribute("aria-pressed", String(open && this.who < 0));
    if (!phone.matches) return;
    requestAnimationFrame(() => {
      const frame = this.a.peek(this.player.t);
      if (!open || this.who < 0 || !frame) return void this.mapA.fit();
      this.mapA.scale = Math.max(this.mapA.scale, 18);
      this.mapA.centre(frame.x[this.who], frame.y[this.who]);
    });
  }

  /** @param {number} by */
  selectNext(by) {
    const frame = this.a.peek(this.player.t);
    if (!frame) return;
    for (let k = 1, slot = this.who < 0 && by < 0 ? 0 : this.who; k <= frame.residents; k++) {
      slot = (slot + by + frame.residents) % frame.residents;
      if (frame.state(slot)) return void this.select(slot);
    }
  }

  /** @param {boolean} on */
  follow(on) {
    this.following = on && this.who >= 0;
    if (this.following && this.mapA.scale < 20) this.mapA.scale = 28;
    byId("follow").setAttribute("aria-pressed", String(this.following));
    this.drawSoon();
  }

  /** @param {number} x @param {number} y */
  lookAt(x, y) {
    this.openView("town");
    requestAnimationFrame(() => {
      if (this.mapA.scale < 20) this.mapA.scale = 28;
      this.mapA.centre(x, y);
    });
  }

  /** @param {string} name */
  setOverlay(name) {
    this.mapA.overlay = this.mapB.overlay = name;
    for (const other of Object.keys(OVERLAYS)) byId(`overlay-${other}`).setAttribute("aria-pressed", String(other === name));
    byId("overlay-key").replaceChildren(...OVERLAYS[name].key.map(([hue, text]) => make("li", {}, make("i", { vars: { "--hue": `var(--${hue})` } }), text)));
    this.drawSoon();
  }

  /** @param {string} name */
  openView(name) {
    if (name !== "town" && !this.views[name]) return;
    this.view = document.body.dataset.view = name;
    for (const other of this.viewNames) {
      byId(`view-${other}`).hidden = other !== name;
      byId(`go-${other}`).setAttribute("aria-current", other === name ? "page" : "false");
    }
    byId(`go-${name}`).scrollIntoView({ block: "nearest", inline: "nearest" }); // on a phone the row of views is longer than the screen
    const timeless = TIMELESS.includes(name);
    byId("footer").hidden = timeless;
    byId("inspector").hidden = timeless;
    document.body.classList.toggle("timeless", timeless);
    if (phone.matches && this.who < 0) this.openSheet(false);
    this.timeline.chooseLanes();
    this.drawSoon();
    if (timeless) this.views[name].show();
    else if (this.a) this.showTables();
  }

  letGo() {
    const from = /** @type {any} */ (document.activeElement);
    if (from?.closest?.(".search")) this.closeSearch();
    else this.select(-1);
    from?.blur?.();
  }

  // --- words --------------------------------------------------------------------------------------------------------------

  /** @param {string} text @param {boolean} [stay] */
  tell(text, stay = false) {
    const box = byId("status");
    box.textContent = text;
    box.hidden = false;
    clearTimeout(this.telling);
    if (!stay) this.telling = setTimeout(() => (box.hidden = true), 5000);
  }

  /** @param {string} text */
  speak(text) {
    byId("speak").textContent = text;
  }

  closeSearch() {
    byId("search").value = "";
    byId("search-list").hidden = true;
    byId("search").setAttribute("aria-expanded", "false");
  }

  /** Residents, things and times of day. */
  search() {
    const text = byId("search").value.trim().toLowerCase(), { head } = this.a, frame = this.a.peek(this.player.t);
    /** @type {[string, string, () => void][]} */ const found = [];
    const at = tickOfTime(head, this.player.t, text);
    if (at !== null) found.push([clockTime(head, at), "time", () => this.seek(at)]);
    if (text) {
      for (let slot = 0; slot < head.people.length && found.length < 8; slot++) {
        const name = nameOf(head, frame, slot);
        if (name.toLowerCase().includes(text)) found.push([name, "resident", () => this.select(slot)]);
      }
      for (const thing of head.things) if (found.length < 10 && thing.id.toLowerCase().includes(text)) found.push([thing.id, plain(thing.kind), () => this.lookAt(thing.x, thing.y)]);
    }
    byId("search-list").replaceChildren(...found.map(([name, kind, call]) => make("li", {}, make("button", { on: { click: () => {
      this.closeSearch();
      byId("search").blur(); // the keys are those of the page again
      call();
    } } }, make("span", { text: name }), make("span", { class: "soft", text: kind })))), ...(found.length ? [] : [make("li", { class: "soft none", role: "status", text: "Nobody and nothing of that name; a time is written 07:40." })]));
    byId("search-list").hidden = !text;
    byId("search").setAttribute("aria-expanded", String(Boolean(text)));
  }

  /** Where this tab stands, in the words of a link. */
  place() {
    const words = new URLSearchParams({ t: String(this.player.t), view: this.view });
    if (this.who >= 0) words.set("who", this.a.head.people[this.who].id);
    return words;
  }

  /** The moment as a link, with the recipes of what is shown: whoever has the town needs nothing else. */
  async link() {
    const words = this.place();
    words.set("take", await linkOfTake(this.a.head.take));
    if (this.b) words.set("vs", await linkOfTake(this.b.head.take));
    return `${location.href.split("#")[0]}#${words}`;
  }

  async share() {
    const link = await this.link();
    navigator.clipboard.writeText(link).then(() => this.tell("The link is copied."), () => this.tell(link, true));
  }

  async save() {
    try {
      const [a, b] = [this.a, this.b].map(source => source?.head.id);
      for (const id of [a, b]) if (id) await this.library.publish?.(id);
      location.href = `api/takes/${a}.html${b ? `?vs=${b}` : ""}`;
    } catch (error) {
      this.tell(/** @type {Error} */ (error).message);
    }
  }

  /** The id of a take that is here or can be made here, null where neither. @param {any} coming its recipe */
  async bring(coming) {
    try {
      const take = await coming, id = takeId(take);
      return this.library.takes.some(one => one.id === id) ? id : (await this.library.adopt(take)).id;
    } catch (error) {
      this.tell(/** @type {Error} */ (error).message, true);
      return null;
    }
  }

  /** The id of the take that a link means. @param {string | null} text */
  async takeOf(text) {
    return text === null || this.library.takes.some(take => take.id === text) ? text : this.bring(takeOfLink(text));
  }

  bind() {
    dress(byId("earlier"), "earlier", "Previous moment (p)");
    dress(byId("back"), "back", "One tick back (left)");
    dress(byId("play"), "play", "Play (space)");
    dress(byId("on"), "on", "One tick on (right)");
    dress(byId("later"), "later", "Next moment (n)");
    dress(byId("zoom-in"), "plus", "Zoom in (+)");
    dress(byId("zoom-out"), "minus", "Zoom out (−)");
    dress(byId("zoom-fit"), "fit", "Whole town (0)");
    dress(byId("share"), "share", "Copy a link to this moment");
    dress(byId("branch"), "fork", "What if … from here on (b)", "What if");
    if (!this.library.offline) dress(byId("save"), "save", "Save as one HTML file");
    dress(byId("help"), "keys", "Keys (?)");
    dress(byId("inspector-close"), "close", "Close (esc)");
    const clicks = {
      earlier: () => this.jump(-1), back: () => this.player.step(-1), play: () => this.player.toggle(), on: () => this.player.step(1), later: () => this.jump(1),
      "zoom-in": () => this.mapA.zoom(1.3), "zoom-out": () => this.mapA.zoom(1 / 1.3), "zoom-fit": () => this.mapA.fit(), help: () => byId("keys-dialog").showModal(), "inspector-close": () => this.select(-1),
      futures: () => showFutures(this), "take-over": () => this.seat.begin(), follow: () => this.follow(!this.following), branch: () => this.branch(), save: () => this.save(), share: () => this.share(), tour: () => this.day.tour(), "day-open": () => {
        const open = byId("inspector").classList.contains("open") && this.who < 0;
        this.select(-1);
        this.openSheet(!open);
      },
    };
    for (const [id, call] of Object.entries(clicks)) byId(id)?.addEventListener("click", call);
    byId("speed").addEventListener("change", () => this.player.setSpeed(Number(byId("speed").value)));
    byId("take-a").addEventListener("change", () => this.openA(byId("take-a").value));
    byId("take-b").addEventListener("change", () => this.openB(byId("take-b").value || null));
    byId("overlays").replaceChildren(...Object.entries(OVERLAYS).map(([name, { title }], k) => make("button", { id: `overlay-${name}`, title: `${title} (${k + 1})`, text: name, on: { click: () => this.setOverlay(name) } })));
    this.setOverlay("needs");
    for (const name of this.viewNames) byId(`go-${name}`).addEventListener("click", () => this.openView(name));
    for (const kind of ["things", "people"]) byId(`lanes-${kind}`).addEventListener("click", () => {
      this.timeline.lanesOf = kind;
      for (const other of ["things", "people"]) byId(`lanes-${other}`).setAttribute("aria-pressed", String(other === kind));
      this.timeline.chooseLanes();
      this.drawSoon();
    });
    const search = byId("search");
    search.addEventListener("input", () => this.search());
    search.addEventListener("keydown", (/** @type {KeyboardEvent} */ e) => {
      if (e.key === "Enter") byId("search-list").querySelector("button")?.click();
      if (e.key === "ArrowDown") byId("search-list").querySelector("button")?.focus();
    });
    byId("branch-form").addEventListener("submit", (/** @type {Event} */ e) => {
      e.preventDefault();
      this.makeBranch();
    });
    byId("branch-idea").addEventListener("change", () => (byId("branch-do").value = byId("branch-idea").value));
    byId("branch-do").addEventListener("input", () => (byId("branch-idea").value = ""));
    byId("branch-cancel").addEventListener("click", () => byId("branch-dialog").close());
    byId("timeline").addEventListener("pointermove", (/** @type {PointerEvent} */ e) => {
      if (!this.a || e.buttons) return;
      const t = this.a.clamp(this.timeline.tickAt(e.offsetX)), told = this.timeline.tell(e.offsetY, t);
      byId("timeline").title = `${clockTime(this.a.head, t)}${told ? ` · ${told}` : ""}`;
    });
    new ResizeObserver(() => {
      this.timeline.chooseLanes();
      this.drawSoon();
      this.views.ties.draw?.();
    }).observe(document.body);
    onThemeChange(() => {
      this.mapA.recolour();
      this.mapB.recolour();
      this.timeline.dirty = true;
      this.inspector.shown = "";
      this.moved("theme");
    });
    let linked = false;
    addEventListener("hashchange", () => { // a link that is pasted into the page's own address
      linked = true;
      location.reload();
    });
    addEventListener("pagehide", () => this.a && keepPlace(this.opened, linked ? null : { link: location.hash, words: this.place().toString(), takes: [this.a, this.b].map(source => source?.head.take ?? null) }));
    bindKeys(this);
  }
}

/**
 * What a tab showed, for its reload: the link it came by, the words of a link to the moment, the recipes of A and B.
 * @typedef {{link: string, words: string, takes: [any, any]}} Place
 */

/** Where nothing can be kept, a reload begins anew. @param {string} opened the take the page opens with @param {Place | null} place */
function keepPlace(opened, place) {
  try {
    sessionStorage.setItem(`townlet ${opened}`, JSON.stringify(place));
  } catch { /* storage is switched off */ }
}

/** A link that is followed anew shows what it means; one that is reloaded, what was made of it. @param {string} opened @returns {Place | null} */
function keptPlace(opened) {
  const [{ type }] = /** @type {PerformanceNavigationTiming[]} */ (performance.getEntriesByType("navigation"));
  try {
    /** @type {Place | null} */ const place = JSON.parse(sessionStorage.getItem(`townlet ${opened}`) ?? "null");
    return place?.link === location.hash && (place.link === "" || type !== "navigate") ? place : null;
  } catch {
    return null;
  }
}

/** @param {Promise<Library>} coming @param {(page: Page) => Record<string, any>} moreViews that only a server has @returns {Promise<Page | null>} */
export async function openPage(coming, moreViews) {
  try {
    const library = await coming, page = new Page(library, moreViews), open = library.about.open ?? {};
    page.opened = open.take ?? library.takes[0]?.id ?? "";
    const place = keptPlace(page.opened), words = new URLSearchParams(place?.words ?? location.hash.slice(1));
    /** @type {any} */ (window).townlet = page;
    document.body.classList.toggle("offline", library.offline);
    byId("branch").hidden = library.offline && !library.living;
    const take = (/** @type {number} */ k) => (place ? place.takes[k] && page.bring(place.takes[k]) : page.takeOf(words.get(["take", "vs"][k])));
    const first = (await take(0)) ?? page.opened, other = (await take(1)) ?? (place || words.has("take") ? null : open.vs);
    page.fillTakes();
    if (first) {
      await page.openA(first);
      if (other && other !== first) await page.openB(other);
      const t = Number(words.get("t") ?? NaN), who = page.a.head.people.findIndex((/** @type {any} */ one) => one.id === words.get("who"));
      if (Number.isFinite(t)) page.seek(t);
      if (who >= 0) page.select(who);
    } else page.tell("No town is open; choose one under Scenario.", true);
    const view = words.get("view") ?? (open.run && !first ? "runs" : "town");
    page.openView(page.viewNames.includes(view) ? view : "town");
    performance.measure("open", { start: 0 });
    document.body.dataset.ready = "true";
    return page;
  } catch (error) {
    const told = /** @type {Error} */ (error);
    byId("status").hidden = false;
    byId("status").textContent = told.message;
    document.body.dataset.ready = "failed";
    if (told.name !== "Error") throw error;
    return null;
  }
}
