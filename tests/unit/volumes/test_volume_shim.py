"""The variant of a volume in which our libraries stand before the driver's."""

import os
from pathlib import Path

import pytest

from isolator.shares.shim.volume import covers
from mesos_gpu.errors import NotFound
from tests.doubles.elf_files import driver_tree
from tests.hosts import small_tree
from volumes.build import make
from volumes.model import Plan
from volumes.shim import Shim, with_shim
from volumes.store import Store, verify

V = "535.129.03"
LIBRARIES = "/usr/lib/aarch64-linux-gnu"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    small_tree(tmp_path / "root", V)
    return tmp_path / "root"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "volumes")


@pytest.fixture
def shim(tmp_path: Path) -> Shim:
    for name in ("cuda", "nvml"):
        (tmp_path / name).write_text(f"our {name}")
    return Shim("0123456789abcdef" * 4, str(tmp_path / "cuda"), str(tmp_path / "nvml"))


def test_every_name_of_the_two_libraries_leads_to_ours(root: Path, store: Store, shim: Shim) -> None:
    built = make(store.path, root, shim=shim)
    lib64 = built.path / "lib64"
    names = [path for path in lib64.iterdir() if path.name.startswith(("libcuda.so", "libnvidia-ml.so"))]
    assert {path.name for path in names} >= {
        "libcuda.so",
        "libcuda.so.1",
        f"libcuda.so.{V}",
        f"libnvidia-ml.so.{V}",
    }
    assert {path.read_bytes() for path in names} == {b"our cuda", b"our nvml"}
    assert (lib64 / "libcuda.so.1").is_file()
    assert not (lib64 / "libcuda.so.1").is_symlink(), "its own path says where the share is"
    assert (lib64 / "libmgpu-real-cuda.so").samefile(root / f"usr/lib/aarch64-linux-gnu/libcuda.so.{V}")
    assert (lib64 / "libmgpu-real-ml.so").samefile(root / f"usr/lib/aarch64-linux-gnu/libnvidia-ml.so.{V}")
    assert (lib64 / f"libcudadebugger.so.{V}").is_file(), "another library whose name begins so stays"


def test_shim_volume_has_an_empty_region_and_no_32_bit_libraries(
    tmp_path: Path, store: Store, shim: Shim
) -> None:
    root = tmp_path / "whole"
    driver_tree(root, V, beside=False)
    built = make(store.path, root, shim=shim)
    assert list((built.path / "region").iterdir()) == []
    assert list((built.path / "lib").iterdir()) == []
    assert verify(built.volume) == ()
    (built.path / "share/limits").touch()
    assert verify(built.volume) == ("share/limits was added",)


def test_shim_volume_stands_beside_the_plain_volume(root: Path, store: Store, shim: Shim) -> None:
    plain, ours = make(store.path, root), make(store.path, root, shim=shim)
    key = f"{V}+shim-0123456789ab"
    assert (plain.volume.key, ours.volume.key, ours.volume.version) == (V, key, V)
    assert (store.current(V), store.current(key)) == (plain.path, ours.path)
    assert {volume.key for volume in store.volumes() if volume.current} == {V, key}
    again = make(store.path, root, shim=shim)
    assert (again.new, again.path) == (False, ours.path)
    (ours.path / "volume.json").write_text("{")
    assert [volume.key for volume in store.volumes() if volume.problem] == [key]


def test_other_libraries_of_ours_are_another_variant(root: Path, store: Store, shim: Shim) -> None:
    first = make(store.path, root, shim=shim)
    second = make(store.path, root, shim=Shim("f" * 64, shim.cuda, shim.nvml))
    assert store.current(first.volume.key) == first.path != second.path == store.current(second.volume.key)


def test_a_file_of_ours_that_was_changed_is_built_anew(root: Path, store: Store, shim: Shim) -> None:
    first = make(store.path, root, shim=shim)
    path = Path(shim.cuda)
    path.unlink()
    path.write_text("newer cuda")
    second = make(store.path, root, shim=shim)
    assert second.new
    assert second.path != first.path
    assert (store.path_of(first.volume.key) / "lib64/libcuda.so.1").read_text() == "newer cuda"


def test_a_host_without_libcuda_is_told_so(shim: Shim) -> None:
    with pytest.raises(NotFound, match=r"driver 1\.2 has no 64-bit libcuda\.so\.1"):
        with_shim(Plan("1.2"), shim)


def test_files_of_the_host_that_ours_are_to_cover_are_named(root: Path, store: Store, shim: Shim) -> None:
    built = make(store.path, root, shim=shim)
    assert covers(built.volume) == (
        (built.path / "lib64/libcuda.so.1", f"{LIBRARIES}/libcuda.so.{V}"),
        (built.path / "lib64/libnvidia-ml.so.1", f"{LIBRARIES}/libnvidia-ml.so.{V}"),
    )
    assert all(os.path.exists(root / path.lstrip("/")) for _, path in covers(built.volume))
