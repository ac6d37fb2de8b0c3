"""The dashboard in a real browser."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.model.gpu import Health, Inventory
from mesos_gpu.testing.builders import gpu
from tests.conftest import wait_until
from tests.contract.test_api import Rig

CHROMIUM = shutil.which("chromium")
QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=3000",
    "--enable-logging=stderr",
]


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
def test_the_page_shows_nodes_and_jobs_and_runs_nothing_of_theirs(rig: Rig, tmp_path: Path) -> None:
    rig.node()
    holder = rig.submit(name="holder", gpus=1)
    evil = "</td><img src=x onerror=\"document.title='pwned'\">"
    rig.submit(name="evil", command=evil, gpus=1)
    done = subprocess.run(
        [str(CHROMIUM), *QUIET, f"--user-data-dir={tmp_path}", "--dump-dom", rig.url + "/"],
        capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip
    page = done.stdout
    assert "<title>mesos_gpu</title>" in page
    assert "<img" not in page, "a command is text, not HTML"
    assert "1 of 1 GPUs in use" in page
    assert re.search(r'class="gpu used"[^>]*>0</i>', page)
    assert f"held by {holder['id']}" in page
    states = re.findall(r'class="state (\w+)"', page)
    assert states == ["pending", "starting"]
    assert [re.findall(rf">{word}</button>", page) != [] for word in ("why", "logs", "kill")] == [True] * 3
    assert "CONSOLE" not in done.stderr, "no error, and nothing against the page's own policy"


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
def test_the_page_shows_how_cards_stand_and_that_isolation_is_off(rig: Rig, tmp_path: Path) -> None:
    sick = replace(gpu("g1", health=Health.SICK), reason="XID 79 <b>", warnings=("XID 13",))
    rig.node(gpus=(gpu("g0"), sick), isolation="off")
    rig.node("a2", (gpu("g2"),))
    rig.tell(Inventory((gpu("g2"),), "nvml", "535.1", "12.2", volume="535.1"), "a2")
    cards = (gpu("g0"), sick)
    rig.tell(Inventory(cards, "nvml", "470.1", "11.4", "off", volume_problem="no room <b>"))
    assert rig.call("POST", "/v1/gpus/g0/drain", json={"reason": "fan", "by": "ann"}).ok
    done = subprocess.run(
        [str(CHROMIUM), *QUIET, f"--user-data-dir={tmp_path}", "--dump-dom", rig.url + "/"],
        capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip
    page = done.stdout
    assert "Isolation is OFF on a1.example" in page
    assert "driver 535.1 · CUDA 12.2 · volume 535.1" in page
    assert "no driver volume: no room &lt;b&gt;" in page
    assert 'class="gpu drained"' in page
    assert 'class="gpu sick warned"' in page
    assert re.search(r"<li[^>]*>0: drained for [^<]*: drained by ann: fan</li>", page)
    assert re.search(r"<li[^>]*>1: sick: XID 79 &lt;b&gt;; warning: XID 13</li>", page)
    assert "1 not healthy · 1 drained" in page
    assert "CONSOLE" not in done.stderr, "no error, and nothing against the page's own policy"


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
def test_the_page_shows_services_and_what_their_deployments_wait_for(rig: Rig, tmp_path: Path) -> None:
    rig.node()
    app = {"id": "/shop/web", "cmd": "serve <b>", "instances": 2, "gpus": 3}
    assert rig.call("POST", "/v2/apps", json=app).status_code == 201
    wait_until("it waits", lambda: any(each.get("waiting") for each in waiting(rig)))
    done = subprocess.run(
        [str(CHROMIUM), *QUIET, f"--user-data-dir={tmp_path}", "--dump-dom", rig.url + "/"],
        capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip
    page = done.stdout
    assert '<section id="apps-section" aria-labelledby="apps-title">' in page
    row = page[page.index(">/shop/web</td>") :]
    assert '<td class="state pending">0 of 2</td><td class="">' in row.replace("<td>", '<td class="">')
    assert "2\u00d73</td>" in row
    assert "serve &lt;b&gt;</td>" in row
    assert "step 2 of 2: waits for 2 new instances to be placed</td>" in row
    assert "CONSOLE" not in done.stderr, "no error, and nothing against the page's own policy"


def waiting(rig: Rig) -> Any:
    rig.clock.time += 0.3
    return rig.call("GET", "/v2/deployments?embed=waiting").json()
