"""Reader of the file that describes a cluster."""

from pathlib import Path

from mesos_gpu.adapters.files.places import lines_of, placed
from mesos_gpu.adapters.files.text import BadFile, parse
from mesos_gpu.install.cluster.description import Cluster
from mesos_gpu.install.cluster.document import decode
from mesos_gpu.install.cluster.record import Record


def read(file: Path, record: Record) -> Cluster:
    """Return the cluster that a YAML or JSON file describes. `record`: record of the last apply.

    Raises:
        BadFile: The description is invalid; the message lists all problems with their lines.
        OSError: The file cannot be read.
    """
    text = file.read_text(encoding="utf-8", errors="replace")
    value = parse(text, str(file))
    if not isinstance(value, dict):
        raise BadFile(f"{file} is not an object with hosts", remedy="see the example in docs/install.md")
    decoded = decode(value, file.parent, record)
    if not isinstance(decoded, list):
        return decoded
    line_of = lines_of(text)
    lines = "\n".join(f"  {placed(line_of, problem.path, problem.reason)}" for problem in decoded)
    raise BadFile(
        f"{file} does not describe a valid cluster:\n{lines}", remedy="correct the file; docs/install.md"
    )
