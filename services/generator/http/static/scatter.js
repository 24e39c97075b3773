// Times of the candidates by the second at which they were graded, the best so far, and the library's best routine.

import { axis, chart, logSplits, stepped } from "./chart.js";
import { colour, fill, h, svg } from "./dom.js";
import { count, time, us } from "./numbers.js";

/** @typedef {import("./types.js").Tried} Tried */

const REACH_PX = 24;

/** Sources with their marks, which differ in shape as well as in colour. */
const SOURCES = /** @type {Record<string, {words: string, colour: string, shape: string}>} */ ({
  family: { words: "kernel families", colour: "families", shape: "circle" },
  sampled: { words: "policy", colour: "policy", shape: "diamond" },
  refined: { words: "refine", colour: "refine", shape: "triangle" },
  mutated: { words: "mutate", colour: "refine", shape: "triangle" },
  written: { words: "language model", colour: "refine", shape: "diamond" },
  user: { words: "user", colour: "refine", shape: "square" },
  probe: { words: "probe", colour: "muted", shape: "square" },
});
const OTHER = { words: "other", colour: "muted", shape: "square" };

/** @param {Tried} tried */
export function sourceOf(tried) {
  return SOURCES[tried.origin.kind] ?? OTHER;
}

/** Who wrote it. @param {import("./types.js").Origin} origin */
export function author(origin) {
  if (origin.kind === "family") {
    const chosen = Object.entries(origin.parameters ?? {}).map(([name, value]) => `${name}=${value}`);
    return [origin.family, ...chosen].join(" ");
  }
  if (origin.kind === "sampled") {
    const [first, last] = [origin.first_version ?? 0, origin.last_version ?? 0];
    return `policy, version ${first === last ? first : `${first} to ${last}`}`;
  }
  return origin.kind;
}

export class Scatter {
  /** @param {(tried: Tried) => void} onPick */
  constructor(onPick) {
    this.onPick = onPick;
    /** @type {Tried[]} */
    this.candidates = [];
    /** @type {number | null} */
    this.routineUs = null;
    /** @type {any} */
    this.plot = null;
    this.host = h("div", { class: "plot" });
    this.tip = h("div", { class: "tip", hidden: true });
    this.legend = h("ul", { class: "legend" });
    this.told = h("p", { class: "muted small" }, "Nothing has been graded yet.");
    this.element = h("div", { class: "plotbox" }, this.legend, h("div", { class: "plotframe" }, this.host, this.tip), this.told);
  }

  /** @param {Tried[]} candidates @param {number | null} routineUs Of the library's best routine, where it is known. */
  update(candidates, routineUs) {
    this.candidates = [...candidates].sort((one, other) => one.graded_s - other.graded_s);
    this.routineUs = routineUs;
    const data = this.data();
    if (this.plot) this.plot.setData(data);
    else if (this.host.isConnected && candidates.length) this.plot = this.made(data);
    this.describe();
  }

  /** @returns {any[]} */
  data() {
    let best = Number.POSITIVE_INFINITY;
    const bests = this.candidates.map((each) => {
      best = Math.min(best, each.outcome.timing?.median_us ?? best);
      return Number.isFinite(best) ? best : null;
    });
    const moments = [this.span()[0], ...this.candidates.map((each) => each.graded_s), this.span()[1]];
    return [moments, [null, ...bests, bests.at(-1) ?? null], moments.map(() => this.routineUs)];
  }

