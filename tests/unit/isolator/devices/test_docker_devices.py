"""Devices in a container's /dev, in which its root user may have made any file."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from isolator.devices import docker_devices
from isolator.devices.docker_devices import PAUSES_S, verify
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
    monkeypatch.setattr(docker_devices, "MAX_NODES", 9)
    for number in range(9):
        (tmp_path / str(number)).touch()
    assert docker_devices._nodes(tmp_path, {NULL}) == frozenset()
    (tmp_path / "one more").touch()
    with pytest.raises(MesosGpuError, match="more than 9 entries"):
        docker_devices._nodes(tmp_path, {NULL})


def test_nodes_are_devices_of_the_drivers_and_nothing_else(tmp_path: Path) -> None:
    """Without following links; those of capabilities are in a directory of their own."""
    (tmp_path / "nvidia-caps").mkdir()
    for name, kind, major, minor in (
        ("nvidia0", stat.S_IFCHR, 195, 0),
        ("other name", stat.S_IFCHR, 195, 7),
        ("uvm", stat.S_IFCHR, 511, 1),
        ("disk", stat.S_IFBLK, 195, 2),
        ("null", stat.S_IFCHR, 1, 3),
        ("nvidia-caps/cap1", stat.S_IFCHR, 510, 1),
    ):
        os.mknod(tmp_path / name, kind | 0o600, os.makedev(major, minor))
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "null")
    before = len(os.listdir("/proc/self/fd"))
    nodes = docker_devices._nodes(tmp_path, {195, 510, 511})
    assert nodes == {(195, 0), (195, 7), (511, 1), (510, 1)}
    assert docker_devices._nodes(tmp_path, {1}) == {(1, 3)}
    (tmp_path / "null").unlink()
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("/dev/null")
    assert docker_devices._nodes(tmp_path, {1}) == frozenset()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("line", "listed"),
    [
        ("c 195:3 rw", (195, 3)),
        ("c 195:* r", (195, -1)),
        ("a *:* rwm", (-1, -1)),
        ("c *:3 rwm", (-1, 3)),
        ("c 1:3 rwm", None),
        ("b 195:3 rwm", None),
        ("b *:* rwm", None),
        ("c 195:3 m", None),
        ("c *:* m", None),
    ],
)
def test_a_list_of_a_cgroup_names_what_may_be_opened(
    tmp_path: Path, line: str, listed: tuple[int, int] | None
) -> None:
    path = tmp_path / "devices.list"
    path.write_text(f"c 511:9 rw\n{line}\n")
    expected = {(511, 9)} | ({listed} if listed else set())
    assert docker_devices._listed(path, {195, 511}) == expected


class Seen:
    """Devices of a container at each look; those of the last look stay."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *looks: dict[str, set[tuple[int, int]]]) -> None:
        self.looks, self.paused = list(looks), list[float]()
        monkeypatch.setattr(docker_devices, "_devices", self.look)
        monkeypatch.setattr("time.sleep", self.paused.append)

    def look(self, _pid: int, _majors: set[int]) -> dict[str, frozenset[tuple[int, int]]]:
        seen = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return {place: frozenset(devices) for place, devices in seen.items()}


RIGHT: dict[str, set[tuple[int, int]]] = {"/dev": {(195, 0)}, "its device cgroup": {(195, 0)}}


def test_a_container_that_is_right_at_last_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch, RIGHT)
    verify(os.getpid(), [(195, 0)], {195})
    assert seen.paused == []
    more = {**RIGHT, "/dev": {(195, 0), (195, 1)}}
    seen = Seen(monkeypatch, more, more, more, RIGHT)
    verify(os.getpid(), [(195, 0)], {195})
    assert seen.paused == list(PAUSES_S[:3])


@pytest.mark.parametrize("place", list(RIGHT))
@pytest.mark.parametrize("devices", [set(), {(195, 0), (195, 1)}])
def test_a_container_with_more_or_less_than_it_was_granted_is_named(
    monkeypatch: pytest.MonkeyPatch, place: str, devices: set[tuple[int, int]]
) -> None:
    seen = Seen(monkeypatch, {**RIGHT, place: devices})
    with pytest.raises(MesosGpuError) as error:
        verify(os.getpid(), [(195, 0)], {195})
    assert error.value.what == f"{place} of the container has the devices {sorted(devices)}, not [(195, 0)]"
    assert seen.paused == list(PAUSES_S)


def test_a_container_that_has_ended_has_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    verify(process.pid, [(195, 0)], {195})
    seen = Seen(monkeypatch, {"/dev": set()})
    verify(process.pid, [(195, 0)], {195})
    assert seen.paused == []
