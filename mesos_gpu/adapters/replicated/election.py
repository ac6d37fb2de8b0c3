"""Who of several schedulers leads: the one that stood for it first of those whose sessions live.

Who leads writes its word, and the version of that is its term: what a leader of an earlier term writes is refused.
"""

import secrets
import threading
from collections.abc import Callable
from typing import Any, Final

import msgspec
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.states import WatchedEvent

from mesos_gpu.adapters.replicated import place as at
from mesos_gpu.adapters.replicated.place import ANSWER_S, AWAY, Place
from mesos_gpu.errors import Unavailable

FORGOTTEN_S: Final = 86400.0  # a scheduler that was not seen for so long is waited for no more
_CANDIDATE: Final = "c-"


class Member(msgspec.Struct, frozen=True):
    """A scheduler: where it is reached, and the last batch that its state has."""

    url: str
    applied: int = 0
    run: str = ""  # of its process


class Election:
    """This scheduler's part in it.

    Attributes:
        run: Of this process.
        url: Where it is reached by others.
        lost: Set when its session ends: it may be led by another then.
        stands: Whether it is in the line, as was seen last.
    """

    def __init__(self, client: KazooClient, place: Place, url: str) -> None:
        """Nothing is written yet. `url`: where this scheduler is reached by others."""
        self._client, self._place = client, place
        self.run, self.url = secrets.token_hex(16), url
        self._name, self.stands = "", False
        self.lost = threading.Event()
        client.add_listener(self._heard)

    def _heard(self, state: str) -> None:
        if state == KazooState.LOST:
            self.lost.set()

    def stand(self) -> None:
        """Be a candidate, the last in the line.

        Raises:
            Unavailable: ZooKeeper does not answer.
        """
        try:
            self._name = self._own_name() or self._added()
        except AWAY as error:
            raise _away(error) from error
        self.stands = True

    def _own_name(self) -> str:
        """The candidate that this session has made already, by a request whose answer did not arrive; "": none.

        One of this process whose session has ended may be there still: a server that was cut off from the others ends
        sessions that those keep for some seconds. It goes with its session, and so does the place in the line.
        """
        for name, member, owner in self._line():
            if member.run == self.run and owner == (self._client.client_id or (0,))[0]:
                return name
        return ""

    def _added(self) -> str:
        path: str = self._client.create_async(
            self._place.of(at.ELECTION, _CANDIDATE),
            msgspec.json.encode(Member(self.url, run=self.run)),
            ephemeral=True,
            sequence=True,
        ).get(timeout=ANSWER_S)
        return path.rpartition("/")[2]

    def leads(self, watch: Callable[[WatchedEvent], Any] | None = None) -> bool:
        """Whether this one is the first in the line. One that is in it no more has to stand again, and `stands` says
        so. `watch`: called once when the line changes.

        Raises:
            Unavailable: ZooKeeper does not answer.
        """
        try:
            line = self._names(watch)
        except AWAY as error:
            raise _away(error) from error
        self.stands = self._name in line
        return self.stands and line[0] == self._name

    def take(self) -> int:
        """Begin a term: from now on nobody of an earlier one can write. Its number.

        Raises:
            Unavailable: ZooKeeper does not answer, or this one is no candidate any more.
        """
        begun = self._client.transaction()
        begun.check(self._place.of(at.ELECTION, self._name), 0)
        begun.set_data(self._place.of(at.LEADER), msgspec.json.encode(Member(self.url, run=self.run)))
        try:
            candidate, word = begun.commit_async().get(timeout=ANSWER_S)
        except AWAY as error:
            raise _away(error) from error
        if isinstance(candidate, Exception) or isinstance(word, Exception):
            raise _away(candidate if isinstance(candidate, NoNodeError) else word)
        return int(word.version)

    def leader(self) -> Member | None:
        """Who leads; None: nobody does now.

        Raises:
            Unavailable: ZooKeeper does not answer.
        """
        try:
            data, _ = self._client.get_async(self._place.of(at.LEADER)).get(timeout=ANSWER_S)
            first = next(iter(self._line()), None)
        except AWAY as error:
            raise _away(error) from error
        if not data or first is None:
            return None
        word = msgspec.json.decode(data, type=Member)
        return word if word.run == first[1].run else None

    def candidates(self) -> int:
        """How many schedulers stand, who leads among them.

        Raises:
            Unavailable: ZooKeeper does not answer.
        """
        try:
            return len(self._names(None))
        except AWAY as error:
            raise _away(error) from error

    def note(self, applied: int) -> None:
        """Say how far this scheduler's state is.

        Raises:
            Unavailable: ZooKeeper does not answer.
        """
        path = self._place.of(at.MEMBERS, self.url.replace("/", "_"))
        data = msgspec.json.encode(Member(self.url, applied, self.run))
        try:
            try:
                self._client.set_async(path, data).get(timeout=ANSWER_S)
            except NoNodeError:
                self._client.create_async(path, data).get(timeout=ANSWER_S)
        except NodeExistsError:
            return  # two that say they are the same: the other has just said it
        except AWAY as error:
            raise _away(error) from error

    def members(self) -> list[Member]:
        """Every scheduler that was seen of late, by its address.

        Raises:
            Unavailable: ZooKeeper does not answer.
        """
        seen = self._seen()
        newest = max((at_s for at_s, _ in seen), default=0.0)  # by ZooKeeper's clock alone
        lately = [member for at_s, member in seen if newest - at_s < FORGOTTEN_S]
        return sorted(lately, key=lambda member: member.url)

    def slowest(self) -> int | None:
        """The last batch that every scheduler has that was seen of late; None: none was.

        Raises:
            Unavailable: ZooKeeper does not answer.
        """
        return min((member.applied for member in self.members()), default=None)

    def _seen(self) -> list[tuple[float, Member]]:
        """All that there are, and when each was, by ZooKeeper's clock."""
        seen = []
        try:
            for name in self._client.get_children_async(self._place.of(at.MEMBERS)).get(timeout=ANSWER_S):
                try:
                    data, stat = self._client.get_async(self._place.of(at.MEMBERS, name)).get(
                        timeout=ANSWER_S
                    )
                except NoNodeError:
                    continue  # it was removed meanwhile
                seen.append((stat.last_modified, msgspec.json.decode(data, type=Member)))
        except AWAY as error:
            raise _away(error) from error
        return seen

    def _names(self, watch: Callable[[WatchedEvent], Any] | None) -> list[str]:
        names: list[str] = self._client.get_children_async(self._place.of(at.ELECTION), watch).get(
            timeout=ANSWER_S
        )
        return sorted(names)

    def _line(self) -> list[tuple[str, Member, int]]:
        """The names of candidates, what they say, and the sessions that they live with, the first first."""
        line = []
        for name in self._names(None):
            try:
                data, stat = self._client.get_async(self._place.of(at.ELECTION, name)).get(timeout=ANSWER_S)
            except NoNodeError:
                continue  # it has just gone
            line.append((name, msgspec.json.decode(data, type=Member), int(stat.ephemeralOwner)))
        return line


def _away(error: BaseException) -> Unavailable:
    return Unavailable(f"ZooKeeper does not answer: {error!r}", remedy="bring its quorum back")
