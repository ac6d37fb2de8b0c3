"""The node's care for driver volumes: who has which, when one is built, when an old one goes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.gpus import driver_volume
from isolator.gpus.driver_volume import Keeper, holders, is_older
from isolator.gpus.ledger import Ledger, Owner
from isolator.gpus.probing import ChildProbe
from mesos_gpu.errors import Damaged, Unavailable
from mesos_gpu.model.nodes.gpu import Inventory
from tests.conftest import wait_until
from tests.doubles.elf_files import shared_object
from tests.hosts import memory_directory, small_tree
from volumes.build import make
from volumes.shim import Shim
from volumes.store import Store, verify

#: `holders` sees the mounts of the whole host: the build of another process of tests has another name.
OLD, NEW = f"535.129.{os.getpid()}", "550.54.14"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")


class Node:
    """A host whose driver is files below a directory of its own."""

    def __init__(self, path: Path) -> None:
        self.root, self.store, self.ledger = (
            path / "root",
            Store(path / "volumes"),
            Ledger(path / "ledger.sqlite"),
        )
        self.env = {"MESOS_GPU_VOLUMES": str(self.store.path), "MESOS_GPU_DRIVER_ROOT": str(self.root)}
        small_tree(self.root, OLD)
        self.keeper = Keeper(self.env, self.ledger)
        self.inventory = Inventory(source="nvml", driver_version=OLD, cuda_version="12.2")

    @property
    def nvml(self) -> Path:
        return self.root / f"usr/lib/aarch64-linux-gnu/libnvidia-ml.so.{OLD}"

    def look(self) -> Inventory:
        return self.keeper.look(self.inventory)

    def ready(self) -> None:
        wait_until("the volume is built", lambda: self.look().volume == self.inventory.driver_version)
        wait_until("it is done", lambda: not self.keeper.busy())

    def upgrade(self) -> None:
        small_tree(self.root, NEW)
        self.inventory = replace(self.inventory, driver_version=NEW, cuda_version="12.4")

    def hold(self, task: str) -> Path:
        """Claim the build, as an executor does, and return it."""
        build = driver_volume.for_tasks(self.env, self.inventory)
        assert build is not None
        self.ledger.claim(task, [], Owner.of(os.getpid()), traces=driver_volume.lease(build))
        return build


@pytest.fixture
def node() -> Iterator[Node]:
    with memory_directory() as path:
        yield Node(path)


def test_the_running_drivers_volume_is_built_and_reported(node: Node) -> None:
    first = node.look()
    assert (first.volume, first.volume_problem) in [(None, "it is being built"), (OLD, "")]
    node.ready()
    assert node.look().volume_problem == ""
    assert driver_volume.for_tasks(node.env, node.inventory) == node.store.current(OLD)


def test_an_upgrade_builds_beside_and_the_old_one_goes_with_its_last_task(node: Node) -> None:
    """Driver 535 to 550 while two tasks run on 535."""
    node.ready()
    build = node.hold("one")
    assert node.hold("two") == build
    node.upgrade()
    node.ready()
    assert holders(node.ledger)[build.name] == ("one", "two")
    assert node.hold("three") == node.store.current(NEW) != build
    node.ledger.release("one", Owner.of(os.getpid()))
    node.keeper.look_again()
    node.ready()
    assert verify(node.store.get(OLD)) == (), "the second task still has it"
    node.ledger.release("two", Owner.of(os.getpid()))
    node.keeper.look_again()
    node.ready()
    assert [volume.version for volume in node.store.volumes()] == [NEW]
    assert not node.store.path_of(OLD).is_symlink()


def test_the_variant_with_our_libraries_is_built_too_and_goes_with_its_version(
    node: Node, tmp_path: Path
) -> None:
    (tmp_path / "ours").touch()
    shims = [Shim(letter * 64, str(tmp_path / "ours"), str(tmp_path / "ours")) for letter in "ab"]
    node.keeper = Keeper(node.env, node.ledger, lambda: shims[0])
    node.ready()
    build = driver_volume.for_tasks(node.env, node.inventory, shims[0].variant)
    assert build is not None
    assert driver_volume.for_tasks(node.env, node.inventory) not in (None, build)
    node.ledger.claim("one", [], Owner.of(os.getpid()), traces=driver_volume.lease(build))
    node.keeper = Keeper(node.env, node.ledger, lambda: shims[1])
    node.ready()
    assert driver_volume.for_tasks(node.env, node.inventory, shims[0].variant) == build, "a task has it"
    node.ledger.release("one", Owner.of(os.getpid()))
    node.keeper.look_again()
    node.ready()
    assert {volume.variant for volume in node.store.volumes()} == {"", shims[1].variant}


def test_without_our_libraries_the_plain_volume_is_built_all_the_same(node: Node) -> None:
    def broken() -> Shim | None:
        raise Unavailable("there is no C compiler", remedy="have one")

    node.keeper = Keeper(node.env, node.ledger, broken)
    node.ready()
    assert node.look().volume_problem == ""
    assert [volume.variant for volume in node.store.volumes()] == [""]


def test_a_volume_that_was_built_for_a_driver_to_come_stays(node: Node) -> None:
    from volumes.build import make

    small_tree(node.root, NEW, kernel=OLD)
    make(node.store.path, node.root, NEW)
    node.ready()
    assert {volume.version for volume in node.store.volumes()} == {OLD, NEW}


def test_libraries_that_are_newer_than_the_module_leave_the_volume_as_it_is(node: Node) -> None:
    """Packages upgraded, module not reloaded: what is there still fits the module."""
    node.ready()
    for path in node.root.rglob(f"*{OLD}"):
        path.unlink()
    small_tree(node.root, NEW, kernel=OLD)
    node.keeper.look_again()
    wait_until("it has tried", lambda: node.look().volume_problem)
    inventory = node.look()
    assert inventory.volume == OLD
    assert f"no library of driver {OLD} was found" in inventory.volume_problem


def test_the_probe_loads_the_modules_nvml_from_its_volume_whatever_the_host_has_by_now(node: Node) -> None:
    """Packages upgraded, module not reloaded: NVML of the new version would refuse to work."""
    links = driver_volume.libraries_of_module(node.env)
    assert links is not None
    assert (links / "libnvidia-ml.so.1").resolve() == node.nvml
    node.ready()
    small_tree(node.root, NEW, kernel=OLD)
    libraries = driver_volume.libraries_of_module(node.env)
    assert libraries == node.store.path_of(OLD).resolve() / "lib64"
    seen = node.root / "seen"
    code = "import os, sys; open(sys.argv[1], 'w').write(os.environ['LD_LIBRARY_PATH'])"
    probe = ChildProbe(command=[sys.executable, "-c", code, str(seen)], libraries=lambda: libraries)
    with pytest.raises(Unavailable):
        probe.survey()
    probe.close()
    assert seen.read_text().split(":")[0] == str(libraries)


def test_a_program_that_loads_the_hosts_nvml_keeps_its_own_libraries(node: Node) -> None:
    """The driver is below another root, beside that root's C library."""
    (node.nvml.parent / "libc.so.6").write_bytes(b"of another root")
    needed = ("libc.so.6", f"libnvidia-deep.so.{OLD}")
    node.nvml.write_bytes(shared_object(machine="aarch64", soname="libnvidia-ml.so.1", needed=needed))
    deep = node.nvml.with_name(f"libnvidia-deep.so.{OLD}")
    deep.write_bytes(shared_object(machine="aarch64", needed=("libc.so.6",)))
    for _ in range(2):
        libraries = driver_volume.libraries_of_module(node.env)
        assert libraries is not None
        assert {path.name: path.resolve() for path in libraries.iterdir()} == {
            "libnvidia-ml.so": node.nvml,
            "libnvidia-ml.so.1": node.nvml,
            node.nvml.name: node.nvml,
            deep.name: deep,
        }
        (libraries / "libc.so.6").symlink_to(node.nvml.parent / "libc.so.6")  # goes at the next look
        (libraries / "libnvidia-ml.so.1").unlink()
    assert driver_volume.libraries_of_module(node.env) == libraries
    child = subprocess.run(
        [sys.executable, "-c", "import ctypes"],
        env={**os.environ, "LD_LIBRARY_PATH": str(libraries)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (child.returncode, child.stderr) == (0, "")


def test_nvml_is_left_to_the_loader_where_no_links_can_be_made(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.store.path.write_text("no directory")
    assert driver_volume.libraries_of_module(node.env) is None
    assert f"NVML of driver {OLD} is not loaded from {node.root}" in caplog.text


def test_volume_takes_in_files_added_to_the_same_driver(node: Node) -> None:
    (node.root / f"usr/lib/aarch64-linux-gnu/libnvcuvid.so.{OLD}").rename(node.root / "away")
    node.ready()
    first = node.store.get(OLD)
    (node.root / "away").rename(node.root / f"usr/lib/aarch64-linux-gnu/libnvcuvid.so.{OLD}")
    node.keeper.look_again()
    wait_until(
        "it is rebuilt", lambda: bool(node.look()) and len(node.store.get(OLD).files) > len(first.files)
    )
    node.ready()
    assert len(node.store.volumes()) == 1, "nobody had the first one"


def test_damage_is_mended_when_it_begins_to_run(node: Node) -> None:
    node.ready()
    (node.store.get(OLD).path / "bin/nvidia-smi").unlink()
    node.keeper = Keeper(node.env, node.ledger)
    node.ready()
    wait_until("it is whole", lambda: bool(node.look()) and verify(node.store.get(OLD)) == ())


def test_a_failed_build_says_why(node: Node) -> None:
    node.env["MESOS_GPU_DRIVER_ROOT"] = str(node.root / "no-such")
    node.keeper = Keeper(node.env, node.ledger)
    wait_until("it has tried", lambda: "no-such" in node.look().volume_problem)
    assert node.look().volume is None


def test_an_image_waits_for_a_volume_that_is_being_built_and_for_no_other(node: Node) -> None:
    building = replace(node.inventory, volume_problem=driver_volume.AT_WORK)
    assert driver_volume.awaited(node.env, building, timeout_s=0.2) is None
    node.look()
    build = driver_volume.awaited(node.env, building)
    assert build is not None
    assert build == node.store.current(OLD)
    failed = replace(node.inventory, driver_version=NEW, volume_problem="the disk is full")
    assert driver_volume.awaited(node.env, failed, timeout_s=3600.0) is None, "it is not waited for"
    wait_until("it is done", lambda: not node.keeper.busy())


def test_a_host_without_a_driver_has_none(node: Node) -> None:
    assert node.keeper.look(Inventory()) == Inventory()
    assert not node.store.path.exists()


def test_a_simulated_driver_has_an_empty_one(node: Node) -> None:
    del node.env["MESOS_GPU_DRIVER_ROOT"]
    node.inventory = Inventory(source="simulated", driver_version="535.0.0-simulated")
    node.keeper = Keeper(node.env, node.ledger)
    node.ready()
    volume = node.store.get("535.0.0-simulated")
    assert volume.simulated
    assert volume.files == ()
    assert (volume.path / "lib64").is_dir()


def test_a_variant_that_somebody_gave_a_simulated_driver_stays(node: Node, tmp_path: Path) -> None:
    (tmp_path / "ours").touch()
    shim = Shim("a" * 64, str(tmp_path / "ours"), str(tmp_path / "ours"))
    version = "535.0.0-simulated"
    small_tree(node.root, version)
    for given in (None, shim):
        make(node.store.path, node.root, version, shim=given)
    del node.env["MESOS_GPU_DRIVER_ROOT"]
    node.inventory = Inventory(source="simulated", driver_version=version)
    node.keeper = Keeper(node.env, node.ledger)
    node.ready()
    assert driver_volume.for_tasks(node.env, node.inventory, shim.variant) is not None


@contextmanager
def a_container_with(build: Path, point: Path) -> Iterator[int]:
    """A mount namespace that nobody leased anything for, as of a container by CDI."""
    point.mkdir()
    script = 'mount --bind "$0" "$1" && echo there && read -r _'
    command = ["unshare", "--mount", "sh", "-c", script, str(build), str(point)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        yield process.pid
        process.communicate("\n", timeout=60)


@root_only
def test_volume_mounted_by_a_process_is_held(node: Node, tmp_path: Path) -> None:
    node.ready()
    build = node.store.current(OLD)
    assert build is not None
    with a_container_with(build, tmp_path / "point") as pid:
        assert holders(node.ledger)[build.name] == (f"pid {pid}",)
        assert node.store.collect(lambda: holders(node.ledger), lambda _: False) == ()
    assert build.name not in holders(node.ledger)


def test_with_a_damaged_ledger_nothing_is_removed(node: Node) -> None:
    node.ready()
    node.hold("one")
    (node.ledger.directory / "ledger.sqlite").write_bytes(b"nonsense")
    with pytest.raises(Damaged):
        node.store.collect(lambda: holders(node.ledger), lambda _: False)
    node.upgrade()
    wait_until("it has tried", lambda: "damaged" in node.look().volume_problem)
    assert node.store.current(OLD) is not None


@pytest.mark.parametrize(
    ("version", "other"), [("535.9", "535.104.05"), ("99.1", "535.1"), ("535", "550.1-open")]
)
def test_versions_are_compared_by_number(version: str, other: str) -> None:
    assert is_older(version, other)
    assert not is_older(other, version)
