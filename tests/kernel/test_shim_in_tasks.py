"""Tasks with shares of one card that get our libraries from their executors: what they are granted is what they get.

The driver's libraries and the card are doubles (tests.doubles.cuda); volume, mounts, files and limits are real.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.shares.shim.region import region_of
from mesos_gpu.model.ids import TaskId
from tests.conftest import wait_until
from tests.cuda import card_of, compiled, volume_of_doubles
from tests.doubles.cuda import MIB
from tests.hosts import GPUS, Host
from tests.kernel.conftest import EACH_CGROUP
from tests.kernel.test_shares import DRIVER, QUARTER, Node

pytestmark = [pytest.mark.kernel, pytest.mark.long]
CGROUPS = EACH_CGROUP
Libraries = tuple[Path, dict[str, str]]


class Rig(Node):
    """A host whose driver is the doubles."""

    def __init__(self, directory: Path, isolation: str, stack: ExitStack, libraries: Libraries) -> None:
        super().__init__(directory, isolation, stack)
        self.stubs, ours = libraries
        volume_of_doubles(directory / "volumes", directory / "root", DRIVER, self.stubs, ours)
        self.cards = card_of(directory / "cards", GPUS[0])

    def client(self, arguments: str, memory_mib: int, **env: str) -> Host:
        """Launch the C program with a share of the first card."""
        one = self.executor()
        shutil.copy(self.stubs / "client", one.sandbox)
        share = replace(QUARTER, memory_mib=memory_mib, memory_max_mib=memory_mib)
        command = f"./client {arguments}"
        given = {"STUB_CARDS": str(self.cards.path), **env}
        one.launch(command, user="nobody", gpus=GPUS[:1], share=share, env=given)
        return one


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    return compiled(tmp_path_factory.mktemp("libraries"))


@pytest.fixture
def rig(open_directory: Path, isolation: str, libraries: Libraries) -> Iterator[Rig]:
    directory = open_directory / f"shim-{time.monotonic_ns()}"
    directory.mkdir()
    with ExitStack() as stack:
        yield Rig(directory, isolation, stack, libraries)


def test_two_tasks_of_one_card_get_what_each_was_granted(rig: Rig) -> None:
    two = (rig.client("alloc 900 101 100", 1000), rig.client("alloc 1900 101 100", 2000))
    for one in two:
        one.end("TASK_FINISHED")
        assert one.stdout().split() == ["0", "2", "0"], one.stderr()


def test_the_host_reads_what_a_task_uses(rig: Rig) -> None:
    one = rig.client("run 60000 1000", 1000)
    region = region_of(rig.directory / "node", TaskId(one.task))

    def busy() -> bool:
        usage = region.usage(GPUS[:1]).cards.get(GPUS[0])
        return usage is not None and usage.busy_ns > 0

    wait_until("it works on the card", busy, 60)
    assert region.limits(GPUS[:1])[0].memory_bytes == 1000 * MIB
    one.kill()
    one.end("TASK_KILLED")
    assert not region.path.exists()


def test_a_jobs_variables_do_not_widen_its_share(rig: Rig) -> None:
    other = "/usr/local/nvidia/lib64/libmgpu-real-cuda.so"
    one = rig.client("alloc 900 101", 1000, LD_LIBRARY_PATH="/tmp", MESOS_GPU_SHIM="off", LD_BIND_NOT="1")
    one.end("TASK_FINISHED")
    assert one.stdout().split() == ["0", "2"]
    bypass = rig.client("alloc 900 101", 1000, LD_PRELOAD=other)
    bypass.end("TASK_FINISHED")
    assert bypass.stdout().split() == ["0", "0"], "what is cooperative can be gone round: docs/shim.md"
