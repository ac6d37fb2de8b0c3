"""The watch on shares: whose processes use what, by the driver and by the task's own account, and what is found."""

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.devices.rules import DriverFacts
from isolator.gpus.ledger import Claimed, Ledger, Owner
from isolator.gpus.share_claims import CardTrace, Room, ShareClaim
from isolator.shares.shim.region import MIB, USAGE_BYTES, CardLimits, Region, region_of
from isolator.shares.watch import Watch, slack_from
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.ids import GpuId, TaskId
from mesos_gpu.model.nodes.health import Reading
from mesos_gpu.model.nodes.share_use import ShareUse
from mesos_gpu.model.shares.share import Method, Share
from tests.doubles.builders import gpu

CARD, TASK = GpuId("GPU-1"), TaskId("train.1")
SHARE = Share(250, 2000, 2000, Method.SHIM_WINDOWS)
ME = os.getpid()


class Host:
    """A node directory with a ledger, a clock that a test sets, and a watch."""

    def __init__(self, path: Path) -> None:
        self.ledger = Ledger(path / "ledger.sqlite")
        self.now = 100.0
        self.env = {"MESOS_GPU_SHARE_SLACK_MIB": "100", "MESOS_GPU_VOLUMES": str(path / "volumes")}
        self.nvidia_uvm: int | None = None
        self.watch = Watch(self.ledger, self.env, lambda: self.now, self._driver)

    def _driver(self) -> DriverFacts:
        return DriverFacts({} if self.nvidia_uvm is None else {"nvidia-uvm": self.nvidia_uvm})

    def hold(self, share: Share = SHARE, task: TaskId = TASK) -> Region:
        """This process holds a share, and has its files."""
        rooms = {CARD: Room(8000)}
        cards = (CardTrace(CARD, "windows", ""),)
        claimed = self.ledger.claim(task, [CARD], Owner.of(ME), share=ShareClaim(share, rooms, cards))
        assert isinstance(claimed, Claimed)
        region = region_of(self.ledger.directory, task)
        region.create([CardLimits(CARD, share.memory_mib * MIB)])
        return region

    def look(
        self, process_mib: dict[int, int] | None = None, pids: tuple[int, ...] = ()
    ) -> tuple[ShareUse, ...]:
        """Look three seconds later."""
        self.now += 3.0
        told = None if process_mib is None else tuple(process_mib.items())
        reading = Reading(gpu(CARD), pids=pids or tuple(process_mib or ()), process_mib=told)
        return self.watch.look([reading])


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process that is of no task: not below this one."""
    script = "setsid sleep 60 >/dev/null 2>&1 & echo $!"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    pid = int(done.stdout)
    yield pid
    os.kill(pid, 9)


def test_without_shares_there_is_nothing_to_say(host: Host) -> None:
    assert host.look({ME: 4000}) == ()


def test_share_use_is_the_drivers_of_the_tasks_processes(host: Host, stranger: int) -> None:
    host.hold()
    (use,) = host.look({ME: 1500, stranger: 9000})
    assert (use.task_id, use.gpu_id, use.memory_mib, use.most_mib, use.looks) == (TASK, CARD, 1500, 1500, 0)
    (use,) = host.look({ME: 700})
    assert (use.memory_mib, use.most_mib) == (700, 1500), "the most is kept"


def test_share_excess_above_the_slack_is_counted_by_look(host: Host) -> None:
    host.hold()
    assert [host.look({ME: mib})[0].looks for mib in (2100, 2101, 2500, 9000, 9000, 2100)] == [
        0,
        1,
        2,
        3,
        3,
        0,
    ]


def test_share_account_of_the_task_is_shown_and_not_enforced(
    host: Host,
) -> None:
    host.hold()
    (use,) = host.look(None, (ME,))
    assert (use.memory_mib, use.looks) == (0, 0)
    (use,) = host.look({1: 5}, (ME,))  # it says it of others only
    assert (use.memory_mib, use.looks) == (0, 0)


def test_share_is_reduced_by_memory_beside_the_tasks_account(host: Host) -> None:
    region = host.hold()

    def beside() -> int:
        (card,) = region.limits((CARD,))
        return card.unaccounted_bytes // MIB

    host.look({ME: 500})
    assert beside() == 0, "one look may be amid an allocation"
    host.look({ME: 400})
    assert beside() == 400
    host.look({ME: 403})
    assert beside() == 400, "the file is not written for a little"
    with host.ledger.turn([CARD]):
        host.look({ME: 900})
        host.look({ME: 900})
        assert beside() == 400, "somebody plans windows: later"
    host.look({ME: 900})
    assert beside() == 900


@pytest.mark.parametrize("seed", range(20))
def test_any_bytes_in_a_usage_file_harm_nobody_but_their_task(host: Host, seed: int) -> None:
    other = TaskId("other.1")
    region = host.hold()
    host.hold(task=other)
    chance = random.Random(seed)
    kept = chance.randbytes(chance.choice([0, 1, 63, 64, USAGE_BYTES, USAGE_BYTES + 4096]))
    head = region.usage_path.read_bytes()[:64] if chance.random() < 0.7 else b""
    region.usage_path.write_bytes(head + kept[len(head) :])
    uses = {use.task_id: use for use in host.look(None, (ME,))}
    assert uses[other].problem == ""
    bad = uses[TASK]
    assert bad.looks == 0
    assert bad.problem != "" or (bad.memory_mib or 0) >= 0
    assert region.usage_path.stat().st_size <= USAGE_BYTES


@pytest.mark.parametrize("name", ["limits", "usage"])
def test_use_of_a_share_names_missing_files(host: Host, name: str) -> None:
    region = host.hold()
    (region.path / name).unlink()
    (use,) = host.look({ME: 100})
    assert name in use.problem
    assert use.memory_mib == 100


def test_limits_that_a_killed_writer_left_half_written_are_written_again(host: Host) -> None:
    """A process that starts would not take them, and have nothing of the card."""
    region = host.hold()
    with region.limits_path.open("r+b") as file:
        file.seek(8)  # the generation
        file.write((5).to_bytes(8, "little"))
    host.look({ME: 100})
    assert int.from_bytes(region.limits_path.read_bytes()[8:16], "little") == 8
    assert region.limits((CARD,))[0].memory_bytes == SHARE.memory_mib * MIB


def test_share_use_of_an_ended_task_is_forgotten(host: Host) -> None:
    region = host.hold()
    host.look({ME: 9000})
    host.ledger.release(TASK, Owner.of(ME))
    region.remove()
    assert host.look({ME: 9000}) == ()
    host.hold()
    (use,) = host.look({ME: 100})
    assert (use.most_mib, use.looks) == (100, 0)


def test_a_libcuda_that_is_none_of_ours_is_named(host: Host, tmp_path: Path) -> None:
    libraries = tmp_path / "volumes/builds/b1/lib64"
    libraries.mkdir(parents=True)
    sleep = shutil.which("sleep")
    assert sleep is not None
    for name in ("libcuda.so.1", "libmgpu-real-cuda.so"):
        (libraries / name).write_bytes(b"ours")
    own = tmp_path / "libcuda.so.1"  # a program of that name is mapped as a library is
    shutil.copy(sleep, own)
    host.hold()
    with subprocess.Popen([str(own), "60"]) as process:
        try:
            (use,) = host.look({process.pid: 100})
            assert use.problem.startswith(f"process {process.pid} has loaded {own}")
            shutil.copy(sleep, tmp_path / "again")
            (libraries / "libcuda.so.1").unlink()
            (libraries / "libcuda.so.1").hardlink_to(own)
            assert host.look({process.pid: 100})[0].problem == ""
        finally:
            process.kill()
    assert host.look({process.pid: 100})[0].problem == "", "it has ended"


def test_a_process_that_computes_without_ours_is_named_whatever_its_cuda_is_called(
    host: Host, tmp_path: Path
) -> None:
    libraries = tmp_path / "volumes/builds/b1/lib64"
    libraries.mkdir(parents=True)
    for name in ("libcuda.so.1", "libmgpu-real-cuda.so"):
        (libraries / name).write_bytes(b"ours")
    host.hold()
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            (use,) = host.look({ME: 100})
            assert use.problem.startswith(f"process {ME} has the driver open without the libcuda that keeps")
            (use,) = host.look({process.pid: 100})
            assert use.problem.startswith(f"process {process.pid} has the driver open without")
            host.nvidia_uvm = os.major(os.stat("/dev/null").st_rdev)  # which everybody here has open
            assert "its CUDA is not ours" in host.look({})[0].problem, (
                "NVML does not name it: it has the device open"
            )
            host.nvidia_uvm = None
            assert host.look({})[0].problem == ""
        finally:
            process.kill()


def test_hardware_s_shares_are_shown_and_not_held_against_anybody(host: Host) -> None:
    host.hold(replace(SHARE, method=Method.DMEM_MPS3))
    (use,) = host.look({ME: 9000})
    assert (use.memory_mib, use.looks) == (9000, 0)


@pytest.mark.parametrize("text", ["-1", "1.5", "x"])
def test_a_slack_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadConfiguration, match="MESOS_GPU_SHARE_SLACK_MIB"):
        slack_from({"MESOS_GPU_SHARE_SLACK_MIB": text})
    assert slack_from({}) == 1024
