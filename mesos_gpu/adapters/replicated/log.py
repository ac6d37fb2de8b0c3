"""Log of batches of saves in ZooKeeper: the leader writes a batch before it takes effect, and the other schedulers
apply it to their own states.

Each batch is a node; the parts of a large batch are written first, and count only once the node that names them exists.
Only the scheduler that was elected last can write: each write checks the version of the leader's node.
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

PART: Final = 512 << 10  # bytes of a node; servers accept 1 MiB per request
#: Batches that are kept for absent schedulers; one that misses more needs a copy of the state.
MAX_KEPT: Final = 10_000
_AT_ONCE: Final = 500  # nodes that are deleted by one request
_BATCH, _PART_OF = "b-", "p-"
_WHOLE, _IN_PARTS = b"z", b"p"
_KINDS: Final = {kind.__name__: kind for kind in SAVES}
_LINES: Final = msgspec.json.Decoder(list[tuple[str, msgspec.Raw]])


class NotLeader(Conflict):
    """Another scheduler was elected since: this one may neither write nor launch, and must end.

    Args:
        why: Evidence of the election.
    """

    def __init__(self, why: str) -> None:
        super().__init__(
            f"this scheduler leads no more: {why}",
            remedy="none needed: another scheduler leads; after a restart this one is on standby",
        )


def encoded(batch: Iterable[Save]) -> bytes:
    """Return a batch in the form of the log."""
    return zlib.compress(msgspec.json.encode([(type(save).__name__, save) for save in batch]), 1)


def decoded(data: bytes) -> list[Save]:
    """Return the saves of a batch in the log.

    Raises:
        Damaged: The data is no batch, or a later version of this program wrote it.
    """
    try:
        return [
            msgspec.json.decode(raw, type=_KINDS[name]) for name, raw in _LINES.decode(zlib.decompress(data))
        ]
    except (zlib.error, msgspec.DecodeError, KeyError) as error:
        raise Damaged(
            f"a batch of the log in ZooKeeper cannot be read: {error!r}",
            remedy="run the leader's version of mesos_gpu; if it is the same, report it as a bug",
        ) from error


class Log:
    """Batches of one group of schedulers. Thread-safe."""

    def __init__(self, client: KazooClient, place: Place) -> None:
        self._client, self._place = client, place

    def append(self, number: int, data: bytes, term: int) -> None:
        """Write a batch. It may be written repeatedly, and exists once.

        Args:
            number: Number of the batch, one more than the last.
            data: Batch as returned by `encoded`.
            term: Term of the leader, as returned by `Election.take`.

        Raises:
            NotLeader: Another scheduler was elected since.
            NoRoom: ZooKeeper does not answer; it may have the batch or not, so write it again.
        """
        try:
            node = self._in_parts(number, data, term)
            transaction = self._client.transaction()
            transaction.check(self._place.of(at.LEADER), term)
            transaction.create(self._node(number), node)
            leader, batch = transaction.commit_async().get(timeout=ANSWER_S)
            if isinstance(leader, BadVersionError | NoNodeError):
                raise NotLeader("ZooKeeper refused its write")
            if isinstance(batch, NodeExistsError):
                self._check_same(number, node)
            elif isinstance(batch, Exception):
                raise _no_answer(batch)
        except AWAY as error:
            raise _no_answer(error) from error

    def confirm(self, term: int) -> None:
        """Check by a quorum that no other scheduler was elected since; a server that is cut off would still answer
        reads.

        Raises:
            NotLeader: Another scheduler was elected since.
            NoRoom: ZooKeeper does not answer.
        """
        transaction = self._client.transaction()
        transaction.check(self._place.of(at.LEADER), term)
        try:
            [leader] = transaction.commit_async().get(timeout=ANSWER_S)
        except AWAY as error:
            raise _no_answer(error) from error
        if isinstance(leader, BadVersionError | NoNodeError):
            raise NotLeader("another scheduler was elected")
        if isinstance(leader, Exception):
            raise _no_answer(leader)

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

    def _check_same(self, number: int, node: bytes) -> None:
        """Check that an existing batch is the one that this scheduler wrote, in a request whose answer was lost."""
        there, _ = self._client.get_async(self._node(number)).get(timeout=ANSWER_S)
        if there != node:
            raise NotLeader(f"batch {number} of the log is another scheduler's")

    def read(self, number: int, watch: Callable[[WatchedEvent], Any] | None = None) -> bytes | None:
        """Return a batch; None if it does not exist, and `watch` is then called once when it does.

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
            raise _no_answer(error) from error

    def _get(self, path: str) -> bytes:
        data: bytes = self._client.get_async(path).get(timeout=ANSWER_S)[0]
        return data

    def last(self) -> int:
        """Return the number of the last batch.

        Raises:
            NoRoom: ZooKeeper does not answer.
        """
        try:
            names = self._client.get_children_async(self._place.of(at.LOG)).get(timeout=ANSWER_S)
            numbers = [int(name.removeprefix(_BATCH)) for name in names if name.startswith(_BATCH)]
            return max(numbers, default=self.base())
        except AWAY as error:
            raise _no_answer(error) from error

    def base(self) -> int:
        """Return the number of the last deleted batch; a scheduler that misses it needs a copy of the state.

        Raises:
            NoRoom: ZooKeeper does not answer.
        """
        try:
            return int(self._get(self._place.of(at.BASE)))
        except NoNodeError:
            return 0
        except AWAY as error:
            raise _no_answer(error) from error

    def cut(self, up_to: int, term: int) -> int:
        """Delete batches up to a number. Return how many nodes were deleted.

        Raises:
            NotLeader: Another scheduler was elected since.
            NoRoom: ZooKeeper does not answer.
        """
        try:
            names = self._client.get_children_async(self._place.of(at.LOG)).get(timeout=ANSWER_S)
            gone = sorted((_number(name), name) for name in names if _number(name) <= up_to)
            if not gone:
                return 0
            transaction = self._client.transaction()
            transaction.check(self._place.of(at.LEADER), term)
            transaction.set_data(self._place.of(at.BASE), b"%d" % up_to)
            leader, base = transaction.commit_async().get(timeout=ANSWER_S)
            if isinstance(leader, BadVersionError):
                raise NotLeader("ZooKeeper refused its deletion")
            if isinstance(base, Exception):
                raise _no_answer(base)
            for begin in range(0, len(gone), _AT_ONCE):
                deleted = self._client.transaction()
                for _, name in gone[begin : begin + _AT_ONCE]:
                    deleted.delete(self._place.of(at.LOG, name))
                deleted.commit_async().get(timeout=ANSWER_S)
            return len(gone)
        except AWAY as error:
            raise _no_answer(error) from error

    def _node(self, number: int) -> str:
        return self._place.of(at.LOG, f"{_BATCH}{number:010}")


def _number(name: str) -> int:
    return int(name.partition("-")[2].partition(".")[0])


def _no_answer(error: BaseException) -> NoRoom:
    return NoRoom(
        f"ZooKeeper does not store the state's changes: {error!r}",
        remedy="restore its quorum; running jobs continue, and the scheduler resumes by itself",
    )
