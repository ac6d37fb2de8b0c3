"""Default CPUs and memory of jobs with GPUs: a part of the node for each, that never keeps a job from a node."""

from dataclasses import replace
from functools import cache
from itertools import combinations_with_replacement, product
from typing import Any

import pytest

from mesos_gpu.engine.room.footprint import footprint_of
from mesos_gpu.engine.settings import COVER, EXECUTOR, KEEPER, MONITOR, Settings
from mesos_gpu.model.ids import AgentId, JobId
from mesos_gpu.model.jobs.job import PLAIN_CPUS, PLAIN_MEM_MIB, Job, JobSpec
from mesos_gpu.model.resources import NOTHING, Resources
from mesos_gpu.policy.admission.amounts import GpuDefaults, NodeSize, size_of
from mesos_gpu.policy.capacity.fit import room_for
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import GpuRequest, Request
from tests.doubles.builders import gpu, spec

BIG = Resources(cpus=128, mem_mib=1_000_000)
SETTINGS = Settings.of("executor", "monitor")
PLAIN = (PLAIN_CPUS, PLAIN_MEM_MIB)


def size(cpus: float, mem_mib: float, gpus: int = 4, model: str = "A100") -> NodeSize:
    return size_of(Resources(cpus=cpus, mem_mib=mem_mib), [gpu(f"g{i}", model) for i in range(gpus)])


def defaults(*sizes: NodeSize, cpus: float = 4.0, mem_mib: int = 8192) -> GpuDefaults:
    return GpuDefaults(cpus, mem_mib, EXECUTOR, sizes=frozenset(sizes))


def amounts(*sizes: NodeSize, **fields: Any) -> tuple[float, int]:
    return defaults(*sizes).amounts(spec(**fields))


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, PLAIN),
        ({"gpus": 1}, (4, 8192)),
        ({"gpus": 4}, (16, 32768)),
        ({"gpus": 2, "tasks": 3}, (8, 16384)),
        ({"gpus": 2, "array": "0-9"}, (8, 16384)),
        ({"gpus": 1, "gpu_milli": 500}, (2, 4096)),
        ({"gpus": 1, "gpu_milli": 100}, (1, 819)),
        ({"gpus": 1, "gpu_milli": 1}, PLAIN),
        ({"gpus": 1, "gpu_compute_pct": 30, "gpu_memory_mib": 20480}, (1, 2048)),
        ({"gpus": 2, "gpu_compute_pct": 100, "gpu_memory_mib": 40960}, (4, 8192)),
        ({"gpus": 8}, PLAIN),  # no node has as many
    ],
)
def test_default_amounts_follow_the_gpus_of_each_task(
    fields: dict[str, Any], wanted: tuple[float, int]
) -> None:
    assert amounts(size(128, 1_000_000), **fields) == wanted
    assert amounts(**fields) == PLAIN, "as long as no node is known"


def test_default_amounts_are_at_most_nine_tenths_of_the_node_by_gpu() -> None:
    assert amounts(size(8, 16_000), gpus=1) == (1.8, 3600 - 48)
    assert amounts(size(8, 16_000), gpus=2) == (3.6, 7200 - 48)
    assert amounts(size(8, 16_000), gpus=1, gpu_milli=500) == (1, 1800 - 48)
    assert amounts(size(1, 176), gpus=1) == PLAIN


def test_default_amounts_are_those_of_the_smallest_node_with_the_gpus() -> None:
    small, large = size(8, 16_000, model="T4"), size(128, 1_000_000)
    assert amounts(small, large, gpus=1) == amounts(small, gpus=1)
    assert amounts(small, large, gpus=1, gpu_model=("a100",)) == (4, 8192)
    assert amounts(small, large, gpus=1, gpu_model=("NVIDIA T4", "A100")) == amounts(small, gpus=1)
    assert amounts(size(8, 16_000, gpus=2), large, gpus=4) == (16, 32768), "the small one lacks GPUs"
    assert amounts(size(0.5, 16_000), large, gpus=1) == (4, 8192), "it would take no job with one CPU"
    assert amounts(size(0.5, 16_000), large, gpus=1, cpus=0.5) == (1, 3552)
    assert amounts(small, large, gpus=1, compute_capability="8.0") == PLAIN, "the capability is not known"
    assert amounts(small, large, gpus=1, gpu_memory_mib=90_000) == PLAIN, "GPUs are too small"
    assert amounts(small, large, gpus=1, gpu_model=("H100",)) == PLAIN


