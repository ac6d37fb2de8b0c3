"""The dashboard in a real browser."""

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.adapters.tls.server import TlsFiles
from mesos_gpu.engine import events as ev
from mesos_gpu.model.ids import OfferId
from mesos_gpu.model.nodes.gpu import Health, Inventory
from tests.certificates import DAY, Authority
from tests.conftest import wait_until
from tests.contract.api.test_api_shares import BURSTS, CARD, QUARTER, hold
from tests.contract.api.test_tls import TlsRig
from tests.contract.rig import Rig
from tests.doubles.builders import gpu, offer
from tests.web.browser import JUDGE, NEEDED, Browser, Page, bring_axe
from tests.web.relay import Answer, Relay

pytestmark = NEEDED
#: No request is answered any more; how long it takes, in milliseconds, until the page says that it is old.
AGED = """new Promise((done) => {
  window.fetch = () => new Promise(() => {});
  const begun = performance.now();
  const look = () => (document.body.className === "old" ? done(performance.now() - begun) : setTimeout(look, 20));
  look();
})"""


def problems(view: Page) -> list[str]:
    """What the browser has against a page; that no log of changes is kept here is none."""
    return [each for each in view.console if "/changes" not in each]


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


def test_the_page_shows_cards_and_jobs_and_runs_nothing_of_theirs(rig: Rig, browser: Browser) -> None:
    rig.node()
    holder = rig.submit(name="holder", gpus=1)
    evil = "</td><img src=x onerror=\"document.title='pwned'\">"
    asks = rig.submit(name="evil", command=evil, gpus=1)
    view = browser.page(rig.url)
    page = view.when("1 of 1 GPUs allocated", 'title="a1.example:0 allocated, holder"')
    assert "<title>Overview · mesos_gpu</title>" in page
    page = view.visit("#/jobs")
    assert re.findall(r'class="state (\w+)"', page) == ["starting", "pending"]
    assert len(re.findall(">Kill</button>", page)) == 2
    assert f'title="{holder["id"]}"' in page
    page = view.visit(f"#/jobs/{asks['id']}")
    assert "&lt;/td&gt;&lt;img src=x" in page
    assert "<img" not in page, "a command is text, not HTML"
    assert "Why it waits" in page
    assert not problems(view), "no error, and nothing against the page's own policy"


def test_the_page_shows_how_cards_stand_and_that_isolation_is_off(rig: Rig, browser: Browser) -> None:
    sick = replace(gpu("g1", health=Health.SICK), reason="XID 79 <b>", warnings=("XID 13",))
    rig.node(gpus=(gpu("g0"), sick), isolation="off")
    rig.node("a2", (gpu("g2"),))
    rig.tell(Inventory((gpu("g2"),), "nvml", "535.1", "12.2", volume="535.1"), "a2")
    cards = (gpu("g0"), sick)
    rig.tell(Inventory(cards, "nvml", "470.1", "11.4", "off", volume_problem="no room <b>"))
    assert rig.call("POST", "/v1/gpus/g0/drain", json={"reason": "fan", "by": "ann"}).ok
    view = browser.page(rig.url)
    page = view.when('class="cell drained"', 'class="cell sick"')
    assert "Isolation is OFF on a1.example" in page
    assert "Card a1.example:1 is sick</a>" in page
    assert "1 not healthy · 1 drained" in page
    page = view.visit("#/nodes/a2.example")
    assert re.search("<dt>Driver</dt><dd>535.1</dd>.*<dt>Driver volume</dt><dd>535.1</dd>", page)
    page = view.visit("#/nodes/a1.example")
    assert "no driver volume: no room &lt;b&gt;" in page
    assert "drained by ann: fan" in page
    page = view.visit("#/cards/g1")
    assert "XID 79 &lt;b&gt;</p>" in page
    assert "<dt>Warnings</dt><dd>XID 13</dd>" in page
    assert not problems(view), "no error, and nothing against the page's own policy"


def test_the_page_shows_services_and_what_their_deployments_wait_for(rig: Rig, browser: Browser) -> None:
    rig.node()
    app = {"id": "/shop/web", "cmd": "serve <b>", "instances": 2, "gpus": 3}
    assert rig.call("POST", "/v2/apps", json=app).status_code == 201
    part = {"id": "/part", "cmd": "lab", "instances": 2, "gpus": 1, "labels": {"GPU_SHARE": "0.25"}}
    exact = {"id": "/exact", "cmd": "lab", "gpus": 2, "gpu": {"compute_pct": 30, "memory_mib": 100}}
    assert all(rig.call("POST", "/v2/apps", json=each).status_code == 201 for each in (part, exact))
    wait_until("it waits", lambda: any(each.get("waiting") for each in waiting(rig)))
    view = browser.page(f"{rig.url}/#/apps")
    page = view.when("step 2 of 2: waits for 2 new instances to be placed</div></td>")
    row = page[page.index(">/shop/web</a>") :]
    assert '<span class="state pending">0 of 2</span>' in row
    assert "2\u00d73</td>" in row
    assert "2\u00d70.25</td>" in page
    assert "1\u00d70.6</td>" in page
    assert "serve &lt;b&gt;</div>" in row
    page = view.visit("#/apps/%2Fshop%2Fweb")
    assert re.search("step 2 of 2: [^<]*; waits for 2 new instances to be placed</p>", page)
    assert "Deployment of /shop/web: waits for 2 new instances" in view.visit("#/"), "trouble comes first"
    assert not problems(view), "no error, and nothing against the page's own policy"


