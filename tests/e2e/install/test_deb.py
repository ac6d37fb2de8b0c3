"""The Debian packages in a bare Debian of debootstrap: installed, a job against a real master, upgraded, purged."""

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import Template
from typing import Self

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.processes import private_log
from mesos_gpu.local.stack import NodeSpec, SchedulerProcess, Stack
from tests.conftest import wait_until
from tests.cuda import compiler_or_skip

ROOT = Path(__file__).parents[3]
DEBIAN = "/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAM = "/opt/mesos-gpu/bin/mesos-gpu"
ARCHIVE = "usr/lib/mesos-gpu/mesos-gpu-executor.pyz"
MODULES = ("isolator/executor/main.py", "pynvml.py", "elftools/elf/elffile.py", "platformdirs/unix.py")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can install packages"),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="needs debootstrap"),
]


def done(command: Sequence[str | Path], timeout_s: float = 300) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:] + ran.stdout[-3000:]
    return ran.stdout


def built(into: Path, mask: int) -> list[Path]:
    """Build both packages with a umask, which must not change them; return their paths."""
    command = [sys.executable, str(ROOT / "scripts/deb.py"), "--into", str(into), "--host-compiler"]
    before = os.umask(mask)
    try:
        told = done([*command, "--machine", platform.machine(), "--compression", "none"])
    finally:
        os.umask(before)
    return [Path(line) for line in told.splitlines()]


@pytest.fixture(scope="module")
def packages(open_directory: Path) -> list[Path]:
    compiler_or_skip()
    return built(open_directory / "built", 0o022)


def test_packages_of_the_same_commit_have_the_same_bytes(packages: list[Path], tmp_path: Path) -> None:
    again = built(tmp_path, 0o077)
    assert [path.name for path in packages] == [path.name for path in again]
    for one, other in zip(packages, again, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_packages_belong_to_root_and_are_not_writable_by_others(packages: list[Path]) -> None:
    lines = [line.split() for path in packages for line in done(["dpkg-deb", "-c", path]).splitlines()]
    assert len(lines) > 3000
    assert {line[1] for line in lines} == {"root/root"}
    assert {line[0] for line in lines} == {"drwxr-xr-x", "-rwxr-xr-x", "-rw-r--r--", "lrwxrwxrwx"}
    assert not [line[5] for line in lines if line[5].endswith(".env")], "settings are the operator's"


@pytest.fixture(scope="module")
def debian(packages: list[Path], open_directory: Path) -> Path:
    """The root of a Debian that has what a minimal one has, Python, and both packages."""
    root = open_directory / "debian"
    told = done(
        [
            "apt-get",
            "indextargets",
            "--format",
            "$(ORIGIN) $(CODENAME) $(COMPONENT) $(REPO_URI)",
            "Created-By: Packages",
        ]
    )
    mirrors = [
        words[3]
        for line in told.splitlines()
        if (words := line.split())[:3] == ["Debian", "bookworm", "main"]
    ]
    options = ["--variant=minbase", "--include=python3"]
    done(["debootstrap", *options, "bookworm", root, *mirrors[:1]], 600)
    for path in packages:
        shutil.copy(path, root / "root" / path.name)
    inside(root, "dpkg", "--install", *(f"/root/{path.name}" for path in packages))
    return root


def inside(root: Path, *words: str) -> str:
    return done(command(root, words))


def command(root: Path, words: Sequence[str], user: str = "root") -> list[str]:
    """A command in there, with a /proc in a mount namespace of its own: nothing of it stays."""
    then = shlex.join(
        ["chroot", f"--userspec={user}", str(root), "/usr/bin/env", "-i", f"PATH={DEBIAN}", *words]
    )
    mount = f"mount -t proc proc {shlex.quote(str(root / 'proc'))} && exec {then}"
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount]


