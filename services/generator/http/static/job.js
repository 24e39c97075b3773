// A job: live while it runs, the same page as a permalink afterwards.

import { address, apiKey, ask, SECRET, Trouble } from "./api.js";
import { breakEven } from "./breakeven.js";
import { CandidateTable, rank } from "./candidates.js";
import { listing } from "./code.js";
import { diffListing } from "./diff.js";
import { card, copyButton, fill, h } from "./dom.js";
import { besidePtx } from "./listing.js";
import { follow, hasEnded, Tried } from "./live.js";
import { matrixFacts } from "./matrix.js";
import { count, time } from "./numbers.js";
import { roofline } from "./roofline.js";
import { author, failure, Scatter } from "./scatter.js";
import { snippetCards } from "./snippets.js";
import { spyPlot } from "./spy.js";
import { bestRoutine, progressOf, routinesTable, searchFacts, shown, verdictOf } from "./verdict.js";

/** @typedef {import("./types.js").JobStatus} JobStatus @typedef {import("./types.js").Tried} TriedCandidate */

/** @param {string} jobId */
export function job(jobId) {
  new JobView(jobId);
}

class JobView {
  /** @param {string} jobId */
  constructor(jobId) {
    this.jobId = jobId;
    this.tried = new Tried(jobId);
    /** @type {JobStatus | null} */
    this.status = null;
    /** @type {TriedCandidate | null} */
    this.picked = null;
    this.name = decodeURIComponent(location.hash.slice(1)) || "Your matrix";
    this.scatter = new Scatter((tried) => this.pick(tried));
    this.table = new CandidateTable((tried) => this.pick(tried));
    this.link = h("p", { class: "trouble", role: "status", hidden: true });
    this.verdict = h("div", { class: "verdict", "aria-live": "polite" }, h("p", { class: "headline" }, "Asking ..."));
    this.cancel = h("button", { type: "button", class: "quiet", on: { click: () => this.stop() } }, "Cancel");
    this.facts = h("p", { class: "muted" });
    this.matrix = h("div", { class: "grid" });
    this.worth = h("div", { class: "grid" });
    this.answer = h("div", { class: "stack" });
    this.code = h("div", {});
    this.program = card("Program", { id: "program", hidden: true }, this.code);
    this.progress = card("Candidates by second", { class: "wide" }, this.scatter.element);
    this.all = card("What was tried", {}, this.table.element);
    this.isPainted = false;
    /** Of the permalink: goes with links, which cannot have a key. */
    this.secret = SECRET;
    this.json = h("a", { class: "button quiet" }, "JSON");
    this.lay();
    this.showLinks();
    this.showMatrix();
    follow(jobId, (status, cameAt) => this.show(status, cameAt), (lost, why) => this.showLink(lost, why));
  }

  lay() {
    document.title = `${this.name} - sparsesmith`;
    fill(/** @type {Element} */ (document.getElementById("content")),
      h("div", { class: "row spread" },
        h("div", {}, h("h1", {}, this.name), this.facts),
        h("div", { class: "row" }, this.cancel, copyButton(() => this.permalink(), "Copy link"), this.json,
          h("a", { class: "button quiet", href: `${address("compare")}?a=${this.jobId}` }, "Compare"))),
      this.link, h("section", { class: "card", "aria-label": "Verdict" }, this.verdict), this.progress, this.matrix, this.worth, this.program, this.answer, this.all);
  }

  /** An address about the job that a link can hold. @param {string} rest Of it. @param {Record<string, string>} [query] */
  linkTo(rest, query = {}) {
    const words = new URLSearchParams({ ...query, ...(this.secret ? { secret: this.secret } : {}) }).toString();
    return address(rest) + (words ? `?${words}` : "");
  }

  permalink() {
    return this.linkTo(`jobs/${this.jobId}`) + location.hash;
  }

  /** Where a key opened the job, its links are those of the permalink. */
  async showLinks() {
    if (apiKey() && !this.secret) {
      try {
        this.secret = (await ask(`v1/kernels/${this.jobId}/permalink`)).secret ?? "";
      } catch (error) {
        if (!(error instanceof Trouble)) throw error;
      }
    }
    this.json.setAttribute("href", this.linkTo(`v1/kernels/${this.jobId}`));
    if (this.isPainted && this.status) this.paint(this.status);
  }