def test_the_page_shows_an_app_whose_instances_end_as_trouble(rig: Rig, browser: Browser) -> None:
    rig.node()
    app = {"id": "/shop/crash", "cmd": "boom <b>", "cpus": 0.1, "mem": 16, "backoffSeconds": 300}
    assert rig.call("POST", "/v2/apps", json=app).status_code == 201

    def launched() -> str | None:
        rig.clock.time += 0.3
        rig.daemon.put(ev.OffersArrived((offer(f"a1-{rig.clock.time:.1f}", "a1", cpus=4),)))
        jobs = rig.call("GET", "/v1/jobs?app=/shop/crash").json()["jobs"]
        return jobs[0]["task_id"] if jobs else None

    wait_until("an instance is launched", launched)
    task = launched()
    assert task is not None
    rig.clock.time = time.time()
    rig.status(task, "TASK_RUNNING")
    rig.status(task, "TASK_FAILED")
    wait_until("it has ended", lambda: rig.call("GET", "/v2/apps?crashing=true").json()["apps"])
    view = browser.page(rig.url)
    page = view.when("App /shop/crash: an instance ended by itself, the last ")
    assert "; the next one starts in " in page
    assert "stderr: " in page, "what it wrote, or why that cannot be read"
    page = view.visit("#/apps")
    row = page[page.index(">/shop/crash</a>") :]
    assert re.search(r'<span class="state failed" title="[^"]*a1.example: [^"]*">1</span>', row)
    page = view.visit("#/apps/%2Fshop%2Fcrash")
    assert "<dt>Restarts</dt><dd>1 in a row</dd>" in page
    assert "<dt>Next start</dt><dd>in " in page
    assert re.search("<dt>Last lines of stderr</dt><dd><pre[^>]*>[^<]+</pre>", page)
    assert "None runs. The latest one, <a" in page
    assert ">None.<" not in page
    odd = [each for each in problems(view) if "/logs" not in each]
    assert not odd, "no error, but for output of an agent that is not there"


def test_the_page_counts_the_share_of_a_job_as_limits_do(rig: Rig, browser: Browser) -> None:
    rig.submit(name="part", gpus=0.25, tasks=3)
    rig.submit(name="exact", gpus=3, gpu_compute_pct=10, gpu_memory_mib=1000)
    rig.submit(name="both", gpus=0.25, gpu_compute_pct=40)
    rig.submit(name="whole", gpus=2)
    page = browser.page(f"{rig.url}/#/jobs").when()
    for count in ("3\u00d70.25", "0.3", "0.4", "2"):
        assert f'data-label="GPUs">{count}</td>' in page, count


def test_the_page_shows_free_and_guaranteed_amounts_of_shares(rig: Rig, browser: Browser) -> None:
    rig.node(gpus=(CARD, gpu("GPU-2")))
    rig.daemon.put(ev.OfferRescinded(OfferId("a1-2")))  # or the other card would be covered at once
    hold(rig, "cover.1", covers=True)
    hold(rig, "<b>.1", QUARTER)
    hold(rig, "c.1", BURSTS, gpu("GPU-2"))
    view = browser.page(rig.url)
    assert len(re.findall('<a class="cell shared"', view.when("2 of 2 GPUs allocated"))) == 2
    page = view.visit("#/cards/GPU-1")
    assert "25 %, 75 % free" in re.sub("<[^>]*>", "", page)
    assert "memory cooperative, compute cooperative, faults contained" in page
    page = view.visit("#/cards/GPU-2")
    assert "% free, uncovered" in page
    assert "compute cooperative, faults user" in page


def test_a_drained_node_is_said_once_and_a_card_says_whose_it_is(rig: Rig, browser: Browser) -> None:
    rig.node(gpus=(gpu("g0"), gpu("g1")))
    holder = rig.submit(name="holder", gpus=1)
    wait_until("it is launched", lambda: rig.call("GET", f"/v1/jobs/{holder['id']}").json()["task_id"])
    assert rig.call("POST", "/v1/nodes/a1/drain", json={"reason": "the fan", "by": "ann"}).ok
    view = browser.page(rig.url)
    page = view.when()
    (said,) = re.findall(r"<li[^>]*>.*?</li>", page)
    assert '<a href="#/nodes/a1.example">Node a1.example is drained</a>' in said
    assert re.search(
        r'<a class="cell drained held"[^>]*aria-label="a1.example:\d drained, held, holder"', page
    )