class Packaged(SchedulerProcess):
    """The scheduler as its service starts it: by its command, its settings, its user."""

    def __init__(self, root: Path, directory: Path, master: int, port: int, mark: str) -> None:
        super().__init__(directory, [], port, mark)
        self._root = root
        made = inside(
            root, PROGRAM, "install", "scheduler", "--settings", "--master", f"127.0.0.1:{master}",
            "--executor-archive", str(root / ARCHIVE),
        )  # fmt: skip
        settings = root / "etc/mesos-gpu/scheduler.env"
        settings.write_text(made)
        settings.chmod(0o600)
        state = root / "var/lib/mesos-gpu-scheduler"  # as StateDirectory= makes it
        state.mkdir(mode=0o700, exist_ok=True)
        inside(root, "chown", "mesos-gpu:mesos-gpu", f"/{state.relative_to(root)}")

    def start(self, *more: str) -> Self:
        unit = (self._root / "usr/lib/systemd/system/mesos-gpu-scheduler.service").read_text()
        said = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line)
        settings = shlex.split((self._root / said["EnvironmentFile"].lstrip("/")).read_text())
        variables = dict(each.split("=", 1) for each in settings)
        start = Template(said["ExecStart"]).substitute(variables)
        words = [*settings, *start.split(), "--port", str(self.port), *more]
        self.directory.mkdir(exist_ok=True)
        with private_log(self.log) as log:
            self._popen = subprocess.Popen(
                command(self._root, words, said["User"]), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return self


@pytest.fixture
def stack(debian: Path, open_directory: Path) -> Iterator[Stack]:
    """Agents that have Debian's Python; the scheduler of the package asks their master for offers."""
    running = Stack(open_directory / "stack", [NodeSpec(2)], executor_environment={"PATH": DEBIAN})
    running.scheduler = Packaged(
        debian,
        running.directory / "scheduler",
        running.cluster.master.port,
        running.scheduler.port,
        str(running.cluster.directory),
    )
    running.schedulers = (running.scheduler,)
    with running:
        yield running


def test_packages_are_installed_run_a_job_are_upgraded_and_purged(debian: Path, stack: Stack) -> None:
    assert inside(debian, "mesos-gpu", "--version").startswith("mesos-gpu ")
    assert not list(debian.glob("usr/lib/python3*/**/site-packages/click")), (
        "a Python that has nothing of ours"
    )
    with zipfile.ZipFile(debian / ARCHIVE) as archive:
        names = set(archive.namelist())
    assert {f"files/{name}" for name in MODULES} <= names
    assert any(name.startswith("files/isolator/shares/shim/built/") for name in names), "compiled libraries"

    with Client(stack.url) as client:
        wait_until("the node reports", lambda: len(client.gpus()) == 2)
        job = ("run", "--gpus", "1", "--", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES; id -u")
        told = done(command(debian, [PROGRAM, "--url", stack.url, *job], "nobody")).split()
        assert told[0].startswith("GPU-")
        assert 60000 <= int(told[1]) < 61000, "a uid of the pool"
        status = json.loads(
            done(command(debian, [PROGRAM, "--url", stack.url, "status", "--json"], "nobody"))
        )
        assert status

        # An upgrade: the program is replaced under the scheduler, which is then started again, with its state.
        (package,) = debian.glob("root/mesos-gpu_*.deb")
        inside(debian, "dpkg", "--install", f"/{package.relative_to(debian)}")
        stack.scheduler.kill()
        stack.scheduler.start().wait()
        assert [each["state"] for each in client.jobs()] == ["finished"]

    stack.scheduler.kill()
    inside(debian, "dpkg", "--purge", "mesos-gpu", "mesos-gpu-agent")
    left = {
        str(path.relative_to(debian))
        for top in ("etc", "opt", "usr", "var/lib")
        for path in (debian / top).rglob("*mesos*")
    }
    assert left == {"var/lib/mesos-gpu-scheduler"}, "the state alone is kept"
