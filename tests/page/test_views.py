"""Every view of the page in a real browser: what it says, for whom it can be used, and that it stays calm."""

import importlib
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest

from sparsesmith.artifacts.bundle import artifact_name
from sparsesmith_proto.api import JobStatus
from sparsesmith_proto.kernel import CompileFailed
from tests.generator.live_service import Evaluators, live_service
from tests.page.conftest import Watched, missing, watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]
FLEET = (ROOT / "proto" / "examples" / "fleet.json").read_text()
SIZE = 60
ROWS = [row for row in range(SIZE) for step in (-1, 0, 1) if 0 <= row + step < SIZE]
COLS = [row + step for row in range(SIZE) for step in (-1, 0, 1) if 0 <= row + step < SIZE]
REQUEST = {
    "matrix": {"num_rows": SIZE, "num_cols": SIZE, "row_indices": ROWS, "col_indices": COLS},
    "search": "families",
    "budget": {"candidates": 6, "seconds": 20},
}


@pytest.fixture
def http(redis_url: str) -> Iterator[httpx.Client]:
    with live_service(redis_url, Evaluators()) as client:
        yield client


def tuned(http: httpx.Client, **changes: Any) -> JobStatus:
    answer = http.post("/v1/kernels", json={**REQUEST, **changes}, headers={"Prefer": "wait=20"})
    return JobStatus.model_validate_json(answer.content)


def opened(browser: "Browser", http: httpx.Client, path: str, **options: Any) -> Watched:
    """A page that has painted what it shows."""
    url = str(http.base_url).rstrip("/") + path
    seen = watched(browser, url, **options)
    if path.startswith("/fleet"):
        seen.page.route("**/v1/fleet", lambda route: route.fulfill(body=FLEET, content_type="application/json"))
    seen.page.goto(url)
    ready = {"/": ".examples", "/fleet": ".plot canvas", "/compare": "#more table", "/jobs": "#repaid"}
    if path != "/jobs/none":
        seen.page.wait_for_selector(ready["/" + urlsplit(path).path.split("/")[1]])
    return seen


def violations(seen: Watched) -> list[str]:
    if importlib.util.find_spec("axe_playwright_python") is None:
        missing("axe is not installed")
    sync_playwright = importlib.import_module("axe_playwright_python.sync_playwright")
    found = sync_playwright.Axe().run(seen.page).response["violations"]
    return [f"{each['id']}: {[node['html'] for node in each['nodes']][:3]}" for each in found]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 320)], ids=["wide", "at 400 percent"])
def test_every_view_is_accessible_and_fits(browser: "Browser", http: httpx.Client, scheme: str, width: int) -> None:
    one, other = tuned(http).job_id, tuned(http, element_type="float64").job_id
    for path in ("/", "/fleet", f"/compare?a={one}&b={other}", f"/jobs/{one}#band.mtx"):
        seen = opened(browser, http, path, color_scheme=scheme, viewport={"width": width, "height": 800})
        assert violations(seen) == [], path
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert seen.calm(), (path, seen.errors, seen.elsewhere)
        seen.page.context.close()


def test_a_measured_answer_is_told_as_the_json_has_it(browser: "Browser", http: httpx.Client) -> None:
    job = tuned(http)
    page = opened(browser, http, f"/jobs/{job.job_id}#band.mtx").page
    report = job.model_dump()["status"]["report"]
    assert page.inner_text("#verdict") == "2.00x faster than the best of 2 cuSPARSE routines"
    assert f"{report['answer']['speedup_over_best']:.2f}x" in page.inner_text("#verdict")
    assert "5.00 us steady (95 % interval 0.2 % wide, 10 batches; SM at 1980 MHz; undisturbed)" in page.inner_text(
        ".verdict"
    )
    assert "estimated" not in page.inner_text("main")
    assert page.inner_text("h1") == "band.mtx"
    assert f"{report['nnz']:,} nonzeros" in page.inner_text("main")
    assert page.locator("#tried tbody tr").count() == report["search"]["num_candidates"]
    assert page.locator(".roofline .point.routine").count() == 2
    assert page.locator(".roofline .roof").count() == 2
    name = artifact_name(job.status.report.workload, "py").removesuffix(".py")  # type: ignore[union-attr]
    assert f"from {name} import load" in page.inner_text(".snippets")


def test_the_slider_says_what_is_saved_and_what_is_not_yet(browser: "Browser", http: httpx.Client) -> None:
    page = opened(browser, http, f"/jobs/{tuned(http).job_id}").page
    slider = page.locator("#products")
    slider.evaluate("(range) => { range.value = 9; range.dispatchEvent(new Event('input')); }")
    assert "saved against the best routine" in page.inner_text("main")
    slider.focus()
    page.keyboard.press("Home")
    assert page.inner_text("output") == "1"
    assert "behind the best routine" in page.inner_text("main")


