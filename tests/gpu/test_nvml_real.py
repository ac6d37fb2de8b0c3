"""NVML on a host that has a GPU: what the driver says is what we say."""

import subprocess
from pathlib import Path

import pytest

from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.nodes.health import Survey
from mesos_gpu.policy.gpus.health import at_first_sight

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("card")]


def nvidia_smi(field: str) -> list[str]:
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")[:-1]


def test_the_inventory_is_nvidia_smis(survey: Survey) -> None:
    gpus = [reading.gpu for reading in survey.readings]
    assert survey.source == "nvml"
    assert [gpu.id for gpu in gpus] == nvidia_smi("uuid")
    assert [gpu.model for gpu in gpus] == nvidia_smi("name")
    assert [gpu.memory_mib for gpu in gpus] == [int(value) for value in nvidia_smi("memory.total")]
    assert [gpu.compute_capability for gpu in gpus] == nvidia_smi("compute_cap")
    assert {survey.driver_version} == set(nvidia_smi("driver_version"))
    assert survey.cuda_version


def test_a_well_gpu_is_ok_and_has_its_device(survey: Survey) -> None:
    for gpu in at_first_sight(survey, 1.0).gpus:
        assert gpu.health is Health.OK, gpu.reason
        assert Path(f"/dev/nvidia{gpu.minor}").is_char_device()
