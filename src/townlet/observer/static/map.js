// @ts-check
/** The map: discs with initials when near, pixels written into an image when far. */
import { calm, colour, colourWord, disc, fitted } from "./dom.js";
import { needLevel } from "./words.js";

/** What can be laid over the map: what it shows, and what its colours mean. @type {Record<string, {title: string, key: [string, string][]}>} */
export const OVERLAYS = {
  needs: { title: "How well their needs are met", key: [["good", "all needs above half"], ["fair", "one below half"], ["bad", "one below a quarter"]] },
  doing: { title: "What they do", key: [["h6", "idle"], ["h0", "walking"], ["h2", "using something"], ["wait", "waiting"], ["h1", "at work"], ["h3", "going home"], ["h7", "chatting"]] },
  queues: { title: "Who waits", key: [["wait", "waiting"]] },
  rivalry: { title: "Who is angry", key: [["h4", "a little angry"], ["fair", "angry"], ["bad", "keeps away"]] },
  heat: { title: "Where people stood lately", key: [["heat", "stood there in the last hour"]] },
  routes: { title: "Where they go", key: [["soft", "on the way to"], ["ink", "way of the selected one"]] },
  window: { title: "What the selected one sees", key: [["ink", "sight of the selected one"]] },
};
const NEAR = 12; // px a tile from which residents are discs
const NEAR_FEW = 8; // in a town of few
const FEW = 60;

const TILE_COLOURS = { floor: "floor", wall: "wall", door: "door", road: "road", object: "floor" };
export const DOING_COLOURS = ["soft", "h6", "h0", "h2", "wait", "wait", "h1", "h1", "h3", "h7", "bad"];
const LEVEL_COLOURS = ["good", "fair", "bad"];
const REACH = 5; // tiles a resident sees in each direction
const TRAIL = 40;

// things by kind, in a box of 24 × 24
const THING_PATHS = {
  bed: "M3 7v11M3 15h18v3M21 15v-3a3 3 0 00-3-3H9v6M6 10.5a1.2 1.2 0 100 .1",
  shower: "M6 20V7a3 3 0 016 0M8.5 9.5h7M10 12.5v1M12 12.5v1M14 12.5v1M10 16v1M12 16v1M14 16v1",
  stove: "M5 4h14v16H5zM5 9h14M8 6.5h.1M12 6.5h.1M16 6.5h.1M8 12h8v5H8z",
  fridge: "M7 3h10v18H7zM7 10h10M9.5 6v2M9.5 13v3",
  table: "M3 9h18M6 9v10M18 9v10M9 6h6",
  cafe_counter: "M5 8h11v6a4 4 0 01-4 4H9a4 4 0 01-4-4zM16 9.5h2a2 2 0 010 4h-2M8 3v2M12 3v2M4 21h14",
  bench: "M3 12h18M4 8h16M6 12v6M18 12v6",
};

export class TownMap {
  /** @param {any} canvas @param {(slot: number) => void} pick a resident @param {(x: number, y: number) => void} [touch] a tile */
  constructor(canvas, pick, touch = () => {}) {
    this.canvas = canvas;
    this.pick = pick;
    this.touch = touch;
    /** @type {any} */ this.source = null;
    this.scale = 0; // px a tile; 0 = fit
    this.x0 = 0;
    this.y0 = 0;
    this.fitted = true;
    this.overlay = "needs";
    this.who = -1;
    this.hover = -1;
    this.part = 0; // of the way to the next tick
    /** @type {TownMap | null} */ this.twin = null;
    /** @type {any} */ this.ground = null;
    /** @type {any} */ this.pixels = null;
    /** @type {Map<string, any>} */ this.heat = new Map();
    this.redraw = () => {};
    this.paths = Object.fromEntries(Object.entries(THING_PATHS).map(([kind, path]) => [kind, new Path2D(path)]));
    this.listen();
  }

