// @ts-check
/** The keyboard: one table for what keys do and for the help that tells it. */
import { byId, make } from "./dom.js";
import { OVERLAYS } from "./map.js";

/** View by the key after g. */
const VIEW_KEYS = { t: "town", p: "people", q: "queues", i: "ties", r: "runs", l: "releases", s: "scenario" };

/** Shown in the help: keys, what they do. */
const HELP = [
  ["space", "play, pause"], ["← →", "one tick back, on"], ["shift ← →", "one decision back, on"], ["home end", "first, last tick"], [", .", "slower, faster"],
  ["n p", "next, previous moment: a conflict, somebody leaves, a blackout"], ["m", "the worst conflict of the day"], ["j k", "next, previous resident"], ["f", "follow the selected one"],
  ["+ − 0", "zoom in, out, whole town"], ["w a s d", "move the map"], ["1 … 7", `overlay: ${Object.keys(OVERLAYS).join(", ")}`], ["c", "compare with a second day, side by side"], ["b", "what if: change something from here on"], ["t", "take over the selected one; then 1 … 9, enter, backspace, esc"], ["/", "search"],
  ["?", "these keys"], ["esc", "close; select nobody"],
];

/** @param {any} page */
export function bindKeys(page) {
  const views = Object.entries(VIEW_KEYS).filter(([, view]) => page.viewNames.includes(view)), go = [`g then ${views.map(([key]) => key).join(" ")}`, views.map(([, view]) => view).join(", ")];
  byId("keys-list").replaceChildren(...[...HELP, go].map(([keys, text]) => make("div", {}, make("dt", {}, ...keys.split(" ").flatMap(key => [["then", "…"].includes(key) ? key : make("kbd", { text: key }), " "])), make("dd", { text }))));
  let going = -Infinity; // when g was pressed
  const PAN = { w: [0, -2], a: [-2, 0], s: [0, 2], d: [2, 0] };
  const CALLS = {
    " ": () => page.player.toggle(),
    ArrowLeft: (/** @type {KeyboardEvent} */ e) => (e.shiftKey ? page.stepDecision(-1) : page.player.step(-1)),
    ArrowRight: (/** @type {KeyboardEvent} */ e) => (e.shiftKey ? page.stepDecision(1) : page.player.step(1)),
    Home: () => page.player.seek(page.player.first),
    End: () => page.player.seek(page.player.last),
    ",": () => page.player.setSpeed(page.player.speed - 1),
    ".": () => page.player.setSpeed(page.player.speed + 1),
    n: () => page.jump(1),
    p: () => page.jump(-1),
    m: () => page.jumpToWorst(),
    j: () => page.selectNext(1),
    k: () => page.selectNext(-1),
    f: () => page.follow(!page.following),
    "+": () => page.mapA.zoom(1.3),
    "=": () => page.mapA.zoom(1.3),
    "-": () => page.mapA.zoom(1 / 1.3),
    0: () => page.mapA.fit(),
    c: () => page.toggleCompare(),
    b: () => page.branch(),
    t: () => page.seat.begin(),
    "/": () => byId("search").focus(),
    "?": () => byId("keys-dialog").showModal(),
    Escape: () => page.letGo(),
  };
  document.addEventListener("keydown", e => {
    const target = /** @type {any} */ (e.target), typing = target.closest?.("input, select, textarea");
    if (e.ctrlKey || e.metaKey || e.altKey || target.closest?.("dialog") || (typing && e.key !== "Escape")) return;
    if (e.key === " " && target.closest?.("button, summary")) return;
    if (!typing && !(e.key === "Enter" && target.closest?.("button")) && page.seat.key(e.key)) return void e.preventDefault();
    if (performance.now() - going < 1500 && e.key in VIEW_KEYS) {
      going = -Infinity;
      page.openView(VIEW_KEYS[/** @type {keyof typeof VIEW_KEYS} */ (e.key)]);
    } else if (e.key === "g") going = performance.now();
    else if (/^[1-7]$/.test(e.key)) page.setOverlay(Object.keys(OVERLAYS)[Number(e.key) - 1]);
    else if (e.key in PAN) page.mapA.pan(...PAN[/** @type {keyof typeof PAN} */ (e.key)]);
    else if (e.key in CALLS) /** @type {any} */ (CALLS)[e.key](e);
    else return;
    e.preventDefault();
  });
}
