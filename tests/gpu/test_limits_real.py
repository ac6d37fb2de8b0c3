"""Memory limits by cgroup on a card (driver 615, root): refused at the limit, counted, and gone with the task."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolator.devices.cgroups import Cgroup
from isolator.gpus.ledger import Ledger, Trace
from isolator.gpus.nvml_child import NvmlCalls
from isolator.shares.driver import limits
from isolator.shares.driver.limits import CGROUPS, CgroupLimits
from isolator.shares.tenancy import Tenancy
from mesos_gpu.model.nodes.gpu import Gpu
from mesos_gpu.model.nodes.health import Survey
from mesos_gpu.model.shares.share import Method, Share
from tests.conftest import wait_until
from tests.cuda import PROGRAM

pytestmark = pytest.mark.gpu

SHARE_MIB, CHUNK_MIB = 8192, 64
CONTEXT_MIB = 2048  # the most that a context may take of it


@pytest.fixture
def cgroup(survey: Survey, card: Gpu) -> Iterator[Path]:
    """A cgroup of a task, which is removed."""
    if os.geteuid() != 0:
        pytest.skip("memory limits by cgroup need root")
    major = (survey.driver_version or "0").partition(".")[0]
    if int(major) < 615:
        pytest.skip(f"memory limits by cgroup need driver 615: this is {survey.driver_version}")
    if why := limits.unfit():
        pytest.skip(f"memory limits by cgroup: {why}")
    if card.sharing is None or card.sharing.mig:
        pytest.skip("needs a card whose MIG mode is off")
    group = Cgroup("cgroup2", CGROUPS / "mesos_gpu" / f"test-{os.getpid()}", own=True)
    group.create()
    yield group.path
    group.remove()


def test_a_task_is_refused_beyond_its_limit_and_leaves_none(card: Gpu, cgroup: Path, tmp_path: Path) -> None:
    share = Share(250, SHARE_MIB, SHARE_MIB, Method.DMEM_WINDOWS)
    tenancy = Tenancy("t", cgroup.name, (card,), share, tmp_path, os.environ)
    calls = NvmlCalls()
    measure = CgroupLimits(calls)
    measure.make(tenancy, Ledger(tmp_path / "ledger.sqlite"))
    join = f"echo 0 > {cgroup}/cgroup.procs; exec {sys.executable} {PROGRAM} dlsym"
    program = subprocess.Popen(
        ["sh", "-c", join],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": card.id},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    try:
        assert program.stdout.readline().strip() == "0"
        program.stdin.write("info()\n")
        assert eval(program.stdout.readline())[2] == SHARE_MIB, "CUDA sees the share, not the card"
        program.stdin.write(f"allocs({CHUNK_MIB}, {SHARE_MIB // CHUNK_MIB + 8})\n")
        taken_mib = int(program.stdout.readline()) * CHUNK_MIB
        assert SHARE_MIB - CONTEXT_MIB <= taken_mib <= SHARE_MIB
        said = calls.ask("limits", uuid=card.id, cgroup=str(cgroup))
        assert (said["soft_mib"], said["hard_mib"]) == (0, SHARE_MIB)
        assert taken_mib <= said["used_mib"] <= SHARE_MIB
    finally:
        program.kill()
        program.wait(60)
        for pipe in (program.stdin, program.stdout):
            pipe.close()

    def used_mib() -> int:
        return int(calls.ask("limits", uuid=card.id, cgroup=str(cgroup))["used_mib"])

    wait_until("what the dead one had is given back", lambda: used_mib() == 0)
    limits.undo(Trace(limits.KIND, f"{card.id} {cgroup}"), calls)
    after = calls.ask("limits", uuid=card.id, cgroup=str(cgroup))
    assert after is None or (after["soft_mib"], after["hard_mib"]) == (0, None)
    above = cgroup.parent / "dmem.min"
    lines = [line.split() for line in above.read_text().splitlines()] if above.exists() else []
    assert {bytes_ for key, bytes_ in lines if key.startswith("nvidia/")} <= {"0"}, "nothing stays reserved"
