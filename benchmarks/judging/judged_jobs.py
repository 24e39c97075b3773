"""Grades the jobs of a file with the evaluator of one source tree: what `benchmarks.judging.judge` compares between two trees.

    PYTHONPATH=TREE:TREE/proto python JUDGED_JOBS.py JOBS.json OUT.json

JOBS.json: `{"pack": FILE, "matrices": [names], "warm_up": job, "rounds": [[job, ...], ...]}`, the jobs as messages. Run
as a file, so that `benchmarks` and everything else is the tree's own.
"""

import argparse
import json
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

WARM_UP_S = 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    # The file's own folder must not come before the tree.
    sys.path = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]
    from sparsesmith_proto.evaluation import EvaluationJob

    has_rooms = find_spec("benchmarks.measure") is not None
    suites = import_module("benchmarks.matrices.suites" if has_rooms else "benchmarks.suites")
    throughput = import_module("benchmarks.measure.throughput" if has_rooms else "benchmarks.throughput")

    asked = json.loads(options.jobs.read_text(encoding="utf-8"))
    sources = {source.name: source for source in suites.core_sources(Path(asked["pack"]))}
    rounds = []
    # An older tree has a name of its own for one.
    one = throughput.evaluators(1) if hasattr(throughput, "evaluators") else throughput._evaluator()
    with one as (patterns, queue):
        for name in asked["matrices"]:
            patterns.put(sources[name].load().pattern)
        throughput.graded([EvaluationJob.model_validate(asked["warm_up"])], queue, WARM_UP_S)
        for jobs in asked["rounds"]:
            messages = [EvaluationJob.model_validate(job) for job in jobs]
            began = time.monotonic()
            reports = throughput.graded(messages, queue, 600)
            rounds.append({"seconds": time.monotonic() - began, "reports": [_report(report) for report in reports]})
    options.out.write_text(json.dumps(rounds), encoding="utf-8")


def _report(report: Any) -> dict[str, Any]:
    return {
        "job_id": report.job_id,
        "seconds": report.seconds,
        "outcomes": [evaluation.outcome.model_dump() for evaluation in report.evaluations],
    }


if __name__ == "__main__":
    main()
