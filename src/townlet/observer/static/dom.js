// @ts-check
/** Elements, icons and colours. Text enters the page by `textContent` only. */

/**
 * @param {string} tag
 * @param {Record<string, any>} [props] `class`, `text`, `on` (listeners), `vars` (CSS variables), the rest are attributes; null leaves one out
 * @param {...(Node | string | null)} children
 * @returns {any}
 */
export function make(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "text") node.textContent = String(value);
    else if (key === "class") node.className = value;
    else if (key === "on") for (const [event, call] of Object.entries(value)) node.addEventListener(event, /** @type {any} */ (call));
    else if (key === "vars") for (const [name, set] of Object.entries(value)) node.style.setProperty(name, String(set));
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null) node.append(child);
  return node;
}

/** @param {string} id @returns {any} */
export function byId(id) {
  return document.getElementById(id);
}

const ICONS = {
  play: "M6 4l12 8-12 8z",
  pause: "M6 4h4v16H6zM14 4h4v16h-4z",
  back: "M15 5v14L6 12zM18 5h2v14h-2z",
  on: "M9 5v14l9-7zM4 5h2v14H4z",
  earlier: "M12 5v14L4 12zM20 5v14l-8-7z",
  later: "M12 5v14l8-7zM4 5v14l8-7z",
  close: "M6 4.6L4.6 6l6 6-6 6L6 19.4l6-6 6 6 1.4-1.4-6-6 6-6L18 4.6l-6 6z",
  keys: "M3 6h18v12H3zm2 2v2h2V8zm4 0v2h2V8zm4 0v2h2V8zm4 0v2h2V8zM5 12v4h2v-4zm4 2v2h6v-2zm8-2v4h2v-4z",
  fit: "M4 4h6v2H6v4H4zM14 4h6v6h-2V6h-4zM4 14h2v4h4v2H4zM18 14h2v6h-6v-2h4z",
  plus: "M11 5h2v6h6v2h-6v6h-2v-6H5v-2h6z",
  minus: "M5 11h14v2H5z",
  save: "M11 4h2v8h3l-4 5-4-5h3zM5 18h14v2H5z",
  share: "M4 11h2v7h12v-7h2v9H4zM11 15V7.5L8.5 10 7 8.6l5-5 5 5L15.5 10 13 7.5V15z",
  fork: "M7 3h2v7.5l6-3V3h2v6L9 13v8H7z",
};

/** @param {keyof typeof ICONS} name */
function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), path = document.createElementNS(svg.namespaceURI, "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", "icon");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** @param {any} button @param {keyof typeof ICONS} name @param {string} label @param {string} [word] beside the icon, where there is room */
export function dress(button, name, label, word = "") {
  button.replaceChildren(icon(name), ...(word ? [make("span", { class: "word", text: word })] : []));
  button.setAttribute("aria-label", label);
  button.title = label;
}

/** Words that do something. @param {string} text @param {() => void} call @param {string} [kind] */
export function link(text, call, kind = "") {
  return make("button", { class: `link ${kind}`, text, on: { click: call } });
}

/** @type {Map<string, string>} */
const colours = new Map();

/** A colour of page.css by the name of its variable, for drawing. @param {string} name */
export function colour(name) {
  let found = colours.get(name);
  if (found === undefined) {
    found = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    colours.set(name, found);
  }
  return found;
}

/** The same as a little-endian RGBA word, for pixels. @param {string} name */
export function colourWord(name) {
  const hex = colour(name).slice(1), full = hex.length === 3 ? [...hex].map(c => c + c).join("") : hex;
  return (0xff000000 | parseInt(full.slice(4, 6), 16) << 16 | parseInt(full.slice(2, 4), 16) << 8 | parseInt(full.slice(0, 2), 16)) >>> 0;
}

/** Call when the system goes dark or light. @param {() => void} call */
export function onThemeChange(call) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    colours.clear();
    call();
  });
}

export const HUES = ["h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7"];

export const calm = matchMedia("(prefers-reduced-motion: reduce)");

/** A canvas fitted to its box at the screen's density; null while it has no size. @param {any} canvas @returns {any} */
export function fitted(canvas) {
  const ratio = Math.min(devicePixelRatio || 1, 2), width = canvas.clientWidth, height = canvas.clientHeight;
  if (!width || !height) return null;
  const w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  return { c, width, height, ratio };
}

/** @param {any} c @param {number} x @param {number} y @param {number} r */
export function disc(c, x, y, r) {
  c.beginPath();
  c.arc(x, y, Math.max(0, r), 0, 7);
}

/** At most once a frame, and every `wait` ms. @param {() => void} call @param {number} wait */
export function seldom(call, wait) {
  let last = -1e9, pending = 0;
  return () => {
    const left = wait - (performance.now() - last);
    if (left <= 0) {
      last = performance.now();
      call();
    } else if (!pending) {
      pending = setTimeout(() => {
        pending = 0;
        last = performance.now();
        call();
      }, left);
    }
  };
}
