"""ZooKeeper in memory, as far as schedulers use it, by the calls of kazoo: sessions end, requests are lost, and answers
of what was done."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

from kazoo.client import KazooState
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)

T = TypeVar("T")


@dataclass(slots=True)
class Node:
    """What is at a path."""

    data: bytes
    version: int = 0
    owner: "Session | None" = None  # with whose session it goes
    made: int = 0  # children with numbers, ever


class Answer(Generic[T]):
    """What kazoo gives for a request that is under way."""

    def __init__(self, do: Callable[[], T]) -> None:
        """Do it at once."""
        self._value: T | None = None
        self._error: Exception | None = None
        try:
            self._value = do()
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is read
            self._error = error

    def get(self, timeout: float | None = None) -> T:
        """What came of it."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class VirtualZooKeeper:
    """All servers as one."""

    def __init__(self, *paths: str) -> None:
        """With empty nodes at these paths."""
        self.nodes = {path: Node(b"") for path in paths}
        self._sessions = itertools.count(1)

    def session(self) -> "Session":
        """A client's."""
        return Session(self)

    def number(self) -> int:
        """Number the next session: servers give each another one."""
        return next(self._sessions)


class Session:
    """A client of kazoo, and its session. Writes meet troubles in their turn: "lost" on the way there, or "unheard", of
    which the answer is lost."""

    def __init__(self, servers: VirtualZooKeeper) -> None:
        """Begin the session."""
        self._servers, self._nodes = servers, servers.nodes
        self.client_id = (servers.number(), b"")  # and its password
        self.troubles: list[str] = []
        self.expired = False
        self._listeners: list[Callable[[str], Any]] = []

    def add_listener(self, listener: Callable[[str], Any]) -> None:
        """Tell it when the session is lost."""
        self._listeners.append(listener)

    def expire(self) -> None:
        """The servers have not heard it for too long: what lived with it goes."""
        self.expired = True
        for path in [path for path, node in self._nodes.items() if node.owner is self]:
            del self._nodes[path]
        for listener in self._listeners:
            listener(KazooState.LOST)

    def revive(self) -> None:
        """Connect again: kazoo begins another session by itself."""
        self.expired, self.client_id = False, (self._servers.number(), b"")
        self.troubles = [each for each in self.troubles if each != "expire"]

    # --- reads

    def get_async(self, path: str) -> Answer[tuple[bytes, Any]]:
        """Data and status of a node."""
        return Answer(lambda: self._read(path))

    def _read(self, path: str) -> tuple[bytes, Any]:
        node = self._node(path)
        owner = node.owner.client_id[0] if node.owner else 0
        return node.data, SimpleNamespace(version=node.version, last_modified=0.0, ephemeralOwner=owner)

    def get_children_async(self, path: str, watch: object = None) -> Answer[list[str]]:
        """Names of the children of a node; nobody watches them."""
        return Answer(lambda: self._children(path))

    def _children(self, path: str) -> list[str]:
        self._node(path)
        return [each.rpartition("/")[2] for each in self._nodes if each.rpartition("/")[0] == path]

    def exists_async(self, path: str, watch: object = None) -> Answer[Node | None]:
        """Whether there is such a node; nobody watches it."""
        return Answer(lambda: self._look(path))

    def _look(self, path: str) -> Node | None:
        self._alive()
        return self._nodes.get(path)

    # --- writes

    def create_async(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> Answer[str]:
        """Make a node."""
        return Answer(lambda: self._written(lambda: self._create(path, data, ephemeral, sequence)))

    def set_async(self, path: str, data: bytes) -> Answer[Any]:
        """Change a node."""
        return Answer(lambda: self._written(lambda: self._set(path, data)))

    def transaction(self) -> "Transaction":
        """Several changes, all of them or none."""
        return Transaction(self)

    def _written(self, do: Callable[[], T]) -> T:
        self._alive()
        trouble = self.troubles.pop(0) if self.troubles else ""
        if trouble == "lost":
            raise ConnectionLoss
        done = do()
        if trouble == "unheard":
            raise ConnectionLoss
        return done

    def _alive(self) -> None:
        if self.expired:
            raise SessionExpiredError

    def _node(self, path: str) -> Node:
        self._alive()
        if path not in self._nodes:
            raise NoNodeError
        return self._nodes[path]

    def _create(self, path: str, data: bytes, ephemeral: bool, sequence: bool) -> str:
        parent = self._node(path.rpartition("/")[0])
        if sequence:
            path, parent.made = f"{path}{parent.made:010}", parent.made + 1
        if path in self._nodes:
            raise NodeExistsError
        self._nodes[path] = Node(data, owner=self if ephemeral else None)
        return path

    def _set(self, path: str, data: bytes) -> Any:
        node = self._node(path)
        node.data, node.version = data, node.version + 1
        return SimpleNamespace(version=node.version)

    def commit(self, changes: list[tuple[str, str, Any]]) -> list[Any]:
        """Do a transaction; of one that fails, all results are errors."""

        def all_of_them() -> list[Any]:
            before = {path: (node.data, node.version) for path, node in self._nodes.items()}
            made, results = set(self._nodes), list[Any]()
            for number, change in enumerate(changes):
                try:
                    results.append(self._change(*change))
                except (NoNodeError, NodeExistsError, BadVersionError) as error:
                    self._undo(before, made)
                    rest = len(changes) - number - 1
                    return [RolledBackError()] * number + [error] + [RuntimeInconsistency()] * rest
            return results

        return self._written(all_of_them)

    def _change(self, kind: str, path: str, value: Any) -> Any:
        if kind == "create":
            return self._create(path, value, ephemeral=False, sequence=False)
        if kind == "set":
            return self._set(path, value)
        node = self._node(path)
        if kind == "delete":
            return self._nodes.pop(path)
        if node.version != value:
            raise BadVersionError
        return True

    def _undo(self, before: dict[str, tuple[bytes, int]], made: set[str]) -> None:
        for path in [path for path in self._nodes if path not in made]:
            del self._nodes[path]
        for path, (data, version) in before.items():
            node = self._nodes.setdefault(path, Node(data))
            node.data, node.version = data, version


class Transaction:
    """What kazoo has for changes of which all are done, or none."""

    def __init__(self, session: Session) -> None:
        """Nothing is in it yet."""
        self._session, self._changes = session, list[tuple[str, str, Any]]()

    def check(self, path: str, version: int) -> None:
        """Hold only at this version."""
        self._changes.append(("check", path, version))

    def create(self, path: str, data: bytes = b"") -> None:
        """Make a node."""
        self._changes.append(("create", path, data))

    def set_data(self, path: str, data: bytes) -> None:
        """Change a node."""
        self._changes.append(("set", path, data))

    def delete(self, path: str) -> None:
        """Remove a node."""
        self._changes.append(("delete", path, None))

    def commit_async(self) -> Answer[list[Any]]:
        """Do all, or nothing."""
        return Answer(lambda: self._session.commit(self._changes))
