// The card of a matrix: sizes, row lengths, symmetry, bandwidth, blocks.

import { h } from "./dom.js";
import { count, percent } from "./numbers.js";

/** @param {any} card A MatrixCard. @returns {HTMLElement} */
export function matrixFacts(card) {
  const lines = /** @type {[string, string][]} */ ([
    ["Rows", count(card.num_rows)],
    ["Columns", count(card.num_cols)],
    ["Nonzeros", `${count(card.nnz)} (${density(card)} of all places)`],
    ["A row", `${count(card.shortest_row)} to ${count(card.longest_row)}, ${card.mean_row.toFixed(1)} on average`],
    ["Symmetry of the pattern", card.symmetry === null ? "not square" : percent(card.symmetry)],
    ["Bandwidth", `${count(card.lower_bandwidth)} below the diagonal, ${count(card.upper_bandwidth)} above`],
    ["Blocks filled", card.blocks.map((/** @type {any} */ each) => `${each.extent} x ${each.extent}: ${percent(each.share)}`).join(", ") || "too small for blocks"],
  ]);
  return h("div", {}, h("dl", { class: "facts" }, lines.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])), rowLengths(card.row_lengths));
}

/** @param {any} card */
function density(card) {
  const share = (100 * card.nnz) / card.num_rows / card.num_cols;
  return `${share >= 0.01 ? share.toFixed(2) : share.toExponential(1)} %`;
}

/** @param {{shortest: number, longest: number, num_rows: number}[]} bins */
function rowLengths(bins) {
  const most = Math.max(...bins.map((bin) => bin.num_rows));
  const bars = bins.map((bin) => {
    const filled = h("span", { class: "bar", title: `${words(bin)}: ${count(bin.num_rows)} rows` });
    filled.style.height = `${(100 * Math.log1p(bin.num_rows)) / Math.log1p(most)}%`;
    return h("span", { class: "column" }, h("span", { class: "tall" }, filled), String(bin.longest));
  });
  const told = bins.filter((bin) => bin.num_rows).map((bin) => `${words(bin)}: ${count(bin.num_rows)} rows`).join("; ");
  return h("figure", {}, h("div", { class: "histogram", role: "img", "aria-label": `Row lengths. ${told}` }, bars),
    h("figcaption", { class: "muted small" }, "Rows by length, each bar up to the number below it; heights are logarithmic."));
}

/** @param {{shortest: number, longest: number}} bin */
function words(bin) {
  return bin.shortest === bin.longest ? `${bin.shortest} nonzeros` : `${bin.shortest} to ${bin.longest} nonzeros`;
}
