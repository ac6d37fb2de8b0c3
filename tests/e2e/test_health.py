"""A card turns sick on a real Mesos: its neighbours work on, its job moves, it comes back by itself; and drains."""

import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from mesos_gpu.adapters.simulated_gpus import change_gpu
from mesos_gpu.cli.client import Client
from mesos_gpu.cli.cluster.calls import OperatorCalls
from mesos_gpu.local.stack import NodeSpec, Stack
from mesos_gpu.model.ids import GpuId
from tests.conftest import wait_until
from tests.contract.cli.cli_rig import call

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
RECHECK_S = "1.5"


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    given = {"MESOS_GPU_RECHECK_S": RECHECK_S}
    arguments = ["--report-interval", "1"]
    with Stack(
        open_directory / "stack", [NodeSpec(8)], executor_environment=given, scheduler_arguments=arguments
    ) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with Client(stack.url) as client:
        client.patience_s = 30
        wait_until(
            "all cards are well",
            lambda: [gpu["health"] for gpu in client.gpus()] == ["ok"] * 8,
        )
        yield client


def edit(stack: Stack, uuid: str, **fields: Any) -> None:
    """Change what a simulated card reports from now on; None removes a field."""
    assert change_gpu(stack.inventory(1), GpuId(uuid), **fields)


def health(client: Client, uuid: str) -> str:
    (gpu,) = [gpu for gpu in client.gpus() if gpu["uuid"] == uuid]
    return gpu["health"]


def state(client: Client, job_id: str) -> str:
    return client.job(job_id)["state"]


def submit(client: Client, done: Path, seconds: float = 6.0, **more: Any) -> str:
    command = f"sleep {seconds}; echo $MESOS_GPU_JOB_ID >> {done}"
    return client.submit({"name": "work", "command": command, "gpus": 1, "cpus": 0.1, "mem_mib": 32, **more})[
        "id"
    ]


def cli(stack: Stack, *words: str) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "300")
        return call("--url", stack.url, *words)


@pytest.fixture
def done(open_directory: Path, request: pytest.FixtureRequest) -> Path:
    path = open_directory / f"done-{request.node.name}"
    path.touch()
    path.chmod(0o666)
    return path


def test_health_of_a_card_that_turns_sick_moves_its_job_and_the_card_comes_back(
    stack: Stack, client: Client, done: Path
) -> None:
    ids = [submit(client, done) for _ in range(3)]
    wait_until("three run", lambda: {state(client, job) for job in ids} == {"running"})
    (card,) = client.job(ids[2])["gpu_ids"]

    edit(stack, card, health="sick", reason="XID 48: double-bit ECC error")
    wait_until("it is out", lambda: health(client, card) == "sick")
    wait_until("its job runs elsewhere", lambda: client.job(ids[2])["gpu_ids"] not in ([card], []))
    wait_until("its job runs again", lambda: state(client, ids[2]) == "running")
    others = [job for job in ids if job != ids[2]]
    assert {client.job(job)["launches"] for job in others} == {1}, "its neighbours work on"
    assert {gpu["health"] for gpu in client.gpus() if gpu["uuid"] != card} == {"ok"}

    edit(stack, card, health="ok", reason="")
    wait_until("it is back by itself", lambda: health(client, card) == "ok")
    wait_until("all have finished", lambda: {state(client, job) for job in ids} == {"finished"})
    moved = client.job(ids[2])
    assert (moved["launches"], moved["attempts"]) == (2, 1), "no attempt was used up"
    assert sorted(done.read_text().split()) == sorted(ids), "each ended once"

    story = OperatorCalls(client).gpu(card)["history"]
    changes = [(change["old"], change["new"]) for change in story if change["old"] != change["new"]]
    assert changes[-3:] == [("ok", "sick"), ("sick", "suspect"), ("suspect", "ok")], "each exactly once"
    assert any("XID 48" in change["reason"] for change in story)
    assert any(ids[2] in change["reason"] for change in story), "the job that was moved is part of it"
    assert [change["at"] for change in story] == sorted(change["at"] for change in story)
    told = cli(stack, "gpu", "health", card)
    assert told.exit_code == 0, told.stderr
    for word in ("XID 48", "suspect", "sick", "ok"):
        assert word in told.stdout
    metrics = client._session.get(f"{stack.url}/metrics/prometheus", timeout=60).text
    assert f'mesos_gpu_gpu_health_transitions_total{{uuid="{card}",to="sick"}} 1' in metrics


