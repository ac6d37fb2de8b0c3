"""Mounts of a task's image while another task exchanges what its links lead to."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.conftest import needs

pytestmark = pytest.mark.kernel

#: Assembles a root. A process outside of its mount namespace, as of another task, exchanges two names of a volume as
#: soon as something is mounted on the first.
ASSEMBLE = """
import ctypes, json, os, sys
from isolator.devices import view
from isolator.devices.image_root import ImageRoot

order, first, second, point = json.loads(sys.argv[1])
asked, ask = os.pipe()
told, tell = os.pipe()
if os.fork() == 0:
    os.close(ask)
    if os.read(asked, 1):
        libc = ctypes.CDLL(None, use_errno=True)
        done = libc.renameat2(-100, first.encode(), -100, second.encode(), 2)
        os.write(tell, b"f" if done else b"d")
    os._exit(0)
os.close(asked)
mount, exchanged, writable = view.mount, [], set()

def mounts():
    with open("/proc/self/mountinfo") as file:
        return [line.split() for line in file]

def mount_and_exchange(*arguments):
    mount(*arguments)
    for fields in mounts():
        if "/merged/" in fields[4] and "rw" in fields[5].split(","):
            writable.add(fields[3])
        if fields[4].endswith(point) and not exchanged:
            os.write(ask, b"x")
            exchanged.append(os.read(told, 1) == b"d")

view.enter(ipc=True)
view.mount = mount_and_exchange
root = ImageRoot(order)
root.overlay()
failure = ""
try:
    root.fill()
except OSError as error:
    failure = str(error)
shown = [(fields[3], fields[4], fields[5]) for fields in mounts() if "/merged" in fields[4]]
print(json.dumps({"shown": shown, "writable": sorted(writable), "exchanged": exchanged, "failure": failure}))
"""


@pytest.fixture
def place(open_directory: Path) -> Path:
    """Return a directory with a volume `data`, a directory `kept` to mount read-only, and a layer with links."""
    needs("cgroup2")
    place = Path(tempfile.mkdtemp(dir=open_directory))
    for name in ("root/upper", "root/work", "root/merged", "layer/data", "data/kept", "kept", "sandbox"):
        (place / name).mkdir(parents=True)
    (place / "layer/link").symlink_to("/data")
    (place / "data/other").symlink_to("/mnt/mesos/sandbox")
    (place / "kept/library").write_text("driver\n")
    return place


def assembled(place: Path, mounts: "list[tuple[Path, str, bool]]", jobs: int, point: str) -> dict[str, Any]:
    """Return the mounts of a root; the first `jobs` of `mounts` are those of the job."""
    statuses = [source.stat() for source, _, _ in mounts[:jobs]]
    order = {
        "place": str(place / "root"),
        "layers": [str(place / "layer")],
        "sandbox": str(place / "sandbox"),
        "inside": "/mnt/mesos/sandbox",
        "mounts": [(str(source), target, read_only) for source, target, read_only in mounts],
        "identities": [(status.st_dev, status.st_ino) for status in statuses],
        "shm_mib": 1,
        "directory": "/",
    }
    argument = json.dumps([order, str(place / "data/kept"), str(place / "data/other"), point])
    done = subprocess.run(
        [sys.executable, "-c", ASSEMBLE, argument], capture_output=True, text=True, check=True, timeout=60
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def flags_of(report: dict[str, Any], source: Path) -> list[set[str]]:
    return [set(flags.split(",")) for root, _, flags in report["shown"] if root.endswith(str(source))]


@pytest.mark.parametrize("target", ["/link/kept", "/data/kept"])
def test_mount_of_a_job_keeps_its_flags_when_its_target_is_exchanged(place: Path, target: str) -> None:
    mounts = [(place / "data", "/data", False), (place / "kept", target, True)]
    report = assembled(place, mounts, len(mounts), "/data/kept")
    assert report["exchanged"] == [True]
    assert [{"ro", "nosuid", "nodev"} <= flags for flags in flags_of(report, place / "kept")] == [True]
    assert [root for root in report["writable"] if root.endswith(str(place / "kept"))] == []


def test_mount_of_the_executor_is_on_no_volume_and_never_writable(place: Path) -> None:
    """The mount precedes that of the volume, which then hides it."""
    mounts = [(place / "data", "/data", False), (place / "kept", "/link/kept", True)]
    report = assembled(place, mounts, 1, "/data/kept")
    assert [{"ro", "nosuid", "nodev"} <= flags for flags in flags_of(report, place / "kept")] == [True]
    assert [root for root in report["writable"] if root.endswith(str(place / "kept"))] == []
    assert "a mount of the job hides /link/kept" in report["failure"]


def test_mounts_of_job_and_executor_are_shown(place: Path) -> None:
    library = place / "kept/library"
    mounts = [
        (place / "data", "/data", False),
        (place / "kept", "/opt/kept", True),
        (library, "/etc/file", True),
    ]
    report = assembled(place, mounts, 1, "/no-such-point")
    assert report["failure"] == ""
    assert {"rw", "nosuid", "nodev"} <= flags_of(report, place / "data")[0]
    for source in (place / "kept", library):
        assert [{"ro", "nosuid", "nodev"} <= flags for flags in flags_of(report, source)] == [True]
    assert sorted(path.name for path in (place / "root").iterdir()) == ["merged", "upper", "work"]


@pytest.mark.parametrize("jobs", [0, 1])
def test_mount_on_the_root_of_the_image_is_refused(place: Path, jobs: int) -> None:
    (place / "layer/top").symlink_to("/")
    report = assembled(place, [(place / "kept", "/top", True)], jobs, "/no-such-point")
    assert "/top: that is a link to the root of the image" in report["failure"]
    assert not any(at.endswith("/merged") and root.endswith("/kept") for root, at, _ in report["shown"])
