"""The state of a scheduler that leads others: a batch is in the log before it is in the file, and in the file before
anything follows from it.
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

_HISTORY: Final = "history"  # which log a state follows
_BEGUN: Final = "history_begun"  # which one it was about to begin


class Follower:
    """A state that takes over what the log has. Only for one thread."""

    def __init__(self, local: SqliteStore, log: Log, client: KazooClient, place: Place) -> None:
        """`local`: opened without its mark; the log says whether it is the newest."""
        self.local, self.log = local, log
        self._client, self._place = client, place

    def join(self) -> bool:
        """Hold the state against the log that is there; False: there is none yet, and any state may begin it.

        Raises:
            BadConfiguration: The state is of another history, or misses what the log has no more.
            Unavailable: ZooKeeper does not answer.
        """
        try:
            history = self._read(at.HISTORY)
            base = int(self._read(at.BASE) or 0)
            key = self._read(at.KEY)
        except AWAY as error:
            raise _away(error) from error
        own, begun = self.local.fact(_HISTORY) or None, self.local.fact(_BEGUN)
        if history is None or key is None:
            if own is not None:
                raise BadConfiguration(
                    f"ZooKeeper has nothing of the log that this state follows ({self._place})",
                    remedy="is --ha the right one? If ZooKeeper lost it: start the scheduler that led last once with "
                    "--ha-begin-anew, and the others with copies of its state",
                )
            return False
        if own is None and self.local.batch and begun != history.decode():
            raise self._strange("this state was written without that log")
        if own is not None and own != history.decode():
            raise self._strange("this state follows another log")
        if self.local.batch < base:
            raise self._strange(f"this state has {self.local.batch} batches, and the log begins after {base}")
        if self.local.batch > self.log.last():
            raise self._strange("this state has batches that the log has not")
        self.local.follow(key, {_HISTORY: history.decode()})
        return True

    def _strange(self, what: str) -> BadConfiguration:
        return BadConfiguration(
            f"{what} ({self._place})",
            remedy="stop this scheduler, move its --state files away, and put a copy of the leader's in their place: "
            "mesos-gpu backup there",
        )

    def leave(self) -> None:
        """Follow no log any more, so that this state may begin another one. Only where there is none.

        Raises:
            BadConfiguration: There is one.
            Unavailable: ZooKeeper does not answer.
        """
        try:
            there = self._read(at.HISTORY)
        except AWAY as error:
            raise _away(error) from error
        if there is not None:
            raise BadConfiguration(
                f"--ha-begin-anew: {self._place} has a log of schedulers",
                remedy="leave --ha-begin-anew out; or, if its log is to be given up, stop all schedulers and remove "
                "that path in ZooKeeper",
            )
        self.local.follow(self.local.key(), {_HISTORY: "", _BEGUN: ""})

    def begin(self, term: int) -> None:
        """Make a log that goes on from this state; only for who leads.

        Raises:
            Unavailable: ZooKeeper does not answer, or there is one, or another leads.
        """
        history = self.local.fact(_BEGUN) or secrets.token_hex(16)
        self.local.follow(self.local.key(), {_BEGUN: history})  # its answer may be lost
        made = self._client.transaction()
        made.check(self._place.of(at.LEADER), term)
        made.create(self._place.of(at.HISTORY), history.encode())
        made.create(self._place.of(at.KEY), self.local.key())
        made.create(self._place.of(at.BASE), b"%d" % self.local.batch)
        try:
            results = made.commit_async().get(timeout=ANSWER_S)
        except AWAY as error:
            raise _away(error) from error
        if any(isinstance(each, NodeExistsError) for each in results):
            raise Unavailable("another scheduler has begun the log", remedy="start this one anew")
        for each in results:
            if isinstance(each, Exception):
                raise _away(each)
        self.local.follow(self.local.key(), {_HISTORY: history})

    def take_over(self, most: int = 1000, told: Callable[[Save], None] = lambda _: None) -> int:
        """Take over what the log has more than the state, `most` batches at most; how many. `told`: of each save, when
        it is on disk.

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
    """`Store` of the leader of a term."""

    def __init__(self, local: SqliteStore, log: Log, term: int) -> None:
        """`local`: it has all that the log has. `term`: as `Election.take` gave it."""
        self._local, self._log, self._term = local, log, term
        self._owed_at = -1e9  # when something that was decided was known last not to be written yet
        self._owes = False

    def load(self) -> Saved:
        """Everything."""
        return self._local.load()

    def events(self) -> Sequence[LogEvent]:
        """The events that are kept, by number."""
        return self._local.events()

    def key(self) -> bytes:
        """What secrets of launches are made of: the same in all schedulers of a place."""
        return self._local.key()

    def save(self, batch: Iterable[Save]) -> None:
        """Write a batch to the log, then to the file.

        Raises:
            NoRoom: ZooKeeper does not answer, or the disk is full; the same batch is to be given again.
            Deposed: Another scheduler was elected.
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
        """Whether at any time since then something was decided that could not be written: what is read does not show
        it, and it will be done all the same. From any thread; by `since_boot`."""
        return self._owes or self._owed_at >= since

    def confirm(self) -> None:
        """See that this one leads still.

        Raises:
            NoRoom: ZooKeeper does not answer.
            Deposed: Another scheduler was elected.
        """
        self._log.confirm(self._term)

    def close(self) -> None:
        """Let go of the file; the connection is another's."""
        self._local.close()


def _away(error: BaseException) -> Unavailable:
    return Unavailable(f"ZooKeeper does not answer: {error!r}", remedy="bring its quorum back")


def since_boot() -> float:
    """Seconds since the host was booted, those in which it slept, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
