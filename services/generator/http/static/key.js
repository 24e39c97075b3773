// Where the server asks for a key: a field for it, when it is wanted, and a button that forgets it.

import { apiKey, KEY_WANTED, keepKey, SECRET } from "./api.js";
import { h } from "./dom.js";

/** Offers the field when a request was refused for want of a key. */
export function offerKey() {
  document.addEventListener(KEY_WANTED, () => document.getElementById("key") ?? show(), { once: true });
}

/** @returns {HTMLElement | null} */
export function forgetButton() {
  if (!apiKey()) return null;
  return h("button", { type: "button", class: "quiet", on: { click: () => use("") } }, "Forget key");
}

/** @param {string} key */
function use(key) {
  keepKey(key);
  location.reload();
}

function show() {
  const field = /** @type {HTMLInputElement} */ (h("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", required: true }));
  const words = SECRET ? "This permalink does not open the job (any more?). A key of its owner does." : apiKey() ? "The key that was entered does not open." : "It stays in this tab, until it is closed.";
  const form = h("form", { on: { submit: (event) => { event.preventDefault(); use(field.value.trim()); } } },
    h("p", { id: "key-words" }, "This server asks for an API key. ", words),
    h("div", { class: "row" }, h("label", {}, "Key ", field), h("button", { class: "primary" }, "Use it")));
  document.getElementById("content")?.before(h("section", { class: "card", "aria-label": "API key" }, form));
  field.focus();
}
