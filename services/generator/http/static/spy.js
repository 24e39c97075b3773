// Where the nonzeros are: a canvas that shows the density which the server counted, and looks closer on request.

import { address, ask } from "./api.js";
import { colour, copyButton, fill, h } from "./dom.js";
import { count } from "./numbers.js";

/** @typedef {import("./types.js").Density} Density */
/** @typedef {{first_row: number, end_row: number, first_col: number, end_col: number}} Window */

const LEAST = 8;
const STEP = 0.25;

/** @param {string} jobId @returns {HTMLElement} */
export function spyPlot(jobId) {
  return new SpyPlot(jobId).element;
}

class SpyPlot {
  /** @param {string} jobId */
  constructor(jobId) {
    this.jobId = jobId;
    /** Of the matrix; known once all of it was seen. */
    this.extent = { rows: 0, cols: 0 };
    /** @type {Density | null} */
    this.density = null;
    this.asked = 0;
    this.canvas = /** @type {HTMLCanvasElement} */ (
      h("canvas", { class: "spy", tabindex: 0, role: "img", "aria-label": "Density of the matrix", "aria-describedby": "spy-keys",
        on: { keydown: (/** @type {any} */ event) => this.onKey(event), pointerdown: (/** @type {any} */ event) => this.onDown(event),
          pointermove: (/** @type {any} */ event) => this.onMove(event), pointerup: (/** @type {any} */ event) => this.onUp(event),
          pointerleave: () => this.say(), dblclick: () => this.look(this.whole()) } })
    );
    this.band = h("div", { class: "band", hidden: true });
    this.said = h("p", { class: "muted spy-said", role: "status" }, "Counting nonzeros ...");
    /** @type {{x: number, y: number} | null} */
    this.from = null;
    const buttons = /** @type {[string, string, () => void][]} */ ([
      ["+", "Look closer", () => this.zoom(0.5)], ["−", "Look from further away", () => this.zoom(2)],
      ["All", "The whole matrix", () => this.look(this.whole())],
    ]).map(([text, label, act]) => h("button", { type: "button", class: "quiet", "aria-label": label, title: label, on: { click: act } }, text));
    this.element = h("div", { class: "spybox" },
      h("div", { class: "spyframe" }, this.canvas, this.band),
      this.said,
      h("div", { class: "row" }, buttons, copyButton(() => this.link(), "Copy JSON address")),
      h("p", { class: "muted small", id: "spy-keys" }, "Drag over a part to look closer; keys: + and −, arrows, 0 for all."));
    document.addEventListener("themechange", () => this.paint());
    this.look(this.whole());
  }

  /** @returns {Window} */
  whole() {
    return { first_row: 0, end_row: this.extent.rows, first_col: 0, end_col: this.extent.cols };
  }

  /** @returns {Window} */
  window() {
    return this.density ?? this.whole();
  }

  link() {
    return address(this.path(this.window()));
  }

  /** @param {Window} part */
  path(part) {
    if (!part.end_row) return `v1/kernels/${this.jobId}/density`;
    const { first_row, end_row, first_col, end_col } = part;
    const asked = new URLSearchParams(Object.entries({ first_row, end_row, first_col, end_col }).map(([name, value]) => [name, String(value)]));
    return `v1/kernels/${this.jobId}/density?${asked}`;
  }

  /** @param {Window} part */
  async look(part) {
    const number = ++this.asked;
    try {
      const density = await ask(this.path(part));
      if (number !== this.asked) return;
      this.density = density;
      if (!part.end_row) this.extent = { rows: density.end_row, cols: density.end_col };
      this.paint();
      this.say();
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      if (!this.density) this.element.classList.add("empty");
      fill(this.said, `The spy plot cannot be shown: ${why}.`);
    }
  }

  paint() {
    const density = this.density;
    if (!density) return;
    const context = this.canvas.getContext("2d");
    if (!context) {
      fill(this.said, "This browser paints no canvas: the density is at the JSON address.");
      return;
    }
    [this.canvas.width, this.canvas.height] = [density.grid_cols, density.grid_rows];
    const shape = (density.end_col - density.first_col) / (density.end_row - density.first_row);
    this.canvas.style.aspectRatio = String(Math.min(3, Math.max(1 / 1.5, shape)));
    context.putImageData(painted(density, context), 0, 0);
    this.canvas.dataset.painted = `${density.first_row}:${density.end_row},${density.first_col}:${density.end_col}`;
  }

  /** @param {string} [words] */
  say(words) {
    const density = this.density;
    if (!density) return;
    const nnz = density.counts.reduce((sum, each) => sum + each, 0);
    const place = `Rows ${count(density.first_row)} to ${count(density.end_row - 1)}, columns ${count(density.first_col)} to ${count(density.end_col - 1)}`;
    this.canvas.setAttribute("aria-label", `Density of the matrix. ${place}: ${count(nnz)} nonzeros`);
    fill(this.said, words ?? `${place}: ${count(nnz)} nonzeros.`);
  }

  /** @param {number} factor */
  zoom(factor) {
    if (!this.density) return;
    const seen = this.window();
    const [row, col] = [(seen.first_row + seen.end_row) / 2, (seen.first_col + seen.end_col) / 2];
    this.look({
      ...range("row", row, (seen.end_row - seen.first_row) * factor, this.extent.rows),
      ...range("col", col, (seen.end_col - seen.first_col) * factor, this.extent.cols),
    });
  }

