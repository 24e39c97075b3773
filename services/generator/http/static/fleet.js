// For those who operate the service: what waits, who works, which policy version serves and why.

import { ask } from "./api.js";
import { axis, chart } from "./chart.js";
import { card, colour, fill, h } from "./dom.js";
import { ago, bytes, count, percent, seconds } from "./numbers.js";

const EVERY_MS = 3000;

export function fleet() {
  const content = /** @type {Element} */ (document.getElementById("content"));
  const view = { said: h("p", { class: "trouble", role: "status", hidden: true }), queue: h("div", {}), workers: h("div", {}), policy: h("div", {}), plot: h("div", { class: "plot" }) };
  fill(content, h("h1", {}, "Fleet"), view.said, card("What waits", {}, view.queue), card("Who works", {}, view.workers),
    card("Policy", {}, view.policy, h("h3", { id: "measures", hidden: true }, "Reward and pass share of the versions"), view.plot));
  /** @type {any} */
  let plot = null;
  const look = async () => {
    try {
      const [now, ready] = await Promise.all([ask("v1/fleet"), readiness()]);
      fill(view.queue, queue(now, ready));
      fill(view.workers, workers(now));
      plot = policy(view, now.policy, plot);
      view.said.hidden = true;
    } catch (error) {
      view.said.hidden = false;
      fill(view.said, `${error instanceof Error ? error.message : error}; trying again.`);
    }
    setTimeout(look, EVERY_MS);
  };
  look();
}

async function readiness() {
  const { degraded } = await ask("readyz");
  return degraded ?? "ready";
}

/** @param {any} now @param {string} ready */
function queue(now, ready) {
  const facts = /** @type {[string, string][]} */ ([
    ["Service", ready], ["Jobs that run", count(now.jobs_running)], ["Jobs that wait", count(now.jobs_waiting)],
    ["Batches in the evaluators' queue", count(now.evaluations_waiting)], ["Stored matrices", bytes(now.stored_matrix_bytes)],
    ["Jobs are kept", `${now.history_days} days after their end`],
  ]);
  return h("dl", { class: "facts" }, facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** @param {any} now */
function workers(now) {
  if (!now.evaluators.length) return h("p", { class: "trouble" }, "No evaluator has told of itself within the last minute: nothing is graded.");
  const heads = ["evaluator", "device", "jobs", "busy for", "passed", "failed"];
  const rows = now.evaluators.map((/** @type {any} */ each) => {
    const total = Object.values(each.outcomes).reduce((/** @type {number} */ sum, /** @type {any} */ number) => sum + number, 0);
    const passed = each.outcomes.passed ?? 0;
    const failures = Object.entries(each.outcomes).filter(([name]) => name !== "passed").map(([name, number]) => `${number} ${name.replace("_", " ")}`);
    return h("tr", {}, h("th", { scope: "row" }, h("code", {}, each.worker)), h("td", {}, `${each.device} (${each.architecture})`), h("td", {}, count(each.jobs)), h("td", {}, seconds(each.job_seconds)),
      h("td", {}, `${count(passed)} of ${count(total)}`), h("td", {}, failures.join(", ") || "none"));
  });
  const kinds = now.gpus.map((/** @type {any} */ each) => `${each.name}: ${each.evaluators === 1 ? "one evaluator" : `${count(each.evaluators)} evaluators`}, ${count(each.evaluations_waiting)} batches wait for it alone`);
  const trainers = now.trainers.map((/** @type {any} */ each) => h("p", {}, `Trainer ${each.worker}: ${count(each.updates)} updates since it started, newest version ${each.version}. `, Object.entries(each.figures).map(([name, value]) => `${name.replace("_", " ")} ${Number(value).toPrecision(3)}`).join(", ")));
  return h("div", {}, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Evaluators" },
    h("table", {}, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, rows))), h("p", {}, `Kinds of GPU that a request may name: ${kinds.join("; ") || "none"}.`), trainers.length ? trainers : h("p", { class: "muted" }, "No trainer has told of itself within the last minute."));
}

/** @param {any} view @param {any} status @param {any} plot */
function policy(view, status, plot) {
  if (!status) {
    fill(view.policy, h("p", { class: "muted" }, "This service runs without a policy: kernel families are all there is."));
    return plot;
  }
  fill(view.policy,
    h("p", {}, h("strong", {}, `Version ${status.version}`), ` of ${status.model} serves (${count(status.num_parameters)} parameters, encoder ${status.encoder}).`,
      status.under_probe === null ? "" : ` Version ${status.under_probe} is under probe: no user is given its samples.`),
    status.verdicts.length ? verdicts(status) : h("p", { class: "muted" }, "No version has been published yet: the policy serves as it was shipped."));
  return measures(view, status, plot);
}

/** @param {any} status */
function verdicts(status) {
  const heads = ["version", "decided", "decision", "pass share", "reward", "compiles", "reason"];
  const rows = [...status.verdicts].reverse().map((each) => {
    const scores = each.scores;
    return h("tr", {}, h("th", { scope: "row" }, `${each.announcement.version}${each.announcement.version === status.version ? " (serves)" : ""}`), h("td", {}, ago(each.decided_at)), h("td", {}, each.decision.replace("_", " ")),
      h("td", {}, scores ? percent(scores.pass_share) : "-"), h("td", {}, scores ? scores.mean_reward.toFixed(3) : "-"), h("td", {}, scores ? percent(scores.compile_share) : "-"), h("td", {}, each.reason));
  });
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Versions of the policy" },
    h("table", {}, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, rows)));
}

/** @param {any} view @param {any} status @param {any} plot */
function measures(view, status, plot) {
  const scored = status.verdicts.filter((/** @type {any} */ each) => each.scores);
  /** @type {HTMLElement} */ (document.getElementById("measures")).hidden = !scored.length;
  if (!scored.length) return plot;
  const data = [scored.map((/** @type {any} */ each) => each.announcement.version), scored.map((/** @type {any} */ each) => each.scores.mean_reward), scored.map((/** @type {any} */ each) => each.scores.pass_share)];
  if (plot) {
    plot.setData(data);
    return plot;
  }
  view.plot.after(h("ul", { class: "legend" }, h("li", {}, h("span", { class: "swatch policy" }), "mean reward of the canary"), h("li", {}, h("span", { class: "swatch families" }), "pass share")));
  return chart(view.plot, {
    scales: { x: { time: false }, y: {} },
    axes: [axis({ label: "policy version", labelSize: 24, incrs: [1, 2, 5, 10, 20, 50, 100] }), axis({ size: 56 })],
    series: [{}, { stroke: () => colour("policy"), width: 2, points: { show: true, size: 6 } }, { stroke: () => colour("families"), width: 2, points: { show: true, size: 6 } }],
    cursor: { show: false },
  }, data);
}
