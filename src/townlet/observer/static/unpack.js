// @ts-check
/** The first lines of a file: its program is carried deflated, and runs if it is the one whose hash the file's policy names. */
try {
  const packed = Uint8Array.from(atob(document.getElementById("program")?.textContent ?? ""), one => one.charCodeAt(0));
  const text = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).text(), script = document.createElement("script");
  const policy = /** @type {any} */ (window).trustedTypes?.createPolicy("program", { createScript: (/** @type {string} */ same) => same });
  script.type = "module";
  script.text = policy ? policy.createScript(text) : text;
  document.body.append(script);
} catch {
  const status = /** @type {HTMLElement} */ (document.getElementById("status"));
  status.textContent = "The program in this file cannot be read: the file is damaged, or the browser too old. Write it again with townlet observe --save.";
  status.hidden = false;
  document.body.dataset.ready = "failed";
}
export {};
