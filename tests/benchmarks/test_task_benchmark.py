"""The comparison of tasks: what PyTorch is asked for is what the task is, and ratios count what a user gets."""

import argparse
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.measure.task_libraries import ROUTINES, tensors_of
from benchmarks.measure.tasks import again_of, bytes_of, over_starting, rows_kept, told, tuned
from benchmarks.report.tasks import CAUSES, loop_section, tasks_section
from services.evaluator.checking.draws import draw, kinds_of
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.device import wrong_entries
from services.evaluator.devices import device_process
from services.evaluator.jobs import Grader
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.operations.catalogue import our_tasks
from sparsesmith.operations.operation import operands_with_role
from sparsesmith_proto.kernel import DeviceDescription
from tests.operations.checked import make_problem


@pytest.mark.parametrize("name", ROUTINES)
def test_a_librarys_row_computes_the_task(name: str) -> None:
    problem = make_problem(name)
    drawn = draw(kinds_of(problem)[0], problem, np.random.default_rng(2))
    found = ROUTINES[name](tensors_of(drawn.inputs), problem.sizes).numpy()
    (output,) = operands_with_role(problem.operation, "output", "inout")
    if drawn.residuals is None:
        expected = drawn.expected[output.name]
        assert not wrong_entries(found, expected.reference, expected.bound).any()
    else:
        residual = drawn.residuals({output.name: found})[output.name]
        assert (abs(residual.found) <= residual.bound).all()


DEVICE = DeviceDescription(
    kind="cuda", name="a GPU", architecture="sm_90", num_sms=132, copy_bandwidth_gbs=4000.0, versions={}
)
OPTIONS = argparse.Namespace(device="auto", sizes="auto", candidates=8, seconds=60.0, mutants=0)


def make_row(task: str, naive_us: float, best_us: float | None, **more: Any) -> dict[str, Any]:
    best = None if best_us is None else {"us": best_us}
    return {"task": task, "axes": {"n": 8}, "naive_us": naive_us, "best": best, "seconds": 2.0, **more}


def test_ratios_are_geometric_means_of_what_a_user_gets() -> None:
    rows = [
        make_row("sum", 8.0, 1.0, torch_us=2.0, library_us=0.5),
        make_row("sum", 2.0, 1.0, torch_us=2.0, library_us=2.0),
        make_row("relu", 1.0, 4.0),
        make_row("softmax", 100.0, 1.0),
        make_row("dot", 5.0, None),
    ]
    result = told(rows, DEVICE, OPTIONS)
    assert result["over_naive"] == {"all": pytest.approx(16 ** (1 / 3), abs=1e-4), "reductions": 4.0, "others": 1.0}
    assert result["over_torch"] == 2.0
    assert result["over_best_library"] == 1.0
    assert result["slower_than_a_library"] == ["sum {'n': 8}: 0.50"]
    assert (result["tasks"], result["solved"], result["unsolved"]) == (4, 3, ["dot"])


def test_sizes_whose_naive_program_takes_seconds_are_left_out_of_ratios() -> None:
    result = told([make_row("sum", 6e6, 1.0), make_row("sum", 8.0, 2.0)], DEVICE, OPTIONS)
    assert result["over_naive"]["all"] == 4.0


def test_the_report_has_fsrs_numbers_beside_ours_and_says_what_is_estimated() -> None:
    rows = [
        make_row("sum", 8.0, 1.0, library_us=0.5),
        make_row("sum", 2.0, 1.0, library_us=2.0),
        make_row("softmax", 9.0, 3.0),
        make_row("sort", 6.0, 3.0),
        make_row("dot", 5.0, None),
    ]
    rows[3]["best"]["adverse"] = {"draw": "equal", "us": 4.5}
    device = DEVICE.model_copy(update={"kind": "interpreter"})
    text = "\n".join(tasks_section([told(rows, device, OPTIONS)]))
    assert "ESTIMATED" in text
    assert "### a GPU" in text
    assert "| sum | 4.00x | 1.00x | - | 2 of 2 | 40.1x / 41.3x |" in text
    assert "| sort | 2.00x | - | 1.50x | 1 of 1 | - |" in text
    assert "| dot | - | - | - | 0 of 1 | 60x / 102.3x |" in text
    assert "| **all** | 3.17x | 1.00x | | 3 | 4.23x / 5.79x |" in text
    assert "| **seven reductions** | 4.00x | 1.00x | | 2 | 25.81x / 37.00x |" in text
    assert tasks_section([]) == []