  /** @param {number} down @param {number} right Shares of what is seen. */
  shift(down, right) {
    if (!this.density) return;
    const seen = this.window();
    const [rows, cols] = [seen.end_row - seen.first_row, seen.end_col - seen.first_col];
    this.look({
      ...range("row", (seen.first_row + seen.end_row) / 2 + down * rows, rows, this.extent.rows),
      ...range("col", (seen.first_col + seen.end_col) / 2 + right * cols, cols, this.extent.cols),
    });
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    /** @type {Record<string, () => void>} */
    const keys = {
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.look(this.whole()),
      ArrowUp: () => this.shift(-STEP, 0), ArrowDown: () => this.shift(STEP, 0),
      ArrowLeft: () => this.shift(0, -STEP), ArrowRight: () => this.shift(0, STEP),
    };
    const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** @param {PointerEvent} event @returns {{x: number, y: number}} Shares of the canvas. */
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const share = (/** @type {number} */ place, /** @type {number} */ size) => Math.min(1, Math.max(0, place / size));
    return { x: share(event.clientX - box.left, box.width), y: share(event.clientY - box.top, box.height) };
  }

  /** @param {PointerEvent} event */
  onDown(event) {
    if (event.button !== 0) return;
    this.from = this.at(event);
    this.canvas.setPointerCapture(event.pointerId);
  }

  /** @param {PointerEvent} event */
  onMove(event) {
    const place = this.at(event);
    if (this.from) this.showBand(this.from, place);
    else this.sayBox(place);
  }

  /** @param {PointerEvent} event */
  onUp(event) {
    const [from, to] = [this.from, this.at(event)];
    this.from = null;
    this.band.hidden = true;
    if (!from || Math.abs(from.x - to.x) < 0.02 || Math.abs(from.y - to.y) < 0.02) return;
    const seen = this.window();
    const [rows, cols] = [seen.end_row - seen.first_row, seen.end_col - seen.first_col];
    this.look({
      ...range("row", seen.first_row + (rows * (from.y + to.y)) / 2, rows * Math.abs(from.y - to.y), this.extent.rows),
      ...range("col", seen.first_col + (cols * (from.x + to.x)) / 2, cols * Math.abs(from.x - to.x), this.extent.cols),
    });
  }

  /** @param {{x: number, y: number}} from @param {{x: number, y: number}} to */
  showBand(from, to) {
    this.band.hidden = false;
    Object.assign(this.band.style, {
      left: `${100 * Math.min(from.x, to.x)}%`, top: `${100 * Math.min(from.y, to.y)}%`,
      width: `${100 * Math.abs(from.x - to.x)}%`, height: `${100 * Math.abs(from.y - to.y)}%`,
    });
  }

  /** @param {{x: number, y: number}} place */
  sayBox(place) {
    const seen = this.density;
    if (!seen) return;
    const [row, col] = [Math.min(seen.grid_rows - 1, Math.floor(place.y * seen.grid_rows)), Math.min(seen.grid_cols - 1, Math.floor(place.x * seen.grid_cols))];
    const rows = edges(row, seen.grid_rows, seen.first_row, seen.end_row);
    const cols = edges(col, seen.grid_cols, seen.first_col, seen.end_col);
    this.say(`Rows ${rows}, columns ${cols}: ${count(seen.counts[row * seen.grid_cols + col])} nonzeros.`);
  }
}

/** What a box of the grid covers. @param {number} box @param {number} boxes @param {number} first @param {number} end */
function edges(box, boxes, first, end) {
  const low = first + Math.ceil((box * (end - first)) / boxes);
  const high = first + Math.ceil(((box + 1) * (end - first)) / boxes) - 1;
  return low === high ? count(low) : `${count(low)} to ${count(high)}`;
}

/** A range of about this size around a place, within the matrix. @param {"row" | "col"} axis @param {number} middle @param {number} size @param {number} extent */
function range(axis, middle, size, extent) {
  const whole = Math.min(extent, Math.max(LEAST, Math.round(size)));
  const first = Math.min(extent - whole, Math.max(0, Math.round(middle - whole / 2)));
  return /** @type {any} */ ({ [`first_${axis}`]: first, [`end_${axis}`]: first + whole });
}

/** Ink by the logarithm of the count. @param {Density} density @param {CanvasRenderingContext2D} context */
function painted(density, context) {
  const image = context.createImageData(density.grid_cols, density.grid_rows);
  const [ink, paper] = [channels(colour("spy-ink")), channels(colour("spy-paper"))];
  const most = Math.log1p(density.counts.reduce((high, each) => Math.max(high, each), 1));
  density.counts.forEach((each, place) => {
    const share = each ? 0.3 + 0.7 * (Math.log1p(each) / most) : 0;
    for (let channel = 0; channel < 3; channel++) {
      image.data[4 * place + channel] = paper[channel] + share * (ink[channel] - paper[channel]);
    }
    image.data[4 * place + 3] = 255;
  });
  return image;
}

/** @param {string} hex "#rrggbb" */
function channels(hex) {
  return [1, 3, 5].map((place) => Number.parseInt(hex.slice(place, place + 2), 16));
}
