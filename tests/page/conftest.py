"""A real browser: Debian's Chromium, driven by Playwright. Tests skip, with a reason, where none can be installed; with
`REQUIRE_BROWSER` set, as in CI, they fail."""

import importlib.util
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """A module's own: Playwright keeps an event loop running in its thread, and other modules' tests start theirs."""
    if importlib.util.find_spec("playwright") is None:
        missing("playwright is not installed")
    from playwright.sync_api import sync_playwright

    script = Path(__file__).with_name("chromium.sh")
    found = subprocess.run([str(script)], capture_output=True, text=True, timeout=600)
    if found.returncode:
        missing(found.stderr.strip())
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=found.stdout.strip(), args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


def missing(what: str) -> NoReturn:
    """Without it no test of the page can run."""
    if os.environ.get("REQUIRE_BROWSER"):
        pytest.fail(f"REQUIRE_BROWSER is set, and {what}")
    pytest.skip(what)


@dataclass
class Watched:
    """A page, and what must not happen on it."""

    page: "Page"
    host: str
    errors: list[str] = field(default_factory=list)
    """Of the console, and exceptions."""
    elsewhere: list[str] = field(default_factory=list)
    """Requests to other hosts."""

    def calm(self) -> bool:
        return not self.errors and not self.elsewhere


def watched(browser: "Browser", url: str, **options: Any) -> Watched:
    """A new context of the browser, for the host of this address."""
    page = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options}).new_page()
    seen = Watched(page, urlsplit(url).netloc)
    page.on("console", lambda message: seen.errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("request", lambda request: seen.elsewhere.append(request.url) if is_elsewhere(request.url, seen) else None)
    return seen


def is_elsewhere(url: str, seen: Watched) -> bool:
    parts = urlsplit(url)
    return parts.scheme not in ("data", "blob") and parts.netloc != seen.host
