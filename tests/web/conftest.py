"""A browser for all tests of a process; pages of tests know nothing of each other."""

from collections.abc import Iterator

import pytest

from tests.web.browser import Browser


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture
def browser(started: Browser) -> Iterator[Browser]:
    """Give the browser, with no page yet."""
    yield started
    started.leave()
