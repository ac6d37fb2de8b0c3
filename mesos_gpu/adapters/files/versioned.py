"""Versioned documents (access rights, queues) as files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mesos_gpu.adapters.files.places import lines_of, placed
from mesos_gpu.adapters.files.text import BadFile, parse
from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.model.tenancy import QueueDocument
from mesos_gpu.wire.access import document as access_document
from mesos_gpu.wire.checking import Problem
from mesos_gpu.wire.tenancy import document as queue_document

D = TypeVar("D", bound=AccessDocument | QueueDocument)


@dataclass(frozen=True, slots=True)
class Read(Generic[D]):
    """A document from a file. `version`: version that it is based on; None if the file has none."""

    document: D
    version: int | None


@dataclass(frozen=True, slots=True)
class Form(Generic[D]):
    """File format of a kind of document.

    Attributes:
        decode: Function that returns the document of values, or all problems.
        encode: Function that returns all fields of a document as values.
        of: Description of the content, for messages.
        shown_by: Command that prints a document.
        page: Page of the documentation.
    """

    decode: Callable[[Mapping[str, Any]], D | list[Problem]]
    encode: Callable[[D], dict[str, Any]]
    of: str
    shown_by: str
    page: str

    def read(self, text: str, name: str) -> Read[D]:
        """Return the document in a JSON or YAML text. `name`: name of the file for messages.

        Raises:
            BadFile: The text is no document, or has problems; all are listed with their places.
        """
        value = parse(text, name)
        if not isinstance(value, dict):
            raise BadFile(f"{name} is not an object of {self.of}", remedy=f"see: {self.shown_by}")
        document = self.decode(value)
        if not isinstance(document, list):
            return Read(document, None if value.get("version") is None else document.version)
        line_of = lines_of(text)
        lines = "\n".join(f"  {placed(line_of, problem.path, problem.reason)}" for problem in document)
        raise BadFile(f"{name} is not a valid document:\n{lines}", remedy=f"correct the file; {self.page}")


ACCESS = Form(
    access_document.decode,
    access_document.encode,
    "roles and bindings",
    "mesos-gpu access show",
    "docs/security.md",
)
QUEUES = Form(
    queue_document.decode, queue_document.encode, "queues", "mesos-gpu queue show", "docs/queues.md"
)
