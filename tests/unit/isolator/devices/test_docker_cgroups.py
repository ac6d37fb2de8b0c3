"""Devices of a container by its cgroup: asked for where the host has one that lists them, and nowhere else."""

import os
from pathlib import Path

import pytest

from isolator.devices import cgroups, docker_devices


@pytest.mark.parametrize(
    ("mounts", "paths", "places"),
    [
        ({}, {}, {"/dev"}),
        ({"cgroup2": "v2"}, {"cgroup2": "/box"}, {"/dev"}),
        ({}, {"cgroup1": "/box"}, {"/dev"}),
        ({"cgroup1": "v1"}, {}, {"/dev"}),
        ({"cgroup1": "v1"}, {"cgroup1": "/box"}, {"/dev", "its device cgroup"}),
    ],
)
def test_docker_devices_are_looked_for_in_a_cgroup_that_lists_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mounts: dict[str, str],
    paths: dict[str, str],
    places: set[str],
) -> None:
    (tmp_path / "v1" / "box").mkdir(parents=True)
    (tmp_path / "v1" / "box" / "devices.list").write_text("c 195:3 rw\nc 195:255 rw\nc 1:3 rwm\n")
    monkeypatch.setattr(cgroups, "mounted", lambda: {name: tmp_path / at for name, at in mounts.items()})
    monkeypatch.setattr(cgroups, "membership", lambda pid: paths)
    devices = docker_devices._devices(os.getpid(), {195})
    assert {*devices} == places
    assert devices.get("its device cgroup", {(195, 3), (195, 255)}) == {(195, 3), (195, 255)}
