"""The document that says who may do what, as a file."""

from dataclasses import dataclass

from mesos_gpu.adapters.files.text import BadFile, parse
from mesos_gpu.model.access.document import AccessDocument
from mesos_gpu.wire.access import document


@dataclass(frozen=True, slots=True)
class Read:
    """A document as a file has it. `version`: of which it was made; None: the file does not say."""

    document: AccessDocument
    version: int | None


def access_of(text: str, name: str) -> Read:
    """The document of a JSON or YAML text. `name` is for messages.

    Raises:
        BadFile: It is none, or has problems; all are listed, each with its place.
    """
    value = parse(text, name)
    if not isinstance(value, dict):
        raise BadFile(f"{name} is no object of roles and bindings", remedy="see: mesos-gpu access show")
    made = document.decode(value)
    if isinstance(made, AccessDocument):
        return Read(made, None if value.get("version") is None else made.version)
    lines = "\n".join(f"  {problem.path or '/'}: {problem.reason}" for problem in made)
    raise BadFile(
        f"{name} says nothing that could be in force:\n{lines}", remedy="correct the file; docs/security.md"
    )
