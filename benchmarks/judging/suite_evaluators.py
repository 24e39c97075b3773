"""Other suites' own evaluators, asked about exported answers: KernelBench's from a checkout, flashinfer-bench's package.

Neither is a dependency: a checkout is named, the package is imported where it is installed. Both run references and
answers in the asking process, unconfined, as those suites do.
"""

import importlib
import importlib.util
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from sparsesmith.operations.imported.card import Card

CORRECT_TRIALS, TIMED_TRIALS = 5, 100
"""As KernelBench's own scripts ask for."""
LANGUAGE_MODEL_CLIENTS = {"openai": "OpenAI", "litellm": "completion", "dotenv": "load_dotenv"}
"""What KernelBench imports for its samples, and no evaluation calls: left empty where it is not installed."""


def asked_kernelbench(checkout: Path, reference: str, answer: str, device: int = 0) -> dict[str, Any]:
    """What KernelBench says of a module with `ModelNew` for a problem. Raises ImportError where the checkout is none."""
    evaluation = _kernelbench(checkout)
    with tempfile.TemporaryDirectory() as build:
        result = evaluation.eval_kernel_against_ref(
            reference,
            answer,
            num_correct_trials=CORRECT_TRIALS,
            num_perf_trials=TIMED_TRIALS,
            measure_performance=True,
            build_dir=build,
            device=device,
        )
    if result is None:
        return {"agrees": False, "said": "it gave no result"}
    told = {name: str(value)[:300] for name, value in result.metadata.items()}
    return {
        "agrees": bool(result.compiled and result.correctness),
        "said": told,
        "theirs_ms": getattr(result, "runtime", None),
        "reference_ms": getattr(result, "ref_runtime", None),
    }


def _kernelbench(checkout: Path) -> Any:
    """Its module `eval`: of the package `kernelbench`, in older checkouts of `src`."""
    packages = {"kernelbench": checkout / "src", "src": checkout}
    for package, folder in packages.items():
        if (folder / package / "eval.py").is_file():
            _leave_clients_empty()
            if str(folder) not in sys.path:
                sys.path.insert(0, str(folder))
            return importlib.import_module(f"{package}.eval")
    raise ImportError(f"{checkout} is no checkout of KernelBench: neither src/kernelbench/eval.py nor src/eval.py")


def _leave_clients_empty() -> None:
    for name, attribute in LANGUAGE_MODEL_CLIENTS.items():
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            module: Any = ModuleType(name)
            setattr(module, attribute, lambda *_, **__: None)
            sys.modules[name] = module


def suite_workload(card: Card, definition: Mapping[str, Any], axes: Mapping[str, int]) -> dict[str, Any]:
    """A workload in flashinfer-bench's fields, of its own names: numbers as the task has them, arrays at random."""
    variable = [name for name, axis in definition["axes"].items() if axis["type"] == "var"]
    sizes = dict(zip(variable, (axes[name] for name in card.axes), strict=True))
    inputs = {
        name: {"type": "scalar", "value": card.scalars[name]} if name in card.scalars else {"type": "random"}
        for name in definition["inputs"]
    }
    return {"uuid": "sparsesmith", "axes": sizes, "inputs": inputs}


def asked_flashinfer(definition: Mapping[str, Any], workload: Mapping[str, Any], answer: str) -> dict[str, Any]:
    """What flashinfer-bench says of a Solution. Raises ImportError where it is not installed."""
    suite: Any = importlib.import_module("flashinfer_bench")
    solution = suite.Solution.model_validate_json(answer)
    name = definition["name"]
    asked = suite.Trace(definition=name, workload=suite.Workload.model_validate(workload))
    traces = suite.TraceSet(
        definitions={name: suite.Definition.model_validate_json(json.dumps(definition))},
        solutions={name: [solution]},
        workloads={name: [asked]},
    )
    benchmark = suite.Benchmark(traces, suite.BenchmarkConfig(use_isolated_runner=True))
    try:
        (found,) = benchmark.run_all(dump_traces=False).traces.get(name, []) or (None,)
    finally:
        if hasattr(benchmark, "close"):
            benchmark.close()
    if found is None or found.evaluation is None:
        return {"agrees": False, "said": "it gave no result"}
    evaluation = found.evaluation
    row: dict[str, Any] = {"agrees": evaluation.status.value == "PASSED", "said": evaluation.status.value}
    if not row["agrees"]:
        row["log"] = evaluation.log[-1000:]
    if evaluation.performance is not None:
        row["theirs_ms"] = evaluation.performance.latency_ms
        row["reference_ms"] = evaluation.performance.reference_latency_ms
    return row
