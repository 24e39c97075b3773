// Numbers for people: a time never stands without its kind and how far to trust it.

import { h } from "./dom.js";

/** @typedef {import("./types.js").Timing} Timing */

/** @param {number} value */
export function count(value) {
  return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
}

/** Of many: two digits that say something. @param {number} value */
export function rough(value) {
  if (!Number.isFinite(value)) return "never";
  return Number(value.toPrecision(2)).toLocaleString("en-US", { maximumFractionDigits: 3 });
}

/** @param {number} microseconds */
export function us(microseconds) {
  if (microseconds < 1000) return `${microseconds.toFixed(2)} us`;
  return microseconds < 1e6 ? `${(microseconds / 1e3).toFixed(2)} ms` : `${(microseconds / 1e6).toFixed(2)} s`;
}

/** @param {number} value seconds */
export function seconds(value) {
  if (value < 120) return `${value.toFixed(value < 10 ? 2 : 0)} s`;
  return value < 7200 ? `${(value / 60).toFixed(1)} min` : `${(value / 3600).toFixed(1)} h`;
}

/** @param {number} value */
export function bytes(value) {
  const units = ["bytes", "KB", "MB", "GB", "TB"];
  const step = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(1, value)) / 3)));
  return `${(value / 10 ** (3 * step)).toFixed(step ? 1 : 0)} ${units[step]}`;
}

/** @param {number} value */
export function times(value) {
  return `${value.toFixed(2)}x`;
}

/** @param {number} share */
export function percent(share) {
  return `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}

/** The word that every number of the interpreter carries. */
export function estimated() {
  const why = "No GPU was there: a traffic model's number, which says little about a GPU";
  return h("em", { class: "estimated", title: why }, "estimated");
}

/** A time as an element. @param {Timing} timing @param {boolean} [withVerdict] */
export function time(timing, withVerdict = false) {
  if (timing.kind === "estimated") return h("span", { class: "time" }, us(timing.median_us), " ", estimated());
  const verdict = noiseVerdict(timing);
  const mark = h("span", { class: timing.stable ? "steady" : "unsteady", title: verdict }, noiseWord(timing));
  return h(
    "span",
    { class: "time" },
    us(timing.median_us),
    " ",
    withVerdict ? h("span", { class: timing.stable ? "muted" : "unsteady" }, verdict) : mark,
  );
}

/** @param {Timing} timing */
export function noiseWord(timing) {
  const width = ((timing.high_us ?? 0) - (timing.low_us ?? 0)) / 2 / (timing.median_us || 1);
  const brief = timing.is_final ? "" : ", brief";
  return timing.stable ? `± ${percent(width)}${brief}` : `unsteady, ± ${percent(width)}${brief}`;
}

/** In words, as the command line says it. @param {Timing} timing */
export function noiseVerdict(timing) {
  const width = ((timing.high_us ?? 0) - (timing.low_us ?? 0)) / (timing.median_us || 1);
  const parts = [`95 % interval ${Number((100 * width).toPrecision(2))} % wide, ${timing.num_batches} batches`];
  if (timing.sm_clock_mhz) parts.push(`SM at ${timing.sm_clock_mhz} MHz`);
  if ((timing.num_attempts ?? 1) > 1) parts.push(`measured ${timing.num_attempts} times`);
  const placed = timing.placements_us ?? [];
  if (placed.length) {
    const [low, high] = [Math.min(...placed).toFixed(2), Math.max(...placed).toFixed(2)];
    parts.push(`${low} to ${high} us at ${placed.length} placements of the buffers`);
  }
  const disturbed = timing.disturbances ?? [];
  parts.push(disturbed.length ? `disturbed: ${disturbed.join(", ")}` : "undisturbed");
  return `${timing.stable ? "steady" : "UNSTEADY"} (${parts.join("; ")})`;
}

/** "3 minutes ago". @param {string} iso */
export function ago(iso) {
  const past = Math.max(0, (Date.now() - Date.parse(iso)) / 1000);
  for (const [unit, size] of /** @type {[string, number][]} */ ([["day", 86400], ["hour", 3600], ["minute", 60]])) {
    const number = Math.floor(past / size);
    if (number >= 1) return `${number} ${unit}${number > 1 ? "s" : ""} ago`;
  }
  return "just now";
}
