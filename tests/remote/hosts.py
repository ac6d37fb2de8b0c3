"""A host in namespaces: this machine's files below an overlay in memory, a network of its own, a server of SSH, and
cgroups of version 2 whatever this machine has.
"""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mesos_gpu.adapters.ssh.client import Done, Ssh
from mesos_gpu.local.network import Host
from tests.conftest import wait_until

ROOT = Path(__file__).parents[2]
SSHD = "/usr/sbin/sshd"
PORT = 2222
PROXIES = ("http_proxy", "https_proxy", "no_proxy")
_CONFIGURATION = f"""\
Port {PORT}
ListenAddress ADDRESS
HostKey DIRECTORY/host_key
AuthorizedKeysFile DIRECTORY/id.pub
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PidFile none
LogLevel VERBOSE
"""
#: $1: a directory; $2: whose files are below; $3: what is bound where it is, line by line; then the first process'
#: command.
_ENTER = """\
set -eu
at=$1 lower=$2 bound=$3; shift 3
mount -t tmpfs -o size=1500m,mode=755 tmpfs "$at"
mkdir "$at/upper" "$at/work" "$at/root"
mount -t overlay -o "lowerdir=$lower,upperdir=$at/upper,workdir=$at/work" overlay "$at/root"
for each in sys dev; do mount --rbind /$each "$at/root/$each"; done
mount -t cgroup2 cgroup2 "$at/root/sys/fs/cgroup"
mount -t proc proc "$at/root/proc"
mount -t tmpfs -o mode=755 tmpfs "$at/root/run"
for each in tmp var/tmp; do mkdir -p "$at/root/$each"; mount -t tmpfs -o mode=1777 tmpfs "$at/root/$each"; done
echo "$bound" | while read -r path; do
    [ -z "$path" ] || { mkdir -p "$at/root$path"; mount --rbind "$path" "$at/root$path"; }
done
mkdir -p "$at/root/run/sshd" "$at/root/run/lock"
rm -f "$at/root/usr/bin/systemctl"
printf '#!/bin/sh\\nexec python3 -IS %s/systemctl "$@"\\n' "$at-own" >"$at/root/usr/bin/systemctl"
chmod 755 "$at/root/usr/bin/systemctl" "$at/root/root"
mkdir -p "$at/root/old"
cd "$at/root"
pivot_root . old
umount --lazy /old
exec "$@"
"""


@functools.cache
def missing() -> str:
    """What this machine lacks for such hosts; "": nothing."""
    if os.geteuid():
        return "needs root: namespaces"
    for program, package in (("ip", "iproute2"), ("nft", "nftables"), ("iptables", "iptables")):
        if shutil.which(program) is None:
            return f"needs {package}"
    if not os.path.exists(SSHD):
        return "needs openssh-server"
    mounts = (
        "mount -t tmpfs t /mnt; mkdir /mnt/u /mnt/w; "
        "mount -t overlay -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w o /mnt"
    )
    tried = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", mounts], capture_output=True, text=True, check=False
    )
    return f"no overlay here: {tried.stderr.strip()}" if tried.returncode else ""


@dataclass
class Here:
    """This machine's own network: an address of loopback, as a host has one."""

    ip: str

    def inside(self, command: Sequence[str]) -> list[str]:
        return list(command)


@dataclass
class RemoteHost:
    """A host; `keys` has `id`, the key that is let in, and `known_hosts`."""

    keys: Path
    directory: Path
    host: Host | Here
    process: "subprocess.Popen[bytes]"

    @property
    def ssh(self) -> Ssh:
        return Ssh(self.host.ip, port=PORT, identity=self.keys / "id", known_hosts=self.keys / "known_hosts")

    def run(self, script: str, *arguments: str) -> Done:
        return self.ssh.run(script, arguments, timeout_s=60)

    def text(self, path: str) -> str:
        done = self.run('cat "$1"', path)
        assert done.code == 0, done
        return done.output


def make_keys(directory: Path) -> None:
    """A pair for who comes; hosts add theirs to `known_hosts`."""
    directory.mkdir()
    _key(directory / "id")
    (directory / "known_hosts").touch()


def _key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)


