"""Documents that are kept as versions, as files."""

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
    """A document as a file has it. `version`: of which it was made; None: the file does not say."""

    document: D
    version: int | None


@dataclass(frozen=True, slots=True)
class Form(Generic[D]):
    """A kind of document as a file.

    Attributes:
        decode: From values, or all that is wrong.
        encode: To values, with every field.
        of: What it is an object of, in words.
        shown_by: The command that prints one.
        page: The page that tells of it.
    """

    decode: Callable[[Mapping[str, Any]], D | list[Problem]]
    encode: Callable[[D], dict[str, Any]]
    of: str
    shown_by: str
    page: str

    def read(self, text: str, name: str) -> Read[D]:
        """The document of a JSON or YAML text. `name` is for messages.

        Raises:
            BadFile: It is none, or has problems; all are listed, each with its place.
        """
        value = parse(text, name)
        if not isinstance(value, dict):
            raise BadFile(f"{name} is no object of {self.of}", remedy=f"see: {self.shown_by}")
        made = self.decode(value)
        if not isinstance(made, list):
            return Read(made, None if value.get("version") is None else made.version)
        line_of = lines_of(text)
        lines = "\n".join(f"  {placed(line_of, problem.path, problem.reason)}" for problem in made)
        raise BadFile(
            f"{name} says nothing that could be in force:\n{lines}", remedy=f"correct the file; {self.page}"
        )


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
