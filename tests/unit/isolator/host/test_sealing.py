"""Sealing: holders of descriptors cannot change names in the sandbox, and files outside of it do not change."""

import os
import socket
import stat
import subprocess
import tracemalloc
from pathlib import Path

import pytest

from isolator.host import sealing
from isolator.host.sandbox import Sandbox, _acl
from isolator.host.sealing import is_sealed, seal

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it acts as another user")
UID = 61999
DEPTH = 1100  # of directories, more than files may be open or calls nested


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    path = tmp_path / "sandbox"
    path.mkdir()
    with Sandbox(str(path)) as place:
        assert place.admit(UID)
    return path


def given(path: Path, mode: int) -> Path:
    """Give a path to the task's user and set its mode; return the path."""
    os.chown(path, UID, UID)
    path.chmod(mode)
    return path


def unsealed(top: Path) -> list[str]:
    """Return the paths that another user than root could change."""
    paths = []
    for at, directories, files in os.walk(top):
        paths += [at, *(f"{at}/{name}" for name in (*directories, *files))]
    return [
        path for path in dict.fromkeys(paths) if not Path(path).is_symlink() and not is_sealed(os.lstat(path))
    ]


def test_everything_becomes_roots_without_write_bits_and_lists(sandbox: Path) -> None:
    (sandbox / "out").mkdir()
    given(sandbox / "out", 0o2777)
    for mode in (0o666, 0o600, 0o6777, 0o000):
        path = sandbox / f"out/{mode:o}"
        path.write_text("x")
        given(path, mode)
    os.mkfifo(sandbox / "out/fifo")
    given(sandbox / "out/fifo", 0o666)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(sandbox / "out/socket"))
    given(sandbox / "out/socket", 0o777)
    for kind in ("access", "default"):
        os.setxattr(sandbox / "out", f"system.posix_acl_{kind}", _acl(1234, 7, 0o777))
    os.setxattr(sandbox / "out/600", "system.posix_acl_access", _acl(1234, 6, 0o600))
    seal(str(sandbox), 60)
    assert unsealed(sandbox) == []
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (sandbox / "out").iterdir()}
    assert modes == {"666": 0o644, "600": 0o600, "6777": 0o755, "0": 0, "fifo": 0o644, "socket": 0o755}
    lists = [name for path in (sandbox, *sandbox.rglob("*")) for name in os.listxattr(path)]
    assert [name for name in lists if "posix_acl" in name] == []
    assert {path.stat().st_gid for path in (sandbox / "out").iterdir()} == {UID}, (
        "by which it is known as the task's"
    )


def test_links_are_not_followed_and_hard_links_to_others_files_are_left(
    sandbox: Path, tmp_path: Path
) -> None:
    others = given_file(tmp_path / "others", 0o666)
    (sandbox / "second").hardlink_to(others)
    (sandbox / "link").symlink_to(others)
    (tmp_path / "directory").mkdir()
    given(tmp_path / "directory", 0o777)
    (sandbox / "to-directory").symlink_to(tmp_path / "directory")
    own = given_file(sandbox / "own", 0o666)
    (sandbox / "own-again").hardlink_to(own)
    seal(str(sandbox), 60)
    for path, mode in ((others, 0o666), (tmp_path / "directory", 0o777)):
        assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (UID, mode)
    assert is_sealed(own.stat()), "all of its names are in the sandbox"


def given_file(path: Path, mode: int) -> Path:
    path.write_text("x")
    return given(path, mode)


