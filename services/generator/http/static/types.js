// Messages of the HTTP interface, as far as the page reads them (proto/sparsesmith_proto/api.py is the whole truth).

/**
 * @typedef {object} Timing
 * @property {"measured" | "estimated"} kind
 * @property {number} median_us
 * @property {number} [low_us]
 * @property {number} [high_us]
 * @property {number} [cold_us]
 * @property {number} [num_batches]
 * @property {boolean} [stable]
 * @property {number} [sm_clock_mhz]
 * @property {number} [num_attempts]
 * @property {string[]} [disturbances]
 * @property {number[]} [placements_us]
 * @property {boolean} [is_final]
 *
 * @typedef {object} Outcome
 * @property {"passed" | "rejected" | "compile_failed" | "mismatch" | "crashed" | "timed_out"} outcome
 * @property {Timing} [timing]
 * @property {string} [message]
 * @property {string} [log]
 * @property {string} [storage_format]
 * @property {number} [format_bytes]
 * @property {number} [conversion_ms]
 * @property {number} [worst_error]
 * @property {number} [num_inputs]
 * @property {{tool: string, state: "clean" | "not_checked", reason?: string}[]} [sanitized]
 * @property {{registers: number, spill_bytes: number, shared_bytes: number, compile_ms: number}} [resources]
 *
 * @typedef {object} Origin
 * @property {string} kind
 * @property {string} [family]
 * @property {Record<string, number | string>} [parameters]
 * @property {number} [first_version]
 * @property {number} [last_version]
 * @property {number} [temperature]
 * @property {number} [min_p]
 *
 * @typedef {object} Tried
 * @property {number} number
 * @property {string} candidate_id
 * @property {string} program
 * @property {Origin} origin
 * @property {Outcome} outcome
 * @property {number} graded_s
 *
 * @typedef {{routine: string, timing: Timing, preparation_ms: number, needs_copy?: boolean}} Routine
 * @typedef {{default: string, routines: Routine[]}} Baselines
 * @typedef {{kind: string, conversion_ms: number, tuning_s: number, products_against_best: number | null,
 *   products_against_default: number | null}} BreakEven
 * @typedef {{candidate: {candidate_id: string, program: string, origin: Origin}, outcome: Outcome}} Evaluation
 * @typedef {{kind: "cuda" | "interpreter", name: string, architecture: string, num_sms: number,
 *   copy_bandwidth_gbs: number, versions: Record<string, string>}} Device
 * @typedef {{pattern: string, operation: string, element_type: string, num_dense_cols: number,
 *   values: string | null}} Workload
 *
 * @typedef {object} Answer
 * @property {"kernel" | "library"} kind
 * @property {Evaluation} [best]
 * @property {Evaluation | null} [closest]
 * @property {string} [routine]
 * @property {string} [reason]
 * @property {number} [speedup_over_best]
 * @property {number} [speedup_over_default]
 * @property {BreakEven} break_even
 *
 * @typedef {object} Report
 * @property {Workload} workload
 * @property {number} num_rows
 * @property {number} num_cols
 * @property {number} nnz
 * @property {Answer} answer
 * @property {Baselines} baselines
 * @property {Device} device
 * @property {{strategy: string, num_candidates: number, outcomes: Record<string, number>, policy_versions: number[],
 *   seconds: number, first_graded_s: number, sources: {source: string, proposed: number, passed: number,
 *   seconds: number, gain: number}[]}} search
 *
 * @typedef {object} State
 * @property {"queued" | "running" | "finished" | "graded" | "failed" | "cancelled"} state
 * @property {number} [position]
 * @property {number} [num_graded]
 * @property {number} [budget_candidates]
 * @property {string | null} [best_program]
 * @property {number | null} [best_us]
 * @property {number | null} [best_speedup]
 * @property {Report} [report]
 * @property {{workload: Workload, evaluation: Evaluation, baselines: Baselines, device: Device}} [answer]
 * @property {{detail: string, title: string}} [problem]
 *
 * @typedef {{job_id: string, accepted_at: string, status: State}} JobStatus
 *
 * @typedef {{first_row: number, end_row: number, first_col: number, end_col: number, grid_rows: number,
 *   grid_cols: number, counts: number[]}} Density
 */

export {};
