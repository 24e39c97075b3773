"""Sections for what is measured beside the suites; each appears only where its result file is there."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from benchmarks.report.at_once import builder_lines, determinism_lines, http_lines, instant_lines
from benchmarks.report.encoders import ENCODERS, encoder_lines
from benchmarks.report.operators import call_lines, epoch_lines, promise_lines, transposed_lines
from benchmarks.report.policy import ENGINE, EQUAL_SECONDS, equal_seconds_lines, rank_lines, rate_lines
from benchmarks.report.results import Json
from benchmarks.report.service import autoscaler_lines, page_lines, soak_lines
from benchmarks.report.solvers import conjugate_lines, programme_lines

MOST_DEEDS = 20
"""Shown of those that were faster..."""
LEAST_OF_A_DEED = 20
"""...and were tried so often."""

EVIDENCE = {
    "tuner": (
        "The search against a sample of its prospects",
        "Of each workload some prospects were measured, likely ones and a random sample of the rest; the tuner is then run on these records, as "
        "if it measured them. Regret: the time of the best program found over the best of the records, less one, after a share of the "
        "programs and after a number of them. Aim: 2 % at 5 % of the cost.",
    ),
    "tuner_grids": (
        "The search against whole grids",
        "Everything that the families offer for a workload was measured; the tuner is then run on these records, as if it "
        "measured them. Regret as above, over the optimum of the grid: what is faster lies outside of it. Times are brief ones, good to a few per "
        "cent. The cost model was fitted to samples of the train matrices.",
    ),
    "cost_elsewhere": (
        "The cost model on another device",
        "The fastest programs of searches that rank by the analytic estimates and of searches that rank by a cost model of another device, over the "
        "best routine of the same run, on matrices that nothing was trained on. Intervals are 95 % over matrices.",
    ),
    "harvest": (
        "What mutators gain",
        "The tuner's best programs of train-side matrices, changed by mutators; what passed was timed at length in turns with its "
        "parent. Faster: share of all mutants, failed ones included.",
    ),
    "mutator_worth": (
        "Mutators chosen by what they won",
        "Of the harvest's single changes the share that makes a program faster by 2 %, each matrix left out of the counts by which its own changes are "
        "weighted. Intervals are 95 % over matrices.",
    ),
    "edits": (
        "Single edits of the tuner's best programs",
        "The tuner's best program of a workload and those within 5 % of it, changed once: by the policy, which is shown program and report, "
        "and by random mutators; what passed was timed at length in turns with its parent. Shares are of all samples, with 95 % intervals over "
        "matrices. unreported: the policy that is shown these programs without their reports. Aim: 85 % pass, and twice the mutators' share is faster by 2 %.",
    ),
    "strategy_worth": (
        "What each strategy is worth",
        "Leave one out: how much slower, in geometric mean, the best recorded program would be without a family. Families "
        "whose parameters cover another's programs hide each other's worth.",
    ),
    "encoders": ("What a policy is shown of a matrix", ENCODERS),
    "equal_seconds": ("Policy and mutators at equal seconds", EQUAL_SECONDS),
    "engine_rate": ("Tokens a second", ENGINE),
    "trainer_ranks": (
        "An update by several processes of a trainer",
        "The same online updates by one process of torchrun and by several, a GPU each, on the same batch; the median leaves the first out, in which the others are told "
        "the whole state. Moved: length of what the updates moved all weights by; apart: of the difference from the first run. Sums are rounded in another order, and a "
        "GPU's arithmetic is bfloat16.",
    ),
    "throughput": (
        "Candidates graded a second",
        "Jobs through a real queue to one evaluator, one matrix each, from the first submission to the last report: opening "
        "the workload, the library's routines, formats, inputs and finals included.",
    ),
    "several_gpus": (
        "Several GPUs",
        "The same jobs through one queue to one evaluator and to more, each on a GPU of its own. Over one: candidates a second over those "
        "of one GPU. Finals over alone: the time of each matrix's fastest program over that of one evaluator alone, geometric mean and "
        "worst. Aim: 1.95x with two, 3.8x with four, finals within 2 %.",
    ),
    "sharing": (
        "Evaluators that share a GPU",
        "The same jobs through one queue to one evaluator and to several that take turns on one GPU; texts that nobody has compiled before, and "
        "every job times the library's routines. Over one: candidates a second over those of one evaluator. GPU busy: NVML's share. "
        "Finals over alone: times of the same programs over those of one evaluator alone, geometric mean over matrices with its 95 % interval; "
        "alone again: one evaluator's second round over its first. Stages: seconds of all jobs, turn is what calls waited for the GPU. "
        "Aim: finals within 1 %, the GPU idle for 20 % at most.",
    ),
    "gates": (
        "ECC and compute-sanitizer",
        "ECC counters as the evaluator reads them around each job. Then memcheck, racecheck and initcheck at once over the fastest program "
        "of each matrix, by the evaluator's own gate with a long limit; a matrix where the library is fastest has no winner to look at.",
    ),
    "repeatability": (
        "Repeatability",
        "Two full runs of the suite. Aim: within 2 % in geometric mean, and within 5 % for more than 95 % of the matrices.",
    ),
    "order_independence": (
        "Order of candidates",
        "The same candidates graded in different orders: no result depends on what ran before.",
    ),
    "fixed_values": (
        "Fixed values",
        'Requests with `values="fixed"`: programs may know the values and compress them without loss.',
    ),
    "instant": (
        "A kernel at once",
        '`search="instant"`, from the pattern in memory to a program that may be launched, milliseconds, medians of the matrices; the '
        "processes have worked before, no queue lies between.",
    ),
    "instant_http": (
        "A kernel at once, over HTTP",
        'What a client waits for `search="instant"` with `Prefer: wait`, on the whole stack: the file is sent and parsed, then HTTP, '
        "Redis and the generator lie between. The aim is of the last column alone.",
    ),
    "device_builders": (
        "Formats built on the device",
        "From CSR in the GPU's memory to the last array of the format, and the same on one thread of the host; medians of the patterns, "
        "in brackets the least and the most.",
    ),
    "determinism": (
        "Equal bits",
        "Winners of searches with `deterministic=true`, or what the cost model chooses so, run again at addresses of their own in "
        "fresh processes.",
    ),
    "transposed_products": (
        "Products with the transpose",
        "The best kernels for A^T x, from a copy and from A as it is stored (shared), over the library's best routine with op(A) = T and "
        "its best on an explicit transpose, timed in turns. Extra: memory beside A's own kernel. With fallback: rows that lose count as 1.",
    ),
    "linear_solvers": (
        "Conjugate gradients",
        "An iteration in float64, the same loop for all, launched call after call and as a captured graph that is replayed: by the tuned "
        "operator, by cupyx with its CSR (which allocates its result: no graph), by the library's best routine, called without Python's checks.",
    ),
    "linear_programs": (
        "First-order linear programmes",
        "An iteration of PDHG in float64, as captured graphs: A x and A^T y by both tuned directions and by the library's plans "
        "(SpMVOp ALG2) for A and for an explicit A^T.",
    ),
    "gcn_epochs": (
        "An epoch of a graph network",
        "PyG's GCNConv by the operator's product, by its own message passing and by torch's CSR: forward, loss, backward, Adam; "
        "medians of epochs in turns.",
    ),
    "operator_calls": (
        "What a call costs the host",
        "Products of a small matrix, one launch each, put on the stream one behind another; least of the means of some turns.",
    ),
    "operator_promises": (
        "What an operator promises",
        "alpha and beta at the price of reading y, replayed graphs, SciPy's solvers, JAX.",
    ),
}
"""Kind of result file -> title and what it shows, in the order of the report."""


def sections(results: Iterable[Json]) -> list[str]:
    """What supports the numbers of the suites."""
    known = list(results)
    lines: list[str] = []
    for kind, (title, intro) in EVIDENCE.items():
        for result in known:
            if result.get("kind") == kind and _is_measured(result):
                shown_as = RENDERED.get(kind, _facts)(result)
                lines += [f"## {title}", "", intro, "", f"{_origin(result)}.", "", *shown_as, ""]
    return lines


def _cost_elsewhere(result: Json) -> list[str]:
    """A kind of workload a line."""
    lines = [
        f"Ranked by {result['cost_model']}.",
        "",
        "| run | matrices | by estimates | by the cost model | gain | lost before fallback |",
        "|---|---|---|---|---|---|",
    ]
    for name, entry in result["kinds"].items():
        over, lost, gain = entry["over_routine"], entry["lost"], entry["gain"]
        lines.append(
            f"| {name} | {entry['matrices']} | {over['estimates']:.2f}x | {over['learned']:.2f}x | {gain['mean']:.3f} "
            f"({gain['low']:.3f} to {gain['high']:.3f}) | {lost['estimates']}, {lost['learned']} |"
        )
    return lines


def _regrets(result: Json) -> list[str]:
    """Mean and 90th percentile of the regret by workload kind."""
    kinds: dict[str, Json] = result["kinds"]
    first = next(iter(kinds.values()))
    heads = [f"{float(share):.0%}" for share in first["regret_at_share"]] + list(first["regret_after"])
    lines = [
        f"Cost model {result['cost_model']}, {result['split']} matrices; mean (90th percentile).",
        "",
        f"| workload | workloads | programs of each | {' | '.join(heads)} | where it stops | after | GPU s | exhaustive, s |",
        "|---" * (len(heads) + 7) + "|",
    ]
    for name, entry in kinds.items():
        cells = [*entry["regret_at_share"].values(), *entry["regret_after"].values(), entry["regret_at_stop"]]
        regrets = " | ".join(f"{cell['mean']:.1%} ({cell['p90']:.1%})" for cell in cells)
        lines.append(
            f"| {name} | {entry['workloads']} | {entry['prospects_median']:,.0f} | {regrets} | "
            f"{entry['asked_until_stop_median']:.0f} | {shown(entry['seconds_until_stop_median'])} | "
            f"{shown(entry['seconds_exhaustive_median'])} |"
        )
    return lines


def _regrets_by_matrix(result: Json) -> list[str]:
    """Whole grids are few: each is shown."""
    lines = [
        "",
        "| matrix | split | nnz | workload | programs | grid's fastest, us | of family | within 5 % of it | the tuner stops after "
        "| behind | place |",
        "|---" * 11 + "|",
    ]
    for row in result["rows"]:
        lines.append(
            f"| {row['name']} | {row['split']} | {row['nnz']:,} | {row['workload']} | {row['prospects']:,} | {row['oracle_us']:.3f} | "
            f"{row['oracle_family']} | {row['within_5_percent']} | {row['asked_until_stop']} | {row['regret_at_stop']:.1%} | "
            f"{row['place_at_stop']} |"
        )
    return [*_regrets(result), *lines]


def _harvest(result: Json) -> list[str]:
    """By kind of workload and size, by mutator, and the deeds that were faster most often."""
    over_tuner = result["over_tuner"]
    lines = [
        f"{result['workloads']} workloads, {result['parents']} parents. Each workload's best child over the tuner's best program: "
        f"{over_tuner['geometric_mean']:.3f}x in geometric mean, {max(over_tuner['by_workload'].values()):.3f}x at most.",
        "",
    ]
    for title, groups in (("workload", result["by_workload_and_size"]), ("mutator", result["by_mutator"])):
        lines += [*_shares_table(title, {**groups, "all": result["all"]}), ""]
    if "likely" in result:
        lines += [
            *_shares_table("what a search ends with", {**result["likely_by_workload"], "all": result["likely"]}),
            "",
        ]
    deeds = {
        name: entry
        for name, entry in result["by_deed"].items()
        if entry["faster_2"] > 0 and entry["mutants"] >= LEAST_OF_A_DEED
    }
    best = sorted(deeds, key=lambda name: -deeds[name]["faster_2"])[:MOST_DEEDS]
    return lines + _shares_table("deed, alone", {name: deeds[name] for name in best}) if best else lines[:-1]


def _mutator_worth(result: Json) -> list[str]:
    """The shares, and what was counted."""
    names = {
        "as_harvested": "one to three changes, all alike",
        "single_alike": "one change, all alike",
        "single_by_worth": "one change, by what won on the other matrices",
    }
    lines = [f"{result['matrices']} train-side matrices.", "", "| chosen | faster by 2 % |", "|---|---|"]
    lines += [f"| {told} | {_share_over_matrices(result['shares'][name])} |" for name, told in names.items()]
    lines += ["", "| operation | mutator | single changes | faster by 2 % |", "|---|---|---|---|"]
    for operation, counts in result["counts"].items():
        lines += [f"| {operation} | {name} | {tried} | {won} |" for name, (tried, won) in counts.items()]
    return lines


def _edits(result: Json) -> list[str]:
    """An arm a line, by kind of workload."""
    named = f", {result['named_parents']} shown with names (`//@ let`)" if "named_parents" in result else ""
    lines = [
        f"Policy {result['policy']}, {result['side']} matrices, {result['samples_a_parent']} samples a parent and arm: {result['workloads']} "
        f"workloads, {result['parents']} parents, of which {result['refused_parents']} could not be shown or graded{named}.",
        "",
        "| workload | by | samples | passed | and differs | other PTX | faster by 2 % | by 5 % | 90 % gain less than | best |",
        "|---" * 10 + "|",
    ]
    for name, compared in result["summary"].items():
        for arm in ("policy", "unreported", "mutators"):
            entry = compared.get(arm, {"samples": 0})
            if not entry["samples"]:
                continue
            shares = " | ".join(
                _share_over_matrices(entry[key]) for key in ("passed", "differs", "other_code", "faster_2", "faster_5")
            )
            lines.append(
                f"| {name} | {arm} | {entry['samples']:,} | {shares} | {shown(entry['gain_quantiles'].get('0.9'))} | "
                f"{shown(entry['best_gain'])} |"
            )
    over = result["summary"]["all"].get("faster_2_over_mutators")
    if over is not None and over["ratio"] is not None:
        lines += [
            "",
            f"Faster by 2 %, policy over mutators: {over['ratio']:.2f} ({shown(over['low'])} to {shown(over['high'])}).",
        ]
    return lines


def _share_over_matrices(entry: Json) -> str:
    return f"{entry['mean']:.1%} ({entry['low']:.1%} to {entry['high']:.1%})"


def _shares_table(title: str, groups: Mapping[str, Json]) -> list[str]:
    lines = [
        f"| {title} | mutants | passed | faster by 2 % | by 5 % | median of parent over child | best |",
        "|---" * 7 + "|",
    ]
    for name, entry in groups.items():
        lines.append(
            f"| {name} | {entry['mutants']:,} | {entry['passed']:.0%} | {entry['faster_2']:.1%} | {entry['faster_5']:.1%} | "
            f"{shown(entry['median_gain'])} | {shown(entry['best_gain'])} |"
        )
    return lines


def _worth(result: Json) -> list[str]:
    """Families by workload kind, those that lose most first; families without any loss in one line."""
    lines = ["| workload | family | fastest on | loss without it | largest loss |", "|---|---|---|---|---|"]
    idle: list[str] = []
    for kind, families in result["kinds"].items():
        for entry in families:
            if entry["wins"]:
                lines.append(
                    f"| {kind} | {entry['family']} | {entry['wins']} of {entry['measured']} | {entry['loss']:.2%} | "
                    f"{entry['largest_loss']:.1%} |"
                )
        without = [entry["family"] for entry in families if not entry["wins"]]
        if without:
            idle.append(f"Nowhere the fastest, {kind}: {', '.join(sorted(without))}.")
    return [*lines, *(line for text in idle for line in ("", text))]


def _fixed_values(result: Json) -> list[str]:
    """Each workload with open and with fixed values."""
    lines = [
        "| matrix | type | nnz | best routine us | any values us | family | fixed values us | family | fixed over any |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        if "failed" in row:
            continue
        open_, fixed = row["any"]["best"], row["fixed"]["best"]
        ours = [f"{best['us']:.2f} | {best['family']}" if best else "- | -" for best in (open_, fixed)]
        gain = f"{open_['us'] / fixed['us']:.2f}x" if open_ and fixed else "-"
        lines.append(
            f"| {row['name']} | {row['element_type']} | {row['nnz']:,} | {row['best_baseline']['us']:.2f} | "
            f"{' | '.join(ours)} | {gain} |"
        )
    return lines


def services(results: Iterable[Json]) -> list[str]:
    """The service as a whole: what mutators write, answers over HTTP, memory, the command line, the interpreter's
    estimates."""
    known = list(results)
    return [
        *_mutants(known),
        *_end_to_end(known),
        *soak_lines(known),
        *autoscaler_lines(known),
        *page_lines(known),
        *_budgets(known),
        *_memory(known),
        *_command_line(known),
        *_traffic_models(known),
    ]


def _is_measured(result: Json) -> bool:
    """Estimates of the interpreter, and calls of a driver that does nothing, are not shown; nor is a comparison of encoders
    from before its file had rows."""
    device = result.get("device")
    if result.get("kind") == "operator_calls":
        return "python_us_a_call" in result
    if result.get("kind") == "encoders" and "rows" not in result:
        return False
    return not isinstance(device, dict) or device.get("kind") == "cuda"


def _origin(result: Json) -> str:
    device = result.get("device", "")
    parts = [result.get("date", ""), _commits(result)]
    parts += [device["name"] if isinstance(device, dict) else device]
    origin = ", ".join(part for part in parts if part)
    return f"{origin}. `{result['command']}`" if "command" in result else origin


def _commits(result: Json) -> str:
    """That of the file; where rows were measured at several, each with its rows, the most first."""
    rows = result.get("rows", ())
    names: dict[str, list[str]] = {}
    for row in rows if isinstance(rows, list) else ():
        if "commit" in row:
            names.setdefault(row["commit"], []).append(row["name"])
    if len(names) > 1:
        most_first = sorted(names.items(), key=lambda each: -len(each[1]))
        return "commits " + "; ".join(f"{commit} ({', '.join(found)})" for commit, found in most_first)
    return f"commit {next(iter(names), result['commit'])}" if "commit" in result else ""


RENDERED: Mapping[str, Callable[[Json], list[str]]] = {
    "tuner": _regrets,
    "tuner_grids": _regrets_by_matrix,
    "cost_elsewhere": _cost_elsewhere,
    "harvest": _harvest,
    "mutator_worth": _mutator_worth,
    "edits": _edits,
    "strategy_worth": _worth,
    "encoders": encoder_lines,
    "equal_seconds": equal_seconds_lines,
    "engine_rate": rate_lines,
    "trainer_ranks": rank_lines,
    "fixed_values": _fixed_values,
    "instant_http": http_lines,
    "instant": instant_lines,
    "device_builders": builder_lines,
    "determinism": determinism_lines,
    "transposed_products": transposed_lines,
    "linear_solvers": conjugate_lines,
    "linear_programs": programme_lines,
    "gcn_epochs": epoch_lines,
    "operator_calls": call_lines,
    "operator_promises": promise_lines,
}
"""How a kind is shown; the others as lists and tables of what is in the file."""

_ORIGIN_KEYS = ("kind", "file", "date", "commit", "device", "command", "python", "cpu_cores")


def _facts(result: Json) -> list[str]:
    """The file's single values as a list, its lists of records as tables."""
    facts = flat({name: value for name, value in result.items() if name not in _ORIGIN_KEYS})
    lines = [f"- {_words(name)}: {shown(value)}" for name, value in facts.items()]
    for name, value in result.items():
        if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
            lines += ["", *_table(_words(name), [flat(entry) for entry in value])]
    return lines


