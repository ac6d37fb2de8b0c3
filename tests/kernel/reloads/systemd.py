"""A real systemd, as process 1 of namespaces of its own: below cgroups of its own, on a file system of its own, in
which this machine's programs can be read and nothing of this machine's can be changed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import pytest

from isolator.devices.cgroups import Cgroup, mounted, mounted_with
from tests.conftest import wait_until

REPOSITORY: Final = Path(__file__).resolve().parents[3]
PROGRAM: Final = "/usr/lib/systemd/systemd"
NAMED: Final = "name=systemd"  # the hierarchy of version 1 in which it keeps its units
SPACES: Final = ("--pid", "--mount", "--cgroup", "--uts", "--ipc")
#: Where its hierarchies are, for it: of version 1 as on a host with both, or of version 2 alone.
_CGROUPS: Final = {
    "cgroup1": """
mount -t tmpfs -o mode=755 none sys/fs/cgroup
mkdir sys/fs/cgroup/systemd sys/fs/cgroup/devices sys/fs/cgroup/unified
mount -t cgroup -o none,name=systemd none sys/fs/cgroup/systemd
mount -t cgroup -o devices none sys/fs/cgroup/devices
mount -t cgroup2 none sys/fs/cgroup/unified
""",
    "cgroup2": "mount -t cgroup2 none sys/fs/cgroup",
}
#: It would mount every controller that the kernel names, and make cgroups in this machine's own.
_CONTROLLERS: Final = "#subsys_name\\thierarchy\\tnum_cgroups\\tenabled\\ndevices\\t1\\t1\\t1\\n"
_BEGIN: Final = """
set -eu
mount --make-rprivate /
mount -t tmpfs -o mode=755 none {root}
cd {root}
mkdir -m 755 -p usr etc proc sys dev run var old .{units}
mkdir -m 1777 tmp var/tmp
for name in bin sbin lib lib32 lib64; do
  if [ -L /$name ]; then cp -P /$name $name; elif [ -d /$name ]; then mkdir $name; mount --bind -o ro /$name $name; fi
done
for path in /usr /etc {readable}; do
  mkdir -p .$path; mount --bind $path .$path; mount -o remount,bind,ro .$path
