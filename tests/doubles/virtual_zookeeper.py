"""ZooKeeper in memory with those calls of kazoo that schedulers use.

Sessions can end, and requests and answers can be lost.
"""

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
    """A node of ZooKeeper."""

    data: bytes
    version: int = 0
    owner: "Session | None" = None  # session whose end removes the node
    made: int = 0  # number of children with a sequence number, ever


class Answer(Generic[T]):
    """The result of an asynchronous request, as kazoo returns it."""

    def __init__(self, do: Callable[[], T]) -> None:
        """Execute a request at once, and keep its value or error."""
        self._value: T | None = None
        self._error: Exception | None = None
        try:
            self._value = do()
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is read
            self._error = error

    def get(self, timeout: float | None = None) -> T:
        """Return the value or raise the error of the request."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class VirtualZooKeeper:
    """An ensemble of servers."""

    def __init__(self, *paths: str) -> None:
        """Create empty nodes at paths."""
        self.nodes = {path: Node(b"") for path in paths}
        self._sessions = itertools.count(1)

    def session(self) -> "Session":
        """Return the session of a new client."""
        return Session(self)

    def number(self) -> int:
        """Return the id of the next session."""
        return next(self._sessions)


class Session:
    """A kazoo client with its session.

    Each write takes the next of `troubles`: "lost" if the request is lost, "unheard" if only its answer is.
    """

    def __init__(self, servers: VirtualZooKeeper) -> None:
        self._servers, self._nodes = servers, servers.nodes
        self.client_id = (servers.number(), b"")  # id and password
        self.troubles: list[str] = []
        self.expired = False
        self._listeners: list[Callable[[str], Any]] = []

    def add_listener(self, listener: Callable[[str], Any]) -> None:
        """Call a listener when the session is lost."""
        self._listeners.append(listener)

    def expire(self) -> None:
        """End the session, as after a timeout: its ephemeral nodes are removed."""
        self.expired = True
        for path in [path for path, node in self._nodes.items() if node.owner is self]:
            del self._nodes[path]
        for listener in self._listeners:
            listener(KazooState.LOST)

    def revive(self) -> None:
        """Begin another session, as kazoo does by itself."""
        self.expired, self.client_id = False, (self._servers.number(), b"")
        self.troubles = [each for each in self.troubles if each != "expire"]

    # --- reads

    def get_async(self, path: str) -> Answer[tuple[bytes, Any]]:
        """Return data and status of a node."""
        return Answer(lambda: self._read(path))

    def _read(self, path: str) -> tuple[bytes, Any]:
        node = self._node(path)
        owner = node.owner.client_id[0] if node.owner else 0
        return node.data, SimpleNamespace(version=node.version, last_modified=0.0, ephemeralOwner=owner)

    def get_children_async(self, path: str, watch: object = None) -> Answer[list[str]]:
        """Return the names of a node's children; watches are ignored."""
        return Answer(lambda: self._children(path))

    def _children(self, path: str) -> list[str]:
        self._node(path)
        return [each.rpartition("/")[2] for each in self._nodes if each.rpartition("/")[0] == path]

    def exists_async(self, path: str, watch: object = None) -> Answer[Node | None]:
        """Return a node, or None if it does not exist; watches are ignored."""
        return Answer(lambda: self._look(path))

    def _look(self, path: str) -> Node | None:
        self._alive()
        return self._nodes.get(path)

    # --- writes

    def create_async(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> Answer[str]:
        """Create a node."""
        return Answer(lambda: self._written(lambda: self._create(path, data, ephemeral, sequence)))

    def set_async(self, path: str, data: bytes) -> Answer[Any]:
        """Change a node."""
        return Answer(lambda: self._written(lambda: self._set(path, data)))

    def transaction(self) -> "Transaction":
        """Return a new transaction."""
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
        """Execute a transaction and return its results, which are all errors if one change fails."""

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
    """A kazoo transaction: changes that are made together or not at all."""

    def __init__(self, session: Session) -> None:
        self._session, self._changes = session, list[tuple[str, str, Any]]()

    def check(self, path: str, version: int) -> None:
        """Require a version of a node."""
        self._changes.append(("check", path, version))

    def create(self, path: str, data: bytes = b"") -> None:
        """Create a node."""
        self._changes.append(("create", path, data))

    def set_data(self, path: str, data: bytes) -> None:
        """Change a node."""
        self._changes.append(("set", path, data))

    def delete(self, path: str) -> None:
        """Remove a node."""
        self._changes.append(("delete", path, None))

    def commit_async(self) -> Answer[list[Any]]:
        """Execute the changes."""
        return Answer(lambda: self._session.commit(self._changes))
