"""A cluster from its file."""

from pathlib import Path

from mesos_gpu.adapters.files.places import lines_of, placed
from mesos_gpu.adapters.files.text import BadFile, parse
from mesos_gpu.install.cluster.description import Cluster
from mesos_gpu.install.cluster.document import decode
from mesos_gpu.install.cluster.record import Record


def read(file: Path, record: Record) -> Cluster:
    """The cluster that a file of YAML or JSON describes. `record`: of the last apply.

    Raises:
        BadFile: It describes none; all that is wrong is told, each with its line.
        OSError: It cannot be read.
    """
    text = file.read_text(encoding="utf-8", errors="replace")
    value = parse(text, str(file))
    if not isinstance(value, dict):
        raise BadFile(f"{file} is no object with hosts", remedy="docs/install.md has an example")
    made = decode(value, file.parent, record)
    if not isinstance(made, list):
        return made
    line_of = lines_of(text)
    lines = "\n".join(f"  {placed(line_of, problem.path, problem.reason)}" for problem in made)
    raise BadFile(f"{file} describes no cluster:\n{lines}", remedy="correct the file; docs/install.md")
