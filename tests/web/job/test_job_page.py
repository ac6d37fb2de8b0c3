"""The page of one job: what it asked for, where it is, what befell it, and how it is submitted again."""

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from mesos_gpu.engine import events as ev
from tests.conftest import wait_until
from tests.contract.rig import Rig
from tests.doubles.builders import offer
from tests.web.browser import NEEDED, Browser, Page
from tests.web.scene import cards_of

pytestmark = NEEDED
ASKED: Final[dict[str, Any]] = {
    "name": "train", "argv": ["python3", "train.py", "--text", "it's"], "gpus": 2, "cpus": 3, "mem_mib": 2048,
    "labels": {"team": "vision"}, "env": {"TOKEN": "hunter2", "LANG": "C"}, "volumes": ["/data:/data:ro"],
    "timeout_s": 5400, "disk_mib": 512, "notice_s": 60, "max_attempts": 2, "kill_grace_s": 30,
    "constraints": [["hostname", "UNLIKE", "b.*"]],
}  # fmt: skip
TEXT: Final = "document.querySelector('#view').innerText"


class Asking(Rig):
    """A scheduler with a job that asks for much and runs on two of eight cards."""

    def __init__(self) -> None:
        super().__init__()
        self.offered()
        response = self.call("POST", "/v1/jobs", json=ASKED)
        assert response.status_code == 201, response.text
        self.job = response.json()["id"]
        wait_until("it is launched", lambda: self.call("GET", f"/v1/jobs/{self.job}").json()["task_id"])
        self.status(f"{self.job}.1", "TASK_RUNNING")
        wait_until("it runs", lambda: self.call("GET", f"/v1/jobs/{self.job}").json()["state"] == "running")

    def offered(self) -> None:
        """Offer four cards and disk of a1."""
        self.node(gpus=cards_of("a3")[:4])
        self.daemon.put(ev.OffersArrived((offer(f"disk-{self.clock.time}", cpus=0, mem=0, disk=4096),)))


@pytest.fixture(scope="module")
def rig() -> Iterator[Asking]:
    rig = Asking()
    yield rig
    rig.close()


def fact(page: Page, name: str) -> str:
    """Return the value of a fact of the page."""
    script = (
        f"[...document.querySelectorAll('.facts div')].find((one) => one.firstChild?.textContent === '{name}')"
        "?.lastChild.innerText ?? ''"
    )
    return str(page.run(script))


def test_job_page_shows_the_request_the_cards_and_a_timeline(rig: Asking, browser: Browser) -> None:
    page = browser.page(f"{rig.url}/#/jobs/{rig.job}")
    html = page.when("Asked for")
    assert fact(page, "Command") == "python3 train.py --text 'it'\\''s'"
    assert fact(page, "Labels") == "team=vision"
    assert fact(page, "Environment (names)").split() == ["TOKEN", "LANG"]
    assert fact(page, "Volumes") == "/data:/data:ro"
    assert fact(page, "Time limit") == "1 h 30 min for each attempt"
    assert (fact(page, "Disk"), fact(page, "Notice before its end")) == ("512 MiB", "1 min 0 s")
    assert "hunter2" not in html
    assert re.fullmatch(r"a1.example:\d,\d", fact(page, "GPUs").strip())
    (first, _) = rig.call("GET", f"/v1/jobs/{rig.job}").json()["gpu_ids"]
    assert f'title="{first}"' in html, "the UUID is in the title"
    rows = page.run(
        "[...document.querySelectorAll('[aria-label=Timeline] tbody tr')].map((row) => row.cells[1].innerText)"
    )
    assert rows[:3] == ["Submitted", "Launch 1", "Started"]
    assert "on a1.example with 2 GPUs" in page.run(TEXT)


def test_page_shows_named_volumes_as_the_option_has_them(rig: Asking, browser: Browser) -> None:
    volumes = [{"name": "data", "path": "out", "size": "1GiB", "read_only": True}, "/a:/b"]
    response = rig.call("POST", "/v1/jobs", json={"command": "true", "user": "ann", "volumes": volumes})
    assert response.status_code == 201, response.text
    page = browser.page(f"{rig.url}/#/jobs/{response.json()['id']}")
    page.when("name=data,path=out,size=1GiB,ro")
    assert fact(page, "Volumes").split() == ["name=data,path=out,size=1GiB,ro", "/a:/b"]


def test_job_is_shown_as_a_command(rig: Asking, browser: Browser) -> None:
    page = browser.page(f"{rig.url}/#/jobs/{rig.job}")
    page.click("#view .head button", "As a command")
    page.when("Not in the line")
    shown = page.run("document.querySelector('dialog[open] pre').textContent")
    assert shown == rig.call("GET", f"/v1/jobs/{rig.job}/command").json()["command"]
    assert shown.endswith("-- python3 train.py --text 'it'\"'\"'s'")
    assert "kill_grace_s" in page.run("document.querySelector('dialog[open]').innerText")
    page.run("document.querySelector('dialog[open] button.main').click()")
    wait_until("it is selected", lambda: page.run("String(getSelection())") == shown)


def test_job_is_run_again_from_a_filled_form(rig: Asking, browser: Browser) -> None:
    page = browser.page(f"{rig.url}/#/jobs/{rig.job}")
    page.click("#view .head a", "Run again")
    page.when("Filled with the fields of", "Kept as they were: ")
    page.fill("form.submit [name=max_attempts]", "3")
    page.click("form.submit button", "Submit")
    page.when("is submitted")
    jobs = rig.call("GET", "/v1/jobs?named=train").json()["jobs"]
    (again,) = [job for job in jobs if job["id"] != rig.job]
    path = f"/v1/jobs/{again['id']}"
    request = rig.call("GET", f"{path}/command?show_env=true").json()["request"]
    assert request == {**ASKED, "max_attempts": 3, "priority": 0}
    assert rig.call("DELETE", path).ok


def test_attempt_tells_how_often_a_job_was_started_again(browser: Browser) -> None:
    rig = Asking()
    try:
        page = browser.page(f"{rig.url}/#/jobs/{rig.job}")
        page.when("Asked for")
        assert fact(page, "Attempt") == "1 of 2"
        rig.status(f"{rig.job}.1", "TASK_LOST")
        wait_until(
            "the launch is lost",
            lambda: rig.call("GET", f"/v1/jobs/{rig.job}").json()["infrastructure_failures"],
        )
        rig.clock.time += 10
        rig.offered()
        wait_until("it is launched", lambda: rig.call("GET", f"/v1/jobs/{rig.job}").json()["launches"] == 2)
        wait_until("that is shown", lambda: fact(page, "Attempt") != "1 of 2", 30)
        assert fact(page, "Attempt") == "1 of 2, restarted once (TASK_LOST)"
    finally:
        rig.close()


def test_checkpoint_is_noted_after_a_question(rig: Asking, browser: Browser) -> None:
    page = browser.page(f"{rig.url}/#/jobs/{rig.job}")
    page.click("#view .head button", "Checkpoint saved")
    page.click("dialog[open] button", "Checkpoint saved")
    page.when("<dt>Last checkpoint</dt>")
