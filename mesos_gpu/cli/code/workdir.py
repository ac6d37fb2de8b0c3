"""Job files whose jobs name a directory that is sent along."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mesos_gpu.cli.client import Client
from mesos_gpu.cli.code.send import upload
from mesos_gpu.cli.jobfile import WORKDIR


def with_code(
    client: Client, requests: Sequence[Mapping[str, Any]], base: Path
) -> Sequence[Mapping[str, Any]]:
    """The requests with an archive in place of each directory, which is sent once.

    Args:
        client: Of the scheduler.
        requests: As `read_jobs` reads them.
        base: The directory that theirs are told from.

    Raises:
        MesosGpuError: As of `upload`.
    """
    sent: dict[Path, str] = {}
    made = []
    for request in requests:
        if WORKDIR in request:
            directory = base / request[WORKDIR]
            if directory not in sent:
                sent[directory] = upload(client, directory)
            rest = {key: value for key, value in request.items() if key != WORKDIR}
            request = {**rest, "upload": sent[directory]}
        made.append(request)
    return made
