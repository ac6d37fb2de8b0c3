"""What is seen of a container's /dev, in which its root user may have made whatever it likes."""

import os
from pathlib import Path

import pytest

from isolator.devices import docker_devices
from mesos_gpu.errors import MesosGpuError

NULL = os.major(os.stat("/dev/null").st_rdev)  # its major is that of some devices here


def test_a_link_in_the_place_of_capabilities_does_not_lead_out(tmp_path: Path) -> None:
    assert docker_devices._nodes(tmp_path, {NULL}) == frozenset()
    (tmp_path / "nvidia-caps").symlink_to("/dev")
    assert docker_devices._nodes(tmp_path, {NULL}) == frozenset()
    assert (NULL, 3) in docker_devices._nodes(Path("/dev"), {NULL})


def test_a_directory_of_any_size_is_not_read_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_devices, "MOST_NODES", 9)
    for number in range(9):
        (tmp_path / str(number)).touch()
    assert docker_devices._nodes(tmp_path, {NULL}) == frozenset()
    (tmp_path / "one more").touch()
    with pytest.raises(MesosGpuError, match="more than 9 entries"):
        docker_devices._nodes(tmp_path, {NULL})
