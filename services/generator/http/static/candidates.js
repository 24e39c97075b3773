// All that was tried, as a table: the fastest first, each failure told.

import { fill, h } from "./dom.js";
import { bytes, count, time } from "./numbers.js";
import { author, failure, sourceOf } from "./scatter.js";

/** @typedef {import("./types.js").Tried} Tried */

const FIRST = 25;

/** @param {Tried} tried */
export function rank(tried) {
  const timing = tried.outcome.timing;
  if (!timing) return Number.POSITIVE_INFINITY;
  const isBrief = timing.kind === "measured" && !timing.is_final;
  return timing.median_us + (isBrief ? 1e9 : 0);
}

export class CandidateTable {
  /** @param {(tried: Tried) => void} onPick */
  constructor(onPick) {
    this.onPick = onPick;
    this.all = false;
    /** @type {Tried[]} */
    this.candidates = [];
    this.body = h("tbody", {});
    this.more = h("button", { type: "button", class: "quiet", hidden: true, on: { click: () => { this.all = true; this.paint(); } } });
    const heads = ["number", "source", "what", "outcome", "memory", "second"].map((head) => h("th", { scope: "col" }, head));
    this.element = h("div", {},
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "What was tried" },
        h("table", { id: "tried" }, h("thead", {}, h("tr", {}, heads)), this.body)),
      this.more);
  }

  /** @param {Tried[]} candidates */
  update(candidates) {
    this.candidates = [...candidates].sort((one, other) => rank(one) - rank(other) || one.number - other.number);
    this.paint();
  }

  paint() {
    const seen = this.all ? this.candidates : this.candidates.slice(0, FIRST);
    fill(this.body, seen.map((tried) => this.row(tried)));
    this.more.hidden = seen.length === this.candidates.length;
    fill(this.more, `Show all ${count(this.candidates.length)}`);
  }

  /** @param {Tried} tried */
  row(tried) {
    const { outcome } = tried;
    const open = h("button", { type: "button", class: "link", "aria-label": `Show program ${tried.number}`, on: { click: () => this.onPick(tried) } }, String(tried.number));
    return h("tr", {}, h("th", { scope: "row" }, open), h("td", {}, sourceOf(tried).words), h("td", {}, h("code", {}, author(tried.origin))),
      h("td", {}, outcome.timing ? time(outcome.timing) : h("span", { class: "failure" }, failure(tried))),
      h("td", {}, outcome.format_bytes === undefined ? "" : bytes(outcome.format_bytes)), h("td", { class: "number" }, tried.graded_s.toFixed(2)));
  }
}
