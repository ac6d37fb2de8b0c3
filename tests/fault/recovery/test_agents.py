"""What an agent remembers is lost under a task that runs: its files, its id, its host's whole memory."""

import json
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from isolator.gpus.ledger import Ledger
from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client
from mesos_gpu.local import leftovers
from mesos_gpu.local.network import Host
from mesos_gpu.local.processes import Agent, poll
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of
from tests.conftest import wait_until
from tests.e2e.test_jobs import end_of, submit
from tests.fault.test_kill9 import is_empty

CARDS = 2
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: containers of an agent that forgot them"),
]


@dataclass(frozen=True, slots=True)
class Booted(Host):
    """This machine, as its processes see it after one boot of several.

    Attributes:
        boot: A file with what random(4) calls boot_id.
    """

    boot: Path

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command, in a mount namespace where this boot's id is."""
        script = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", script, str(self.boot), *command]


def boot(agent: Agent, directory: Path, number: int) -> None:
    """Let the agent's next start be after the boot of that number."""
    at = directory / f"boot-{number}"
    at.write_text(f"00000000-0000-4000-8000-{number:012}\n")
    agent.host = Booted("", agent.ip, at)


@pytest.fixture
def stack(open_directory: Path, tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(open_directory / "stack", [NodeSpec(CARDS)])
    boot(stack.cluster.agents[0], tmp_path, 1)
    with stack:
        yield stack


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with client_of(stack, CARDS) as client:
        yield client


def working(client: Client, directory: Path) -> tuple[Job, Path]:
    """A job that runs on all cards and says so: each of its launches, and each end, is a line of a file."""
    said = directory / "said"
    said.write_text("")
    said.chmod(0o666)
    first = f"test $(grep -c begun {said}) = 1"
    job = submit(
        client, f"echo begun >> {said}; if {first}; then sleep 60; fi; echo ended >> {said}", gpus=CARDS
    )
    wait_until("it runs", lambda: said.read_text() == "begun\n")
    return job, said


def all_is_well(stack: Stack, client: Client, job: Job, said: Path) -> None:
    """The job's command was begun anew, once, and nothing of its first launch is left. Launches that a host refuses
    before its monitor has looked at it use no attempt."""
    ended = end_of(client, job, 120)
    assert (ended["state"], ended["attempts"]) == ("finished", 1), ended
    assert said.read_text() == "begun\nbegun\nended\n"
    ledger = Ledger(stack.directory / "nodes" / "1" / "ledger.sqlite")
    wait_until("its ledger is empty", partial(is_empty, ledger))
    wait_until("one node is up", lambda: [node["state"] for node in client.nodes()] == ["up"])
    wait_until(
        "all cards are free",
        lambda: [(gpu["health"], gpu["task_id"]) for gpu in client.gpus()] == [("ok", None)] * CARDS,
    )
    again = end_of(client, submit(client, "true", gpus=CARDS))
    assert again["state"] == "finished", again


def test_an_agent_whose_work_dir_is_wiped_comes_back_as_another_and_the_job_is_launched_anew(
    stack: Stack, client: Client, open_directory: Path
) -> None:
    (agent,) = stack.cluster.agents
    job, said = working(client, open_directory)
    old = agent.id
    agent.kill()
    shutil.rmtree(agent.directory / "work")
    agent.start().wait()
    assert agent.id != old
    all_is_well(stack, client, job, said)


def test_a_job_goes_on_though_a_new_master_waits_for_the_agent_that_was_wiped(
    stack: Stack, client: Client, open_directory: Path
) -> None:
    """A master that has just come waits ten minutes for agents that it read in its registry, and says nothing of their
    tasks; here another agent is at the address of one."""
    (agent,) = stack.cluster.agents
    job, said = working(client, open_directory)
    old = agent.id
    agent.kill()
    stack.cluster.master.kill()
    shutil.rmtree(agent.directory / "work")
    stack.cluster.master.start().wait()
    agent.start().wait()
    assert agent.id != old
    all_is_well(stack, client, job, said)


def test_an_agent_that_forgets_its_id_does_not_share_the_cards_of_what_still_runs(
    stack: Stack, client: Client, open_directory: Path
) -> None:
    """The link to what it knew is removed, which operators do who change its resources."""
    (agent,) = stack.cluster.agents
    job, said = working(client, open_directory)
    old = agent.id
    agent.kill()
    (agent.directory / "work" / "meta" / "slaves" / "latest").unlink()
    agent.start().wait()
    assert agent.id != old
    all_is_well(stack, client, job, said)


def end_all_of(stack: Stack, agent: Agent) -> None:
    """What a power cut does to the processes and cgroups of a host."""
    agent.kill()

    def left() -> list[psutil.Process]:
        return [
            each
            for each in psutil.process_iter()
            if f"{stack.directory}/mesos/agent-1/" in directory_of(each)
        ]

    def ended() -> bool:
        for process in left():
            process.send_signal(signal.SIGKILL)
        return not left()

    poll("the end of its processes", ended)
    for hierarchy in leftovers.hierarchies():
        for group in sorted((hierarchy / agent.cgroup_root).glob("**/"), reverse=True):
            poll(f"the end of {group}", partial(removed, group))


def directory_of(process: psutil.Process) -> str:
    try:
        return process.environ().get("MESOS_DIRECTORY", "")
    except psutil.Error:
        return ""


def removed(group: Path) -> bool:
    if group.is_dir():
        group.rmdir()
    return True


def renumber(inventory: Path) -> dict[str, int]:
    """Give each card the minor number of the next; what each has now, by UUID."""
    document: dict[str, Any] = json.loads(inventory.read_text())
    minors = [card["minor"] for card in document["gpus"]]
    for card, minor in zip(document["gpus"], [*minors[1:], minors[0]], strict=True):
        card["minor"] = minor
    inventory.write_text(json.dumps(document))
    return {card["uuid"]: card["minor"] for card in document["gpus"]}


def test_a_host_is_booted_anew_and_numbers_its_cards_otherwise(
    stack: Stack, client: Client, open_directory: Path, tmp_path: Path
) -> None:
    """Processes and cgroups are gone, and what the host's ledger says of them is of a boot before: whoever has their
    process ids now holds nothing."""
    (agent,) = stack.cluster.agents
    job, said = working(client, open_directory)
    end_all_of(stack, agent)
    minors = renumber(stack.inventory(1))
    boot(agent, tmp_path, 2)
    agent.start().wait()
    all_is_well(stack, client, job, said)
    wait_until(
        "its cards have their new numbers",
        lambda: {gpu["uuid"]: gpu["minor"] for gpu in client.gpus()} == minors,
    )
