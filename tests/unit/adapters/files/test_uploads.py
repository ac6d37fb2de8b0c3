"""The store of archives: quotas, what is removed when, and what a restart finds."""

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from mesos_gpu.adapters.disk.room import Reserve
from mesos_gpu.adapters.uploads import store as uploads
from mesos_gpu.adapters.uploads.store import (
    GRACE_S,
    KEEP_S,
    Mismatch,
    OutOfPlace,
    TooLarge,
    UploadLimits,
    UploadStore,
)
from mesos_gpu.errors import BadConfiguration, Conflict, NoRoom, NotFound, TooMuch
from tests.doubles.fake_driver import FakeClock


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Kept:
    """A store whose clock is the test's; what is used is noted by that clock."""

    def __init__(self, directory: Path, all_bytes: int = 1000) -> None:
        self.directory, self.clock = directory, FakeClock()
        self.store = UploadStore(directory, UploadLimits(100, 250, all_bytes), self.clock.now, Reserve(0))

    def put(self, data: bytes, owner: str = "ann") -> str:
        name = digest(data)
        assert self.store.put(owner, name, 0, len(data), data).complete
        self.store.touch(owner, name)
        return name


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "uploads")


def test_upload_is_private_and_found_after_a_restart(tmp_path: Path, kept: Kept) -> None:
    name = kept.put(b"a" * 10)
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "uploads").rglob("*")} == {0}
    again = UploadStore(tmp_path / "uploads")
    there = again.find("ann", name)
    assert there is not None
    assert (there.received, there.complete) == (10, True)
    assert again.find("bob", name) is None
    with pytest.raises(NotFound):
        again.touch("bob", name)


def test_upload_quota_of_an_owner_removes_unneeded_archives_first(kept: Kept) -> None:
    old, needed = kept.put(b"a" * 100), kept.put(b"b" * 100)
    third = b"c" * 100
    kept.store.make_room("ann", digest(third), {("ann", needed)}, 100)
    with pytest.raises(TooMuch, match="take 0 MiB of 0, and 2 of"):
        kept.store.put("ann", digest(third), 0, 100, third)
    kept.clock.time += GRACE_S + 1
    kept.store.make_room("ann", digest(third), {("ann", needed)}, 100)
    kept.put(third)
    assert kept.store.find("ann", old) is None
    assert kept.store.find("ann", needed) is not None
    kept.put(third, "bob")


def test_upload_above_the_limit_is_refused_at_its_first_byte(kept: Kept) -> None:
    with pytest.raises(TooLarge, match="size=101: an archive has 1 to 100 bytes"):
        kept.store.put("ann", "0" * 64, 0, 101, b"x")
    with pytest.raises(TooLarge):
        kept.store.put("ann", "0" * 64, 0, 0, b"")


def test_upload_without_a_job_is_removed_after_a_time_and_pieces_soon(kept: Kept) -> None:
    unused, needed = kept.put(b"a"), kept.put(b"b")
    assert kept.store.collect({("ann", needed)}) == 0
    kept.clock.time += KEEP_S + 1
    assert kept.store.collect({("ann", needed), ("bob", unused)}) == 1
    assert [each.digest for each in kept.store.of_owner("ann")] == [needed]


def test_upload_piece_at_another_offset_says_where_to_go_on(kept: Kept) -> None:
    data = b"abcdef"
    kept.store.put("ann", digest(data), 0, 6, b"abc")
    with pytest.raises(OutOfPlace) as caught:
        kept.store.put("ann", digest(data), 0, 6, b"abc")
    assert caught.value.received == 3
    assert kept.store.put("ann", digest(data), 3, 6, b"def").complete
    assert kept.store.put("ann", digest(data), 0, 6, b"abc").complete, "it is there already"


def test_upload_names_cannot_leave_the_directory(tmp_path: Path, kept: Kept) -> None:
    kept.put(b"x", "../../etc")
    assert [path.name for path in tmp_path.iterdir()] == ["uploads"]
    assert kept.store.find("ann", "../../etc/passwd") is None
    with pytest.raises(ValueError, match="not a SHA-256"):
        kept.store.put("ann", "../x", 0, 1, b"x")


