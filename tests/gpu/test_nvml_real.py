"""NVML on a host that has a GPU: what the driver says is what we say."""

import subprocess

import pytest

from mesos_gpu.adapters.nvml import NvmlProbe
from mesos_gpu.model.gpu import Health

pytestmark = pytest.mark.gpu


def nvidia_smi(field: str) -> list[str]:
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")[:-1]


def test_the_inventory_is_nvidia_smis() -> None:
    found = NvmlProbe().inventory()
    assert found.source == "nvml"
    assert [gpu.id for gpu in found.gpus] == nvidia_smi("uuid")
    assert [gpu.model for gpu in found.gpus] == nvidia_smi("name")
    assert [gpu.memory_mib for gpu in found.gpus] == [int(value) for value in nvidia_smi("memory.total")]
    assert {found.driver_version} == set(nvidia_smi("driver_version"))


def test_a_well_gpu_is_ok_and_has_its_device() -> None:
    from pathlib import Path

    for gpu in NvmlProbe().inventory().gpus:
        assert gpu.health is Health.OK, gpu.reason
        assert Path(f"/dev/nvidia{gpu.minor}").is_char_device()
