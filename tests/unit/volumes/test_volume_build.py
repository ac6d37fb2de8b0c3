"""Volumes as directories: built, built again, verified, removed; on good and on bad file systems."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mesos_gpu.errors import Conflict, Damaged, NotFound, Unavailable
from tests.doubles.elf_files import driver_tree, shared_object
from tests.hosts import small_tree
from volumes.build import Built, make
from volumes.discover import discover
from volumes.store import Store, Volume, verify
from volumes.version import driver_version, kernel_version

V = "535.129.03"
LIB = f"usr/lib/aarch64-linux-gnu/libcuda.so.{V}"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    small_tree(tmp_path / "root", V)
    return tmp_path / "root"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "volumes")


@contextmanager
def mounted(path: Path, *what: str) -> Iterator[Path]:
    path.mkdir(exist_ok=True)
    subprocess.run(["mount", *what, str(path)], check=True, timeout=60)
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True, timeout=60)


def everything(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*"))


def test_a_volume_has_links_and_files_of_the_driver(tmp_path: Path, store: Store) -> None:
    root = tmp_path / "root"
    driver_tree(root, V)
    built = make(store.path, root)
    assert built.new
    assert built.how == {"hard link": len(built.volume.files)}
    volume = store.path_of(V)
    assert {path.name for path in volume.iterdir()} == {"bin", "lib", "lib64", "share", "volume.json"}
    assert (volume / "lib64/libcuda.so.1").resolve() == built.path / f"lib64/libcuda.so.{V}"
    assert (volume / "lib64/libcuda.so.1").samefile(root / f"usr/lib/x86_64-linux-gnu/libcuda.so.{V}")
    assert os.readlink(volume / "lib/libGLX_indirect.so.0") == f"libGLX_nvidia.so.{V}"
    assert (volume / "bin/nvidia-smi").stat().st_mode & 0o111
    assert all(
        stat.S_IMODE(path.stat().st_mode) == 0o755 for path in (volume, volume / "bin", volume / "lib64")
    )
    assert verify(built.volume) == ()
    assert (built.volume.version, built.volume.root, built.volume.current) == (V, str(root), True)
    assert built.volume.digest.startswith("sha256:")


def test_volume_built_again_is_the_same(root: Path, store: Store) -> None:
    first = make(store.path, root)
    before = everything(store.path)
    again = make(store.path, root)
    assert (again.new, again.path) == (False, first.path)
    assert everything(store.path) == before
    anew = make(store.path, root, anew=True)
    assert (anew.new, anew.path) == (True, first.path), "the same content is the same build"
    assert everything(store.path) == before


def test_the_digest_is_of_the_content(root: Path, tmp_path: Path) -> None:
    one = make(tmp_path / "one", root).volume
    other = tmp_path / "other-root"
    shutil.copytree(root, other, symlinks=True)
    assert make(tmp_path / "two", other).volume.digest == one.digest
    (other / LIB).write_bytes(shared_object(soname="libcuda.so.1", content=b"more"))
    assert make(tmp_path / "three", other).volume.digest != one.digest


def test_a_changed_source_is_another_build_and_the_first_stays_as_it_was(root: Path, store: Store) -> None:
    first = make(store.path, root)
    new = root / "new"
    new.write_bytes(shared_object(soname="libcuda.so.1", content=b"patched"))
    new.replace(root / LIB)  # as package managers do
    second = make(store.path, root)
    assert second.new
    assert second.path != first.path
    assert store.current(V) == second.path
    assert verify(replace(first.volume, current=False)) == ()
    assert [volume.current for volume in store.volumes()].count(True) == 1


def test_two_drivers_side_by_side(root: Path, store: Store) -> None:
    old = make(store.path, root)
    small_tree(root, "550.54.14")
    new = make(store.path, root)
    assert {old.volume.version, new.volume.version} == {V, "550.54.14"}
    assert store.path_of(V).is_dir()
    assert verify(old.volume) == verify(new.volume) == ()
    assert [path.name for path in (new.path / "lib64").glob("libcuda.so.5*")] == ["libcuda.so.550.54.14"]


def test_before_a_driver_is_loaded_one_can_be_asked_for(root: Path, store: Store) -> None:
    small_tree(root, "550.54.14", V)
    assert make(store.path, root).volume.version == V
    assert make(store.path, root, "550.54.14").volume.version == "550.54.14"
    with pytest.raises(NotFound, match=r"no library of driver 560\.1 was found; there are those of 535"):
        make(store.path, root, "560.1")


@root_only
@pytest.mark.parametrize("options", [(), ("-o", "nodev,nosuid")], ids=["plain", "nodev"])
def test_on_another_file_system_files_are_copied(
    root: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    with mounted(tmp_path / "other", "-t", "tmpfs", *options, "tmpfs") as path:
        built = make(path, root)
        assert built.how == {"copy": len(built.volume.files)}
        assert verify(built.volume) == ()
        assert not make(path, root).new
        assert stat.S_IMODE((built.path / "bin/nvidia-smi").stat().st_mode) == 0o755
        assert stat.S_IMODE((built.path / f"lib64/libcuda.so.{V}").stat().st_mode) in (0o644, 0o755)


@root_only
def test_volume_shares_blocks_where_the_file_system_can(root: Path, tmp_path: Path) -> None:
    """On XFS, over another mount of it: link(2) refuses, FICLONE does not."""
    if shutil.which("mkfs.xfs") is None:
        pytest.skip("mkfs.xfs is not there (Debian's xfsprogs)")
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        file.truncate(320 << 20)
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", str(disk)], check=True, timeout=60)
    point = tmp_path / "xfs"
    point.mkdir()
    tried = subprocess.run(
        ["mount", "-o", "loop", str(disk), str(point)], capture_output=True, text=True, timeout=30
    )
    if tried.returncode:
        pytest.skip(f"no loop devices: {tried.stderr.strip()}")
    try:
        shutil.copytree(root, point / "root", symlinks=True)
        (point / "store").mkdir()
        with mounted(tmp_path / "elsewhere", "--bind", str(point / "store")) as path:
            built = make(path, point / "root")
            assert built.how == {"reflink": len(built.volume.files)}
            assert verify(built.volume) == ()
    finally:
        subprocess.run(["umount", str(point)], check=True, timeout=60)


BAD = {
    "noexec": (("-o", "noexec"), "mounted noexec: no library there can be loaded"),
    "read-only": (("-o", "ro"), "read-only file system"),
    "full": (("-o", "size=40k"), "has no space left"),
}


@root_only
@pytest.mark.parametrize(("options", "text"), BAD.values(), ids=BAD)
def test_volume_of_a_bad_place_says_why(
    root: Path, tmp_path: Path, options: tuple[str, ...], text: str
) -> None:
    with mounted(tmp_path / "bad", "-t", "tmpfs", *options, "tmpfs") as path:
        with pytest.raises(Unavailable, match=text) as caught:
            make(path, root)
        assert "--store" in caught.value.remedy
        assert Store(path).current(V) is None


@root_only
def test_after_a_full_disk_nothing_is_left_but_the_next_volume(root: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=40k", "tmpfs") as path:
        with pytest.raises(Unavailable):
            make(path, root)
        subprocess.run(["mount", "-o", "remount,size=4m", str(path)], check=True, timeout=60)
        built = make(path, root)
        assert verify(built.volume) == ()
        assert sorted(each.name for each in path.iterdir()) == [".lock", "builds", f"nvidia_{V}"]
        assert [each.name for each in (path / "builds").iterdir()] == [built.path.name]


def test_a_directory_in_the_place_of_the_link_is_not_ours(root: Path, store: Store) -> None:
    store.path_of(V).mkdir(parents=True)
    with pytest.raises(Conflict, match=f"nvidia_{V} is a directory that this program did not make"):
        make(store.path, root)


@pytest.mark.parametrize("count", [2, pytest.param(5, marks=pytest.mark.long)])
def test_builders_at_once_make_one_volume(root: Path, store: Store, count: int) -> None:
    code = (
        "import sys; from pathlib import Path; from volumes.build import make; b = make(Path(sys.argv[1]), "
    )
    code += "Path(sys.argv[2])); print(b.new, b.path)"
    command = [sys.executable, "-c", code, str(store.path), str(root)]
    builders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    said = [builder.communicate(timeout=60)[0].split() for builder in builders]
    assert [builder.returncode for builder in builders] == [0] * count
    assert sorted(new for new, _ in said) == ["False"] * (count - 1) + ["True"]
    assert len({path for _, path in said}) == 1
    assert len(store.volumes()) == 1


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: (path / "bin/nvidia-smi").unlink(), "bin/nvidia-smi is missing"),
    "link gone": (lambda path: (path / "lib64/libcuda.so").unlink(), "lib64/libcuda.so is missing"),
    "added": (lambda path: (path / "lib64/libevil.so").touch(), "lib64/libevil.so was added"),
    "changed": (
        lambda path: _flip(path / f"lib64/libnvidia-ml.so.{V}"),
        f"lib64/libnvidia-ml.so.{V} has changed",
    ),
    "shorter": (lambda path: os.truncate(path / "bin/nvidia-smi", 5), "bin/nvidia-smi has changed"),
    "link elsewhere": (lambda path: _relink(path / "lib64/libcuda.so.1"), "lib64/libcuda.so.1 has changed"),
}


def _flip(path: Path) -> None:
    """Change a byte, with the time of the last change put back."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _relink(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize(("damage", "text"), DAMAGE.values(), ids=DAMAGE)
