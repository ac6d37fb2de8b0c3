"""Whatever lies there: links never lead out of a root, and damaged files are refused, in no other way than one."""

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mesos_gpu.errors import Damaged
from tests.doubles import ld_cache
from tests.doubles.elf_files import shared_object
from tests.doubles.ld_cache import CacheLine
from tests.property.examples import examples
from volumes.elf import read_elf
from volumes.ldcache import parse
from volumes.model import Elf
from volumes.roots import Root

# Asks the kernel: enters a root by chroot(2), opens the paths, and leaves it again, for it is root and has kept a way.
_ASK_THE_KERNEL: Final = """
import json, os, sys
top, fds = os.open("/", os.O_PATH), os.open("/proc/self/fd", os.O_PATH)
def look(path):
    try:
        fd = os.open(path, os.O_PATH)
    except OSError:
        return None
    try:
        return os.readlink(str(fd), dir_fd=fds)
    finally:
        os.close(fd)
for line in sys.stdin:
    root, paths = json.loads(line)
    os.chroot(root); os.chdir("/")
    print(json.dumps([look(path) for path in paths]), flush=True)
    os.fchdir(top); os.chroot(".")
"""


class Kernel:
    """What the kernel says of paths in a root: resolved, or None."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _ASK_THE_KERNEL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def look(self, root: Path, paths: list[str]) -> list[str | None]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(root), paths]) + "\n")
        self._process.stdin.flush()
        answer: list[str | None] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    if os.geteuid() != 0:
        pytest.skip("chroot(2) needs root")
    asked = Kernel()
    yield asked
    asked.close()


# Few names and a tree that has them at every level, so that most paths lead somewhere; links then take their places.
NAMES = st.sampled_from(["a", "b", "f"])
STEPS = st.lists(NAMES | st.sampled_from(["a", "..", "..", ".", ""]), min_size=1, max_size=6)
PATHS = st.builds(lambda start, steps: start + "/".join(steps), st.sampled_from(["", "/"]), STEPS)
PLACES = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
LINKS = st.dictionaries(PLACES, PATHS.filter(bool), max_size=8)


def plant(top: Path, links: Mapping[str, str]) -> None:
    """Directories a and b, each with a file f and with a and b in it; links in place of some of them."""
    for place in ("a/a", "a/b", "b/a", "b/b"):
        top.joinpath(place).mkdir(parents=True)
    for place in ("f", "a/f", "b/f", "a/a/f", "a/b/f", "b/a/f", "b/b/f"):
        top.joinpath(place).write_text(f"/{place}")
    for place, target in sorted(links.items(), reverse=True):  # what is below goes before what is above
        path = top / place
        if path.parent.is_dir():
            if path.is_dir():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
            path.symlink_to(target)


@examples(45, 100)
@given(LINKS, st.lists(PATHS, min_size=1, max_size=20))
@example({"a/b": "../../../../f", "a/f": "/b/f"}, ["/a/b", "a/b/", "/a/b/..", "/a/f", "../../f"])
def test_paths_lead_where_chroot_would_lead_them(
    kernel: Kernel, links: dict[str, str], paths: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        outside = Path(directory)
        for place in ("f", "a/f"):  # so that a way out would lead to something
            outside.joinpath(place).parent.mkdir(exist_ok=True)
            outside.joinpath(place).write_text("outside")
        root = outside / "a/root"
        plant(root, links)
        paths = [*paths, *links]
        fs = Root(root)
        resolved = [fs.resolve(path) for path in paths]
        assert resolved == kernel.look(root, paths)
        for path, real in zip(paths, resolved, strict=True):
            if fs.is_file(path):
                assert fs.read_bytes(path).decode() == real


CACHES = [
    write([CacheLine("liba.so", "/a/liba.so"), CacheLine("libb.so", "/b/libb.so", 0x0003, hwcap="v3")])
    for write in (ld_cache.old, ld_cache.new, ld_cache.compat, lambda lines: ld_cache.new(lines, order=">"))
]
LIBRARIES = [
    shared_object(machine=machine, soname="libx.so.1", needed=["liby.so"], abi=(2, 3, 99), glibc=(2, 17))
    for machine in ("x86_64", "i686", "ppc64le")
]


def real_files() -> tuple[list[bytes], list[bytes]]:
    """This host's cache, and a library with section headers, if it has them."""
    cache, library = Path("/etc/ld.so.cache"), Path("/lib/x86_64-linux-gnu/libdl.so.2")
    return [p.read_bytes() for p in [cache] if p.exists()], [p.read_bytes() for p in [library] if p.exists()]


