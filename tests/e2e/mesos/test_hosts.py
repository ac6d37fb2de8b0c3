"""Three masters, three servers of ZooKeeper and three agents on hosts of their own, with names and secrets: what is
between them is cut.
"""

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from isolator.gpus.ledger import Ledger
from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client
from mesos_gpu.local.network import Host, Way
from mesos_gpu.local.processes import Agent, Master, Process, poll
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.conftest import wait_until
from tests.e2e.test_jobs import end_of, output_of, submit
from tests.starts.needs import NAMESPACES, ZOOKEEPER

TIMEOUT_S = 6  # after which a scheduler that is hasty gives up what runs on agents that are away
pytestmark = [
    pytest.mark.cluster,
    *NAMESPACES,
    ZOOKEEPER,
]


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    with Stack(open_directory / "stack", [NodeSpec(1)] * 3, masters=3, hosts=True, secure=True) as stack:
        yield stack
    assert stack.cluster.network is not None
    left = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    assert stack.cluster.network.name not in left


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.reach) as client:
        wait_until("all nodes report", lambda: len(client.gpus()) == 3)
        yield client


@pytest.fixture
def hasty(stack: Stack, client: Client) -> Iterator[Client]:
    """The scheduler waits TIMEOUT_S for agents that are away."""
    stack.scheduler.kill(signal.SIGTERM)
    stack.scheduler.start("--unreachable-timeout", str(TIMEOUT_S)).wait()
    wait_until(
        "all nodes are up", lambda: states(client) == {agent.ip: "up" for agent in stack.cluster.agents}
    )
    yield client
    stack.scheduler.kill(signal.SIGTERM)
    stack.scheduler.start().wait()


def host_of(process: Process) -> Host:
    assert process.host is not None
    return process.host


def test_jobs_run_on_hosts_of_their_own(stack: Stack, client: Client) -> None:
    job = end_of(client, submit(client, "hostname -I; echo $NVIDIA_VISIBLE_DEVICES", gpus=1))
    address, *gpus = output_of(client, job).split()
    assert address in {agent.ip for agent in stack.cluster.agents}
    assert gpus == job["gpu_ids"]


def another_leads(stack: Stack, first: Master) -> bool:
    """Return whether another master than the first one leads all agents.

    A master that is elected while ZooKeeper has no quorum yet may see another one elected, and ends itself then; it is
    started again, as systemd does on hosts.
    """
    cluster = stack.cluster
    for master in cluster.masters:
        if master is not first and not master.running:
            master.start()
    return cluster.leader() not in (None, first) and all(agent.ready() for agent in cluster.agents)


def test_master_that_others_do_not_hear_is_followed_by_another(stack: Stack, client: Client) -> None:
    """It can send nothing, and its ZooKeeper is cut off with it: the others have the quorum."""
    first = stack.cluster.await_leader()
    job = submit(client, "sleep 6", gpus=1)
    wait_until("it runs", lambda: client.job(job["id"])["state"] == "running")
    others = [each.ip for each in (*stack.cluster.masters, *stack.cluster.agents) if each is not first]
    host_of(first).cut(others)
    try:
        poll("another leads all agents", lambda: another_leads(stack, first), 120, 0.5)
    finally:
        host_of(first).heal()
    wait_until("it ends, to be started anew", lambda: not first.running)
    first.start()
    ended = end_of(client, job)
    assert (ended["state"], ended["attempts"]) == ("finished", 1), ended


def led(stack: Stack) -> Master:
    """The master that leads, once all agents have registered with it."""
    leader = stack.cluster.await_leader()
    for agent in stack.cluster.agents:
        agent.wait()
    return leader


def test_masters_elect_another_when_the_leader_is_killed_and_work_goes_on(
    stack: Stack, client: Client
) -> None:
    """Agents, framework and job are known to a master that never saw them begin."""
    job = submit(client, "sleep 3", gpus=1)
    wait_until("it runs", lambda: client.job(job["id"])["state"] == "running")
    ids = {agent.id for agent in stack.cluster.agents}
    first = led(stack)
    (framework,) = first.state()["frameworks"]
    first.kill(signal.SIGKILL)
    second = led(stack)
    assert second is not first
    assert {agent["id"] for agent in second.agents()} == ids
    wait_until(
        "the scheduler has found it",
        lambda: [each["id"] for each in second.state()["frameworks"] if each["active"]] == [framework["id"]],
    )
    ended = end_of(client, job)
    assert (ended["state"], ended["attempts"]) == ("finished", 1), ended
    again = end_of(client, submit(client, "true", gpus=1))
    assert again["state"] == "finished", again
    first.start()
    poll("a standby", lambda: first.get("/flags") and stack.cluster.leader() is second)


