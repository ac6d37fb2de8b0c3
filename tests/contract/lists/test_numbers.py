"""A host whose index, minor number and bus id of a GPU differ: every output says which of them it prints."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mesos_gpu.adapters.simulated_gpus import SimulatedProbe
from mesos_gpu.cli import main
from mesos_gpu.model.ids import GpuId
from mesos_gpu.model.nodes.gpu import Gpu, Health, numbered
from mesos_gpu.policy.gpus.health import at_first_sight
from tests.conftest import wait_until
from tests.contract.rig import Rig

#: By UUID: the minor number, and the bus id. The order of bus ids is that of indexes: c, a, b.
PLACES = {
    "GPU-a": (0, "00000000:41:00.0"),
    "GPU-b": (1, "00000001:01:00.0"),
    "GPU-c": (4, "00000000:0A:00.0"),
}
INDEXES = {"GPU-c": 0, "GPU-a": 1, "GPU-b": 2}


def entries() -> list[dict[str, object]]:
    return [
        {"uuid": uuid, "model": "T4", "memory_mib": 15360, "minor": minor, "pci_bus_id": bus}
        for uuid, (minor, bus) in PLACES.items()
    ]


def cards(tmp_path: Path) -> tuple[Gpu, ...]:
    """Return the report of a host with these cards."""
    path = tmp_path / "gpus.json"
    path.write_text(json.dumps({"gpus": entries()}))
    return at_first_sight(SimulatedProbe(path).survey(), 1000.0).gpus


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Rig]:
    rig = Rig()
    rig.node(gpus=cards(tmp_path), isolation="cgroup2")
    monkeypatch.setenv("MESOS_GPU_URL", rig.url)
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
    yield rig
    rig.close()


def good(*words: str) -> list[list[str]]:
    got = CliRunner().invoke(main, words, prog_name="mesos-gpu")
    assert got.exit_code == 0, got.output
    return [line.replace("NODE SAYS", "NODE_SAYS").split() for line in got.stdout.splitlines()]


def column(rows: list[list[str]], name: str) -> list[str]:
    return [row[rows[0].index(name)] for row in rows[1:]]


def test_report_has_the_indexes_of_the_driver(tmp_path: Path) -> None:
    assert {gpu.id: gpu.index for gpu in cards(tmp_path)} == INDEXES


def test_report_of_an_older_monitor_gets_indexes_in_the_order_of_bus_ids(rig: Rig, tmp_path: Path) -> None:
    rig.report(*(replace(gpu, index=None, warnings=("told again",)) for gpu in cards(tmp_path)))
    wait_until("it is reported", lambda: rig.call("GET", "/v1/gpus/GPU-a").json()["warnings"])
    gpus = rig.call("GET", "/v1/gpus").json()["gpus"]
    assert {gpu["uuid"]: gpu["index"] for gpu in gpus} == INDEXES


def test_index_that_is_reported_is_kept() -> None:
    gpus = (
        Gpu(GpuId("GPU-a"), "T4", 1, 0, "0000:02:00.0", index=0),
        Gpu(GpuId("GPU-b"), "T4", 1, 1, "0000:01:00.0"),
    )
    assert numbered(gpus) == gpus


@pytest.mark.parametrize(
    "other",
    [("0000:00:00.0", Health.LOST), ("", Health.OK), ("on the board", Health.OK), ("0:zz:00.0", Health.SICK)],
    ids=["lost", "no-bus-id", "text", "digits"],
)
def test_gpu_without_a_place_on_the_bus_has_no_index_and_shifts_none(other: tuple[str, Health]) -> None:
    bus, health = other
    odd = Gpu(GpuId("GPU-odd"), "T4", 1, 7, bus, health=health)
    gpus = (
        Gpu(GpuId("GPU-b"), "T4", 1, 1, "0000:02:00.0"),
        odd,
        Gpu(GpuId("GPU-a"), "T4", 1, 0, "0000:01:00.0"),
    )
    assert [gpu.index for gpu in numbered(gpus)] == [1, None, 0]
    assert numbered((odd,)) == (odd,), "also of a monitor that reports indexes"


def test_interface_has_all_three_numbers_in_the_order_of_the_index(rig: Rig) -> None:
    gpus = rig.call("GET", "/v1/gpus").json()["gpus"]
    assert [(gpu["uuid"], gpu["index"], gpu["minor"], gpu["pci_bus_id"]) for gpu in gpus] == [
        (uuid, index, *PLACES[uuid]) for uuid, index in INDEXES.items()
    ]
    (node,) = rig.call("GET", "/v1/cards").json()["nodes"]
    assert (node["indexes"], node["minors"]) == ([0, 1, 2], [4, 0, 1])


def test_host_and_number_name_the_card_of_that_index(rig: Rig) -> None:
    assert rig.call("GET", "/v1/gpus/a1.example:0").json()["uuid"] == "GPU-c"
    assert rig.call("GET", "/v1/gpus/a1.example:4").status_code == 404
    good("gpu", "drain", "a1.example:0", "--reason", "fan")
    health = {gpu["uuid"]: gpu["health"] for gpu in rig.call("GET", "/v1/gpus").json()["gpus"]}
    assert health == {"GPU-a": "ok", "GPU-b": "ok", "GPU-c": "drained"}


def test_lists_have_index_and_bus_id(rig: Rig) -> None:
    for words in (["gpus"], ["gpu", "list"]):
        rows = good(*words)
        assert column(rows, "INDEX") == ["0", "1", "2"]
        assert column(rows, "UUID") == list(INDEXES)
        assert column(rows, "BUS_ID") == [PLACES[uuid][1] for uuid in INDEXES]
    assert column(good("gpus", "--wide"), "MINOR") == ["4", "0", "1"]
    for words in (["gpu", "health"], ["top", "--once"]):
        assert column(good(*words), "INDEX") == ["0", "1", "2"]
    story = {line[0]: line[1:] for line in good("gpu", "health", "a1.example:0") if line}
    assert (story["host"], story["index"]) == (["a1.example"], ["0"])
    assert story["minor"] == ["4", "(/dev/nvidia4)"]
    assert ["bus", "id", PLACES["GPU-c"][1]] in good("gpu", "health", "GPU-c")


def test_job_is_shown_with_indexes_and_bus_ids(rig: Rig) -> None:
    job = rig.submit(gpus=3)["id"]
    wait_until("it is launched", lambda: rig.call("GET", f"/v1/jobs/{job}").json()["gpu_ids"])
    held = rig.call("GET", f"/v1/jobs/{job}").json()["gpu_ids"]
    lines = good("show", job)
    numbers = ",".join(str(INDEXES[uuid]) for uuid in held)
    assert ["held", "gpus", f"a1.example:{numbers}"] in lines
    assert ["bus", "ids", *(PLACES[uuid][1] for uuid in held)] in lines


def test_metrics_have_the_index_as_dcgm_has_it(rig: Rig) -> None:
    lines = rig.call("GET", "/metrics/prometheus").text.splitlines()
    (health,) = (
        line
        for line in lines
        if line.startswith("mesos_gpu_gpu_health{") and '"GPU-c"' in line and '"ok"' in line
    )
    assert 'gpu="0"' in health
    (memory,) = (line for line in lines if line.startswith("DCGM_FI_DEV_FB_TOTAL{") and '"GPU-c"' in line)
    assert 'gpu="0"' in memory
    assert 'device="nvidia4"' in memory


def test_card_that_the_driver_does_not_list_has_no_index(rig: Rig, tmp_path: Path) -> None:
    gone = tuple(
        replace(gpu, health=Health.LOST, index=None)
        if gpu.id == "GPU-c"
        else replace(gpu, index=INDEXES[gpu.id] - 1)
        for gpu in cards(tmp_path)
    )
    rig.report(*gone, isolation="cgroup2")
    wait_until("it is reported", lambda: rig.call("GET", "/v1/gpus/a1.example:0").json()["uuid"] == "GPU-a")
    gpus = rig.call("GET", "/v1/gpus").json()["gpus"]
    assert [(gpu["uuid"], gpu["index"]) for gpu in gpus] == [("GPU-a", 0), ("GPU-b", 1), ("GPU-c", None)]
    assert column(good("gpus"), "INDEX") == ["0", "1", "-"]
