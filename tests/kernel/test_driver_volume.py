"""The driver volume of a command on the host's file system: at /usr/local/nvidia, for it alone, as long as it runs."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.devices.facts import write_inventory
from isolator.gpus.driver_volume import Keeper, holders
from isolator.node.reaper import reap
from mesos_gpu.model.nodes.gpu import Inventory
from tests.conftest import wait_until
from tests.doubles.elf_files import driver_tree
from tests.doubles.scripted_agent import ScriptedAgent, scripted_agent
from tests.hosts import GPUS, INVENTORY, Host, driver_volume, host
from tests.kernel.conftest import EACH_CGROUP
from volumes.store import Store, verify

pytestmark = pytest.mark.kernel
CGROUPS = EACH_CGROUP
OLD, NEW = "535.129.03", "550.54.14"
#: Each word a file that the task waits for; it tells each time which driver it sees.
WATCH = "for f in {}; do until [ -e $f ]; do sleep 0.02; done; ls /usr/local/nvidia/lib64/libcuda.so.5*; done"


def inventory(version: str) -> Inventory:
    return replace(INVENTORY, driver_version=version, cuda_version="12.2")


@pytest.fixture
def directory(open_directory: Path) -> Path:
    directory = open_directory / str(time.monotonic_ns())
    directory.mkdir()
    return directory


@pytest.fixture
def one(directory: Path, agent: ScriptedAgent, isolation: str) -> Iterator[Host]:
    driver_volume(directory / "volumes", OLD)
    with host(
        directory, agent, MESOS_GPU_ISOLATION=isolation, MESOS_GPU_VOLUMES=str(directory / "volumes")
    ) as one:
        write_inventory(directory / "node", inventory(OLD))
        yield one


def lines(one: Host) -> list[str]:
    return one.stdout().splitlines()


def test_volume_is_mounted_read_only_without_devices_and_set_user_id(one: Host) -> None:
    there = os.path.isdir("/usr/local/nvidia")
    one.launch(
        "grep ' /usr/local/nvidia ' /proc/self/mountinfo | cut -d' ' -f6; command -v nvidia-smi; echo $LD_LIBRARY_PATH;"
        " touch /usr/local/nvidia/x; ls /usr/local/nvidia/lib64/libcuda.so.5*; ls /usr/local",
        user="nobody",
        gpus=GPUS[:1],
    )
    one.end("TASK_FINISHED")
    options, smi, paths, cuda, *local = lines(one)
    assert {"ro", "nosuid", "nodev"} <= set(options.split(","))
    assert smi == "/usr/local/nvidia/bin/nvidia-smi"
    assert paths.endswith("/usr/local/nvidia/lib:/usr/local/nvidia/lib64")
    assert "compat" not in paths
    assert "Read-only file system" in one.stderr()
    assert cuda == f"/usr/local/nvidia/lib64/libcuda.so.{OLD}"
    assert set(local) == {*os.listdir("/usr/local"), "nvidia"}, "and all else is as it was"
    assert os.path.isdir("/usr/local/nvidia") == there, "nothing is left on the host"


def test_library_path_of_the_job_comes_before_the_volume(one: Host) -> None:
    env = {"LD_LIBRARY_PATH": "/opt/own", "PATH": "/opt/bin:/usr/bin:/bin"}
    one.launch("echo $LD_LIBRARY_PATH; echo $PATH", user="nobody", gpus=GPUS[:1], env=env)
    one.end("TASK_FINISHED")
    assert lines(one) == [
        "/opt/own:/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
        "/opt/bin:/usr/bin:/bin:/usr/local/nvidia/bin",
    ]


def test_links_and_files_beside_the_volume_stay_as_they_are(one: Host) -> None:
    one.launch("cd /usr/local; for f in *; do [ -h $f ] && readlink $f; done; stat -c %F *", gpus=GPUS[:1])
    one.end("TASK_FINISHED")
    links = [entry for entry in os.scandir("/usr/local") if entry.is_symlink()]
    assert lines(one)[: len(links)] == [
        os.readlink(each.path) for each in sorted(links, key=lambda e: e.name)
    ]


def test_task_without_gpus_sees_no_driver_volume(one: Host) -> None:
    one.launch('ls /usr/local/nvidia; echo "[$LD_LIBRARY_PATH]"')
    one.end("TASK_FINISHED")
    assert not any("nvidia" in line for line in lines(one))


def test_command_without_a_volume_has_the_hosts_own_libraries(one: Host) -> None:
    write_inventory(one.sandbox.parent / "node", inventory(NEW))
    one.launch("mount | grep -c /usr/local/nvidia; echo ran", gpus=GPUS[:1])
    one.end("TASK_FINISHED")
    assert lines(one) == ["0", "ran"]


@pytest.mark.long
def test_an_upgrade_leaves_a_running_task_its_driver(one: Host, directory: Path) -> None:
    """535 to 550 while a task runs on 535: it keeps that to its end, what starts now gets the new one, and the
    old one goes when nobody has it any more."""
    one.launch(WATCH.format("before after"), user="nobody", gpus=GPUS[:1])
    one.update("TASK_RUNNING")
    (one.sandbox / "before").touch()
    wait_until("it has looked", lambda: len(lines(one)) == 1)
    store, root = Store(directory / "volumes"), directory / "root"
    driver_tree(root, NEW)
    given = {"MESOS_GPU_VOLUMES": str(store.path), "MESOS_GPU_DRIVER_ROOT": str(root)}
    keeper, upgraded = Keeper(given, one.ledger), replace(inventory(NEW), source="nvml")
    wait_until("the new one is built", lambda: keeper.look(upgraded).volume == NEW and not keeper.busy())
    write_inventory(directory / "node", inventory(NEW))
    (old, new) = store.volumes()
    assert holders(one.ledger)[old.name] == (one.task,)
    wait_until("nobody holds the new one", lambda: new.name not in holders(one.ledger))

    with (
        scripted_agent() as agent,
        host(
            directory,
            agent,
            task=f"later.{os.getpid()}",
            container="later",
            MESOS_GPU_VOLUMES=str(store.path),
        ) as later,
    ):
        write_inventory(directory / "node", inventory(NEW))
        later.launch("ls /usr/local/nvidia/lib64/libcuda.so.5*", user="nobody", gpus=GPUS[1:])
        later.update("TASK_FINISHED")
        assert lines(later) == [f"/usr/local/nvidia/lib64/libcuda.so.{NEW}"]

    (one.sandbox / "after").touch()
    one.end("TASK_FINISHED")
    assert lines(one) == [f"/usr/local/nvidia/lib64/libcuda.so.{OLD}"] * 2
    assert verify(old) == verify(new) == ()

    def is_gone() -> bool:
        keeper.look_again()  # a look while the task's namespace ends finds it mounted there
        keeper.look(upgraded)
        return store.volumes() == (new,)

    wait_until("the old one is gone", is_gone)
    wait_until("it is done", lambda: not keeper.busy())


def test_a_killed_executors_lease_holds_until_its_task_is_ended(one: Host, directory: Path) -> None:
    store = Store(directory / "volumes")
    one.launch("echo up; sleep 1000", user="nobody", gpus=GPUS[:1])
    wait_until("it runs", lambda: one.states()[-1:] == ["TASK_RUNNING"] and "up" in one.stdout())
    one.process.kill()
    one.process.wait()
    assert store.collect(lambda: holders(one.ledger), lambda _: False) == ()

    def reaped() -> bool:
        reap(one.ledger)
        return one.ledger.holdings() == ()

    wait_until("it is reaped", reaped)
    (volume,) = store.volumes()
    wait_until("nothing has it mounted", lambda: volume.name not in holders(one.ledger))
    assert len(store.collect(lambda: holders(one.ledger), lambda _: False)) == 1
