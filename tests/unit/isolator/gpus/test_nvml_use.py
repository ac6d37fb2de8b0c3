"""The use of a card by NVML: the real binding over a library of ours, and a fake whose cards lack things."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from mesos_gpu.adapters.nvml.session import Nvml
from mesos_gpu.adapters.simulated_gpus import simulated_gpus
from mesos_gpu.model.nodes.gpu_use import Meters, Span
from mesos_gpu.model.nodes.health import Reading
from mesos_gpu.wire.mesos.health import reading_from_json
from tests.doubles.cuda import Cards, Host
from tests.doubles.nvml.fake import FakeNvml

GPUS = simulated_gpus(1, "Tesla T4", seed="use")
S = 1_000_000  # microseconds
SAMPLES = [[10 * S, 0], [11 * S, 100], [12 * S, 50]]
TWO_LOOKS = """
import json, os
from mesos_gpu.adapters.nvml.session import Nvml, load
from mesos_gpu.wire.mesos.health import reading_to_json
nvml = Nvml(load())
nvml.open()
looks = [nvml.survey()]
if "STUB_NVML_USE" in os.environ:
    os.environ["STUB_NVML_USE"] = "5"  # samples by now
looks.append(nvml.survey())
print(json.dumps([reading_to_json(look.readings[0]) for look in looks]))
"""


def two_looks(stubs: Path, path: Path, **env: str) -> list[Reading]:
    """What the real binding reads of a library whose structs are NVIDIA's."""
    host = Host(path / "host", stubs, Cards(path / "cards"))
    argv = [sys.executable, "-c", TWO_LOOKS]
    done = subprocess.run(argv, env=host.env(**env), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [reading_from_json(value) for value in json.loads(done.stdout)]


def test_each_meter_is_read_from_its_place(stubs: Path, tmp_path: Path) -> None:
    _, reading = two_looks(stubs, tmp_path, STUB_NVML_USE="2")
    assert reading.meters == Meters(
        gpu_pct=41,
        memory_pct=42,
        encoder_pct=43,
        decoder_pct=44,
        memory_used_mib=0,
        memory_free_mib=16384,
        memory_reserved_mib=0,
        power_mw=250001,
        power_limit_mw=700002,
        energy_mj=0x123456789AB,
        temperature_c=61,
        memory_temperature_c=77,
        sm_clock_mhz=1981,
        memory_clock_mhz=1982,
        pcie_tx_kib_s=7000,
        pcie_rx_kib_s=7001,
        pcie_replays=8,
        nvlink_tx_kib=0x100000000 + 138,
        nvlink_rx_kib=0x100000000 + 139,
    )


def test_samples_between_two_looks_are_counted_once(stubs: Path, tmp_path: Path) -> None:
    first, second = two_looks(stubs, tmp_path, STUB_NVML_USE="2")
    assert (first.span, first.process_busy_ms) == (None, None)
    assert second.span == Span(3000, 1500)
    assert second.process_busy_ms == ((4711, 1200), (4712, 300))


def test_a_driver_that_tells_nothing_leaves_all_unknown_and_the_card_well(
    stubs: Path, tmp_path: Path
) -> None:
    for reading in two_looks(stubs, tmp_path):
        assert reading.meters == Meters(memory_used_mib=0, memory_free_mib=16384, memory_reserved_mib=0)
        assert (reading.span, reading.process_busy_ms) == (None, None)
        assert (reading.lost, reading.unreadable, reading.reset_required) == (False, "", "")


def looks(*states: dict[str, Any]) -> list[Reading]:
    """A reading of a fake card in each of these states, one after the other."""
    cards: dict[str, Any] = {}
    nvml = Nvml(FakeNvml(GPUS, {"cards": cards}))
    nvml.open()
    readings: list[Reading] = []
    for state in states:
        cards["0"] = state
        readings += nvml.survey().readings
    nvml.close()
    return readings


def test_without_a_new_sample_nothing_was_seen() -> None:
    well = {"samples": SAMPLES, "gpu_pct": 5, "memory_pct": 1}
    assert [each.span for each in looks(well, well)] == [None, Span(0, 0)]


def test_a_card_that_stops_to_tell_is_unknown() -> None:
    assert [each.span for each in looks({"samples": SAMPLES}, {})] == [None, None]


def test_a_lost_card_has_no_use() -> None:
    (reading,) = looks({"lost": True, "samples": SAMPLES})
    assert (reading.lost, reading.meters, reading.span) == (True, Meters(), None)


def test_processes_are_told_of_since_the_look_before() -> None:
    later = [*SAMPLES, [13 * S, 100], [14 * S, 100]]
    of_processes = [[7, 11 * S, 100], [7, 13 * S, 30], [8, 14 * S, 10]]
    _, second = looks({"samples": SAMPLES}, {"samples": later, "process_samples": of_processes})
    assert second.span == Span(2000, 2000)
    assert second.process_busy_ms == ((7, 600), (8, 200))
