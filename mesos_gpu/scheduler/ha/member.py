"""This scheduler as one of several: it follows the replicated log until it is elected, and leads until deposed."""

import logging
import threading
import time
from pathlib import Path
from typing import Any, Final

from mesos_gpu.adapters.replicated import place as at
from mesos_gpu.adapters.replicated.election import Election
from mesos_gpu.adapters.replicated.log import MAX_KEPT, Log, NotLeader
from mesos_gpu.adapters.replicated.place import Place
from mesos_gpu.adapters.replicated.store import Follower, ReplicatedStore, since_boot
from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.api.peers import Leadership
from mesos_gpu.api.standby.passing import Leader
from mesos_gpu.errors import NoRoom, Unavailable
from mesos_gpu.model import saves
from mesos_gpu.scheduler.ha.copy import Copy

logger = logging.getLogger("mesos_gpu.scheduler")
LOOK_S: Final = 1.0  # interval of checks of the log and the election if no watch fires
NOTE_S: Final = 5.0  # interval of reports of the replicated batch
CUT_S: Final = 30.0  # interval of truncations of the log
#: Lease: within this time after ZooKeeper confirmed the leader no other can lead. Shorter than a session, because the
#: clocks of hosts differ in speed.
LEASE_S: Final = 0.75 * at.SESSION_S
SPARED: Final = 500  # batches that stay in the log although all schedulers have them
_RIGHTS: Final = (saves.SaveAccess, saves.SaveToken, saves.ForgetToken)


