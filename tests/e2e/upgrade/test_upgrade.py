"""A scheduler of an earlier commit, its executors and monitors, and this one: under running work, both ways."""

import hashlib
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.adapters.simulated_gpus import change_gpu
from mesos_gpu.cli.client import Client
from mesos_gpu.local import stack as stacks
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.wires import OLDEST, WIRE
from tests.conftest import wait_until
from tests.e2e.ha.test_zookeeper_away import sample
from tests.e2e.test_jobs import end_of, output_of, submit
from tests.e2e.upgrade.earlier import ROOT, AnyScheduler, archive_of, unpacked, with_wires

DEBIAN = "/usr/sbin:/usr/bin:/sbin:/bin"  # its python3, and not that of these tests
MAX_WAIT_S = 240
pytestmark = [pytest.mark.on_change("upgrade"), pytest.mark.cluster, pytest.mark.timeout(480)]


@dataclass(frozen=True)
class Site:
    """A cluster whose scheduler, and whose hosts' programs, can be replaced."""

    stack: Stack
    scheduler: AnyScheduler
    archive: Path
    earlier: Path  # its sources
    archives: dict[str, Path]  # earlier, ours, later

    def scheduler_is(self, tree: Path) -> None:
        """Kill the scheduler, and go on with another program."""
        self.scheduler.kill()
        self.scheduler.tree = tree
        self.scheduler.start().wait()

    def hosts_have(self, name: str) -> str:
        """Put another program where hosts start theirs from; its digest."""
        data = self.archives[name].read_bytes()
        part = self.archive.with_name("part")
        part.write_bytes(data)
        part.replace(self.archive)
        return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Programs:
    """Sources of the earlier commit, and what hosts run of it, of this checkout, and of a release to come."""

    earlier: Path
    archives: dict[str, Path]


@pytest.fixture(scope="module")
def programs(open_directory: Path) -> Programs:
    earlier = unpacked(open_directory / "earlier")
    later = with_wires(open_directory / "later", WIRE + 5, WIRE + 1)
    trees = {"earlier": earlier, "ours": ROOT, "later": later}
    return Programs(
        earlier, {name: archive_of(tree, open_directory / f"{name}.pyz") for name, tree in trees.items()}
    )


@contextmanager
def a_site(programs: Programs, directory: Path, first: str) -> Iterator[Site]:
    """A cluster that begins with a program and a scheduler of it."""
    archive = directory / "mesos-gpu-executor.pyz"
    archive.write_bytes(programs.archives[first].read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stacks, "SchedulerProcess", AnyScheduler)
        stack = Stack(
            directory / "stack",
            [NodeSpec(2), NodeSpec(2)],
            scheduler_arguments=["--executor-archive", str(archive), "--report-interval", "1"],
            executor_environment={"PATH": DEBIAN},
        )
    scheduler = stack.scheduler
    assert isinstance(scheduler, AnyScheduler)
    scheduler.tree = programs.earlier if first == "earlier" else ROOT
    with stack:
        yield Site(stack, scheduler, archive, programs.earlier, programs.archives)


@pytest.fixture
def old_site(programs: Programs, open_directory: Path) -> Iterator[Site]:
    """All of it is of the earlier commit."""
    with a_site(programs, fresh(open_directory), "earlier") as site:
        yield site


@pytest.fixture
def site(programs: Programs, open_directory: Path) -> Iterator[Site]:
    """All of it is of this checkout."""
    with a_site(programs, fresh(open_directory), "ours") as site:
        yield site


def fresh(directory: Path) -> Path:
    """A directory of its own below one that every user may pass."""
    made = directory / f"site-{time.monotonic_ns()}"
    made.mkdir(mode=0o755)
    return made


@contextmanager
def client_of_site(site: Site) -> Iterator[Client]:
    with Client(site.stack.url) as client:
        wait_until("the nodes report", lambda: len(client.gpus()) == 4)
        yield client


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    with client_of_site(site) as client:
        yield client


@pytest.fixture
def old_client(old_site: Site) -> Iterator[Client]:
    with client_of_site(old_site) as client:
        yield client


def told(site: Site) -> dict[str, dict[str, Any]]:
    """Return the nodes of /v1/upgrade by host."""
    return {node["hostname"]: node for node in site.scheduler.get("/v1/upgrade")["nodes"]}


def digests(site: Site) -> list[str | None]:
    return [node["program"] and node["program"]["digest"] for node in told(site).values()]


def tasks_of(site: Site) -> dict[str, str]:
    """The state of every task that Mesos has not seen the end of."""
    (framework,) = site.stack.cluster.master.state()["frameworks"]
    return {task["id"]: task["state"] for task in framework["tasks"]}


def begun(client: Client, site: Site, name: str, **more: object) -> dict[str, Any]:
    """Start a job that ends with status 7 once its flag is there."""
    flag = site.archive.with_name(f"end-{name}")
    job = submit(
        client, f"echo begins; while [ ! -e {flag} ]; do sleep 0.1; done; echo ends; exit 7", gpus=1, **more
    )["id"]
    wait_until(f"{name} runs", lambda: client.job(job)["state"] == "running", MAX_WAIT_S)
    return dict(client.job(job))


