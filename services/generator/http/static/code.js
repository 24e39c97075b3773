// Programs, highlighted line by line. The highlighter's tree is walked: a model's text never becomes markup.

import { h } from "./dom.js";
import hljs from "./vendor/highlight.js";
import cpp from "./vendor/highlight-cpp.js";

hljs.registerLanguage("cpp", cpp);

const DIRECTIVE = /^\s*\/\/@/;

/** @param {string} text @returns {HTMLElement[]} One element a line. */
export function highlightedLines(text) {
  /** @type {HTMLElement[]} */
  const lines = [h("code", {})];
  const write = (/** @type {string} */ piece, /** @type {string[]} */ scopes) => {
    piece.split("\n").forEach((part, place) => {
      if (place) lines.push(h("code", {}));
      const words = scopes.map((scope) => `hl-${scope.split(".")[0]}`).join(" ");
      if (part) lines[lines.length - 1].append(words ? h("span", { class: words }, part) : part);
    });
  };
  walk(hljs.highlight(text, { language: "cpp" })._emitter.rootNode, [], write);
  text.split("\n").forEach((line, place) => DIRECTIVE.test(line) && lines[place]?.classList.add("directive"));
  return lines;
}

/** A numbered listing. @param {string} text @param {string} label */
export function listing(text, label) {
  const rows = highlightedLines(text.replace(/\n$/, "")).map((line) => h("li", {}, line));
  return h("div", { class: "code", tabindex: 0, role: "region", "aria-label": label }, h("ol", {}, rows));
}

/** @param {any} node @param {string[]} scopes @param {(piece: string, scopes: string[]) => void} write */
function walk(node, scopes, write) {
  for (const child of node.children) {
    if (typeof child === "string") write(child, scopes);
    else walk(child, child.scope ? [...scopes, child.scope] : scopes, write);
  }
}
