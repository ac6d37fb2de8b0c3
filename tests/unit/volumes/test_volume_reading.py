"""Reading a host: its cache as the real ldconfig writes and prints it, its files as readelf and the loader see them."""

import io
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mesos_gpu.errors import Damaged, NotFound
from tests.doubles import ld_cache
from tests.doubles.elf_files import driver_tree, ldconfig, shared_object
from tests.doubles.ld_cache import CacheLine
from volumes.elf import read_elf
from volumes.ldcache import CacheEntry, parse
from volumes.model import Elf
from volumes.roots import Root

HOST_MACHINE = os.uname().machine
LDCONFIG = shutil.which("ldconfig", path="/usr/sbin:/sbin") or ""
needs_ldconfig = pytest.mark.skipif(not LDCONFIG, reason="there is no ldconfig (libc-bin)")
needs_readelf = pytest.mark.skipif(not shutil.which("readelf"), reason="there is no readelf (binutils)")
x86_64_only = pytest.mark.skipif(HOST_MACHINE != "x86_64", reason=f"the host is {HOST_MACHINE}, not x86_64")

LINES = (
    CacheLine("libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"),
    CacheLine("libcuda.so.1", "/usr/lib/i386-linux-gnu/libcuda.so.1", 0x0003),
    CacheLine("libm.so.6", "/usr/lib/glibc-hwcaps/x86-64-v3/libm.so.6", hwcap="x86-64-v3"),
    CacheLine("libm.so.6", "/usr/lib/glibc-hwcaps/x86-64-v2/libm.so.6", hwcap="x86-64-v2"),
    CacheLine(
        "libnvidia-tls.so.1", "/usr/lib/tls/libnvidia-tls.so.1", hwcap_bits=1 << 63, os_version=0x020363
    ),
    CacheLine("libssl.so.1", "/usr/lib/i686/sse2/libssl.so.1", 0x0003, hwcap_bits=0x4000000),
)
ENTRIES = (
    CacheEntry("libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1", 0x0303),
    CacheEntry("libcuda.so.1", "/usr/lib/i386-linux-gnu/libcuda.so.1", 0x0003),
    CacheEntry("libm.so.6", "/usr/lib/glibc-hwcaps/x86-64-v3/libm.so.6", 0x0303, "glibc-hwcaps/x86-64-v3"),
    CacheEntry("libm.so.6", "/usr/lib/glibc-hwcaps/x86-64-v2/libm.so.6", 0x0303, "glibc-hwcaps/x86-64-v2"),
    CacheEntry("libnvidia-tls.so.1", "/usr/lib/tls/libnvidia-tls.so.1", 0x0303, "tls", (2, 3, 99)),
    CacheEntry("libssl.so.1", "/usr/lib/i686/sse2/libssl.so.1", 0x0003, "0x4000000"),
)


def printed(root: str = "/") -> list[tuple[str, str, str]]:
    """Name, kind and path of each library, as ldconfig prints them."""
    told = subprocess.run(
        [LDCONFIG, "-r", root, "-p"], capture_output=True, text=True, timeout=30, check=True
    )
    return re.findall(r"^\t(\S+) \(([^ )]+?)(?:, [^)]*)?\) => (.*)$", told.stdout, re.MULTILINE)


def shown(data: bytes) -> list[tuple[str, str, str]]:
    return [(entry.name, entry.abi, entry.path) for entry in parse(data)]


@needs_ldconfig
def test_the_cache_of_this_host_is_what_ldconfig_prints() -> None:
    cache = Path("/etc/ld.so.cache")
    if not cache.exists():
        pytest.skip("there is no /etc/ld.so.cache")
    assert len(shown(cache.read_bytes())) > 10
    assert shown(cache.read_bytes()) == printed()


