"""Options of the mounts that a task sees: each is made in a namespace of a child, and read from its mountinfo."""

import ast
import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from isolator.devices import view
from tests.kernel.conftest import needs

pytestmark = pytest.mark.kernel

SHOW = """
import json, os, sys
def options(point):
    lines = [line.split() for line in open("/proc/self/mountinfo")]
    return [line[5].split(",") for line in lines if line[4] == point][-1]
assert len(os.listdir("/proc/self/fd")) == before, "no descriptor is left open"
print(json.dumps({point: options(point) for point in sys.argv[1:]}))
"""
OPEN = "import os; before = len(os.listdir('/proc/self/fd'))"
KEPT = {"ro", "nosuid", "nodev", "noexec"}


def mounted(statements: str, points: Sequence[str]) -> dict[str, set[str]]:
    """The options of mount points, as far as they forbid something, after some statements in a new namespace."""
    told: dict[str, list[str]] = json.loads(output(f"view.enter()\n{OPEN}\n{statements}\n{SHOW}", *points))
    return {point: KEPT & {*options} for point, options in told.items()}


def output(statements: str, *arguments: str) -> str:
    """Return the output of a child that has `view`."""
    command = [sys.executable, "-c", f"from isolator.devices import view\n{statements}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


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
    (place / "usr" / "lib" / "inner").write_text("inner")
    (place / "build" / "built").write_text("built")
    code += f"""
import os
usr = {str(place / "usr")!r}
assert sorted(os.listdir(usr)) == ["file", "lib", "link", "nvidia"]
texts = [open(f"{{usr}}/{{name}}").read() for name in ("file", "link/inner", "nvidia/built")]
assert (os.readlink(f"{{usr}}/link"), texts) == ("lib", ["text", "inner", "built"])"""
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
    below = f"view.mount('tmpfs', {data!r}, 'tmpfs', view.{flag})"
    code = f"{below}; view.mount_paths([({data!r}, {at!r}, False)], {str(place / 'sandbox')!r})"
    assert mounted(code, [at]) == {at: {"nosuid", "nodev", option}}


def test_view_of_private_directories_is_without_privileges(place: Path) -> None:
    (place / "sandbox").mkdir()
    close = "[os.close(fd) for fd in covered.values()]"
    code = f"covered = view.make_private(1, {str(place / 'sandbox')!r}); {close}"
    options = mounted(code, ["/tmp", "/dev/shm"])
    assert options == {point: {"nosuid", "nodev"} for point in ("/tmp", "/dev/shm")}


def test_view_of_dev_runs_no_program(place: Path) -> None:
    points = ["/dev", "/dev/pts"]
    assert mounted("view.make_dev(())", points) == {point: {"nosuid", "noexec"} for point in points}


# --- all of a new /dev

HOST_DEV = """
import json, os, stat
os.umask(0)
view.enter()
view.mount("tmpfs", "/dev", "tmpfs", 0)  # as the host's, whatever that has
os.mknod("/dev/null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
for name in KEPT:
    os.mkdir(f"/dev/{name}")
    open(f"/dev/{name}/of the host", "w")
if LOG:
    os.symlink("/run/log", "/dev/log")
"""
SHOW_DEV = """
def about(path):
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(path)
    return f"{stat.filemode(status.st_mode)} {os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
tree = [os.path.join(at, name) for at, below, files in os.walk("/dev") for name in (*below, *files)]
print(json.dumps({path: about(path) for path in tree}))
"""
STANDARD = {
    "/dev/null": "crw-rw-rw- 1:3",
    "/dev/zero": "crw-rw-rw- 1:5",
    "/dev/full": "crw-rw-rw- 1:7",
    "/dev/random": "crw-rw-rw- 1:8",
    "/dev/urandom": "crw-rw-rw- 1:9",
    "/dev/tty": "crw-rw-rw- 5:0",
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
    "/dev/ptmx": "pts/ptmx",
    "/dev/pts": "drwxr-xr-x 0:0",
    "/dev/pts/ptmx": "crw-rw-rw- 5:2",
}
HUGE = {"/dev/hugepages": "drwxrwxrwx 0:0", "/dev/hugepages/of the host": "-rw-rw-rw- 0:0"}
SHARED = {
    "/dev/shm": "drwxrwxrwx 0:0",
    "/dev/shm/of the host": "-rw-rw-rw- 0:0",
    "/dev/mqueue": "drwxrwxrwx 0:0",
    "/dev/mqueue/of the host": "-rw-rw-rw- 0:0",
}
OWN = {"/dev/shm": "drwxr-xr-x 0:0", "/dev/mqueue": "drwxrwxrwt 0:0"}
NODE = {
    "/dev/below": "drwxrwxrwx 0:0",
    "/dev/below/it": "drwxrwxrwx 0:0",
    "/dev/below/it/card": "crw------- 1:3",
}


@pytest.mark.parametrize(
    ("kept", "log", "arguments", "entries"),
    [
        ((), False, "()", {}),
        ((), True, "()", {"/dev/log": "/run/log"}),
        (("shm", "mqueue", "hugepages"), False, "()", {**HUGE, **SHARED}),
        (("shm", "mqueue", "hugepages"), False, "(), own=True", {**HUGE, **OWN}),
        ((), False, "(), own=True", OWN),
        ((), False, "[('/dev/below/it/card', '/dev/null'), ('/dev/below/it/card', '/dev/null')]", NODE),
    ],
)
def test_view_of_dev_has_these_entries_and_no_others(
    place: Path, kept: tuple[str, ...], log: bool, arguments: str, entries: dict[str, str]
) -> None:
    made = f"view.enter(ipc=True)\n{OPEN}\nview.make_dev({arguments})\n"
    closed = "assert len(os.listdir('/proc/self/fd')) == before, 'no descriptor is left open'\n"
    code = f"KEPT, LOG = {kept!r}, {log}\n{HOST_DEV}\n{made}\n{closed}\n{SHOW_DEV}"
    assert json.loads(output(code)) == STANDARD | entries


@pytest.mark.parametrize("option", ["ipc=True", "ipc=False", ""])
def test_view_enters_a_mount_namespace_and_one_of_ipc_if_asked(place: Path, option: str) -> None:
    show = "import os; print(*(os.readlink(f'/proc/self/ns/{kind}') for kind in ('mnt', 'ipc')))"
    mnt, ipc = output(f"view.enter({option})\n{show}").split()
    assert mnt != os.readlink("/proc/self/ns/mnt")
    assert (ipc != os.readlink("/proc/self/ns/ipc")) == (option == "ipc=True")


PROPAGATION = """
import os
view.enter()
view.mount("none", "/", "none", view.MS_REC | 1 << 20)  # shared with the namespace that follows
if os.fork():
    os.wait()
    raise SystemExit
view.enter()
lines = [line.split(" - ")[0].split()[6:] for line in open("/proc/self/mountinfo")]
print([field.partition(":")[0] for fields in lines for field in fields])
"""


def test_view_receives_mounts_of_the_host_and_passes_none_on(place: Path) -> None:
    assert {*ast.literal_eval(output(PROPAGATION))} == {"master"}


def test_view_that_the_kernel_refuses_is_an_error(place: Path) -> None:
    with pytest.raises(OSError, match="mount: No such file or directory") as raised:
        view.mount("none", str(place / "missing"), "none", view.MS_BIND)
    assert raised.value.errno == errno.ENOENT


# --- private directories


@pytest.mark.parametrize(("mib", "bytes_of_it"), [(3, 3 << 20), (0, None)])
def test_view_of_private_directories_is_one_file_system_that_all_may_write(
    place: Path, mib: int, bytes_of_it: int | None
) -> None:
    sandbox = place / "sandbox"
    sandbox.mkdir()
    code = f"""
import json, os, stat
os.umask(0o77)
view.enter()
view.mount("tmpfs", "/tmp", "tmpfs", 0)
open("/tmp/of the host", "w")
{OPEN}
covered = view.make_private({mib}, {str(sandbox)!r})
assert len(os.listdir("/proc/self/fd")) == before + len(covered)
assert os.listdir(f"/proc/self/fd/{{covered['/tmp']}}") == ["of the host"]
places = {{place: oct(os.stat(place).st_mode) for place in covered}}
devices = {{os.stat(place).st_dev for place in covered}}
size = os.statvfs("/dev/shm")
print(json.dumps([places, len(devices), size.f_frsize * size.f_blocks, [os.listdir(each) for each in covered]]))
"""
    modes, file_systems, size, entries = json.loads(output(code))
    assert {"/tmp", "/dev/shm"} <= modes.keys()
    assert {*modes.values()} == {"0o41777"}
    assert (file_systems, entries) == (1, [[]] * len(modes))
    assert size == bytes_of_it or (bytes_of_it is None and size > 64 << 20)


@pytest.mark.parametrize("how", ["view.make_private(1, sandbox)", "view.hide([tmp], sandbox)"])
def test_view_of_a_sandbox_below_what_is_covered_is_as_before(place: Path, how: str) -> None:
    code = f"""
import os, sys
view.enter()
tmp = "/tmp"
view.mount("tmpfs", tmp, "tmpfs", 0)
sandbox = tmp + "/of/agent/sandbox"
os.makedirs(sandbox + "/mounted")
os.mkdir(tmp + "/of/others")
view.mount("tmpfs", sandbox + "/mounted", "tmpfs", 0)
open(sandbox + "/mounted/file", "w")
{how}
print([(at, sorted(below), files) for at, below, files in os.walk(tmp)])
"""
    assert output(code).strip() == str(
        [
            ("/tmp", ["of"], []),
            ("/tmp/of", ["agent"], []),
            ("/tmp/of/agent", ["sandbox"], []),
            ("/tmp/of/agent/sandbox", ["mounted"], []),
            ("/tmp/of/agent/sandbox/mounted", [], ["file"]),
        ]
    )


# --- cgroups

FREEZE = """
import json, os
view.enter()
view.OWN_CGROUP2 = PLACE
os.umask(0)
view.mount_cgroup2()
view._call("umount2", PLACE.encode(), 0)
view.mount_cgroup2()
def options():
    lines = [line.split() for line in open("/proc/self/mountinfo")]
    return {line[4]: line[5].split(",") for line in lines if line[4].startswith((view._CGROUPS, PLACE))}
before = options()
view.freeze_cgroups()
print(json.dumps([before, options()]))
"""


@pytest.mark.parametrize("call", ["", "view._SYS_MOUNT_SETATTR = 9999  # as of an old kernel"])
def test_view_of_cgroups_is_frozen_with_all_mounts_below(place: Path, call: str) -> None:
    own = str(place / "made" / "cgroup2")
    before, after = json.loads(output(f"PLACE = {own!r}\n{call}\n{FREEZE}"))
    assert {"rw", "nosuid", "nodev", "noexec"} <= {*before[own]}
    assert before.keys() == after.keys()
    assert len(after) > 2
    assert {point for point, options in after.items() if "ro" not in options} == set()
    more = {"nosuid", "nodev", "noexec"} if call else set()
    for point, options in after.items():
        kept = {*before[point]} - {"rw"}
        assert {*options} - {"ro"} - kept <= more, point
        assert {*options} >= {"ro"} | more | kept, point
    assert oct((place / "made" / "cgroup2").stat().st_mode) == "0o40700"


# --- paths


def test_view_of_paths_is_refused_with_the_path_if_another_is_there(place: Path) -> None:
    for name in "data", "sandbox":
        (place / name).mkdir()
    (place / "link").symlink_to(place / "data")
    with (
        pytest.raises(OSError, match="the path has become a symbolic link") as linked,
        view.held(str(place / "link")),
    ):
        pass
    assert linked.value.errno == errno.ELOOP
    with pytest.raises(
        OSError, match=f"{place}/data at /there: the source was exchanged for another file"
    ) as other:
        view.mount_paths([(f"{place}/data", "/there", True)], f"{place}/sandbox", None, [(0, 0)])
    assert other.value.errno == errno.ESTALE


def test_view_of_a_path_that_was_covered_is_the_one_below(place: Path) -> None:
    (place / "a" / "inner").mkdir(parents=True)
    (place / "b" / "inner").mkdir(parents=True)
    below = os.open(place / "a", os.O_PATH)
    with view.held(f"{place}/a/inner", {f"{place}/other": -1, f"{place}/a": below}) as inner:
        assert os.path.samestat(os.fstat(inner), (place / "a/inner").stat())
        assert not os.get_inheritable(inner)
    os.close(below)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(inner)


@pytest.mark.parametrize("of_file", [False, True])
def test_view_of_a_path_is_made_in_the_sandbox(place: Path, of_file: bool) -> None:
    (place / "sandbox").mkdir()
    data = place / "data"
    if of_file:
        data.write_text("text")
    else:
        data.mkdir()
        (data / "file").write_text("text")
    status = data.stat()
    identity = [(status.st_dev, status.st_ino)]
    paths = [(str(data), "in/it", True), (str(place / "sandbox" / "own"), "again", True)]
    (place / "sandbox" / "own").mkdir()
    code = f"view.mount_paths({paths!r}, {str(place / 'sandbox')!r}, {{}}, {identity!r})\nimport os"
    read = "in/it" if of_file else "in/it/file"
    code += f"\nassert open({str(place / 'sandbox')!r} + '/{read}').read() == 'text'"
    points = [str(place / "sandbox" / name) for name in ("in/it", "again")]
    assert mounted(code, points) == {point: {"ro", "nosuid", "nodev"} for point in points}


ELSEWHERE = """
import json, os
view.enter()
points = []
for line in open("/proc/self/mountinfo").readlines():
    before, _, after = line.partition(" - ")
    if after.startswith(("cgroup ", "cgroup2 ")):
        points.append(f"{PLACE}/{len(points)}")
        os.makedirs(points[-1])
        view.mount(before.split()[4], points[-1], "none", view.MS_BIND)
covered = f"{PLACE}/covered"
for kind in (points[0], None):
    os.makedirs(f"{covered}/in", exist_ok=True)
    if kind:
        view.mount(kind, f"{covered}/in", "none", view.MS_BIND)
        view.mount("tmpfs", covered, "tmpfs", 0)
view.freeze_cgroups(hides=HIDES)
def writable(point):
    return not os.statvfs(point).f_flag & os.ST_RDONLY
print(json.dumps([len(points), [each for each in points if writable(each)], writable(f"{covered}/in")]))
"""


@pytest.mark.parametrize("hides", [False, True])
def test_view_of_cgroups_is_frozen_in_mounts_elsewhere(place: Path, hides: bool) -> None:
    """A directory over a mount of cgroups that a task cannot reach stays as it is."""
    count, writable, covers = json.loads(output(f"PLACE = {str(place)!r}\nHIDES = {hides}\n{ELSEWHERE}"))
    assert count >= 1
    assert (writable, covers) == ([], True)
