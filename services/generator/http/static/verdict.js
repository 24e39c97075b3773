// What was found, in words.

import { count, estimated, percent, rough, seconds, time, times, us } from "./numbers.js";
import { h } from "./dom.js";

/** @typedef {import("./types.js").Report} Report @typedef {import("./types.js").Routine} Routine */

/** Those that a kernel is held against: what reads the matrix as it is stored, where something does.
 *  @param {import("./types.js").Baselines} baselines @returns {Routine[]} */
function rivals(baselines) {
  const stored = baselines.routines.filter((each) => !each.needs_copy);
  return stored.length ? stored : baselines.routines;
}

/** @param {import("./types.js").Baselines} baselines @returns {Routine} */
export function bestRoutine(baselines) {
  return rivals(baselines).reduce((best, each) => (each.timing.median_us < best.timing.median_us ? each : best));
}

/** @param {import("./types.js").Baselines} baselines @returns {Routine} */
export function defaultRoutine(baselines) {
  return baselines.routines.find((each) => each.routine === baselines.default) ?? bestRoutine(baselines);
}

/** The program that the answer names or came closest. @param {Report} report */
export function shown(report) {
  return report.answer.kind === "kernel" ? report.answer.best : (report.answer.closest ?? undefined);
}

/** Who the others are. @param {Report} report */
function library(report) {
  const number = rivals(report.baselines).length;
  if (report.device.kind === "cuda") return `the best of ${number} cuSPARSE routines`;
  return number > 1 ? `the best of ${number} plain stand-ins for the library` : "a plain stand-in for the library";
}

/** @param {Report} report @returns {HTMLElement} */
export function verdictOf(report) {
  const { answer, baselines, device } = report;
  const best = bestRoutine(baselines);
  const mark = () => (device.kind === "interpreter" ? [" ", estimated()] : []);
  if (answer.kind === "kernel" && answer.best?.outcome.timing) {
    return h(
      "div",
      {},
      h("p", { class: "headline", id: "verdict" },
        h("strong", {}, `${times(answer.speedup_over_best ?? 0)} faster`), ` than ${library(report)}`, ...mark()),
      h("p", {}, "It takes ", time(answer.best.outcome.timing, true), "; ", h("code", {}, best.routine), " takes ",
        time(best.timing), ". Over the default ", h("code", {}, baselines.default), ": ",
        times(answer.speedup_over_default ?? 0), ...mark(), "."),
      sanitized(answer.best.outcome),
      device.kind === "interpreter" ? noGpu() : null,
    );
  }
  const what = device.kind === "cuda" ? "Use the library's own routine" : "No kernel beats the plain stand-in";
  return h(
    "div",
    {},
    h("p", { class: "headline", id: "verdict" }, h("strong", {}, what), " ", h("code", {}, answer.routine), ...mark()),
    h("p", {}, `${answer.reason}.`),
    device.kind === "interpreter" ? noGpu() : null,
  );
}

/** What the last gate said of a winner, where the evaluator has one. @param {import("./types.js").Outcome} outcome */
function sanitized(outcome) {
  if (!outcome.sanitized?.length) return null;
  const said = outcome.sanitized.map((each) => `${each.tool} ${each.state === "clean" ? "clean" : `not checked (${each.reason ?? ""})`}`);
  return h("p", {}, `compute-sanitizer: ${said.join(", ")}.`);
}

function noGpu() {
  return h("p", { class: "note" }, "No GPU is here: kernels ran and were checked in a PTX interpreter, and every time is ",
    estimated(), " by a model of memory traffic. It says little about a GPU.");
}

/** While it runs. @param {import("./types.js").State} state @param {boolean | null} isEstimated null: not known yet */
export function progressOf(state, isEstimated) {
  const graded = state.num_graded ?? 0;
  const best = state.best_us
    ? [`; the best takes ${us(state.best_us)}, `, h("strong", {}, times(state.best_speedup ?? 0)),
      " the speed of the best routine so far", ...(isEstimated ? [" ", estimated()] : [])]
    : ["; nothing has passed yet"];
  return h(
    "div",
    {},
    h("p", { class: "headline", id: "verdict" }, h("strong", {}, `${count(graded)} of up to ${count(state.budget_candidates ?? 0)}`),
      " candidates graded", ...best),
    h("progress", { max: state.budget_candidates, value: graded, "aria-label": "candidates graded" }),
  );
}

/** What the search did. @param {Report} report */
export function searchFacts(report) {
  const { search } = report;
  const rows = search.sources.map((each) =>
    h("tr", {}, h("th", { scope: "row" }, each.source), h("td", {}, count(each.proposed)), h("td", {}, count(each.passed)),
      h("td", {}, seconds(each.seconds)), h("td", {}, percent(each.gain))));
  const heads = ["source", "proposed", "passed", "time", "lowered the best by"];
  return h(
    "div",
    {},
    h("p", {}, `${count(search.num_candidates)} candidates in ${seconds(search.seconds)} (strategy ${search.strategy}); the first was graded after ${seconds(search.first_graded_s)}.`),
    rows.length
      ? h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Sources of candidates" },
          h("table", {}, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, rows)))
      : null,
  );
}

/** All routines that the kernel was held against. @param {import("./types.js").Baselines} baselines */
export function routinesTable(baselines) {
  const rows = [...baselines.routines]
    .sort((one, other) => one.timing.median_us - other.timing.median_us)
    .map((each) => h("tr", {},
      h("th", { scope: "row" }, h("code", {}, each.routine), each.routine === baselines.default ? " (default)" : "",
        each.needs_copy ? " (needs a copy of Aᵀ)" : ""),
      h("td", {}, time(each.timing)), h("td", {}, `${each.preparation_ms.toFixed(2)} ms`)));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Routines of the library" },
    h("table", {}, h("thead", {}, h("tr", {}, ["routine", "time", "preparation"].map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, rows)));
}

/** @param {number | null} products */
export function products(products) {
  return products === null ? "never" : `after ${rough(products)} products`;
}
