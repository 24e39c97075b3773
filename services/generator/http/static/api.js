// The HTTP interface, as any client sees it. Addresses are relative to this file, so that a proxy may put a prefix before.

const ROOT = new URL("../../", import.meta.url);

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

/** @param {string} path @param {RequestInit} options */
async function answered(path, options) {
  try {
    return await fetch(address(path), options);
  } catch {
    throw new Trouble("the server does not answer", 0);
  }
}

/** @param {number} status @param {string} text */
function troubleOf(status, text) {
  try {
    const problem = JSON.parse(text);
    return new Trouble(problem.detail ?? `status ${status}`, status, problem.field);
  } catch {
    return new Trouble(`status ${status}`, status);
  }
}
