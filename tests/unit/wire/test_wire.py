"""Bytes and JSON to nouns and back."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from mesos_gpu.model.apps.app import App, Container, EngineType, PortMapping, PortProtocol
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.jobs.artifact import Artifact
from mesos_gpu.model.jobs.docker_options import DockerOptions, Ulimit
from mesos_gpu.model.jobs.mount import Mount
from mesos_gpu.model.jobs.port import PortBinding
from mesos_gpu.model.nodes.gpu import Gpu, Health, Inventory, Link
from mesos_gpu.model.nodes.offer import Scalar, carve, resources_of
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.tasks.assignment import Assignment, Outcome
from mesos_gpu.policy.apps.ports import wishes_of
from mesos_gpu.wire.mesos import assignment, report
from mesos_gpu.wire.mesos.v1 import (
    discovery_to_json,
    offer_from_json,
    resources_to_json,
    status_from_json,
    task_info,
)

OFFER: dict[str, Any] = {
    "id": {"value": "o1"},
    "agent_id": {"value": "a1"},
    "framework_id": {"value": "f"},
    "hostname": "h1",
    "url": {
        "scheme": "http",
        "address": {"hostname": "h1", "ip": "10.0.0.1", "port": 5052},
        "path": "/slave(1)",
    },
    "attributes": [
        {"name": "rack", "type": "TEXT", "text": {"value": "r1"}},
        {"name": "level", "type": "SCALAR", "scalar": {"value": 3.0}},
    ],
    "resources": [
        {
            "name": "cpus",
            "type": "SCALAR",
            "scalar": {"value": 2.5},
            "role": "*",
            "allocation_info": {"role": "*"},
        },
        {
            "name": "cpus",
            "type": "SCALAR",
            "scalar": {"value": 4.0},
            "role": "gpu",
            "allocation_info": {"role": "gpu"},
        },
        {"name": "gpus", "type": "SCALAR", "scalar": {"value": 2.0}, "role": "*"},
        {"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 1, "end": 2}]}},
        {"name": "cpus", "type": "SCALAR", "scalar": {"value": 9.0}, "revocable": {}},
    ],
}


def test_offer_keeps_roles_apart_and_omits_unusable_resources() -> None:
    offer = offer_from_json(OFFER, 5.0)
    assert (offer.id, offer.agent_id, offer.agent_url, offer.received_at) == (
        "o1",
        "a1",
        "http://10.0.0.1:5052",
        5.0,
    )
    assert offer.attributes == {"rack": "r1", "level": "3"}
    assert resources_of(offer.resources).cpus == 6.5
    assert [json.loads(r.kind) for r in offer.resources] == [{"role": "*"}, {"role": "gpu"}, {"role": "*"}]


def test_offer_disk_counts_only_the_file_system_of_the_agent() -> None:
    own = {"name": "disk", "type": "SCALAR", "scalar": {"value": 10.0}, "role": "*"}
    others = [
        {**own, "disk": {"source": {"type": "MOUNT", "mount": {"root": "/mnt"}}}},
        {**own, "disk": {"persistence": {"id": "p"}, "volume": {"container_path": "v", "mode": "RW"}}},
    ]
    assert resources_of(offer_from_json({**OFFER, "resources": [own, *others]}, 0).resources).disk_mib == 10


def test_offer_resources_keep_their_roles() -> None:
    taken, left = carve(offer_from_json(OFFER, 0).resources, Resources(cpus=3.0, gpus=1))
    assert [(r["name"], r["scalar"]["value"], r["role"]) for r in resources_to_json(taken)] == [
        ("cpus", 2.5, "*"),
        ("cpus", 0.5, "gpu"),
        ("gpus", 1.0, "*"),
    ]
    assert resources_of(left).cpus == 3.5
    assert resources_of(left).gpus == 1


def test_offer_gives_no_more_than_it_has() -> None:
    with pytest.raises(ValueError, match="lacks"):
        carve((Scalar("cpus", 1.0),), Resources(cpus=1.001))


def test_resource_amounts_keep_three_decimals() -> None:
    resources: tuple[Scalar, ...] = (Scalar("cpus", 1.0),)
    for _ in range(10):
        _, resources = carve(resources, Resources(cpus=0.1))
    assert resources == ()


def test_status_update_is_read() -> None:
    status = status_from_json(
        {
            "task_id": {"value": "t"},
            "agent_id": {"value": "a"},
            "state": "TASK_FAILED",
            "reason": "REASON_EXECUTOR_TERMINATED",
            "uuid": "dQ==",
            "data": base64.b64encode(b"hi").decode(),
            "message": "m",
        }
    )
    assert (status.task_id, status.agent_id, status.uuid, status.data) == ("t", "a", "dQ==", b"hi")
    bare = status_from_json({"task_id": {"value": "t"}, "state": "TASK_UNKNOWN"})
    assert (bare.agent_id, bare.uuid, bare.data) == (None, None, b"")


def test_task_info_has_an_executor_of_its_own() -> None:
    info = task_info(
        task_id="t.1", agent_id="a", name="train", data=b"x", resources=[Scalar("gpus", 1.0)], executor_id="t.1",
        executor_name="e", executor_command="run", executor_resources=[Scalar("cpus", 0.01)], executor_env={"K": "v"},
        labels={"b": "2", "a": "1"}, kill_grace_s=1.5,
    )  # fmt: skip
    assert info["executor"]["type"] == "CUSTOM"
    assert info["executor"]["executor_id"] == {"value": "t.1"}
    assert info["kill_policy"] == {"grace_period": {"nanoseconds": 1_500_000_000}}
    assert [label["key"] for label in info["labels"]["labels"]] == ["a", "b"]
    assert base64.b64decode(info["data"]) == b"x"


def test_ports_are_announced_with_their_hosts_numbers() -> None:
    """A port that only the container has is announced by its own number."""
    inside = PortMapping(80, name="in", labels={"b": "2", "a": "1"})
    outside = PortMapping(81, 0, protocol=PortProtocol.BOTH)
    app = App("/a", container=Container(EngineType.MESOS, port_mappings=(inside, outside)))
    announced = discovery_to_json("a", wishes_of(app), [31000])
    first, *rest = announced["ports"]["ports"]
    labels = [{"key": k, "value": v} for k, v in (("a", "1"), ("b", "2"), ("network-scope", "container"))]
    assert first == {"number": 80, "protocol": "tcp", "name": "in", "labels": {"labels": labels}}
    assert [(port["number"], port["protocol"]) for port in rest] == [(31000, "udp"), (31000, "tcp")]
    assert {label["value"] for port in rest for label in port["labels"]["labels"]} == {"host"}
    gang = discovery_to_json("train", (), [31005])
    assert gang["ports"] == {"ports": [{"number": 31005, "protocol": "tcp"}]}


def test_assignment_and_outcome_come_back() -> None:
    plan = Assignment("j", 2, None, ("a", "b"), {"K": "v"}, "alice", (GpuId("g"),), 1.5, 0.5)
    docker = DockerOptions({"a": "b"}, 1, (Ulimit("core", 0, -1),), "h", "/src")
    docker = replace(
        docker, hosts=("db:10.0.0.1",), dns=("10.0.0.53",), env={"A": "b"}, init=True, stop_timeout_s=3
    )
    mounts, bindings = (Mount("/a", "b", read_only=False),), (PortBinding(80, 31000, "udp"),)
    more = replace(plan, argv=(), args=("c",), mounts=mounts, bindings=bindings, docker=docker)
    more = replace(more, fetch=(Artifact("http://h/a", dest_path="b").as_uri(),))
    for each in (plan, more):
        assert assignment.decode_assignment(assignment.encode(each)) == each
    outcome = Outcome(signal=9, infrastructure=True, refused_gpus=(GpuId("g"),))
    assert assignment.decode_outcome(assignment.encode(outcome)) == outcome
    too_old = Outcome(min_driver="550", needs="CUDA 12.4 or newer")
    assert assignment.decode_outcome(assignment.encode(too_old)) == too_old


def test_wire_fields_of_older_executors_and_monitors_may_be_absent() -> None:
    old = b'{"version":1,"kind":"Outcome","exit_status":3,"signal":null,"infrastructure":false,"refused_gpus":[]}'
    assert assignment.decode_outcome(old) == Outcome(exit_status=3)
    inventory = report.decode(b'{"version":1,"source":"nvml","driver_version":"535.1","gpus":[]}')
    assert (inventory.volume, inventory.volume_problem) == (None, "")


@pytest.mark.parametrize(
    "field", ['"min_driver":550', '"min_driver":"new"', '"min_driver":["5"]', '"min_driver":"5","needs":1']
)
def test_gpu_minimum_that_is_malformed_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match="not an outcome"):
        assignment.decode_outcome(f'{{"version":1,"kind":"Outcome",{field}}}'.encode())


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"version":2,"kind":"Outcome"}', b"\xff"])
def test_wire_data_of_another_kind_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        assignment.decode_outcome(data)
    with pytest.raises(ValueError):
        report.decode(data)


def test_monitor_report_comes_back() -> None:
    gpu = Gpu(GpuId("g"), "T4", 15360, 3, "0:1", 1, (Link(GpuId("h"), "NV4"),), Health.SICK, "XID 79")
    inventory = Inventory((gpu,), "nvml", "535.1", "12.2", "cgroup2", "535.1", "no room on /")
    assert report.decode(report.encode(inventory)) == inventory


@pytest.mark.parametrize(
    ("field", "value"), [("memory_mib", 0), ("minor", -1), ("minor", 1 << 20), ("id", ""), ("model", "")]
)
def test_report_of_a_gpu_out_of_range_is_refused(field: str, value: object) -> None:
    good: dict[str, Any] = {"id": "g", "model": "T4", "memory_mib": 1, "minor": 0, "pci_bus_id": ""}
    Gpu(**good)
    with pytest.raises(ValueError):
        Gpu(**{**good, field: value})
