"""A document of a scheduler that is kept as versions: what is asked of it, and how it stands in a file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mesos_gpu.adapters.files.versioned import Form
    from mesos_gpu.cli.client import Client

Shown = Mapping[str, Any]  # a version, as the interface has it


@dataclass(frozen=True, slots=True)
class Kept:
    """A kind of document, at the command line.

    Attributes:
        form: As a file.
        command: The words of its commands, without `mesos-gpu`.
        route: Where it is read and changed.
        listed: Where its versions are.
        none: What is so while nobody has written one.
        body: What a file has of a version, without what has its default.
        told: What a version has, in words.
        remarks: What else is said of the latest version, line by line.
    """

    form: "Form[Any]"
    command: str
    route: str
    listed: str
    none: str
    body: Callable[[Shown], dict[str, Any]]
    told: Callable[[Shown], str]
    remarks: Callable[[Shown], Sequence[str]] = lambda _: ()


class Documents:
    """A kind of document of a scheduler. Raises what `Client` does."""

    def __init__(self, client: "Client", kind: Kept) -> None:
        """Use a client that somebody else closes."""
        self.kind, self._client = kind, client

    def latest(self) -> Shown:
        """Read it."""
        return self._client.call("GET", self.kind.route, dict)

    def version(self, number: int) -> Shown:
        """Read it as it was."""
        return self._client.call("GET", f"{self.kind.listed}/{number}", dict)

    def versions(self) -> Sequence[Shown]:
        """List those that are kept, the newest first."""
        listed: Sequence[Shown] = self._client.call("GET", self.kind.listed, dict)["versions"]
        return listed

    def put(self, document: Shown, query: Mapping[str, Any]) -> Shown:
        """Change it as a whole; `version` of the document is the one that was read."""
        return self._client.call("PUT", self.kind.route, dict, query, body=document)