def test_default_amounts_count_nodes_that_have_not_reported_or_offered_yet() -> None:
    unreported = size_of(Resources(cpus=8, mem_mib=16_000), (), offered=4)
    assert amounts(unreported, gpus=1, gpu_model=("H100",)) == (1.8, 3552)
    assert amounts(unreported, gpus=5) == PLAIN
    assert amounts(size_of(None, [gpu("g0")]), gpus=1) == (4, 8192)


def test_operator_sets_the_default_amounts_and_turns_them_off() -> None:
    job = spec(gpus=2)
    assert defaults(size(128, 1_000_000), cpus=1.5, mem_mib=1024).amounts(job) == (3, 2048)
    assert defaults(size(128, 1_000_000), cpus=0, mem_mib=0).amounts(job) == PLAIN


def test_request_keeps_the_amounts_that_it_names() -> None:
    job, made = spec(gpus=1, cpus=2.5, mem_mib=64), defaults(size(128, 1_000_000))
    assert made.given_to(job, ()) == job
    assert made.given_to(job, {"cpus"}) == replace(job, cpus=4)
    assert made.given_to(replace(job, cpu_limit=1.5), {"cpus"}).cpus == 1.5, "no more than its limit"
    assert made.given_to(job, {"mem_mib"}) == replace(job, mem_mib=8192)
    assert made.given_to(job, {"cpus", "mem_mib"}) == replace(job, cpus=4, mem_mib=8192)


SIZES = [
    Resources(cpus=cpus, mem_mib=mem_mib)
    for cpus, mem_mib in ((1.03, 275), (1.1, 350), (1.1, 2000), (2, 480), (4, 1000), (8, 9000), (64, 250_000))
]
NODES = [(total, gpus) for total, gpus in product(SIZES, (1, 2, 3, 4))]
JOBS = [{"gpus": gpus, "tasks": tasks} for gpus, tasks in product((1, 2, 3), (1, 2, 5))]


def on_nodes(*nodes: tuple[Resources, int]) -> GpuDefaults:
    """Return the defaults of a cluster, from the resources and the number of GPUs of each node."""
    sizes = [size_of(total - MONITOR, [gpu(f"g{i}") for i in range(gpus)]) for total, gpus in nodes]
    return GpuDefaults(4.0, 8192, EXECUTOR, KEEPER, COVER, frozenset(sizes))


@cache
def _slots(total: Resources, gpus: int, amounts: tuple[float, int], asked: int) -> int:
    """Tasks that fit an empty node beside its monitor."""
    job = Job(JobId("j"), spec(gpus=asked, cpus=amounts[0], mem_mib=amounts[1]), 0.0, 0)
    cards = tuple(gpu(f"g{i}") for i in range(gpus))
    node = NodeCapacity(
        AgentId("a"), "a", total - MONITOR + Resources(gpus=gpus), cards, installed=cards, cover=NOTHING
    )
    return room_for(Request(footprint_of(job, SETTINGS).total, GpuRequest(asked)), node).slots


def _fits(nodes: tuple[tuple[Resources, int], ...], job: JobSpec, amounts: tuple[float, int]) -> bool:
    return sum(_slots(total, gpus, amounts, job.gpus) for total, gpus in nodes) >= job.tasks


def test_job_without_amounts_fits_each_empty_cluster_that_the_plain_amounts_fit() -> None:
    fitted = larger = 0
    for nodes in combinations_with_replacement(NODES, 2):
        given_of = on_nodes(*nodes)
        for fields in JOBS:
            job = spec(**fields)
            given = given_of.amounts(job)
            assert given >= PLAIN
            if _fits(nodes, job, PLAIN):
                fitted += 1
                larger += given > PLAIN
                assert _fits(nodes, job, given), (nodes, fields, given)
    assert fitted > 500
    assert larger > 200


def test_shares_without_amounts_fit_a_node_as_many_as_its_gpus_have_room_for() -> None:
    for (total, gpus), parts in product(NODES, (1, 2, 4, 7)):
        left = total - MONITOR - KEEPER - COVER.scaled(gpus)
        cpus, mem_mib = on_nodes((total, gpus)).amounts(spec(gpus=1, gpu_milli=1000 // parts))
        count = gpus * parts
        assert mem_mib == PLAIN_MEM_MIB or count * (mem_mib + EXECUTOR.mem_mib) <= left.mem_mib
        assert cpus == PLAIN_CPUS or count * cpus <= left.cpus
