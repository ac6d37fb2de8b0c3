"""Mesos' own quotas and reservations, derived from the tree of queues, beside a framework that takes every GPU."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from mesos_gpu.cli.client import Client
from mesos_gpu.cli.mesos.master import Master
from mesos_gpu.errors import Unavailable
from mesos_gpu.local.stack import NodeSpec, SchedulerProcess, Stack
from mesos_gpu.wire.mesos.operator.quotas import update_quota, update_weights
from tests.clients import client_of, end_all
from tests.conftest import wait_until
from tests.contract.cli.cli_rig import call
from tests.e2e.tenancy.story import apply
from tests.frameworks.greedy import Greedy, greedy_gpus

pytestmark = pytest.mark.cluster
QUEUES = {"prod": {"guarantee_gpus": 3, "limit_gpus": 3, "weight": 5}, "default": {"limit_gpus": 1}}
ROLES = ("gpu", "gpu-prod", "*")


@pytest.fixture(scope="module")
def stack(open_directory: Path) -> Iterator[Stack]:
    with Stack(open_directory / "stack", [NodeSpec(4)], scheduler_arguments=["--role", "gpu"]) as running:
        yield running


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    """Return a client of the cluster with the same queues for each test; afterwards no quota or job is left."""
    with client_of(stack, 4) as client:
        apply(client, QUEUES)
        yield client
        end_all(client)
        master = Master(f"127.0.0.1:{stack.cluster.master.port}", None)
        master.call(update_quota([{"role": role} for role in ROLES], force=True))
        master.call(update_weights(dict.fromkeys([*ROLES, "gpu/sub"], 1.0)))


def mesos(stack: Stack, *words: str) -> dict[str, Any]:
    done = tried(stack, *words, "--json")
    assert done.exit_code == 0, done.stderr
    return dict(json.loads(done.stdout))


def tried(stack: Stack, *words: str) -> Result:
    where = ("--master", f"127.0.0.1:{stack.cluster.master.port}", "--url", stack.reach)
    return call("mesos", *words, *where)


def by_role(document: dict[str, Any]) -> dict[str, tuple[float | None, float | None]]:
    return {each["role"]: (each["limit_gpus"], each["weight"]) for each in document["roles"]}


def job(client: Client, gpus: int, queue: str = "prod") -> str:
    spec = {"name": "job", "command": "sleep 600", "cpus": 0.1, "mem_mib": 32, "gpus": gpus, "queue": queue}
    return client.submit(spec)["id"]


def test_quota_of_mesos_keeps_other_frameworks_off_guarantees(stack: Stack, client: Client) -> None:
    with Greedy(stack):
        wait_until("it has all", lambda: greedy_gpus(stack) == 4)
        planned = by_role(mesos(stack, "quota", "plan"))
        assert planned == {"gpu": (4, 6.0), "*": (1, None)}
        refused = tried(stack, "quota", "apply", "--yes")
        assert refused.exit_code == 73
        assert "* uses more GPUs than its new limit" in refused.stderr
    wait_until("it is gone", lambda: greedy_gpus(stack) == 0)
    assert tried(stack, "quota", "apply").exit_code == 2, "nobody can be asked"
    changed = mesos(stack, "quota", "apply", "--yes", "--other", "*")
    assert [each["role"] for each in changed["roles"] if each["changes"]] == ["gpu", "*"]
    assert not any(each["changes"] for each in mesos(stack, "quota", "plan", "--other", "*")["roles"])
    with Greedy(stack):
        wait_until("it has what is left", lambda: greedy_gpus(stack) == 1)
        wanted = job(client, 3)
        wait_until("what is guaranteed is there", lambda: client.job(wanted)["state"] == "running")
        assert greedy_gpus(stack) == 1
    shown = {each["name"]: each for each in mesos_of_master(stack, "quota", "show")["roles"]}
    assert shown["*"]["limits"] == {"gpus": 1.0}
    assert shown["gpu"]["weight"] == 6.0


def test_quota_plan_counts_the_gpus_of_a_lost_node_and_says_so(stack: Stack, client: Client) -> None:
    before = by_role(mesos(stack, "quota", "plan", "--other", "*"))
    (agent,) = stack.cluster.agents
    (host,) = {node["hostname"] for node in client.nodes()}
    agent.kill()
    try:
        wait_until("the node is lost", lambda: [node["state"] for node in client.nodes()] == ["lost"], 60)
        planned = tried(stack, "quota", "plan", "--other", "*", "--json")
        assert by_role(json.loads(planned.stdout)) == before
        assert f"4 GPUs of lost nodes are included: {host}" in planned.stderr
    finally:
        agent.start()
    wait_until("it is back", lambda: {gpu["health"] for gpu in client.gpus()} == {"ok"}, 60)
    assert "lost" not in tried(stack, "quota", "plan", "--other", "*").stderr


def mesos_of_master(stack: Stack, *words: str) -> dict[str, Any]:
    done = call("mesos", *words, "--master", f"127.0.0.1:{stack.cluster.master.port}", "--json")
    assert done.exit_code == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_reservation_of_a_pool_takes_whole_agents_and_gives_them_back(stack: Stack, client: Client) -> None:
    running = job(client, 1)
    wait_until("it runs", lambda: client.job(running)["state"] == "running")
    (before,) = mesos(stack, "reserve", "plan", "default")["agents"]
    assert (before["gpus"], before["to_reserve_gpus"], before["in_use_gpus"]) == (4, 3, 1)
    (made,) = mesos(stack, "reserve", "apply", "default", "--yes")["agents"]
    assert (made["reserved_gpus"], made["in_use_gpus"]) == (3, 1)
    client.kill(running)
    wait_until("it has ended", lambda: client.job(running)["state"] == "killed")

    def all_reserved() -> bool:
        (agent,) = mesos(stack, "reserve", "apply", "default", "--yes")["agents"]
        return bool(agent["reserved_gpus"] == 4)

    wait_until("all is reserved", all_reserved)
    with Greedy(stack):
        all_four = job(client, 3)
        wait_until("reserved GPUs are of use", lambda: client.job(all_four)["state"] == "running")
        assert greedy_gpus(stack) == 0
        client.kill(all_four)
        wait_until("it has ended", lambda: client.job(all_four)["state"] == "killed")

        def released() -> bool:
            (agent,) = mesos(stack, "reserve", "release", "default", "--yes")["agents"]
            return bool(agent["reserved_gpus"] == 0)

        wait_until("all is given back", released)
        wait_until("others have them", lambda: greedy_gpus(stack) > 0)


def test_doctor_names_a_role_of_others_that_may_have_all_gpus(stack: Stack, client: Client) -> None:
    with Greedy(stack):
        wait_until("it has all", lambda: greedy_gpus(stack) == 4)
        said = doctor(stack)
    assert "role * of other frameworks may use all GPUs: 4 GPUs, of which queues are guaranteed 3" in said
    assert "--fair_sharing_excluded_resource_names=gpus" in said


def test_doctor_compares_limits_of_roles_with_the_tree_of_queues(stack: Stack, client: Client) -> None:
    limited = {"role": "gpu", "limits": {"gpus": {"value": 2}}}
    master = Master(f"127.0.0.1:{stack.cluster.master.port}", None)
    master.call({"type": "UPDATE_QUOTA", "update_quota": {"quota_configs": [limited]}})
    master.call(update_weights({"gpu/sub": 2.0}))
    said = doctor(stack)
    assert "role gpu is limited to 2 GPUs, fewer than its queues may use" in said
    assert "the limit of role gpu does not hold for gpu/sub" in said
    mesos(stack, "quota", "apply", "--yes")
    assert "role gpu is limited" not in doctor(stack)


def doctor(stack: Stack) -> str:
    where = ("--master", f"127.0.0.1:{stack.cluster.master.port}")
    done = call("--url", stack.reach, "doctor", *where, "--json")
    findings = [each for each in json.loads(done.stdout) if each["check"] == "roles"]
    return "\n".join(f"{each['text']}: {each['remedy']}" for each in findings)


def test_quota_and_reservation_need_a_proof_of_the_operator(open_directory: Path) -> None:
    words = ["--role", "gpu", "--mesos-role-of", "research=gpu-research"]
    with (
        Stack(open_directory / "s", [NodeSpec(2)], secure=True, scheduler_arguments=words) as stack,
        client_of(stack, 2) as client,
    ):
        assert stack.secure is not None
        queues = {"prod": {"limit_gpus": 1}, "default": {"limit_gpus": 0}, "research": {}}
        client.call("PUT", "/v1/queues", dict, body={"version": 0, "queues": queues})
        of_research = job(client, 1, "research")
        wait_until("its role may be registered with", lambda: client.job(of_research)["state"] == "running")
        client.kill(of_research)
        wait_until("it has ended", lambda: client.job(of_research)["state"] == "killed")
        proof = ("--mesos-credentials", str(stack.secure.operator))
        nameless = tried(stack, "quota", "apply", "--yes")
        assert (nameless.exit_code, "refuses: 401" in nameless.stderr) == (78, True), nameless.stderr
        framework = tried(
            stack, "quota", "apply", "--yes", "--mesos-credentials", str(stack.secure.framework)
        )
        assert (framework.exit_code, "refuses: 403" in framework.stderr) == (78, True), framework.stderr
        roles = by_role(mesos(stack, "quota", "apply", "--yes", *proof))
        assert roles == {"gpu": (1, 2.0), "gpu-research": (None, 1.0)}

        def reserved(do: str, *of_role: str) -> int:
            (agent,) = mesos(stack, "reserve", do, "default", *of_role, "--yes", *proof)["agents"]
            return int(agent["reserved_gpus"])

        assert reserved("apply", "--role", "gpu-research") == 2
        assert reserved("release") == 0
        wait_until("all is reserved anew", lambda: reserved("apply", "--role", "gpu") == 2)
        one = job(client, 1)
        wait_until("it runs", lambda: client.job(one)["state"] == "running")
        other = job(client, 1)
        assert client.job(other)["state"] == "pending"
        client.kill(one)
        wait_until("it has ended", lambda: client.job(one)["state"] == "killed")

        client.kill(other)
        wait_until("all is given back", lambda: reserved("release") == 0)


def test_quota_of_a_role_is_not_taken_for_the_size_of_a_node(stack: Stack, client: Client) -> None:
    master = Master(f"127.0.0.1:{stack.cluster.master.port}", None)
    apply(client, {"prod": {"guarantee_gpus": 4}, "default": {}})
    limited = {"role": "gpu", "limits": {"gpus": {"value": 3}}}
    master.call({"type": "UPDATE_QUOTA", "update_quota": {"quota_configs": [limited]}})
    whole = job(client, 4)
    said = "by Mesos' quota the role gpu may have 3 GPUs, and 0 are used"
    wait_until("why says it", lambda: said in client.why(whole)["summary"], 60)
    assert client.why(whole)["can_ever_run"]
    part = job(client, 1)
    master.call({"type": "UPDATE_QUOTA", "update_quota": {"quota_configs": [{"role": "gpu"}]}})
    client.kill(part)
    wait_until("it runs", lambda: client.job(whole)["state"] == "running", 60)


def test_reservation_and_quota_refuse_unknown_names(stack: Stack, client: Client) -> None:
    unknown = tried(stack, "reserve", "plan", "a100")
    assert (unknown.exit_code, "choose one of: default" in unknown.stderr) == (66, True), unknown.stderr
    other = tried(stack, "reserve", "plan", "default", "--role", "spark")
    assert (other.exit_code, "does not have the role spark" in other.stderr) == (78, True), other.stderr
    queue = tried(stack, "quota", "plan", "--role-of", "research=r")
    assert (queue.exit_code, "not a top-level queue" in queue.stderr) == (78, True), queue.stderr


def used(stack: Stack) -> dict[str, float]:
    roles = mesos_of_master(stack, "quota", "show")["roles"]
    return {each["name"]: each["used"].get("gpus", 0.0) for each in roles if each["frameworks"]}


@pytest.fixture
def own_role(stack: Stack, client: Client) -> Iterator[SchedulerProcess]:
    """Return the scheduler, which may be started with other roles; afterwards it has its first ones."""
    yield stack.scheduler
    end_all(client)
    stack.scheduler.kill()
    stack.scheduler.start().wait()


def test_role_of_a_queue_holds_from_the_next_start_on(
    stack: Stack, client: Client, own_role: SchedulerProcess
) -> None:
    first = job(client, 1)
    wait_until("it runs", lambda: client.job(first)["state"] == "running")
    own_role.kill()
    own_role.start("--mesos-role-of", "prod=gpu-prod")
    wait_until("it is back", lambda: _state(client, first) == "running", 60)
    planned = by_role(mesos(stack, "quota", "plan"))
    assert {role: limit for role, (limit, _) in planned.items()} == {"gpu": 1, "gpu-prod": 3}
    second = job(client, 2)
    wait_until("it runs", lambda: client.job(second)["state"] == "running", 60)
    other = client.submit(
        {"name": "job", "command": "sleep 600", "cpus": 0.1, "mem_mib": 32, "gpus": 1, "preemptible": True}
    )["id"]
    wait_until("it runs beside it", lambda: client.job(other)["state"] == "running", 60)
    assert used(stack) == {"gpu": 2.0, "gpu-prod": 2.0}
    master = Master(f"127.0.0.1:{stack.cluster.master.port}", None)
    limited = {"role": "gpu-prod", "limits": {"gpus": {"value": 2}}}
    master.call({"type": "UPDATE_QUOTA", "update_quota": {"quota_configs": [limited]}})
    assert "role gpu-prod is limited to 2 GPUs, fewer than its queues may use" in doctor(stack)


def _state(client: Client, job_id: str) -> str:
    try:
        return str(client.job(job_id)["state"])
    except Unavailable:  # it is starting
        return ""
