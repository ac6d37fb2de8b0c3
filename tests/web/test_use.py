"""Charts of how cards, jobs and nodes are used."""

import re
import time
from collections.abc import Iterator

import pytest

from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.gpu import Inventory
from mesos_gpu.model.nodes.gpu_use import GpuUse, Meters, TaskUse, Work
from tests.conftest import wait_until
from tests.contract.rig import Rig
from tests.doubles.builders import gpu
from tests.web.browser import NEEDED, Browser

pytestmark = NEEDED
CARDS = (gpu("g0"), gpu("g1"))


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(now=time.time())
    rig.node(gpus=CARDS)
    yield rig
    rig.close()


def tell(rig: Rig, looks: int, task: str, held: GpuId) -> None:
    """At each look, ten seconds apart, the card that is held was busy for 4 s more; the other one has no meters."""
    for look in range(looks):
        at, work = rig.clock.time, Work(0.0, 10_000 * look, 4000 * look)
        meters = Meters(memory_used_mib=20480, power_mw=70_000, power_limit_mw=300_000, temperature_c=61)
        uses = tuple(GpuUse(c.id, at, meters, work, 1) if c.id == held else GpuUse(c.id, at) for c in CARDS)
        tasks = (TaskUse(TaskId(task), held, at, 1, 300, work, at - 7200),)
        rig.tell(Inventory(CARDS, "simulated", "535", "12.2", gpu_uses=uses, task_uses=tasks))
        rig.clock.time += 10.0


@pytest.mark.long
def test_cards_jobs_and_nodes_have_charts_of_what_is_known(rig: Rig, browser: Browser) -> None:
    job = rig.submit(name="holder", gpus=1)
    wait_until("it is launched", lambda: rig.call("GET", f"/v1/jobs/{job['id']}").json()["task_id"])
    rig.status(f"{job['id']}.1", "TASK_RUNNING")
    (held,) = rig.call("GET", f"/v1/jobs/{job['id']}").json()["gpu_ids"]
    tell(rig, 5, f"{job['id']}.1", held)
    page = browser.page(f"{rig.url}/#/cards/{held}")
    html = page.when(
        "Utilization over the last 15 min", "now 40 %, mean 40 %, most 40 %", "70 W of 300 W", "61 °C"
    )
    assert re.search('aria-label="Memory used over the last 15 min[^"]*now 20 GiB', html)
    assert re.search('aria-label="Power over the last 15 min[^"]*now 70 W', html)
    page.click("#view button", "24 h")
    page.when("Utilization over the last 24 h")
    (other,) = {card.id for card in CARDS} - {held}
    html = page.visit(f"#/cards/{other}")
    assert "How it was used is not known." in html
    assert "<svg" not in html, "what is not known is no line at 0"
    html = page.visit("#/nodes/a1.example")
    assert html.count("<svg") == 3
    assert 'data-label="Utilization">40 %</td>' in html
    html = page.visit(f"#/jobs/{job['id']}")
    assert "idle for 2 h" in html
    assert 'aria-label="Utilization over' in html
