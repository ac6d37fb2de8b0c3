"""Files that others must not have read: of whoever reads them, one set of rules."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mesos_gpu.adapters.credentials import read as read_credentials
from mesos_gpu.adapters.files.private import READABLE, WRITABLE, Exposed, read, read_secret
from mesos_gpu.adapters.proofs.htpasswd import Htpasswd
from mesos_gpu.adapters.secrets.vault import Vault, VaultSettings
from mesos_gpu.cli.reach import private as of_user
from mesos_gpu.errors import BadConfiguration, MesosGpuError

#: All that read one, by what it has.
READERS: dict[str, Callable[[Path], object]] = {
    "credentials": read_credentials,
    "a secret": lambda path: read_secret(path, "secret"),
    "Vault's token": lambda path: Vault(VaultSettings("http://127.0.0.1:1", path)).read("team/hf"),
    "a login": of_user.read,
    "hashes": Htpasswd,
}


def file_of(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "file"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("what", READERS)
def test_private_file_that_is_a_fifo_or_writable_by_others_is_refused(tmp_path: Path, what: str) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    open_to_others = file_of(tmp_path, "word", 0o666)
    for path, said in (
        (tmp_path / "fifo", "not a regular file"),
        (tmp_path, "not a regular file"),
        (open_to_others, "mode 0666"),
    ):
        with pytest.raises(MesosGpuError, match=said) as refused:
            READERS[what](path)
        assert refused.value.remedy
        assert "word" not in str(refused.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
@pytest.mark.parametrize("what", READERS)
def test_private_file_of_another_user_is_not_used(tmp_path: Path, what: str) -> None:
    path = file_of(tmp_path, "word")
    os.chown(path, 65534, 65534)
    with pytest.raises(MesosGpuError, match="owner 65534"):
        READERS[what](path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o601])
def test_private_file_modes_of_others_are_refused(tmp_path: Path, mode: int) -> None:
    path = file_of(tmp_path, "word", mode)
    with pytest.raises(Exposed, match=f"mode {mode:04o}"):
        read(path)
    if mode & WRITABLE:
        with pytest.raises(Exposed, match="others may have changed it"):
            read(path, forbidden=WRITABLE)
    else:
        assert read(path, forbidden=WRITABLE) == b"word"
    path.chmod(0o777 & ~READABLE)
    assert read(path) == b"word"


def test_private_file_link_is_followed_only_where_allowed(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file_of(tmp_path, "word"))
    assert read_secret(link, "secret") == "word"  # as of a Kubernetes volume
    with pytest.raises(BadConfiguration, match="symbolic link"):
        read_secret(link, "secret", links=False)


@pytest.mark.parametrize(
    ("text", "secret"), [(" s3\n", "s3"), (" \n", None), ("a\nb\n", None), ("a\x1b", None)]
)
def test_private_secret_is_one_line(tmp_path: Path, text: str, secret: str | None) -> None:
    path = file_of(tmp_path, text)
    if secret is not None:
        assert read_secret(path, "secret") == secret
        return
    with pytest.raises(BadConfiguration, match="has no secret"):
        read_secret(path, "secret")


def test_private_file_read_is_bounded(tmp_path: Path) -> None:
    assert read(file_of(tmp_path, "x" * 100), most_bytes=10) == b"x" * 10
