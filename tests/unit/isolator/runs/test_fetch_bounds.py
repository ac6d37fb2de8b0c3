"""What is fetched is bounded: by bytes, files, depth and ratio, while it comes and once it is there."""

import io
import json
import os
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from isolator.host.fetch_bounds import LIMIT, FetchLimits, TooMuch, Watched, measure
from isolator.host.not_started import NotStarted
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.libmesos import fetcher

SMALL = FetchLimits(size_bytes=4 << 20, files=50, ratio=10, free_bytes=1 << 20)


def fetch(sandbox: Path, source: Path, limits: FetchLimits) -> tuple[int, list[str]]:
    """Fetch as the executor does, by the real program; its exit code, and what was called to stop it."""
    item = {"uri": {"value": str(source)}, "action": "BYPASS_CACHE"}
    info = json.dumps({"sandbox_directory": str(sandbox), "items": [item]})
    code = f"from {fetcher.__name__} import main; raise SystemExit(main())"
    process: list[subprocess.Popen[bytes]] = []
    stopped: list[str] = []

    def stop() -> None:
        stopped.append("stopped")
        process[0].kill()

    process.append(
        subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, fetcher.INFO: info}, stderr=subprocess.DEVNULL
        )
    )
    try:
        with Watched(str(sandbox), limits, stop, look_s=0.01):
            return process[0].wait(), stopped
    finally:
        process[0].kill()
        process[0].wait()


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    path = tmp_path / "sandbox"
    path.mkdir()
    return path


def packed(path: Path, *files: tuple[str, bytes]) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files:
                archive.writestr(name, data)
        return path
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o6755
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize("name", ["bomb.zip", "bomb.tgz"])
def test_an_archive_that_grows_is_the_end_of_its_task_only(tmp_path: Path, sandbox: Path, name: str) -> None:
    bomb = packed(tmp_path / name, ("zeros", bytes(32 << 20)))
    with pytest.raises(NotStarted, match=r"expands to more than 10 times its size|more than 4 MiB") as said:
        fetch(sandbox, bomb, SMALL)
    assert not said.value.outcome.infrastructure


def test_fetch_without_end_is_stopped(sandbox: Path) -> None:
    with pytest.raises(NotStarted, match="more than 4 MiB"):
        fetch(sandbox, Path("/dev/zero"), SMALL)
    assert (sandbox / "zero").stat().st_size > 4 << 20


@pytest.mark.parametrize("name", ["many.zip", "many.tgz"])
def test_fetch_of_too_many_files_is_stopped(tmp_path: Path, sandbox: Path, name: str) -> None:
    many = packed(tmp_path / name, *((f"f{n}", b"") for n in range(60)))
    with pytest.raises(NotStarted, match="more than 50 files"):
        fetch(sandbox, many, SMALL)


@pytest.mark.parametrize("name", ["deep.zip", "deep.tgz"])
def test_archive_of_deep_directories_is_stopped(tmp_path: Path, sandbox: Path, name: str) -> None:
    deep = packed(tmp_path / name, ("d/" * 100 + "f", b"x"))
    with pytest.raises(NotStarted, match="directories 64 deep"):
        fetch(sandbox, deep, FetchLimits())


@pytest.mark.parametrize("name", ["good.zip", "good.tgz"])
def test_archive_of_usual_size_is_extracted(tmp_path: Path, sandbox: Path, name: str) -> None:
    good = packed(tmp_path / name, ("bin/run", b"#!/bin/sh\n"), ("data", bytes(100_000)))
    assert fetch(sandbox, good, SMALL) == (0, [])
    assert (sandbox / "data").read_bytes() == bytes(100_000)
    assert not (sandbox / "bin" / "run").stat().st_mode & (stat.S_ISUID | stat.S_ISGID)


@pytest.mark.parametrize("name", ["out.zip", "out.tgz"])
@pytest.mark.parametrize("path", ["../escaped", "/{above}/escaped"])
def test_archive_is_extracted_below_the_sandbox_only(
    tmp_path: Path, sandbox: Path, name: str, path: str
) -> None:
    archive = packed(tmp_path / name, (path.format(above=str(tmp_path).strip("/")), b"x"))
    fetch(sandbox, archive, SMALL)
    assert not (tmp_path / "escaped").exists()


def test_a_link_out_of_an_archive_is_not_followed(tmp_path: Path, sandbox: Path) -> None:
    (tmp_path / "theirs").mkdir()
    archive = tmp_path / "link.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        link = tarfile.TarInfo("way")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "theirs")
        tar.addfile(link)
        through = tarfile.TarInfo("way/escaped")
        through.size = 1
        tar.addfile(through, io.BytesIO(b"x"))
    fetch(sandbox, archive, SMALL)
    assert not list((tmp_path / "theirs").iterdir())


def test_fetch_count_follows_no_links(tmp_path: Path, sandbox: Path) -> None:
    for number in range(60):
        (tmp_path / f"f{number}").touch()
    (sandbox / "way").symlink_to(tmp_path)
    assert measure(str(sandbox), SMALL, done=True).files == 1


def test_a_device_is_none_that_a_task_has_a_use_for(sandbox: Path) -> None:
    os.mknod(sandbox / "zero", stat.S_IFCHR | 0o666, 0)  # 0:0 is the one that everybody may make
    with pytest.raises(TooMuch, match="zero, which is a device"):
        measure(str(sandbox), SMALL, done=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_program_of_the_host_stays_as_it_is(tmp_path: Path, sandbox: Path) -> None:
    """Without fs.protected_hardlinks, a task may have any file of its file system in its sandbox by a hard link."""
    program = tmp_path / "sudo"
    program.touch()
    program.chmod(0o4755)
    os.chown(sandbox, 65534, 65534)
    os.link(program, sandbox / "sudo")
    with pytest.raises(TooMuch, match="sudo, which is a program of another user"):
        measure(str(sandbox), SMALL, done=True)
    assert stat.S_IMODE(program.stat().st_mode) == 0o4755


def test_the_limits_are_the_hosts(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    assert FetchLimits.on(str(tmp_path), {LIMIT: "1"}).size_bytes == 1 << 20
    assert FetchLimits.on(str(tmp_path), {}).size_bytes <= disk.f_blocks * disk.f_frsize * 9 // 10
    for text in ("", "0", "-1", "x", "1e9", "9" * 30, "\u0663"):
        with pytest.raises(BadConfiguration, match=LIMIT):
            FetchLimits.on(str(tmp_path), {LIMIT: text})