  async showMatrix() {
    const numbers = h("div", {}, h("p", { class: "muted" }, "Counting ..."));
    fill(this.matrix, card("Where the nonzeros are", {}, spyPlot(this.jobId)), card("The matrix", {}, numbers));
    try {
      const facts = await ask(`v1/kernels/${this.jobId}/matrix`);
      fill(numbers, matrixFacts(facts));
      this.facts.prepend(`${count(facts.num_rows)} x ${count(facts.num_cols)}, ${count(facts.nnz)} nonzeros. `);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      fill(this.matrix, card("The matrix", {}, h("p", { class: "note" }, `It cannot be shown any more: ${why}. What was measured stays below.`)));
    }
  }

  /** @param {JobStatus} status @param {number} cameAt */
  async show(status, cameAt) {
    this.status = status;
    this.showState(status);
    try {
      await this.tried.read();
    } catch (error) {
      this.showLink(true, error instanceof Error ? error.message : String(error));
    }
    if (this.status !== status) return;
    this.paint(status);
    this.isPainted = true;
    requestAnimationFrame(() => performance.measure("event to pixel", { start: cameAt, end: performance.now() }));
  }

  /** @param {JobStatus} status */
  showState(status) {
    const { status: state } = status;
    this.cancel.hidden = hasEnded(state);
    this.verdict.dataset.state = state.state;
    if (!this.facts.dataset.accepted) {
      this.facts.dataset.accepted = status.accepted_at;
      this.facts.append(`Accepted ${new Date(status.accepted_at).toLocaleString()}.`);
    }
    if (state.state === "queued") {
      fill(this.verdict, h("p", { class: "headline", id: "verdict" }, h("strong", {}, "Waiting"), state.position ? ` for ${count(state.position)} jobs ahead` : " for its turn"));
    } else if (state.state === "running") {
      fill(this.verdict, progressOf(state, this.isEstimated()));
    } else if (state.state === "failed") {
      fill(this.verdict, h("p", { class: "headline", id: "verdict" }, h("strong", {}, "Failed"), `: ${state.problem?.detail}`));
    } else if (state.state === "cancelled") {
      fill(this.verdict, h("p", { class: "headline", id: "verdict" }, h("strong", {}, "Cancelled"), ". What was tried until then stays below."));
    } else if (state.report) {
      fill(this.verdict, verdictOf(state.report));
    } else if (state.answer) {
      const { outcome } = state.answer.evaluation;
      fill(this.verdict, h("p", { class: "headline", id: "verdict" }, h("strong", {}, outcome.outcome.replace("_", " ")), outcome.timing ? [" in ", time(outcome.timing, true)] : `: ${outcome.message ?? outcome.log}`));
    }
  }

  /** Whether times are estimates, as far as what was tried tells. */
  isEstimated() {
    const timed = this.tried.candidates.find((each) => each.outcome.timing);
    return timed ? timed.outcome.timing?.kind === "estimated" : null;
  }

  /** @param {JobStatus} status */
  paint(status) {
    const { status: state } = status;
    const { candidates } = this.tried;
    if (state.state === "running") fill(this.verdict, progressOf(state, this.isEstimated()));
    this.scatter.update(candidates, this.routineUs(state));
    this.table.update(candidates);
    const isSilent = hasEnded(state) && !candidates.length;
    this.progress.hidden = this.all.hidden = isSilent;
    if (state.report) this.paintAnswer(state.report, candidates);
    else if (state.answer) fill(this.answer, card("Routines of the library", {}, routinesTable(state.answer.baselines)));
    if (!this.picked) this.paintProgram(state);
  }

  /** @param {import("./types.js").State} state @returns {number | null} */
  routineUs(state) {
    const baselines = state.report?.baselines ?? state.answer?.baselines;
    if (baselines) return bestRoutine(baselines).timing.median_us;
    return state.best_us && state.best_speedup ? state.best_us * state.best_speedup : null;
  }

  /** @param {import("./types.js").Report} report @param {TriedCandidate[]} candidates */
  paintAnswer(report, candidates) {
    const isKept = candidates.length ? null : h("p", { class: "note" }, "This answer was found by an earlier or simultaneous search for the same matrix; what that one tried is on its own page.");
    fill(this.worth, card("Is it worth it?", {}, breakEven(report)), card("Roofline", {}, roofline(report, candidates)));
    fill(this.answer,
      card("Take it home", {}, snippetCards(this.jobId, report), this.downloads(report)),
      h("div", { class: "grid" }, card("Routines of the library", {}, routinesTable(report.baselines)), card("The search", {}, isKept, searchFacts(report), device(report.device))));
  }

