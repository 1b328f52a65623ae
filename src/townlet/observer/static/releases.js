// @ts-check
/** The ledger: windows judged, champions made and taken back. */
import { byId, make } from "./dom.js";
import { askJson } from "./http.js";
import { plain } from "./words.js";

export class Releases {
  /** @param {any} page */
  constructor(page) {
    this.page = page;
  }

  open() {}

  async show() {
    const box = byId("releases-body");
    let ledger;
    try {
      ledger = await askJson("ledger");
    } catch (error) {
      box.replaceChildren(make("p", { class: "soft", text: /** @type {Error} */ (error).message }));
      return;
    }
    const { entries, verify } = ledger, champion = [...entries].reverse().find((/** @type {any} */ entry) => entry.kind !== "window")?.candidate ?? "scripted";
    const verdict = make("p", { class: verify.ok ? "lead good" : "lead bad", text: verify.text });
    const shown = [...entries].reverse().map((/** @type {any} */ entry) => make("li", { class: `entry ${entry.kind}` },
      make("h3", {}, make("span", { class: "soft", text: `${entry.number} ` }), entry.kind === "window" ? `window ${entry.decision?.window ?? ""}` : plain(entry.kind), make("b", { class: `tag ${entry.decision?.outcome === "FAIL" ? "bad" : ""}`, text: entry.decision?.outcome ?? entry.kind })),
      make("p", { class: "soft small", text: `${entry.at} · ${entry.candidate.slice(0, 12)} against ${entry.champion.slice(0, 12)} · ${entry.hash.slice(0, 12)}` }),
      entry.reasons.length ? make("ul", {}, ...entry.reasons.map((/** @type {string} */ text) => make("li", { text }))) : null,
      entry.decision ? make("details", {}, make("summary", { text: `${entry.decision.gates.length} gates` }), make("table", { class: "figures" }, make("tbody", {}, ...entry.decision.gates.map((/** @type {any} */ gate) => make("tr", {}, make("th", { scope: "row", text: plain(gate.metric) }), make("td", { class: gate.verdict === "fail" ? "bad" : "", text: gate.verdict }), make("td", { text: gate.reason })))))) : null));
    box.replaceChildren(verdict, make("p", {}, "Champion: ", make("b", { text: champion.slice(0, 16) })), entries.length ? make("ol", { class: "ledger" }, ...shown) : make("p", { class: "soft", text: "No release yet." }));
  }
}