@needs_ldconfig
@x86_64_only
@pytest.mark.parametrize("form", ["old", "new", "compat"])
def test_every_format_that_ldconfig_writes(tmp_path: Path, form: str) -> None:
    directory = tmp_path / "usr/lib"
    directory.mkdir(parents=True)
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (directory / name).write_bytes(shared_object(soname=name))
    small = shared_object(machine="i686", soname="libsmall.so.1", needed=["libc.so.6"])
    (directory / "libsmall.so.1").write_bytes(small)
    (directory / "libless.so.1").write_bytes(shared_object(machine="i686", soname="libless.so.1"))
    ldconfig(tmp_path, "-c", form)
    data = (tmp_path / "etc/ld.so.cache").read_bytes()
    assert data.startswith(b"glibc-ld.so.cache1.1" if form == "new" else b"ld.so-1.7.0")
    assert {(entry.name, entry.bits) for entry in parse(data)} == {
        ("libcuda.so.1", 64),
        ("libnvidia-ml.so.1", 64),
        ("libsmall.so.1", 32),
        ("libless.so.1", 32),
    }
    assert shown(data) == printed(str(tmp_path))
    assert ("libless.so.1", "ELF", "/usr/lib/libless.so.1") in shown(
        data
    )  # it does not say whose libc it needs


# Not "old": glibc 2.36 writes nonsense into it if there are libraries for some processors only, and prints it as such.
@needs_ldconfig
@x86_64_only
@pytest.mark.parametrize("form", ["new", "compat"])
def test_libraries_for_some_processors_as_ldconfig_writes_them(tmp_path: Path, form: str) -> None:
    for below in ("", "glibc-hwcaps/x86-64-v2", "glibc-hwcaps/x86-64-v3"):
        directory = tmp_path / "usr/lib" / below
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "libm.so.6").write_bytes(shared_object(soname="libm.so.6"))
    ldconfig(tmp_path, "-c", form)
    entries = parse((tmp_path / "etc/ld.so.cache").read_bytes())
    assert {entry.hwcap: entry.path for entry in entries} == {
        "": "/usr/lib/libm.so.6",
        "glibc-hwcaps/x86-64-v2": "/usr/lib/glibc-hwcaps/x86-64-v2/libm.so.6",
        "glibc-hwcaps/x86-64-v3": "/usr/lib/glibc-hwcaps/x86-64-v3/libm.so.6",
    }


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("marked", [True, False])
def test_both_byte_orders_marked_and_as_before_glibc_2_33(order: str, marked: bool) -> None:
    assert parse(ld_cache.new(LINES, order=order, marked=marked)) == ENTRIES


def test_the_old_format_knows_neither_processors_nor_kernels_and_the_new_behind_it_does() -> None:
    assert parse(ld_cache.compat(LINES)) == ENTRIES
    assert parse(ld_cache.old(LINES)) == tuple(CacheEntry(e.name, e.path, e.flags) for e in ENTRIES)
    assert parse(ld_cache.old([])) == parse(ld_cache.new([])) == parse(ld_cache.compat([])) == ()


@needs_ldconfig
@x86_64_only
@pytest.mark.parametrize("write", [ld_cache.old, ld_cache.new, ld_cache.compat])
def test_ldconfig_reads_what_our_writer_writes(
    tmp_path: Path, write: Callable[[Sequence[CacheLine]], bytes]
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.cache").write_bytes(write(LINES))
    assert printed(str(tmp_path)) == shown(write(LINES))


def test_kinds_of_libraries() -> None:
    kinds = {machine: CacheEntry("", "", flags) for machine, flags in ld_cache.FLAGS.items()}
    assert {machine: (kind.abi, kind.bits) for machine, kind in kinds.items()} == {
        "x86_64": ("libc6,x86-64", 64),
        "i686": ("libc6", 32),
        "aarch64": ("libc6,AArch64", 64),
        "armv7l": ("libc6,hard-float", 32),
        "ppc64le": ("libc6,64bit", 64),
    }
    assert CacheEntry("", "", 0x7F01).abi == "ELF,unknown"
    assert CacheEntry("", "", 0x7F01).bits == 0


def test_the_level_of_a_processor_does_not_hide_its_name() -> None:
    plain, level_3 = CacheLine("a", "/a", hwcap="x86-64-v2"), 1 << 62 | 3 << 32
    _, entry = parse(ld_cache.new([plain, CacheLine("b", "/b", hwcap_bits=level_3)]))
    assert entry.hwcap == "glibc-hwcaps/x86-64-v2"


NEW = ld_cache.new(LINES)  # its last 8 bytes are two names, before them is the table of one section


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "neither"),
        (b"\x7fELF", "neither"),
        (b"ld.so-1.7.0", "cut off"),
        (b"glibc-ld.so.cache1.1", "cut off"),
        (ld_cache.new(LINES)[:200], "cut off"),
        (ld_cache.new(LINES)[:-1], "cut off|extends beyond"),
        (ld_cache.old(LINES)[:-1], "outside"),
        (b"ld.so-1.7.0\0" + b"\xff" * 4, "more entries"),
        (ld_cache.new(LINES).replace(b"\x74\x21\xa4\xea", b"\0\0\0\0"), "extension"),
        (ld_cache.new([CacheLine("a", "/a", hwcap_bits=1 << 62)]), "processors"),
        (ld_cache.new([CacheLine("a" * 5000, "/a")]), "longer"),
        (NEW[:-12] + b"\0\1\0\0" + NEW[-8:], "extends beyond the end of the file"),
        (NEW[:-28] + b"\xff" * 4 + NEW[-24:], "more sections"),
        (ld_cache.new([])[:28] + b"\1" + bytes(19), "byte order"),
    ],
)
def test_a_damaged_cache_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(Damaged, match=why) as raised:
        parse(data)
    assert "ldconfig" in raised.value.remedy