def see_the_end(client: Client, site: Site, name: str, job: dict[str, Any]) -> None:
    assert f"{job['id']}.1" in tasks_of(site), "it was started once"
    site.archive.with_name(f"end-{name}").touch()
    ended = end_of(client, client.job(job["id"]))
    assert (ended["state"], ended["exit_code"]) == ("failed", 7), ended
    assert output_of(client, ended).split() == ["begins", "ends"]


def words_of_roll(site: Site) -> list[str]:
    return [line for line in site.scheduler.log.read_text().splitlines() if "node monitor of" in line]


def all_new(site: Site, digest: str) -> None:
    wait_until("both monitors are replaced", lambda: digests(site) == [digest, digest], MAX_WAIT_S)


def test_upgrade_keeps_work_that_the_earlier_release_began(old_site: Site, old_client: Client) -> None:
    site, client = old_site, old_client
    sick = GpuId(min(gpu["uuid"] for gpu in client.gpus()))
    number = next(n for n in (1, 2) if sick in site.stack.inventory(n).read_text())
    job = begun(client, site, "across")
    change_gpu(site.stack.inventory(number), sick, health="sick", reason="XID 79")
    wait_until("it is seen", lambda: site.scheduler.get(f"/v1/gpus/{sick}")["health"] == "sick")
    change_gpu(site.stack.inventory(number), sick, health="ok", reason="")
    monitors = {each for each in tasks_of(site) if each.startswith("gpu-monitor")}

    digest = site.hosts_have("ours")
    site.scheduler_is(ROOT)
    all_new(site, digest)
    assert monitors.isdisjoint(tasks_of(site))
    wait_until("both are told", lambda: len(words_of_roll(site)) == 4)
    assert ["being replaced" in line for line in words_of_roll(site)] == [True, False, True, False]
    assert client.job(job["id"])["state"] == "running"
    history = site.scheduler.get(f"/v1/gpus/{sick}")["history"]
    assert any(change["new"] == "sick" for change in history), "what the first monitor knew is not forgotten"
    executors = site.scheduler.get("/v1/upgrade")["executors"]
    assert [(each["wire"], each["tasks"], each["unlimited"]) for each in executors] == [(1, 1, 1)]
    see_the_end(client, site, "across", job)
    go_back(client, site, job)


def go_back(client: Client, site: Site, job: dict[str, Any]) -> None:
    """The earlier one does not take up the state, and starts with the copy that the upgrade made, put there by hand: it
    has no `restore`, and this one's would give the copy this one's schema."""
    state = site.scheduler.directory / "state.sqlite"
    site.scheduler.kill()
    refused_by_the_earlier(site)
    (copy,) = state.parent.glob("state.sqlite.before-v*[0-9]")
    away = state.parent / "away"
    away.mkdir()
    for each in [state, *map(state.with_name, (f"{state.name}{end}" for end in ("-wal", "-shm", ".mark")))]:
        if each.exists():
            each.rename(away / each.name)
    shutil.copy(copy, state)
    site.scheduler.start("--accept-older-state").wait()
    assert client.job(job["id"])["command"] == job["command"], "what the copy knows is there"
    client.kill(job["id"])  # it ran when the copy was made, so it is started again


def refused_by_the_earlier(site: Site) -> None:
    """The earlier one ends with the traceback of which docs/upgrade.md tells."""
    site.scheduler.tree = site.earlier
    site.scheduler.start()
    wait_until("it ends", lambda: not site.scheduler.running, MAX_WAIT_S)
    words = site.scheduler.tail()
    assert site.scheduler.exit_code == 1, words
    assert re.search(r"_mark_of\(db\)(?s:.*)ValueError: invalid literal for int\(\)[^\n]*#[^\n]*\n*$", words)


def test_downgrade_is_refused_by_the_earlier_release_and_work_runs_on(site: Site, client: Client) -> None:
    job = begun(client, site, "back")
    (executors,) = site.scheduler.get("/v1/upgrade")["executors"]
    assert (executors["wire"], executors["tasks"]) == (WIRE, 1)
    running = tasks_of(site)
    site.scheduler.kill()
    refused_by_the_earlier(site)
    assert tasks_of(site) == running
    site.scheduler_is(ROOT)
    assert client.job(job["id"])["state"] == "running"
    see_the_end(client, site, "back", job)


@pytest.mark.long
def test_upgrade_of_hosts_stops_at_a_program_without_a_common_wire(site: Site, client: Client) -> None:
    ours = site.hosts_have("ours")
    all_new(site, ours)
    later = site.hosts_have("later")
    wait_until("the first is replaced", lambda: later in digests(site), MAX_WAIT_S)
    ((host, first),) = [(host, node) for host, node in told(site).items() if node["unfit"]]
    assert (
        f"speaks wires {WIRE + 1} to {WIRE + 5}, and this scheduler wires {OLDEST} to {WIRE}"
        in first["unfit"]
    )
    wait_until("the roll ends there", lambda: told(site)[host]["problem"], MAX_WAIT_S)
    assert sorted(filter(None, digests(site))) == sorted([ours, later]), "the other one is left alone"
    assert sample(site.scheduler, "mesos_gpu_monitors_stuck") == 1.0
    job = client.submit({"name": "all", "command": "true", "gpus": 1, "tasks": 4})["id"]
    wait_until("why says it", lambda: "start a newer scheduler" in str(client.why(job)))
    client.kill(job)

    site.hosts_have("ours")
    all_new(site, ours)
    assert not any(node["unfit"] or node["problem"] for node in told(site).values())