@contextlib.contextmanager
def remote_host(
    keys: Path, directory: Path, host: Host | Here, bound: Sequence[Path] = (), *, lower: Path = Path("/")
) -> Iterator[RemoteHost]:
    """A host that is reached by SSH. It ends with all that runs there.

    Args:
        keys: As of `make_keys`.
        directory: Of its own; made.
        host: Its network.
        bound: Directories that it shares with this machine.
        lower: The files that it begins with.
    """
    own, server = own_directory(keys, directory, host)
    shutil.copy(Path(__file__).with_name("init.py"), own)
    shutil.copy(Path(__file__).with_name("init.py"), own / "systemctl")
    lines = "\n".join(map(str, dict.fromkeys([*apart(own, lower), *bound])))
    first = ["python3", "-IS", str(own / "init.py"), *server.split()]
    with (own / "log").open("wb") as log:
        process = subprocess.Popen(
            host.inside([
                "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child=KILL",
                "sh", "-c", _ENTER, "sh", str(directory), str(lower), lines, *first,
            ]),
            env={k: v for k, v in os.environ.items() if not k.startswith(("MESOS_", "PYTEST"))},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    made = RemoteHost(keys, directory, host, process)
    try:
        wait_until("it answers", lambda: process.poll() is None and answers(made))
        yield made
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def own_directory(keys: Path, directory: Path, host: Host | Here) -> tuple[Path, str]:
    """Make a host's directory, and beside it the one with the files by which it is reached.

    Returns:
        The latter, and the command of its server of SSH.
    """
    own = directory.with_name(f"{directory.name}-own")
    directory.mkdir()
    own.mkdir()
    _key(own / "host_key")
    public = (own / "host_key.pub").read_text().split()
    with (keys / "known_hosts").open("a") as known:
        known.write(f"[{host.ip}]:{PORT} {public[0]} {public[1]}\n")
    shutil.copy(keys / "id.pub", own)
    proxies = [f"SetEnv {name}={value}\n" for name, value in os.environ.items() if name.lower() in PROXIES]
    text = "".join([_CONFIGURATION, *proxies]).replace("ADDRESS", host.ip).replace("DIRECTORY", str(own))
    (own / "sshd_config").write_text(text)
    return own, f"{SSHD} -D -e -f {own / 'sshd_config'}"


def apart(own: Path, lower: Path) -> list[Path]:
    """What is bound there beside its files: `own`, and where they are this machine's, what is mounted apart here."""
    here = [path for path in (ROOT, Path(sys.base_prefix)) if _is_hidden(path)]
    return [own, *(here if lower == Path("/") else [])]


def _is_hidden(path: Path) -> bool:
    """Whether a path of this machine is not in the overlay of its root, or is below what a host has of its own."""
    own = any(path.is_relative_to(each) for each in ("/tmp", "/var/tmp", "/run"))
    return path.exists() and (own or path.stat().st_dev != os.stat("/").st_dev)


def answers(made: RemoteHost) -> bool:
    done = subprocess.run(made.ssh.command("exit 7"), capture_output=True, check=False)
    return done.returncode == 7


def let_in(host: RemoteHost, user: str, rule: str = "") -> None:
    """Have a user there whom the key lets in; `rule`: what sudo allows, as "ALL=(root) NOPASSWD: ALL"."""
    done = host.run(
        'id "$1" 2>/dev/null || useradd --create-home --shell /bin/sh --password "*" "$1"\n'
        '[ -z "$2" ] || { mkdir -p /etc/sudoers.d; echo "$1 $2" >"/etc/sudoers.d/$1"; chmod 440 "/etc/sudoers.d/$1"; }',
        user,
        rule,
    )
    assert done.code == 0, done


def write_file(
    keys: Path, file: Path, hosts: Mapping[str, tuple[RemoteHost, str]], top: str = "", package: str = ""
) -> None:
    """A file of a cluster.

    Args:
        keys: As of `make_keys`.
        file: What is written.
        hosts: By name, with what is to stand beside the address.
        top: Further lines.
        package: Where the program is from; "": this machine's own.
    """
    package = package or f"program: {Path(sys.executable).with_name('mesos-gpu')}"
    lines = [f"  {name}: {{address: {each.host.ip}, {more}}}\n" for name, (each, more) in hosts.items()]
    file.write_text(
        f"package: {{{package}}}\n"
        f"ssh: {{port: {PORT}, identity: {keys / 'id'}, known_hosts: {keys / 'known_hosts'}}}\n"
        f"{top}hosts:\n{''.join(lines)}"
    )
