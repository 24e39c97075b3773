"""Where a browser must be, its absence is a failure."""

import pytest

from tests.page.conftest import missing


def test_without_a_browser_tests_skip_and_in_ci_they_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUIRE_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no Chromium"):
        missing("no Chromium is here")
    monkeypatch.setenv("REQUIRE_BROWSER", "1")
    with pytest.raises(pytest.fail.Exception, match="REQUIRE_BROWSER is set, and no Chromium is here"):
        missing("no Chromium is here")
