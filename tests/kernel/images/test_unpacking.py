"""Layers in directories as overlayfs wants them; and layers that want to be elsewhere."""

import contextlib
import gzip
import io
import os
import shutil
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest

from isolator.images import unpacking
from isolator.images.unpacking import TooLarge, Unpacked, unpack
from mesos_gpu.errors import Damaged, MesosGpuError, Unavailable
from tests.kernel.images.made import entry, file, tar

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it gives files to users, and makes whiteouts"),
]
MAX_BYTES = 1 << 24
OPAQUE = "trusted.overlay.opaque"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "outside").write_text("untouched")
    (tmp_path / "layer").mkdir()
    return tmp_path / "layer"


def unpacked(data: bytes, place: Path, most: int = MAX_BYTES) -> Unpacked:
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return unpack(io.BytesIO(data), fd, most)
    finally:
        os.close(fd)


def test_files_have_the_owners_modes_and_times_of_the_layer(place: Path) -> None:
    data = tar(
        entry("./", tarfile.DIRTYPE, mode=0o711, uid=7, gid=8),
        entry("a/", tarfile.DIRTYPE, mode=0o1777, uid=5, gid=6, mtime=100),
        file("a/b/file", b"text", mode=0o640, uid=1000, gid=1001, mtime=200),
        entry("a/link", tarfile.SYMTYPE, linkname="../../../outside", uid=3),
        entry("a/hard", tarfile.LNKTYPE, linkname="./a/b/file"),
        entry("a/fifo", tarfile.FIFOTYPE),
    )
    done = unpacked(data, place)
    assert (stat.S_IMODE(place.stat().st_mode), place.stat().st_uid, place.stat().st_gid) == (0o711, 7, 8)
    above, here = (place / "a").stat(), (place / "a/b/file").stat()
    assert (oct(above.st_mode), above.st_uid, above.st_gid, above.st_mtime) == ("0o41777", 5, 6, 100)
    assert (oct(here.st_mode), here.st_uid, here.st_gid, here.st_mtime) == ("0o100640", 1000, 1001, 200)
    assert (place / "a/b/file").read_text() == "text"
    assert os.readlink(place / "a/link") == "../../../outside"
    assert (place / "a/link").lstat().st_uid == 3
    assert (place / "a/hard").stat().st_ino == here.st_ino
    assert (place / "a/fifo").is_fifo()
    assert done.size == 4 + 7 * unpacking.ENTRY_BYTES  # six entries, and the directory a/b


