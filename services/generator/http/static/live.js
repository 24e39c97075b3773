// A job as it goes on: its states as server-sent events, and what was tried so far. A connection that is lost is made
// again; where the browser cannot read an answer as it comes the job is asked for every two seconds.

import { ask, Trouble } from "./api.js";
import { CAN_STREAM, streamed } from "./stream.js";

const STATES = ["queued", "running", "finished", "graded", "failed", "cancelled"];
const ENDS = STATES.slice(2);
const AGAIN_MS = 1500;
const PAGE = 256;

/** @param {import("./types.js").State} state */
export function hasEnded(state) {
  return ENDS.includes(state.state);
}

/**
 * Follows a job to its end.
 * @param {string} jobId
 * @param {(status: import("./types.js").JobStatus, cameAt: number) => void} onStatus `cameAt`: of performance.now()
 * @param {(lost: boolean, why: string) => void} onLink
 * @returns {() => void} Stops it.
 */
export function follow(jobId, onStatus, onLink) {
  let stopped = false;
  let lastId = "";
  const stopping = new AbortController();

  const tell = (/** @type {import("./types.js").JobStatus} */ status, /** @type {number} */ cameAt) => {
    onLink(false, "");
    onStatus(status, cameAt);
    if (hasEnded(status.status)) stop();
  };
  const again = (/** @type {() => void} */ what) => setTimeout(() => stopped || what(), AGAIN_MS);
  const stop = () => {
    stopped = true;
    stopping.abort();
  };
  const open = async () => {
    try {
      for await (const event of streamed(`v1/kernels/${jobId}/events`, lastId, stopping.signal)) {
        lastId = event.id;
        tell(JSON.parse(event.data), performance.now());
      }
    } catch (error) {
      if (!(error instanceof Trouble) && !stopped) throw error;
    }
    if (!stopped) look(open);
  };
  /** Asks once, then goes on. @param {() => void} next */
  const look = async (next) => {
    try {
      tell(await ask(`v1/kernels/${jobId}`), performance.now());
      if (!stopped) again(next);
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      if (error.status === 404 || error.status === 401) {
        stop();
        onLink(true, error.message);
        return;
      }
      onLink(true, `${error.message}; trying again`);
      again(() => look(next));
    }
  };
  const poll = () => look(poll);
  if (CAN_STREAM) open();
  else poll();
  return stop;
}

/** What was tried for a job, read as it grows. */
export class Tried {
  /** @param {string} jobId */
  constructor(jobId) {
    this.jobId = jobId;
    /** @type {import("./types.js").Tried[]} */
    this.candidates = [];
    this.place = 0;
    /** @type {Promise<boolean> | null} */
    this.reading = null;
  }

  /** Reads what is new; whether there was anything. A run that starts over is read from its start. */
  async read() {
    if (this.reading) await this.reading;
    this.reading = this.#pages();
    try {
      return await this.reading;
    } finally {
      this.reading = null;
    }
  }

  async #pages() {
    let changed = false;
    for (;;) {
      const page = await ask(`v1/kernels/${this.jobId}/candidates?offset=${this.place}&limit=${PAGE}`);
      if (page.num_candidates < this.place) {
        this.candidates = [];
        this.place = 0;
        changed = true;
        continue;
      }
      this.candidates.push(...page.candidates);
      changed ||= page.candidates.length > 0;
      this.place = page.next_offset ?? page.num_candidates;
      if (page.next_offset === null) return changed;
    }
  }
}
