"""What is told of trainings that differ in the matrix encoder alone."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from benchmarks.report.results import Json

ENCODERS = (
    "Supervised trainings of equal seconds from one language model, which differ in what the policy is shown of a matrix; then samples for validation workloads. "
    "Measured: samples whose text was measured for the same workload before, and workloads that have one; an unknown text may be fast or slow. Of the fastest: the time "
    "of a workload's fastest measured program over that of its best measured sample, geometric mean of those workloads, at most 1. profiled: structural features, "
    "curves of the rows, dense columns and device, and windows of rows. structural: without curves, columns and device. features: as profiled, without windows. "
    "shuffled: shown a made matrix instead. blind: shown nothing of the matrix. sinusoidal: position codes of 128 nonzeros, as in SparseRL, or of 1,024. min_max, raw_indices: 128 nonzeros as shares of the matrix, "
    "or as they are. Nats are of validation examples. Means over seeds, in brackets least and most."
)


def encoder_lines(result: Json) -> list[str]:
    """An encoder a line, in the order of the file; then trainings that failed."""
    rows: list[Json] = [row for row in result["rows"] if "failed" not in row]
    settings = result["settings"]
    lines = [
        f"{settings['seconds']:g} s each, {settings['samples']} samples a workload.",
        "",
        "| encoder | seeds | soft tokens | steps | nats a token | nats a program | workloads | legal | ended | measured | workloads with a measured one "
        "| of the fastest | tokens a sample |",
        "|---" * 13 + "|",
    ]
    for encoder in dict.fromkeys(row["encoder"] for row in rows):
        seeds = [row for row in rows if row["encoder"] == encoder]
        lines.append(f"| {' | '.join(_cells(encoder, seeds))} |")
    failed = [
        f"- {row['encoder']}, seed {row['seed']}, failed: {' '.join(row['failed'].split())}"
        for row in result["rows"]
        if "failed" in row
    ]
    return [*lines, *(["", *failed] if failed else [])]


def _cells(encoder: str, seeds: Sequence[Json]) -> list[str]:
    def over_seeds(name: str, form: str) -> str:
        return _mean_and_range((row[name] for row in seeds), form)

    return [
        encoder,
        str(len(seeds)),
        f"{seeds[0]['soft_tokens']:,}",
        over_seeds("steps", ",.0f"),
        over_seeds("validation_loss", ".4f"),
        ", ".join(f"{kind} {nats:.2f}" for kind, nats in _nats(seeds).items()) or "-",
        over_seeds("workloads", ",.0f"),
        over_seeds("legal_share", ".1%"),
        over_seeds("finished_share", ".1%"),
        over_seeds("known_share", ".1%"),
        over_seeds("known_workloads", ".1%"),
        over_seeds("best_over_oracle", ".3f"),
        over_seeds("mean_tokens", ".0f"),
    ]


def _nats(seeds: Sequence[Json]) -> dict[str, float]:
    """Of a program, by kind of example, mean over seeds."""
    return {kind: fmean(row["nats_a_program"][kind] for row in seeds) for kind in seeds[0]["nats_a_program"]}


def _mean_and_range(found: Iterable[float | None], form: str) -> str:
    """`-` where no seed has it: no sample was measured before."""
    values = [value for value in found if value is not None]
    if not values:
        return "-"
    least, most = f"{min(values):{form}}", f"{max(values):{form}}"
    return f"{fmean(values):{form}}" + ("" if least == most else f" ({least} to {most})")
