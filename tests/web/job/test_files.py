"""Files of tasks on the page of a job: of one that runs over a channel, of one that has ended in an answer."""

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Final

import pytest

from isolator.session.websocket import WebSocket
from mesos_gpu.engine import events as ev
from mesos_gpu.wire.channel import tree
from mesos_gpu.wire.channel.call import answer_to
from mesos_gpu.wire.channel.file import FileOrder
from mesos_gpu.wire.channel.frames import Frame, Kind, decode, encode
from mesos_gpu.wire.channel.orders import decode_order
from mesos_gpu.wire.channel.tree import Done, Entry, Mark, Said
from tests.conftest import wait_until
from tests.contract.channels.test_channels import Opened, Playing
from tests.doubles.builders import offer
from tests.web.browser import NEEDED, Browser, Page

pytestmark = NEEDED
LISTED: Final = (
    tree.entry(Entry((), "dir", 0o755))
    + tree.entry(Entry(("stdout",), "file", 0o644, 12, 1_700_000_000 * 10**9))
    + tree.entry(Entry(("b\xe9 <i>",), "file", 0o644, 5))
    + tree.entry(Entry((".mesos-gpu-times",), "file", 0o600, 5))
    + tree.entry(Entry(("runs",), "dir", 0o755))
    + tree.entry(Entry(("latest",), "link", 0o777, target="runs"))
    + tree.done(Done(0, 0, 0))
)
TEXT: Final = (
    tree.entry(Entry((), "file", 0o644, 12))
    + tree.data(b"epoch 1 <b>\n")
    + tree.end()
    + tree.done(Done(1, 12, 0))
)
NAMES: Final = (
    "[...document.querySelectorAll('[aria-label=Files] td:first-child')].map((one) => one.innerText)"
)
#: Answers for the files of an ended task in place of the scheduler's, by what and path.
KEPT: Final = """(() => {{
  const own = window.fetch, kept = {kept};
  window.asked = [];
  window.fetch = async (path, ...more) => {{
    if (!String(path).includes("/files?")) return own(path, ...more);
    const query = new URL(path, location.href).searchParams;
    window.asked.push([query.get("what"), query.get("path")]);
    return new Response(Uint8Array.from(atob(kept[query.get("what")]), (one) => one.charCodeAt(0)));
  }};
  window.saved = [];
  URL.createObjectURL = (blob) => {{ window.saved.push(blob); return "#"; }};
}})()"""


@pytest.fixture(scope="module")
def rig() -> Iterator[Playing]:
    rig = Playing()
    yield rig
    rig.close()


def host(rig: Playing, before: int) -> tuple[WebSocket, FileOrder]:
    """Return the executor's end of the channel that a page opened after so many calls, and its order."""

    def calls() -> int:
        return sum(name == "message" for name, _ in rig.driver.calls)

    wait_until("the executor is called", lambda: calls() > before)
    call = rig.called()
    line = rig.host(Opened(f"/v1/channels/{call.id}", "", call, answer_to(call, rig.secret)))
    order = decode_order(decode(line.receive()).data)
    assert isinstance(order, FileOrder)
    return line, order


def answered(rig: Playing, page: Page, selector: str, text: str, stream: bytes) -> FileOrder:
    """Click something that asks for files, and let the executor send a stream of records."""
    before = sum(name == "message" for name, _ in rig.driver.calls)
    page.click(selector, text)
    line, order = host(rig, before)
    for at in range(0, len(stream), 100):  # records in pieces
        line.send(encode(Frame(Kind.STDOUT, stream[at : at + 100])))
    line.send(encode(Frame(Kind.EXIT, numbers=(0,))))
    return order


def test_files_of_a_running_task_are_listed_and_shown(rig: Playing, browser: Browser) -> None:
    page = browser.page(f"{rig.url}/#/jobs/{rig.job}")
    assert answered(rig, page, "#view section button", "List files", LISTED) == FileOrder("list", "")
    page.when("List again")
    assert page.run(NAMES) == ["runs/", "b\xe9 <i>", "latest → runs", "stdout"]
    assert answered(rig, page, "[aria-label=Files] button", "stdout", TEXT) == FileOrder("get", "stdout")
    page.when("epoch 1 &lt;b&gt;")
    assert answered(rig, page, "[aria-label=Files] button", "runs/", LISTED) == FileOrder("list", "runs")
    wait_until("the directory is shown", lambda: ".mesos-gpu-times" in page.run(NAMES))
    fault = tree.said(Mark.FAULT, Said((), "Permission denied")) + tree.done(Done(0, 0, 1))
    answered(rig, page, "[aria-label=Files] button", "stdout", fault)
    page.when("runs/stdout: Permission denied")
    before = sum(name == "message" for name, _ in rig.driver.calls)
    page.click("#view section button", "List again")
    line, _ = host(rig, before)
    line.send(encode(Frame(Kind.FAILED, b"the sandbox is <gone>")))
    page.when("the sandbox is &lt;gone&gt;")
    other = rig.submit(name="other")["id"]
    rig.daemon.put(ev.OffersArrived((offer("more"),)))
    wait_until("it is launched", lambda: rig.call("GET", f"/v1/jobs/{other}").json()["task_id"])
    assert ">List files<" in page.visit(f"#/jobs/{other}"), "the files of the other job are not shown"


def test_files_of_an_ended_task_are_shown_and_downloaded(browser: Browser) -> None:
    rig = Playing()
    try:
        rig.status(rig.task, "TASK_FINISHED")
        wait_until(
            "it has ended", lambda: rig.call("GET", f"/v1/jobs/{rig.job}").json()["ended_at"] is not None
        )
        page = browser.page(f"{rig.url}/#/jobs/{rig.job}")
        page.when("List files")
        kept = {"list": b64encode(LISTED).decode(), "get": b64encode(TEXT).decode()}
        page.run(KEPT.format(kept=json.dumps(kept)))
        page.click("#view section button", "List files")
        page.click("[aria-label=Files] button[aria-label='Download stdout']")
        wait_until("it is saved", lambda: page.run("window.saved.length"))
        assert page.run("window.saved[0].text()") == "epoch 1 <b>\n"
        assert page.run("window.asked") == [["list", ""], ["get", "stdout"]]
    finally:
        rig.close()
