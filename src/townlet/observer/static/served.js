// @ts-check
/** The page of a server. It begins with the server's film, and moves to the engine when the town ends here as it ended there. */
import { openPage } from "./main.js";
import { ask, askJson, HttpStore } from "./http.js";
import { LivingTown } from "./library.js";
import { inflate, ReelSource, SourceError } from "./source.js";
import { Runs } from "./runs.js";
import { Releases } from "./releases.js";
import { Scenario } from "./scenario.js";
import { asSentence } from "./words.js";

class ServedLibrary {
  /** @param {any} about @param {any[]} takes */
  constructor(about, takes) {
    this.about = about;
    this.takes = takes;
    this.offline = false;
    /** @type {LivingTown | null} */ this.living = null;
    /** @type {Map<string, ReelSource>} */ this.films = new Map();
    /** @type {Set<string>} */ this.filmed = new Set(); // takes that do not live here
    this.moving = Promise.resolve(false);
    /** @type {Promise<WebAssembly.Module> | undefined} */ this.module = undefined;
    this.refused = "";
  }

  /** @param {string} id */
  async open(id) {
    const found = this.living?.sources.get(id) ?? this.films.get(id) ?? new ReelSource(await askJson(`takes/${id}`), new HttpStore(id));
    if (found.store instanceof HttpStore) this.films.set(id, found);
    return found;
  }

  /** What the page can do itself costs the server nothing; the rest is asked of it. @param {string} parent @param {any[]} changes @param {string | null} policy */
  async branch(parent, changes, policy) {
    try {
      if (this.living?.sources.has(parent)) return await this.living.branch(parent, changes, policy);
    } catch (error) {
      if (!(error instanceof SourceError) || this.about.role !== "act") throw error;
    }
    await this.publish(parent);
    return this.known(await askJson("takes", { parent, changes, policy }));
  }

  /** `townlet fork` of a take. @param {any} head @param {any[]} changes all at one tick @param {number} count */
  async futures(head, changes, count) {
    await this.publish(head.id);
    const { job } = await askJson("futures", { take: head.id, at: changes[0].at, edits: changes.map(one => one.do), futures: count });
    for (;;) {
      const { state, result, error } = await askJson(`jobs/${job}`);
      if (state === "done") return result.effects;
      if (state === "failed") throw new SourceError(asSentence(error));
      await new Promise(resolve => setTimeout(resolve, 300));
    }
  }

  /** @param {any} take of a link */
  async adopt(take) {
    return this.known(await askJson("takes", { take }));
  }

  /** @param {any} head */
  known(head) {
    if (!this.takes.some(take => take.id === head.id)) this.takes.push({ id: head.id, title: head.title });
    return head;
  }

  /** Tell the server of a take that was born here. @param {string} id */
  async publish(id) {
    const source = this.living?.sources.get(id);
    if (source?.head.parent && !this.films.has(id)) await askJson("takes", { take: { ...source.head.take, digest: null } });
  }

  async refresh() {
    for (const take of (await askJson("takes")).takes) this.known(take);
  }

  /** Whether these takes live here now, and did not before. @param {string[]} ids @returns {Promise<boolean>} */
  wake(ids) {
    this.moving = this.moving.then(() => this.bringHere(ids));
    return this.moving;
  }

  /** @param {string[]} ids */
  async bringHere(ids) {
    const wanted = ids.filter(id => this.films.get(id)?.head.lives && !this.living?.sources.has(id) && !this.filmed.has(id));
    if (!wanted.length) return false;
    try {
      this.module ??= WebAssembly.compile(/** @type {any} */ (await (await ask("engine.wasm")).arrayBuffer()));
      const raw = await inflate(new Uint8Array(await (await ask(`takes/${wanted[0]}/image`)).arrayBuffer())), size = new DataView(raw.buffer).getUint32(0, true);
      const parts = JSON.parse(new TextDecoder().decode(raw.subarray(4, 4 + size))), living = new LivingTown(parts, await this.module, raw.subarray(4 + size), this.takes);
      for (const head of parts.takes) if (ids.includes(head.id)) await living.open(head.id);
      for (const { head } of this.living?.sources.values() ?? []) if (head.parent && head.take.config === parts.takes[0].take.config && head.take.seed === parts.takes[0].take.seed) living.bear(head.take, living.parts.takes[0]);
      this.living = living;
      return true;
    } catch (error) {
      if (!(error instanceof SourceError)) throw error;
      for (const id of wanted) this.filmed.add(id);
      this.refused = error.message;
      return false;
    }
  }
}

/** News of the server: one connection, closed while nobody looks. @param {any} page */
function hearNews(page) {
  /** @type {EventSource | null} */ let news = null;
  const listen = () => {
    if (document.hidden) {
      news?.close();
      news = null;
    } else if (!news) {
      news = new EventSource("api/news");
      news.addEventListener("take", async () => {
        await page.library.refresh();
        page.fillTakes();
      });
      news.addEventListener("shot", e => {
        const { take, reels } = JSON.parse(e.data), film = page.library.films.get(take);
        if (film) film.shot = reels;
        if (film && film === page.a && reels === film.head.reels && !page.moments.length) page.findMoments();
        page.timelineSoon();
        page.showSeldom();
      });
      news.addEventListener("record", () => page.view === "runs" && page.views.runs.grow());
      news.addEventListener("alarm", e => page.tell(`Alarm: ${JSON.parse(e.data).text}`));
      news.addEventListener("checkpoint", () => {
        if (page.view === "runs") page.views.runs.show();
        else page.tell("There is a new checkpoint; play it under Runs.");
      });
      news.addEventListener("error", () => page.tell("The server does not answer; what is loaded still plays."));
    }
  };
  document.addEventListener("visibilitychange", listen);
  listen();
}

async function servedLibrary() {
  const [about, { takes }] = await Promise.all([askJson("about"), askJson("takes")]);
  return new ServedLibrary(about, takes.map((/** @type {any} */ { id, title }) => ({ id, title })));
}

openPage(servedLibrary(), page => ({ runs: new Runs(page), releases: new Releases(page), scenario: new Scenario(page) })).then(page => page && hearNews(page));