def test_master_that_was_paused_while_it_led_ends_when_it_wakes(stack: Stack, client: Client) -> None:
    """Another leads, for the session was lost: the first ends itself, to be started again, before it does anything."""
    first = led(stack)
    first.kill(signal.SIGSTOP)
    wait_until("another leads", lambda: led(stack) is not first)
    first.kill(signal.SIGCONT)
    wait_until("it ends", lambda: not first.running)
    assert re.search("Lost (leadership|candidacy)", first.log.read_text())
    assert end_of(client, submit(client, "true", gpus=1))["state"] == "finished"
    first.start()
    poll("a standby", lambda: first.get("/flags"))


def test_agents_that_are_cut_off_come_back_with_their_tasks(stack: Stack, client: Client) -> None:
    """Masters take all for unreachable: one is not heard, one hears nothing, one neither. Their tasks are not
    started again, and end as usual."""
    leader = stack.cluster.await_leader()
    jobs = [submit(client, "sleep 10; echo done", gpus=1) for _ in stack.cluster.agents]
    wait_until("they run", lambda: all(client.job(job["id"])["state"] == "running" for job in jobs))
    ids = {agent.id for agent in stack.cluster.agents}
    masters = [master.ip for master in stack.cluster.masters]
    ways: tuple[Way, ...] = ("from", "to", "both")
    for agent, way in zip(stack.cluster.agents, ways, strict=True):
        host_of(agent).cut(masters, way)
    try:
        wait_until("the master has lost them", lambda: leader.agents() == [])
    finally:
        for agent in stack.cluster.agents:
            host_of(agent).heal()
    for agent in stack.cluster.agents:
        agent.wait()
    assert {agent.id for agent in stack.cluster.agents} == ids
    for job in jobs:
        ended = end_of(client, job)
        assert (ended["state"], ended["attempts"], output_of(client, ended)) == ("finished", 1, "done\n"), (
            ended
        )


def test_links_that_are_slow_and_lose_packets_let_each_job_run_once(
    stack: Stack, client: Client, open_directory: Path
) -> None:
    """An update that is not acknowledged in time comes again, and calls are made again."""
    done = open_directory / "done"
    done.touch()
    done.chmod(0o666)
    hosts = [host_of(agent) for agent in stack.cluster.agents]
    for host in hosts:
        host.slow(512)
        host.lose(0.1)
    try:
        jobs = [submit(client, f"sleep 1; echo $MESOS_GPU_JOB_ID >> {done}", gpus=1) for _ in range(9)]
        ends = [end_of(client, job, 120) for job in jobs]
    finally:
        for host in hosts:
            host.heal()
    assert [(end["state"], end["attempts"]) for end in ends] == [("finished", 1)] * len(jobs), ends
    assert sorted(done.read_text().split()) == sorted(job["id"] for job in jobs)


def states(client: Client) -> dict[str, str]:
    """The state of the agent of each host."""
    return {node["hostname"]: node["state"] for node in client.nodes()}


def held(client: Client) -> dict[str, str]:
    """The tasks that hold cards, by the hosts."""
    return {gpu["hostname"]: gpu["task_id"] for gpu in client.gpus() if gpu["task_id"]}


