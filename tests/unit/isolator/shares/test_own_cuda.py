"""A libcuda in an image is found where a linker would find it, and never on the host."""

import contextlib
import itertools
import os
import resource
import subprocess
import time
from pathlib import Path

import pytest

from isolator.host.not_started import NotStarted
from isolator.shares.own_cuda import LOOK_S, MAX_PATHS, PLACES, libcuda_of, search_path


def put(root: Path, path: str, content: bytes = b"") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(content)


@pytest.mark.parametrize("place", PLACES)
def test_libcuda_is_looked_for_in_each_place(tmp_path: Path, place: str) -> None:
    put(tmp_path, f"{place}/libcudart.so.12")
    assert libcuda_of(str(tmp_path)) == ""
    put(tmp_path, f"{place}/libcuda.so.550.54.14")
    assert libcuda_of(str(tmp_path)) == f"/{place}/libcuda.so.550.54.14"


def test_libcuda_for_newer_processors_comes_first(tmp_path: Path) -> None:
    put(tmp_path, "usr/lib64/glibc-hwcaps/x86-64-v3/libcuda.so.1")
    assert libcuda_of(str(tmp_path)) == "/usr/lib64/glibc-hwcaps/x86-64-v3/libcuda.so.1"


def test_stubs_forward_compatibility_and_our_volume_are_none(tmp_path: Path) -> None:
    for path in (
        "usr/local/cuda-12.4/compat/libcuda.so.1",
        "usr/local/cuda-12.4/lib64/stubs/libcuda.so",
        "usr/local/nvidia/lib64/libcuda.so.1",
    ):
        put(tmp_path, path)
    put(tmp_path, "etc/ld.so.conf", b"/usr/local/nvidia/lib64\n")
    put(tmp_path, "etc/ld.so.cache", b"glibc-ld.so.cache1.1\0\0/usr/local/nvidia/lib64/libcuda.so.1\0")
    (tmp_path / "opt").symlink_to("usr/local/nvidia/lib64")
    assert libcuda_of(str(tmp_path), ("/usr/local/nvidia/lib64", "/opt")) == ""


def test_directories_of_the_linkers_configuration_count(tmp_path: Path) -> None:
    put(tmp_path, "etc/ld.so.conf", b"# more\ninclude ld.so.conf.d/*.conf\n")
    put(tmp_path, "etc/ld.so.conf.d/000_own.conf", b"/opt/own/lib # mine\n")
    put(tmp_path, "etc/ld.so.conf.d/README", b"/opt/other\n")
    put(tmp_path, "opt/other/libcuda.so.1")
    assert libcuda_of(str(tmp_path)) == ""
    put(tmp_path, "opt/own/lib/libcuda.so.1")
    assert libcuda_of(str(tmp_path)) == "/opt/own/lib/libcuda.so.1"


def test_a_configuration_that_includes_itself_ends(tmp_path: Path) -> None:
    put(tmp_path, "etc/ld.so.conf", b"include /etc/ld.so.conf\n" * 3)
    assert libcuda_of(str(tmp_path)) == ""


def test_libcuda_of_the_linkers_cache_counts_if_it_exists(tmp_path: Path) -> None:
    put(tmp_path, "etc/ld.so.cache", b"glibc-ld.so.cache1.1\0libcuda.so.1\0/srv/x/libcuda.so.1\0libm\0")
    assert libcuda_of(str(tmp_path)) == ""
    put(tmp_path, "srv/x/libcuda.so.1")
    assert libcuda_of(str(tmp_path)) == "/srv/x/libcuda.so.1"