done
mkdir -p .{shared}; mount --bind {shared} .{shared}
for path in usr/lib/systemd/system usr/lib/systemd/system-generators; do mount -t tmpfs -o mode=755 none $path; done
mount --bind {units} etc/systemd/system
mount -t tmpfs -o mode=755 none dev
mkdir -m 755 dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666,mode=620 none dev/pts
ln -s pts/ptmx dev/ptmx; ln -s /proc/self/fd dev/fd
for node in null:3 zero:5 full:7 random:8 urandom:9; do
  mknod -m 666 dev/${{node%:*}} c 1 ${{node#*:}}; chmod 666 dev/${{node%:*}}
done
mknod -m 666 dev/tty c 5 0; chmod 666 dev/tty
mount -t tmpfs -o mode=755 none run
mount -t proc none proc
printf '{controllers}' > run/cgroups; mount --bind run/cgroups proc/cgroups
mount --bind proc/sys proc/sys; mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro none sys
{cgroups}
pivot_root . old
umount -l /old
exec env container=test setpriv --bounding-set=-sys_time,-sys_boot,-sys_module,-syslog \
  {program} --system --unit=test.target --log-target=console --show-status=no
"""


@dataclass(frozen=True, slots=True)
class Systemd:
    """Process 1 of its namespaces, as a test commands it.

    Attributes:
        version: Of the cgroups by which it controls devices.
        units: Its directory of units; it has no others.
        roots: Its cgroups as this process sees them, by hierarchy; "" is version 2.
        pid: Its own.
    """

    version: str
    units: Path
    roots: dict[str, Path]
    pid: int

    def entering(self, *command: str) -> list[str]:
        """The command that runs a command where it is process 1."""
        return ["nsenter", "--target", str(self.pid), *SPACES, "--", *command]

    def run(self, *command: str) -> str:
        """What a command there says."""
        done = subprocess.run(
            self.entering(*command), check=False, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, name: str, text: str) -> None:
        """Have a new unit, and start it."""
        (self.units / name).write_text(text)
        self.run("systemctl", "daemon-reload")
        self.run("systemctl", "start", name)

    def below(self, name: str) -> str:
        """The path of a unit in its hierarchies, without a slash before it."""
        path = self.run("systemctl", "show", "--property=ControlGroup", "--value", name).strip()
        assert path != "", f"{name} has no cgroup"
        return path.lstrip("/")

    def cgroups(self, name: str) -> list[Path]:
        """The cgroups that it has made for a unit."""
        below = self.below(name)
        return [path for root in self.roots.values() if (path := root / below).is_dir()]

    def devices(self, name: str) -> Path:
        """The cgroup by which it keeps a unit to devices."""
        return self.roots["devices" if self.version == "cgroup1" else ""] / self.below(name)


def _roots(version: str, name: str) -> dict[str, Path]:
    roots = {"": mounted()["cgroup2"] / name}
    if version == "cgroup1":
        try:
            named = mounted_with(NAMED)
        except FileNotFoundError:
            pytest.skip(f"no cgroup v1 hierarchy of {NAMED} at /sys/fs/cgroup")
        roots |= {"devices": mounted()["cgroup1"] / name, NAMED: named / name}
    return roots


@contextmanager
def systemd(version: str, directory: Path) -> Iterator[Systemd]:
    """Start one, and end it with all that it has started. `directory`: of this machine's, that it can write, too."""
    roots = _roots(version, f"mesos-gpu-systemd-{os.getpid()}-{time.monotonic_ns()}")
    units, root, log = directory / "units", directory / "root", directory / "systemd.log"
    for each in (units, root):
        each.mkdir()
    for target in (
        "test",
        "sysinit",
        "basic",
        "shutdown",
        "network-online",
    ):  # nothing of this machine's is wanted
        (units / f"{target}.target").write_text("[Unit]\nDefaultDependencies=no\n")
    with ExitStack() as undo:
        for each in roots.values():
            each.mkdir()
            undo.callback(_remove, each)
        outer = _begun(version, directory, list(roots.values()), log)
        undo.callback(_end, outer)
        yield Systemd(version, units, roots, _ready(outer, log))


def _begun(version: str, directory: Path, roots: Sequence[Path], log: Path) -> "subprocess.Popen[bytes]":
    readable = dict.fromkeys(
        str(Path(path).resolve()) for path in (sys.prefix, sys.base_prefix, REPOSITORY) if path
    )
    script = _BEGIN.format(
        root=directory / "root",
        shared=directory,
        units=directory / "units",
        readable=" ".join(path for path in readable if not path.startswith("/usr")),
        controllers=_CONTROLLERS,
        cgroups=_CGROUPS[version],
        program=PROGRAM,
    )
    join = "".join(f"echo $$ > {root}/cgroup.procs; " for root in roots)
    command = f'set -e; {join}exec unshare --fork --kill-child {" ".join(SPACES)} sh -c "$SCRIPT"'
    with open(log, "wb") as said:
        return subprocess.Popen(
            ["sh", "-c", command],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SCRIPT": script},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )


def _ready(outer: "subprocess.Popen[bytes]", log: Path) -> int:
    """The process id that it has outside, once it does what it is told."""

    def first() -> int:
        assert outer.poll() is None, log.read_text()
        inner = psutil.Process(outer.pid).children()
        return next((each.pid for each in inner if each.name() == "systemd"), 0)

    wait_until("systemd is process 1", first)
    pid = first()

    def started() -> bool:
        asked = ["nsenter", "--target", str(pid), *SPACES, "--", "systemctl", "is-system-running"]
        said = subprocess.run(asked, check=False, capture_output=True, text=True, timeout=60).stdout
        return said.strip() in ("running", "degraded")

    wait_until("systemd has started", started)
    return pid


def _end(outer: "subprocess.Popen[bytes]") -> None:
    for each in psutil.Process(outer.pid).children() if outer.poll() is None else ():
        each.send_signal(signal.SIGKILL)  # process 1: the kernel ends all in its namespace
    try:
        outer.wait(30)
    finally:
        outer.kill()
        outer.wait()


def _remove(root: Path) -> None:
    assert Cgroup("cgroup1", root, own=True).remove() == [], f"{root} has processes"
