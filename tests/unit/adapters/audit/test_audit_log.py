"""The files of an audit log: what is written is found and verified, after kills, rotations and on a full disk."""

import contextlib
import ctypes
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.access.asked import Asked
from mesos_gpu.access.floods import FIRST
from mesos_gpu.adapters.audit import search
from mesos_gpu.adapters.audit.log import AuditLog, AuditSettings, OnFull
from mesos_gpu.adapters.audit.verify import Verified, verify
from mesos_gpu.adapters.disk import room
from mesos_gpu.errors import BadConfiguration, Conflict
from mesos_gpu.model.access.record import AuditRecord, Result
from tests.conftest import wait_until


def change(number: int, **more: object) -> AuditRecord:
    fields = {
        "at": 1e9 + number,
        "what": "DELETE /v1/jobs/{id}",
        "result": Result.DONE,
        "on": (f"job:{number}",),
    }
    return AuditRecord(**{**fields, **more})  # type: ignore[arg-type]


def refusal(number: int, address: str = "192.0.2.1:1", **more: object) -> AuditRecord:
    return change(number, result=Result.REFUSED, status=401, reason="unproved", address=address, **more)


class Logged:
    """A log whose clock stands."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.directory, self.now = directory, 1e9
        more: dict[str, object] = {"most_bytes": 8 << 20, "files": 4, **settings}
        self.log = AuditLog(
            AuditSettings(directory, **more),  # type: ignore[arg-type]
            now=lambda: self.now,
        )

    def put(self, *records: AuditRecord) -> None:
        for future in [self.log.put(record) for record in records]:
            if future is not None:
                future.result(60)

    def found(self, limit: int = 100_000, **asked: object) -> list[AuditRecord]:
        page = self.log.search(Asked(**asked), limit=limit, cursor="")  # type: ignore[arg-type]
        return [record for _, record in page.records if record.who != "scheduler"]

    def close(self) -> None:
        self.log.close()


@pytest.fixture
def logged(tmp_path: Path) -> Iterator[Logged]:
    logged = Logged(tmp_path / "audit")
    yield logged
    logged.close()


def sound(directory: Path) -> tuple[Verified, Verified]:
    changes, refusals = verify(directory)
    assert (changes.flaws, refusals.flaws) == ((), ())
    return changes, refusals


def test_audit_log_finds_records_newest_first_and_verified(logged: Logged) -> None:
    logged.put(change(1), refusal(2), change(3, who="ann", proved=True, right="job:kill"))
    assert [record.at - 1e9 for record in logged.found()] == [3, 2, 1]
    assert [record.on for record in logged.found(who="ann")] == [("job:3",)]
    assert [record.on for record in logged.found(what="job:*")] == [("job:3",)]
    assert [record.on for record in logged.found(on="1")] == [("job:1",)]
    assert [record.status for record in logged.found(result=Result.REFUSED)] == [401]
    assert [record.at - 1e9 for record in logged.found(since=1e9 + 2, until=1e9 + 3)] == [2]
    sound(logged.directory)


def test_audit_log_is_readable_by_its_owner_alone(logged: Logged) -> None:
    logged.put(change(1))
    assert logged.directory.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in logged.directory.iterdir()}
    assert modes == dict.fromkeys(modes, 0o600)
    assert len(modes) == 5, modes


def test_audit_log_refuses_a_second_writer(logged: Logged) -> None:
    with pytest.raises(Conflict, match="another scheduler writes"):
        Logged(logged.directory)


def test_audit_log_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "audit").symlink_to("elsewhere")
    with pytest.raises(BadConfiguration, match="is a link"):
        Logged(tmp_path / "audit")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("name", ["changes-00000001.jsonl", "changes.mark", "lock"])
def test_audit_log_file_that_is_a_link_is_not_followed(name: str, tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir(mode=0o700)
    (tmp_path / "victim").write_text("")
    (tmp_path / "audit" / name).symlink_to("../victim")
    try:
        logged = Logged(tmp_path / "audit")
    except BadConfiguration:
        pass  # a file that must be read is refused at once
    else:
        assert logged.log.full() is not None
        logged.close()
    assert (tmp_path / "victim").read_text() == ""


def test_audit_log_that_could_not_begin_blocks_no_later_one(tmp_path: Path) -> None:
    at = tmp_path / "audit"
    (at / "changes-00000001.jsonl").mkdir(parents=True)
    at.chmod(0o700)
    with pytest.raises(BadConfiguration, match="is not a regular file"):
        AuditLog(AuditSettings(at))
    (at / "changes-00000001.jsonl").rmdir()
    AuditLog(AuditSettings(at)).close()


def test_audit_search_pages_have_no_gap_or_double(logged: Logged) -> None:
    logged.put(*(change(i) if i % 3 else refusal(i, f"192.0.2.{i % 250}:1") for i in range(600)))
    seen, cursor = [], ""
    while True:
        page = logged.log.search(Asked(), limit=7, cursor=cursor)
        assert len(page.records) <= 7
        seen += [record.at - 1e9 for _, record in page.records if record.who != "scheduler"]
        cursor = page.cursor
        if not cursor:
            break
    assert seen == list(reversed(range(600)))


@pytest.mark.parametrize(
    "cursor", ["x", "1:1", "1:1-2", "1:1-1:1-1:1", "-1:1-1:1", "1:1-1:99999999999999999999"]
)
def test_audit_search_refuses_a_malformed_cursor(logged: Logged, cursor: str) -> None:
    with pytest.raises(BadConfiguration, match="cursor"):
        logged.log.search(Asked(), limit=1, cursor=cursor)


@pytest.mark.parametrize("cursor", ["9:0-9:0", "1:999999-1:999999", "99999999:1-0:0"])
def test_audit_search_with_a_foreign_cursor_finds_existing_records_only(logged: Logged, cursor: str) -> None:
    logged.put(change(1))
    page = logged.log.search(Asked(), limit=10, cursor=cursor)
    assert {record.on for _, record in page.records} <= {(), ("job:1",)}


def test_audit_search_reads_a_bounded_piece_and_goes_on_by_cursor(
    logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged.put(*(change(i) for i in range(3000)))
    monkeypatch.setattr(search, "MAX_BYTES", 1 << 17)
    first = logged.log.search(Asked(on="job:1"), limit=10, cursor="")
    assert (first.records, first.cursor != "") == ((), True)
    cursor, records, searches = first.cursor, list[tuple[str, AuditRecord]](), 1
    while cursor:
        page = logged.log.search(Asked(on="job:1"), limit=10, cursor=cursor)
        cursor, searches = page.cursor, searches + 1
        records += page.records
    assert [record.on for _, record in records] == [("job:1",)]
    assert searches > 3


def test_audit_log_rotation_keeps_the_newest_and_names_the_removed(tmp_path: Path) -> None:
    most = 16 << 10
    logged = Logged(tmp_path / "audit", most_bytes=most, files=4)
    for i in range(250):
        logged.put(change(i))
    kept = [record.at - 1e9 for record in logged.found()]
    logged.close()
    size = sum(path.stat().st_size for path in logged.directory.glob("changes-*"))
    changes, _ = sound(logged.directory)
    assert kept == list(range(249, 249 - len(kept), -1))
    assert (changes.files, len(kept) > 25, size < most * 5 // 4) == (4, True, True)
    assert changes.first > 1
    oldest = min(logged.directory.glob("changes-*"))
    oldest.unlink()
    gone, _ = verify(logged.directory)
    assert [flaw.where for flaw in gone.flaws] == ["the beginning"]


@pytest.mark.parametrize(("writes", "readers"), [(60, 1), pytest.param(300, 3, marks=pytest.mark.long)])
def test_audit_log_readers_see_whole_records_while_files_rotate(
    tmp_path: Path, writes: int, readers: int
) -> None:
    logged = Logged(tmp_path / "audit", most_bytes=8 << 10, files=4)
    over, problems, pages = threading.Event(), list[object](), list[int]()

    def read() -> None:
        while not over.wait(0.005):
            seen, cursor = list[float](), ""
            while True:
                page = logged.log.search(Asked(what="DELETE"), limit=50, cursor=cursor)
                seen += [record.at for _, record in page.records]
                cursor = page.cursor
                if not cursor:
                    break
            if seen != list(range(int(seen[0]), int(seen[0]) - len(seen), -1)) if seen else False:
                problems.append(seen)
            flaws = [flaw for each in verify(logged.directory) for flaw in each.flaws]
            problems.extend(flaws)
            pages.append(len(seen))

    logged.put(change(0))
    threads = [threading.Thread(target=read) for _ in range(readers)]
    for thread in threads:
        thread.start()
    for i in range(1, writes):
        logged.put(change(i))
    wait_until("they have read", lambda: len(pages) > readers)
    over.set()
    for thread in threads:
        thread.join(60)
    logged.close()
    assert problems == []
    sound(logged.directory)


@pytest.mark.parametrize(
    ("minutes", "most"), [(5, 1 << 18), pytest.param(20, 1 << 20, marks=pytest.mark.long)]
)
def test_audit_log_flood_of_refusals_removes_no_changes(tmp_path: Path, minutes: int, most: int) -> None:
    logged = Logged(tmp_path / "audit", most_bytes=most, files=4)
    logged.put(change(0))
    for minute in range(minutes):
        logged.put(*(refusal(60 * minute, f"192.0.2.{i % 200}:1") for i in range(1000)))
    refusals = logged.found(result=Result.REFUSED)
    assert [record.at for record in logged.found(result=Result.DONE)] == [1e9]
    assert all(sum(record.count for record in refusals if record.at == r.at) <= 1200 for r in refusals[:5])
    logged.close()
    size = sum(path.stat().st_size for path in logged.directory.glob("refusals-*"))
    assert size < most // 4 * 3 // 2
    sound(logged.directory)


def test_audit_log_writes_counted_refusals_at_the_end(tmp_path: Path) -> None:
    logged = Logged(tmp_path / "audit")
    logged.put(*(refusal(i) for i in range(50)))
    logged.close()
    again = Logged(tmp_path / "audit")
    *_, summary = sorted(again.found(), key=lambda record: record.count)
    again.close()
    assert (summary.count, summary.status, summary.reason) == (50 - FIRST, 401, "unproved")
    assert (summary.what, summary.address) == ("refusals", "192.0.2.1:1")


@pytest.mark.parametrize("tail", [b"x", b"\0" * 70_000, b'{"seq":4,"prev', b'{"a":1}\n', b"\n", b"a\nb"])
def test_audit_log_keeps_a_torn_line_and_continues_the_chain(tail: bytes, tmp_path: Path) -> None:
    logged = Logged(tmp_path / "audit")
    logged.put(change(1), change(2))
    logged.close()
    file = logged.directory / "changes-00000001.jsonl"
    with file.open("ab") as end:
        end.write(tail)
    before = file.read_bytes()
    again = Logged(tmp_path / "audit")
    again.put(change(3))
    assert [record.at - 1e9 for record in again.found()] == [3, 2, 1]
    again.close()
    assert file.read_bytes().startswith(before), "nothing was cut off"
    changes, _ = verify(tmp_path / "audit")
    assert bool(changes.flaws) == (tail == b"\n"), "no crash leaves an empty line"


@pytest.mark.parametrize("cut", range(1, 300, 23))
def test_audit_log_shows_a_file_that_is_cut(cut: int, tmp_path: Path) -> None:
    logged = Logged(tmp_path / "audit")
    logged.put(change(1), change(2))
    logged.close()
    file = logged.directory / "changes-00000001.jsonl"
    os.truncate(file, file.stat().st_size - cut)
    changes, _ = verify(tmp_path / "audit")
    assert changes.flaws != () or (cut == 1 and changes.unfinished)


@pytest.mark.parametrize(("kills", "kept_at_least"), [(1, 30), pytest.param(8, 100, marks=pytest.mark.long)])
def test_audit_log_keeps_answered_records_after_kill_9(
    tmp_path: Path, kills: int, kept_at_least: int
) -> None:
    program = """
