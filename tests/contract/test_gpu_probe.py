"""One suite over both probes, and what is particular to each."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mesos_gpu.adapters.nvml import NvmlProbe
from mesos_gpu.adapters.simulated_gpus import MODELS, SimulatedProbe, simulated_gpus, write_inventory
from mesos_gpu.errors import Damaged, Unavailable
from mesos_gpu.model.gpu import Gpu, Health
from mesos_gpu.ports import GpuProbe
from mesos_gpu.testing.nvml import FakeNvml

Make = Callable[[tuple[Gpu, ...]], GpuProbe]
A100 = "NVIDIA A100-SXM4-80GB"


@pytest.fixture(params=["simulated", "nvml"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    def simulated(gpus: tuple[Gpu, ...]) -> GpuProbe:
        write_inventory(tmp_path / "gpus.json", gpus)
        return SimulatedProbe(tmp_path / "gpus.json")

    return simulated if request.param == "simulated" else lambda gpus: NvmlProbe(FakeNvml(gpus))


def test_what_is_there_is_reported(make: Make) -> None:
    gpus = simulated_gpus(4, A100, seed="host")
    found = make(gpus).inventory()
    assert [
        (g.id, g.model, g.memory_mib, g.minor, g.pci_bus_id, g.numa_node, g.health) for g in found.gpus
    ] == [(g.id, A100, 81920, n, g.pci_bus_id, g.numa_node, Health.OK) for n, g in enumerate(gpus)]
    assert {link.kind for link in found.gpus[0].links if link.peer == gpus[1].id} == {"NV4"}
    assert found.driver_version


def test_no_gpus_is_no_error(make: Make) -> None:
    assert make(()).inventory().gpus == ()


def test_reading_twice_gives_the_same(make: Make) -> None:
    probe = make(simulated_gpus(2, A100, seed="x"))
    assert probe.inventory() == probe.inventory()
    assert not probe.changed()


def test_one_sick_card_does_not_touch_its_neighbours(make: Make) -> None:
    gpus = simulated_gpus(8, A100, seed="x")
    sick = replace(gpus[3], health=Health.SICK, reason="GPU is lost")
    found = make((*gpus[:3], sick, *gpus[4:])).inventory().gpus
    assert [g.health for g in found] == [Health.SICK if n == 3 else Health.OK for n in range(8)]
    assert found[3].reason


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    path, gpus = tmp_path / "g.json", simulated_gpus(1, A100, seed="x")
    write_inventory(path, gpus)
    probe = SimulatedProbe(path)
    assert probe.changed(), "it was never read"
    probe.inventory()
    write_inventory(path, [replace(gpus[0], health=Health.SICK)])
    assert probe.changed()
    assert probe.inventory().gpus[0].health is Health.SICK


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "Expecting property name"),
        ("[]", 'must be an object with a list "gpus"'),
        ('{"gpus": [{"uuid": "GPU-1"}]}', "gpus[0]: model must be of type str, got None"),
        (
            '{"gpus": [{"health": "fine"}]}',
            "gpus[0]: health must be one of ok, suspect, sick, lost, drained, dirty, unknown, got 'fine'",
        ),
        ('{"gpus": [{"colour": 1}]}', "gpus[0]: unknown field 'colour'"),
        ('{"gpus": [], "driver_version": 535}', "driver_version must be a string, got 535"),
    ],
)
def test_a_bad_file_names_file_field_and_value(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "g.json"
    path.write_text(text)
    with pytest.raises(Damaged) as error:
        SimulatedProbe(path).inventory()
    assert str(path) in error.value.what
    assert says in error.value.what


def test_two_cards_of_one_name_are_refused(tmp_path: Path) -> None:
    (gpu,) = simulated_gpus(1, A100, seed="x")
    write_inventory(tmp_path / "g.json", [gpu, gpu])
    with pytest.raises(Damaged, match="twice"):
        SimulatedProbe(tmp_path / "g.json").inventory()


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    probe = SimulatedProbe(tmp_path / "none.json")
    with pytest.raises(Damaged, match="No such file"):
        probe.inventory()


@pytest.mark.parametrize("broken", ["library", "driver"])
def test_a_host_without_driver_is_a_cpu_host_said_once(broken: str, caplog: pytest.LogCaptureFixture) -> None:
    probe = NvmlProbe(FakeNvml((), broken=broken))
    with caplog.at_level(logging.INFO):
        assert probe.inventory().source == "none"
        assert probe.inventory().gpus == ()
    assert [r.getMessage().startswith("this is a CPU host") for r in caplog.records] == [True]


def test_this_host_needs_no_gpu() -> None:
    assert isinstance(NvmlProbe().inventory().gpus, tuple)


def test_nvml_that_fails_as_a_whole_is_an_error() -> None:
    with pytest.raises(Unavailable, match="NVML failed"):
        NvmlProbe(FakeNvml((), broken="unknown")).inventory()


def test_a_card_that_cannot_be_named_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    gpus = simulated_gpus(2, A100, seed="x")
    found = NvmlProbe(FakeNvml(gpus, nameless={0})).inventory()
    assert [g.id for g in found.gpus] == [gpus[1].id]
    assert "GPU 0 of this host cannot be named" in caplog.text


def test_not_supported_is_not_sickness() -> None:
    found = NvmlProbe(FakeNvml(simulated_gpus(1, A100, seed="x"), unsupported=True)).inventory()
    assert (found.gpus[0].health, found.gpus[0].numa_node) == (Health.OK, None)


def test_a_card_that_is_lost_later_keeps_its_name_and_size() -> None:
    """What it cannot say any more is what it said before; the scheduler must not take it for another card."""
    gpus = list(simulated_gpus(2, A100, seed="x"))
    probe = NvmlProbe(FakeNvml(gpus))
    before = probe.inventory().gpus[0]
    gpus[0] = replace(gpus[0], health=Health.SICK)
    after = probe.inventory().gpus[0]
    assert replace(after, health=Health.OK, reason="", links=before.links) == before
    assert after.health is Health.SICK
    assert "lost" in after.reason.lower()


def test_every_session_is_closed() -> None:
    fake = FakeNvml(simulated_gpus(1, A100, seed="x"))
    NvmlProbe(fake).inventory()
    assert fake.open == 0


def test_simulated_gpus_are_distinct_and_repeatable() -> None:
    one, two = simulated_gpus(4, A100, seed="a"), simulated_gpus(4, A100, seed="b")
    assert one == simulated_gpus(4, A100, seed="a")
    assert len({g.id for g in (*one, *two)}) == 8
    assert all(m > 0 for m in MODELS.values())
    assert json.dumps(one[0].id).startswith('"GPU-')
