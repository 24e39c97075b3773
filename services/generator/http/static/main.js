// Chooses the view, offers the theme, and says what the browser lacks.

import { compare } from "./compare.js";
import { fill, h } from "./dom.js";
import { fleet } from "./fleet.js";
import { job } from "./job.js";
import { forgetButton, offerKey } from "./key.js";
import { start } from "./start.js";
import { CAN_STREAM } from "./stream.js";

const LACKS = /** @type {[boolean, string][]} */ ([
  [CAN_STREAM, "answers that are read as they come, so a job is asked for every few seconds"],
  ["ResizeObserver" in window, "resize observers, so charts keep their first size"],
  ["CanvasRenderingContext2D" in window, "a canvas, so spy plot and charts are missing; tables and JSON say the same"],
]);

/** @type {Record<string, () => unknown>} */
const VIEWS = { start, compare, fleet, jobs: () => job(decodeURIComponent(location.pathname.split("/").pop() ?? "")), missing: () => {} };

function themeButton() {
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const button = h("button", { type: "button", class: "quiet" });
  const label = () => fill(button, isDark() ? "Light" : "Dark");
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("theme", root.dataset.theme);
    } catch {
      // No storage: the choice lasts as long as the page.
    }
    label();
    document.dispatchEvent(new Event("themechange"));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    label();
    document.dispatchEvent(new Event("themechange"));
  });
  label();
  return button;
}

const missing = LACKS.filter(([has]) => !has).map(([, words]) => words);
fill(/** @type {Element} */ (document.getElementById("tools")), forgetButton(), themeButton());
offerKey();
VIEWS[document.body.dataset.view ?? "start"]?.();
if (missing.length) {
  document.getElementById("content")?.prepend(h("p", { class: "note", role: "status" }, `This browser lacks ${missing.join("; ")}.`));
}
