"""Two schedulers of an earlier release become two of this one, in the documented order, under running work."""

import contextlib
import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local import stack as stacks
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.scheduler.ha.part import DEPOSED
from tests.conftest import wait_until
from tests.e2e.ha.test_switch import framework_of, other_than
from tests.e2e.test_jobs import end_of, output_of
from tests.e2e.upgrade.earlier import HA_EARLIER, ROOT, AnyScheduler, archive_of, unpacked
from tests.starts.needs import ZOOKEEPER

DAMAGED = 65
MAX_WAIT_S = 240
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(480),
    ZOOKEEPER,
]


@dataclass(frozen=True)
class Site:
    """A cluster of two schedulers, whose programs can be replaced."""

    stack: Stack
    earlier: Path  # its sources
    archive: Path  # where hosts start their program from
    ours: Path  # the same of this program
    flags: Path  # a directory

    def begun(self, scheduler: AnyScheduler, name: str) -> str:
        """Start a job that ends with status 7 once its flag is there; without a client, for any release is asked."""
        flag = self.flags / name
        command = f"echo begins; while [ ! -e {flag} ]; do sleep 0.1; done; echo ends; exit 7"
        asked = json.dumps({"name": name, "command": command, "gpus": 1, "cpus": 0.1, "mem_mib": 32})
        connection = http.client.HTTPConnection("127.0.0.1", scheduler.port, timeout=30)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/jobs", asked, {"Content-Type": "application/json"})
            response = connection.getresponse()
            made = json.loads(response.read())
        assert response.status == 201, made
        job = str(made["id"])
        wait_until(f"{name} runs", lambda: state_of(scheduler, job) == "running", MAX_WAIT_S)
        return job

    def see_the_end(self, client: Client, name: str, job: str) -> None:
        (self.flags / name).touch()
        ended = end_of(client, client.job(job))
        assert (ended["state"], ended["exit_code"], ended["attempts"]) == ("failed", 7, 1), ended
        assert output_of(client, ended).split() == ["begins", "ends"], "it was started once"


@pytest.fixture
def site(open_directory: Path) -> Iterator[Site]:
    earlier = unpacked(open_directory / "earlier", HA_EARLIER)
    ours = archive_of(ROOT, open_directory / "ours.pyz")
    archive = archive_of(earlier, open_directory / "mesos-gpu-executor.pyz")
    flags = open_directory / "flags"
    flags.mkdir()
    flags.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stacks, "SchedulerProcess", AnyScheduler)
        stack = Stack(
            open_directory / "stack",
            [NodeSpec(2), NodeSpec(2)],
            schedulers=2,
            scheduler_arguments=["--executor-archive", str(archive), "--report-interval", "1"],
        )
    for each in stack.schedulers:
        assert isinstance(each, AnyScheduler)
        each.tree = earlier
    with stack:
        yield Site(stack, earlier, archive, ours, flags)


def state_of(scheduler: AnyScheduler, job: str) -> str:
    return str(scheduler.get(f"/v1/jobs/{job}")["state"])


def abdicated(stack: Stack, leader: AnyScheduler) -> None:
    """The leader leaves its place, and its process ends."""
    connection = http.client.HTTPConnection("127.0.0.1", leader.port, timeout=30)
    with contextlib.closing(connection):
        connection.request("DELETE", "/v2/leader")
        assert connection.getresponse().status == 200
    wait_until("it has ended", lambda: not leader.running, MAX_WAIT_S)
    assert leader.exit_code == DEPOSED


def outdated(leader: AnyScheduler) -> list[str]:
    """Nodes whose monitors are to be replaced."""
    return [node["hostname"] for node in leader.get("/v1/upgrade")["nodes"] if node["outdated"]]


def anew(scheduler: AnyScheduler, tree: Path) -> None:
    scheduler.kill()
    scheduler.tree = tree
    scheduler.start().wait()


@pytest.mark.long
def test_upgrade_of_the_standby_and_then_of_the_leader_keeps_running_work(
    site: Site,
) -> None:
    stack = site.stack
    first = stack.await_leader()
    [second] = stack.standbys()
    assert isinstance(first, AnyScheduler)
    assert isinstance(second, AnyScheduler)
    [framework] = framework_of(stack)
    wait_until("the nodes report", lambda: len(first.get("/v1/gpus")["gpus"]) == 4)
    before = site.begun(first, "before")
    site.archive.write_bytes(site.ours.read_bytes())

    anew(second, ROOT)
    # A standby of this release, a leader of the earlier one.
    wait_until("it follows", lambda: state_of(second, before) == "running", MAX_WAIT_S)
    between = site.begun(second, "between")
    assert stack.leader() is first

    abdicated(stack, first)
    assert other_than(stack, first) is second
    assert framework_of(stack) == [framework]

    first.start()  # the earlier release once more, by its service: it cannot read what this one writes
    wait_until("it refuses", lambda: not first.running, MAX_WAIT_S)
    assert first.exit_code == DAMAGED, first.tail()
    assert "run the leader's version of mesos_gpu" in first.log.read_text()
    anew(first, ROOT)
    assert stack.leader() is second
    with Client(first.url) as client:
        wait_until("all monitors are ours", lambda: not outdated(second), MAX_WAIT_S)
        for name, job in (("before", before), ("between", between)):
            assert client.job(job)["state"] == "running"
            site.see_the_end(client, name, job)
        after = site.begun(second, "after")
    abdicated(stack, second)
    assert other_than(stack, second) is first
    assert framework_of(stack) == [framework]
    with Client(first.url) as client:
        site.see_the_end(client, "after", after)
