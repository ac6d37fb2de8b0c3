"""Requests for GPUs as reservations see them, and placements of apps by an operator."""

from dataclasses import replace
from math import inf

import pytest
from click.testing import CliRunner

from mesos_gpu.cli import main
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.resources import Resources
from mesos_gpu.policy.capacity.node import Allocation, NodeCapacity
from mesos_gpu.policy.capacity.request import Request
from mesos_gpu.policy.room.reservation import reserve
from mesos_gpu.wire.jobs import spec_from_mapping
from tests.doubles.builders import gpu, request, spec

NOW = 1000.0
JOB = Job(JobId("big"), spec(), NOW, 1)
SMALL, LARGE = gpu("g1"), replace(gpu("g2"), memory_mib=90_000, compute_capability="9.0")


def room(name: str, free: tuple[Gpu, ...], held: tuple[Gpu, ...] = (), ends_at: float = inf) -> NodeCapacity:
    amounts = Resources(cpus=8, mem_mib=1000, gpus=len(free))
    node = NodeCapacity(AgentId(name), name, amounts, free, installed=(*free, *held))
    taken = Resources(cpus=1, mem_mib=100, gpus=len(held))
    return node.holding([Allocation(JobId("x"), taken, held, NOW, ends_at)] if held else [])


@pytest.mark.parametrize(
    ("ask", "takes"),
    [
        (request(1, 1, 1), (True, True)),
        (request(1, 1, 1, memory_mib=81_920), (True, True)),
        (request(1, 1, 1, memory_mib=81_921), (False, True)),
        (request(1, 1, 1, compute_capability="9.0"), (False, True)),
        (request(1, 1, 1, compute_capability="10.0"), (False, False)),
        (request(1, 1, 1, memory_mib=1, compute_capability="7.0"), (False, True)),
    ],
)
def test_gpu_request_takes_only_matching_gpus(ask: Request, takes: tuple[bool, bool]) -> None:
    assert (ask.gpu.takes(SMALL), ask.gpu.takes(LARGE)) == takes
    assert ask.gpu.choosy is (ask != request(1, 1, 1))


KEPT = {
    "only GPUs that will do are waited for and kept": (
        request(1, 100, 1, ("A100",), memory_mib=90_000),
        [room("n1", (SMALL,), (gpu("g3"),), NOW + 5), room("n2", (gpu("g4"),), (LARGE,), NOW + 30)],
        ("n2", NOW + 30, {"g2"}),
    ),
    "nobody has so much memory": (request(1, 100, 1, memory_mib=90_001), [room("n1", (SMALL, LARGE))], None),
    "a capability that nobody knows": (
        request(1, 100, 1, compute_capability="8.0"),
        [room("n1", (SMALL,))],
        None,
    ),
    "all of one model, as it will be placed": (
        request(1, 100, 2),
        [room("n1", (SMALL, gpu("g5", "T4")), (gpu("g3"),), NOW + 30)],
        ("n1", NOW + 30, {"g1", "g3"}),
    ),
}


@pytest.mark.parametrize(("ask", "rooms", "want"), KEPT.values(), ids=KEPT)
def test_reservation_for_a_request_names_gpus_and_node(
    ask: Request, rooms: list[NodeCapacity], want: tuple[str, float, set[str]] | None
) -> None:
    reservation = reserve(JOB, ask, rooms, now=NOW)
    assert (
        None if reservation is None else (reservation.agent_id, reservation.at, set(reservation.gpus))
    ) == want


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ["web"],
            "'web' is not APP=POLICY, for example web=spread; POLICY is one of bundle, spread, fragmentation",
        ),
        (["web=best"], "'web=best' is not APP=POLICY"),
        (["Web=spread"], "'Web=spread' is not"),
        (["web=spread", "web=bundle"], "app web has two placements"),
    ],
)
def test_wrong_placements_of_apps_are_refused(given: list[str], said: str) -> None:
    options = [word for each in given for word in ("--placement-of", each)]
    done = CliRunner().invoke(main, ["scheduler", "--master", "m:1", "--state", "/nowhere/s", *options])
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


def test_request_constraints_may_compare_tasks_of_one_job() -> None:
    parsed = spec_from_mapping({"command": "true", "tasks": 3, "constraints": [["hostname", "UNIQUE"]]})
    assert isinstance(parsed, JobSpec)
    assert (parsed.tasks, parsed.app) == (3, None)