def test_rows_of_tasks_whose_times_depend_on_data_carry_both_times() -> None:
    settings = EvaluatorSettings(device="interpreter")
    options = argparse.Namespace(candidates=2, seconds=30.0, mutants=0, most_operations=10**9)
    with closing(device_process(settings)) as process, Compiler(1, timeout_s=120) as compiler:
        process.start()
        device, grader = process.description(), Grader(process, compiler)
        dependent = tuned(grader, "histogram", {"n": 203, "bins": 29}, options, device)
        other = tuned(grader, "copy", {"rows": 3, "cols": 37}, options, device)
    assert dependent["naive_adverse"]["draw"] == dependent["best"]["adverse"]["draw"] == "one_bin"
    assert "naive_adverse" not in other
    assert dependent["device"] == device.name
    assert {"baselines", "draw", "candidates"} <= dependent["stages_s"].keys()
    assert "adverse" not in other["best"]
    ratio = dependent["naive_adverse"]["us"] / dependent["best"]["adverse"]["us"]
    assert told([dependent, other], device, OPTIONS)["over_naive_on_adverse_inputs"] == pytest.approx(ratio, abs=1e-4)
    assert told([other], device, OPTIONS)["over_naive_on_adverse_inputs"] is None


def test_a_size_that_was_left_out_makes_no_task_unsolved_and_changes_of_the_best_have_a_mean_of_their_own() -> None:
    rows = [
        make_row("sum", 8.0, 4.0, mutated={"us": 1.0}),
        make_row("sum", 8.0, 4.0, mutated={"us": 4.0}),
        {"task": "sum", "axes": {"n": 16}, "left_out": "too many operations", "seconds": 0.0},
    ]
    result = told(rows, DEVICE, OPTIONS)
    assert (result["solved"], result["unsolved"], result["sizes_left_out"]) == (1, [], 1)
    assert result["mutated_over_best"] == 2.0


def test_sizes_that_an_earlier_run_has_solved_are_kept_with_its_commit(tmp_path: Path) -> None:
    solved, measured_again, unsolved = make_row("sum", 8.0, 1.0), make_row("dot", 8.0, 1.0), make_row("relu", 8.0, None)
    path = tmp_path / "tasks.json"
    path.write_text(
        json.dumps({"commit": "before", "device": {"name": DEVICE.name}, "rows": [solved, measured_again, unsolved]})
    )
    kept = solved | {"commit": "before", "device": DEVICE.name}
    assert rows_kept(path, [make_row("dot", 8.0, 2.0, commit="now")], DEVICE) == [kept]
    with pytest.raises(SystemExit, match="is of a GPU, this is another"):
        rows_kept(path, [], DEVICE.model_copy(update={"name": "another"}))


def test_the_report_says_why_a_library_is_faster_and_what_takes_long() -> None:
    rows = [
        make_row("matmul", 8.0, 4.0, library_us=3.0),
        make_row("softmax", 8.0, 4.0, library_us=3.0),
        {**make_row("conv2d", 8.0, 4.0, stages_s={"draw": 50.0, "candidates": 9.0}), "seconds": 67.0},
    ]
    text = "\n".join(tasks_section([told(rows, DEVICE, OPTIONS)]))
    assert "Below 0.9 of the best library's speed: matmul {'n': 8}: 0.75, softmax {'n': 8}: 0.75." in text
    assert all(f"\n{task}: {CAUSES[task]}." in text for task in ("matmul", "softmax"))
    assert CAUSES["top_k"] not in text
    assert "Longer than 60 s: conv2d {'n': 8}: 67 s (draw 50 s)." in text


def test_what_is_measured_again_is_not_kept(tmp_path: Path) -> None:
    rows = [
        {**make_row("top_k", 8.0, 1.0), "axes": {"n": 1024, "k": 32}},
        {**make_row("dot", 8.0, 1.0), "axes": {"n": 65536}},
        {**make_row("dot", 8.0, 1.0), "axes": {"n": 131072}},
    ]
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps({"commit": "before", "device": {"name": DEVICE.name}, "rows": rows}))
    again = again_of("top_k,dot:n=65536")
    assert [row["axes"] for row in rows_kept(path, [], DEVICE, again)] == [{"n": 131072}]
    with pytest.raises(ValueError, match="no task is called dott; there are"):
        again_of("dott")
    with pytest.raises(ValueError, match="dot has no such size among"):
        again_of("dot:n=7")