# --- ELF


@pytest.mark.parametrize("machine", ["x86_64", "i686", "aarch64", "armv7l", "ppc64le"])
@needs_readelf
def test_a_made_library_is_right_for_readelf(tmp_path: Path, machine: str) -> None:
    path = tmp_path / "libx.so"
    data = shared_object(
        machine=machine, soname="libx.so.1", needed=["liby.so"], abi=(2, 3, 99), glibc=(2, 17)
    )
    path.write_bytes(data)
    told = subprocess.run(
        ["readelf", "-hldVnW", path], capture_output=True, text=True, timeout=30, check=True
    )
    assert not told.stderr
    assert "Library soname: [libx.so.1]" in told.stdout
    assert re.findall(r"Shared library: \[(.*)\]", told.stdout) == ["liby.so", "libc.so.6"]
    assert "OS: Linux, ABI: 2.3.99" in told.stdout
    bits = 32 if machine in ("i686", "armv7l") else 64
    expected = Elf(bits, machine, "libx.so.1", ("liby.so", "libc.so.6"), (2, 3, 99), (2, 17))
    assert read_elf(io.BytesIO(data)) == expected


@x86_64_only
def test_the_real_loader_opens_a_made_library(tmp_path: Path) -> None:
    (tmp_path / "liby.so").write_bytes(shared_object(soname="liby.so", abi=(2, 3, 99)))
    (tmp_path / "libx.so").write_bytes(shared_object(needed=["liby.so"], glibc=(2, 17), content=bytes(9999)))
    opened = "import ctypes; ctypes.CDLL('libx.so'); print(open('/proc/self/maps').read())"
    told = subprocess.run(
        [sys.executable, "-c", opened],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert told.returncode == 0, told.stderr
    assert f"{tmp_path}/libx.so" in told.stdout
    assert f"{tmp_path}/liby.so" in told.stdout


def real_libraries() -> list[Path]:
    """A few of this host, by their links' ends, the largest first."""
    cache = Path("/etc/ld.so.cache")
    entries = parse(cache.read_bytes()) if cache.exists() else ()
    paths = {Path(entry.path).resolve() for entry in entries}
    return sorted((path for path in paths if path.is_file()), key=lambda path: -path.stat().st_size)[:12]


@needs_readelf
@pytest.mark.parametrize("count", [1, pytest.param(12, marks=pytest.mark.long)])
def test_real_libraries_as_readelf_sees_them(count: int) -> None:
    for path in (*real_libraries()[-count:], Path(sys.executable).resolve()):
        told = subprocess.run(["readelf", "-dVnW", path], capture_output=True, text=True, timeout=60).stdout
        with path.open("rb") as file:
            elf = read_elf(file)
        assert elf is not None
        assert list(elf.needed) == re.findall(r"\(NEEDED\).*\[(.*)\]", told), path
        assert [elf.soname or ""] == (re.findall(r"\(SONAME\).*\[(.*)\]", told) or [""]), path
        needs = re.findall(r"Name: GLIBC_([\d.]+) ", told)
        assert elf.glibc == max((tuple(map(int, one.split("."))) for one in needs), default=()), path
        tags = re.findall(r"OS: Linux, ABI: ([\d.]+)", told)
        assert elf.abi == (tuple(map(int, tags[0].split("."))) if tags else None), path


def test_a_library_stripped_of_its_section_headers_says_the_same() -> None:
    for path in real_libraries()[-3:]:
        data = bytearray(path.read_bytes())
        whole = read_elf(io.BytesIO(data))
        assert whole is not None
        assert whole.bits == 64
        data[40:48], data[58:64] = bytes(8), bytes(6)  # e_shoff; e_shentsize, e_shnum, e_shstrndx
        assert read_elf(io.BytesIO(data)) == whole


class Counting(io.BytesIO):
    read_bytes = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.read_bytes += len(data)
        return data


def test_elf_reader_reads_little_of_a_large_library() -> None:
    file = Counting(shared_object(soname="libbig.so", glibc=(2, 17), content=bytes(50 << 20)))
    elf = read_elf(file)
    assert elf is not None
    assert elf.soname == "libbig.so"
    assert file.read_bytes < 64 << 10


@pytest.mark.parametrize("data", [b"", b"\x7fEL", b"INPUT(libcuda.so.1)\n", b"#!/bin/sh\n"])
def test_elf_reader_ignores_other_files(data: bytes) -> None:
    assert read_elf(io.BytesIO(data)) is None


WHOLE = shared_object(soname="libx.so.1", abi=(2, 3, 99), glibc=(2, 17), content=bytes(100))


def with_tag(tag: int, value: int) -> bytes:
    """The whole library, with another value of one tag of its dynamic segment."""
    (there,) = struct.unpack_from("<Q", WHOLE, 64 + 56 + 8)  # p_offset of the second segment, the dynamic one
    at = WHOLE.index(struct.pack("<Q", tag), there) + 8
    return WHOLE[:at] + struct.pack("<Q", value) + WHOLE[at + 8 :]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (WHOLE[:4], "EI_CLASS"),
        (WHOLE[:64], "cut off"),
        (WHOLE[:-1], "cut off"),
        (WHOLE[:4] + b"\7" + WHOLE[5:], "EI_CLASS"),
        (WHOLE[: 64 + 32] + struct.pack("<Q", len(WHOLE) + 1) + WHOLE[64 + 40 :], "cut off"),
        (with_tag(14, 1 << 40), "outside of its strings"),
        (with_tag(5, 1 << 60), "address 0x1000000000000000"),
        (with_tag(0x6FFFFFFE, 1 << 60), "address 0x1000000000000000"),
        (with_tag(10, 2), "outside of its strings"),
    ],
)
def test_a_damaged_library_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(Damaged, match=why):
        read_elf(io.BytesIO(data))


