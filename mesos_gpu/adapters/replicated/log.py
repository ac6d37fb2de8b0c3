"""Batches of saves in ZooKeeper, by their numbers: what the leader writes before anything follows from it, and what all
others take over into their own states.

Each is a node; of one that is large the parts come first, and count for nothing before the node that names them is
there. Only who was elected last can add to it: each addition holds against the version of the leader's word.
"""

import zlib
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.protocol.states import WatchedEvent

from mesos_gpu.adapters.replicated import place as at
from mesos_gpu.adapters.replicated.place import ANSWER_S, AWAY, Place
from mesos_gpu.errors import Conflict, Damaged, NoRoom
from mesos_gpu.model.saves import SAVES, Save

PART: Final = 512 << 10  # bytes of a node; servers take 1 MiB at once
#: Batches that are kept for who is away; beyond them who comes back needs a copy of the state.
MAX_KEPT: Final = 10_000
_AT_ONCE: Final = 500  # nodes that are deleted by one request
_BATCH, _PART_OF = "b-", "p-"
_WHOLE, _IN_PARTS = b"z", b"p"
_KINDS: Final = {kind.__name__: kind for kind in SAVES}
_LINES: Final = msgspec.json.Decoder(list[tuple[str, msgspec.Raw]])


class Deposed(Conflict):
    """Another scheduler was elected since: this one may neither write nor launch, and ends."""

    def __init__(self, why: str) -> None:
        """`why`: what was seen."""
        super().__init__(
            f"this scheduler leads no more: {why}", remedy="nothing: another leads; started anew it stands by"
        )


def encoded(batch: Iterable[Save]) -> bytes:
    """A batch as it is in the log."""
    return zlib.compress(msgspec.json.encode([(type(save).__name__, save) for save in batch]), 1)


def decoded(data: bytes) -> list[Save]:
    """A batch of the log.

    Raises:
        Damaged: It is none, or a later version of this program wrote it.
    """
    try:
        return [
            msgspec.json.decode(raw, type=_KINDS[name]) for name, raw in _LINES.decode(zlib.decompress(data))
        ]
    except (zlib.error, msgspec.DecodeError, KeyError) as error:
        raise Damaged(
            f"a batch of the log in ZooKeeper cannot be read: {error!r}",
            remedy="run the version of mesos_gpu that the leader has; if it is the same, tell who maintains it",
        ) from error


