"""Whose a process is: by its owner, by its container of Mesos', and by that of the Docker Engine."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.devices import cgroups, members
from isolator.devices.members import ENGINES, firsts_of_engine, member_of, members_of
from isolator.gpus.ledger import Holding, Owner, Trace

IDENT, OTHER = "0123abcd" * 8, "9876fedc" * 8
PATHS: Mapping[int, Mapping[cgroups.Version, str]] = {
    1: {"cgroup1": "/", "cgroup2": "/init.scope"},
    11: {"cgroup1": "/mesos/c-1", "cgroup2": "/"},
    12: {"cgroup1": f"/docker/{IDENT}", "cgroup2": "/mesos_gpu/elsewhere"},
    13: {"cgroup2": f"/system.slice/docker-{IDENT}.scope"},
    14: {"cgroup2": f"/mesos_gpu/c-1/{OTHER}"},
    15: {"cgroup1": f"/docker/{OTHER}"},
    16: {"cgroup1": f"/docker/{IDENT}0"},
}


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Owner]:
    """A process without any below it, on a host with these and no others."""
    mounts: dict[cgroups.Version, Path] = {"cgroup1": tmp_path / "1", "cgroup2": tmp_path / "2"}
    for paths in PATHS.values():
        for version, path in paths.items():
            (mounts[version] / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(cgroups, "mounted", lambda: mounts)
    monkeypatch.setattr(members, "_present", lambda: list(PATHS))

    def membership(pid: int) -> Mapping[cgroups.Version, str]:
        if pid not in PATHS:
            raise ProcessLookupError(pid)
        return PATHS[pid]

    monkeypatch.setattr(cgroups, "membership", membership)
    with subprocess.Popen(["sleep", "600"]) as process:
        yield Owner.of(process.pid)
        process.kill()


def test_each_way_to_run_a_task_tells_its_processes(owner: Owner) -> None:
    here = Holding("t.1", owner, (), "c-1")
    nobody = Holding("t.2", replace(owner, pid=2**22 + 1), (), "")
    engines = replace(here, container="c-2", traces=(Trace("docker", "/s box"), Trace(ENGINES, IDENT)))
    own = {owner.pid}
    expected = [own | {11, 14}, {nobody.owner.pid}, own | {12, 13}]
    holdings = [here, nobody, engines]
    assert members_of(holdings) == expected
    for holding, pids in zip(holdings, expected, strict=True):
        is_member = member_of(holding)
        assert {pid for pid in (*PATHS, *own, nobody.owner.pid, os.getpid()) if is_member(pid)} == pids
    assert firsts_of_engine(holdings) == {"c-2": 12}