def test_only_a_note_of_linux_tells_a_kernel() -> None:
    hurd = WHOLE.replace(struct.pack("<4I", 0, 2, 3, 99), struct.pack("<4I", 1, 2, 3, 99))
    elf = read_elf(io.BytesIO(hurd))
    assert elf is not None
    assert elf.abi is None


# --- Roots


def test_links_stay_inside(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "usr/lib").mkdir(parents=True)
    (root / "usr/lib/libcuda.so.1").write_bytes(b"inside")
    (tmp_path / "libcuda.so.1").write_bytes(b"outside")
    (root / "lib").symlink_to("usr/lib")
    (root / "absolute").symlink_to("/usr/lib/libcuda.so.1")
    (root / "usr/deep").symlink_to("/usr/lib/libcuda.so.1")
    (root / "climbing").symlink_to("../../../../../lib/libcuda.so.1")
    (root / "beside").symlink_to("../libcuda.so.1")
    (root / "circle").symlink_to("circle")
    fs = Root(root)
    for path in ("/lib/libcuda.so.1", "/absolute", "/usr/deep", "/climbing", "../../usr/./lib//libcuda.so.1"):
        assert fs.resolve(path) == "/usr/lib/libcuda.so.1"
        assert fs.read_bytes(path) == b"inside"
    for path in ("/beside", "/circle", "/absolute/", "/absolute/..", "", "/none", "/a\0b", "/" + "a" * 5000):
        assert fs.resolve(path) is None
        assert not fs.is_file(path)
        with pytest.raises(FileNotFoundError):
            fs.open(path)
    assert fs.outside("/usr/lib/libcuda.so.1") == root / "usr/lib/libcuda.so.1"
    assert fs.listdir("/..") == ["absolute", "beside", "circle", "climbing", "lib", "usr"]
    assert fs.listdir("/lib/") == ["libcuda.so.1"]
    assert fs.listdir("/none") == fs.listdir("/lib/libcuda.so.1") == []
    with pytest.raises(NotFound, match="no directory"):
        Root(tmp_path / "libcuda.so.1")