class Log:
    """The batches of one place. From any thread."""

    def __init__(self, client: KazooClient, place: Place) -> None:
        """Nothing is read yet."""
        self._client, self._place = client, place

    def append(self, number: int, data: bytes, term: int) -> None:
        """Write a batch. The same may be written again: it is there once.

        Args:
            number: Of the batch, one more than the last.
            data: What `encoded` made.
            term: The version of the leader's word, as `Election.take` gave it.

        Raises:
            Deposed: Another was elected since.
            NoRoom: ZooKeeper does not answer; whether it has the batch is not known: write the same again.
        """
        try:
            node = self._in_parts(number, data, term)
            wanted = self._client.transaction()
            wanted.check(self._place.of(at.LEADER), term)
            wanted.create(self._node(number), node)
            leader, batch = wanted.commit_async().get(timeout=ANSWER_S)
            if isinstance(leader, BadVersionError | NoNodeError):
                raise Deposed("ZooKeeper refused what it wanted to write")
            if isinstance(batch, NodeExistsError):
                self._see_same(number, node)
            elif isinstance(batch, Exception):
                raise _away(batch)
        except AWAY as error:
            raise _away(error) from error

    def confirm(self, term: int) -> None:
        """See that nobody was elected since, by a quorum, as a write is: a server that is cut off answers reads, though
        another leads.

        Raises:
            Deposed: Another was elected since.
            NoRoom: ZooKeeper does not answer.
        """
        asked = self._client.transaction()
        asked.check(self._place.of(at.LEADER), term)
        try:
            [leader] = asked.commit_async().get(timeout=ANSWER_S)
        except AWAY as error:
            raise _away(error) from error
        if isinstance(leader, BadVersionError | NoNodeError):
            raise Deposed("another was elected")
        if isinstance(leader, Exception):
            raise _away(leader)

    def _in_parts(self, number: int, data: bytes, term: int) -> bytes:
        if len(data) < PART:
            return _WHOLE + data
        names = []
        for begin in range(0, len(data), PART):
            names.append(f"{_PART_OF}{number:010}.{term}.{begin}")
            path = self._place.of(at.LOG, names[-1])
            try:
                self._client.create_async(path, data[begin : begin + PART]).get(timeout=ANSWER_S)
            except NodeExistsError:
                self._client.set_async(path, data[begin : begin + PART]).get(timeout=ANSWER_S)
        return _IN_PARTS + msgspec.json.encode(names)

    def _see_same(self, number: int, node: bytes) -> None:
        """See that what is there already is what this scheduler wrote, without hearing the answer."""
        there, _ = self._client.get_async(self._node(number)).get(timeout=ANSWER_S)
        if there != node:
            raise Deposed(f"batch {number} of the log is another's")

    def read(self, number: int, watch: Callable[[WatchedEvent], Any] | None = None) -> bytes | None:
        """A batch; None: it is not there, and `watch` is called once when it is.

        Raises:
            NoRoom: ZooKeeper does not answer.
        """
        try:
            if (
                watch is not None
                and self._client.exists_async(self._node(number), watch).get(timeout=ANSWER_S) is None
            ):
                return None
            node = self._get(self._place.of(at.LOG, f"{_BATCH}{number:010}"))
            if node[:1] == _WHOLE:
                return node[1:]
            names = msgspec.json.decode(node[1:], type=list[str])
            return b"".join(self._get(self._place.of(at.LOG, name)) for name in names)
        except NoNodeError:
            return None
        except AWAY as error:
            raise _away(error) from error

    def _get(self, path: str) -> bytes:
        data: bytes = self._client.get_async(path).get(timeout=ANSWER_S)[0]
        return data

    def last(self) -> int:
        """The number of the last batch.

        Raises:
            NoRoom: ZooKeeper does not answer.
        """
        try:
            names = self._client.get_children_async(self._place.of(at.LOG)).get(timeout=ANSWER_S)
            numbers = [int(name.removeprefix(_BATCH)) for name in names if name.startswith(_BATCH)]
            return max(numbers, default=self.base())
        except AWAY as error:
            raise _away(error) from error

    def base(self) -> int:
        """The number of the last batch that is cut off; who has less needs a copy of the state.

        Raises:
            NoRoom: ZooKeeper does not answer.
        """
        try:
            return int(self._get(self._place.of(at.BASE)))
        except NoNodeError:
            return 0
        except AWAY as error:
            raise _away(error) from error

    def cut(self, up_to: int, term: int) -> int:
        """Delete batches up to a number; how many were there.

        Raises:
            Deposed: Another was elected since.
            NoRoom: ZooKeeper does not answer.
        """
        try:
            names = self._client.get_children_async(self._place.of(at.LOG)).get(timeout=ANSWER_S)
            gone = sorted((_number(name), name) for name in names if _number(name) <= up_to)
            if not gone:
                return 0
            begun = self._client.transaction()
            begun.check(self._place.of(at.LEADER), term)
            begun.set_data(self._place.of(at.BASE), b"%d" % up_to)
            leader, base = begun.commit_async().get(timeout=ANSWER_S)
            if isinstance(leader, BadVersionError):
                raise Deposed("ZooKeeper refused what it wanted to delete")
            if isinstance(base, Exception):
                raise _away(base)
            for begin in range(0, len(gone), _AT_ONCE):
                deleted = self._client.transaction()
                for _, name in gone[begin : begin + _AT_ONCE]:
                    deleted.delete(self._place.of(at.LOG, name))
                deleted.commit_async().get(timeout=ANSWER_S)
            return len(gone)
        except AWAY as error:
            raise _away(error) from error

    def _node(self, number: int) -> str:
        return self._place.of(at.LOG, f"{_BATCH}{number:010}")


def _number(name: str) -> int:
    return int(name.partition("-")[2].partition(".")[0])


def _away(error: BaseException) -> NoRoom:
    return NoRoom(
        f"ZooKeeper does not take what is to be kept: {error!r}",
        remedy="bring its quorum back; what runs runs on, and the scheduler goes on by itself",
    )
