// "I multiply N times": what the answer has cost and saved by then.

import { fill, h } from "./dom.js";
import { count, estimated, rough, seconds } from "./numbers.js";
import { bestRoutine, defaultRoutine, products, shown } from "./verdict.js";

/** @typedef {import("./types.js").Report} Report */

const MOST_POWER = 9;

/** Seconds that N products take, preparation and search included. @param {Report} report @param {number} number */
export function costs(report, number) {
  const { break_even: even } = report.answer;
  const best = bestRoutine(report.baselines);
  const standard = defaultRoutine(report.baselines);
  const routine = (/** @type {import("./types.js").Routine} */ each) => each.preparation_ms / 1e3 + (number * each.timing.median_us) / 1e6;
  const answer = report.answer.kind === "kernel" ? report.answer.best?.outcome.timing : best.timing;
  const ours = even.tuning_s + even.conversion_ms / 1e3 + (number * (answer?.median_us ?? best.timing.median_us)) / 1e6;
  return { ours, best: routine(best), default: routine(standard) };
}

/** @param {Report} report @returns {HTMLElement} */
export function breakEven(report) {
  const { break_even: even } = report.answer;
  const isEstimated = even.kind === "estimated";
  const start = even.products_against_best ?? 1e6;
  const slider = /** @type {HTMLInputElement} */ (
    h("input", { type: "range", id: "products", min: 0, max: MOST_POWER, step: 0.05, value: Math.min(MOST_POWER, Math.max(0, Math.log10(start || 1) + 0.3)).toFixed(2) })
  );
  const number = h("output", { for: "products" });
  const words = h("p", { role: "status" });
  const bars = h("div", { class: "bars" });
  const show = () => {
    const chosen = Math.round(10 ** Number(slider.value));
    const spent = costs(report, chosen);
    fill(number, count(chosen));
    slider.setAttribute("aria-valuetext", `${count(chosen)} products`);
    fill(words, sentence(spent.best - spent.ours, "the best routine"), " ", sentence(spent.default - spent.ours, "the default"), isEstimated ? [" ", estimated()] : null);
    fill(bars, bar("with this answer", spent.ours, spent, "families"), bar("best routine", spent.best, spent, "library"), bar("default routine", spent.default, spent, "library"));
  };
  slider.addEventListener("input", show);
  show();
  const repaid = report.answer.kind === "kernel"
    ? h("p", { id: "repaid" }, "Search and conversion are repaid ", products(even.products_against_best), " against the best routine, ", products(even.products_against_default), " against the default", isEstimated ? [" ", estimated()] : null, ".")
    : h("p", { id: "repaid" }, "The answer is the library's own routine: the search is repaid ", products(even.products_against_default), " against the default", isEstimated ? [" ", estimated()] : null, ".");
  return h("div", {}, repaid, h("label", { class: "slider" }, h("span", {}, "I multiply ", number, " times"), slider), words, bars,
    h("p", { class: "muted small" }, `The search took ${seconds(even.tuning_s)}, conversion to ${shown(report)?.outcome.storage_format ?? "the format"} ${even.conversion_ms.toFixed(1)} ms.`));
}

/** @param {number} gain seconds @param {string} whom */
function sentence(gain, whom) {
  return gain >= 0 ? `${amount(gain)} saved against ${whom}.` : `${amount(-gain)} behind ${whom}.`;
}

/** @param {number} value seconds */
function amount(value) {
  return value < 1 ? `${rough(value * 1e3)} ms` : seconds(value);
}

/** @param {string} name @param {number} value @param {{ours: number, best: number, default: number}} all @param {string} tone */
function bar(name, value, all, tone) {
  const most = Math.max(all.ours, all.best, all.default);
  const filled = h("span", { class: `filled ${tone}` });
  filled.style.width = `${(100 * value) / most}%`;
  return h("div", { class: "bar-row" }, h("span", {}, name), h("span", { class: "track" }, filled), h("span", { class: "number" }, amount(value)));
}
