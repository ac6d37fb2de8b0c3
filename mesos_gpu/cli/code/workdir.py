"""Upload of the directories that job files name."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mesos_gpu.cli.client import Client
from mesos_gpu.cli.code.send import upload
from mesos_gpu.cli.jobfile import WORKDIR


def with_code(
    client: Client, requests: Sequence[Mapping[str, Any]], base: Path
) -> Sequence[Mapping[str, Any]]:
    """Return requests with an uploaded archive instead of each directory; each directory is uploaded once.

    Args:
        client: Client of the scheduler.
        requests: Requests from `read_jobs`.
        base: Directory that relative paths start from.

    Raises:
        MesosGpuError: Raised by `upload`.
    """
    sent: dict[Path, str] = {}
    result = []
    for request in requests:
        if WORKDIR in request:
            directory = base / request[WORKDIR]
            if directory not in sent:
                sent[directory] = upload(client, directory)
            rest = {key: value for key, value in request.items() if key != WORKDIR}
            request = {**rest, "upload": sent[directory]}
        result.append(request)
    return result