def _table(name: str, records: list[dict[str, Any]]) -> list[str]:
    columns = list(dict.fromkeys(column for record in records for column in record))
    lines = [f"{name}:", "", f"| {' | '.join(map(_words, columns))} |", "|---" * len(columns) + "|"]
    for record in records:
        cells = [shown(record[column]) if column in record else "-" for column in columns]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Single values by their path; lists and longer texts are left out."""
    values: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            values |= flat(value, f"{prefix}{name} ")
        elif not isinstance(value, list) and not (isinstance(value, str) and len(value) > 80):
            values[f"{prefix}{name}"] = value
    return values


def shown(value: Any) -> str:
    """A value for people: four digits, no more."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _mutants(results: list[Json]) -> list[str]:
    """Right or not is for any device to say."""
    lines: list[str] = []
    for result in results:
        if result.get("kind") != "mutants":
            continue
        summary = result["summary"]
        lines += [
            f"## Mutants, judged by the {result['device']['name']}",
            "",
            f"{summary['winners']} family winners of {summary['families']} families, each changed by every mutator; "
            f"{result['date']}, commit {result['commit']}. `{result['command']}`.",
            "",
            "| mutator | mutants | compiled, within the contract | right | other machine code |",
            "|---|---|---|---|---|",
        ]
        for name, entry in summary["mutators"].items():
            shares = " | ".join(f"{entry[share]:.1%}" for share in ("compiled", "passed", "other_code"))
            lines.append(f"| {name} | {entry['mutants']:,} | {shares} |")
        lines.append("")
    return lines


