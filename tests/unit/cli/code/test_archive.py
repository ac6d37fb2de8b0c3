"""A directory as an archive: what is in it, that it is the same for the same files, and what is refused."""

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from mesos_gpu.cli.code.archive import BadDirectory, Packed, find, pack

MAX = 1 << 30


def made(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def names(root: Path) -> list[str]:
    return [each.name for each in find(root).entries]


def packed(root: Path) -> tuple[Packed, bytes]:
    file = io.BytesIO()
    done = pack(find(root).entries, file, MAX)
    return done, file.getvalue()


def test_code_archive_of_equal_files_has_equal_bytes(tmp_path: Path) -> None:
    files = {"b/x.py": "x", "a.py": "a", "run.sh": "#!/bin/sh"}
    one, two = made(tmp_path / "one", files), made(tmp_path / "two", dict(reversed(files.items())))
    for root in (one, two):
        (root / "run.sh").chmod(0o744)
    os.utime(two / "a.py", (1, 1))
    (two / "a.py").chmod(0o600)
    assert packed(one) == packed(two)
    (two / "run.sh").chmod(0o644)
    assert packed(one)[0].digest != packed(two)[0].digest, "whether a file may be run counts"


def test_code_archive_leaves_out_ignored_files_by_the_deepest_rule(
    tmp_path: Path,
) -> None:
    root = made(
        tmp_path,
        {
            ".gitignore": "*.log\n/data/\nbuild\n*.pt\n", ".mesosgpuignore": "!best.pt\nnotes.txt\n",
            "train.py": "", "a.log": "", "data/x": "", "sub/data/x": "", "sub/build/y": "", "notes.txt": "",
            "best.pt": "", "other.pt": "", "sub/.gitignore": "!keep.log\n*.tmp\n", "sub/keep.log": "",
            "sub/z.tmp": "", ".git/config": "", "sub/.git/config": "", "z.tmp": "",
        },
    )  # fmt: skip
    assert names(root) == [
        ".gitignore", ".mesosgpuignore", "best.pt", "sub/.gitignore", "sub/data/x", "sub/keep.log", "train.py",
        "z.tmp",
    ]  # fmt: skip


def test_links_within_are_kept_and_those_that_lead_out_are_refused(tmp_path: Path) -> None:
    root = made(tmp_path / "root", {"a/x": "x"})
    (root / "inner").symlink_to("a/x")
    (root / "a" / "up").symlink_to("../a/x")
    with tarfile.open(fileobj=io.BytesIO(packed(root)[1])) as tar:
        assert {each.name: each.linkname for each in tar if each.issym()} == {
            "inner": "a/x",
            "a/up": "../a/x",
        }
    (root / "a" / "out").symlink_to("../../etc")
    (root / "abs").symlink_to("/etc/passwd")
    with pytest.raises(BadDirectory, match=r"a/out \(leads to \.\./\.\./etc\), abs \(leads to /etc/passwd\)"):
        find(root)


def test_code_archive_skips_special_files_and_files_of_the_sandbox(tmp_path: Path) -> None:
    root = made(tmp_path, {"x": "", "stdout": "of yesterday", "sub/stdout": ""})
    os.mkfifo(root / "fifo")
    finds = find(root)
    assert [each.name for each in finds.entries] == ["sub/stdout", "x"]
    assert [name for name, _ in finds.skipped] == ["fifo", "stdout"]


def test_code_archive_without_files_or_above_the_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadDirectory, match="no files"):
        find(tmp_path / "empty")
    root = made(tmp_path / "root", {"x": "x" * 100, "big.bin": os.urandom(40_000).hex()})
    with pytest.raises(BadDirectory, match=r"2 files would exceed 10\.0 KiB; the largest files are big\.bin"):
        pack(find(root).entries, io.BytesIO(), 10 << 10)


def test_code_archive_has_no_owner_time_or_host_name(tmp_path: Path) -> None:
    root = made(tmp_path, {"x": "x", "ü/long" + "n" * 120: "y"})
    data = packed(root)[1]
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert {(each.uid, each.gid, each.uname, each.mtime) for each in tar} == {(0, 0, "", 946_684_800)}
        assert tar.getnames() == ["x", "ü/long" + "n" * 120]
    assert data[3:8] == bytes(5), "gzip's header has neither a name nor a time"
    assert gzip.decompress(data)[:1] == b"x"


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("/", "directory / cannot be uploaded: it is not a directory of program files"),
        ("/dev", "directory /dev cannot be uploaded: it is not a directory of program files"),
        (
            "/proc",
            "directory /proc cannot be uploaded: it is part of /proc, a virtual file system of the kernel",
        ),
        (
            "/proc/self/",
            "directory /proc/self cannot be uploaded: it is part of /proc, a virtual file system of the kernel",
        ),
        (
            "/sys/class",
            "directory /sys/class cannot be uploaded: it is part of /sys, a virtual file system of the kernel",
        ),
    ],
)
def test_code_archive_of_a_system_directory_is_refused_by_its_name(named: str, why: str) -> None:
    with pytest.raises(BadDirectory) as refused:
        find(Path(named))
    assert refused.value.what == why
    assert refused.value.remedy.startswith("choose the directory of your program")


def test_code_archive_of_a_link_to_the_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "all").symlink_to("/")
    with pytest.raises(BadDirectory, match="all cannot be uploaded"):
        find(tmp_path / "all")
