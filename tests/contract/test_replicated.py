"""Who may write what several schedulers share: the one that was elected last, each batch once, in its order."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mesos_gpu.adapters.replicated import place as at
from mesos_gpu.adapters.replicated.election import Election
from mesos_gpu.adapters.replicated.log import PART, Log, NotLeader, encoded
from mesos_gpu.adapters.replicated.place import Place
from mesos_gpu.adapters.replicated.store import Follower, ReplicatedStore, since_boot
from mesos_gpu.adapters.sqlite.copies import backup
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.errors import BadConfiguration, Damaged, NoRoom
from mesos_gpu.local.zookeeper import ZooKeeper
from mesos_gpu.model import saves
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.scheduler.ha.member import Member
from tests.conftest import wait_until


class Scheduler:
    """A scheduler among several, without what is above its state."""

    def __init__(self, place: Place, path: Path) -> None:
        self.client = at.connected(place)
        self.log, self.election = (
            Log(self.client, place),
            Election(self.client, place, f"http://{path.stem}:1"),
        )
        self.local = SqliteStore(path, replicated=True)
        self.follower = Follower(self.local, self.log, self.client, place)
        self.election.stand()

    def lead(self) -> ReplicatedStore:
        """Take the place of whoever led; the election is not asked."""
        self.term = self.election.take()
        if not self.follower.join():
            self.follower.begin(self.term)
        while self.follower.take_over():
            pass
        return ReplicatedStore(self.local, self.log, self.term)

    def close(self) -> None:
        self.local.close()
        at.close(self.client)


Make = Callable[[str], Scheduler]


@pytest.fixture
def make(meeting: str, tmp_path: Path) -> Iterator[Make]:
    made: list[Scheduler] = []

    def scheduler(name: str) -> Scheduler:
        made.append(Scheduler(at.parsed(meeting), tmp_path / f"{name}.sqlite"))
        return made[-1]

    yield scheduler
    for each in made:
        each.close()


def job(name: str, argument: str = "a") -> saves.SaveJob:
    return saves.SaveJob(Job(JobId(name), JobSpec(name, argv=(argument,), gpus=1), 1.0, 1))


def names(store: SqliteStore | ReplicatedStore) -> list[str]:
    return [each.id for each in store.load().jobs]


def test_deposed_leader_can_write_neither_log_nor_own_state(make: Make) -> None:
    first, second = make("first"), make("second")
    old = first.lead()
    old.save([job("a")])
    new = second.lead()
    with pytest.raises(NotLeader):
        old.save([job("b")])
    new.save([job("c")])
    with pytest.raises(NotLeader):
        old.save([job("b")])
    new.confirm()
    with pytest.raises(NotLeader):
        old.confirm()
    with pytest.raises(NotLeader):
        first.log.cut(1, first.term)
    assert names(old) == ["a"]
    assert names(new) == ["a", "c"]


def test_a_leader_that_has_to_end_asks_whether_another_leads(
    meeting: str, make: Make, tmp_path: Path
) -> None:
    """Mesos may tell a leader of another one while its session with ZooKeeper lives."""
    with contextlib.closing(Member(at.parsed(meeting), "http://m:1", tmp_path / "m.sqlite")) as member:
        member.election.stand()
        assert member.take(threading.Event()) is not None
        assert not member.was_deposed()
        make("second").lead()
        assert not member.is_over
        assert member.was_deposed()
        assert member.is_over


def test_replicated_write_that_failed_is_owed_until_it_succeeds(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make("first")
    store = first.lead()
    began_at = since_boot()
    assert not store.owes(began_at)

    def away(*_: object) -> None:
        raise NoRoom("ZooKeeper is away", remedy="wait")

    with monkeypatch.context() as patch:
        patch.setattr(first.log, "append", away)
        with pytest.raises(NoRoom):
            store.save([job("a")])
    assert store.owes(since_boot()), "it will be done, and is not seen yet"
    store.save([job("a")])
    assert store.owes(began_at), "who asked before may have read what was there before"
    assert not store.owes(since_boot())


def test_the_next_leader_has_what_was_written_and_the_key_of_launches(make: Make) -> None:
    first, second = make("first"), make("second")
    store = first.lead()
    for number in range(5):
        store.save([job(f"j{number}")])
    new = second.lead()
    assert new.load() == store.load()
    assert new.key() == store.key()
    assert second.local.batch == first.local.batch == 5


def test_a_batch_that_is_written_again_is_there_once_and_another_of_its_number_is_refused(make: Make) -> None:
    """The answer was lost: whether it is there was not known."""
    first = make("first")
    first.lead()
    data = encoded([job("a")])
    for _ in range(2):
        first.log.append(1, data, first.term)
    assert first.log.last() == 1
    with pytest.raises(NotLeader, match="another scheduler's"):
        first.log.append(1, encoded([job("b")]), first.term)


def test_a_batch_that_the_log_has_and_the_leaders_disk_has_not_is_taken_up_by_who_leads_next(
    make: Make,
) -> None:
    first, second = make("first"), make("second")
    first.lead()
    first.log.append(1, encoded([job("a")]), first.term)
    assert names(second.lead()) == ["a"]


def test_a_batch_larger_than_a_node_is_read_back_and_cut_with_its_parts(make: Make) -> None:
    first, second = make("first"), make("second")
    store = first.lead()
    noise = os.urandom(PART).hex()  # nothing makes it smaller
    store.save([job("large", noise)])
    store.save([job("small")])
    [large, _] = second.lead().load().jobs
    assert large.spec.argv == (noise,)
    assert second.log.cut(1, second.term) == 3
    assert (second.log.base(), second.log.last()) == (1, 2)


def test_a_follower_that_lacks_removed_log_entries_cannot_join(make: Make) -> None:
    first, second = make("first"), make("second")
    store = first.lead()
    store.save([job("a")])
    store.save([job("b")])
    first.log.cut(1, first.term)
    with pytest.raises(BadConfiguration, match="the log begins after 1"):
        second.follower.join()


def test_a_state_of_another_log_or_of_none_or_ahead_of_it_does_not_lead(make: Make, tmp_path: Path) -> None:
    alone = SqliteStore(tmp_path / "alone.sqlite")
    alone.save([job("mine")])
    alone.close()
    other = SqliteStore(tmp_path / "other.sqlite", replicated=True)
    other.follow(b"k" * 32, {"history": "another"})
    other.close()
    first, stranger = make("first"), make("other")
    with pytest.raises(BadConfiguration, match="does not have the log"):
        stranger.follower.join()
    first.lead().save([job("a")])
    with pytest.raises(BadConfiguration, match="was written without that log"):
        make("alone").follower.join()
    with pytest.raises(BadConfiguration, match="follows another log"):
        stranger.follower.join()
    first.local.save([job("by itself")])
    with pytest.raises(BadConfiguration, match="batches that the log does not have"):
        first.follower.join()


def test_a_state_that_was_alone_begins_a_log_and_others_need_its_copy(make: Make, tmp_path: Path) -> None:
    alone = SqliteStore(tmp_path / "alone.sqlite")
    alone.save([job("mine")])
    alone.close()
    assert names(make("alone").lead()) == ["mine"]
    with pytest.raises(BadConfiguration, match="mesos-gpu backup"):
        make("second").follower.join()


def test_the_log_is_cut_as_far_as_all_have_it(make: Make) -> None:
    first, second = make("first"), make("second")
    assert first.election.slowest() is None
    first.election.note(9)
    second.election.note(7)
    assert first.election.slowest() == 7
    second.election.note(8)
    assert first.election.slowest() == 8


def test_the_next_in_line_leads_when_the_session_of_the_first_ends(make: Make) -> None:
    first, second = make("first"), make("second")
    assert (first.election.leads(), second.election.leads()) == (True, False)
    assert second.election.leader() is None  # it has not begun its term
    first.lead()
    leader = second.election.leader()
    assert leader is not None
    assert leader.url == "http://first:1"
    assert second.election.candidates() == 2
    at.close(first.client)
    assert second.election.leads()
    assert second.election.leader() is None


def test_candidate_with_a_new_session_stands_despite_its_former_node(make: Make, meeting: str) -> None:
    """A server that was cut off from the others ends a session that those keep for some seconds."""
    leader, before = make("leader"), make("before")
    place = at.parsed(meeting)
    with contextlib.closing(at.connected(place)) as client, contextlib.ExitStack() as stack:
        stack.callback(client.stop)
        again = Election(client, place, before.election.url)
        again.run = before.election.run
        for _ in range(2):  # as where the first answer does not arrive
            again.stand()
        assert again.candidates() == 3
        at.close(before.client)
        at.close(leader.client)
        assert again.leads()


def test_candidate_that_left_the_line_has_to_stand_again(make: Make) -> None:
    one, other = make("one"), make("other")
    place = one.election._place
    [name] = [each for each, member, _ in other.election._line() if member.run == other.election.run]
    one.client.delete(place.of(at.ELECTION, name))
    assert (other.election.leads(), other.election.stands) == (False, False)
    other.election.stand()
    at.close(one.client)
    assert (other.election.leads(), other.election.stands) == (True, True)


def test_replicated_store_waits_for_zookeeper_with_the_same_batch(make: Make, zookeeper: ZooKeeper) -> None:
    first = make("first")
    store = first.lead()
    store.save([job("a")])
    zookeeper.kill(signal.SIGSTOP)
    try:
        with pytest.raises(NoRoom, match="ZooKeeper does not store"):
            store.save([job("b")])
        assert names(store) == ["a"]
    finally:
        zookeeper.kill(signal.SIGCONT)

    def written() -> bool:
        try:
            store.save([job("b")])
        except NoRoom:
            return False
        return True

    wait_until("it is written", written)
    assert names(store) == ["a", "b"]
    assert (first.log.last(), first.local.batch) == (2, 2)


def test_a_batch_of_a_later_version_is_not_guessed_at(make: Make) -> None:
    first, second = make("first"), make("second")
    first.lead()
    first.log.append(1, b"no batch", first.term)
    with pytest.raises(Damaged, match="leader's version of mesos_gpu"):
        second.lead()


def test_zookeeper_nodes_of_a_user_are_closed_to_others(meeting: str) -> None:
    owned = meeting.replace("zk://", "zk://ann:word@")
    client = at.connected(at.parsed(owned))
    at.close(client)
    with pytest.raises(BadConfiguration, match="not open to the user"):
        at.connected(at.parsed(meeting.replace("zk://", "zk://bob:word@")))


def test_a_place_that_everybody_could_have_made_is_not_believed(meeting: str) -> None:
    at.close(at.connected(at.parsed(meeting)))
    with pytest.raises(BadConfiguration, match="can be changed by other users"):
        at.connected(at.parsed(meeting.replace("zk://", "zk://ann:word@")))


def test_a_copy_of_the_leaders_state_follows_where_the_log_was_cut(make: Make, tmp_path: Path) -> None:
    first = make("first")
    store = first.lead()
    for name in "abc":
        store.save([job(name)])
    first.log.cut(3, first.term)
    with pytest.raises(BadConfiguration, match="the log begins after 3"):
        make("empty").follower.join()
    backup(tmp_path / "first.sqlite", tmp_path / "copy.sqlite")
    store.save([job("d")])
    copy = make("copy")
    assert copy.follower.join()
    assert (copy.follower.take_over(), names(copy.local)) == (1, ["a", "b", "c", "d"])


def test_a_state_whose_log_was_lost_begins_another_one_if_that_is_asked_for(make: Make, meeting: str) -> None:
    first = make("first")
    first.lead().save([job("a")])
    with pytest.raises(BadConfiguration, match="--ha-begin-anew"):
        first.follower.leave()  # there is a log
    before = first.local.fact("history")
    place = at.parsed(meeting)
    first.client.delete(place.path, recursive=True)
    at.close(at.connected(place))  # which makes what is always there
    first.election.stand()
    with pytest.raises(BadConfiguration, match="--ha-begin-anew"):
        first.follower.join()
    first.follower.leave()
    first.lead().save([job("b")])
    assert names(first.local) == ["a", "b"]
    assert first.local.fact("history") not in (None, "", before)
    assert first.log.base() == 1
