"""A job's output on the dashboard, as it is printed."""

import threading
from collections.abc import Iterator

import pytest

from tests.web.browser import NEEDED, Browser
from tests.web.relay import Prints
from tests.web.scene import Scene

pytestmark = NEEDED


@pytest.fixture
def prints() -> Iterator[Prints]:
    scene = Scene()
    server = Prints(scene)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield server
    server.shutdown()
    server.server_close()
    serving.join()
    scene.close()


def test_output_of_a_job_appears_once(prints: Prints, browser: Browser) -> None:
    (job,) = prints.scene.call("GET", "/v1/jobs?named=train").json()["jobs"]
    page = browser.page(f"{prints.url}/#/jobs/{job['id']}")
    page.when("epoch 1")
    prints.printed["stdout"] += "epoch 2 <b>\n"
    page.when("epoch 2 &lt;b&gt;")
    assert page.run("document.querySelector('pre.logs').textContent") == "epoch 1\nepoch 2 <b>\n"
    prints.printed["stderr"] = "a warning\n"
    page.fill("#view select[aria-label=Stream]", "stderr")
    page.when("a warning")
    assert page.run("document.querySelector('pre.logs').textContent") == "a warning\n"


@pytest.mark.long
def test_output_that_is_long_is_shown_from_its_end(prints: Prints, browser: Browser) -> None:
    prints.printed["stdout"] = "x" * 70000 + "\nthe end\n"
    (job,) = prints.scene.call("GET", "/v1/jobs?named=train").json()["jobs"]
    page = browser.page(f"{prints.url}/#/jobs/{job['id']}")
    page.when("the end", "bytes before")
