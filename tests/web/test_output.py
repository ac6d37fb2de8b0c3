"""A job's output on the dashboard, as it is printed."""

import json
import threading
from collections.abc import Iterator
from typing import Final

import pytest

from tests.conftest import wait_until
from tests.contract.rig import Rig
from tests.doubles.builders import gpu
from tests.web.browser import NEEDED, Browser
from tests.web.relay import Prints
from tests.web.scene import Scene

pytestmark = NEEDED
PRE: Final = "document.querySelector('pre.logs').textContent"
#: Output by task in place of the scheduler's: lines, and the seconds at which each was written.
PRINTED: Final = """(() => {{
  const own = window.fetch, printed = {printed};
  window.fetch = async (path, ...more) => {{
    if (!String(path).includes("/logs?")) return own(path, ...more);
    const query = new URL(path, location.href).searchParams, lines = printed[query.get("task_id")];
    const text = lines.map(([line]) => line + "\\n").join(""), at = Math.max(0, Number(query.get("offset")));
    const data = text.slice(at);
    let offset = 0;
    const times = lines.map(([line, moment]) => ({{offset: offset += line.length + 1, at: moment}}));
    const said = {{data: query.get("encoding") ? btoa(data) : data, offset: at, next_offset: text.length, times}};
    return new Response(JSON.stringify(said), {{headers: {{"Content-Type": "application/json"}}}});
  }};
  window.saved = [];
  URL.createObjectURL = (blob) => {{ window.saved.push(blob); return "#"; }};
}})()"""


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


def test_output_of_all_ranks_is_in_the_order_of_time_and_is_searched(browser: Browser) -> None:
    rig = Rig()
    try:
        rig.node(gpus=(gpu("g0"), gpu("g1")))
        job = rig.submit(name="gang", gpus=1, tasks=2)["id"]
        wait_until("it is launched", lambda: rig.call("GET", f"/v1/jobs/{job}").json()["task_ids"])
        tasks = rig.call("GET", f"/v1/jobs/{job}/tasks").json()["tasks"]
        first, second = sorted(tasks, key=lambda task: int(task["rank"]))
        lines = {first["id"]: [["one", 1], ["loss (a)", 3]], second["id"]: [["two", 2], ["LOSS (a)", 4]]}
        page = browser.page(f"{rig.url}/#/jobs")
        page.when()
        page.run(PRINTED.format(printed=json.dumps(lines)))
        page.visit(f"#/jobs/{job}")
        page.when("launch 1, all 2 ranks")
        wait_until("all is shown", lambda: page.run(PRE) == "0 | one\n1 | two\n0 | loss (a)\n1 | LOSS (a)\n")
        page.fill("input[aria-label='Search in the output']", "loss (")
        page.when("2 of 4 loaded lines")
        assert page.run(PRE) == "0 | loss (a)\n1 | LOSS (a)\n"
        assert page.run("document.querySelector('pre.logs mark').textContent") == "loss ("
        page.click("#view section button", "Download")
        wait_until("it is saved", lambda: page.run("window.saved.length"))
        wanted = "==> rank 0 <==\none\nloss (a)\n==> rank 1 <==\ntwo\nLOSS (a)\n"
        assert page.run("window.saved[0].text()") == wanted
        page.fill("#view select[aria-label=Task]", second["id"])
        page.fill("input[aria-label='Search in the output']", "")
        wait_until("one rank is shown", lambda: page.run(PRE) == "two\nLOSS (a)\n")
    finally:
        rig.close()
