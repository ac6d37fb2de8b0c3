"""A browser for each file of tests; what it needs is in tests/web/browser.py."""

from collections.abc import Iterator

import pytest

from tests.web.browser import Browser


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture
def browser(started: Browser) -> Iterator[Browser]:
    """With no page yet."""
    yield started
    started.leave()
