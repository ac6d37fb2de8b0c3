"""What a monitor was started from, and whether something else lies there by now."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from isolator.node import program
from isolator.node.program import SETTLED_S, Started
from mesos_gpu import __version__
from mesos_gpu.model.nodes.wires import OLDEST, WIRE


class Clock:
    """Seconds that go where a test puts them."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def archive(path: Path, text: str) -> str:
    """Write an archive; its digest."""
    part = path.with_name("part")
    with zipfile.ZipFile(part, "w") as packed:
        packed.writestr("__main__.py", text)
    part.replace(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_archive_is_told_by_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "executor.pyz"
    digest = archive(path, "old")
    program = Started(Clock(), [str(path), "monitor"]).look()
    assert (program.version, program.wire, program.oldest) == (__version__, WIRE, OLDEST)
    assert (program.digest, program.replaced) == (digest, "")


def test_another_archive_is_told_once_it_lies_still(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "executor.pyz"
    old = archive(path, "old")
    started = Started(clock, [str(path), "monitor"])
    new = archive(path, "new")
    assert started.look().replaced == ""
    clock.now += SETTLED_S - 1
    newer = archive(path, "newer")
    assert started.look().replaced == ""
    clock.now += SETTLED_S - 1
    assert started.look().replaced == "", "it was written a moment ago"
    clock.now += 1
    assert new != newer
    assert (started.look().digest, started.look().replaced) == (old, newer)


def test_the_same_bytes_written_anew_are_no_other_program(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "executor.pyz"
    archive(path, "old")
    started = Started(clock, [str(path), "monitor"])
    archive(path, "new")
    started.look()
    archive(path, "old")
    for _ in range(3):
        clock.now += SETTLED_S
        assert started.look().replaced == ""


def test_an_archive_that_is_gone_has_not_been_replaced(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "executor.pyz"
    archive(path, "old")
    started = Started(clock, [str(path), "monitor"])
    path.unlink()
    for _ in range(3):
        assert started.look().replaced == ""
        clock.now += SETTLED_S


def test_installed_program_is_known_by_the_list_of_its_files(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "RECORD"
    path.write_text("mesos_gpu/__init__.py,sha256=a,1\n")
    started = Started(clock, path=path)
    assert started.look().digest == hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_text("mesos_gpu/__init__.py,sha256=b,22\n")
    started.look()
    clock.now += SETTLED_S
    assert started.look().replaced == hashlib.sha256(path.read_bytes()).hexdigest()


def test_program_that_is_neither_archive_nor_installed_has_no_digest(tmp_path: Path) -> None:
    program = Started(Clock(), path=tmp_path / "none").look()
    assert (program.digest, program.replaced) == ("", "")


@pytest.mark.parametrize(("behind", "is_archive"), [(65_535, True), (65_536, False)])
def test_an_archive_is_known_by_its_last_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: int, is_archive: bool
) -> None:
    """A comment of 65535 bytes is the longest."""
    path, large = tmp_path / "executor.pyz", b"#!" * 40_000
    path.write_bytes(large + b"PK\x05\x06" + bytes(18 + behind))
    installed = Started(Clock(), ["monitor"]).look().digest
    digest = Started(Clock(), [str(path)]).look().digest
    assert digest == (hashlib.sha256(path.read_bytes()).hexdigest() if is_archive else installed)


def test_a_program_is_looked_for_by_the_arguments_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = archive(tmp_path / "executor.pyz", "text")
    monkeypatch.setattr("sys.argv", [str(tmp_path / "executor.pyz"), "monitor"])
    assert Started(Clock()).look().digest == digest
    other = archive(tmp_path / "other.pyz", "other")
    assert Started(Clock(), [str(tmp_path / "other.pyz")]).look().digest == other


@pytest.mark.parametrize("argv", [[""], ["-c"]])
def test_a_program_without_an_archive_is_the_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    class Listed:
        def __init__(self, name: str) -> None:
            self.name = name

        def locate(self) -> Path:
            return tmp_path / self.name

    class Distribution:
        files: list[Listed] | None = [Listed("METADATA"), Listed("RECORD"), Listed("LICENSE")]

    monkeypatch.setattr("importlib.metadata.distribution", lambda _name: Distribution)
    (tmp_path / "RECORD").write_text("files")
    assert Started(Clock(), argv).look().digest == hashlib.sha256(b"files").hexdigest()
    Distribution.files = None
    assert Started(Clock(), argv).look().digest == ""


@pytest.mark.parametrize(("most", "is_read"), [(5, True), (4, False)])
def test_a_program_larger_than_any_of_ours_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, is_read: bool
) -> None:
    monkeypatch.setattr(program, "_MAX_BYTES", most)
    (tmp_path / "RECORD").write_text("12345")
    digest = Started(Clock(), path=tmp_path / "RECORD").look().digest
    assert digest == (hashlib.sha256(b"12345").hexdigest() if is_read else "")


def test_a_program_that_cannot_be_read_when_it_lies_still_is_the_same(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "executor.pyz"
    old = archive(path, "old")
    started = Started(clock, [str(path)])
    path.unlink()
    path.mkdir()
    for _ in range(3):
        assert started.look().replaced == ""
        clock.now += SETTLED_S
    path.rmdir()
    assert started.look().digest == old
    new = archive(path, "new")
    started.look()
    clock.now += SETTLED_S
    assert started.look().replaced == new
    assert started.look().replaced == new
