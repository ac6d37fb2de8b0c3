"""Cgroups and their processes, read from files of a host that is made of files."""

import errno
import os
from pathlib import Path

import pytest

from isolator.devices import cgroups
from isolator.devices.cgroups import Cgroup, cgroups_of, membership, mounted, mounted_with, pids_below
from isolator.devices.rules import Rule
from mesos_gpu.errors import MesosGpuError, Unavailable

MOUNTS = r"""24 1 0:22 / /proc rw,nosuid - proc proc rw
30 20 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
31 20 0:27 / /a\040dev\011i\012ces\134 rw,nosuid shared:9 - cgroup cgroup rw,nodev,devices
32 20 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
33 20 0:29 / /again/devices rw - cgroup cgroup rw,devices
34 20 0:30 / /again/unified rw - cgroup2 cgroup2 rw
35 20 0:31 / /systemd rw - cgroup systemd rw,xattr,name=systemd
36 20 0:32 / /home rw - ext4 devices rw,devices
"""
MEMBERSHIP = "9:name=systemd:/a\n5:cpu,devices:/mesos/c-1\n4:pids:/b:c\n0::/mesos/c-2\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in (("self/mountinfo", MOUNTS), ("self/cgroup", MEMBERSHIP), ("7/cgroup", "0::/c-7\n")):
        (tmp_path / "proc" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc" / name).write_text(text)
    return tmp_path


def test_the_first_mount_of_each_kind_counts(root: Path) -> None:
    assert mounted(root) == {
        "cgroup1": Path("/a dev\ti\nces\\"),
        "cgroup2": Path("/sys/fs/cgroup/unified"),
    }


@pytest.mark.parametrize(
    ("hierarchy", "path"),
    [
        ("cpu", "/sys/fs/cgroup/cpu,cpuacct"),
        ("cpuacct,cpu", "/sys/fs/cgroup/cpu,cpuacct"),
        ("devices", "/a dev\ti\nces\\"),
        ("name=systemd", "/systemd"),
        ("", "/sys/fs/cgroup/unified"),
    ],
)
def test_a_hierarchy_is_mounted_where_its_controllers_are(root: Path, hierarchy: str, path: str) -> None:
    assert mounted_with(hierarchy, root) == Path(path)


@pytest.mark.parametrize(("hierarchy", "name"), [("cpu,memory", "cpu,memory"), ("pids", "pids")])
def test_a_hierarchy_that_is_not_mounted_is_named(root: Path, hierarchy: str, name: str) -> None:
    with pytest.raises(FileNotFoundError, match=f"cgroups of {name} are not mounted"):
        mounted_with(hierarchy, root)
    (root / "proc/self/mountinfo").write_text("")
    with pytest.raises(FileNotFoundError, match="cgroups of version 2 are not mounted"):
        mounted_with("", root)


def test_a_process_is_in_one_cgroup_of_each_hierarchy(root: Path) -> None:
    assert cgroups_of("self", root) == {
        "name=systemd": "/a",
        "cpu,devices": "/mesos/c-1",
        "pids": "/b:c",
        "": "/mesos/c-2",
    }
    assert membership("self", root) == {"cgroup1": "/mesos/c-1", "cgroup2": "/mesos/c-2"}
    assert membership(7, root) == {"cgroup2": "/c-7"}


@pytest.mark.parametrize(
    ("container", "version", "pid", "cgroup"),
    [
        ("c-1", "cgroup1", "self", Cgroup("cgroup1", Path("/a dev\ti\nces\\/mesos/c-1"), own=False)),
        ("c-2", "cgroup1", "self", Cgroup("cgroup1", Path("/a dev\ti\nces\\/mesos_gpu/c-2"), own=True)),
        ("c-7", "cgroup1", 7, Cgroup("cgroup1", Path("/a dev\ti\nces\\/mesos_gpu/c-7"), own=True)),
        ("c-7", "cgroup2", 7, Cgroup("cgroup2", Path("/sys/fs/cgroup/unified/c-7"), own=False)),
    ],
)
def test_a_containers_cgroup_is_that_of_mesos_or_our_own(
    root: Path, container: str, version: cgroups.Version, pid: int, cgroup: Cgroup
) -> None:
    assert cgroups.cgroup_of(container, version, root, pid=pid) == cgroup


def test_a_containers_cgroup_without_its_hierarchy_is_refused(root: Path) -> None:
    (root / "proc/self/mountinfo").write_text("")
    with pytest.raises(Unavailable, match="no cgroup2 that controls devices is mounted"):
        cgroups.cgroup_of("c-1", "cgroup2", root)


def test_a_cgroup_of_our_own_is_made_and_removed_and_no_other(tmp_path: Path) -> None:
    umask = os.umask(0)
    mesos, own = (Cgroup("cgroup2", tmp_path / "top" / name, own=name == "own") for name in ("mesos", "own"))
    mesos.create()
    assert not mesos.path.exists()
    own.create()
    own.create()
    os.umask(umask)
    assert oct(own.path.stat().st_mode) == "0o40755"
    mesos.path.mkdir()
    assert mesos.remove() == []
    assert own.remove() == []
    assert mesos.path.is_dir()
    assert not own.path.exists()
    mesos.path.rmdir()
    assert own.remove() == []
    assert not own.path.parent.exists(), "the last takes the directory above with it"


def test_a_directory_whose_parent_goes_meanwhile_is_made_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir, failures = Path.mkdir, [FileNotFoundError()]

    def racing(self: Path, *arguments: object, **more: object) -> None:
        if failures:
            raise failures.pop()
        mkdir(self, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", racing)
    cgroups.make_directory(tmp_path / "above" / "it")
    assert (tmp_path / "above" / "it").is_dir()


def test_processes_below_a_cgroup_are_those_that_can_be_seen(tmp_path: Path) -> None:
    (tmp_path / "below" / "deep").mkdir(parents=True)
    (tmp_path / "cgroup.procs").write_text("11\n0\n12\n")
    (tmp_path / "below" / "cgroup.procs").write_text("")
    (tmp_path / "below" / "deep" / "cgroup.procs").write_text("13\n0\n")
    assert pids_below(tmp_path) == [11, 12, 13]
    assert pids_below(tmp_path / "missing") == []


class Busy:
    """A cgroup that cannot be removed: time passes only in sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pids: list[int]) -> None:
        self.now, self.killed, self.pids = 100.0, list[int](), pids
        monkeypatch.setattr(cgroups, "time", self)
        monkeypatch.setattr(cgroups, "pids_below", lambda _path: self.pids)
        monkeypatch.setattr(os, "kill", self.kill)
        monkeypatch.setattr(os, "rmdir", self.rmdir)
        self.removable_at = 1e9
        monkeypatch.setattr(cgroups, "REMOVE_S", 0.1)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def kill(self, pid: int, _signal: int) -> None:
        self.killed.append(pid)
        raise ProcessLookupError

    def rmdir(self, path: str) -> None:
        if self.now < self.removable_at:
            raise OSError(errno.EBUSY, "busy", path)


def test_processes_that_do_not_die_in_time_keep_their_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = Busy(monkeypatch, [71, 72])
    assert Cgroup("cgroup2", tmp_path, own=True).remove() == [71, 72]
    assert busy.now == pytest.approx(100.1, abs=0.02)
    assert {*busy.killed} == {71, 72}
    assert (tmp_path / "cgroup.kill").read_text() == "1"
    busy.pids = []
    with pytest.raises(Unavailable, match="is in use by processes of another pid namespace"):
        Cgroup("cgroup2", tmp_path, own=True).remove()
    busy.removable_at = busy.now + 0.05
    began_at, busy.pids = busy.now, [73]
    assert Cgroup("cgroup2", tmp_path, own=True).remove() == []
    assert busy.now - began_at == pytest.approx(0.05, abs=0.01)


class Listed:
    """A devices cgroup of version 1 as files, whose kernel takes what is written to them."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
        self.path, self.told = path, list[tuple[str, str]]()
        self.keeps = True
        self.access = {line.rpartition(" ")[0]: {*line.rpartition(" ")[2]} for line in lines}
        self.show()
        write_text = Path.write_text

        def write(file: Path, text: str) -> int:
            if file.parent != path or file.name == "devices.list":
                return write_text(file, text)
            self.told.append((file.name.removeprefix("devices."), text))
            device, _, access = text.rpartition(" ")
            if text == "a":
                self.access.clear()
            elif self.keeps:
                had = self.access.setdefault(device, set())
                self.access[device] = had | {*access} if file.name == "devices.allow" else had - {*access}
            self.show()
            return len(text)

        monkeypatch.setattr(Path, "write_text", write)

    def show(self) -> None:
        lines = [f"{device} {''.join(sorted(access))}\n" for device, access in self.access.items() if access]
        with open(self.path / "devices.list", "w") as file:
            file.write("".join(lines))


RULES = (Rule("c", 1, 3, "rwm"), Rule("c", 195, 0, "r"), Rule("c", 195, 0, "w"), Rule("c", 136, None, "rw"))


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (["a *:* rwm"], [("deny", "a"), ("allow", "c 1:3 mrw"), ("allow", "c 195:0 rw"), ("allow", "c 136:* rw")]),
        ([], [("allow", "c 1:3 mrw"), ("allow", "c 195:0 rw"), ("allow", "c 136:* rw")]),
        (
            ["c 1:3 rwm", "c 195:0 rm", "c 136:* rw", "c 195:1 rw"],
            [("allow", "c 195:0 w"), ("deny", "c 195:0 m"), ("deny", "c 195:1 rw")],
        ),
        (["c 1:3 rwm", "c 195:0 rw", "c 136:* rw"], []),
    ],
)  # fmt: skip
def test_a_list_of_version_1_is_told_only_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: list[str], told: list[tuple[str, str]]
) -> None:
    listed, cgroup = Listed(tmp_path, monkeypatch, *before), Cgroup("cgroup1", tmp_path, own=True)
    assert cgroup.allows_exactly(RULES) == (not told)
    cgroup.allow(RULES)
    assert listed.told == told
    assert cgroup.allows_exactly(RULES)


def test_a_list_of_version_1_that_stays_as_it_was_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, cgroup = Listed(tmp_path, monkeypatch, "c 1:3 rwm"), Cgroup("cgroup1", tmp_path, own=True)
    listed.keeps = False
    with pytest.raises(MesosGpuError, match=r"allows .*, not "):
        cgroup.allow(RULES)
    (tmp_path / "devices.list").unlink()
    with pytest.raises(MesosGpuError, match=r"cannot be set: .*No such file"):
        cgroup.allow(RULES)