@pytest.mark.long
def test_job_list_begins_with_running_jobs_and_has_pages(rig: Rig, browser: Browser) -> None:
    rig.node()
    runs = rig.submit(name="runs", gpus=1)
    for _ in range(130):
        rig.submit(name="waits", gpus=1)
    view = browser.page(f"{rig.url}/#/jobs")
    page = view.when("1 to 100 of 131")
    shown = re.findall(r'<a href="#/jobs/[^"]*" title="([^"]*)">', page)
    assert (shown[0], len(shown)) == (runs["id"], 100)
    view.click("button", "Next")
    assert len(re.findall(r'<a href="#/jobs/[^"]*" title=', view.when("101 to 131 of 131"))) == 31
    view.fill("#search", "runs")
    view.when("1 row")


class Stops(Relay):
    """In front of a scheduler that stops: nothing below /v1 and /v2 is answered any more once `left` are."""

    def __init__(self, url: str, left: int) -> None:
        super().__init__(url)
        self.left, self.over = left, threading.Event()

    def answer(self, path: str) -> Answer | None:
        if path.startswith("/v"):
            self.left -= 1
            if self.left < 0:
                self.over.wait(120)
                return None
        return super().answer(path)


@pytest.mark.long
def test_a_scheduler_that_stops_answering_is_not_called_connected(rig: Rig, browser: Browser) -> None:
    rig.node()
    stops = Stops(rig.url, left=9)  # 9: who looks, and one round of the page
    serving = threading.Thread(target=stops.serve_forever)
    serving.start()
    try:
        page = browser.page(stops.url).when(
            ">old: as of ", "the scheduler does not answer: no answer within 8 s"
        )
    finally:
        stops.over.set()
        stops.shutdown()
        stops.server_close()
        serving.join()
    assert re.search(r">old: as of [^<]+ ago</p>", page)
    assert "connected to" not in page
    assert '<body class="old">' in page
    assert "a1.example" in page, "what was known stays"


@pytest.mark.long
def test_old_page_is_marked_within_five_seconds_and_at_once_without_a_network(
    rig: Rig, browser: Browser
) -> None:
    rig.node()
    page = browser.page(rig.url)
    page.when()
    offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.ask("Network.emulateNetworkConditions", offline)
    page.when('<body class="old">')
    bring_axe(page)
    assert page.run(JUDGE) == [], "it can be read as well as before"
    page.ask("Network.emulateNetworkConditions", {**offline, "offline": False})
    page.when('<body class="">')
    assert page.run(AGED) < 5000, "milliseconds since the last answer at most"


def waiting(rig: Rig) -> Any:
    rig.clock.time += 0.3
    return rig.call("GET", "/v2/deployments?embed=waiting").json()


def test_the_page_says_by_https_that_it_is_open_to_all_and_that_a_certificate_ends(
    tmp_path: Path, browser: Browser
) -> None:
    own = Authority(tmp_path).server(life=3 * DAY)
    rig = TlsRig(TlsFiles(own.cert, own.key), open_to_all=True)
    try:
        view = browser.page(rig.url, any_certificate=True)
        page = view.when()
    finally:
        rig.close()
    banner = re.search('<p id="open-to-all"[^>]*>([^<]*)</p>', page)
    assert banner is not None
    assert "hidden" not in banner[0]
    assert "Whoever reaches this page over the network can do everything" in banner[1]
    assert "server.pem: the certificate expires in 3.0 days" in banner[1]
    assert not problems(view), "no error, and nothing against the page's own policy"


def test_an_array_is_one_row_that_opens_into_its_tasks(rig: Rig, browser: Browser) -> None:
    rig.node(gpus=(gpu("g0"), gpu("g1")))
    array = rig.submit(name="sweep", array="0-9%2", gpus=1)
    name, _, tail = array["id"].rpartition("-")
    rig.status(f"{name}.0-{tail}.1", "TASK_FINISHED")
    view = browser.page(rig.url)
    page = view.visit("#/jobs")
    assert len(re.findall(">Kill</button>", page)) == 1, "tasks have no rows of their own"
    assert "[0-9%2]" in page
    assert 'title="1 of 10 tasks have ended"' in page
    page = view.visit(f"#/jobs/{array['id']}")
    assert "sweep.1" in page
    assert re.search(r"Waiting</dt>\s*<dd[^>]*>2-9", page), page
    assert problems(view) == []
