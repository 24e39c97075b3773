// Two jobs side by side: what they asked, what they found, how fast they found it.

import { address, ask, Trouble } from "./api.js";
import { axis, chart, logSplits, stepped } from "./chart.js";
import { diffListing } from "./diff.js";
import { card, colour, fill, h } from "./dom.js";
import { historyTable, trouble } from "./history.js";
import { Tried } from "./live.js";
import { count, seconds, time, times } from "./numbers.js";
import { bestRoutine, products, shown } from "./verdict.js";

/** @typedef {{id: string, status: import("./types.js").JobStatus, tried: import("./types.js").Tried[]}} Side */

export async function compare() {
  const asked = new URLSearchParams(location.search);
  const form = /** @type {HTMLFormElement} */ (document.querySelector("form"));
  const more = /** @type {Element} */ (document.getElementById("more"));
  const [one, other] = ["a", "b"].map((name) => {
    const input = /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
    input.value = asked.get(name) ?? "";
    return input.value;
  });
  try {
    if (!one || !other) {
      fill(more, card("Earlier jobs", {}, historyTable(await ask("v1/kernels?limit=20"))));
      return;
    }
    const sides = await Promise.all([side(one), side(other)]);
    fill(more, card("Side by side", {}, table(sides)), progress(sides), differences(sides));
    paintProgress(sides);
  } catch (error) {
    if (!(error instanceof Trouble)) throw error;
    trouble(more, error.message);
  }
}

/** @param {string} id @returns {Promise<Side>} */
async function side(id) {
  const tried = new Tried(id);
  const [status] = await Promise.all([ask(`v1/kernels/${encodeURIComponent(id)}`), tried.read()]);
  return { id, status, tried: tried.candidates };
}

/** @param {Side[]} sides */
function table(sides) {
  const of = (/** @type {(side: Side) => any} */ read) => sides.map((each) => h("td", {}, read(each) ?? "-"));
  const report = (/** @type {Side} */ each) => each.status.status.report;
  const rows = /** @type {[string, (side: Side) => any][]} */ ([
    ["matrix", (each) => report(each) && `${count(report(each)?.num_rows ?? 0)} x ${count(report(each)?.num_cols ?? 0)}, ${count(report(each)?.nnz ?? 0)} nonzeros`],
    ["pattern", (each) => h("code", {}, (report(each)?.workload.pattern ?? "").slice(0, 12))],
    ["operation", (each) => report(each) && `${report(each)?.workload.operation} ${report(each)?.workload.element_type}${columns(report(each)?.workload.num_dense_cols ?? 1)}`],
    ["state", (each) => each.status.status.state],
    ["answer", (each) => report(each)?.answer.kind],
    ["time", (each) => { const timing = answer(each)?.outcome.timing; return timing ? time(timing) : null; }],
    ["format", (each) => answer(each)?.outcome.storage_format],
    ["best routine", (each) => { const found = report(each); return found ? [h("code", {}, bestRoutine(found.baselines).routine), " ", time(bestRoutine(found.baselines).timing)] : null; }],
    ["over the best routine", (each) => { const speedup = report(each)?.answer.speedup_over_best; return speedup ? times(speedup) : null; }],
    ["repaid", (each) => { const found = report(each); return found ? products(found.answer.break_even.products_against_best) : null; }],
    ["candidates", (each) => report(each) && `${count(report(each)?.search.num_candidates ?? 0)} in ${seconds(report(each)?.search.seconds ?? 0)}, ${report(each)?.search.strategy}`],
    ["device", (each) => report(each)?.device.name],
  ]);
  const heads = sides.map((each) => h("th", { scope: "col" }, h("a", { href: address(`jobs/${each.id}`) }, each.id.slice(0, 10))));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Side by side" },
    h("table", {}, h("thead", {}, h("tr", {}, h("td", {}), heads)), h("tbody", {}, rows.map(([name, read]) => h("tr", {}, h("th", { scope: "row" }, name), of(read))))));
}

/** @param {number} number */
function columns(number) {
  return number > 1 ? `, ${number} columns` : "";
}

/** @param {Side} each */
function answer(each) {
  const report = each.status.status.report;
  return report ? shown(report) : undefined;
}

/** @param {Side[]} sides */
function progress(sides) {
  const words = sides.map((each, place) => h("li", {}, h("span", { class: `swatch ${place ? "policy" : "families"}` }), each.id.slice(0, 10)));
  return card("Best so far, by second", {}, h("ul", { class: "legend" }, words), h("div", { class: "plot", id: "progress" }), h("p", { class: "muted small" }, sides.map((each) => `${each.id.slice(0, 10)}: ${count(each.tried.length)} candidates`).join("; ")));
}

/** @param {Side[]} sides */
function paintProgress(sides) {
  const host = /** @type {HTMLElement} */ (document.getElementById("progress"));
  const moments = [...new Set(sides.flatMap((each) => each.tried.map((tried) => tried.graded_s)))].sort((one, other) => one - other);
  if (!moments.length) return;
  const lines = sides.map((each) => moments.map((moment) => {
    const known = each.tried.filter((tried) => tried.graded_s <= moment).map((tried) => tried.outcome.timing?.median_us ?? Number.POSITIVE_INFINITY);
    const best = Math.min(...known);
    return Number.isFinite(best) ? best : null;
  }));
  chart(host, {
    scales: { x: { time: false }, y: { distr: 3, range: (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) => [low / 1.2, high * 1.2] } },
    axes: [axis({ label: "seconds of the search", labelSize: 24 }), axis({ label: "microseconds", labelSize: 24, size: 56, splits: logSplits, filter: (/** @type {any} */ _, /** @type {any} */ splits) => splits, values: (/** @type {any} */ _, /** @type {number[]} */ splits) => splits.map(String) })],
    series: [{}, ...["families", "policy"].map((name) => ({ stroke: () => colour(name), width: 2, paths: stepped, points: { show: true, size: 5 } }))],
    cursor: { show: false },
  }, [moments, ...lines]);
}

/** @param {Side[]} sides */
function differences(sides) {
  const [one, other] = sides.map((each) => answer(each)?.candidate.program);
  if (!one || !other) return null;
  const told = one === other ? h("p", {}, "The same program.") : diffListing(one, other, "From the first program to the second");
  return card("Programs", {}, told);
}