  /** @param {any} source */
  open(source) {
    const same = this.source && this.source.head.map.width === source.head.map.width && this.source.head.map.height === source.head.map.height;
    this.source = source;
    this.ground = this.pixels = null;
    if (!same) this.fit();
  }

  get near() {
    return (this.source.head.people?.length ?? 0) <= FEW ? NEAR_FEW : NEAR;
  }

  recolour() {
    this.ground = this.pixels = null;
  }

  // --- camera -------------------------------------------------------------------------------------------------------------

  fit() {
    this.fitted = true;
    this.share();
  }

  /** The whole town in the window. @param {number} width @param {number} height */
  fitTo(width, height) {
    const { map } = this.source.head;
    this.scale = Math.min(width / map.width, height / map.height, 56);
    this.x0 = (map.width - width / this.scale) / 2;
    this.y0 = (map.height - height / this.scale) / 2;
  }

  /** @param {number} factor @param {number} [px] @param {number} [py] the point that stays */
  zoom(factor, px = this.canvas.clientWidth / 2, py = this.canvas.clientHeight / 2) {
    const x = this.x0 + px / this.scale, y = this.y0 + py / this.scale, { map } = this.source.head;
    const least = Math.min(this.canvas.clientWidth / map.width, this.canvas.clientHeight / map.height) * 0.8;
    this.scale = Math.max(Math.min(least, this.near), Math.min(72, this.scale * factor));
    this.moveTo(x - px / this.scale, y - py / this.scale);
  }

  /** @param {number} x @param {number} y */
  moveTo(x, y) {
    this.x0 = x;
    this.y0 = y;
    this.fitted = false;
    this.share();
  }

  /** @param {number} dx tiles @param {number} dy */
  pan(dx, dy) {
    this.moveTo(this.x0 + dx, this.y0 + dy);
  }

  /** @param {number} x tile @param {number} y */
  centre(x, y) {
    this.moveTo(x + 0.5 - this.canvas.clientWidth / this.scale / 2, y + 0.5 - this.canvas.clientHeight / this.scale / 2);
  }

  /** The map beside this one looks at the same place. */
  share() {
    if (this.twin) Object.assign(this.twin, { scale: this.scale, x0: this.x0, y0: this.y0, fitted: this.fitted, pixels: null });
    this.pixels = null;
    this.redraw();
  }