class Member:
    """A scheduler among several. `follow`, `take` and `tend` are for one thread; the rest for any.

    Args:
        place: ZooKeeper servers and path where the schedulers meet.
        url: URL at which the other schedulers reach this one.
        state: Path of the local state file.
        begins_anew: Whether to detach the state from the log that it followed, to begin a new log.

    Raises:
        Unavailable: ZooKeeper does not answer.
        BadConfiguration: The path in ZooKeeper belongs to another cluster.
        Conflict, Damaged: Raised by `SqliteStore`.
    """

    def __init__(self, place: Place, url: str, state: Path, *, begins_anew: bool = False) -> None:
        self.url, self._place = url, place
        self.local = SqliteStore(state, replicated=True)
        try:
            self._client = at.connected(place)
        except BaseException:
            self.local.close()
            raise
        self.log, self.election = Log(self._client, place), Election(self._client, place, url)
        self._follower = Follower(self.local, self.log, self._client, place)
        if begins_anew:
            try:
                self._follower.leave()
            except BaseException:
                self.close()
                raise
        self.leader: Leader | None = None  # as last known
        self.key = b""  # key of launch secrets, shared by all schedulers; empty until this one has joined
        self.leads = False
        self._copy: Copy | None = None
        self._has_joined = self._rights_changed = False
        self._wake, self._over = threading.Event(), threading.Event()
        self._noted_at = self._cut_at = -1e9
        self._away = ""  # why ZooKeeper does not answer; "" if it does
        self._term = self._candidates = 0
        self._store: ReplicatedStore | None = None  # while it leads
        self._led_at = -1e9  # when the last request was sent by which ZooKeeper confirmed that this one leads

    # --- while it stands by

    def follow(self, copy: Copy, stop: threading.Event) -> bool:
        """Replicate what the leader writes until this scheduler is elected; return False if `stop` was set.

        Raises:
            BadConfiguration: The local state cannot follow the cluster's log.
            Damaged: A batch of the log cannot be read.
        """
        self._copy = copy
        while not stop.is_set():
            self._wake.clear()
            try:
                if self._is_elected(copy):
                    return True
                self._answered()
            except (NoRoom, Unavailable) as error:
                self._unanswered(error)
                copy.follow(None)
            copy.connected = self.leader is not None and not self._away
            self._wake.wait(0.1 if copy.is_behind else LOOK_S)
        return False

    def _is_elected(self, copy: Copy) -> bool:
        """Replicate new batches, stand for election, and return whether this scheduler was elected."""
        if self.election.lost.is_set():  # the session ended, and its candidacy with it
            self.election.lost.clear()
            self.election.stands = False
        if not self._has_joined and self._follower.join():
            self._has_joined, self.key = True, self.local.key()
        complete_at = self._take_over() if self._has_joined else None
        copy.follow(complete_at, urgent=self._rights_changed)
        self._rights_changed = False
        if not self.election.stands:
            self.election.stand()
        if self.election.leads(self._changed):
            return True
        word = self.election.leader()
        self.leader = Leader(word.url, word.run) if word and self._has_joined else None
        self._note()
        return False

    def _take_over(self) -> float | None:
        """Replicate all new batches; return the monotonic time at which the log had no more."""
        while True:
            if self._follower.take_over(told=self._see):
                continue
            now = time.monotonic()
            if self.log.read(self.local.batch + 1, self._changed) is None:
                return now

    def _see(self, save: saves.Save) -> None:
        self._rights_changed = self._rights_changed or isinstance(save, _RIGHTS)

    def _changed(self, _event: Any) -> None:
        self._wake.set()

    def take(self, stop: threading.Event) -> ReplicatedStore | None:
        """Begin a term with all that was written before; return None if another was elected or `stop` is set.

        Raises:
            BadConfiguration, Damaged: See `follow`.
        """
        while not stop.is_set():
            try:
                if not self.election.leads():
                    return None
                self._term = self.election.take()
                if not self._follower.join():
                    self._follower.begin(self._term)
                while self._follower.take_over():
                    pass
                self._candidates = self.election.candidates()
                self._note()
                self._confirm()
                self.leads, self.leader = True, Leader(self.url, self.election.run)
                self._store = ReplicatedStore(self.local, self.log, self._term)
                return self._store
            except NotLeader:
                return None
            except (NoRoom, Unavailable) as error:
                self._unanswered(error)
                stop.wait(LOOK_S)
        return None

    # --- while it leads

    def tend(self, stop: threading.Event) -> None:
        """Check that this scheduler still leads, report its progress and truncate the log, until `stop` or
        deposition."""
        while not stop.is_set() and not self._over.is_set():
            try:
                if self.election.lost.is_set():
                    self._end("its session with ZooKeeper ended")
                elif not self._is_leader():
                    self._end("another was elected")
                else:
                    self._candidates = self.election.candidates()
                    self._confirm()
                    self._note()
                    self._cut()
                self._answered()
            except NotLeader as error:
                self._end(error.what)
            except (NoRoom, Unavailable) as error:
                self._unanswered(error)
            stop.wait(LOOK_S)

    def _confirm(self) -> None:
        asked_at = since_boot()
        self.log.confirm(self._term)
        self._led_at = asked_at

    def unsure_s(self, since: float) -> float | None:
        """Return for how many seconds another scheduler may have led, because ZooKeeper was not reached; from any
        thread.

        None if no other can lead and all decisions since the time `since` (by `since_boot`) have been written.
        """
        heard_s = since_boot() - self._led_at
        owes = self._store is not None and self._store.owes(since)
        return heard_s if owes or heard_s >= LEASE_S or self._over.is_set() else None

    def _is_leader(self) -> bool:
        word = self.election.leader()
        return word is not None and word.run == self.election.run

    def _cut(self) -> None:
        now = time.monotonic()
        if now - self._cut_at < CUT_S:
            return
        self._cut_at = now
        last, slowest = self.local.batch, self.election.slowest()
        up_to = max(min(last if slowest is None else slowest, last - SPARED), last - MAX_KEPT)
        if up_to > self.log.base():
            logger.info(
                "removed %d replicated nodes of the log in ZooKeeper", self.log.cut(up_to, self._term)
            )

    def _end(self, why: str) -> None:
        if not self._over.is_set():
            logger.warning(
                "this scheduler is no longer the leader: %s; it exits, and stands by when it is restarted",
                why,
            )
        self._over.set()

    @property
    def is_over(self) -> bool:
        """Whether this scheduler led and no longer does."""
        return self._over.is_set() or (self.leads and self.election.lost.is_set())

    def was_deposed(self) -> bool:
        """Return whether this scheduler no longer leads, for use when its end has begun: Mesos may report another
        first.

        ZooKeeper is asked once; if it does not answer, the last known state counts.
        """
        try:
            if not self.is_over:
                self.log.confirm(self._term)
        except NotLeader as error:
            self._end(error.what)
        except NoRoom as error:
            self._unanswered(error)
        return self.is_over

    # --- for all

    def _note(self) -> None:
        now = time.monotonic()
        if now - self._noted_at >= NOTE_S:
            self.election.note(self.local.batch)
            self._noted_at = now

    def _answered(self) -> None:
        if self._away:
            logger.warning("ZooKeeper answers again")
        self._away = ""

    def _unanswered(self, error: NoRoom | Unavailable) -> None:
        if not self._away:
            logger.error("%s; %s", error.what, error.remedy)
        self._away = error.what

    @property
    def leader_url(self) -> str | None:
        """URL of the leader, see `Peers`; None without a leader."""
        return self.leader.url if self.leader else None

    @property
    def standbys(self) -> int | None:
        """Number of standbys, see `Peers`; None if not known. For the leader only."""
        return None if self._away else max(0, self._candidates - 1)

    def abdicate(self) -> None:
        """Give up leadership, see `Peers`."""
        self._end("a user requested that another scheduler lead")

    def told(self) -> Leadership:
        """Return the leadership report, see `Peers`."""
        leader, away, members, candidates = self.leader_url, self._away, list[Any](), 0
        try:
            word = self.election.leader()
            leader = word.url if word else None
            members, candidates = self.election.members(), self.election.candidates()
        except Unavailable as error:
            away = error.what
        copy = self._copy
        return {
            "leader": leader,
            "here": self.url,
            "leads": self.leads,
            "age_s": None if self.leads or copy is None else copy.age_s(),
            "batch": self.local.batch,
            "candidates": candidates,
            "schedulers": [
                {
                    "url": member.url,
                    "leads": member.url == leader,
                    "here": member.url == self.url,
                    "applied": member.applied,
                }
                for member in members
            ],
            "zookeeper": away or None,
        }

    def close(self) -> None:
        """Withdraw the candidacy, so that another is elected at once, and close the connection and the store."""
        at.close(self._client)
        self.local.close()
