"""Cgroups of both versions with real rules: replaced without a gap, beside others' programs, removed."""

import contextlib
import ctypes
import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolator.devices import bpf, bpf_sys, cgroups
from isolator.devices.cgroups import Cgroup, Version
from isolator.devices.rules import DriverFacts, Rule, nvidia_devices, rules_of
from isolator.node.doctor import diagnose
from isolator.node.findings import Finding, Level
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.nodes.gpu import Inventory
from tests.conftest import wait_until
from tests.kernel.conftest import needs
from tests.unit.isolator.node.test_doctor import Probe

pytestmark = pytest.mark.kernel
FACTS = DriverFacts()


def granted(*minors: int) -> tuple[Rule, ...]:
    return rules_of(nvidia_devices(FACTS, minors))


@pytest.fixture(params=["cgroup1", "cgroup2"])
def cgroup(request: pytest.FixtureRequest) -> Iterator[Cgroup]:
    needs(request.param)
    yield from _made(request.param)


@pytest.fixture
def second() -> Iterator[Cgroup]:
    needs("cgroup2")
    yield from _made("cgroup2")


def _made(version: Version) -> Iterator[Cgroup]:
    made = Cgroup(version, cgroups.mounted()[version] / cgroups.OWN_ROOT / f"test-{os.getpid()}", own=True)
    made.create()
    yield made
    assert made.remove() == []
    assert not made.path.exists()


@pytest.fixture
def nodes() -> Iterator[Path]:
    directory = Path(f"/dev/mesos-gpu-test-{os.getpid()}")
    directory.mkdir()
    for minor in (0, 1, 255):
        os.mknod(directory / str(minor), stat.S_IFCHR | 0o666, os.makedev(195, minor))
    yield directory
    for node in directory.iterdir():
        node.unlink()
    directory.rmdir()


def asked(cgroup: Cgroup, *paths: Path) -> list[int]:
    """What open(2) says to a process inside, path by path."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:  # whatever fails: it must not go on as a second process of pytest
        try:
            (cgroup.path / "cgroup.procs").write_text("0")
            os.write(writer, bytes(_tried(path) for path in paths))
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        said = list(file.read())
    os.waitpid(pid, 0)
    return said


def _tried(path: Path) -> int:
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return error.errno or 255
    return 0


@contextlib.contextmanager
def directory_fd(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def test_rules_are_replaced_as_a_whole(cgroup: Cgroup, nodes: Path) -> None:
    both = (nodes / "0", nodes / "1")
    cgroup.allow(granted(0))
    assert asked(cgroup, *both) == [errno.ENXIO, errno.EPERM]
    cgroup.allow(granted(1))
    assert asked(cgroup, *both) == [errno.EPERM, errno.ENXIO]
    cgroup.allow(granted())
    assert asked(cgroup, *both, nodes / "255") == [errno.EPERM] * 3
    cgroup.allow(granted(0, 1))
    assert asked(cgroup, *both) == [errno.ENXIO] * 2


WATCHER = """
import errno, os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
def tried(path):
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return error.errno
    return 0
print("in", flush=True)
seen, count = set(), 0
while not os.path.exists(sys.argv[4]):
    seen.add((tried(sys.argv[2]), tried(sys.argv[3])))
    count += 1
