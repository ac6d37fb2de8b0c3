"""What a monitor was started from, and whether something else lies there by now."""

import hashlib
import zipfile
from pathlib import Path

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
