"""Options of the mounts that a task sees: each is made in a namespace of a child, and read from its mountinfo."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kernel.conftest import needs

pytestmark = pytest.mark.kernel

SHOW = """
import json, sys
def options(point):
    lines = [line.split() for line in open("/proc/self/mountinfo")]
    return [line[5].split(",") for line in lines if line[4] == point][-1]
print(json.dumps({point: options(point) for point in sys.argv[1:]}))
"""
KEPT = {"ro", "nosuid", "nodev", "noexec"}


def mounted(statements: str, points: Sequence[str]) -> dict[str, set[str]]:
    """The options of mount points, as far as they forbid something, after some statements in a new namespace."""
    code = f"from isolator.devices import view\nview.enter()\n{statements}\n{SHOW}"
    command = [sys.executable, "-c", code, *points]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return {point: KEPT & {*options} for point, options in json.loads(done.stdout).items()}


@pytest.fixture
def place(open_directory: Path) -> Path:
    needs("cgroup2")
    return Path(os.path.realpath(tempfile.mkdtemp(dir=open_directory)))


def test_view_of_a_hidden_directory_is_empty_and_nobody_writes_to_it(place: Path) -> None:
    hidden, sandbox = place / "hidden", place / "sandbox"
    (hidden / "of others").mkdir(parents=True)
    sandbox.mkdir()
    code = (
        f"import os; view.hide([{str(hidden)!r}], {str(sandbox)!r}); assert os.listdir({str(hidden)!r}) == []"
    )
    assert mounted(code, [str(hidden)]) == {str(hidden): KEPT}


def test_view_of_a_driver_volume_and_the_room_made_for_it_are_read_only(place: Path) -> None:
    (place / "build").mkdir()
    code = f"view.VOLUME_PATH = {str(place / 'usr/nvidia')!r}; view.mount_volume({str(place / 'build')!r})"
    (place / "usr" / "lib").mkdir(parents=True)
    (place / "usr" / "file").write_text("text")
    (place / "usr" / "link").symlink_to("lib")
    code += (
        f"; import os; assert sorted(os.listdir({str(place / 'usr')!r})) == ['file', 'lib', 'link', 'nvidia']"
    )
    points = [str(place / "usr/nvidia"), str(place / "usr")]
    assert mounted(code, points) == {point: {"ro", "nosuid", "nodev"} for point in points}
    assert not (place / "usr" / "nvidia").exists(), "the host is as it was"


@pytest.mark.parametrize(
    ("read_only", "forbidden"), [(True, {"ro", "nosuid", "nodev"}), (False, {"nosuid", "nodev"})]
)
def test_view_of_a_path_of_the_host_has_no_privileges(
    place: Path, read_only: bool, forbidden: set[str]
) -> None:
    for name in "data", "sandbox/at":
        (place / name).mkdir(parents=True)
    points = [str(place / "sandbox" / "at")]
    code = f"view.mount_paths([({str(place / 'data')!r}, {points[0]!r}, {read_only})], {str(place / 'sandbox')!r})"
    assert mounted(code, points) == {points[0]: forbidden}


@pytest.mark.parametrize("option", sorted(KEPT))
def test_view_of_a_path_keeps_what_its_mount_forbids(place: Path, option: str) -> None:
    (place / "data").mkdir()
    (place / "sandbox" / "at").mkdir(parents=True)
    flag = {"ro": "MS_RDONLY", "nosuid": "MS_NOSUID", "nodev": "MS_NODEV", "noexec": "MS_NOEXEC"}[option]
    data, at = str(place / "data"), str(place / "sandbox" / "at")
    below = f"view._mount('tmpfs', {data!r}, 'tmpfs', view.{flag})"
    code = f"{below}; view.mount_paths([({data!r}, {at!r}, False)], {str(place / 'sandbox')!r})"
    assert mounted(code, [at]) == {at: {"nosuid", "nodev", option}}


def test_view_of_private_directories_is_without_privileges(place: Path) -> None:
    (place / "sandbox").mkdir()
    options = mounted(f"view.make_private(1, {str(place / 'sandbox')!r})", ["/tmp", "/dev/shm"])
    assert options == {point: {"nosuid", "nodev"} for point in ("/tmp", "/dev/shm")}


def test_view_of_dev_runs_no_program(place: Path) -> None:
    points = ["/dev", "/dev/pts"]
    assert mounted("view.make_dev(())", points) == {point: {"nosuid", "noexec"} for point in points}
