"""A host whose first process is a real systemd: in namespaces, below a cgroup of its own, with files that outlive a
power cut. Its systemd starts its journal, a server of SSH, and what is enabled there.
"""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from isolator.devices.cgroups import Cgroup, mounted
from mesos_gpu.local.network import Host
from tests.conftest import wait_until
from tests.remote import hosts
from tests.remote.hosts import Here, RemoteHost

SYSTEMD: Final = "/usr/lib/systemd/systemd"
SPACES: Final = ("--mount", "--propagation", "private", "--pid", "--cgroup", "--uts", "--ipc")
_UNIT: Final = """\
[Unit]
Description=Server of SSH
[Service]
ExecStartPre=/bin/mkdir -p /run/sshd
ExecStart=COMMAND
KillMode=process
[Install]
WantedBy=multi-user.target
"""
#: $1: a directory; $2: whose files are below; $3: what is bound where it is, line by line. A machine's own services are
#: not wanted, where the files are this machine's.
_ENTER: Final = """\
set -eu
at=$1 lower=$2 bound=$3
mkdir -p "$at/upper" "$at/work" "$at/root"
mount -t overlay -o "lowerdir=$lower,upperdir=$at/upper,workdir=$at/work" overlay "$at/root"
cd "$at/root"
if [ ! -e etc/systemd/system/test-sshd.service ]; then
    [ "$lower" != / ] || rm -rf etc/systemd/system/*.wants usr/lib/systemd/system/*.wants
    rm -f etc/systemd/system/*.wants/ssh.service # Debian's own would take /run/sshd away
    cp "$at-own/test-sshd.service" etc/systemd/system/
    mkdir -p etc/systemd/system/multi-user.target.wants etc/systemd/system/sysinit.target.wants
    ln -s ../test-sshd.service etc/systemd/system/multi-user.target.wants/
    ln -sf /usr/lib/systemd/system/systemd-journald.service etc/systemd/system/sysinit.target.wants/
    mkdir -p var/log/journal old
    chmod 755 root # where the Python of the tests may be
fi
mount -t sysfs -o ro none sys
mount -t cgroup2 none sys/fs/cgroup
mount -t proc none proc
printf '#subsys_name\\thierarchy\\tnum_cgroups\\tenabled\\n' >"$at-own/cgroups"
mount --bind "$at-own/cgroups" proc/cgroups
mount --bind proc/sys proc/sys; mount -o remount,bind,ro proc/sys
mount -t tmpfs -o mode=755 none dev
mkdir -m 755 dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666,mode=620 none dev/pts
ln -s pts/ptmx dev/ptmx; ln -s /proc/self/fd dev/fd
for node in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 666 dev/${node%:*} c 1 ${node#*:}; chmod 666 dev/${node%:*}
done
mknod -m 666 dev/tty c 5 0; chmod 666 dev/tty
mount -t tmpfs -o mode=755 none run
mount -t tmpfs -o mode=1777 none tmp
echo "$bound" | while read -r path; do
    [ -z "$path" ] || { mkdir -p "./$path"; mount --rbind "$path" "./$path"; }
done
pivot_root . old
umount --lazy /old
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
    setpriv --bounding-set=-sys_time,-sys_boot,-sys_module,-syslog \\
    /usr/lib/systemd/systemd --system --unit=multi-user.target --show-status=no
"""


@functools.cache
def missing() -> str:
    """What this machine lacks for such hosts; "": nothing."""
    if why := hosts.missing():
        return why
    if not os.path.exists(SYSTEMD):
        return "needs systemd"
    return "" if "cgroup2" in mounted() else "needs cgroups of version 2"


@dataclass
class Booted(RemoteHost):
    """Such a host; `process` is another one after each boot."""

    lower: Path = Path("/")
    bound: Sequence[Path] = ()
    cgroups: list[Path] = field(default_factory=list)

    def boot(self) -> None:
        """Start it, and wait until it has started all that is enabled there."""
        own = self.directory.with_name(f"{self.directory.name}-own")
        cgroup = mounted()["cgroup2"] / f"mesos-gpu-host-{os.getpid()}-{time.monotonic_ns()}"
        cgroup.mkdir()
        self.cgroups.append(cgroup)
        lines = "\n".join(map(str, dict.fromkeys(self.bound)))
        script = 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"'
        enter = ["unshare", *SPACES, "--fork", "--kill-child=KILL", "sh", "-c", _ENTER, "sh"]
        with (own / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.host.inside([
                    "sh", "-ec", script, "sh", str(cgroup), *enter, str(self.directory), str(self.lower), lines,
                ]),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        wait_until("it answers", lambda: self._has_started(own / "log"), 120)

    def _has_started(self, log: Path) -> bool:
        assert self.process.poll() is None, log.read_text()
        if not hosts.answers(self):
            return False
        return self.run("systemctl is-system-running").output.strip() in ("running", "degraded")

    def cut_power(self) -> None:
        """End all that runs there at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


@contextlib.contextmanager
def booted_host(
    keys: Path,
    directory: Path,
    host: Host | Here,
    bound: Sequence[Path] = (),
    *,
    lower: Path = Path("/"),
) -> Iterator[Booted]:
    """A host with a real systemd that is reached by SSH; arguments as of `hosts.remote_host`."""
    own, first = hosts.own_directory(keys, directory, host)
    (own / "test-sshd.service").write_text(_UNIT.replace("COMMAND", first))
    apart = hosts.apart(own, lower)
    made = Booted(keys, directory, host, subprocess.Popen(["true"]), lower, [*apart, *bound])
    made.process.wait()
    try:
        made.boot()
        yield made
    finally:
        made.cut_power()
        for cgroup in made.cgroups:
            wait_until("its processes are gone", lambda: Cgroup("cgroup2", cgroup, own=True).remove() == [])  # noqa: B023
        shutil.rmtree(directory, ignore_errors=True)
