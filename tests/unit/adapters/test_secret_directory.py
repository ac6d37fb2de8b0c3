"""Secrets in a directory: what is read, and all that is not."""

import os
from pathlib import Path

import pytest

from mesos_gpu.adapters.secrets.directory import SecretDirectory
from mesos_gpu.errors import BadConfiguration, MesosGpuError, NotFound
from mesos_gpu.model.secret import LARGEST_SECRET


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "secrets" / "team").mkdir(parents=True)
    for each in (tmp_path / "secrets", tmp_path / "secrets/team"):
        each.chmod(0o700)
    put(tmp_path / "secrets/team/hf", b"hf_abc\n")
    return tmp_path / "secrets"


def put(path: Path, value: bytes, mode: int = 0o600) -> None:
    path.write_bytes(value)
    path.chmod(mode)


def refused(top: Path, source: str) -> str:
    with pytest.raises(MesosGpuError) as error:
        SecretDirectory(top).read(source)
    assert "hf_abc" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("written", "read"),
    [(b"hf_abc", b"hf_abc"), (b"a\n\n", b"a\n"), (b"", b""), (b"\0\xff", b"\0\xff"),
     (b"x" * LARGEST_SECRET + b"\n", b"x" * LARGEST_SECRET)],
)  # fmt: skip
def test_secret_directory_value_drops_one_newline(top: Path, written: bytes, read: bytes) -> None:
    put(top / "team/hf", written)
    assert SecretDirectory(top).read("team/hf") == read


def test_secret_directory_returns_a_new_value_at_once(top: Path) -> None:
    store = SecretDirectory(top)
    assert store.read("team/hf") == b"hf_abc"
    put(top / "team/new", b"second")
    (top / "team/new").rename(top / "team/hf")
    assert store.read("team/hf") == b"second"


def test_secret_directory_names_a_missing_secret(top: Path) -> None:
    with pytest.raises(NotFound, match="no secret team/other"):
        SecretDirectory(top).read("team/other")
    with pytest.raises(NotFound):
        SecretDirectory(top).read("none/other")
    with pytest.raises(NotFound, match="one value"):
        SecretDirectory(top).read("team/hf#token")


@pytest.mark.parametrize(
    "source", ["../secrets/team/hf", "/etc/passwd", "team/./hf", "team//hf", "team/..", ""]
)
def test_secret_directory_refuses_paths_outside(top: Path, source: str) -> None:
    refused(top, source)


def test_secret_directory_follows_no_links(top: Path) -> None:
    put(top.parent / "outside", b"hf_abc")
    (top / "file").symlink_to(top.parent / "outside")
    (top / "way").symlink_to(top / "team")
    assert "links are not followed" in refused(top, "file")
    assert "links are not followed" in refused(top, "way/hf")


def test_secret_directory_refuses_files_readable_by_others(top: Path) -> None:
    (top / "team/hf").chmod(0o640)
    assert "mode 0640" in refused(top, "team/hf")
    (top / "team/hf").chmod(0o600)
    (top / "team").chmod(0o750)
    assert "chmod 700" in refused(top, "team/hf")
    (top / "team").chmod(0o700)
    top.chmod(0o711)
    assert "mode 0711" in refused(top, "team/hf")
    with pytest.raises(BadConfiguration, match="--secrets-dir"):
        SecretDirectory(top).see()
    top.chmod(0o700)
    SecretDirectory(top).see()


def test_secret_directory_refuses_a_fifo_at_once(top: Path) -> None:
    os.mkfifo(top / "team/fifo", 0o600)
    assert "is not a file" in refused(top, "team/fifo")
    assert "is not a file" in refused(top, "team")


def test_secret_directory_refuses_a_value_that_is_too_large(top: Path) -> None:
    put(top / "team/hf", b"x" * (LARGEST_SECRET + 1))
    assert "larger than" in refused(top, "team/hf")


def test_secret_directory_leaves_no_file_open(top: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    store = SecretDirectory(top)
    for _ in range(20):
        store.read("team/hf")
        with pytest.raises(MesosGpuError):
            store.read("team/none")
        with pytest.raises(MesosGpuError):
            store.read("none/none")
    assert len(os.listdir("/proc/self/fd")) == before