def _end_to_end(results: list[Json]) -> list[str]:
    lines: list[str] = []
    for result in results:
        if result.get("kind") != "end_to_end":
            continue
        lines += [f"## From POST to answer, {result['device']['name']}", ""]
        lines += [
            f"{result['date']}, commit {result['commit']}; the stack was ready after {result['ready_s']:.0f} s.",
            "",
        ]
        lines += ["| matrix | nnz | candidates | first graded s | answer s | answer |", "|---|---|---|---|---|---|"]
        for row in result["requests"]:
            speedup = f", {row['speedup_over_best']:.2f}x" if row["speedup_over_best"] else ""
            lines.append(
                f"| {row['name']} | {row['nnz']:,} | {row['candidates']} | {row['first_graded_s']:.2f} | "
                f"{row['seconds']:.1f} | {row['answer']}{speedup} |"
            )
        learning = result["learning"]
        lines += ["", f"Learning: policy version {learning['version']} served after {learning['seconds']:.0f} s and "
                  f"{learning['requests']} requests of {learning['samples_a_request']} samples; candidates carried "
                  f"versions {', '.join(map(str, learning['versions_sampled']))}.", ""]  # fmt: skip
    return lines


def _budgets(results: list[Json]) -> list[str]:
    lines: list[str] = []
    for result in results:
        if result.get("kind") != "budgets":
            continue
        lines += [
            "## Requests beyond their budget",
            "",
            f"{result['date']}, commit {result['commit']}; {result['graded_on']}, {result['machine']}, load average "
            f"{result['load_average']:.1f}. `{result['command']}`.",
            "",
            "| request | bytes | budget s | ended after s | it said | a job of a few rows behind it: s |",
            "|---|---|---|---|---|---|",
        ]
        for row in result["requests"]:
            lines.append(
                f"| {row['request']} | {row['body_bytes']:,} | {result['budget_s']:g} | {row['ended_s']:.1f} | "
                f"{row['said']} | {row['small_ended_s']:.1f} |"
            )
        lines.append("")
    return lines


