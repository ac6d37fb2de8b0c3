"""Whose a process is, where somebody has been given a part of the hierarchy of cgroups."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from isolator.devices import cgroups
from isolator.devices.members import firsts_of_engine, member_of, members_of
from isolator.gpus.ledger import Holding, Owner, Trace

NOBODY = 65534
IDENT = "0123abcd" * 8


@pytest.fixture
def owner() -> Iterator[Owner]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield Owner.of(process.pid)
        process.kill()


@pytest.mark.kernel
@pytest.mark.parametrize("name", ["c-1", IDENT])
def test_cgroup_of_a_delegated_hierarchy_does_not_pass_for_a_tasks(
    isolation: cgroups.Version, owner: Owner, name: str
) -> None:
    traces = (Trace("container", IDENT),) if name == IDENT else ()
    holding = Holding("t.1", owner, (), "c-1", traces=traces)
    given = cgroups.Cgroup(isolation, cgroups.mounted()[isolation] / f"given-{os.getpid()}", own=True)
    given.create()
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            os.chown(given.path, NOBODY, NOBODY)
            below = given.path / name
            subprocess.run(["mkdir", below], user=NOBODY, group=NOBODY, extra_groups=[], check=True)
            (below / "cgroup.procs").write_text(str(other.pid))
            assert not _is_the_tasks(holding, other.pid)
            os.chown(below, 0, 0)
            assert not _is_the_tasks(
                holding, other.pid
            )  # version 1 has renames: who has the one above gives names
            os.chown(given.path, 0, 0)
            assert _is_the_tasks(holding, other.pid)
        finally:
            other.kill()
            given.remove()


def _is_the_tasks(holding: Holding, pid: int) -> bool:
    told = {member_of(holding)(pid), pid in members_of([holding])[0]}
    if holding.traces:
        told.add(pid in firsts_of_engine([holding]).values())
    assert len(told) == 1
    return told.pop()
