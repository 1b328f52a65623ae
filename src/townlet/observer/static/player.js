// @ts-check
/** A playhead of one's own: play, pause, step, speed and seek never touch anybody else. */

export const SPEEDS = [1, 2, 5, 10, 30, 60, 300, 3000];

export class Player extends EventTarget {
  /** @param {number} first @param {number} last @param {(t: number) => boolean} ready whether a moment is at hand */
  constructor(first, last, ready) {
    super();
    this.first = first;
    this.last = last;
    this.ready = ready;
    this.at = first; // ticks, with a fraction while it plays
    this.speed = 3;
    this.playing = false;
    this.waiting = false;
    this.before = 0;
  }

  get t() {
    return Math.floor(this.at);
  }

  get perSecond() {
    return SPEEDS[this.speed];
  }

  /** @param {string} why `play`, `pause`, `step`, `seek`, `speed`, `frame`, `end` */
  say(why) {
    this.dispatchEvent(new CustomEvent("moved", { detail: why }));
  }

  play() {
    if (this.playing) return;
    if (this.t >= this.last) this.at = this.first;
    this.playing = true;
    this.before = performance.now();
    this.say("play");
    requestAnimationFrame(now => this.turn(now));
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    this.at = this.t;
    this.say("pause");
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  /** @param {number} now */
  turn(now) {
    if (!this.playing) return;
    const passed = Math.min(250, Math.max(0, now - this.before)) / 1000;
    this.before = now;
    const next = Math.min(this.last, this.at + passed * this.perSecond);
    this.waiting = !this.ready(Math.floor(next));
    if (!this.waiting) {
      this.at = next;
      if (next >= this.last) {
        this.playing = false;
        this.at = this.last;
        this.say("end");
        return;
      }
    }
    this.say("frame");
    requestAnimationFrame(later => this.turn(later));
  }

  /** @param {number} ticks */
  step(ticks) {
    this.go(this.t + ticks, "step");
  }

  /** @param {number} t */
  seek(t) {
    this.go(t, "seek");
  }

  /** @param {number} t @param {string} why */
  go(t, why) {
    this.playing = this.playing && why === "seek";
    this.at = Math.max(this.first, Math.min(this.last, Math.round(t)));
    this.say(why);
  }

  /** @param {number} by */
  setSpeed(by) {
    this.speed = Math.max(0, Math.min(SPEEDS.length - 1, by));
    this.say("speed");
  }
}
