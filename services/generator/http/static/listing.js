// A program and the PTX that an evaluator's compiler made of it, side by side, linked line by line.

import { ask } from "./api.js";
import { highlightedLines } from "./code.js";
import { fill, h } from "./dom.js";

const LOCATION = /^\s*\.loc 1 (\d+) /;

/** @param {string} jobId @param {number | null} number Of the candidate; null: the answer's program. @returns {HTMLElement} */
export function besidePtx(jobId, number) {
  const host = h("div", {}, h("p", { class: "muted", role: "status" }, "An evaluator compiles it ..."));
  const path = `v1/kernels/${jobId}/listing${number === null ? "" : `?number=${number}`}`;
  ask(path).then(
    (listing) => fill(host, sideBySide(listing)),
    (error) => fill(host, h("p", { class: "trouble", role: "alert" }, `There is no PTX to show: ${error.message}.`)),
  );
  return host;
}

/** Lines of PTX with the line of the program that each belongs to; 0: none. @param {string} ptx @returns {{text: string, line: number}[]} */
export function locatedLines(ptx) {
  /** @type {{text: string, line: number}[]} */
  const found = [];
  let line = 0;
  for (const text of ptx.replace(/\n$/, "").split("\n")) {
    const location = LOCATION.exec(text);
    if (location) line = Number(location[1]);
    else found.push({ text, line: /^\s*[.}{)]/.test(text) && !text.includes(";") ? 0 : line });
  }
  return found;
}

/** @param {{program: string, ptx: string, architecture: string}} listing */
function sideBySide(listing) {
  const located = locatedLines(listing.ptx);
  const used = new Set(located.map((each) => each.line));
  const source = highlightedLines(listing.program.replace(/\n$/, "")).map((code, place) => row(place + 1, code, used.has(place + 1)));
  const machine = located.map((each) => row(each.line, h("code", {}, each.text), each.line > 0));
  const panes = [pane("Program", source, "ol"), pane(`PTX for ${listing.architecture}`, machine, "ul")];
  const element = h("div", {}, h("p", { class: "muted small" }, "Point at a line, or move with the arrow keys in either half: what belongs together is marked."), h("div", { class: "beside" }, panes));
  link(element, panes);
  return element;
}

/** @param {number} line @param {HTMLElement} code @param {boolean} isLinked */
function row(line, code, isLinked) {
  return h("li", isLinked ? { "data-line": line } : {}, code);
}

/** @param {string} title @param {HTMLElement[]} rows @param {string} list */
function pane(title, rows, list) {
  return h("div", {}, h("h3", {}, title), h("div", { class: "code", tabindex: 0, role: "region", "aria-label": title }, h(list, {}, rows)));
}

/** @param {HTMLElement} element @param {HTMLElement[]} panes */
function link(element, panes) {
  const said = h("p", { class: "offscreen", role: "status" });
  element.append(said);
  const mark = (/** @type {string} */ line, /** @type {HTMLElement} */ from) => {
    for (const each of element.querySelectorAll(".linked")) each.classList.remove("linked");
    for (const each of element.querySelectorAll(`[data-line="${line}"]`)) each.classList.add("linked");
    for (const other of panes.filter((each) => each !== from)) show(other);
    fill(said, `Line ${line}: ${panes[1].querySelectorAll(".linked").length} lines of PTX`);
  };
  for (const each of panes) {
    each.addEventListener("pointerover", (event) => {
      const line = /** @type {Element} */ (event.target).closest("[data-line]")?.getAttribute("data-line");
      if (line) mark(line, each);
    });
    each.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const lines = [...new Set([...each.querySelectorAll("[data-line]")].map((found) => found.getAttribute("data-line") ?? ""))];
      const now = lines.indexOf(each.querySelector(".linked")?.getAttribute("data-line") ?? "");
      mark(lines[Math.min(lines.length - 1, Math.max(0, now + step))], each);
      show(each);
    });
  }
}

/** Scrolls the half, and not the page. @param {HTMLElement} half */
function show(half) {
  const box = half.querySelector(".code");
  const found = /** @type {HTMLElement | null} */ (half.querySelector(".linked"));
  if (box && found) box.scrollTop = found.offsetTop - box.clientHeight / 3;
}