def test_verify_finds_damage_and_building_anew_mends_it(
    root: Path, store: Store, damage: Callable[[Path], object], text: str
) -> None:
    built = make(store.path, root)
    damage(built.path)
    assert verify(built.volume) == (text,)
    mended = make(store.path, root, anew=True)
    assert store.current(V) == mended.path
    assert verify(mended.volume) == ()


def test_a_record_that_cannot_be_read_is_damage(root: Path, store: Store) -> None:
    built = make(store.path, root)
    record = built.path / "volume.json"
    body = json.loads(record.read_text())
    for text in ("{", "[]", json.dumps({**body, "format": 99}), json.dumps({**body, "files": 7})):
        record.write_text(text)
        with pytest.raises(Damaged, match="cannot be read"):
            store.get(V)
        (listed,) = store.volumes()
        assert (listed.version, listed.current) == (V, True)
        assert verify(listed) == (listed.problem,) != ("",)
    mended = make(store.path, root)
    assert verify(mended.volume) == ()
    assert store.collect(lambda: (), lambda volume: volume.current) != ()
    assert store.volumes() == (mended.volume,)


def never(_volume: Volume) -> bool:
    return False


def build_two(root: Path, store: Store) -> tuple[Built, Built]:
    old = make(store.path, root)
    small_tree(root, "550.54.14")
    return old, make(store.path, root)


