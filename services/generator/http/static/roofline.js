// Where the times stand against what the memory allows: work a second over work a byte.

import { h, svg } from "./dom.js";
import { bestRoutine, shown } from "./verdict.js";
import { rough } from "./numbers.js";

/** @typedef {import("./types.js").Report} Report */

/** Bytes a second of the L2, by device: as the families' estimates take it (sparsesmith/families/estimates/cost.py). */
const L2_GBS = /** @type {Record<string, number>} */ ({ "NVIDIA H200": 5500 });
const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT] = [460, 300, 52, 40, 12, 12];

/** Operations of one product. @param {Report} report */
export function flops(report) {
  return 2 * report.nnz * report.workload.num_dense_cols;
}

/** Bytes that one product moves at least: the matrix as it is stored, and each vector once. @param {Report} report @param {number} matrixBytes */
export function leastBytes(report, matrixBytes) {
  const element = report.workload.element_type === "float64" ? 8 : 4;
  return matrixBytes + element * report.workload.num_dense_cols * (report.num_rows + report.num_cols);
}

/** Of the matrix in CSR with 32-bit indices. @param {Report} report */
export function csrBytes(report) {
  const element = report.workload.element_type === "float64" ? 8 : 4;
  return 4 * (report.num_rows + 1) + (4 + element) * report.nnz;
}

/** @param {Report} report @param {import("./types.js").Tried[]} tried @returns {HTMLElement} */
export function roofline(report, tried) {
  if (report.device.kind === "interpreter") {
    return h("p", { class: "note" }, "A roofline needs a GPU: the interpreter's times come from a model of memory traffic, so they would only show the model.");
  }
  const { device } = report;
  const roofs = [{ name: "HBM, measured copy", gbs: device.copy_bandwidth_gbs }];
  if (L2_GBS[device.name]) roofs.push({ name: "L2, as the estimates take it", gbs: L2_GBS[device.name] });
  const points = pointsOf(report, tried);
  const scale = scaleOf(points, roofs);
  const frame = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Roofline" }, picture(points, roofs, scale));
  return h("figure", {}, frame, legend(points, roofs, report));
}

/** @typedef {{name: string, intensity: number, gflops: number, kind: "routine" | "tried" | "answer"}} Point */

/** @param {Report} report @param {import("./types.js").Tried[]} tried @returns {Point[]} */
function pointsOf(report, tried) {
  const work = flops(report);
  const point = (/** @type {string} */ name, /** @type {number} */ matrixBytes, /** @type {number} */ us, /** @type {Point["kind"]} */ kind) => ({ name, intensity: work / leastBytes(report, matrixBytes), gflops: work / us / 1e3, kind });
  const answer = shown(report);
  const timed = tried.filter((each) => each.outcome.timing?.kind === "measured");
  return [
    ...timed.map((each) => point(`candidate ${each.number}`, each.outcome.format_bytes ?? 0, each.outcome.timing?.median_us ?? 1, "tried")),
    ...report.baselines.routines.map((each) => point(each.routine, csrBytes(report), each.timing.median_us, "routine")),
    ...(answer?.outcome.timing ? [point("the answer's kernel", answer.outcome.format_bytes ?? 0, answer.outcome.timing.median_us, "answer")] : []),
  ];
}

/** @param {Point[]} points @param {{gbs: number}[]} roofs */
function scaleOf(points, roofs) {
  const xs = points.map((each) => each.intensity);
  const [x0, x1] = [Math.min(...xs) / 2, Math.max(...xs) * 2];
  const most = Math.max(...roofs.map((roof) => roof.gbs)) * x1;
  const [y0, y1] = [Math.min(...points.map((each) => each.gflops)) / 2, Math.max(most, ...points.map((each) => each.gflops)) * 1.3];
  const along = (/** @type {number} */ value, /** @type {number} */ low, /** @type {number} */ high) => Math.log(value / low) / Math.log(high / low);
  return {
    x0, x1, y0, y1,
    x: (/** @type {number} */ value) => LEFT + along(value, x0, x1) * (WIDTH - LEFT - RIGHT),
    y: (/** @type {number} */ value) => HEIGHT - BOTTOM - along(value, y0, y1) * (HEIGHT - BOTTOM - TOP),
  };
}

/** @param {Point[]} points @param {{name: string, gbs: number}[]} roofs @param {ReturnType<typeof scaleOf>} scale */
function picture(points, roofs, scale) {
  const lines = roofs.map((roof, place) => svg("line", { class: `roof ${place ? "second" : ""}`, x1: scale.x(scale.x0), y1: scale.y(scale.x0 * roof.gbs), x2: scale.x(scale.x1), y2: scale.y(scale.x1 * roof.gbs) }));
  const marks = points.map((each) => svg("circle", { class: `point ${each.kind}`, cx: scale.x(each.intensity), cy: scale.y(each.gflops), r: each.kind === "answer" ? 6 : each.kind === "routine" ? 4.5 : 2.5 }, svg("title", {}, `${each.name}: ${rough(each.gflops)} GFLOP/s at ${rough(each.intensity)} flop a byte`)));
  const ticks = [
    ...decades(scale.x0, scale.x1).map((value) => svg("text", { x: scale.x(value), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, String(value))),
    ...decades(scale.y0, scale.y1).map((value) => svg("text", { x: LEFT - 6, y: scale.y(value) + 4, "text-anchor": "end" }, String(value))),
  ];
  const told = points.filter((each) => each.kind !== "tried").map((each) => `${each.name} ${rough(each.gflops)} GFLOP/s`).join(", ");
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "roofline", role: "img", "aria-label": `Roofline. ${told}` },
    svg("path", { class: "frame", d: `M${LEFT} ${TOP}V${HEIGHT - BOTTOM}H${WIDTH - RIGHT}` }), ...lines, ...marks, ...ticks,
    svg("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, "floating-point operations a byte"),
    svg("text", { x: 12, y: HEIGHT / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${HEIGHT / 2})` }, "GFLOP/s"));
}

/** @param {number} low @param {number} high */
function decades(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++) {
    for (const digit of [1, 2, 5]) {
      const value = Number((digit * 10 ** power).toPrecision(2));
      if (value >= low && value <= high) found.push(value);
    }
  }
  return found.length > 7 ? found.filter((value) => /^0?\.?0*1/.test(String(value))) : found;
}

/** @param {Point[]} points @param {{name: string, gbs: number}[]} roofs @param {Report} report */
function legend(points, roofs, report) {
  const answer = points.find((each) => each.kind === "answer");
  const best = bestRoutine(report.baselines);
  const rate = answer ? answer.gflops / answer.intensity : csrBytes(report) / best.timing.median_us / 1e3;
  const shares = roofs.map((roof) => `${rough((100 * rate) / roof.gbs)} % of ${roof.name} (${Math.round(roof.gbs).toLocaleString("en-US")} GB/s)`);
  return h("figcaption", { class: "muted small" }, `The kernel reads and writes at least ${rough(rate)} GB/s: ${shares.join(", ")}. What stays in the L2 from the product before is not read from memory, so small matrices stand above HBM. Routines are shown at the bytes of CSR.`);
}