def test_upload_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "uploads").symlink_to("there")
    with pytest.raises(BadConfiguration, match="link"):
        UploadStore(tmp_path / "uploads")


def test_upload_that_is_held_is_not_removed_and_not_found_while_removed(kept: Kept) -> None:
    name = kept.put(b"a" * 10)
    with kept.store.held("ann", name), kept.store.held("ann", name):
        with pytest.raises(Conflict, match="is just being"), kept.store.going("ann", name):
            pass
        with kept.store.going("bob", name):
            pass
    with kept.store.going("ann", name):
        with pytest.raises(NotFound), kept.store.held("ann", name):
            pass
        with pytest.raises(Conflict), kept.store.going("ann", name):
            pass
        kept.store.remove("ann", name)
    with pytest.raises(NotFound), kept.store.held("ann", name):
        pass
    with kept.store.going("ann", name):
        pass


def test_upload_quota_of_all_owners_takes_from_the_largest_first(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "uploads", all_bytes=250)
    of_ann = kept.put(b"a" * 100), kept.put(b"b" * 80)
    of_bob = kept.put(b"c" * 50, "bob")
    new = b"d" * 60
    with pytest.raises(NoRoom, match="size=60: archives of all names take 0 MiB of 0") as refused:
        kept.store.put("eve", digest(new), 0, 60, new)
    assert "--all-uploads" in refused.value.remedy
    kept.store.make_room("eve", digest(new), {("ann", of_ann[0])}, 60)
    assert len(kept.store.of_owner("ann")) == 2, "both may just be about to be needed"
    kept.clock.time += GRACE_S + 1
    kept.store.make_room("eve", digest(new), {("ann", of_ann[0])}, 60)
    assert [each.digest for each in kept.store.of_owner("ann")] == [of_ann[0]]
    assert [each.digest for each in kept.store.of_owner("bob")] == [of_bob]
    kept.put(new, "eve")


def test_upload_quota_leaves_the_last_quarter_to_other_owners(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "uploads", all_bytes=800)
    for number in range(6):
        kept.put(b"%d" % number * 100, f"owner {number // 2}")
    more = b"m" * 10
    with pytest.raises(NoRoom, match="the last quarter of which is for names with at most 0 MiB"):
        kept.store.put("owner 0", digest(more), 0, 10, more)
    kept.put(b"e" * 60, "eve")
    kept.put(b"f" * 40, "eve")
    with pytest.raises(NoRoom):
        kept.store.put("eve", digest(more), 0, 10, more)
    kept.put(b"b" * 100, "bob")
    with pytest.raises(NoRoom):
        kept.store.put("joe", digest(more), 0, 10, more)
    copy = UploadStore(
        tmp_path / "copy", UploadLimits(100, 250, 250, keeps_quarter=False), reserve=Reserve(0)
    )
    for number in (1, 0):
        data = b"%d" % number * 100
        assert copy.put("owner 0", digest(data), 0, 100, data).complete, "the leader has it"
    assert copy.put("owner 0", digest(more), 0, 10, more).complete


def test_upload_parts_count_at_once_and_removed_ones_do_not(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "uploads", all_bytes=150)
    first, second = b"a" * 100, b"b" * 100
    kept.store.put("ann", digest(first), 0, 100, first[:60])
    with pytest.raises(NoRoom):
        kept.store.put("bob", digest(second), 0, 100, second)
    with kept.store.going("ann", digest(first)):
        kept.store.remove("ann", digest(first))
    kept.put(second, "bob")
    again = UploadStore(tmp_path / "uploads", UploadLimits(100, 250, 150))
    with pytest.raises(NoRoom):
        again.put("ann", digest(first), 0, 100, first)


