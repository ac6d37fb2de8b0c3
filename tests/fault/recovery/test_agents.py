"""What an agent remembers is lost under a task that runs: its files, its id, its host's whole memory."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from isolator.gpus.ledger import Ledger
from mesos_gpu.api.spec.shapes import Job
from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of
from tests.conftest import wait_until
from tests.e2e.test_jobs import end_of, submit
from tests.fault.test_kill9 import is_empty
from tests.remote.machines import Machine, renumber

CARDS = 2
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: containers of an agent that forgot them"),
]


@pytest.fixture
def stack(open_directory: Path) -> Iterator[Stack]:
    with Stack(open_directory / "stack", [NodeSpec(CARDS)]) as stack:
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


def test_an_agent_whose_work_dir_is_wiped_returns_with_a_new_id_and_the_job_is_launched_again(
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


def test_after_a_reboot_a_host_numbers_its_cards_otherwise(open_directory: Path, tmp_path: Path) -> None:
    """Processes and cgroups are gone, and what the host's ledger says of them is of a boot before: whoever has their
    process ids now holds nothing."""
    stack = Stack(open_directory / "stack", [NodeSpec(CARDS)])
    (agent,) = stack.cluster.agents
    machine = Machine(agent, tmp_path / "boots")
    machine.boot()
    with contextlib.closing(machine), stack, client_of(stack, CARDS) as client:
        job, said = working(client, open_directory)
        machine.cut_power()
        minors = renumber(stack.inventory(1))
        machine.boot()
        agent.start().wait()
        all_is_well(stack, client, job, said)
        wait_until(
            "its cards have their new numbers",
            lambda: {gpu["uuid"]: gpu["minor"] for gpu in client.gpus()} == minors,
        )
