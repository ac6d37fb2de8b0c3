"""State of a scheduler in a group: a batch is written to the log before the file, and to the file before it takes
effect.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from mesos_gpu.adapters.replicated import place as at
from mesos_gpu.adapters.replicated.log import Log, decoded, encoded
from mesos_gpu.adapters.replicated.place import ANSWER_S, AWAY, Place
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.errors import BadConfiguration, NoRoom, Unavailable
from mesos_gpu.model.saves import Save, Saved
from mesos_gpu.model.tasks.event import LogEvent

_HISTORY: Final = "history"  # fact with the id of the log that a state follows
_BEGUN: Final = "history_begun"  # fact with the id of a log that was about to be created


class Follower:
    """A state that applies the batches of the log. Only for one thread.

    Args:
        local: State, opened without its mark, as the log decides whether it is the latest.
        log: Log of the group.
        client: Connection to ZooKeeper.
        place: Path of the group.
    """

    def __init__(self, local: SqliteStore, log: Log, client: KazooClient, place: Place) -> None:
        self.local, self.log = local, log
        self._client, self._place = client, place

    def join(self) -> bool:
        """Check that the state fits the log. Return False if there is no log yet, so that any state may begin it.

        Raises:
            BadConfiguration: The state belongs to another log, or misses batches that the log no longer has.
            Unavailable: ZooKeeper does not answer.
        """
        try:
            history = self._read(at.HISTORY)
            base = int(self._read(at.BASE) or 0)
            key = self._read(at.KEY)
        except AWAY as error:
            raise _unavailable(error) from error
        own, begun = self.local.fact(_HISTORY) or None, self.local.fact(_BEGUN)
        if history is None or key is None:
            if own is not None:
                raise BadConfiguration(
                    f"ZooKeeper does not have the log that this state follows ({self._place})",
                    remedy="check --ha. If ZooKeeper has lost the log: start the scheduler that led last once with "
                    "--ha-begin-anew, and the others with copies of its state",
                )
            return False
        if own is None and self.local.batch and begun != history.decode():
            raise self._unfit("this state was written without that log")
        if own is not None and own != history.decode():
            raise self._unfit("this state follows another log")
        if self.local.batch < base:
            raise self._unfit(f"this state has {self.local.batch} batches, and the log begins after {base}")
        if self.local.batch > self.log.last():
            raise self._unfit("this state has batches that the log does not have")
        self.local.follow(key, {_HISTORY: history.decode()})
        return True

    def _unfit(self, what: str) -> BadConfiguration:
        return BadConfiguration(
            f"{what} ({self._place})",
            remedy="stop this scheduler, move its --state files away, and replace them by a copy of the leader's: "
            "mesos-gpu backup on the leader's host",
        )

    def leave(self) -> None:
        """Stop following a log, so that this state may begin another one. Only allowed if there is no log.

        Raises:
            BadConfiguration: There is a log.
            Unavailable: ZooKeeper does not answer.
        """
        try:
            there = self._read(at.HISTORY)
        except AWAY as error:
            raise _unavailable(error) from error
        if there is not None:
            raise BadConfiguration(
                f"--ha-begin-anew: {self._place} has a log of schedulers",
                remedy="omit --ha-begin-anew; or, to abandon that log, stop all schedulers and remove "
                "that path in ZooKeeper",
            )
        self.local.follow(self.local.key(), {_HISTORY: "", _BEGUN: ""})

    def begin(self, term: int) -> None:
        """Create a log that continues from this state; only for the leader.

        Raises:
            Unavailable: ZooKeeper does not answer, or there is a log already, or another scheduler leads.
        """
        history = self.local.fact(_BEGUN) or secrets.token_hex(16)
        # Stored first, as the answer of ZooKeeper may be lost.
        self.local.follow(self.local.key(), {_BEGUN: history})
        transaction = self._client.transaction()
        transaction.check(self._place.of(at.LEADER), term)
        transaction.create(self._place.of(at.HISTORY), history.encode())
        transaction.create(self._place.of(at.KEY), self.local.key())
        transaction.create(self._place.of(at.BASE), b"%d" % self.local.batch)
        try:
            results = transaction.commit_async().get(timeout=ANSWER_S)
        except AWAY as error:
            raise _unavailable(error) from error
        if any(isinstance(result, NodeExistsError) for result in results):
            raise Unavailable("another scheduler has begun the log", remedy="restart this one")
        for result in results:
            if isinstance(result, Exception):
                raise _unavailable(result)
        self.local.follow(self.local.key(), {_HISTORY: history})

    def take_over(self, most: int = 1000, told: Callable[[Save], None] = lambda _: None) -> int:
        """Apply batches of the log that the state lacks, at most `most`. Return their number.

        `told`: callback for each save, once it is on disk.

        Raises:
            NoRoom: ZooKeeper does not answer, or the disk is full.
            Damaged: A batch cannot be read.
        """
        for count in range(most):
            data = self.log.read(self.local.batch + 1)
            if data is None:
                return count
            saves = decoded(data)
            self.local.save(saves)
            for save in saves:
                told(save)
        return most

    def _read(self, name: str) -> bytes | None:
        try:
            data: bytes = self._client.get_async(self._place.of(name)).get(timeout=ANSWER_S)[0]
        except NoNodeError:
            return None
        return data


class ReplicatedStore:
    """`Store` of the leader during its term.

    Args:
        local: State that has all batches of the log.
        log: Log of the group.
        term: Term of the leader, as returned by `Election.take`.
    """

    def __init__(self, local: SqliteStore, log: Log, term: int) -> None:
        self._local, self._log, self._term = local, log, term
        self._owed_at = -1e9  # last time at which a decided batch was not yet written
        self._owes = False

    def load(self) -> Saved:
        """Return all saved objects."""
        return self._local.load()

    def events(self) -> Sequence[LogEvent]:
        """Return the stored events, by number."""
        return self._local.events()

    def key(self) -> bytes:
        """Return the key for secrets of launches, which all schedulers of a group share."""
        return self._local.key()

    def save(self, batch: Iterable[Save]) -> None:
        """Write a batch to the log, then to the file.

        Raises:
            NoRoom: ZooKeeper does not answer, or the disk is full; the batch must be given again.
            NotLeader: Another scheduler was elected.
        """
        saves = list(batch)
        if not saves:
            return
        try:
            self._log.append(self._local.batch + 1, encoded(saves), self._term)
            self._local.save(saves)
        except NoRoom:
            self._owes = True
            raise
        if self._owes:
            self._owed_at, self._owes = since_boot(), False

    def owes(self, since: float) -> bool:
        """Return whether a decided batch could not be written at any time since `since` (of `since_boot`).

        Answers to reads then lack it, although it will take effect. Thread-safe.
        """
        return self._owes or self._owed_at >= since

    def confirm(self) -> None:
        """Check that this scheduler still leads.

        Raises:
            NoRoom: ZooKeeper does not answer.
            NotLeader: Another scheduler was elected.
        """
        self._log.confirm(self._term)

    def close(self) -> None:
        """Close the file, but not the connection, which belongs to the caller."""
        self._local.close()


def _unavailable(error: BaseException) -> Unavailable:
    return Unavailable(f"ZooKeeper does not answer: {error!r}", remedy="restore its quorum")


def since_boot() -> float:
    """Return the seconds since the host was booted, including those of suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
