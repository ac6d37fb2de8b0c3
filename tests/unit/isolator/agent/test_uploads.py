"""What an executor sees in an archive of strangers before anything is made of it."""

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from isolator.agent.uploads import look_through
from isolator.host.fetch_bounds import FetchLimits
from isolator.host.not_started import NotStarted


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return info


def archive(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for each in members:
            tar.addfile(each, io.BytesIO(bytes(each.size)))
    return path


def look(path: Path, **limits: Any) -> None:
    with path.open("r+b") as file:
        look_through(file, FetchLimits(**limits))


def test_files_directories_and_links_within_are_taken(tmp_path: Path) -> None:
    links = [member("b/up", tarfile.SYMTYPE, "../a"), member("down", tarfile.SYMTYPE, "b/../a")]
    look(archive(tmp_path / "a", member("a"), member("b", tarfile.DIRTYPE), *links, member("b/stdout")))


@pytest.mark.parametrize(
    ("evil", "said"),
    [
        (member("/etc/passwd"), "not a path below"),
        (member("../x"), "not a path below"),
        (member("a/../../x"), "not a path below"),
        (member("stdout"), "belongs to the agent or the executor"),
        (member("containers/x"), "belongs to the agent or the executor"),
        (member("x", tarfile.SYMTYPE, "/etc"), "leads out"),
        (member("a/x", tarfile.SYMTYPE, "../../etc"), "leads out"),
        (member("x", tarfile.SYMTYPE, ".."), "leads out"),
        (member("x", tarfile.LNKTYPE, "/etc/passwd"), "neither a file, a directory nor a symbolic link"),
        (member("x", tarfile.CHRTYPE), "neither a file, a directory nor a symbolic link"),
        (member("x", tarfile.BLKTYPE), "neither a file, a directory nor a symbolic link"),
        (member("x", tarfile.FIFOTYPE), "neither a file, a directory nor a symbolic link"),
    ],
    ids=lambda value: value.name if isinstance(value, tarfile.TarInfo) else "",
)
def test_upload_with_a_member_that_leads_out_or_is_no_file_is_refused(
    tmp_path: Path, evil: tarfile.TarInfo, said: str
) -> None:
    with pytest.raises(NotStarted, match=said):
        look(archive(tmp_path / "a", member("fine"), evil))


def test_upload_above_its_limits_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "a", *(member(f"x{i}", size=1 << 20) for i in range(8)))
    with pytest.raises(NotStarted, match="more than 4 MiB"):
        look(path, size_bytes=4 << 20)
    with pytest.raises(NotStarted, match="more than 7 files"):
        look(path, files=7)
    with pytest.raises(NotStarted, match="more than 10 times its size"):
        look(path, ratio=10, free_bytes=1 << 10)


def test_upload_of_several_streams_is_read_as_tar_reads_it(tmp_path: Path) -> None:
    """gzip(1) reads all streams of a file as one."""
    whole = gzip.decompress(archive(tmp_path / "a", member("fine"), member("../x")).read_bytes())
    (tmp_path / "b").write_bytes(gzip.compress(whole[:512], mtime=0) + gzip.compress(whole[512:], mtime=0))
    with pytest.raises(NotStarted, match="not a path below"):
        look(tmp_path / "b")


def test_an_archive_with_a_truncated_gzip_header_is_refused(tmp_path: Path) -> None:
    data = bytearray(archive(tmp_path / "a", member("fine")).read_bytes())
    data[3] = 4  # FEXTRA, RFC 1952: a field follows, whose length is what comes first
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(NotStarted, match="cannot be read"):
        look(tmp_path / "a")


_CUT = gzip.compress(b"no tar" * 999, mtime=0)[
    :-9
]  # a time in it would be another test for each process that collects


@pytest.mark.parametrize("data", [b"", b"no gzip", _CUT], ids=["empty", "no gzip", "cut"])
def test_upload_that_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(NotStarted, match="cannot be read"):
        look(tmp_path / "a")