@pytest.mark.long
@pytest.mark.parametrize(("wish", "launches"), [("notify", 1), ("ignore", 1)])
def test_health_of_a_card_moves_no_job_that_wants_to_stay(
    stack: Stack, client: Client, done: Path, wish: str, launches: int
) -> None:
    job = submit(client, done, 4.0, on_gpu_failure=wish)
    wait_until("it runs", lambda: state(client, job) == "running")
    (card,) = client.job(job)["gpu_ids"]
    edit(stack, card, health="sick", reason="XID 95")
    wait_until("it is out", lambda: health(client, card) == "sick")
    if wish == "notify":
        wait_until("it has the message", lambda: "XID 95" in str(client.job(job)["message"]))
    edit(stack, card, health="ok", reason="")
    wait_until("it has finished", lambda: state(client, job) == "finished")
    assert client.job(job)["launches"] == launches


def test_health_of_a_free_card_that_is_lost_keeps_jobs_off_it(
    stack: Stack, client: Client, done: Path
) -> None:
    card = client.gpus()[0]["uuid"]
    edit(stack, card, health="lost", reason="fallen off the bus")
    wait_until("it is out", lambda: health(client, card) == "lost")
    rest = submit(client, done, 0.2, gpus=7)
    wait_until("the job has finished", lambda: state(client, rest) == "finished", 60)
    assert card not in client.job(rest)["gpu_ids"]
    edit(stack, card, health="ok", reason="")


def test_health_of_a_card_with_a_foreign_process_is_dirty_until_that_ends(
    stack: Stack, client: Client
) -> None:
    card = client.gpus()[5]["uuid"]
    with subprocess.Popen(["sleep", "600"]) as stranger:
        edit(stack, card, pids=[stranger.pid])
        wait_until("it is dirty", lambda: health(client, card) == "dirty")
        (dirty,) = [gpu for gpu in client.gpus() if gpu["uuid"] == card]
        user = pwd.getpwuid(os.geteuid()).pw_name
        assert dirty["reason"] == f"pid {stranger.pid} (sleep) of {user}, which no task accounts for"
        stranger.kill()
    wait_until("it is given out again", lambda: health(client, card) == "ok")
    edit(stack, card, pids=None)


def test_drain_of_a_card_outlives_a_restart_and_moves_its_job_at_the_deadline(
    stack: Stack, client: Client, done: Path
) -> None:
    job = submit(client, done, 5.0)
    wait_until("it runs", lambda: state(client, job) == "running")
    (card,) = client.job(job)["gpu_ids"]
    said = cli(stack, "gpu", "drain", card[:12], "--reason", "a new fan", "--deadline", "1s")
    assert said.exit_code == 0, said.stderr
    assert health(client, card) == "drained"
    wait_until("it runs elsewhere", lambda: client.job(job)["gpu_ids"] not in ([card], []))
    stack.scheduler.kill()
    stack.scheduler.start().wait()
    wait_until("it is still drained", lambda: len(client.gpus()) == 8 and health(client, card) == "drained")
    wait_until("the job has finished", lambda: state(client, job) == "finished")
    assert client.job(job)["attempts"] == 1
    assert cli(stack, "gpu", "undrain", card).exit_code == 0
    wait_until("it is back", lambda: health(client, card) == "ok")
    assert any("a new fan" in change["reason"] for change in OperatorCalls(client).gpu(card)["history"])


def test_reset_by_an_operator_brings_a_card_back(stack: Stack, client: Client) -> None:
    card = client.gpus()[7]["uuid"]
    edit(stack, card, health=None, reason=None, xids=[54])
    wait_until("it is out", lambda: health(client, card) in ("sick", "lost"))
    edit(stack, card, xids=None)
    said = cli(stack, "gpu", "reset", card, "--reason", "reseated")
    assert said.exit_code == 0, said.stderr
    wait_until("it is back", lambda: health(client, card) == "ok")


def test_drain_commands_name_wrong_arguments(stack: Stack, client: Client) -> None:
    none = cli(stack, "gpu", "drain", "GPU-ffffffff", "--reason", "x")
    assert none.exit_code == 66
    assert "GPU-ffffffff" in none.stderr
    assert cli(stack, "gpu", "drain", "GPU-f", "--reason", "x", "--deadline", "soon").exit_code == 2
    assert cli(stack, "node", "drain", "no-such-node", "--reason", "x").exit_code == 66
    assert "isolation" in cli(stack, "node", "list").stdout.lower()


def test_drain_of_a_node_keeps_work_off_it(stack: Stack, client: Client, done: Path) -> None:
    name = client.nodes()[0]["hostname"]
    assert cli(stack, "node", "drain", name, "--reason", "new kernel").exit_code == 0
    job = submit(client, done, 0.1)
    why = wait_until("why says so", lambda: cli(stack, "why", job).stdout)
    assert "new kernel" in why or "drained" in why
    assert cli(stack, "node", "undrain", name).exit_code == 0
    wait_until("it has finished", lambda: state(client, job) == "finished")
