// @ts-check
/** A town as it is written: read, changed, linted while one types, and run. */
import { byId, make } from "./dom.js";
import { askJson } from "./source.js";
import { plain } from "./words.js";

export class Scenario {
  /** @param {any} page */
  constructor(page) {
    this.page = page;
    this.filled = false;
    /** @type {any} */ this.pending = 0;
    byId("scenario-name").addEventListener("change", () => this.read(byId("scenario-name").value));
    byId("scenario-text").addEventListener("input", () => {
      clearTimeout(this.pending);
      this.pending = setTimeout(() => this.lint(), 500);
    });
    byId("scenario-run").addEventListener("click", () => this.run());
  }

  open() {}

  async show() {
    if (this.filled) return;
    this.filled = true;
    try {
      const { scenarios } = await askJson("scenarios");
      byId("scenario-name").replaceChildren(...scenarios.map((/** @type {any} */ one) => make("option", { value: one.name, text: one.residents === null || one.residents === undefined ? one.name : `${one.name} (${one.residents})` })));
      const now = this.page.a?.head.take.town, first = scenarios.some((/** @type {any} */ one) => one.name === now) ? now : scenarios[0]?.name;
      byId("scenario-name").value = first;
      await this.read(first);
    } catch (error) {
      this.tell([{ level: "error", text: /** @type {Error} */ (error).message }]);
    }
  }

  /** @param {string} name */
  async read(name) {
    byId("scenario-text").value = (await askJson(`scenarios/${encodeURIComponent(name)}`)).yaml;
    await this.lint();
  }

  /** @param {any[]} findings */
  tell(findings) {
    byId("scenario-findings").replaceChildren(...findings.map(one => make("li", { class: one.level }, make("b", { class: `tag ${one.level === "error" ? "bad" : "quiet"}`, text: one.name ? `${one.level}: ${plain(one.name)}` : one.level }), make("p", { text: one.text }), one.remedy && one.level !== "ok" ? make("p", { class: "soft", text: one.remedy }) : null)));
  }

  async lint() {
    const text = byId("scenario-text").value;
    try {
      const { ok, findings } = await askJson("lint", { yaml: text });
      if (byId("scenario-text").value === text) this.tell(ok && !findings.length ? [{ level: "ok", text: "Nothing to mend." }] : findings);
    } catch (error) {
      this.tell([{ level: "error", text: /** @type {Error} */ (error).message }]);
    }
  }

  async run() {
    try {
      const head = await askJson("takes", { yaml: byId("scenario-text").value, policy: "scripted" });
      this.page.library.takes = (await askJson("takes")).takes;
      this.page.fillTakes();
      await this.page.openB(null);
      await this.page.openA(head.id);
      this.page.openView("town");
    } catch (error) {
      this.tell([{ level: "error", text: /** @type {Error} */ (error).message }]);
    }
  }
}