  listen() {
    const canvas = this.canvas, held = new Map();
    let moved = 0, apart = 0;
    canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ e) => {
      held.set(e.pointerId, [e.offsetX, e.offsetY]);
      canvas.setPointerCapture(e.pointerId);
      moved = 0;
      apart = 0;
    });
    canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ e) => {
      if (!this.source) return;
      if (!held.has(e.pointerId)) {
        const slot = this.slotAt(e.offsetX, e.offsetY);
        if (slot !== this.hover) {
          this.hover = slot;
          canvas.classList.toggle("over", slot >= 0);
          this.redraw();
        }
        return;
      }
      const [x, y] = held.get(e.pointerId);
      held.set(e.pointerId, [e.offsetX, e.offsetY]);
      moved += Math.abs(e.offsetX - x) + Math.abs(e.offsetY - y);
      if (held.size === 2) {
        const [[ax, ay], [bx, by]] = [...held.values()], now = Math.hypot(ax - bx, ay - by);
        if (apart) this.zoom(now / apart, (ax + bx) / 2, (ay + by) / 2);
        apart = now;
      } else if (moved > 6) this.pan((x - e.offsetX) / this.scale, (y - e.offsetY) / this.scale);
    });
    const release = (/** @type {PointerEvent} */ e) => {
      if (held.delete(e.pointerId) && moved <= 6 && e.type === "pointerup") {
        const slot = this.slotAt(e.offsetX, e.offsetY);
        if (slot >= 0) this.pick(slot);
        else if (this.source) this.touch(Math.floor(this.x0 + e.offsetX / this.scale), Math.floor(this.y0 + e.offsetY / this.scale));
      }
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", () => {
      if (this.hover >= 0) {
        this.hover = -1;
        this.redraw();
      }
    });
    canvas.addEventListener("wheel", (/** @type {WheelEvent} */ e) => {
      e.preventDefault();
      this.zoom(Math.exp(-e.deltaY * 0.0015), e.offsetX, e.offsetY);
    }, { passive: false });
  }

  /** The resident nearest to a point of the canvas, -1 when none is near. @param {number} px @param {number} py */
  slotAt(px, py) {
    const { frame, places } = this;
    if (!frame) return -1;
    let best = -1, least = Math.max(14, this.scale * 0.7) ** 2;
    for (let i = 0; i < frame.residents; i++) {
      if (!frame.state(i)) continue;
      const at = places?.[i], x = at ? at[0] : (frame.x[i] + 0.5 - this.x0) * this.scale, y = at ? at[1] : (frame.y[i] + 0.5 - this.y0) * this.scale;
      const d = (x - px) ** 2 + (y - py) ** 2;
      if (d < least) [best, least] = [i, d];
    }
    return best;
  }

  // --- drawing ------------------------------------------------------------------------------------------------------------

  /** @param {any} frame @param {any} next the moment after, or null @param {number} part of the way to it */
  draw(frame, next, part) {
    const here = fitted(this.canvas);
    if (!here || !this.source) return;
    this.frame = frame;
    this.next = calm.matches || part === 0 ? null : next;
    this.part = part;
    if (this.fitted) this.fitTo(here.width, here.height);
    /** @type {any} */ this.places = null;
    if (this.scale < this.near) this.drawFar(here);
    else this.drawNear(here);
  }

  /** A pixel per tile. */
  makeGround() {
    const { map } = this.source.head, ground = new OffscreenCanvas(map.width, map.height), c = /** @type {any} */ (ground.getContext("2d"));
    const image = c.createImageData(map.width, map.height), words = new Uint32Array(image.data.buffer);
    const byTile = map.legend.map((/** @type {keyof typeof TILE_COLOURS} */ name) => colourWord(TILE_COLOURS[name] ?? "floor"));
    map.tiles.forEach((/** @type {string} */ row, /** @type {number} */ y) => {
      for (let x = 0; x < map.width; x++) words[y * map.width + x] = byTile[Number(row[x])];
    });
    c.putImageData(image, 0, 0);
    this.ground = { canvas: ground, words };
  }

  /** Colour names of everybody under the overlay that is on. @param {any} frame @param {number} i */
  shade(frame, i) {
    if (frame.quarrels(i)) return "bad";
    if (this.overlay === "doing" || this.overlay === "routes") return DOING_COLOURS[frame.state(i)] ?? "h0";
    const waits = frame.waits(i);
    if (this.overlay === "queues") return waits ? "wait" : "soft";
    if (this.overlay === "rivalry") return frame.rivalry[i] >= 178 ? "bad" : frame.rivalry[i] >= 128 ? "fair" : frame.rivalry[i] >= 26 ? "h4" : "soft";
    return waits ? "wait" : "person";
  }

  /** @param {any} here */
  drawFar({ c, ratio }) {
    if (!this.ground) this.makeGround();
    const w = this.canvas.width, h = this.canvas.height, s = this.scale * ratio, { map } = this.source.head, frame = this.frame;
    if (!this.pixels || this.pixels.w !== w || this.pixels.h !== h || this.pixels.s !== s) {
      const image = c.createImageData(w, h), ground = new Uint32Array(w * h), paper = colourWord("paper");
      const columns = new Int32Array(w);
      for (let x = 0; x < w; x++) columns[x] = Math.floor(x / s + this.x0);
      for (let y = 0, at = 0; y < h; y++) {
        const ty = Math.floor(y / s + this.y0), row = ty >= 0 && ty < map.height ? ty * map.width : -1;
        for (let x = 0; x < w; x++, at++) ground[at] = row >= 0 && columns[x] >= 0 && columns[x] < map.width ? this.ground.words[row + columns[x]] : paper;
      }
      this.pixels = { w, h, s, image, words: new Uint32Array(image.data.buffer), ground };
      const size = Math.max(2, Math.round(s)), soft = colourWord("thing");
      for (const thing of this.source.head.things) paintSquare(ground, w, h, Math.floor((thing.x - this.x0) * s), Math.floor((thing.y - this.y0) * s), size, soft);
    }
    const { words, ground, image } = this.pixels, size = Math.max(2, Math.round(s)), part = this.next ? this.part : 0;
    words.set(ground);
    if (!frame) return void c.putImageData(image, 0, 0);
    const levels = LEVEL_COLOURS.map(colourWord), byName = new Map(), plainNeeds = this.overlay === "needs";
    for (let i = 0; i < frame.residents; i++) {
      if (!frame.state(i)) continue;
      let word;
      if (frame.quarrels(i)) word = levels[2];
      else if (plainNeeds) word = levels[needLevel(frame, i)];
      else {
        const name = this.shade(frame, i);
        word = byName.get(name) ?? colourWord(name);
        byName.set(name, word);
      }
      let x = frame.x[i], y = frame.y[i];
      if (part && this.next.state(i)) {
        x += (this.next.x[i] - x) * part;
        y += (this.next.y[i] - y) * part;
      }
      paintSquare(words, w, h, Math.floor((x - this.x0) * s), Math.floor((y - this.y0) * s), size, word);
    }
    c.putImageData(image, 0, 0);
    if (this.who >= 0 && frame.state(this.who)) {
      c.strokeStyle = colour("ink");
      c.lineWidth = 2;
      disc(c, (frame.x[this.who] + 0.5 - this.x0) * this.scale, (frame.y[this.who] + 0.5 - this.y0) * this.scale, Math.max(9, this.scale));
      c.stroke();
      this.label(c, this.who, (frame.x[this.who] + 0.5 - this.x0) * this.scale, (frame.y[this.who] - this.y0) * this.scale - 12);
    }
  }

  /** @param {any} here */
  drawNear({ c, width, height }) {
    if (!this.ground) this.makeGround();
    const s = this.scale, { head } = this.source, frame = this.frame, X = (/** @type {number} */ x) => (x - this.x0) * s, Y = (/** @type {number} */ y) => (y - this.y0) * s;
    c.fillStyle = colour("paper");
    c.fillRect(0, 0, width, height);
    c.imageSmoothingEnabled = false;
    c.drawImage(this.ground.canvas, X(0), Y(0), head.map.width * s, head.map.height * s);
    c.textAlign = "center";
    c.textBaseline = "middle";
    this.drawRooms(c, X, Y);
    if (!frame) return void this.drawThings(c, X, Y, width, height);
    if (this.overlay === "heat") this.drawHeat(c, X, Y);
    this.places = this.spread(X, Y);
    this.drawThings(c, X, Y, width, height);
    this.drawLines(c, X, Y);
    const order = [...this.places.keys()].filter(i => this.places[i]).sort((a, b) => Number(a === this.who) - Number(b === this.who));
    for (const i of order) {
      const [x, y] = this.places[i];
      if (x > -s && y > -s && x < width + s && y < height + s) this.drawResident(c, i, x, y);
    }
    this.drawBadges(c, X, Y);
    for (const i of new Set([this.who, this.hover])) if (i >= 0 && this.places[i]) this.label(c, i, this.places[i][0], this.places[i][1] - s * 0.5 - 11);
  }

  /** Where everybody is drawn; those on one tile stand around its middle. @param {(x: number) => number} X @param {(y: number) => number} Y */
  spread(X, Y) {
    const { frame, next, part, scale: s } = this, tiles = new Map(), places = [];
    for (let i = 0; i < frame.residents; i++) {
      if (!frame.state(i)) continue;
      const key = frame.y[i] * 65536 + frame.x[i];
      if (!tiles.has(key)) tiles.set(key, []);
      tiles.get(key).push(i);
    }
    for (let i = 0; i < frame.residents; i++) {
      if (!frame.state(i)) {
        places.push(null);
        continue;
      }
      let x = frame.x[i], y = frame.y[i];
      const group = tiles.get(y * 65536 + x);
      if (next && next.state(i) && Math.abs(next.x[i] - x) + Math.abs(next.y[i] - y) <= 2) {
        x += (next.x[i] - x) * part;
        y += (next.y[i] - y) * part;
      }
      const turn = 2 * Math.PI * group.indexOf(i) / group.length - Math.PI / 2, out = group.length > 1 ? s * 0.32 : 0;
      places.push([X(x + 0.5) + Math.cos(turn) * out, Y(y + 0.5) + Math.sin(turn) * out]);
    }
    return places;
  }

  /** Names of rooms, on a wall where nobody stands. @param {any} c @param {(x: number) => number} X @param {(y: number) => number} Y */
  drawRooms(c, X, Y) {
    const s = this.scale, { map, buildings } = this.source.head, wall = map.legend.indexOf("wall");
    c.font = `600 ${Math.max(9, Math.min(13, s * 0.5))}px system-ui, sans-serif`;
    for (const room of buildings) {
      const text = room.id.replaceAll("_", " "), wide = c.measureText(text).width, place = wallFor(map, room, wall, (wide + 6) / s);
      if (s < 14 || (!place && wide > room.w * s - 4)) continue;
      c.fillStyle = colour(place ? "onwall" : "roomname");
      const [x, y] = place ?? [room.x + room.w / 2, room.y + room.h / 2];
      c.fillText(text, X(x), Y(y) + 0.5);
    }
  }

  /** @param {any} c @param {(x: number) => number} X @param {(y: number) => number} Y @param {number} width @param {number} height */
  drawThings(c, X, Y, width, height) {
    const s = this.scale, { frame } = this, { things } = this.source.head;
    c.lineJoin = c.lineCap = "round";
    for (let m = 0; m < things.length; m++) {
      const thing = things[m], x = X(thing.x), y = Y(thing.y);
      if (x < -s || y < -s || x > width || y > height || (frame && (frame.t < thing.from || (thing.until !== null && frame.t >= thing.until)))) continue;
      const busy = frame?.user[m] > 0;
      c.fillStyle = colour(busy ? "busyfill" : "card");
      c.strokeStyle = colour(busy ? "busy" : "thing");
      c.lineWidth = busy ? 2 : 1;
      c.beginPath();
      c.roundRect(x + 1.5, y + 1.5, s - 3, s - 3, s * 0.16);
      c.fill();
      c.stroke();
      const path = this.paths[thing.kind];
      if (path) {
        c.save();
        c.translate(x + s * 0.12, y + s * 0.12);
        c.scale(s * 0.76 / 24, s * 0.76 / 24);
        c.strokeStyle = colour(busy ? "busy" : "soft");
        c.lineWidth = 1.9;
        c.stroke(path);
        c.restore();
      } else {
        c.font = `600 ${s * 0.4}px system-ui, sans-serif`;
        c.fillStyle = colour("ink");
        c.fillText(thing.mark, x + s / 2, y + s / 2 + 0.5);
      }
    }
  }

  /** Ways to what is waited for, trails and the window. @param {any} c @param {(x: number) => number} X @param {(y: number) => number} Y */
  drawLines(c, X, Y) {
    const { frame, places, scale: s } = this, { head } = this.source;
    for (let i = 0; i < frame.residents; i++) {
      const waits = frame.waits(i), walks = this.overlay === "routes" && head.doing[frame.state(i)] === "walks";
      if (!places[i] || !frame.thing[i] || !(waits || walks)) continue;
      const thing = head.things[frame.thing[i] - 1];
      c.strokeStyle = colour(waits ? "wait" : "soft");
      c.lineWidth = this.who === i ? 2.5 : 1.6;
      c.setLineDash(waits ? [5, 4] : [1, 4]);
      c.beginPath();
      c.moveTo(...places[i]);
      c.lineTo(X(thing.x + 0.5), Y(thing.y + 0.5));
      c.stroke();
    }
    c.setLineDash([]);
    if (this.overlay === "routes" && this.who >= 0) this.drawTrail(c, X, Y);
    if (this.overlay === "window" && this.who >= 0 && places[this.who]) {
      const x = X(frame.x[this.who] - REACH), y = Y(frame.y[this.who] - REACH), side = (2 * REACH + 1) * s;
      c.fillStyle = colour("veil");
      c.beginPath();
      c.rect(0, 0, this.canvas.clientWidth, this.canvas.clientHeight);
      c.rect(x, y, side, side);
      c.fill("evenodd");
      c.strokeStyle = colour("ink");
      c.lineWidth = 1.5;
      c.strokeRect(x, y, side, side);
    }
  }

  /** Where the selected one came from. @param {any} c @param {(x: number) => number} X @param {(y: number) => number} Y */
  drawTrail(c, X, Y) {
    c.strokeStyle = colour("ink");
    c.lineWidth = 2;
    c.beginPath();
    for (let t = this.frame.t - TRAIL; t <= this.frame.t; t++) {
      const then = this.source.glance(t);
      if (then && then.state(this.who)) c.lineTo(X(then.x[this.who] + 0.5), Y(then.y[this.who] + 0.5));
    }
    c.stroke();
  }

  /** Where people stood in the last hour. @param {any} c @param {(x: number) => number} X @param {(y: number) => number} Y */
  drawHeat(c, X, Y) {
    const { map, id } = this.source.head, key = `${id}/${this.frame.t}`;
    let heat = this.heat.get(key);
    if (!heat) {
      heat = new Float32Array(map.width * map.height);
      for (let t = this.frame.t - 59; t <= this.frame.t; t++) {
        const then = this.source.glance(t);
        if (then) for (let i = 0; i < then.residents; i++) if (then.state(i)) heat[then.y[i] * map.width + then.x[i]] += 1;
      }
      this.heat = new Map([[key, heat]]);
    }
    c.fillStyle = colour("heat");
    for (let y = 0; y < map.height; y++) for (let x = 0; x < map.width; x++) {
      const n = heat[y * map.width + x];
      if (!n) continue;
      c.globalAlpha = Math.min(0.75, 0.12 + n / 90);
      c.fillRect(X(x), Y(y), this.scale + 0.5, this.scale + 0.5);
    }
    c.globalAlpha = 1;
  }

  /** @param {any} c @param {number} i @param {number} x @param {number} y */
  drawResident(c, i, x, y) {
    const { frame, scale: s } = this, level = needLevel(frame, i), r = s * 0.44;
    if (frame.quarrels(i)) {
      c.fillStyle = colour("bad");
      c.beginPath();
      for (let k = 0; k < 16; k++) {
        const reach = k % 2 ? r * 1.05 : r * 1.7, turn = k * Math.PI / 8;
        c.lineTo(x + reach * Math.cos(turn), y + reach * Math.sin(turn));
      }
      c.fill();
    }
    c.fillStyle = colour("card");
    disc(c, x, y, r + 1);
    c.fill();
    c.fillStyle = colour(this.shade(frame, i) === "bad" ? "person" : this.shade(frame, i));
    if (this.overlay === "rivalry" && frame.rivalry[i] >= 178) c.fillStyle = colour("bad");
    disc(c, x, y, r - Math.max(2, s * 0.1));
    c.fill();
    c.strokeStyle = colour(LEVEL_COLOURS[level]);
    c.lineWidth = Math.max(1.5, s * (level === 2 ? 0.13 : 0.09)); // the rim tells by colour, width and pattern
    if (level) c.setLineDash(level === 2 ? [s * 0.09, s * 0.11] : [s * 0.34, s * 0.12]);
    disc(c, x, y, r - c.lineWidth / 2 + 0.5);
    c.stroke();
    c.setLineDash([]);
    if (i === this.who) {
      c.strokeStyle = colour("ink");
      c.lineWidth = 2;
      disc(c, x, y, r + 3.5);
      c.stroke();
    }
    c.font = `700 ${Math.max(8.5, s * 0.36)}px system-ui, sans-serif`;
    c.fillStyle = colour("oncolour");
    const mark = frame.life(i) > 0 ? `n${frame.life(i) % 10}` : this.source.head.people[i].mark.toLowerCase();
    c.fillText(s < 19 ? mark[0] : mark, x, y + 0.5);
  }

  /** @param {any} c @param {(x: number) => number} X @param {(y: number) => number} Y */
  drawBadges(c, X, Y) {
    const { frame, scale: s } = this, r = Math.max(6.5, Math.min(10, s * 0.26));
    c.font = `700 ${r * 1.35}px system-ui, sans-serif`;
    this.source.head.things.forEach((/** @type {any} */ thing, /** @type {number} */ m) => {
      if (!frame.waiting[m]) return;
      const x = X(thing.x + 1) - 2, y = Y(thing.y) + 2;
      c.fillStyle = colour("card");
      disc(c, x, y, r + 1.5);
      c.fill();
      c.fillStyle = colour("wait");
      disc(c, x, y, r);
      c.fill();
      c.fillStyle = colour("oncolour");
      c.fillText(String(frame.waiting[m]), x, y + 0.5);
    });
  }

  /** A name on the map. @param {any} c @param {number} i @param {number} x @param {number} y */
  label(c, i, x, y) {
    const life = this.frame.life(i), text = life > 0 ? `newcomer_${life}` : this.source.head.people[i].id;
    c.font = "600 12px system-ui, sans-serif";
    c.textAlign = "center";
    c.textBaseline = "middle";
    const wide = c.measureText(text).width + 12, left = Math.max(2, Math.min(this.canvas.clientWidth - wide - 2, x - wide / 2)), top = Math.max(2, y - 10);
    c.fillStyle = colour("ink");
    c.beginPath();
    c.roundRect(left, top, wide, 19, 6);
    c.fill();
    c.fillStyle = colour("paper");
    c.fillText(text, left + wide / 2, top + 10);
  }
}

/** The middle of a run of wall above or below a room that has space for `tiles`, null where there is none. @param {any} map @param {any} room @param {number} wall @param {number} tiles */
function wallFor(map, room, wall, tiles) {
  for (const y of [room.y - 1, room.y + room.h, room.y, room.y + room.h - 1]) {
    const row = map.tiles[y] ?? "", from = Math.max(0, room.x - 1), to = Math.min(row.length, room.x + room.w + 1);
    let begin = from, best = [0, 0];
    for (let x = from; x <= to; x++) {
      if (x < to && Number(row[x]) === wall) continue;
      if (x - begin > best[1] - best[0]) best = [begin, x];
      begin = x + 1;
    }
    if (best[1] - best[0] >= tiles) return [(best[0] + best[1]) / 2, y + 0.5];
  }
  return null;
}

/** @param {Uint32Array} words @param {number} w @param {number} h @param {number} x @param {number} y @param {number} size @param {number} word */
function paintSquare(words, w, h, x, y, size, word) {
  if (x < 0 || y < 0 || x > w - size || y > h - size) return;
  for (let v = 0, at = y * w + x; v < size; v++, at += w) words.fill(word, at, at + size);
}
