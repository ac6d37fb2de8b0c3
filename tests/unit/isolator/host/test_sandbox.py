"""What root does below a task's sandbox: no link, FIFO or second name that somebody planted there leads it out."""

import ast
import itertools
import os
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import isolator
from isolator.host.sandbox import NotAFile, Sandbox, has_acls
from isolator.runs.gang import write_hostfile
from mesos_gpu.model.tasks.assignment import Assignment

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it acts as another user")
NOBODY = (65534, 65534)
PYTHON = "/usr/bin/python3"  # one that any user can run
GANG = Assignment(job_id="j", attempt=1, hosts=("n1", "n2"))


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the host outside of the sandbox."""
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "file").write_text("the host's\n")
    return tmp_path / "host" / "file"


@pytest.fixture
def place(tmp_path: Path, victim: Path) -> Iterator[Path]:
    """A sandbox. The victim is as it was afterwards, and nothing new is beside it."""
    before = os.stat(victim)
    (tmp_path / "sandbox").mkdir()
    yield tmp_path / "sandbox"
    assert victim.read_text() == "the host's\n"
    after = os.stat(victim)
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    assert list(victim.parent.iterdir()) == [victim]


def fifo(path: Path, _victim: Path) -> None:
    os.mkfifo(path)


def link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def dangling(path: Path, victim: Path) -> None:
    path.symlink_to(victim.parent / "new")


def second_name(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


planted = pytest.mark.parametrize("plant", [fifo, link, dangling, second_name])
Plant = Callable[[Path, Path], None]


@planted
def test_the_list_of_hosts_takes_the_place_of_what_has_its_name(
    place: Path, victim: Path, plant: Plant
) -> None:
    plant(place / "hostfile", victim)
    write_hostfile(GANG, str(place))
    assert (place / "hostfile").read_text() == "n1 slots=1\nn2 slots=1\n"
    assert stat.S_ISREG(os.lstat(place / "hostfile").st_mode)
    assert [path.name for path in place.iterdir()] == ["hostfile"]


@pytest.mark.parametrize("rounds", [60, pytest.param(300, marks=pytest.mark.long)])
def test_sandbox_follows_no_link_that_is_swapped_in_meanwhile(place: Path, victim: Path, rounds: int) -> None:
    done = threading.Event()

    def swap() -> None:
        for n in itertools.count():
            os.symlink(victim, place / f"l{n}")
            os.rename(place / f"l{n}", place / "hostfile")
            if done.is_set():
                return

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(rounds):
            write_hostfile(GANG, str(place))
    finally:
        done.set()
        swapper.join(30)
    assert not swapper.is_alive()


def test_a_directory_in_the_way_of_the_list_is_an_error_and_leaves_nothing(place: Path) -> None:
    (place / "hostfile").mkdir()
    with pytest.raises(OSError, match="hostfile"):
        write_hostfile(GANG, str(place))
    assert [path.name for path in place.iterdir()] == ["hostfile"]


@planted
def test_sandbox_neither_appends_to_nor_opens_a_planted_file(place: Path, victim: Path, plant: Plant) -> None:
    plant(place / "executor.log", victim)
    with Sandbox(str(place)) as sandbox:
        for act in (sandbox.append, sandbox.hold):
            with pytest.raises((NotAFile, FileNotFoundError)):
                act("executor.log")


@pytest.mark.parametrize("plant", [fifo, link, dangling])
def test_sandbox_reads_no_planted_file(place: Path, victim: Path, plant: Plant) -> None:
    plant(place / "stderr", victim)
    with Sandbox(str(place)) as sandbox, pytest.raises(OSError, match="stderr"):
        sandbox.read("stderr", 10)


@planted
@as_root
def test_sandbox_gives_away_no_planted_file(place: Path, victim: Path, plant: Plant) -> None:
    plant(place / "stdout", victim)
    with Sandbox(str(place)) as sandbox:
        sandbox.admit_to("stdout", NOBODY[0])


@planted
def test_sandbox_shows_no_planted_file_as_output(place: Path, victim: Path, plant: Plant) -> None:
    (place / "stdout").write_text("of the executor\n")
    nested = place / "containers" / "task"
    nested.mkdir(parents=True)
    plant(nested / "stdout", victim)
    with Sandbox(str(place)) as sandbox, sandbox.enter("containers", "task") as below:
        assert not sandbox.show(below, "stdout")
        (nested / "stdout").unlink()
        (nested / "stdout").write_text("of the task\n")
        assert sandbox.show(below, "stdout")
    assert (place / "stdout").read_text() == "of the task\n"


def directory_link(path: Path, victim: Path) -> None:
    path.symlink_to(victim.parent)


@pytest.mark.parametrize("plant", [directory_link, fifo, dangling])
def test_sandbox_path_ends_at_what_is_no_directory(place: Path, victim: Path, plant: Plant) -> None:
    plant(place / "containers", victim)
    with Sandbox(str(place)) as sandbox:
        for act in (
            lambda: sandbox.enter("containers", "x"),
            lambda: sandbox.enter("containers"),
            lambda: sandbox.keep("containers"),
            lambda: sandbox.make_point(["containers", "x"], is_file=False),
            lambda: sandbox.make_point(["containers", "x"], is_file=True),
            lambda: sandbox.make_point(["containers"], is_file=False),
        ):
            with pytest.raises(OSError, match=r"containers|Not a directory"):
                act()
    with pytest.raises(OSError, match="directory"):
        Sandbox(str(place / "containers"))


@planted
def test_a_file_to_mount_over_is_made_beside_no_link(place: Path, victim: Path, plant: Plant) -> None:
    """What is there stays; what is mounted later is compared by itself."""
    plant(place / "x", victim)
    before = os.lstat(place / "x")
    with Sandbox(str(place)) as sandbox:
        sandbox.make_point(["x"], is_file=True)
    assert os.lstat(place / "x") == before


def test_sandbox_move_replaces_nothing_and_moves_links_as_they_are(place: Path, victim: Path) -> None:
    nested = place / "containers" / "fetch"
    nested.mkdir(parents=True)
    (nested / "stdout").touch()
    link(nested / "hostfile", victim)
    directory_link(nested / "d", victim)
    with Sandbox(str(place)) as sandbox, sandbox.enter("containers", "fetch") as below:
        (place / "d").mkdir()
        assert sandbox.take(below, but=["stdout"]) == "d"
        assert not (place / "hostfile").is_symlink()
        (place / "d").rmdir()
        assert sandbox.take(below, but=["stdout"]) is None
    assert os.readlink(place / "hostfile") == str(victim)
    assert os.readlink(place / "d") == str(victim.parent)


def test_sandbox_names_are_no_paths(place: Path) -> None:
    with Sandbox(str(place)) as sandbox:
        for name in ("", ".", "..", "a/b", "/etc/x"):
            for act in (sandbox.append, sandbox.hold, sandbox.enter, sandbox.keep):
                with pytest.raises(ValueError, match="not a name"):
                    act(name)
            with pytest.raises(ValueError, match="not a name"):
                sandbox.put(name, b"")


# --- what the task's user can do in it

TRIES = """
import os, sys
def tried(act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        return os.strerror(error.errno)
    return "done"
os.chdir(sys.argv[1])
os.mkdir("mine")
open("mine/x", "w").close()
for act, *arguments in (
    (os.rename, "stdout", "old"), (os.unlink, "stdout"), (os.rename, "mine/x", "stdout"),
    (os.unlink, "executor.log"), (os.rename, "mine", "containers"), (os.rename, "containers", "c"),
    (os.rename, "mine/x", "hostfile"), (os.chmod, ".", 0o777), (os.mkfifo, "containers/task"),
    (open, "executor.log", "a"), (open, "hostfile", "a"),
    (open, "stdout", "a"), (os.rename, "mine", "own"), (os.mkfifo, "fifo"), (os.unlink, "fifo"),
):
    print(act.__name__, arguments[0], "->", tried(act, *arguments))
"""


@contextmanager
def filled(place: Path) -> Iterator[Sandbox]:
    for name in ("stdout", "stderr"):
        (place / name).touch()
    with Sandbox(str(place)) as sandbox:
        os.close(sandbox.append("executor.log"))
        sandbox.keep("containers")
        sandbox.put("hostfile", b"n1\n")
        yield sandbox


@as_root
def test_the_tasks_user_replaces_nothing_of_the_executors(open_directory: Path) -> None:
    place = open_directory / "given"
    place.mkdir(mode=0o750)
    with filled(place) as sandbox:
        sandbox.admit(NOBODY[0])
        sandbox.admit_to("stdout", NOBODY[0])
    said = subprocess.run(
        [PYTHON, "-c", TRIES, place], user=NOBODY[0], group=NOBODY[1], extra_groups=[],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout.splitlines()  # fmt: skip
    allowed = [line for line in said if line.endswith("-> done")]
    assert allowed == [
        "open stdout -> done", "rename mine -> done", "mkfifo fifo -> done", "unlink fifo -> done"
    ]  # fmt: skip
    assert len(said) == 15
    assert not stat.S_IMODE(place.stat().st_mode) & 0o007, "others get no further than before"


@as_root
def test_user_admitted_to_pass_a_sandbox_makes_no_files(open_directory: Path) -> None:
    place = open_directory / "passed"
    place.mkdir(mode=0o700)
    with filled(place) as sandbox:
        sandbox.admit(NOBODY[0], writes=False)
        (place / "containers" / "below").mkdir()
    tries = "test -d containers/below && ! ls . 2>/dev/null && ! touch x 2>/dev/null && echo so"
    said = subprocess.run(
        ["/bin/sh", "-c", tries], cwd=place, user=NOBODY[0], group=NOBODY[1], extra_groups=[],
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert said.stdout == "so\n", said


@as_root
def test_mount_points_are_the_users_whom_the_sandbox_admits(place: Path) -> None:
    with Sandbox(str(place)) as sandbox:
        sandbox.admit(NOBODY[0])
        sandbox.make_point(["a", "b", "file"], is_file=True)
        sandbox.make_point(["a", "c"], is_file=False)
    owners = {(path.name, path.stat().st_uid) for path in place.rglob("*")}
    assert owners == {(name, NOBODY[0]) for name in ("a", "b", "c", "file")}


@as_root
def test_sandbox_without_access_control_lists_admits_no_user_that_writes(place: Path) -> None:
    """Else that user could exchange the logs, which the agent reads as root."""
    subprocess.run(["mount", "-t", "ramfs", "-o", "mode=700", "ramfs", str(place)], check=True)
    try:
        (place / "stdout").touch()
        with Sandbox(str(place)) as sandbox:
            assert not sandbox.admit(NOBODY[0])
            assert (place.stat().st_uid, stat.S_IMODE(place.stat().st_mode)) == (0, 0o700)
            with pytest.raises(OSError, match="not supported"):
                sandbox.admit_to("stdout", NOBODY[0])
            assert (place / "stdout").stat().st_uid == 0
            assert not sandbox.admit(NOBODY[0], writes=False)
            assert (place.stat().st_uid, stat.S_IMODE(place.stat().st_mode)) == (0, 0o701)
        assert not has_acls(str(place))
    finally:
        subprocess.run(["umount", str(place)], check=True)
    assert has_acls(str(place))


# --- nobody goes around it

#: Functions of isolator that change file systems by other names, and where: nothing of a sandbox.
ELSEWHERE = {
    "node/programs": "old programs in the node directory, which is root's",
    "images/store": "layers of images, in a directory that is root's",
    "images/unpacking": "a layer of an image, in a directory that is root's, by descriptors of directories below it",
    "devices/image_root": "the root of a task's image, before its task runs, by descriptors below that root",
    "runs/own_run": "the directory of an image's root, below one that is root's",
    "gpus/cards": "the node directory, which is root's",
    "images/public": "the node directory, which is root's",
    "devices/cgroups": "files of cgroups",
    "confinement/limits": "files of cgroups",
    "agent/uploads": "an archive that its caller has opened; as a tar file it is read",
    "runs/fetching": "an archive that Sandbox has opened, in a directory that is root's",
    "agent/docker_engine": "cgroups that were made for a container",
    "runs/docker_run": "devices.allow of the container's cgroup",
    "confinement/enclosure": "device nodes below /dev/mesos_gpu, which is root's",
    "confinement/fence": "files of cgroups",
    "confinement/gate": "a directory beside the task's device nodes, which is root's",
    "devices/facts": "the node directory, which is root's",
    "runs/joined": "files of cgroups",
    "runs/launcher": "files of cgroups",
    "gpus/driver_volume": "links in the directory of driver volumes, which is root's",
    "gpus/ledger": "the node directory, which is root's",
    "confinement/memory_events": "files of cgroups",
    "runs/memory": "files of cgroups",
    "executor/mps_watch": "the log of a daemon of MPS, in a directory that is root's",
    "shares/mps/compute_mode_child": "notes of daemons of MPS, in a directory that is root's",
    "shares/driver/limits": "files of cgroups",
    "shares/mps/daemon": "directories of daemons of MPS, below ones that are root's, and cgroups",
    "shares/by_mps": "a daemon of MPS, which is opened by a method of that name",
    "shares/shim/build": "the cache of built libraries, and a directory of its own below it",
    "shares/shim/check": "a directory of its own",
    "shares/shim/region": "the node directory, which is root's: tasks' own directories are closed to others",
    "session/terminal": "the master of a terminal, the character device 5:2, by a descriptor",
    "secrets/keys": "the node directory, which is root's",
    "secrets/attaching": "standard input, which is read",
    "secrets/mount": "the task's own file system of memory; in its sandbox it is the task's user",
    "host/rootfs": "directories of the agent's provisioner, which are root's",
    "host/sealing": "a sandbox whose task has ended, by descriptors",
    "host/unsealed": "a sandbox whose task has ended, its directories, by descriptors",
    "persistent/root": "volumes below the operator's root, by its descriptor; only the executor's user may enter it",
    "devices/view": "the task's own /dev, and what takes the place of a directory of the host",
}
CHANGES = {
    "chmod", "chown", "fchmodat", "hardlink_to", "lchown", "link", "link_to", "makedirs", "mkdir", "mkfifo", "mknod",
    "move", "remove", "removedirs", "rename", "renames", "replace", "rmdir", "rmtree", "setxattr", "symlink",
    "symlink_to", "touch", "truncate", "unlink", "utime", "write_bytes", "write_text",
}  # fmt: skip
OF_OTHER_THINGS = {"move", "remove", "rename", "replace"}  # also of containers, text, and dataclasses


def changes(module: ast.Module) -> Iterator[ast.Call]:
    """Calls that change a file system, or open a file by name for anything but reading it as text or bytes."""
    for node in ast.walk(module):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        owner = getattr(getattr(function, "value", None), "id", "")
        if (name in CHANGES and (name not in OF_OTHER_THINGS or owner in ("os", "shutil"))) or (
            name == "open" and _writes(node, owner)
        ):
            yield node


def _writes(call: ast.Call, owner: str) -> bool:
    if owner == "os":
        flags = {node.attr for node in ast.walk(call) if isinstance(node, ast.Attribute)}
        return bool(flags & {"O_WRONLY", "O_RDWR", "O_CREAT"})
    modes = [
        *call.args[0 if owner not in ("", "tarfile") else 1 :][:1],
        *(k.value for k in call.keywords if k.arg == "mode"),
    ]
    return any(not (isinstance(mode, ast.Constant) and set(str(mode.value)) <= set("rbt:")) for mode in modes)


def test_no_other_module_of_the_isolator_changes_a_file_system_but_for_a_reason() -> None:
    directory = Path(isolator.__file__).parent
    lines_by_module = {
        path.relative_to(directory).with_suffix("").as_posix(): [
            call.lineno for call in changes(ast.parse(path.read_text()))
        ]
        for path in directory.rglob("*.py")
    }
    others = {name: lines for name, lines in lines_by_module.items() if lines and name != "host/sandbox"}
    assert set(others) - set(ELSEWHERE) == set(), f"use isolator.host.sandbox: {others}"
    assert set(ELSEWHERE) - set(others) == set(), "they change nothing any more"


def test_guard_of_file_system_calls_sees_them() -> None:
    text = "open(p, 'w'); os.open(p, os.O_RDONLY | os.O_CREAT); os.chown(p, 1, 1); p.write_text(''); p.open(mode)"
    assert len(list(changes(ast.parse(text)))) == 5
    assert not list(
        changes(ast.parse("open(p); open(p, 'rb'); os.open(p, os.O_RDONLY); 'a'.replace('a', '')"))
    )