print(count, sorted(seen))
"""


def test_rules_are_replaced_without_a_gap(cgroup: Cgroup, nodes: Path, tmp_path: Path) -> None:
    """While the rules are exchanged again and again, card 0 is always allowed and card 255+ never; card 1 comes and
    goes, so each exchange is a real one."""
    cgroup.allow(granted(0))
    os.mknod(nodes / "7", stat.S_IFCHR | 0o666, os.makedev(195, 7))
    watcher = subprocess.Popen(
        [
            sys.executable,
            "-c",
            WATCHER,
            str(cgroup.path),
            str(nodes / "0"),
            str(nodes / "7"),
            str(tmp_path / "stop"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    with watcher:
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == "in\n"
        for _ in range(150):
            cgroup.allow(granted(0, 1))
            cgroup.allow(granted(0))
        (tmp_path / "stop").touch()
        count, _, seen = watcher.stdout.read().partition(" ")
    assert int(count) > 100
    assert seen.strip() == f"[({errno.ENXIO}, {errno.EPERM})]"


def test_removal_ends_what_is_inside(cgroup: Cgroup) -> None:
    cgroup.allow(granted())
    deaf = (
        f"echo $$ > {cgroup.path}/cgroup.procs; trap '' TERM INT HUP; env -i setsid sleep 600 & echo in; wait"
    )
    with subprocess.Popen(["/bin/sh", "-c", deaf], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        wait_until("both are inside", lambda: len(cgroups.pids_below(cgroup.path)) == 2)
        assert cgroup.remove() == []
        assert process.wait(60) == -9
    assert not cgroup.path.exists()
    cgroup.create()  # for the fixture


def test_v1_keeps_what_stays_and_takes_only_what_goes() -> None:
    needs("cgroup1")
    for cgroup in _made("cgroup1"):
        cgroup.allow((Rule("c", 195, 0, "r"), Rule("c", 1, 3, "rwm")))
        cgroup.allow((Rule("c", 195, 0, "rw"), Rule("c", 195, 1, "rw"), Rule("c", 1, 3, "r")))
        said = sorted((cgroup.path / "devices.list").read_text().splitlines())
        assert said == ["c 195:0 rw", "c 195:1 rw", "c 1:3 r"]


# --- v2: others' programs


def attach_other(path: Path, rules: tuple[Rule, ...], flags: int) -> None:
    """Attach as systemd or a container runtime does: another name, and flags of its own choice."""
    program = bpf_sys.load(bpf.encode(bpf.compile_rules(rules)), name=b"sd_devices")
    with directory_fd(path) as fd:
        attr = bpf_sys._attr("=IIIII", fd, program, bpf_sys.DEVICE.attach, flags, 0)
        bpf_sys._bpf(bpf_sys.PROG_ATTACH, attr, 16)
    os.close(program)


def names(path: Path) -> list[str]:
    with directory_fd(path) as fd:
        return [program.name for program in bpf_sys.query(fd)]


def test_program_stands_beside_others_and_both_must_allow(second: Cgroup, nodes: Path) -> None:
    attach_other(second.path, (*granted(0, 1), Rule("c", 195, 255, "rw")), bpf_sys.F_ALLOW_MULTI)
    second.allow(granted(0))
    second.allow(granted(0))
    assert names(second.path) == ["sd_devices", "mesos_gpu"], "the other stays; ours is there once"
    assert asked(second, nodes / "0", nodes / "1") == [errno.ENXIO, errno.EPERM]


def test_program_that_its_owner_wants_alone_is_not_pushed_aside(second: Cgroup, nodes: Path) -> None:
    attach_other(second.path, granted(), 0)
    with pytest.raises(MesosGpuError, match="cannot attach a device program") as error:
        second.allow(granted(0))
    assert "BPF_F_ALLOW_MULTI" in error.value.remedy
    assert names(second.path) == ["sd_devices"]
    assert asked(second, nodes / "0") == [errno.EPERM]


def test_programs_left_by_a_crash_become_one(second: Cgroup, nodes: Path) -> None:
    """Before Linux 5.6 the new one is attached before the old one goes; who dies between leaves both."""
    with directory_fd(second.path) as fd:
        for minors in ((0,), (1,)):
            program = bpf_sys.load(bpf.encode(bpf.compile_rules(granted(*minors))))
            bpf_sys.attach(fd, program)
            os.close(program)
    assert asked(second, nodes / "0", nodes / "1") == [errno.EPERM] * 2, "only what both allow"
    second.allow(granted(1))
    assert names(second.path) == ["mesos_gpu"]
    assert asked(second, nodes / "0", nodes / "1") == [errno.EPERM, errno.ENXIO]


def test_a_kernel_that_cannot_replace_gets_the_new_before_the_old_goes(
    second: Cgroup, nodes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach, seen = bpf_sys.attach, []

    def old_kernel(
        cgroup: int, program: int, *, replace: int | None = None, kind: bpf_sys.Kind = bpf_sys.DEVICE
    ) -> None:
        if replace is not None:
            raise OSError(errno.EINVAL, "Invalid argument")
        seen.append(len(bpf_sys.query(cgroup)))
        attach(cgroup, program)

    second.allow(granted(0))
    monkeypatch.setattr(bpf_sys, "attach", old_kernel)
    second.allow(granted(1))
    assert seen == [1], "the old one was there when the new one came"
    assert names(second.path) == ["mesos_gpu"]
    assert asked(second, nodes / "0", nodes / "1") == [errno.EPERM, errno.ENXIO]


def test_error_of_the_verifier_is_in_the_message(second: Cgroup) -> None:
    program = bpf.encode([bpf.Instruction(bpf.MOVE, dst=0, src=7), bpf.Instruction(bpf.EXIT)])
    with pytest.raises(bpf_sys.BpfError, match="R7 !read_ok"):
        bpf_sys.load(program)


def test_a_query_writes_no_further_than_its_buffer(second: Cgroup) -> None:
    """Linux 6.17 to 7.2 write a revision behind the size that the caller names."""
    with directory_fd(second.path) as fd:
        ids = (ctypes.c_uint32 * 4)()
        attr = bpf_sys._attr("=IIIIQI", fd, bpf_sys.DEVICE.attach, 0, 0, ctypes.addressof(ids), 4)
        bpf_sys._bpf(bpf_sys.PROG_QUERY, attr, 40)
    assert attr.raw[64:] == bytes(bpf_sys.ATTR_SIZE - 64)


def test_programs_and_descriptors_do_not_leak(second: Cgroup) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        second.allow(granted(0, 1))
    assert len(os.listdir("/proc/self/fd")) == before
    assert names(second.path) == ["mesos_gpu"]


def test_rules_of_several_tasks_hold_at_once(nodes: Path) -> None:
    """Sixteen threads, a cgroup each: no program lands on another's."""
    needs("cgroup2")
    root = cgroups.mounted()["cgroup2"] / cgroups.OWN_ROOT
    made = [Cgroup("cgroup2", root / f"many-{os.getpid()}-{n}", own=True) for n in range(16)]

    def work(number: int) -> None:
        made[number].create()
        for _ in range(5):
            made[number].allow(granted(number % 2))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number, cgroup in enumerate(made):
            allowed, denied = (nodes / "0", nodes / "1") if number % 2 == 0 else (nodes / "1", nodes / "0")
            assert asked(cgroup, allowed, denied) == [errno.ENXIO, errno.EPERM]
    finally:
        assert [cgroup.remove() for cgroup in made] == [[]] * 16
    assert not root.exists() or not list(root.glob(f"many-{os.getpid()}-*"))


@pytest.mark.parametrize("version", ["cgroup1", "cgroup2"])
def test_doctor_finds_cgroups_and_namespaces_on_this_machine(tmp_path: Path, version: str) -> None:
    needs(version)
    findings = diagnose(Probe(Inventory()), tmp_path, {"MESOS_GPU_ISOLATION": version})
    texts = {f.check: f for f in findings}
    assert texts["isolation"].level is Level.OK
    assert texts["isolation"].text.startswith(f"{version}: a device cgroup was made, set and removed")
    assert texts["ports"].level is Level.OK, texts["ports"]
    assert texts["namespaces"] == Finding("namespaces", Level.OK, "a mount namespace can be made")
    for mount in cgroups.mounted().values():
        assert not list((mount / cgroups.OWN_ROOT).glob(f".doctor-{os.getpid()}"))
