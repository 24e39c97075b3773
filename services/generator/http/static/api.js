// The HTTP interface, as any client sees it. Addresses are relative to this file, so that a proxy may put a prefix before.

const ROOT = new URL("../../", import.meta.url);
const KEY = "sparsesmith key";

/** Of the permalink that this page was opened by; empty: of none. */
export const SECRET = new URLSearchParams(location.search).get("secret") ?? "";

/** Told on the document when the server wants a key, or another one. */
export const KEY_WANTED = "keywanted";
let heldKey = "";

/** The key that was entered: kept as long as the tab. */
export function apiKey() {
  try {
    return sessionStorage.getItem(KEY) ?? heldKey;
  } catch {
    return heldKey; // No storage: as long as the page.
  }
}

/** @param {string} key Empty: forgets it. */
export function keepKey(key) {
  heldKey = key;
  try {
    if (key) sessionStorage.setItem(KEY, key);
    else sessionStorage.removeItem(KEY);
  } catch {
    // As above.
  }
}

/** @param {string} path */
export function address(path) {
  return new URL(path, ROOT).href;
}

/** What the server said was wrong (RFC 9457), or that it did not answer. */
export class Trouble extends Error {
  /** @param {string} message @param {number} status 0: no answer @param {string | undefined} field */
  constructor(message, status, field = undefined) {
    super(message);
    this.status = status;
    this.field = field;
  }
}

/** @param {string} path @param {RequestInit} [options] @returns {Promise<any>} JSON; null where there is no content. */
export async function ask(path, options = {}) {
  const response = await answered(path, options);
  const text = await response.text();
  if (!response.ok) throw troubleOf(response.status, text);
  return text ? JSON.parse(text) : null;
}

/** Tune for a file. @param {FormData} form @returns {Promise<import("./types.js").JobStatus>} */
export function tuneFile(form) {
  return ask("v1/kernels", { method: "POST", body: form });
}

/** Tune for index lists. @param {object} request @returns {Promise<import("./types.js").JobStatus>} */
export function tuneLists(request) {
  return ask("v1/kernels", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(request),
  });
}

/**
 * What the server answers, the body not read yet. Key and permalink go as headers, never in an address.
 * @param {string} path @param {RequestInit} options
 */
export async function answered(path, options) {
  const headers = new Headers(options.headers);
  if (apiKey()) headers.set("Authorization", `Bearer ${apiKey()}`);
  if (SECRET) headers.set("X-Job-Secret", SECRET);
  let response;
  try {
    response = await fetch(address(path), { ...options, headers });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Trouble("the server does not answer", 0);
  }
  if (response.status === 401) document.dispatchEvent(new Event(KEY_WANTED));
  return response;
}

/** @param {number} status @param {string} text */
export function troubleOf(status, text) {
  try {
    const problem = JSON.parse(text);
    return new Trouble(problem.detail ?? `status ${status}`, status, problem.field);
  } catch {
    return new Trouble(`status ${status}`, status);
  }
}
