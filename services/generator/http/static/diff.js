// What differs between two texts, line by line: the longest common subsequence.

import { h } from "./dom.js";

const MOST_CELLS = 4e6;

/**
 * @param {string[]} before
 * @param {string[]} after
 * @returns {{sign: " " | "-" | "+", line: string}[]}
 */
export function difference(before, after) {
  if (before.length * after.length > MOST_CELLS) {
    return [...before.map((line) => ({ sign: /** @type {const} */ ("-"), line })), ...after.map((line) => ({ sign: /** @type {const} */ ("+"), line }))];
  }
  const width = after.length + 1;
  const common = new Uint16Array((before.length + 1) * width);
  for (let one = before.length - 1; one >= 0; one--) {
    for (let other = after.length - 1; other >= 0; other--) {
      const here = one * width + other;
      common[here] = before[one] === after[other] ? common[here + width + 1] + 1 : Math.max(common[here + width], common[here + 1]);
    }
  }
  /** @type {{sign: " " | "-" | "+", line: string}[]} */
  const found = [];
  let [one, other] = [0, 0];
  while (one < before.length || other < after.length) {
    const here = one * width + other;
    if (one < before.length && other < after.length && before[one] === after[other]) {
      found.push({ sign: " ", line: before[one++] });
      other++;
    } else if (one < before.length && (other === after.length || common[here + width] >= common[here + 1])) {
      found.push({ sign: "-", line: before[one++] });
    } else found.push({ sign: "+", line: after[other++] });
  }
  return found;
}

/** @param {string} before @param {string} after @param {string} label */
export function diffListing(before, after, label) {
  const names = { "-": "removed", "+": "added", " ": "same" };
  const rows = difference(lines(before), lines(after)).map(({ sign, line }) =>
    h("div", { class: names[sign] }, h("span", { class: "sign" }, sign), h("code", {}, line || " ")));
  return h("div", { class: "code diff", tabindex: 0, role: "region", "aria-label": label }, rows);
}

/** @param {string} text */
function lines(text) {
  return text.replace(/\n$/, "").split("\n");
}