  /** @param {any[]} data */
  made(data) {
    const plot = chart(
      this.host,
      {
        scales: { x: { time: false, range: () => this.span() }, y: { distr: 3, range: () => this.range() } },
        axes: [
          axis({ label: "seconds of the search", labelSize: 24 }),
          axis({ label: "microseconds, logarithmic", labelSize: 24, size: 56, splits: logSplits, filter: (/** @type {any} */ _, /** @type {any} */ splits) => splits, values: (/** @type {any} */ _, /** @type {number[]} */ splits) => splits.map(String) }),
        ],
        series: [
          {},
          { stroke: () => colour("ink"), width: 1.5, points: { show: false }, paths: stepped },
          { stroke: () => colour("library"), width: 1.5, dash: [6, 5], points: { show: false } },
        ],
        cursor: { x: false, y: false, drag: { x: false, y: false }, points: { show: false } },
        hooks: { draw: [(/** @type {any} */ plot) => this.marks(plot)] },
      },
      data,
    );
    plot.over.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => this.point(event));
    plot.over.addEventListener("pointerleave", () => (this.tip.hidden = true));
    plot.over.addEventListener("click", (/** @type {PointerEvent} */ event) => {
      const found = this.nearest(event);
      if (found) this.onPick(found.tried);
    });
    return plot;
  }

  /** From the start of the search, or of its grading where that came late. @returns {[number, number]} */
  span() {
    const [first, last] = [this.candidates[0]?.graded_s ?? 0, this.candidates.at(-1)?.graded_s ?? 1];
    const room = Math.max(0.5, 0.05 * (last - first));
    return [first < last / 2 ? 0 : Math.max(0, first - room), last + room];
  }

  /** @returns {[number, number]} */
  range() {
    const known = this.candidates.map((each) => each.outcome.timing?.median_us ?? 0).filter((value) => value > 0);
    if (this.routineUs) known.push(this.routineUs);
    const [low, high] = known.length ? [Math.min(...known), Math.max(...known)] : [1, 10];
    return [low / 1.15, high * 1.5];
  }

  /** @param {any} plot @param {Tried} tried @returns {{x: number, y: number}} In pixels of the canvas. */
  place(plot, tried) {
    const timed = tried.outcome.timing?.median_us;
    const ratio = devicePixelRatio;
    const y = timed ? plot.valToPos(timed, "y", true) : plot.bbox.top + 10 * ratio;
    return { x: plot.valToPos(tried.graded_s, "x", true), y };
  }

  /** @param {any} plot */
  marks(plot) {
    const { ctx } = plot;
    const size = 4 * devicePixelRatio;
    ctx.save();
    ctx.setLineDash([]);
    for (const tried of this.candidates) {
      const { x, y } = this.place(plot, tried);
      const { colour: name, shape } = sourceOf(tried);
      ctx.strokeStyle = ctx.fillStyle = colour(tried.outcome.timing ? name : "failed");
      ctx.globalAlpha = 0.85;
      paint(ctx, tried.outcome.timing ? shape : "cross", x, y, size);
    }
    ctx.restore();
  }

  /** @param {PointerEvent} event */
  nearest(event) {
    const box = this.plot.over.getBoundingClientRect();
    const ratio = devicePixelRatio;
    const [x, y] = [(event.clientX - box.left) * ratio + this.plot.bbox.left, (event.clientY - box.top) * ratio + this.plot.bbox.top];
    let found = null;
    let least = REACH_PX * ratio;
    for (const tried of this.candidates) {
      const place = this.place(this.plot, tried);
      const far = Math.hypot(place.x - x, place.y - y);
      if (far < least) [found, least] = [{ tried, place }, far];
    }
    return found;
  }

  /** @param {PointerEvent} event */
  point(event) {
    const found = this.nearest(event);
    this.tip.hidden = !found;
    if (!found) return;
    const { tried, place } = found;
    fill(this.tip, h("strong", {}, `${sourceOf(tried).words}, number ${tried.number}`), h("br"), author(tried.origin), h("br"),
      tried.outcome.timing ? time(tried.outcome.timing) : failure(tried));
    const x = place.x / devicePixelRatio;
    const isRight = x > this.host.clientWidth / 2;
    Object.assign(this.tip.style, { top: `${place.y / devicePixelRatio + 8}px`, left: isRight ? "auto" : `${x + 10}px`, right: isRight ? `${this.host.clientWidth - x + 10}px` : "auto" });
  }

  describe() {
    const passed = this.candidates.filter((each) => each.outcome.timing);
    const failed = this.candidates.length - passed.length;
    const kinds = [...new Set(this.candidates.map(sourceOf))];
    fill(this.legend,
      kinds.map((kind) => h("li", {}, sample(kind.shape, kind.colour), kind.words)),
      failed ? h("li", {}, sample("cross", "failed"), "failed") : null,
      passed.length ? h("li", {}, line("ink", ""), "best so far") : null,
      this.routineUs ? h("li", {}, line("library", "5 4"), "best routine of the library") : null);
    const best = passed.reduce((low, each) => Math.min(low, each.outcome.timing?.median_us ?? low), Number.POSITIVE_INFINITY);
    const words = passed.length ? `${count(passed.length)} passed, the fastest in ${us(best)}` : "none has passed";
    fill(this.told, this.candidates.length ? `${count(this.candidates.length)} graded: ${words}${failed ? `, ${count(failed)} failed` : ""}. The table below says the same.` : "Nothing has been graded yet.");
  }
}

/** @param {Tried} tried */
export function failure(tried) {
  const { outcome } = tried;
  return `${outcome.outcome.replace("_", " ")}: ${outcome.message ?? outcome.log ?? ""}`.slice(0, 240);
}

/** @param {CanvasRenderingContext2D} context @param {string} shape @param {number} x @param {number} y @param {number} size */
function paint(context, shape, x, y, size) {
  context.beginPath();
  if (shape === "circle") context.arc(x, y, size, 0, 2 * Math.PI);
  else if (shape === "cross") {
    context.lineWidth = size / 2;
    context.moveTo(x - size, y - size);
    context.lineTo(x + size, y + size);
    context.moveTo(x - size, y + size);
    context.lineTo(x + size, y - size);
    context.stroke();
    return;
  } else polygon(context, shape, x, y, size * 1.25);
  context.fill();
}

/** @param {CanvasRenderingContext2D} context @param {string} shape @param {number} x @param {number} y @param {number} size */
function polygon(context, shape, x, y, size) {
  const corners = { diamond: [[0, -1], [1, 0], [0, 1], [-1, 0]], triangle: [[0, -1], [1, 0.8], [-1, 0.8]] }[shape] ?? [[-0.8, -0.8], [0.8, -0.8], [0.8, 0.8], [-0.8, 0.8]];
  corners.forEach(([right, down], place) => (place ? context.lineTo(x + right * size, y + down * size) : context.moveTo(x + right * size, y + down * size)));
  context.closePath();
}

/** @param {string} shape @param {string} name */
function sample(shape, name) {
  const mark = {
    circle: svg("circle", { cx: 7, cy: 7, r: 5 }), diamond: svg("path", { d: "M7 1 13 7 7 13 1 7Z" }),
    triangle: svg("path", { d: "M7 1 13 12 1 12Z" }), square: svg("rect", { x: 2, y: 2, width: 10, height: 10 }),
    cross: svg("path", { d: "M2 2 12 12M2 12 12 2", class: "crossed" }),
  }[shape];
  return svg("svg", { viewBox: "0 0 14 14", class: `mark ${name}`, "aria-hidden": "true" }, mark);
}

/** @param {string} name @param {string} dashes */
function line(name, dashes) {
  return svg("svg", { viewBox: "0 0 22 14", class: `mark wide ${name}`, "aria-hidden": "true" }, svg("path", { d: "M0 7H22", class: "crossed", "stroke-dasharray": dashes || null }));
}