  /** @param {import("./types.js").Report} report */
  downloads(report) {
    const kinds = report.answer.kind === "kernel" ? { zip: "all files", cu: "program (.cu)", hpp: "C++ header", py: "Python loader", json: "report", candidates: "what was tried" } : { zip: "all files", py: "Python loader", json: "report", candidates: "what was tried" };
    const link = (/** @type {string} */ kind) => this.linkTo(`v1/kernels/${this.jobId}/artifact`, { kind });
    return h("p", { class: "row" }, "Files: ", Object.entries(kinds).map(([kind, words]) => h("a", { href: link(kind), download: "" }, words)));
  }

  /** @param {import("./types.js").State} state */
  paintProgram(state) {
    const answer = state.report ? shown(state.report)?.candidate : state.answer?.evaluation.candidate;
    const text = answer?.program ?? state.best_program;
    this.program.hidden = !text;
    if (!text) return;
    const words = state.report?.answer.kind === "kernel" ? "The winner" : state.state === "running" ? "The best so far" : "What came closest";
    this.showProgram(text, answer ? `${words}: ${author(answer.origin)}.` : `${words}.`);
  }

  /** @param {string} text @param {string} words @param {TriedCandidate | null} [tried] Where it is not the answer's. */
  showProgram(text, words, tried = null) {
    const runnerUp = this.runnerUp(text);
    const hasPassed = tried ? tried.outcome.timing : this.tried.candidates.some((each) => each.program === text && each.outcome.timing) || this.status?.status.report;
    const view = h("div", {}, listing(text, "Program"));
    const choices = /** @type {[string, () => HTMLElement][]} */ ([
      ["Program", () => listing(text, "Program")],
      ...(runnerUp ? [["Differences to the runner-up", () => diffListing(runnerUp.program, text, "From the runner-up to this program")]] : []),
      ...(hasPassed ? [["PTX beside it", () => besidePtx(this.jobId, tried ? tried.number : null)]] : []),
    ]);
    const second = runnerUp?.outcome.timing ? h("p", { class: "muted small" }, `Runner-up: number ${runnerUp.number}, ${author(runnerUp.origin)}, `, time(runnerUp.outcome.timing)) : null;
    fill(this.code, h("p", {}, words), h("div", { class: "row" }, choice(choices, view), copyButton(() => text, "Copy program")), second, view);
  }

  /** The fastest other one. @param {string} text */
  runnerUp(text) {
    const others = this.tried.candidates.filter((each) => each.outcome.timing && each.program !== text);
    return others.length ? others.reduce((best, each) => (rank(each) < rank(best) ? each : best)) : null;
  }

  /** @param {TriedCandidate} tried */
  pick(tried) {
    this.picked = tried;
    this.program.hidden = false;
    const told = tried.outcome.timing ? "passed" : failure(tried);
    this.showProgram(tried.program, `Number ${tried.number}, ${author(tried.origin)}: ${told}.`, tried);
    this.program.scrollIntoView({ block: "start" });
    /** @type {HTMLElement} */ (this.code.querySelector(".code"))?.focus({ preventScroll: true });
  }

  /** @param {boolean} lost @param {string} why */
  showLink(lost, why) {
    this.link.hidden = !lost;
    if (lost) fill(this.link, `${why[0]?.toUpperCase() ?? ""}${why.slice(1)}.`);
  }

  async stop() {
    this.cancel.toggleAttribute("disabled", true);
    try {
      await ask(`v1/kernels/${this.jobId}`, { method: "DELETE" });
    } catch (error) {
      this.showLink(true, error instanceof Error ? error.message : String(error));
      this.cancel.toggleAttribute("disabled", false);
    }
  }
}

/** Buttons of which one is pressed. @param {[string, () => HTMLElement][]} choices @param {HTMLElement} view */
function choice(choices, view) {
  const buttons = choices.map(([words, make], place) =>
    h("button", { type: "button", class: "quiet", "aria-pressed": String(place === 0), on: { click: () => choose(place, make) } }, words));
  const choose = (/** @type {number} */ chosen, /** @type {() => HTMLElement} */ make) => {
    buttons.forEach((button, place) => button.setAttribute("aria-pressed", String(place === chosen)));
    fill(view, make());
  };
  return h("div", { class: "row" }, buttons);
}

/** @param {import("./types.js").Device} device */
function device(device) {
  const versions = Object.entries(device.versions).map(([name, version]) => `${name} ${version}`).join(", ");
  return h("p", { class: "muted small" }, `${device.kind === "interpreter" ? "PTX interpreter for " : `${device.name}, `}${device.architecture}${versions ? `; ${versions}` : ""}`);
}
