// The start: a file is dropped or an example chosen, options are set, and the page goes to the job.

import { address, ask, Trouble, tuneFile, tuneLists } from "./api.js";
import { card, fill, h } from "./dom.js";
import { EXAMPLES } from "./examples.js";
import { historyTable } from "./history.js";

export function start() {
  const form = /** @type {HTMLFormElement} */ (document.getElementById("tune"));
  const file = /** @type {HTMLInputElement} */ (document.getElementById("file"));
  const drop = /** @type {HTMLElement} */ (form.querySelector(".drop"));
  const said = h("p", { class: "trouble", role: "alert", hidden: true });
  form.append(said);
  const tell = (/** @type {string} */ words, isTrouble = true) => {
    said.hidden = !words;
    said.className = isTrouble ? "trouble" : "note";
    fill(said, words);
  };
  const send = async (/** @type {string} */ name, /** @type {() => Promise<import("./types.js").JobStatus>} */ post) => {
    tell(`Sending ${name} ...`, false);
    form.setAttribute("aria-busy", "true");
    try {
      const job = await post();
      location.assign(address(`jobs/${job.job_id}`) + `#${encodeURIComponent(name)}`);
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      tell(error.message);
    } finally {
      form.removeAttribute("aria-busy");
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const chosen = file.files?.[0];
    if (chosen) send(chosen.name, () => tuneFile(new FormData(form)));
  });
  dropping(drop, file, () => fill(/** @type {Element} */ (drop.querySelector("span")), named(file)));
  columnsFollow(form);
  gpusOf(form);
  fill(/** @type {Element} */ (document.getElementById("more")), examples(form, send), earlier());
}

/** @param {HTMLInputElement} file */
function named(file) {
  const chosen = file.files?.[0];
  return chosen ? `${chosen.name}, ${(chosen.size / 1e6).toFixed(2)} MB` : "Drop a matrix here, or choose a file: .mtx, .mtx.gz or SciPy .npz";
}

/** The whole page takes a file. @param {HTMLElement} drop @param {HTMLInputElement} file @param {() => void} onChange */
function dropping(drop, file, onChange) {
  const mark = (/** @type {boolean} */ isOver) => drop.classList.toggle("over", isOver);
  file.addEventListener("change", onChange);
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    mark(true);
  });
  document.addEventListener("dragleave", () => mark(false));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    mark(false);
    if (!event.dataTransfer?.files.length) return;
    file.files = event.dataTransfer.files;
    onChange();
  });
  onChange();
}

/** Columns of B are one with spmv and more than that by default with spmm. @param {HTMLFormElement} form */
function columnsFollow(form) {
  const operation = /** @type {HTMLSelectElement} */ (form.elements.namedItem("operation"));
  const columns = /** @type {HTMLInputElement} */ (form.elements.namedItem("num_dense_cols"));
  const follow = () => {
    columns.readOnly = operation.value === "spmv";
    columns.value = columns.readOnly ? "1" : columns.value === "1" ? "32" : columns.value;
  };
  operation.addEventListener("change", follow);
  follow();
}

/** The kinds of GPU that evaluators have now; any, where the fleet does not tell. @param {HTMLFormElement} form */
function gpusOf(form) {
  const choice = /** @type {HTMLSelectElement} */ (form.elements.namedItem("gpu"));
  ask("v1/fleet").then(
    (fleet) => choice.append(...fleet.gpus.map((/** @type {any} */ each) => h("option", { value: each.name }, each.name))),
    () => undefined,
  );
}

/** @param {HTMLFormElement} form */
function optionsOf(form) {
  const fields = new FormData(form);
  const text = (/** @type {string} */ name) => String(fields.get(name));
  return {
    operation: text("operation"), element_type: text("element_type"), num_dense_cols: Number(text("num_dense_cols")), search: text("search"),
    gpu: text("gpu"),
    budget: { candidates: Number(text("budget_candidates")), seconds: Number(text("budget_seconds")) },
  };
}

/** @param {HTMLFormElement} form @param {(name: string, post: () => Promise<any>) => Promise<void>} send */
function examples(form, send) {
  const post = (/** @type {import("./examples.js").Example} */ example) => async () => {
    if (example.make) return tuneLists({ ...optionsOf(form), matrix: example.make() });
    const fields = new FormData(form);
    fields.set("values", "any");
    const content = await fetch(new URL(example.file ?? "", import.meta.url));
    fields.set("file", await content.blob(), `${example.name}.gz`);
    return tuneFile(fields);
  };
  const buttons = EXAMPLES.map((example) =>
    h("li", {}, h("button", { type: "button", class: "example", on: { click: () => send(example.name, post(example)) } }, h("strong", {}, example.name), h("span", {}, example.words))));
  return card("Or begin with an example", {}, h("ul", { class: "examples" }, buttons));
}

function earlier() {
  const host = h("div", {}, h("p", { class: "muted" }, "Looking ..."));
  ask("v1/kernels?limit=10").then(
    (page) => fill(host, historyTable(page)),
    (error) => fill(host, h("p", { class: "trouble" }, `The list cannot be shown: ${error.message}.`)),
  );
  return card("Earlier jobs", {}, host);
}
