"""A libcuda in an image is found where a linker would find it, and never on the host."""

import os
from pathlib import Path

import pytest

from isolator.shares.own_cuda import PLACES, libcuda_of


def put(root: Path, path: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).touch()


@pytest.mark.parametrize("place", PLACES)
def test_each_place_is_looked_at(tmp_path: Path, place: str) -> None:
    put(tmp_path, f"{place}/libcudart.so.12")
    assert libcuda_of(str(tmp_path)) == ""
    put(tmp_path, f"{place}/libcuda.so.550.54.14")
    assert libcuda_of(str(tmp_path)) == f"/{place}/libcuda.so.550.54.14"


def test_stubs_forward_compatibility_and_our_volume_are_none(tmp_path: Path) -> None:
    for path in (
        "usr/local/cuda-12.4/compat/libcuda.so.1",
        "usr/local/cuda-12.4/lib64/stubs/libcuda.so",
        "usr/local/nvidia/lib64/libcuda.so.1",
    ):
        put(tmp_path, path)
    assert libcuda_of(str(tmp_path)) == ""


def test_links_lead_nowhere(tmp_path: Path) -> None:
    """What a link names is the task's; from here it would be the host's."""
    host = tmp_path / "host"
    put(host, "libcuda.so.1")
    root = tmp_path / "root"
    (root / "usr").mkdir(parents=True)
    (root / "usr/lib64").symlink_to(host)
    (root / "lib64").symlink_to("/usr/lib64")
    assert libcuda_of(str(root)) == ""
    put(root, "usr/lib/x")
    os.symlink("/anywhere", root / "usr/lib/libcuda.so.1")
    assert libcuda_of(str(root)) == "/usr/lib/libcuda.so.1", "a link of that name is one"