def test_rows_of_two_devices_have_no_mean() -> None:
    rows = [make_row("sum", 8.0, 1.0, device=DEVICE.name), make_row("dot", 8.0, 1.0, device="another")]
    with pytest.raises(ValueError, match="rows of another among those of a GPU"):
        told(rows, DEVICE, OPTIONS)
    run = told(rows[:1], DEVICE, OPTIONS)
    with pytest.raises(ValueError, match="rows of another among those of a GPU"):
        tasks_section([run | {"rows": rows}])


def test_tuner_and_changes_are_held_against_the_fastest_starting_program() -> None:
    rows = [
        make_row("sum", 8.0, 2.0, starting={"us": 4.0}, mutated={"us": 1.0}),
        make_row("dot", 8.0, 3.0, starting={"us": 2.0}, mutated={"us": 3.0}),
        make_row("relu", 8.0, 3.0),
    ]
    assert over_starting(rows) == 2.0
    assert over_starting(rows[2:]) is None
    result = told(rows, DEVICE, OPTIONS)
    assert (result["search_and_changes_over_starting"], result["sizes_that_were_changed"]) == (2.0, 2)
    assert "2.00x at 2 sizes" in "\n".join(tasks_section([result]))


def test_a_row_with_changes_names_the_fastest_starting_program_with_first_values_of_knobs() -> None:
    settings = EvaluatorSettings(device="interpreter")
    options = argparse.Namespace(candidates=2, seconds=30.0, mutants=2, most_operations=10**9)
    with closing(device_process(settings)) as process, Compiler(1, timeout_s=120) as compiler:
        process.start()
        row = tuned(Grader(process, compiler), "copy", {"rows": 3, "cols": 37}, options, process.description())
    assert row["starting"]["family"].startswith("copy_")
    assert row["starting"]["us"] > 0
    assert row["mutated"]["us"] <= row["best"]["us"]
    assert bytes_of("copy", row["axes"]) == 2 * 4 * 3 * 37


def test_the_report_tells_of_the_loop_where_it_was_measured() -> None:
    run = {
        "kind": "refine_ablation",
        "times": "measured",
        "device": DEVICE.model_dump(mode="json"),
        "commit": "c0ffee",
        "writer": {"name": "text", "model": "small"},
        "budget": {"candidates": 66, "seconds": 90.0, "preset": "fsr"},
        "tasks": 8,
        "model": {
            "tasks": 7,
            "solved": 0,
            "pass_at_1": 0.0,
            "pass_at_5": None,
            "graded": 1100,
            "answers": 1200,
            "prompt_tokens": 10,
            "completion_tokens": 20,
            "seconds": 4.5,
        },
        "over_first_programs": {"latency": 1.0, "profile": None, "suggestions": 1.25},
        "rows": [],
    }
    control = {**run, "writer": {"name": "mutate", "model": ""}, "model": {}, "over_first_programs": {"latency": 1.5}}
    text = "\n".join(loop_section([run, control]))
    assert "| text, small | 8 | 0 of 7 | 0 | - | 1100 of 1200 | 10 / 20 | 4.5 | 1.000x / - / 1.250x |" in text
    assert "| mutate | 8 | - | - | - | - | - | - | 1.500x |" in text
    assert "66 candidates and 90 s a search, preset fsr" in text
    assert loop_section([{**run, "times": "estimated"}]) == []


def test_the_report_names_sizes_at_which_a_run_did_not_arrive_and_those_that_failed() -> None:
    known = {task.name: task.published for task in our_tasks()}
    published = known["sum"]
    rows = [{**make_row("sum", 8.0, 2.0), "axes": dict(axes)} for axes in published[:-1]]
    large = {"task": "relu", "axes": {"n": 2**28}, "failed": "64 bytes are needed, 60 are free", "seconds": 0.0}
    text = "\n".join(tasks_section([told([*rows, large], DEVICE, OPTIONS)]))
    others = [f"relu {dict(axes)}" for axes in known["relu"][:-1]]
    unreached = ", ".join([*others, f"sum {dict(published[-1])}"])
    assert f"\nSizes without a row, at which this run did not arrive: {unreached}.\n" in text
    assert f"\nFailed: relu {{'n': {2**28}}}: 64 bytes are needed, 60 are free.\n" in text
    assert "did not arrive" not in "\n".join(tasks_section([told([make_row("sum", 8.0, 2.0)], DEVICE, OPTIONS)]))