def test_the_spy_plot_looks_closer_by_keys_buttons_and_a_drag(browser: "Browser", http: httpx.Client) -> None:
    page = opened(browser, http, f"/jobs/{tuned(http).job_id}").page
    page.wait_for_selector("canvas[data-painted='0:60,0:60']")
    page.locator("canvas.spy").focus()
    page.keyboard.press("+")
    page.wait_for_selector("canvas[data-painted='15:45,15:45']")
    page.keyboard.press("ArrowUp")
    page.wait_for_selector("canvas[data-painted='8:38,15:45']")
    page.get_by_label("The whole matrix").click()
    page.wait_for_selector("canvas[data-painted='0:60,0:60']")
    canvas = page.locator("canvas.spy")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 1, box["y"] + 1)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.up()
    page.wait_for_selector(
        "canvas[data-painted='0:30,0:30'], canvas[data-painted='1:30,1:30'], canvas[data-painted='0:29,0:29']"
    )
    assert "nonzeros" in page.inner_text(".spy-said")


def test_failures_are_told_one_by_one_and_their_text_is_never_markup(redis_url: str, browser: "Browser") -> None:
    with live_service(redis_url, Evaluators(CompileFailed(log="<img src=x onerror=alert(1)> expected a ';'"))) as http:
        seen = watched(browser, str(http.base_url))
        seen.page.goto(f"{str(http.base_url).rstrip('/')}/jobs/{tuned(http).job_id}")
        seen.page.wait_for_selector("#repaid")
        assert "Use the library's own routine cusparse_coo_alg1" in seen.page.inner_text("#verdict")
        told = seen.page.locator("#tried .failure").all_inner_texts()
        assert told == ["compile failed: <img src=x onerror=alert(1)> expected a ';'"] * 6
        assert seen.page.locator("main img").count() == 0
        assert "6 failed" in seen.page.inner_text("main")
        assert seen.calm()


def test_a_program_is_shown_beside_the_runner_up(browser: "Browser", http: httpx.Client) -> None:
    page = opened(browser, http, f"/jobs/{tuned(http).job_id}").page
    page.get_by_role("button", name="Differences to the runner-up").click()
    assert page.locator(".diff .added").count() > 0
    page.get_by_role("button", name="Show program 3", exact=True).click()
    assert "Number 3" in page.inner_text("#program")


def test_the_theme_is_chosen_and_remembered(browser: "Browser", http: httpx.Client) -> None:
    page = opened(browser, http, "/", color_scheme="light").page
    page.get_by_role("button", name="Dark").click()
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.get_by_role("button", name="Light").is_visible()


def test_what_the_browser_lacks_is_said_and_the_job_is_asked_for_instead(redis_url: str, browser: "Browser") -> None:
    evaluators = Evaluators()
    with live_service(redis_url, evaluators) as http:
        evaluators.released.clear()
        job = http.post("/v1/kernels", json=REQUEST).json()["job_id"]
        seen = watched(browser, str(http.base_url))
        seen.page.add_init_script("delete Response.prototype.body")
        seen.page.goto(f"{str(http.base_url).rstrip('/')}/jobs/{job}")
        seen.page.wait_for_selector("text=This browser lacks answers that are read as they come")
        evaluators.released.set()
        seen.page.wait_for_selector(".verdict[data-state=finished]")
        assert seen.calm()


def test_the_versions_of_the_policy_are_told_with_their_canaries(browser: "Browser", http: httpx.Client) -> None:
    page = opened(browser, http, "/fleet").page
    told = page.inner_text("main")
    policy = json.loads(FLEET)["policy"]
    for verdict in policy["verdicts"]:
        assert verdict["reason"] in told
    assert f"Version {policy['version']} of {policy['model']} serves" in " ".join(told.split())
    assert "NVIDIA H200 (sm_90)" in told


def test_an_unknown_job_is_said_to_be_none(browser: "Browser", http: httpx.Client) -> None:
    seen = opened(browser, http, "/jobs/none")
    assert "no job none" in seen.page.inner_text("main")
    assert violations(seen) == []


def test_only_the_page_s_own_host_was_ever_asked(browser: "Browser", http: httpx.Client) -> None:
    seen = opened(browser, http, f"/jobs/{tuned(http).job_id}")
    blocked = seen.page.evaluate("fetch('http://127.0.0.2:9/').then(() => 'came', () => 'refused')")
    assert blocked == "refused"
    assert any("Content Security Policy" in error for error in seen.errors)