@pytest.mark.parametrize("how", ["gzip", "zstd"])
def test_compressed_layers_are_unpacked(place: Path, how: str) -> None:
    plain = tar(*(file(f"{number}", os.urandom(50_000)) for number in range(20)))
    if how == "zstd" and shutil.which("zstd") is None:
        pytest.skip("zstd is not installed (Debian: zstd)")
    packed = (
        gzip.compress(plain)
        if how == "gzip"
        else subprocess.run(["zstd", "-cq"], input=plain, capture_output=True, check=True).stdout
    )
    assert unpacked(packed, place).digest == unpacked(plain, place).digest
    assert len(list(place.iterdir())) == 20
    for cut in (packed[:-5], packed[: len(packed) // 2], packed[:-5] + b"wrong"):
        with pytest.raises(Damaged, match="cannot be unpacked"):
            unpacked(cut, place)


def test_zstd_without_its_program_names_the_remedy(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match="no program zstd") as caught:
        unpacked(b"\x28\xb5\x2f\xfd0000", place)
    assert "apt-get install zstd" in caught.value.remedy


class BrokenOff:
    """A stream that fails after its first bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def read(self, size: int = -1) -> bytes:
        if data := self._data.read(min(size, 1000)):
            return data
        raise Unavailable("the registry broke off", remedy="try again later")


@pytest.mark.parametrize("how", ["plain", "gzip", "zstd"])
def test_stream_that_breaks_off_is_not_called_a_damaged_layer(place: Path, how: str) -> None:
    data = tar(file("a", os.urandom(100_000)))
    if how == "zstd" and shutil.which("zstd") is None:
        pytest.skip("zstd is not installed (Debian: zstd)")
    if how != "plain":
        data = subprocess.run([how, "-cq"], input=data, capture_output=True, check=True).stdout
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(Unavailable, match="broke off"):
            unpack(BrokenOff(data[:50_000]), fd, MAX_BYTES)
    finally:
        os.close(fd)


def test_whiteouts_are_those_of_overlayfs(place: Path) -> None:
    unpacked(
        tar(
            file("kept/.wh.gone"),
            file("kept/.wh..wh..opq"),
            file(".wh..wh.aufs"),
            file("both"),
            file(".wh.both"),
            file(".wh.then"),
            file("then", b"new"),
            file(".wh.tree"),
            file("tree/in", b"new"),
            entry("other/", tarfile.DIRTYPE),
            file(".wh.other"),
        ),
        place,
    )
    gone = (place / "kept/gone").lstat()
    assert stat.S_ISCHR(gone.st_mode)
    assert gone.st_rdev == 0
    assert os.getxattr(place / "kept", OPAQUE) == b"y"
    assert (place / "both").read_bytes() == b""
    assert (place / "then").read_bytes() == b"new"
    assert sorted(path.name for path in place.iterdir()) == ["both", "kept", "other", "then", "tree"]
    assert os.getxattr(place / "other", OPAQUE) == b"y"


def test_files_that_give_rights_are_not_unpacked(place: Path) -> None:
    unpacked(
        tar(
            file("su", mode=0o6755),
            entry("dev/card", tarfile.CHRTYPE, devmajor=195, devminor=0),
            entry("dev/disk", tarfile.BLKTYPE, devmajor=8, devminor=0),
            file(
                "capable",
                pax_headers={
                    "SCHILY.xattr.security.capability": "x",
                    "SCHILY.xattr.trusted.overlay.redirect": "/etc",
                },
            ),
        ),
        place,
    )
    assert stat.S_IMODE((place / "su").stat().st_mode) == 0o755
    assert list((place / "dev").iterdir()) == []
    assert os.listxattr(place / "capable") == []


OUT = "../../outside"
ELSEWHERE = {
    "a name that leads up": [file("../outside")],
    "a link to a directory above, and a name in it": [
        entry("a", tarfile.SYMTYPE, linkname=".."), file("a/outside", b"x"),
    ],
    "an absolute link, and a name in it": [entry("a", tarfile.SYMTYPE, linkname="/{above}"), file("a/outside", b"x")],
    "a file over a link to a file": [entry("a", tarfile.SYMTYPE, linkname="../outside"), file("a", b"x")],
    "a hard link to a name above": [entry("a", tarfile.LNKTYPE, linkname="../outside")],
    "a hard link through a link": [
        entry("a", tarfile.SYMTYPE, linkname=".."), entry("b", tarfile.LNKTYPE, linkname="a/outside"), file("b", b"x"),
    ],
    "a whiteout through a link": [entry("a", tarfile.SYMTYPE, linkname=".."), file("a/.wh.outside")],
    "a directory through a link": [
        entry("a", tarfile.SYMTYPE, linkname=".."), entry("a/outside", tarfile.DIRTYPE, mode=0o777),
    ],
}  # fmt: skip


@pytest.mark.parametrize("entries", ELSEWHERE.values(), ids=ELSEWHERE)
def test_names_and_links_do_not_lead_out_of_the_layer(place: Path, entries: list[object]) -> None:
    for each in entries:
        member = each[0] if isinstance(each, tuple) else each
        assert isinstance(member, tarfile.TarInfo)
        member.linkname = member.linkname.replace("{above}", str(place.parent).lstrip("/"))
    with contextlib.suppress(Damaged):
        unpacked(tar(*entries), place)  # type: ignore[arg-type]
    outside = place.parent / "outside"
    assert outside.read_text() == "untouched"
    assert outside.stat().st_nlink == 1
    assert sorted(path.name for path in place.parent.iterdir()) == ["layer", "outside"]


@pytest.mark.parametrize(
    "data",
    [
        b"not a tar file, but long enough to be looked at as one" * 100,
        b"BZh9" + bytes(1000),
        b"\xfd7zXZ" + bytes(1000),
        tar(file("a/.wh.")),
        tar(file("a/.wh..")),
        tar(file(".wh..wh..opq")),
        tar(file("a/" * 300 + "b")),
        tar(file("a" * 300)),
        tar(entry("a", tarfile.LNKTYPE, linkname="not there")),
        tar(entry("a", tarfile.SYMTYPE, linkname="a"), file("a/b")),
        tar(entry("a", tarfile.SYMTYPE, linkname="nowhere"), file("a/b")),
        tar(entry("a", tarfile.DIRTYPE), file("a")),
        tar(file("a"), file("a/b")),
        tar(file("a", pax_headers={"uid": "99999999999"})),
        tar(file("a", pax_headers={"uid": "-3"})),
        tar(file("a", pax_headers={"comment": "x" * (unpacking.MAX_HEADER_BYTES + 1)})),
        tar(
            file(
                "a",
                pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"},
            )
        ),
        tar(file("a", pax_headers={"GNU.sparse.size": "1000000000000"})),
        tar(file("a", pax_headers={"GNU.sparse.map": "0,9", "GNU.sparse.realsize": "9"})),
        tar(file("a", pax_headers={"GNU.sparse.map": "9" * 5000})),
        tar(file("a", pax_headers={"mtime": "nan"})),
        tar(entry("a", tarfile.DIRTYPE, pax_headers={"mtime": "inf"})),
        tar(file("a", pax_headers={"path": "b\0c"})),
        tar(file("a", pax_headers={"path": "b\0c/d"})),
        tar(entry("a", tarfile.SYMTYPE, pax_headers={"linkpath": "b\0c"})),
        tar(file("b"), entry("a", tarfile.LNKTYPE, pax_headers={"linkpath": "b\0c"})),
    ],
    ids=range(26),
)
def test_streams_that_are_no_layers_are_refused(place: Path, data: bytes) -> None:
    with pytest.raises(MesosGpuError, match="cannot be unpacked") as caught:
        unpacked(data, place)
    assert caught.value.remedy == "build and push the image again"


def headers(kind: bytes, *sizes: int) -> bytes:
    """Return a layer of a file with headers of these sizes before it."""
    out = b""
    for size in sizes:
        member = entry("headers", kind)
        member.size = size
        record = f"{size} comment=".encode()
        data = record + b"x" * (size - len(record) - 1) + b"\n"
        out += member.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-size % tarfile.BLOCKSIZE)
    return out + entry("a").tobuf(tarfile.USTAR_FORMAT)


def test_headers_that_tarfile_holds_in_memory_are_bounded(place: Path) -> None:
    sizes = (unpacking.MAX_GLOBAL_BYTES // 2,) * 2
    unpacked(headers(tarfile.XGLTYPE, *sizes), place)
    with pytest.raises(Damaged, match="global headers"):
        unpacked(headers(tarfile.XGLTYPE, *sizes, 100), place)
    unpacked(headers(tarfile.XHDTYPE, *(100,) * unpacking.MAX_CHAINED) * 2, place)
    for number in (unpacking.MAX_CHAINED + 1, 2000):  # 2000: RecursionError
        with pytest.raises(Damaged, match="extended headers"):
            unpacked(headers(tarfile.XHDTYPE, *(100,) * number), place)


def test_times_of_directories_are_kept_whatever_their_entries_order(place: Path) -> None:
    unpacked(
        tar(
            entry("a/", tarfile.DIRTYPE, mtime=100),
            entry("a/b/", tarfile.DIRTYPE, mtime=200),
            file("a/b/file"),
            file("a/b/c/d/deep"),
            file("a/late"),
            file("a/.wh.late"),
            entry("link", tarfile.SYMTYPE, linkname="a/b"),
            file("link/through"),
            entry("a/b/", tarfile.DIRTYPE, mtime=300),
            file("a/last"),
        ),
        place,
    )
    assert ((place / "a").stat().st_mtime, (place / "a/b").stat().st_mtime) == (100, 300)


def test_memory_does_not_grow_with_the_directories_of_a_layer(place: Path) -> None:
    import tracemalloc

    def peak(number: int) -> int:
        data = tar(*(entry("d" * 200 + f"/{'e' * 200}/", tarfile.DIRTYPE) for _ in range(number)))
        tracemalloc.start()
        unpacked(data, place)
        try:
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(1000) < peak(10) + 100_000


def test_bombs_are_refused_at_their_limit(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooLarge):
        unpacked(gzip.compress(tar(file("zeros", bytes(2 << 20)))), place, 1 << 20)
    with pytest.raises(TooLarge):  # many names
        unpacked(tar(*(file(str(number)) for number in range(300))), place, 300 * unpacking.ENTRY_BYTES - 1)
    monkeypatch.setattr(unpacking, "MAX_ENTRIES", 10)
    with pytest.raises(TooLarge):
        unpacked(tar(*(file(str(number)) for number in range(11))), place)


def test_directories_that_no_entry_makes_count(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tar(file("a/b/c/d/e/f/g/h/i/file"))
    assert unpacked(deep, place).size == 10 * unpacking.ENTRY_BYTES
    assert unpacked(deep, place).size == unpacking.ENTRY_BYTES  # all of them are there
    with pytest.raises(TooLarge):
        unpacked(tar(file("1/2/3/4/5/6/7/8/9/file")), place, 10 * unpacking.ENTRY_BYTES - 1)
    monkeypatch.setattr(unpacking, "MAX_ENTRIES", 9)
    with pytest.raises(TooLarge):
        unpacked(tar(file("k/l/m/n/o/p/q/r/s/file")), place)


def test_unpacking_ends_when_it_is_given_up(place: Path) -> None:
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(InterruptedError):
            unpack(io.BytesIO(tar(file("a"))), fd, MAX_BYTES, lambda: True)
    finally:
        os.close(fd)