def processes_of(task_id: str) -> list[psutil.Process]:
    """Return the processes of a launch; the hosts share this machine's."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("MESOS_TASK_ID") == task_id:
                processes.append(process)
        except psutil.Error:
            continue
    return processes


def begin(stack: Stack, client: Client, directory: Path) -> tuple[Job, Path, Agent]:
    """A job that is under way on a card until there is a file `go`; what its launches say, a line each; its agent."""
    said = directory / "said"
    said.write_text("")
    said.chmod(0o666)
    (directory / "go").unlink(missing_ok=True)
    waits = f"until [ -e {directory / 'go'} ]; do sleep 0.2; done"
    job = submit(client, f"echo begun $(hostname -I) >> {said}; {waits}; echo ended >> {said}", gpus=1)
    wait_until("it runs", lambda: said.read_text().endswith("\n"))
    address = said.read_text().split()[1]
    return job, said, next(agent for agent in stack.cluster.agents if agent.ip == address)


def lines_of(said: Path) -> list[str]:
    """Return the words of launches without their hosts."""
    return [line.split()[0] for line in said.read_text().splitlines()]


@pytest.mark.long
def test_agent_that_was_away_for_too_long_ends_the_old_copy_and_its_card_is_used_again(
    stack: Stack, hasty: Client, open_directory: Path
) -> None:
    """The copy that was started elsewhere meanwhile is left alone, and is the only one that comes to its end."""
    job, said, agent = begin(stack, hasty, open_directory)
    [first] = hasty.tasks(job["id"])
    host_of(agent).cut(master.ip for master in stack.cluster.masters)
    try:
        wait_until("it was begun elsewhere", lambda: lines_of(said) == ["begun", "begun"], 120)
        old = processes_of(first["id"])
        assert old, "its host could not be asked to end it"
        wait_until("both cards are held", lambda: len(held(hasty)) == 2)
        assert held(hasty)[agent.ip] == first["id"]
        assert states(hasty)[agent.ip] == "lost"
    finally:
        host_of(agent).heal()
    agent.wait()
    [new] = [task for task in hasty.tasks(job["id"]) if task["id"] != first["id"]]
    wait_until("the old copy has ended", lambda: not any(process.is_running() for process in old))
    wait_until("its card is free", lambda: list(held(hasty).values()) == [new["id"]])
    used = end_of(hasty, submit(hasty, "hostname -I", gpus=1, constraints=[["hostname", "IS", agent.ip]]), 60)
    assert (used["state"], output_of(hasty, used).split()) == ("finished", [agent.ip]), used
    (open_directory / "go").touch()
    ended = end_of(hasty, job, 60)
    assert (ended["state"], ended["attempts"]) == ("finished", 1), ended
    assert lines_of(said) == ["begun", "begun", "ended"]
    assert [task["state"] for task in hasty.tasks(job["id"])] == ["lost", "finished"]
    nothing_is_left(stack, hasty, job)


@pytest.mark.long
def test_agent_that_never_returns_is_shown_as_lost_and_nothing_waits_for_it(
    stack: Stack, hasty: Client, open_directory: Path
) -> None:
    """The card of a lost host is held until another agent is in its place: a task there may still use it."""
    job, said, agent = begin(stack, hasty, open_directory)
    there = [["hostname", "IS", agent.ip]]
    unwanted = submit(hasty, "sleep 600", constraints=there)
    wait_until("it runs", lambda: hasty.job(unwanted["id"])["state"] == "running")
    host_of(agent).cut(master.ip for master in stack.cluster.masters)
    try:
        wait_until("it is shown as lost", lambda: states(hasty)[agent.ip] == "lost")
        hasty.kill(unwanted["id"])
        wait_until("it was begun elsewhere", lambda: lines_of(said) == ["begun", "begun"], 120)
        assert end_of(hasty, unwanted, 60)["state"] == "killed"
        wants_all = submit(hasty, "true", gpus=1, tasks=3)
        assert end_of(hasty, submit(hasty, "true", gpus=1), 60)["state"] == "finished"
        assert hasty.job(wants_all["id"])["state"] == "pending"
        assert agent.ip in str(hasty.why(wants_all["id"])), hasty.why(wants_all["id"])
    finally:
        agent.kill()
        shutil.rmtree(agent.directory / "work")
        host_of(agent).heal()
        agent.start().wait()
    (open_directory / "go").touch()
    ended = end_of(hasty, job, 60)
    assert (ended["state"], ended["attempts"]) == ("finished", 1), ended
    assert end_of(hasty, wants_all, 120)["state"] == "finished"
    assert lines_of(said) == ["begun", "begun", "ended"]
    nothing_is_left(stack, hasty, job)
    assert states(hasty) == {each.ip: "up" for each in stack.cluster.agents}


def nothing_is_left(stack: Stack, client: Client, job: Job) -> None:
    """No process, claim or amount of a job, as the kernel, the hosts' ledgers and Mesos say."""
    for task in client.tasks(job["id"]):
        wait_until("its processes have ended", lambda id=task["id"]: not processes_of(id))  # type: ignore[misc]
    for number in range(1, len(stack.cluster.agents) + 1):
        ledger = Ledger(stack.directory / "nodes" / str(number) / "ledger.sqlite")
        wait_until("its ledger is empty", lambda ledger=ledger: not ledger.holdings())  # type: ignore[misc]
    wait_until("no card is held", lambda: not held(client))
    wait_until("Mesos has all GPUs back", lambda: gpus_in_use(stack) == 0)


def gpus_in_use(stack: Stack) -> float:
    frameworks = stack.cluster.await_leader().state()["frameworks"]
    return sum(float(each["used_resources"]["gpus"]) for each in frameworks)
