// @ts-check
/** The ledger: windows judged, champions made and taken back. */
import { byId, make } from "./dom.js";
import { askJson } from "./http.js";
import { asSentence, plain } from "./words.js";

const OUTCOMES = { PROMOTE: "may be released", HOLD: "held back", FAIL: "refused" };
const KINDS = { window: "judged", promote: "released", rollback: "taken back" };

/** @param {any} entry of the ledger */
function entryNode(entry) {
  const { decision } = entry, outcome = OUTCOMES[/** @type {keyof typeof OUTCOMES} */ (decision?.outcome)], when = entry.at.slice(0, 16).replace("T", " ");
  return make("li", { class: `entry ${entry.kind}` },
    make("h3", {}, `${when} · ${entry.candidate.slice(0, 12)} ${KINDS[/** @type {keyof typeof KINDS} */ (entry.kind)] ?? plain(entry.kind)}`, outcome ? make("b", { class: `tag ${decision.outcome === "FAIL" ? "bad" : ""}`, text: outcome }) : null),
    make("p", { class: "soft small", text: `against ${entry.champion.slice(0, 12)} · entry ${entry.number}, ${entry.hash.slice(0, 12)}` }),
    entry.reasons.length ? make("ul", {}, ...entry.reasons.map((/** @type {string} */ text) => make("li", { text }))) : null,
    decision ? make("details", {}, make("summary", { text: `${decision.gates.filter((/** @type {any} */ gate) => gate.verdict === "pass").length} of ${decision.gates.length} gates passed` }), make("table", { class: "figures" }, make("tbody", {}, ...decision.gates.map((/** @type {any} */ gate) => make("tr", {}, make("th", { scope: "row", text: plain(gate.metric) }), make("td", { class: gate.verdict === "fail" ? "bad" : "", text: gate.verdict }), make("td", { text: gate.reason })))))) : null);
}

export class Releases {
  /** @param {any} page */
  constructor(page) {
    this.page = page;
    this.asked = 0;
  }

  open() {}

  async show() {
    const box = byId("releases-body");
    if (!box.children.length) box.replaceChildren(make("p", { class: "soft", text: "Reading the ledger …" }));
    const asked = ++this.asked;  // an answer that comes late does not replace that of a later question
    let ledger;
    try {
      ledger = await askJson("ledger");
      if (asked !== this.asked) return;
    } catch (error) {
      box.replaceChildren(make("p", { class: "soft", text: /** @type {Error} */ (error).message }));
      return;
    }
    const { entries, verify } = ledger, champion = [...entries].reverse().find((/** @type {any} */ entry) => entry.kind !== "window")?.candidate ?? "scripted";
    const verdict = make("p", { class: verify.ok ? "small good" : "lead bad", text: `${verify.ok ? "✓ " : ""}${asSentence(verify.text)}` });
    const said = make("p", { class: "soft", text: "The champion is the released policy. A candidate takes its place when it passes every gate several times in a row. The ledger keeps every verdict." });
    box.replaceChildren(make("p", { class: "lead" }, "Champion: ", make("b", { text: champion.slice(0, 16) })), said, verdict, entries.length ? make("ol", { class: "ledger" }, ...[...entries].reverse().map(entryNode)) : make("p", { class: "soft", text: "Nothing was judged yet. In a terminal, townlet promote evaluate RUN judges a run." }));
  }
}