def test_upload_leaves_the_reserve_of_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = SimpleNamespace(
        f_blocks=1 << 20, f_frsize=4096, f_bavail=0
    )  # 4 GiB, of which a tenth is less than 1 GiB
    monkeypatch.setattr(os, "statvfs", lambda _: free)
    data = b"a" * 100
    for reserve, spare in ((Reserve(), 1 << 30), (Reserve(8192), 8192), (Reserve(0), 0)):
        store = UploadStore(tmp_path / str(spare), reserve=reserve)
        free.f_bavail = spare // 4096
        with pytest.raises(
            NoRoom, match=rf"size=100: {spare >> 20} MiB are free .* {spare >> 20} MiB are kept"
        ):
            store.put("ann", digest(data), 0, 100, data)
        assert store.of_owner("ann") == []
        free.f_bavail += 1
        assert store.put("ann", digest(data), 0, 100, data).complete
    free.f_blocks = 10 << 20
    assert Reserve().free(tmp_path).reserve == 4 << 30, "a tenth of 40 GiB"


def test_upload_parts_are_removed_without_a_look_at_jobs(kept: Kept) -> None:
    whole, part = kept.put(b"a"), b"b" * 50
    kept.store.put("ann", digest(part), 0, 50, part[:20])
    os.utime(next(kept.directory.rglob("*.part")), (kept.clock.now(), kept.clock.now()))
    kept.clock.time += GRACE_S
    assert kept.store.collect() == 0
    kept.clock.time += KEEP_S
    assert kept.store.collect() == 1
    assert [each.digest for each in kept.store.of_owner("ann")] == [whole]


def test_archive_is_hashed_as_its_pieces_come(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "_digest_of", lambda path: pytest.fail(f"{path} was read again"))
    data = bytes(range(100))
    for at in range(0, 100, 10):
        done = kept.store.put("ann", digest(data), at, 100, data[at : at + 10])
    assert done.complete
    wrong = b"x" * 100
    kept.store.put("ann", digest(b"other"), 0, 100, wrong[:50])
    with pytest.raises(Mismatch):
        kept.store.put("ann", digest(b"other"), 50, 100, wrong[50:])
    assert kept.store.find("ann", digest(b"other")) is None


@pytest.mark.parametrize("first", [b"a" * 40, b"x" * 40])
def test_archive_begun_before_a_restart_is_hashed_whole(tmp_path: Path, first: bytes) -> None:
    data = b"a" * 100
    UploadStore(tmp_path / "uploads").put("ann", digest(data), 0, 100, first)
    again = UploadStore(tmp_path / "uploads")
    again.put("ann", digest(data), 40, 100, data[40:70])
    if first == data[:40]:
        assert again.put("ann", digest(data), 70, 100, data[70:]).complete
    else:
        with pytest.raises(Mismatch):
            again.put("ann", digest(data), 70, 100, data[70:])


def test_archive_that_another_process_wrote_to_is_hashed_whole(tmp_path: Path) -> None:
    one, two = UploadStore(tmp_path / "uploads"), UploadStore(tmp_path / "uploads")
    data = b"a" * 100
    one.put("ann", digest(data), 0, 100, data[:40])
    two.put("ann", digest(data), 40, 100, b"x" * 20)
    with pytest.raises(Mismatch):
        one.put("ann", digest(data), 60, 100, data[60:])


def test_slow_sync_of_one_archive_keeps_no_other_call_waiting(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, other = b"a" * 100, b"b" * 100
    whole = kept.put(b"c" * 10)
    begun, go_on = threading.Event(), threading.Event()

    def slow(_fd: int) -> None:
        begun.set()
        assert go_on.wait(60)

    with ThreadPoolExecutor(2) as threads, monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", slow)
        putting = threads.submit(kept.store.put, "ann", digest(data), 0, 100, data)
        try:
            assert begun.wait(60)
            patch.undo()

            def rest() -> None:
                with kept.store.held("ann", whole):
                    kept.store.of_owner("ann")
                for change in (
                    lambda: kept.store.put("ann", digest(data), 0, 100, data),
                    lambda: kept.store.going("ann", digest(data)).__enter__(),
                ):
                    with pytest.raises(Conflict, match="is just being"):
                        change()
                kept.store.put("ann", digest(other), 0, 100, other)
                kept.store.collect({("ann", whole)})
                with kept.store.going("ann", whole):
                    kept.store.remove("ann", whole)

            threads.submit(rest).result(30)
            assert not putting.done()
        finally:
            go_on.set()
        assert putting.result(30).complete
