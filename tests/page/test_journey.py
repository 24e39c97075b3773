"""The whole journey in a real browser, on the real stack: generator, evaluator (PTX interpreter), trainer, Valkey."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.stack import Stack, StackOptions
from tests.page.conftest import Watched, watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
MATRIX = ROOT / "examples" / "jagmesh7.mtx"
COLD_MS = 240_000
"""An interpreter that was never used on this machine is compiled first."""


@contextmanager
def running(options: StackOptions) -> Iterator[Stack]:
    with Stack(options) as stack:
        wait_until_ready(stack)
        yield stack


def wait_until_ready(stack: Stack) -> None:
    end = time.monotonic() + 120
    while True:
        try:
            if httpx.get(f"{stack.url}/readyz").is_success:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < end, stack.log_file("generator").read_text()[-3000:]
        time.sleep(0.2)


@pytest.fixture
def options(tmp_path: Path) -> StackOptions:
    environment = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")]),
        "SPARSESMITH_EVALUATOR_DEVICE": "interpreter",
        "SPARSESMITH_EVALUATOR_COMPILE_WORKERS": "1",
        "SPARSESMITH_GENERATOR_POLICY_DIR": "no-policy",
        "SPARSESMITH_TRAINER_POLICY_DIR": "no-policy",
    }
    return StackOptions(tmp_path / "state", port=free_port(), environment=environment)


def start(page: Any, matrix: Path, candidates: int, element_type: str = "float32") -> str:
    """Fills in the form as a user does; the address of the job's page."""
    page.goto(page.url.split("/jobs/")[0])
    page.set_input_files("#file", matrix)
    page.select_option("[name=search]", "families")
    page.select_option("[name=element_type]", element_type)
    page.fill("[name=budget_candidates]", str(candidates))
    page.get_by_role("button", name="Tune", exact=True).click()
    page.wait_for_url("**/jobs/*")
    return str(page.url)


def json_of(stack: Stack, address: str) -> Any:
    job_id = address.split("/jobs/")[1].partition("#")[0]
    return httpx.get(f"{stack.url}/v1/kernels/{job_id}", timeout=60).json()["status"]


def verdict(page: Any) -> str:
    return str(page.inner_text("#verdict"))


def expected_verdict(status: Any) -> str:
    answer = status["report"]["answer"]
    if answer["kind"] == "kernel":
        others = f"the best of {len(status['report']['baselines']['routines'])} plain stand-ins for the library"
        return f"{answer['speedup_over_best']:.2f}x faster than {others} estimated"
    return f"No kernel beats the plain stand-in {answer['routine']} estimated"


def test_upload_watch_restart_reconnect_cancel_and_a_wrong_file(
    browser: "Browser", options: StackOptions, tmp_path: Path
) -> None:
    with running(options) as stack:
        seen = watched(browser, stack.url)
        seen.page.goto(stack.url)
        permalink, told = a_matrix_is_tuned(seen, stack)
        a_wrong_file_is_refused(seen, tmp_path)
        assert seen.calm(), (seen.errors, seen.elsewhere)
        a_job_is_cancelled(seen, stack)
        assert seen.calm(), (seen.errors, seen.elsewhere)
        a_killed_generator_is_reconnected_to(seen, stack)
        assert seen.elsewhere == []
    with running(options) as stack:
        seen = watched(browser, stack.url)
        seen.page.goto(permalink)
        seen.page.wait_for_selector("#repaid")
        assert verdict(seen.page) == told
        seen.page.wait_for_selector("canvas[data-painted]")
        assert seen.page.locator("#tried tbody tr").count() == 6
        seen.page.goto(stack.url)
        seen.page.wait_for_selector("main table")
        assert seen.page.locator("main tbody tr").count() == 3
        assert seen.calm(), (seen.errors, seen.elsewhere)


def a_matrix_is_tuned(seen: Watched, stack: Stack) -> tuple[str, str]:
    """The job's address and what it says."""
    page = seen.page
    permalink = start(page, MATRIX, candidates=6)
    page.wait_for_selector("canvas[data-painted='0:1138,0:1138']")
    assert "7,450 nonzeros" in page.inner_text("main")
    page.wait_for_selector(".verdict[data-state=finished]", timeout=COLD_MS)
    page.wait_for_selector("#repaid")
    status = json_of(stack, permalink)
    assert verdict(page) == expected_verdict(status)
    report = status["report"]
    best = report["answer"].get("best") or report["answer"]["closest"]
    assert f"{best['outcome']['timing']['median_us']:.2f} us estimated" in page.inner_text(
        "#tried tbody tr:first-child"
    )
    assert page.locator("#tried tbody tr").count() == report["search"]["num_candidates"] == 6
    assert page.locator("#tried .estimated").count() == report["search"]["outcomes"]["passed"]
    ptx_is_linked_to_its_program(page)
    return permalink, verdict(page)


def ptx_is_linked_to_its_program(page: Any) -> None:
    page.get_by_role("button", name="PTX beside it").click()
    page.wait_for_selector(".beside", timeout=COLD_MS)
    assert "fma.rn.f32" in page.inner_text(".beside")
    (line,) = page.locator(".beside ol [data-line]", has_text="sum += ").all()[:1]
    line.hover()
    number = line.get_attribute("data-line")
    linked = page.locator(f".beside ul .linked[data-line='{number}']")
    assert "fma.rn.f32" in " ".join(linked.all_inner_texts())


def a_wrong_file_is_refused(seen: Watched, tmp_path: Path) -> None:
    page = seen.page
    wrong = tmp_path / "wrong.mtx"
    wrong.write_text("this is no matrix\n")
    page.goto(page.url.split("/jobs/")[0])
    page.set_input_files("#file", wrong)
    page.get_by_role("button", name="Tune", exact=True).click()
    page.wait_for_selector("[role=alert]:has-text('line 1 is not a Matrix Market banner')")
    assert "/jobs/" not in page.url
    # Chromium itself logs every answer that is no success; there must be this one and no other.
    assert [error for error in seen.errors if "422" not in error] == []
    assert len(seen.errors) == 1
    seen.errors.clear()


def a_job_is_cancelled(seen: Watched, stack: Stack) -> None:
    page = seen.page
    address = start(page, ROOT / "examples" / "bcsstk13.mtx", candidates=4096)
    page.get_by_role("button", name="Cancel").click()
    page.wait_for_selector(".verdict[data-state=cancelled]", timeout=30_000)
    assert json_of(stack, address)["state"] == "cancelled"
    assert page.get_by_role("button", name="Cancel").is_hidden()


def a_killed_generator_is_reconnected_to(seen: Watched, stack: Stack) -> None:
    page = seen.page
    address = start(page, MATRIX, candidates=6, element_type="float64")
    page.wait_for_selector("#verdict")
    os.kill(stack.pids()["generator"], signal.SIGKILL)
    page.wait_for_selector(".verdict[data-state=finished]", timeout=COLD_MS)
    page.wait_for_selector("#repaid")
    assert verdict(page) == expected_verdict(json_of(stack, address))
    assert page.locator("main > .trouble").is_hidden()