@pytest.mark.parametrize("strings", [b"/" * (1 << 20), b"/libcuda.so/" * 4000, b"\0/a/libcuda.so.1" * 4000])
def test_linkers_cache_that_is_none_takes_no_time(tmp_path: Path, strings: bytes) -> None:
    put(tmp_path, "etc/ld.so.cache", strings)
    began = time.process_time()
    with contextlib.suppress(NotStarted):
        assert libcuda_of(str(tmp_path)) == ""
    assert time.process_time() - began < LOOK_S
    put(tmp_path, "opt/own/libcuda.so.1")
    put(tmp_path, "etc/ld.so.cache", strings[:999] + b"\0/opt/own/libcuda.so.1\0")
    assert libcuda_of(str(tmp_path)) == "/opt/own/libcuda.so.1"


def test_directories_of_ld_library_path_count(tmp_path: Path) -> None:
    put(tmp_path, "opt/conda/lib/libcuda.so")
    assert libcuda_of(str(tmp_path)) == ""
    assert libcuda_of(str(tmp_path), ("", "/opt/conda/lib/")) == "/opt/conda/lib/libcuda.so"


def test_the_search_path_is_that_of_the_process() -> None:
    with subprocess.Popen(
        ["sleep", "60"], env={"LD_LIBRARY_PATH": "/a:/b;/c", "PATH": os.environ["PATH"]}
    ) as one:
        deadline = time.monotonic() + 30
        while search_path(one.pid) != ("/a", "/b", "/c"):
            assert time.monotonic() < deadline  # before execve(2) it has this one's
            time.sleep(0.01)
        one.kill()


def test_links_lead_where_they_lead_in_the_image_and_never_to_the_host(tmp_path: Path) -> None:
    host, root = tmp_path / "host", tmp_path / "root"
    put(host, "libcuda.so.1")
    (root / "usr").mkdir(parents=True)
    (root / "usr/lib64").symlink_to(host)
    (root / "lib64").symlink_to("/usr/lib64")
    (root / "lib").symlink_to("../../../../.." + str(host))
    assert libcuda_of(str(root)) == ""
    put(root, str(host).lstrip("/") + "/libcuda.so.7")
    assert libcuda_of(str(root)) == "/lib/libcuda.so.7", "of the image's own directory of that name"


def test_libcuda_may_be_a_link(tmp_path: Path) -> None:
    put(tmp_path, "usr/lib/x")
    os.symlink("/anywhere", tmp_path / "usr/lib/libcuda.so.1")
    assert libcuda_of(str(tmp_path)) == "/usr/lib/libcuda.so.1"


def test_links_that_lead_in_a_circle_and_files_that_are_none_harm_nobody(tmp_path: Path) -> None:
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr/lib").symlink_to("../usr/lib")
    (tmp_path / "etc").mkdir()
    os.mkfifo(tmp_path / "etc/ld.so.conf")
    (tmp_path / "etc/ld.so.cache").mkdir()
    (tmp_path / "lib64").touch()
    assert libcuda_of(str(tmp_path)) == ""


def test_an_image_that_cannot_be_looked_through_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "etc/ld.so.conf", "".join(f"/d{n}\n" for n in range(MAX_PATHS)).encode())
    with pytest.raises(NotStarted, match=f"more than {MAX_PATHS} paths"):
        libcuda_of(str(tmp_path))
    ticks = itertools.count(0.0, LOOK_S / 2)
    with pytest.raises(NotStarted, match="takes more than 10 s"):
        libcuda_of(str(tmp_path), clock=lambda: next(ticks))


def test_directories_that_lie_deeper_than_descriptors_reach_are_not_taken_for_none(tmp_path: Path) -> None:
    where, most = "d/" * 200, resource.getrlimit(resource.RLIMIT_NOFILE)
    put(tmp_path, f"{where}libcuda.so.1")
    assert libcuda_of(str(tmp_path), (where,)) == f"/{where}libcuda.so.1"
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 100, most[1]))
    try:
        with pytest.raises(NotStarted, match="too deep"):
            libcuda_of(str(tmp_path), (where,))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)


def test_libcuda_search_leaves_no_descriptor_open(tmp_path: Path) -> None:
    put(tmp_path, "usr/lib64/libcuda.so.1")
    before = len(os.listdir("/proc/self/fd"))
    libcuda_of(str(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before
