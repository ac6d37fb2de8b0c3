"""Paths of the host that a task is given: what it can do there, and what no host gives."""

import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.host.not_started import NotStarted
from isolator.runs.host_paths import Identity, granted, see_given
from mesos_gpu.model.jobs.mount import Mount
from mesos_gpu.model.tasks.assignment import Outcome
from tests.doubles.scripted_agent import ScriptedAgent
from tests.hosts import Host, host
from tests.kernel.conftest import needs

pytestmark = pytest.mark.kernel


@pytest.fixture
def data(open_directory: Path) -> Path:
    """What an operator allows: `shared` (for all to write), `models` (to read), `alices` behind a closed door."""
    needs("cgroup1")
    root = open_directory / f"data-{time.monotonic_ns()}"
    for name, mode in (("shared", 0o777), ("models", 0o755), ("private/alices", 0o777)):
        (root / name).mkdir(parents=True)
        (root / name).chmod(mode)
    (root / "private").chmod(0o700)
    (root / "models/weights").write_text("7\n")
    (root / "models/there").touch()
    return root


@contextmanager
def one(data: Path, agent: ScriptedAgent, roots: str | None = None) -> Iterator[Host]:
    given = {
        "MESOS_GPU_ISOLATION": "cgroup1",
        "MESOS_GPU_VOLUME_ROOTS": str(data) if roots is None else roots,
    }
    with host(data.parent, agent, **given) as one:
        yield one


def test_a_task_reads_and_writes_where_it_may(data: Path, agent: ScriptedAgent) -> None:
    mounts = (
        Mount(f"{data}/models", "in/models"),
        Mount(f"{data}/shared", str(data / "shared"), read_only=False),
        Mount(f"{data}/models/weights", "weights.txt"),
        Mount("fetched", f"{data}/models/there"),
    )
    with one(data, agent) as run:
        (run.sandbox / "fetched").write_text("own\n")
        run.launch(
            f"""
            cat in/models/weights weights.txt {data}/models/there
            echo kept > {data}/shared/new
            touch in/models/x {data}/models/x
            grep ' /[^ ]*\\(data-\\|fetched\\)[^ ]* ' /proc/self/mountinfo | grep -c nosuid,nodev
            pwd
            """,
            user="nobody",
            mounts=mounts,
        )
        assert run.end("TASK_FINISHED")[1] == Outcome(exit_status=0)
        assert run.stdout().split() == ["7", "7", "own", "4", str(run.sandbox)]
        assert "Read-only file system" in run.stderr()
        assert list((run.sandbox / "in/models").iterdir()) == [], "the mount is seen by the task alone"
    assert (data / "shared/new").read_text() == "kept\n"
    assert (data / "shared/new").owner() == "nobody"


def test_host_path_that_the_operator_mounted_read_only_stays_so(tmp_path: Path) -> None:
    needs("cgroup1")
    script = """
import subprocess, sys
from isolator.devices import view
top = sys.argv[1]
view.enter()
subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,noexec", "none", top + "/source"], check=True)
view.mount_paths([(top + "/source", "seen", False)], top)
print([line.split()[5] for line in open("/proc/self/mountinfo") if top + "/seen" in line])
"""
    (tmp_path / "source").mkdir()
    said = subprocess.run(
        [sys.executable, "-c", script, tmp_path], check=True, capture_output=True, text=True, timeout=30
    ).stdout
    assert said == "['ro,nosuid,nodev,noexec,relatime']\n"


def identity_as_nobody(data: Path, path: Path) -> Identity:
    """Return which file the user nobody is given for a path."""
    roots = {"MESOS_GPU_VOLUME_ROOTS": str(data)}
    (given,) = granted([Mount(str(path), "x")], roots, pwd.getpwnam("nobody"))
    return given.identity


EXCHANGED = """
import sys
from isolator.devices import view
source, top, identity = sys.argv[1], sys.argv[2], [int(word) for word in sys.argv[3:]]
view.enter()
view.mount_paths([(source, "seen", True)], top, None, [identity])
"""


def test_closed_directory_that_takes_the_place_of_another_is_not_mounted(data: Path, tmp_path: Path) -> None:
    """Who may write to a directory may exchange the directories of others there, also those closed to him."""
    needs("cgroup1")
    asked = data / "shared/mine/alices"
    asked.mkdir(parents=True)
    identity = identity_as_nobody(data, asked)
    words = [sys.executable, "-c", EXCHANGED, str(asked), str(tmp_path), *map(str, identity)]
    subprocess.run(words, check=True, timeout=30)
    (data / "shared/mine").rename(data / "shared/old")
    (data / "private").rename(data / "shared/mine")
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert "the source was exchanged for another file" in done.stderr
    with pytest.raises(NotStarted, match="may not reach"):
        identity_as_nobody(data, asked)


@pytest.mark.parametrize(
    ("mount", "why"),
    [
        (Mount("/var/log", "x"), "does not give /var/log to tasks; it allows paths in {data}"),
        (Mount("{data}/private/alices", "x"), "the user nobody may not reach {data}/private/alices"),
        (Mount("{data}/models", "link/x"), "a volume cannot be mounted: {data}/models at "),
    ],
    ids=["elsewhere", "behind a closed door", "by a link of the sandbox"],
)
def test_host_paths_that_no_task_gets_fail_the_launch(
    data: Path, agent: ScriptedAgent, mount: Mount, why: str
) -> None:
    with one(data, agent) as run:
        (run.sandbox / "link").symlink_to(data / "shared")
        run.launch(
            "echo never", user="nobody", mounts=(replace(mount, source=mount.source.format(data=data)),)
        )
        message, outcome = run.end("TASK_FAILED")
        assert why.format(data=data) in message
        assert not outcome.infrastructure, "placement would choose the same host again"
        assert run.stdout() == ""
    assert list((data / "shared").iterdir()) == []


# --- what an engine mounts, by names

BINDS = """
import subprocess, sys
from isolator.devices import view
view.enter()
for source, target in zip(sys.argv[1::2], sys.argv[2::2]):
    subprocess.run(["mount", "--bind", source, target], check=True)
print("there", flush=True)
sys.stdin.read()
"""


@contextmanager
def container(*binds: Path) -> Iterator[int]:
    """A process in a mount namespace of its own: source and target by turns."""
    command = [sys.executable, "-c", BINDS, *map(str, binds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        yield process.pid
        process.communicate("", timeout=30)


def test_a_path_that_was_exchanged_before_the_engine_mounted_it(data: Path, tmp_path: Path) -> None:
    asked = data / "shared" / "me" / "alices"
    asked.mkdir(parents=True)
    given = [identity_as_nobody(data, path) for path in (asked, data / "models/weights")]
    points = tmp_path / "a b", tmp_path / "file"
    points[0].mkdir()
    points[1].touch()
    with container(asked, points[0], data / "models/weights", points[1]) as pid:
        see_given(pid, given)
        with pytest.raises(NotStarted, match="exchanged"):
            see_given(pid, [*given, given[0]])  # another has taken the place of one of two
    (data / "shared/me").rename(data / "shared/old")
    (data / "shared/me").symlink_to(data / "private")
    with container(asked, points[0], data / "models/weights", points[1]) as pid:
        assert (data / "private/alices").stat().st_ino not in {inode for _, inode in given}
        with pytest.raises(NotStarted, match="exchanged"):
            see_given(pid, given)
