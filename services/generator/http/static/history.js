// Jobs that are remembered, the newest first; two of them can be compared.

import { address, ask } from "./api.js";
import { fill, h } from "./dom.js";
import { ago, times } from "./numbers.js";

/** @typedef {{jobs: any[], next_before: string | null}} JobPage */

/** @param {JobPage} page @returns {HTMLElement} */
export function historyTable(page) {
  if (!page.jobs.length) return h("p", { class: "muted" }, "None yet.");
  const body = h("tbody", {}, page.jobs.map(row));
  const more = h("button", { type: "button", class: "quiet", hidden: page.next_before === null }, "Older");
  let before = page.next_before;
  more.addEventListener("click", async () => {
    const next = await ask(`v1/kernels?limit=50&before=${before}`);
    body.append(...next.jobs.map(row));
    before = next.next_before;
    more.hidden = before === null;
  });
  const compare = h("button", { class: "quiet", disabled: true }, "Compare the two chosen");
  const form = /** @type {HTMLFormElement} */ (h("form", { action: address("compare") },
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Earlier jobs" },
      h("table", {}, h("thead", {}, h("tr", {}, ["choose", "job", "accepted", "what", "state", "over the best routine"].map((head) => h("th", { scope: "col" }, head)))), body)),
    h("p", { class: "row" }, compare, more)));
  form.addEventListener("change", () => compare.toggleAttribute("disabled", chosen(form).length !== 2));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const [one, other] = chosen(form);
    location.assign(address(`compare?a=${one}&b=${other}`));
  });
  return form;
}

/** @param {HTMLFormElement} form */
function chosen(form) {
  return [...form.querySelectorAll("input:checked")].map((each) => /** @type {HTMLInputElement} */ (each).value);
}

/** @param {any} job */
function row(job) {
  const { workload } = job;
  const columns = workload.num_dense_cols > 1 ? `, ${workload.num_dense_cols} columns` : "";
  const speedup = h("td", { class: "number" }, job.best_speedup === null ? "-" : times(job.best_speedup));
  return h("tr", {},
    h("td", {}, job.kind === "kernel" ? h("input", { type: "checkbox", value: job.job_id, "aria-label": `Choose job ${job.job_id}` }) : ""),
    h("th", { scope: "row" }, h("a", { href: address(`jobs/${job.job_id}`) }, job.job_id.slice(0, 10))),
    h("td", {}, ago(job.accepted_at)), h("td", {}, `${job.kind === "kernel" ? "" : "grading, "}${workload.operation} ${workload.element_type}${columns}`), h("td", {}, job.state), speedup);
}

/** @param {Element} host @param {string} words */
export function trouble(host, words) {
  fill(host, h("p", { class: "trouble", role: "alert" }, words));
}
