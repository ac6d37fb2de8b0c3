"""Requests for a versioned document of the scheduler, and its form in files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mesos_gpu.adapters.files.versioned import Form
    from mesos_gpu.cli.client import Client

Shown = Mapping[str, Any]  # a version in the interface's form


@dataclass(frozen=True, slots=True)
class Kept:
    """A kind of versioned document.

    Attributes:
        form: Format of its files.
        command: Words of its commands, without `mesos-gpu`.
        route: Route to read and change it.
        listed: Route of its versions.
        none: Text for the situation without any version.
        body: Function from a version to the contents of a file, without default values.
        told: Function from a version to a short description.
        remarks: Function from a version to further lines of remarks.
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
    """Requests for a kind of versioned document, with an open client; they raise what `Client` raises."""

    def __init__(self, client: "Client", kind: Kept) -> None:
        self.kind, self._client = kind, client

    def latest(self) -> Shown:
        """Return the latest version."""
        return self._client.call("GET", self.kind.route, dict)

    def version(self, number: int) -> Shown:
        """Return an earlier version."""
        return self._client.call("GET", f"{self.kind.listed}/{number}", dict)

    def versions(self) -> Sequence[Shown]:
        """Return the stored versions, newest first."""
        listed: Sequence[Shown] = self._client.call("GET", self.kind.listed, dict)["versions"]
        return listed

    def put(self, document: Shown, query: Mapping[str, Any]) -> Shown:
        """Replace the document; its `version` is the version that it is based on."""
        return self._client.call("PUT", self.kind.route, dict, query, body=document)