@st.composite
def spoilt(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """Draw an original with some bytes changed, perhaps cut off; most changes are where the structure is."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, min(len(data), 1000) - 1) | st.integers(0, len(data) - 1))
        value = draw(st.binary(min_size=1, max_size=8) | st.just(b"\xff" * 4) | st.just(bytes(4)))
        data[at : at + len(value)] = value
    return bytes(data[: draw(st.none() | st.integers(0, len(data)))])


@settings(max_examples=100)
@given(spoilt(CACHES + real_files()[0]) | st.binary(max_size=100).map(b"glibc-ld.so.cache1.1".__add__))
def test_a_spoilt_cache_is_read_or_refused(data: bytes) -> None:
    try:
        entries = parse(data)
    except Damaged:
        return
    assert all("\0" not in entry.name + entry.path for entry in entries)


@settings(max_examples=100)
@given(spoilt(LIBRARIES + real_files()[1]) | st.binary(max_size=200).map(b"\x7fELF\x02\x01\x01".__add__))
def test_a_spoilt_library_is_read_or_refused(data: bytes) -> None:
    try:
        elf = read_elf(io.BytesIO(data))
    except Damaged:
        return
    assert elf is None or elf.bits in (32, 64)


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("data", LIBRARIES)
def test_a_library_that_is_cut_off_anywhere_is_refused(data: bytes, stride: int) -> None:
    for length in range(4, len(data), stride):
        with pytest.raises(Damaged):
            read_elf(io.BytesIO(data[:length]))


STRINGS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)
VERSIONS = st.tuples(*[st.integers(0, 255)] * 3)


@settings(max_examples=100)
@given(
    st.sampled_from([("x86_64", 64), ("i686", 32), ("aarch64", 64), ("armv7l", 32), ("ppc64le", 64)]),
    st.none() | STRINGS,
    st.lists(STRINGS, max_size=5),
    st.none() | VERSIONS,
    st.binary(max_size=50),
)
def test_cache_that_was_written_is_read_back(
    machine: tuple[str, int],
    soname: str | None,
    needed: list[str],
    abi: tuple[int, int, int] | None,
    content: bytes,
) -> None:
    data = shared_object(machine=machine[0], soname=soname, needed=needed, abi=abi, content=content)
    assert read_elf(io.BytesIO(data)) == Elf(machine[1], machine[0], soname, tuple(needed), abi)


LINES = st.builds(
    CacheLine,
    STRINGS,
    STRINGS,
    st.sampled_from(sorted(ld_cache.FLAGS.values())),
    st.sampled_from(["", "x86-64-v2", "x86-64-v3", "power9"]),
)


@settings(max_examples=100)
@given(st.lists(LINES, max_size=8), st.sampled_from("<>"), st.booleans())
def test_listing_that_was_written_is_read_back(lines: list[CacheLine], order: str, marked: bool) -> None:
    wanted = [(line.name, line.path, line.flags, line.hwcap) for line in lines]
    for data in (ld_cache.new(lines, order=order, marked=marked), ld_cache.compat(lines)):
        entries = parse(data)
        assert [(e.name, e.path, e.flags, e.hwcap.removeprefix("glibc-hwcaps/")) for e in entries] == wanted
