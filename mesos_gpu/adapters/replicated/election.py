"""Election of the leading scheduler: the candidate that registered first among those with a live session.

The leader writes a node whose version is its term: writes of leaders of earlier terms are refused.
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

FORGOTTEN_S: Final = 86400.0  # after which a scheduler that was not seen counts as gone
_CANDIDATE: Final = "c-"


class Member(msgspec.Struct, frozen=True):
    """A scheduler: its URL, and the last batch in its state."""

    url: str
    applied: int = 0
    run: str = ""  # id of its process


class Election:
    """This scheduler's part in the election.

    Args:
        client: Connection to ZooKeeper.
        place: Path of the schedulers in ZooKeeper.
        url: URL of this scheduler for the others.

    Attributes:
        run: Id of this process.
        url: URL of this scheduler for the others.
        lost: Set when the session has ended, so that another scheduler may lead.
        stands: Whether this scheduler was a candidate when last checked.
    """

    def __init__(self, client: KazooClient, place: Place, url: str) -> None:
        self._client, self._place = client, place
        self.run, self.url = secrets.token_hex(16), url
        self._name, self.stands = "", False
        self.lost = threading.Event()
        client.add_listener(self._on_session_state)

    def _on_session_state(self, state: str) -> None:
        if state == KazooState.LOST:
            self.lost.set()

    def stand(self) -> None:
        """Become a candidate, the last in order.

        Raises:
            Unavailable: ZooKeeper does not answer.
        """
        try:
            self._name = self._own_name() or self._added()
        except AWAY as error:
            raise _unavailable(error) from error
        self.stands = True

    def _own_name(self) -> str:
        """Return the candidate node that this session has already created, by a request whose answer was lost; "" if
        none.

        A candidate of this process with an ended session may still exist: a server that was cut off from the others
        ends sessions that the others keep for some seconds. It disappears with its session, and so does its rank.
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
        """Return whether this scheduler is the first candidate.

        `stands` becomes false if it is not a candidate any more, so that `stand` must be called again. `watch`: called
        once when the candidates change.

        Raises:
            Unavailable: ZooKeeper does not answer.
        """
        try:
            line = self._names(watch)
        except AWAY as error:
            raise _unavailable(error) from error
        self.stands = self._name in line
        return self.stands and line[0] == self._name

    def take(self) -> int:
        """Begin a term, from which on leaders of earlier terms cannot write. Return its number.

        Raises:
            Unavailable: ZooKeeper does not answer, or this scheduler is not a candidate any more.
        """
        transaction = self._client.transaction()
        transaction.check(self._place.of(at.ELECTION, self._name), 0)
        transaction.set_data(self._place.of(at.LEADER), msgspec.json.encode(Member(self.url, run=self.run)))
        try:
            candidate, word = transaction.commit_async().get(timeout=ANSWER_S)
        except AWAY as error:
            raise _unavailable(error) from error
        if isinstance(candidate, Exception) or isinstance(word, Exception):
            raise _unavailable(candidate if isinstance(candidate, NoNodeError) else word)
        return int(word.version)

    def leader(self) -> Member | None:
        """Return the leading scheduler; None if there is no leader now.

        Raises:
            Unavailable: ZooKeeper does not answer.
        """
        try:
            data, _ = self._client.get_async(self._place.of(at.LEADER)).get(timeout=ANSWER_S)
            first = next(iter(self._line()), None)
        except AWAY as error:
            raise _unavailable(error) from error
        if not data or first is None:
            return None
        word = msgspec.json.decode(data, type=Member)
        return word if word.run == first[1].run else None

    def candidates(self) -> int:
        """Return the number of candidates, including the leader.

        Raises:
            Unavailable: ZooKeeper does not answer.
        """
        try:
            return len(self._names(None))
        except AWAY as error:
            raise _unavailable(error) from error

    def note(self, applied: int) -> None:
        """Publish the last batch in this scheduler's state.

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
            return  # another scheduler with this URL has just published it
        except AWAY as error:
            raise _unavailable(error) from error

    def members(self) -> list[Member]:
        """Return every scheduler that was seen recently, by URL.

        Raises:
            Unavailable: ZooKeeper does not answer.
        """
        seen = self._known_members()
        newest = max((at_s for at_s, _ in seen), default=0.0)  # only ZooKeeper's clock counts
        lately = [member for at_s, member in seen if newest - at_s < FORGOTTEN_S]
        return sorted(lately, key=lambda member: member.url)

    def slowest(self) -> int | None:
        """Return the last batch that all recently seen schedulers have; None if none was seen.

        Raises:
            Unavailable: ZooKeeper does not answer.
        """
        return min((member.applied for member in self.members()), default=None)

    def _known_members(self) -> list[tuple[float, Member]]:
        """Return all known schedulers with the time when each was last seen, by ZooKeeper's clock."""
        seen = []
        try:
            for name in self._client.get_children_async(self._place.of(at.MEMBERS)).get(timeout=ANSWER_S):
                try:
                    data, stat = self._client.get_async(self._place.of(at.MEMBERS, name)).get(
                        timeout=ANSWER_S
                    )
                except NoNodeError:
                    continue  # the node was removed meanwhile
                seen.append((stat.last_modified, msgspec.json.decode(data, type=Member)))
        except AWAY as error:
            raise _unavailable(error) from error
        return seen

    def _names(self, watch: Callable[[WatchedEvent], Any] | None) -> list[str]:
        names: list[str] = self._client.get_children_async(self._place.of(at.ELECTION), watch).get(
            timeout=ANSWER_S
        )
        return sorted(names)

    def _line(self) -> list[tuple[str, Member, int]]:
        """Return candidates in order: node name, content, and id of the session."""
        line = []
        for name in self._names(None):
            try:
                data, stat = self._client.get_async(self._place.of(at.ELECTION, name)).get(timeout=ANSWER_S)
            except NoNodeError:
                continue  # the candidate has just gone
            line.append((name, msgspec.json.decode(data, type=Member), int(stat.ephemeralOwner)))
        return line


def _unavailable(error: BaseException) -> Unavailable:
    return Unavailable(f"ZooKeeper does not answer: {error!r}", remedy="restore its quorum")