def _memory(results: list[Json]) -> list[str]:
    lines: list[str] = []
    for result in results:
        if result.get("kind") != "memory":
            continue
        lines += ["## Memory of the generator", "", f"Idle: {result['idle_bytes'] / 2**20:.0f} MiB.", ""]
        lines += ["| request | nnz | pattern MiB | peak above idle MiB | ratio |", "|---|---|---|---|---|"]
        for row in result["uploads"]:
            pattern, peak = row["pattern_bytes"], row["accepted_peak_bytes"]
            lines.append(
                f"| {row['name']} | {row['nnz']:,} | {pattern / 2**20:.1f} | {peak / 2**20:.1f} | {peak / pattern:.1f}x |"
            )
        lines.append("")
    return lines


def _command_line(results: list[Json]) -> list[str]:
    lines: list[str] = []
    for result in results:
        if result.get("kind") != "command_line":
            continue
        lines += ["## Start of the command line", ""]
        lines += [
            f"{result['date']}, commit {result['commit']}; {result['machine']}, load average {result['load_average']:.1f}; "
            f"medians of {result['runs']} runs. `{result['command']}`.",
            "",
            "| invocation | s | worst s | processor s |",
            "|---|---|---|---|",
        ]
        for row in result["invocations"]:
            seconds = f"{row['wall_s']:.2f} | {row['wall_worst_s']:.2f} | {row['processor_s']:.2f}"
            lines.append(f"| {row['invocation']} | {seconds} |")
        lines.append("")
    return lines


def _traffic_models(results: list[Json]) -> list[str]:
    models = sorted((result for result in results if result.get("kind") == "traffic_model"), key=lambda r: r["model"])
    if not models:
        return []
    device = models[0]["measured_on"]
    lines = [
        "## The interpreter's traffic model",
        "",
        f"Estimates against times of an {device}, float32 SpMV, on patterns",
    ]
    lines += ["that no constant was fitted to (`python -m benchmarks.measure.calibrate_traffic`).", ""]
    lines += [
        "| model | patterns | programs | median error | rank correlation within a pattern | its pick over the best |"
    ]
    lines += ["|---|---|---|---|---|---|"]
    for result in models:
        judged = result["validation"]
        lines.append(
            f"| {result['model']} | {judged['patterns']} | {judged['programs']} | {judged['median_relative_error']:.0%} "
            f"| {judged['rank_correlation_within_a_pattern']:.2f} | {judged['time_of_the_pick_over_the_best']:.2f}x |"
        )
    return [*lines, ""]
