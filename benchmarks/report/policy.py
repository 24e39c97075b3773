"""What is told of a policy: gains at equal seconds, its samples one by one, what it needs of the matrix, tokens a second."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.measure.invention import invented
from benchmarks.report.intervals import Interval, geometric_interval, mean_interval
from benchmarks.report.results import NNZ_CLASSES, SHIPPED, Json, geometric_mean, policy_of

BEST_OF = (1, 4, 16, 64)
UNUSUAL = {
    "samples": "as trained",
    "samples_permuted": "rows and columns permuted",
    "samples_shuffled": "another matrix shown",
    "samples_none": "no matrix shown",
    "samples_temperature": "at another temperature",
}
"""Kind of result file -> what the policy was shown."""

ARM_WORDS: Mapping[str, str] = {
    "on": "the tuner without its early end",
    "auto": "with the policy",
    "mutate": "and mutators",
    "down": "the policy's engine never comes up",
    "random": "a policy of random weights",
    "polish": "the tuner, and in the end its fastest programs with blocks of sizes that no family offers",
    "draws": "programs of the families' grid by chance, until the seconds are over",
    "mutants": "tuner and mutators, no policy",
    "edits": "`auto`, and the policy is shown the fastest programs, too",
    "unreported": "`edits`, shown these programs without what was measured of them",
    "sample": "the policy alone",
    "shuffled": "the policy alone, shown another matrix of the run",
    "blind": "the policy alone, shown no matrix",
    "learned": "`auto` with another policy",
    "sample-learned": "that policy alone",
    "warm": "`auto`, and the policy's samples are warm, without unlikely tokens",
    "sample-warm": "the policy alone, likewise",
    "checked": "`auto`, and a sample ends where its directives are illegal",
    "sample-checked": "the policy alone, likewise",
    "valued": "`auto`, and a value model chooses among four times as many samples",
    "sample-valued": "the policy alone, likewise",
}
"""Of `benchmarks.tuning.equal_seconds`, beside the tuner."""

EQUAL_SECONDS = (
    "Every arm has the GPU for the same seconds on each matrix, sampling and grading both counted; then the arms' winners are timed in turns. "
    "Gain: the tuner's time over the arm's, geometric mean (95 % over matrices, by bootstrap), above 1 the arm is faster; an arm where nothing passed "
    f"counts as the best routine. {' '.join(f'{arm}: {words}.' for arm, words in ARM_WORDS.items())}"
)
SAMPLES = (
    "Single samples at temperature 1, validation and generated matrices. In brackets 95 % over matrices, by bootstrap. Best of k: in the mean of the "
    "groups of k samples in their order, times of the finals where a sample has them, else brief ones; a group without any that passed "
    "counts as the best routine. Different: texts that passed, of all samples of a workload, mean. Invented: samples that passed and are no family's text, numbers "
    "masked, or one outside its grid, with machine code that no family program has which was compiled for the matrix, the most alike one among them."
)
INTERPRETED = (
    "Single samples of matrices of up to 60,000 nonzeros, of the validation side and at temperature 1 where nothing else is said, each different text graded on the interpreter: whether it is right, without a time. "
    "Samples as often as they were drawn; different: texts that pass."
)
ENGINE = (
    "Prompts of validation matrices in the generator's engine, all at once. as shipped: 64 samples at a time in a tenth of the memory. The process that serves users has one thread "
    "for all samples: what a token takes of it bounds tokens a second."
)


def arm_gains(rows: Iterable[Json]) -> Json:
    """By kind of workload, arm and nnz class: gain over `families` with its interval, and of how many matrices. A workload
    that was searched with several seeds counts once, by their geometric mean."""
    gains: dict[str, dict[str, dict[tuple[str, str], tuple[int, list[float]]]]] = {}
    for row in rows:
        own = row.get("arms", {}).get("families", {}).get("us")
        for arm, told in row.get("arms", {}).items():
            if own and told["us"]:
                of_arm = gains.setdefault(row["workload"], {}).setdefault(arm, {})
                workload = (str(row["name"]), str(row.get("of", row["workload"])))
                of_arm.setdefault(workload, (row["nnz"], []))[1].append(own / told["us"])
    return {
        kind: {arm: _by_class(_over_seeds(found.values())) for arm, found in arms.items() if arm != "families"}
        for kind, arms in gains.items()
    }


def _over_seeds(found: Iterable[tuple[int, Sequence[float]]]) -> list[tuple[int, float]]:
    return [(nnz, geometric_mean(gains)) for nnz, gains in found]


def _by_class(gains: Sequence[tuple[int, float]]) -> Json:
    """Of all matrices, and of each class that has any."""
    classes = {each.name: [gain for nnz, gain in gains if each.low <= nnz < each.high] for each in NNZ_CLASSES}
    groups = {"all": [gain for _, gain in gains]} | {name: found for name, found in classes.items() if found}
    return {name: _told(geometric_interval(found), len(found)) for name, found in groups.items()}


def _told(interval: Interval, matrices: int) -> Json:
    mean, low, high = (round(value, 4) for value in interval)
    return {"gain": mean, "low": low, "high": high, "matrices": matrices}


def equal_seconds_lines(result: Json) -> list[str]:
    """A kind of workload and arm a line, and an arm a line over all kinds."""
    classes = ["all", *(each.name for each in NNZ_CLASSES)]
    rows, kinds = result["rows"], result["kinds"]
    if len(kinds) > 1:
        together = [{**row, "of": row["workload"], "workload": "all workloads"} for row in rows]
        rows, kinds = [*rows, *together], {**kinds, **arm_gains(together)}
    searches = _searches(rows)
    policies = ", learned ".join(name for name in (result["policy"], result.get("learned")) if name)
    seeds = len({row.get("seed", 0) for row in rows})
    often = f", {seeds} seeds" if seeds > 1 else ""
    lines = [
        f"{result['seconds_each']:g} s a workload and arm{often}; policy {policies}, cost model {result['cost_model']}.",
        "",
        f"| workload | arm | {' | '.join(classes)} | candidates | seconds | won by |",
        "|---" * (len(classes) + 5) + "|",
    ]
    for kind, arms in kinds.items():
        for arm, found in {"families": {}, **arms}.items():
            gains = ["1" if arm == "families" else _gain(found.get(name)) for name in classes]
            lines.append(f"| {kind} | {arm} | {' | '.join(gains)} | {searches(kind, arm)} |")
    return lines


def _gain(found: Json | None) -> str:
    if found is None:
        return "-"
    return f"{found['gain']:.3f}x ({found['low']:.3f} to {found['high']:.3f}), {found['matrices']}"


def _searches(rows: Sequence[Json]) -> Callable[[str, str], str]:
    def told(kind: str, arm: str) -> str:
        of = [row["arms"][arm] for row in rows if row["workload"] == kind and arm in row.get("arms", {})]
        by = sorted({each["by"] for each in of if each["by"]})
        winners = ", ".join(f"{source} {sum(each['by'] == source for each in of)}" for source in by)
        mean = len(of) or 1
        cells = [
            f"{sum(each['candidates'] for each in of) / mean:.0f}",
            f"{sum(each['seconds'] for each in of) / mean:.1f}",
        ]
        return " | ".join([*cells, winners or "-"])

    return told


def sample_lines(results: Iterable[Json]) -> list[str]:
    """Of the files of samples, those under other conditions after those as trained; empty without any."""
    known = [each for each in results if each.get("kind") in UNUSUAL and each["device"]["kind"] == "cuda"]
    order = list(UNUSUAL)
    known.sort(key=lambda each: (order.index(each["kind"]), each["operation"] != "spmv", each["element_type"]))
    ks = ", ".join(map(str, BEST_OF))
    lines = [
        f"| workload | shown | device | matrices | pass@1 | worst | best of {ks} over the tuner's best | best of {ks} over the best routine "
        "| different of n | invented | nats a program |",
        "|---" * 11 + "|",
    ]
    for result in known:
        rows = [
            row
            for row in result["rows"]
            if "failed" not in row and row["split"] != "train" and row["policy"]["outcomes"]
        ]
        if rows:
            lines.append(f"| {' | '.join(_sample_cells(result, rows))} |")
    return [SAMPLES, "", *lines] if len(lines) > 2 else []


def interpreted_lines(results: Iterable[Json]) -> list[str]:
    """Of the files of samples that the interpreter graded, a kind of workload a line; empty without any."""
    lines = [
        "| workload | matrices | samples of each | pass@1 | pass@4 | different of these | policy, commit | file |",
        "|---" * 8 + "|",
    ]
    for result in results:
        if result.get("kind") == "sample_failures":
            lines += [f"| {' | '.join(_interpreted_cells(result, row))} |" for row in result["rows"]]
    return [INTERPRETED, "", *lines] if len(lines) > 2 else []


def _interpreted_cells(result: Json, row: Json) -> list[str]:
    columns = f", {row['num_dense_cols']} columns" if row["operation"] == "spmm" and "num_dense_cols" in row else ""
    total, matrices = sum(row["outcomes"].values()), result["matrices"]
    different = row.get("different")
    unusual = ", rows and columns permuted" if "permuted" in result else ""
    unusual += f", temperature {_warmth(result)}" if "temperature" in result else ""
    unusual += f", {result['split']} side" if "split" in result else ""
    return [
        f"{row['operation']} {row['element_type']}{columns}{unusual}",
        str(matrices),
        f"{total / matrices:.0f}",
        f"{row['outcomes'].get('passed', 0) / total:.1%}",
        f"{row['pass_at']['4']:.1%}" if "pass_at" in row else "-",
        "-" if different is None else f"{sum(different.values()) / matrices:.1f}",
        f"{result['policy']}, {result['commit'][:8]}",
        f"[{result['file'].split('/')[-1].removesuffix('.json')}](results/{result['file']})",
    ]


def _warmth(result: Json) -> str:
    least = f", min-p {result['min_p']:g}" if "min_p" in result else ""
    return f"{result['temperature']:g}{least}"


def _sample_cells(result: Json, rows: Sequence[Json]) -> list[str]:
    columns = f", {result['num_dense_cols']} columns" if result["operation"] == "spmm" else ""
    shown = UNUSUAL[result["kind"]] + (f" (seed {result['permuted']})" if "permuted" in result else "")
    shown += f" ({_warmth(result)})" if "temperature" in result else ""
    if policy_of(result) != SHIPPED:
        shown += f", {policy_of(result)}"
    passed = [_share(row["policy"]["outcomes"]) for row in rows]
    return [
        f"{result['operation']} {result['element_type']}{columns}",
        shown,
        result["device"]["name"],
        str(len(rows)),
        _percent(mean_interval(passed)),
        f"{min(passed):.0%}",
        *_cells_of_single_samples([row for row in rows if "samples" in row["policy"]]),
        _nats(result.get("nats")),
    ]


def _cells_of_single_samples(rows: Sequence[Json]) -> list[str]:
    """Early files kept no single samples."""
    if not rows:
        return ["-"] * 4
    samples = [row["policy"]["samples"] for row in rows]
    different = [len({each["text"] for each in found if each["outcome"] == "passed"}) for found in samples]
    new = [sum(map(invented, found)) / len(found) for found in samples]
    tuned = [(row, row["families"]["best"]["us"]) for row in rows if row["families"]["best"]]
    routines = [(row, row["best_baseline"]["us"]) for row in rows]
    return [
        _best_of(tuned),
        _best_of(routines),
        f"{np.mean(different):.1f} of {len(samples[0])}",
        _percent(mean_interval(new)),
    ]


def _best_of(rows: Sequence[tuple[Json, float]]) -> str:
    cells = []
    for k in BEST_OF:
        gains = [best_of(row["policy"]["samples"], k, us, row["best_baseline"]["us"]) for row, us in rows]
        found = [gain for gain in gains if gain is not None]
        cells.append(_times(geometric_interval(found)) if found else "-")
    return ", ".join(cells)


def best_of(samples: Sequence[Mapping[str, Any]], k: int, against_us: float, routine_us: float) -> float | None:
    """A time over that of the best of k samples, geometric mean of the groups of k; None of fewer than k samples."""
    groups = [samples[start : start + k] for start in range(0, len(samples) - k + 1, k)]
    if not groups:
        return None
    fastest = [min((each["us"] for each in group if "us" in each), default=routine_us) for group in groups]
    return against_us / geometric_mean(fastest)


def _share(outcomes: Mapping[str, int]) -> float:
    return outcomes.get("passed", 0) / sum(outcomes.values())


def _percent(interval: Interval) -> str:
    mean, low, high = interval
    return f"{mean:.1%} ({low:.1%} to {high:.1%})"


def _times(interval: Interval) -> str:
    mean, low, high = interval
    return f"{mean:.2f}x ({low:.2f} to {high:.2f})"


def _nats(nats: Mapping[str, Mapping[str, float]] | None) -> str:
    return ", ".join(f"{kind} {told['program']:.2f}" for kind, told in nats.items()) if nats else "-"


def rank_lines(result: Json) -> list[str]:
    """A number of processes and a size of micro-batches a line; early files did not tell the size."""
    lines = [
        f"{result['records']} programs of {result['runs'][0]['tokens']:,} tokens, {result['updates']} updates.",
        "",
        "| processes | tokens of a micro-batch | GiB at most | seconds an update, median | first | speed over the first | weights moved | apart from the first |",
        "|---" * 8 + "|",
    ]
    for run in result["runs"]:
        peak_gib = run.get("peak_gib")
        lines.append(
            f"| {run['processes']} | {run.get('micro_batch_tokens', 2048):,} | {'-' if peak_gib is None else f'{peak_gib:.1f}'} | {run['median_s']:.2f} | {run['update_s'][0]:.2f} | {run['over_the_first']:.2f}x | "
            f"{run['moved']:.4f} | {run['apart_from_the_first']:.2g} |"
        )
    return lines


def rate_lines(result: Json) -> list[str]:
    """A mode of the engine a line."""
    lines = [
        "| mode | samples at a time | share of the memory | samples | tokens a sample, median, most | seconds | samples a second | tokens a second | us of the generator's process a token |",
        "|---" * 9 + "|",
    ]
    for row in result["rows"]:
        lengths, own_us = row["tokens_of_a_sample"], row.get("own_us_a_token")
        lines.append(
            f"| {row['mode']} | {row['at_once']:,} | {row['gpu_memory']:.0%} | {row['samples']:,} | {lengths['median']:.0f}, {lengths['most']:,} | "
            f"{row['seconds']:.1f} | {row['samples_a_second']:.1f} | {row['tokens_a_second']:,.0f} | {'-' if own_us is None else f'{own_us:.1f}'} |"
        )
    return lines
