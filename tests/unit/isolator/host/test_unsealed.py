"""Directories that cannot be sealed soon: the agent does not find them until they are."""

import os
from pathlib import Path

import pytest

from isolator.host import unsealed
from isolator.host.sandbox import Sandbox
from isolator.host.sealing import is_sealed
from isolator.host.unsealed import place_of, seal_sandbox
from isolator.session.inside.kept import KeptSending

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it acts as another user")
UID = 61999
FILES = 600  # a walk looks at the clock before it has seen so many


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    """A sandbox where agents have them, with a directory of its task."""
    path = tmp_path / "work/slaves/S0/frameworks/F/executors/e/runs/container"
    (path / "d").mkdir(parents=True)
    with Sandbox(str(path)) as place:
        assert place.admit(UID)
    for number in range(FILES):
        (path / f"d/{number}").touch()
    os.chown(path / "d", UID, UID)
    return path


@pytest.fixture(autouse=True)
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the seal of a sandbox no time, as if directories were added without end."""
    monkeypatch.setattr(unsealed, "SOON_S", 0.0)


def end_none(place: str, deadline: float) -> None:
    """Know of no holders."""


def test_seal_that_does_not_end_leaves_no_directory_of_the_task_to_the_agent(
    sandbox: Path,
) -> None:
    fd = os.open(sandbox / "d", os.O_RDONLY)
    with pytest.raises(TimeoutError):
        seal_sandbox(str(sandbox), 0.0, end_none)
    assert os.listdir(sandbox / "d") == []
    assert (sandbox / "d").stat().st_uid == 0
    place = Path(place_of(str(sandbox)))
    assert os.path.samestat(os.fstat(fd), (place / "d").stat())
    assert [path.stat().st_mode & 0o077 for path in (place, place.parent)] == [0, 0]
    os.close(fd)


def test_unsealed_directories_come_back_when_they_are_sealed(sandbox: Path) -> None:
    with pytest.raises(TimeoutError):
        seal_sandbox(str(sandbox), 0.0, end_none)
    assert "not sealed yet" in KeptSending("d", "", as_root=False).withheld((sandbox / "d").stat())
    seal_sandbox(str(sandbox), 60, end_none)
    assert (sandbox / "d/0").is_file()
    assert all(is_sealed(path.stat()) for path in (sandbox, *sandbox.rglob("*")))
    assert not Path(place_of(str(sandbox))).exists()


def test_call_that_was_interrupted_is_gone_on_with(sandbox: Path) -> None:
    """A process may be killed between two moves, or between a move and the directory that keeps the name."""
    place = Path(place_of(str(sandbox)))
    for name in ("e", "f"):
        (sandbox / name / "below").mkdir(parents=True)
    seal_sandbox(str(sandbox), 60, end_none)
    place.mkdir(parents=True)
    (sandbox / "d").rename(place / "d")
    (sandbox / "e").rename(place / "e")
    (sandbox / "e").mkdir()
    seal_sandbox(str(sandbox), 60, end_none)
    assert sorted(path.name for path in sandbox.iterdir()) == ["d", "e", "f"]
    assert (sandbox / "e/below").is_dir()
    assert not place.exists()


def test_unsealed_sandbox_removed_by_the_agent_is_removed(
    sandbox: Path,
) -> None:
    with pytest.raises(TimeoutError):
        seal_sandbox(str(sandbox), 0.0, end_none)
    (sandbox / "d").rmdir()
    sandbox.rmdir()
    seal_sandbox(str(sandbox), 60, end_none)
    assert not Path(place_of(str(sandbox))).exists()


def test_sandbox_of_no_agent_is_sealed_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir(mode=0o777)
    seal_sandbox(str(tmp_path), 60, end_none)
    assert is_sealed((tmp_path / "d").stat())


def test_holders_are_ended_before_each_walk_there(sandbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A descriptor that is in the queue of a Unix socket at the first look is in a process later."""
    monkeypatch.setattr(unsealed, "_WALK_S", 1e-6)
    asked: list[str] = []
    seal_sandbox(str(sandbox), 60, lambda place, deadline: asked.append(place))
    assert len(asked) > 1, "the first walk cannot end in a microsecond"
    assert set(asked) == {place_of(str(sandbox))}
    assert is_sealed((sandbox / "d").stat())