def test_a_tree_may_be_as_deep_as_it_likes(sandbox: Path) -> None:
    at = os.open(sandbox, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.fchown(below, UID, UID)
        os.close(at)
        at = below
    seal(str(sandbox), 60)
    assert is_sealed(os.fstat(at))
    os.close(at)
    subprocess.run(["rm", "-r", str(sandbox)], check=True)  # rmtree of Python nests a call for each


@pytest.mark.parametrize("width", [10, pytest.param(100, marks=pytest.mark.long)])
def test_sealing_of_a_wide_tree_needs_little_memory(
    sandbox: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node monitor, which has 96 MiB of memory, must not be ended by the names that a task left."""
    for number in range(40):
        directory = sandbox / f"{number:0200}"
        directory.mkdir()
        for below in range(width):
            os.mkdir(directory / f"{below:0200}")
            os.chown(directory / f"{below:0200}", UID, UID)
        given(directory, 0o777)
    for number in range(20):
        given_file(sandbox / f"linked{number}", 0o666)
        (sandbox / f"linked{number}-again").hardlink_to(sandbox / f"linked{number}")
    monkeypatch.setattr(sealing, "_MAX_NAMES", 16)
    monkeypatch.setattr(sealing, "_MAX_LINKED", 16)
    tracemalloc.start()
    seal(str(sandbox), 60)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    left = [Path(path).name for path in unsealed(sandbox)]
    assert all(name.startswith("linked") for name in left), "files of several names alone"
    assert peak_bytes < 40 * width * 200 / 2, "the names of all directories at once are more"


def test_sealing_leaves_and_names_a_mount(sandbox: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    given(data, 0o777)
    (sandbox / "data").mkdir()
    subprocess.run(["mount", "--bind", str(data), str(sandbox / "data")], check=True)
    try:
        with pytest.raises(OSError, match=r"Invalid cross-device link: 'data'"):
            seal(str(sandbox), 60)
    finally:
        subprocess.run(["umount", str(sandbox / "data")], check=True)
    assert data.stat().st_uid == UID
    seal(str(sandbox), 60)


def test_a_sandbox_that_is_gone_needs_no_seal_and_a_link_is_none(tmp_path: Path) -> None:
    seal(str(tmp_path / "gone"), 60)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(NotADirectoryError):
        seal(str(tmp_path / "link"), 60)


MOVES = """
import os, sys
fd = int(sys.argv[1])
os.setgid({uid}); os.setuid({uid})
number = 0
print("moves", flush=True)
try:
    while True:
        number += 1
        os.makedirs(f"/proc/self/fd/{{fd}}/new{{number}}/a/b", exist_ok=True)
        os.rename(f"a{{number % 50}}", f"new{{number}}/a/b/moved", src_dir_fd=fd, dst_dir_fd=fd)
        os.rename(f"new{{number}}/a/b/moved", f"a{{number % 50}}", src_dir_fd=fd, dst_dir_fd=fd)
except OSError as error:
    print(error.strerror, flush=True)
"""


def test_sealing_misses_no_directory_that_is_moved_meanwhile(sandbox: Path) -> None:
    (sandbox / "d").mkdir()
    given(sandbox / "d", 0o777)
    for number in range(50):
        (sandbox / f"d/a{number}/b/c").mkdir(parents=True)
        for path in (f"d/a{number}/b/c", f"d/a{number}/b", f"d/a{number}"):
            given(sandbox / path, 0o777)
    fd = os.open(sandbox / "d", os.O_RDONLY)
    command = ["/usr/bin/python3", "-c", MOVES.format(uid=UID), str(fd)]
    with subprocess.Popen(command, pass_fds=[fd], stdout=subprocess.PIPE, text=True) as mover:
        assert mover.stdout is not None
        assert mover.stdout.readline() == "moves\n"
        seal(str(sandbox), 60)
        assert unsealed(sandbox) == []
        assert mover.stdout.readline() == "Permission denied\n"
    os.close(fd)
    assert unsealed(sandbox) == []


def test_a_walk_ends_in_time_and_the_next_goes_on(sandbox: Path) -> None:
    """A process that adds directories as fast as the walk proceeds cannot delay it without limit."""
    for number in range(300):
        given_file(sandbox / str(number), 0o666)
    with pytest.raises(TimeoutError, match="another task keeps adding more"):
        seal(str(sandbox), 0)
    seal(str(sandbox), 60)
    assert unsealed(sandbox) == []
