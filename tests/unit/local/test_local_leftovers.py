"""The note of a cluster, and what is removed on its word."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.errors import Conflict, Damaged
from mesos_gpu.local import leftovers
from mesos_gpu.local.leftovers import Identity, Record

GONE = Identity(pid=1 << 22, start_ticks=1)  # above the highest pid_max


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:
        yield process
        process.kill()


def test_a_note_reads_back(tmp_path: Path) -> None:
    record = Record(
        tmp_path, GONE, True, {"master": Identity(1, 2)}, ["mesos_gpu-0123456789-1"], ["master", "agent-12"]
    )
    record.save()
    assert Record.load(tmp_path) == record
    assert [path.name for path in tmp_path.iterdir()] == [leftovers.RECORD]


def test_leftovers_may_have_no_note(tmp_path: Path) -> None:
    assert Record.load(tmp_path / "absent") is None
    leftovers.clean_up(tmp_path / "absent")


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"owner": None},
        {"cgroup_roots": [""]},
        {"cgroup_roots": ["../.."]},
        {"entries": [".."]},
        {"entries": ["master/../../x"]},
        {"processes": {"master": {"pid": 1}}},
        {"more": 1},
    ],
)
def test_leftovers_named_by_a_damaged_record_are_not_removed(
    tmp_path: Path, change: dict[str, object]
) -> None:
    Record(tmp_path, GONE, False, entries=["master"]).save()
    (tmp_path / "master").mkdir()
    path = tmp_path / leftovers.RECORD
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(Damaged, match=r"cluster\.json is not the record of a cluster") as refusal:
        leftovers.clean_up(tmp_path)
    assert f"rm -r {tmp_path}" in refusal.value.remedy
    assert (tmp_path / "master").exists()


def test_a_living_owner_is_respected(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    owner = Identity.of(sleeper.pid)
    assert owner is not None
    Record(tmp_path, owner, False, entries=["master"]).save()
    with pytest.raises(Conflict, match=f"process {sleeper.pid} has a cluster"):
        leftovers.clean_up(tmp_path)
    with pytest.raises(Conflict, match="no cluster of this process"):
        leftovers.own(tmp_path)


def test_a_later_process_with_the_number_is_another_one(sleeper: subprocess.Popen[bytes]) -> None:
    now = Identity.of(sleeper.pid)
    assert now is not None
    assert now.alive
    assert not Identity(now.pid, now.start_ticks - 1).alive
    sleeper.kill()
    sleeper.wait()
    assert not now.alive


def test_processes_are_found_by_note_mark_session_and_descent(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """A marked process with a child in another session and without the mark; a noted one without either."""
    code = "import subprocess; subprocess.Popen(['env', '-i', 'setsid', 'sleep', '1000']).wait()"
    command = [sys.executable, "-c", f"print(flush=True); {code}"]
    environment = {**os.environ, leftovers.MARK: str(tmp_path)}
    noted = Identity.of(sleeper.pid)
    assert noted is not None
    record = Record(tmp_path, GONE, False, processes={"master": noted})
    record.save()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True) as marked:
        assert marked.stdout is not None
        marked.stdout.readline()
        while len(members := leftovers.processes(record)) < 3:
            assert marked.poll() is None
        assert {marked.pid, sleeper.pid} < members
        assert os.getpid() not in members
        leftovers.clean_up(tmp_path)
    assert sleeper.wait() == -9
    assert leftovers.processes(record) == set()
    assert list(tmp_path.iterdir()) == []


CALLER = """
import os, subprocess, sys
stranger = subprocess.Popen(["sleep", "1000"])
marked = subprocess.Popen(["sleep", "1000"], env={**os.environ, sys.argv[1]: sys.argv[2]})
code = "import sys; from pathlib import Path; from mesos_gpu.local import leftovers; "
code += "leftovers.clean_up(Path(sys.argv[1]))"
cleaner = subprocess.run([sys.executable, "-c", code, sys.argv[2]], start_new_session=True)
print(cleaner.returncode, marked.wait(), stranger.poll())
stranger.kill()
"""


def test_process_in_the_callers_session_is_not_the_clusters(tmp_path: Path) -> None:
    """A marked process in a terminal's session, and a clean-up from a session of its own below the same terminal."""
    record = Record(tmp_path, GONE, False)
    record.save()
    command = [sys.executable, "-c", CALLER, leftovers.MARK, str(tmp_path)]
    done = subprocess.run(
        command, start_new_session=True, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "0 -9 None\n", done.stderr


def test_leftovers_of_others_are_not_removed(tmp_path: Path) -> None:
    directory = tmp_path / "made"
    umask = os.umask(0o077)
    leftovers.claim(directory, entries=["master"])
    os.umask(umask)
    assert directory.stat().st_mode & 0o777 == 0o755
    (directory / "master" / "work").mkdir(parents=True)
    (directory / "theirs").touch()
    leftovers.remove(leftovers.own(directory))
    assert [path.name for path in directory.iterdir()] == ["theirs"]


def test_a_directory_is_claimed_once(tmp_path: Path) -> None:
    leftovers.claim(tmp_path, entries=[])
    with pytest.raises(Conflict, match=f"process {os.getpid()} has a cluster"):
        leftovers.claim(tmp_path, entries=[])


def test_mounts_are_only_those_under_the_directory() -> None:
    assert "/proc" in leftovers.mounts(Path("/proc"))
    assert leftovers.mounts(Path("/pro")) == []
