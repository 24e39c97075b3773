// uPlot as we use it: axes in the theme's colours, ticks at plain numbers, a size that follows the page.

import { colour } from "./dom.js";

/** @typedef {any} Plot */

/**
 * @param {HTMLElement} host
 * @param {any} options uPlot's, without what is set here
 * @param {(number | null)[][]} data
 * @returns {Plot}
 */
export function chart(host, options, data) {
  // @ts-ignore: vendor/uplot.js defines it.
  const plot = new uPlot({ width: width(host), height: 300, legend: { show: false }, ...options }, data, host);
  plot.root.setAttribute("aria-hidden", "true");
  new ResizeObserver(() => plot.setSize({ width: width(host), height: 300 })).observe(host);
  document.addEventListener("themechange", () => plot.redraw(true, true));
  return plot;
}

/** An axis in the theme's colours. @param {any} options */
export function axis(options) {
  return {
    stroke: () => colour("muted"),
    grid: { stroke: () => colour("line"), width: 1 },
    ticks: { stroke: () => colour("line"), width: 1 },
    font: "12px system-ui, sans-serif",
    labelFont: "12px system-ui, sans-serif",
    ...options,
  };
}

/** Splits of a logarithmic axis that people can read, however narrow its range. @param {any} _ @param {number} __ @param {number} low @param {number} high */
export function logSplits(_, __, low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const digit of [1, 1.5, 2, 3, 5, 7]) {
      const value = Number((digit * 10 ** power).toPrecision(3));
      if (value >= low && value <= high) found.push(value);
    }
  }
  if (found.length > 12) return found.filter((value) => /^[^1-9]*1(?!.*[1-9])/.test(String(value)));
  return found.length >= 4 ? found : evenSplits(low, high);
}

/** @param {number} low @param {number} high */
function evenSplits(low, high) {
  const rough = (high - low) / 8;
  const step = [1, 2, 5, 10].map((each) => each * 10 ** Math.floor(Math.log10(rough))).find((each) => each >= rough) ?? rough;
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(Number(value.toPrecision(6)));
  return found;
}

/** @param {HTMLElement} host */
function width(host) {
  return Math.max(240, Math.floor(host.clientWidth));
}

/** A line that stays level until the next point. @param {any} plot @param {number} series @param {number} first @param {number} last */
export function stepped(plot, series, first, last) {
  // @ts-ignore: vendor/uplot.js defines it.
  return uPlot.paths.stepped({ align: 1 })(plot, series, first, last);
}