def test_volume_without_holder_is_collected_and_held_or_kept_ones_stay(root: Path, store: Store) -> None:
    old, new = build_two(root, store)
    assert store.collect(lambda: {old.path.name}, lambda volume: volume.version == "550.54.14") == ()
    assert [volume.version for volume in store.collect(lambda: (), lambda v: v.path == new.path)] == [V]
    assert store.current(V) is None
    assert not store.path_of(V).is_symlink()
    assert [volume.path for volume in store.volumes()] == [new.path]
    assert len(store.collect(lambda: (), never)) == 1
    assert everything(store.path) == [".lock", "builds"]


def test_a_task_that_takes_it_while_it_is_removed_keeps_it(root: Path, store: Store) -> None:
    """The second look, when nobody can find it any more, decides."""
    old, _ = build_two(root, store)
    answers = [set[str](), {old.path.name}]
    assert store.collect(lambda: answers.pop(0), lambda volume: volume.version != V) == ()
    assert answers == []
    assert verify(old.volume) == ()


def test_volumes_are_not_collected_while_their_holders_are_unknown(root: Path, store: Store) -> None:
    old, new = build_two(root, store)

    def unknown() -> set[str]:
        raise Damaged("the ledger is damaged", remedy="")

    with pytest.raises(Damaged):
        store.collect(unknown, never)
    assert {volume.path for volume in store.volumes()} == {old.path, new.path}


def test_get_names_what_there_is(root: Path, store: Store) -> None:
    with pytest.raises(NotFound, match="there: none"):
        store.get(V)
    make(store.path, root)
    with pytest.raises(NotFound, match=f"no driver volume of 550 in .*; volumes there: {V}"):
        store.get("550")


VERSIONS = {
    "the module's": ({"kernel": V}, {}, V),
    "NVML's": ({"kernel": None}, {"nvml": V}, V),
    "the only one": ({"kernel": None}, {}, V),
    "asked": ({"kernel": "560.1.1"}, {"asked": V}, V),
}


@pytest.mark.parametrize(("tree", "said", "version"), VERSIONS.values(), ids=VERSIONS)
def test_the_drivers_version(
    tmp_path: Path, tree: dict[str, str], said: dict[str, str], version: str
) -> None:
    driver_tree(tmp_path, V, machine="aarch64", beside=False, **tree)  # type: ignore[arg-type]
    assert driver_version(tmp_path, discover(tmp_path), **said) == version


def test_driver_versions_that_disagree_are_refused(tmp_path: Path) -> None:
    driver_tree(tmp_path, V, kernel="550.54.14")
    files = discover(tmp_path)
    assert kernel_version(tmp_path) == "550.54.14"
    with pytest.raises(Conflict, match=rf"the kernel module is of driver 550\.54\.14.*those of {V}"):
        driver_version(tmp_path, files)
    with pytest.raises(Conflict, match=rf"the kernel module is of driver 550\.54\.14, and NVML says {V}"):
        driver_version(tmp_path, files, nvml=V)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(NotFound, match="no NVIDIA driver was found"):
        driver_version(empty, discover(empty))


def test_two_drivers_and_no_module_to_tell(tmp_path: Path) -> None:
    driver_tree(tmp_path, "550.54.14", kernel=None)
    driver_tree(tmp_path, V, kernel=None)
    with pytest.raises(Conflict, match=rf"which of these drivers runs: {V}, 550\.54\.14"):
        driver_version(tmp_path, discover(tmp_path))
