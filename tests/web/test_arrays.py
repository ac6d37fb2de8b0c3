"""Job arrays on the dashboard: one row with how many have ended, which opens into the tasks."""

import re
from collections.abc import Iterator

import pytest

from mesos_gpu.testing.builders import gpu
from tests.contract.rig import Rig
from tests.web.browser import NEEDED, Browser

pytestmark = NEEDED


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.close()


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
    assert not [each for each in view.console if "/changes" not in each]
