"""Three masters without a quorum, and three of a user without rights."""

import os
import shutil
import signal
import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.libmesos import fetch, helpers
from mesos_gpu.local.processes import Master
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until
from tests.e2e.mesos.test_hosts import led
from tests.e2e.test_jobs import end_of, submit
from tests.starts.needs import ZOOKEEPER
from tests.web.browser import NEEDED, Browser
from tests.web.conftest import browser, started  # noqa: F401  fixtures

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    ZOOKEEPER,
]


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    with Stack(open_directory / "stack", [NodeSpec(2), NodeSpec(2)], masters=3) as stack:
        yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.url) as client:
        wait_until("all nodes report", lambda: len(client.gpus()) == 4)
        yield client


def elections(master: Master) -> int:
    """Return the number of times that a master was elected."""
    return master.log.read_text().count("Elected as the leading master")


@NEEDED
def test_page_of_a_master_that_does_not_lead_leads_to_the_leader(
    stack: Stack,
    browser: Browser,  # noqa: F811
) -> None:
    leader = led(stack)
    other = next(master for master in stack.cluster.masters if master is not leader)
    page = browser.page(other.url)
    page.when("This master does not lead.")
    page.click("#view a", "To the master that leads")
    page.when(f"led by {leader.ip}:{leader.port}")


def test_masters_without_a_quorum_elect_none_and_work_goes_on(stack: Stack, client: Client) -> None:
    """The registry could not be kept, so the master that is left must not lead. Tasks do not notice."""
    first = led(stack)
    others = [master for master in stack.cluster.masters if master is not first]
    job = submit(client, "sleep 15", gpus=1)
    wait_until("it runs", lambda: client.job(job["id"])["state"] == "running")
    last = others[1]
    before = elections(last)
    for master in (first, others[0]):
        master.kill(signal.SIGKILL)
    wait_until("the last one is elected, and cannot recover", lambda: elections(last) > before)
    assert stack.cluster.leader() is None
    wait_until("it ends, to be started anew", lambda: not last.running)
    for master in others:
        master.start()
    assert led(stack) in others
    ended = end_of(client, job)
    assert (ended["state"], ended["attempts"]) == ("finished", 1), ended
    first.start()


#: What an ordinary user runs: three masters, the first leader is killed, and a job runs under each.
UNPRIVILEGED = """
import signal, sys
from pathlib import Path
from mesos_gpu.cli.client import Client
from mesos_gpu.local.processes import poll
from mesos_gpu.local.stack import NodeSpec, Stack
with Stack(Path(sys.argv[1]), [NodeSpec(1)], masters=3) as stack, Client(stack.url) as client:
    poll("its card", lambda: len(client.gpus()) == 1)
    def run():
        job = client.submit({"command": "id -un", "gpus": 1})["id"]
        ended = ("finished", "failed", "killed", "lost")
        return poll("the job", lambda: client.job(job)["state"] in ended and client.job(job)["state"])
    first = stack.cluster.await_leader()
    print(run())
    first.kill(signal.SIGKILL)
    second = stack.cluster.await_leader()
    print(second is not first, run(), stack.cluster.isolation)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_masters_run_for_a_user_without_rights(open_directory: Path) -> None:
    own = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
    home = open_directory / "home"
    home.mkdir()
    home.chmod(0o777)
    shutil.copy(fetch.libmesos(), home)
    done = subprocess.run(
        [own if own.exists() else sys.executable, "-c", UNPRIVILEGED, str(home / "stack")],
        env={
            "MESOS_GPU_CACHE": str(home), "PATH": os.environ["PATH"], "HOME": str(home),
            "PYTHONPATH": os.pathsep.join([str(helpers.ROOT), *site.getsitepackages()]),
        },
        cwd="/", user="nobody", group="nogroup", extra_groups=[], capture_output=True, text=True, timeout=200,
        check=False,
    )  # fmt: skip
    if "No module named" in done.stderr:
        pytest.skip(f"{helpers.ROOT} cannot be read by the user nobody")
    assert done.stdout == "finished\nTrue finished posix\n", done.stderr
    assert not (home / "stack").exists()