import sys, itertools
from pathlib import Path
from mesos_gpu.adapters.audit.log import AuditLog, AuditSettings
from mesos_gpu.model.access.record import AuditRecord, Result
log = AuditLog(AuditSettings(Path(sys.argv[1]), most_bytes=64 << 10, files=8))
for number in itertools.count(int(sys.argv[2])):
    log.put(AuditRecord(float(number), "POST /v1/jobs", Result.DONE, on=(f"job:{number}",))).result(60)
    print(number, flush=True)
"""
    number = 0
    for _ in range(kills):
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "audit"), str(number)],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            try:
                for _ in range(40 + 7 * number % 50):
                    line = process.stdout.readline()
                    assert line.endswith("\n")
            finally:
                process.kill()
            number = max([int(line), *(int(word) for word in process.stdout.read().split("\n")[:-1])]) + 1
        sound(tmp_path / "audit")
    again = Logged(tmp_path / "audit", most_bytes=64 << 10, files=8)
    kept = {int(record.at) for record in again.found()}
    again.close()
    assert kept >= set(range(min(kept), number))
    assert len(kept) > kept_at_least


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it mounts a small file system")
    at = tmp_path / "small"
    at.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(at)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no tmpfs here: {done.stderr.strip()}")
    yield at
    subprocess.run(["umount", str(at)], check=True)


def fill(directory: Path) -> Path:
    """All of it, to the last byte."""
    path = directory / "ballast"
    with path.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
    assert os.statvfs(directory).f_bavail == 0
    return path


def test_audit_log_on_a_full_disk_keeps_its_reserve_then_refuses_changes(small: Path) -> None:
    logged = Logged(small / "audit")
    ballast = fill(small)
    number = 0
    while logged.log.full() is None:
        logged.put(change(number, detail="x" * 150))
        number += 1
        assert number < 20_000
    refused = logged.log.full()
    assert refused is not None
    assert (refused.http_status, "No space left" in refused.what) == (507, True)
    assert (logged.log.lost, number > 500) == (0, True)
    assert len(logged.found()) == number, "room was taken before it was needed"
    ballast.unlink()
    wait_until("there is room", lambda: logged.log.full() is None)
    logged.put(change(number))
    logged.close()
    changes, _ = sound(logged.directory)
    assert changes.lines == number + 2


def test_audit_log_on_a_full_disk_may_go_on_and_counts_the_lost(small: Path) -> None:
    logged = Logged(small / "audit", on_full=OnFull.DROP)
    ballast = fill(small)
    subjects = tuple(f"job:{'x' * 90}{number}" for number in range(20))
    for number in range(0, 20_000, 10):
        assert logged.log.full() is None
        logged.put(*(change(number + each, on=subjects) for each in range(10)))
        if logged.log.lost > 10:
            break
    lost = logged.log.lost
    assert lost > 10
    ballast.unlink()
    wait_until(
        "it is said",
        lambda: logged.log.search(Asked(what="audit:lost"), limit=1, cursor="").records,
    )
    logged.put(change(99_999))
    said = [record for _, record in logged.log.search(Asked(what="audit:lost"), limit=9, cursor="").records]
    logged.close()
    assert (sum(record.count for record in said), said[0].result) == (lost, Result.FAILED)
    sound(logged.directory)


def test_audit_log_begins_on_a_full_disk(small: Path) -> None:
    Logged(small / "audit").close()
    ballast = fill(small)
    fill(small)
    logged = Logged(small / "audit")
    assert logged.log.full() is not None
    ballast.unlink()
    wait_until("there is room", lambda: logged.log.full() is None)
    logged.put(change(1))
    logged.close()
    sound(logged.directory)


def test_audit_log_counts_free_blocks_where_none_can_be_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Libc:
        def fallocate(self, *_: object) -> int:
            ctypes.set_errno(errno.EOPNOTSUPP)
            return -1

    monkeypatch.setattr(room, "_libc", lambda: Libc())
    with (tmp_path / "file").open("wb") as file:
        room.take(file.fileno(), 0, 4096)
        with pytest.raises(OSError, match="No space left"):
            room.take(file.fileno(), 0, 1 << 60)
