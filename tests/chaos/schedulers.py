"""Two schedulers of one cluster, whose election and log are the product's code on a ZooKeeper in memory.

The engine of the leader is that of `World`; a paused scheduler keeps the state that it had.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from kazoo.client import KazooClient

from mesos_gpu.adapters.replicated import place as at
from mesos_gpu.adapters.replicated.election import Election
from mesos_gpu.adapters.replicated.log import Log, NotLeader
from mesos_gpu.adapters.replicated.place import Place
from mesos_gpu.adapters.replicated.store import Follower, ReplicatedStore
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.state import State
from mesos_gpu.errors import NoRoom
from mesos_gpu.model.saves import Save, Saved
from tests.chaos.violation import Violation
from tests.doubles.memory_store import MemoryStore
from tests.doubles.virtual_zookeeper import Session, VirtualZooKeeper

PLACE: Final = Place("zk:2181", "/chaos")
FENCED: Final = "a deposed scheduler writes nothing"
TAKEN_OVER: Final = "the next leader has all that was answered"
_MAX_TRIES: Final = 20  # tries of a write while ZooKeeper does not answer


class Replica(MemoryStore):
    """The local store of a scheduler, which follows a log."""

    def __init__(self, saved: Saved | None = None, batch: int = 0) -> None:
        """Begin with a saved state and the number of its last batch."""
        super().__init__(saved)
        self.batch, self.facts, self._key = batch, dict[str, str](), b"k" * 32

    def save(self, batch: Sequence[Save]) -> None:  # type: ignore[override]
        """Commit and count a batch."""
        super().save(batch)
        self.batch += 1

    def key(self) -> bytes:
        """Return the key from which secrets of launches are derived."""
        return self._key

    def fact(self, name: str) -> str | None:
        """Return a named fact that is stored beside the state, or None."""
        return self.facts.get(name)

    def follow(self, key: bytes, facts: dict[str, str]) -> None:
        """Store a key and facts beside the state."""
        self._key = key
        self.facts |= facts


class Scheduler:
    """A scheduler of a pair, without its engine."""

    def __init__(self, name: str, servers: VirtualZooKeeper, local: Replica) -> None:
        """Create a scheduler that takes part in the election."""
        self.name, self.local, self._servers = name, local, servers
        self.begin()

    def begin(self) -> None:
        """Start its process with a new session, as the last candidate of the election."""
        self.session: Session = self._servers.session()
        client = cast(KazooClient, self.session)
        self.log, self.election = Log(client, PLACE), Election(client, PLACE, self.name)
        self._follower = Follower(cast(SqliteStore, self.local), self.log, client, PLACE)
        self.store: ReplicatedStore | None = None
        self.election.stand()

    def lead(self) -> None:
        """Begin a term as leader, as `Member.take` does."""
        term = self.election.take()
        if not self._follower.join():
            self._follower.begin(term)
        while self._follower.take_over():
            pass
        self.store = ReplicatedStore(cast(SqliteStore, self.local), self.log, term)

    def write(self, batch: list[Save]) -> None:
        """Write a batch, or confirm the lead if the batch is empty.

        Raises:
            NoRoom: ZooKeeper does not answer.
            NotLeader: Another scheduler was elected.
        """
        assert self.store is not None, "it has led"
        if batch:
            self.store.save(batch)
        else:
            self.store.confirm()


@dataclass(slots=True)
class Sleeper:
    """A paused leader.

    Attributes:
        scheduler: Scheduler that was paused.
        state: State of its engine.
        inbox: Received events that are not stepped yet.
        batch: Saves that it was about to write, or None if there were none.
    """

    scheduler: Scheduler
    state: State
    inbox: list[ev.Event]
    batch: list[Save] | None


class Pair:
    """Two schedulers, one of which leads."""

    def __init__(self, saved: Saved) -> None:
        """Make the leader of a single scheduler: its saved state begins the log, and a second one has a copy."""
        nodes = (PLACE.path, *(PLACE.of(name) for name in (at.ELECTION, at.LEADER, at.LOG, at.MEMBERS)))
        servers = VirtualZooKeeper("", *nodes)
        self._log = Log(
            cast(KazooClient, servers.session()), PLACE
        )  # log by a session of its own, to read it whichever scheduler leads
        self.leader = Scheduler("http://one:1", servers, Replica(saved, 1))
        self.leader.lead()
        copied = Replica(saved, 1)
        copied.facts = dict(self.leader.local.facts)
        self.other = Scheduler("http://other:1", servers, copied)
        self.sleeper: Sleeper | None = None

    def trouble(self, troubles: Sequence[str], *, expires: bool) -> None:
        """Set the faults of the leader's next writes; `expires` ends its session after them."""
        self.leader.session.troubles = [*troubles, *(["expire"] if expires else [])]

    def save(self, batch: list[Save], waits: Callable[[], None]) -> bool:
        """Write a batch of the leader, as its shell does.

        Args:
            batch: Saves of the batch.
            waits: Function that lets time pass between two tries.

        Returns:
            Whether the batch is written; otherwise the leader was deposed.

        Raises:
            Violation: The leader cannot write for too long.
        """
        for _ in range(_MAX_TRIES):
            if self.leader.session.troubles[:1] == ["expire"]:
                self.leader.session.expire()
                return False
            with contextlib.suppress(NoRoom):
                self.leader.write(batch)
                return True
            waits()
        raise Violation("a scheduler goes on when ZooKeeper is back", f"after {_MAX_TRIES} tries it has not")

    def has(self, number: int) -> bool:
        """Return whether the log has a batch of a number."""
        return self._log.last() >= number

    def switch(self) -> Scheduler:
        """End the leader's session and restart its process; return the newly elected leader."""
        old = self.leader
        old.session.expire()
        if self.sleeper is None or self.sleeper.scheduler is not old:
            old.begin()
        return self._elect()

    def pause(self, sleeper: Sleeper) -> Scheduler:
        """Pause the leader, whose session ends; return the newly elected leader."""
        self.sleeper = sleeper
        return self.switch()

    def _elect(self) -> Scheduler:
        asleep = self.sleeper.scheduler if self.sleeper else None
        awake = [each for each in (self.leader, self.other) if each is not asleep]
        leader = next(each for each in awake if each.election.leads())
        if leader is self.other:
            self.leader, self.other = self.other, self.leader
        leader.lead()
        return leader

    def wake(self, decided: Callable[[Sleeper], list[Save]]) -> None:
        """Resume the paused scheduler, which must notice that it was deposed, and restart it.

        Raises:
            Violation: It has written to the log.
        """
        sleeper, self.sleeper = self.sleeper, None
        assert sleeper is not None, "the caller has checked"
        scheduler = sleeper.scheduler
        scheduler.session.revive()
        batch = decided(sleeper) if sleeper.batch is None else sleeper.batch
        for _ in range(_MAX_TRIES):
            try:
                scheduler.write(batch)
            except NoRoom:
                continue
            except NotLeader:
                scheduler.begin()
                return
            raise Violation(FENCED, f"{scheduler.name} slept, woke, and wrote {len(batch)} saves")
        raise Violation("a scheduler goes on when ZooKeeper is back", f"after {_MAX_TRIES} tries it has not")


def same(leader: Scheduler, disk: MemoryStore) -> None:
    """Check that the leader has exactly the committed state.

    Raises:
        Violation: It lacks something, or has more.
    """
    has, should = leader.local.load(), disk.load()
    for name in Saved.__slots__:
        mine, all_of_it = getattr(has, name), getattr(should, name)
        if mine != all_of_it:
            raise Violation(TAKEN_OVER, f"{leader.name} has other {name}: {_other(mine, all_of_it)}")


def _other(mine: object, all_of_it: object) -> str:
    if not (isinstance(mine, tuple) and isinstance(all_of_it, tuple)):
        return f"{mine!r:.200}, not {all_of_it!r:.200}"
    lacks = [each for each in all_of_it if each not in mine]
    more = [each for each in mine if each not in all_of_it]
    return f"it lacks {lacks!r:.200}, and has {more!r:.200}"


def of(steps: Sequence[tuple[ev.Event, Sequence[fx.Effect]]]) -> list[fx.Effect]:
    """Return all effects of a batch of steps."""
    return [effect for _, effects in steps for effect in effects]
