"""The page of a server that asks for keys, in a real browser."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import pytest

from sparsesmith.transport.connection import connect
from sparsesmith.transport.keys import KeyStore
from sparsesmith_proto.keys import Quotas
from tests.generator.live_service import Evaluators, live_service
from tests.page.conftest import Watched, watched
from tests.page.test_views import REQUEST, violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def http(redis_url: str) -> Iterator[httpx.Client]:
    with live_service(redis_url, Evaluators(), keys="on") as client:
        yield client


@pytest.fixture
def key(redis_url: str) -> str:
    return KeyStore(connect(redis_url)).create("alice", Quotas())[1]


def enter(seen: Watched, text: str) -> None:
    seen.page.get_by_label("Key", exact=True).fill(text)
    seen.page.get_by_role("button", name="Use it").click()


def test_a_key_is_entered_once_a_tab_and_its_jobs_are_shown_and_shared_by_permalinks(
    browser: "Browser", http: httpx.Client, key: str
) -> None:
    url = str(http.base_url).rstrip("/")
    seen = watched(browser, url)
    page = seen.page
    page.goto(url)
    enter(seen, "ssk_wrong")
    page.wait_for_selector("text=The key that was entered does not open.")
    assert violations(seen) == []
    enter(seen, key)
    page.wait_for_selector("text=None yet.")
    answer = http.post("/v1/kernels", json=REQUEST, headers={"Authorization": f"Bearer {key}", "Prefer": "wait=20"})
    page.goto(f"{url}/jobs/{answer.json()['job_id']}#band.mtx")
    page.wait_for_selector("#repaid")
    page.wait_for_selector("canvas[data-painted]")
    page.wait_for_selector("a[download][href*='secret=']")
    assert page.locator("#tried tbody tr").count() == 6
    link = page.get_by_role("link", name="all files").get_attribute("href") or ""
    assert "secret=" in link and httpx.get(link).content.startswith(b"PK")
    assert "Bearer $SPARSESMITH_KEY" in page.inner_text(".snippets") and key not in page.content()
    assert not any(key in each["name"] for each in page.evaluate("performance.getEntries().map(e => ({name: e.name}))"))
    permalink = link.replace("/v1/kernels/", "/jobs/").replace("/artifact?kind=zip&", "?")
    guest = watched(browser, url)
    guest.page.goto(permalink)
    guest.page.wait_for_selector("#repaid")
    assert guest.page.inner_text("#verdict") == page.inner_text("#verdict")
    assert guest.calm(), (guest.errors, guest.elsewhere)
    page.get_by_role("button", name="Forget key").click()
    page.wait_for_selector("text=This server asks for an API key.")
    assert seen.elsewhere == []


def test_without_a_key_or_a_permalink_a_job_is_not_shown(browser: "Browser", http: httpx.Client, key: str) -> None:
    answer = http.post("/v1/kernels", json=REQUEST, headers={"Authorization": f"Bearer {key}", "Prefer": "wait=20"})
    stranger = watched(browser, str(http.base_url))
    stranger.page.goto(f"{str(http.base_url).rstrip('/')}/jobs/{answer.json()['job_id']}")
    stranger.page.wait_for_selector("text=This server asks for an API key.")
    assert violations(stranger) == []
    assert "faster" not in stranger.page.content()