def test_forty_links_are_followed_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"")
    for number in range(1, 42):
        (tmp_path / str(number)).symlink_to(str(number - 1))
    assert Root(tmp_path).resolve("/40") == "/0"
    assert Root(tmp_path).resolve("/41") is None
    (tmp_path / "40").stat()  # Linux does the same
    with pytest.raises(OSError, match="Too many levels"):
        (tmp_path / "41").stat()


def test_a_link_put_there_after_the_look_leads_nowhere(tmp_path: Path) -> None:
    class Late(Root):
        """A root that looked before."""

        def resolve(self, path: str) -> str | None:
            return path

    (tmp_path / "root").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "root/lib").symlink_to("..")
    (tmp_path / "root/secret").symlink_to("../secret")
    fs = Late(tmp_path / "root")
    for path in ("/lib/secret", "/secret"):
        with pytest.raises(OSError, match=r"Not a directory|not a regular file"):
            fs.open(path)
    assert fs.listdir("/lib") == []


def test_pipes_devices_and_directories_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    fs = Root(tmp_path)
    for path in ("/pipe", "/directory", "/"):
        assert not fs.is_file(path)
        with pytest.raises(OSError, match="not a regular file"):
            fs.open(path)


# --- The made host


@needs_ldconfig
@x86_64_only
def test_a_made_host_is_one_that_ldconfig_knows(tmp_path: Path) -> None:
    driver_tree(tmp_path)
    names = {(name, kind) for name, kind, _ in printed(str(tmp_path))}
    assert {("libcuda.so.1", "libc6,x86-64"), ("libcuda.so.1", "libc6"), ("libcuda.so", "libc6")} <= names
    fs = Root(tmp_path)
    for entry in parse(fs.read_bytes("/etc/ld.so.cache")):
        with fs.open(entry.path) as file:
            elf = read_elf(file)
        assert elf is not None, entry
        assert elf.bits == entry.bits
    assert b"535.129.03" in fs.read_bytes("/proc/driver/nvidia/version")
    assert "nvidia-smi" in fs.listdir("/usr/bin")


@needs_ldconfig
@x86_64_only
def test_a_second_driver_comes_into_the_made_host_as_an_upgrade(tmp_path: Path) -> None:
    driver_tree(tmp_path, "535.129.03")
    library = tmp_path / "usr/lib/x86_64-linux-gnu"
    os.link(library / "libcuda.so.535.129.03", tmp_path / "kept")
    driver_tree(tmp_path, "550.54.14")
    assert (library / "libcuda.so.1").readlink() == Path("libcuda.so.550.54.14")
    assert (library / "libcuda.so.535.129.03").samefile(tmp_path / "kept")
    assert (tmp_path / "sys/module/nvidia/version").read_text() == "550.54.14\n"


@pytest.mark.parametrize("machine", ["aarch64", "ppc64le"])
def test_a_made_host_of_another_machine(tmp_path: Path, machine: str) -> None:
    driver_tree(tmp_path, machine=machine, kernel=None)
    fs = Root(tmp_path)
    entries = parse(fs.read_bytes("/etc/ld.so.cache"))
    assert {entry.bits for entry in entries} == {64}
    for entry in entries:
        with fs.open(entry.path) as file:
            elf = read_elf(file)
        assert elf is not None
        assert elf.machine == machine
    assert fs.resolve("/proc/driver") is None
