// Server-sent events by fetch: an EventSource sends no headers, and a key has no place in an address.

import { answered, Trouble, troubleOf } from "./api.js";

/** Whether this browser reads an answer as it comes. */
export const CAN_STREAM = "body" in Response.prototype && "TextDecoderStream" in window;

/**
 * The events of a stream, to its end. Throws Trouble where there is none, or it breaks.
 * @param {string} path
 * @param {string} lastId Those after this one; empty: all.
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<{id: string, event: string, data: string}>}
 */
export async function* streamed(path, lastId, signal) {
  const headers = lastId ? { "Last-Event-ID": lastId } : {};
  const response = await answered(path, { headers, signal, cache: "no-store" });
  if (!response.ok || !response.body) throw troubleOf(response.status, await response.text());
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { done, value } = await piece(reader);
    if (done) return;
    const blocks = (waiting + value.replaceAll("\r", "")).split("\n\n");
    waiting = blocks.pop() ?? "";
    yield* blocks.map(eventOf).filter((event) => event.data);
  }
}

/** @param {ReadableStreamDefaultReader<string>} reader @returns {Promise<any>} */
async function piece(reader) {
  try {
    return await reader.read();
  } catch {
    throw new Trouble("the connection broke", 0);
  }
}

/** @param {string} block Lines of one event; comments among them. */
function eventOf(block) {
  const event = { id: "", event: "message", data: "" };
  for (const line of block.split("\n")) {
    const found = /^(id|event|data): ?(.*)$/.exec(line);
    if (found) event[/** @type {"id" | "event" | "data"} */ (found[1])] = found[2];
  }
  return event;
}
