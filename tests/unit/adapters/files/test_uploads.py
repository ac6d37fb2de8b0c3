"""The store of archives: quotas, what is removed when, and what a restart finds."""

import hashlib
from pathlib import Path

import pytest

from mesos_gpu.adapters.uploads.store import GRACE_S, KEEP_S, OutOfPlace, UploadLimits, UploadStore
from mesos_gpu.errors import BadConfiguration, Conflict, NotFound, TooMuch
from mesos_gpu.testing.fake_driver import FakeClock


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Kept:
    """A store whose clock is the test's; what is used is noted by that clock."""

    def __init__(self, directory: Path) -> None:
        self.clock = FakeClock()
        self.store = UploadStore(directory, UploadLimits(archive_bytes=100, owner_bytes=250), self.clock.now)

    def put(self, data: bytes, owner: str = "ann") -> str:
        name = digest(data)
        assert self.store.put(owner, name, 0, len(data), data).complete
        self.store.touch(owner, name)
        return name


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "uploads")


def test_it_is_private_and_found_again(tmp_path: Path, kept: Kept) -> None:
    name = kept.put(b"a" * 10)
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "uploads").rglob("*")} == {0}
    again = UploadStore(tmp_path / "uploads")
    there = again.find("ann", name)
    assert there is not None
    assert (there.received, there.complete) == (10, True)
    assert again.find("bob", name) is None
    with pytest.raises(NotFound):
        again.touch("bob", name)


def test_an_owner_has_so_much_and_what_jobs_do_not_need_goes_when_room_is_needed(kept: Kept) -> None:
    old, needed = kept.put(b"a" * 100), kept.put(b"b" * 100)
    third = b"c" * 100
    kept.store.make_room("ann", {needed}, 100)
    with pytest.raises(TooMuch, match="take 0 MiB of 0, and 2 of"):
        kept.store.put("ann", digest(third), 0, 100, third)
    kept.clock.time += GRACE_S + 1
    kept.store.make_room("ann", {needed}, 100)
    kept.put(third)
    assert kept.store.find("ann", old) is None
    assert kept.store.find("ann", needed) is not None
    kept.put(third, "bob")


def test_one_larger_than_it_may_be_is_refused_at_its_first_byte(kept: Kept) -> None:
    with pytest.raises(TooMuch, match="0 are taken"):
        kept.store.put("ann", "0" * 64, 0, 101, b"x")
    with pytest.raises(TooMuch):
        kept.store.put("ann", "0" * 64, 0, 0, b"")


def test_what_no_job_needs_is_removed_after_a_time_and_pieces_soon(kept: Kept) -> None:
    unused, needed = kept.put(b"a"), kept.put(b"b")
    assert kept.store.collect({("ann", needed)}) == 0
    kept.clock.time += KEEP_S + 1
    assert kept.store.collect({("ann", needed), ("bob", unused)}) == 1
    assert [each.digest for each in kept.store.of_owner("ann")] == [needed]


def test_a_piece_that_does_not_follow_says_where_to_go_on(kept: Kept) -> None:
    data = b"abcdef"
    kept.store.put("ann", digest(data), 0, 6, b"abc")
    with pytest.raises(OutOfPlace) as caught:
        kept.store.put("ann", digest(data), 0, 6, b"abc")
    assert caught.value.received == 3
    assert kept.store.put("ann", digest(data), 3, 6, b"def").complete
    assert kept.store.put("ann", digest(data), 0, 6, b"abc").complete, "it is there already"


def test_names_that_would_lead_elsewhere_stay_in_it(tmp_path: Path, kept: Kept) -> None:
    kept.put(b"x", "../../etc")
    assert [path.name for path in tmp_path.iterdir()] == ["uploads"]
    assert kept.store.find("ann", "../../etc/passwd") is None
    with pytest.raises(ValueError, match="not the SHA-256"):
        kept.store.put("ann", "../x", 0, 1, b"x")


def test_a_link_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "uploads").symlink_to("there")
    with pytest.raises(BadConfiguration, match="link"):
        UploadStore(tmp_path / "uploads")


def test_what_is_about_to_be_needed_is_not_removed_and_what_is_being_removed_is_not_there(kept: Kept) -> None:
    name = kept.put(b"a" * 10)
    with kept.store.held("ann", name), kept.store.held("ann", name):
        with pytest.raises(Conflict, match="just being taken"), kept.store.going("ann", name):
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
