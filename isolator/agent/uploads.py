"""Upload of a job: the archive that its submitter sent along, from the scheduler's store into the task's
sandbox.

The executor requests the bytes, which only it can, and checks their digest. It never extracts: a program does
that as the task's user, in the task's enclosure. The archive is checked before, as it is untrusted.
"""

import gzip
import hashlib
import tarfile
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from posixpath import normpath
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from isolator.agent.http import HttpConnection, Response
from isolator.agent.tls import AgentTls
from isolator.host.fetch_bounds import FetchLimits
from isolator.host.not_started import KILLED_BEFORE_START, NotStarted
from mesos_gpu.model.jobs.artifact import TAKEN
from mesos_gpu.model.tasks.assignment import Assignment, Outcome
from mesos_gpu.wire.mesos.seal import pass_for

if TYPE_CHECKING:
    from io import BufferedRandom

ARCHIVE: Final = "upload.tar.gz"  # file beside the directory into which it is extracted
# authorities of the scheduler's certificate; by default those of the host
CACERT: Final = "MESOS_GPU_SCHEDULER_CACERT"
ANSWER_S: Final = 30.0
#: How long to retry, as a scheduler may be restarted meanwhile.
PATIENCE_S: Final = 60.0
AGAIN_S: Final = 1.0
_PIECE: Final = 1 << 18  # bytes
_AWAY: Final = (429, 500, 502, 503, 504)
_PREFIX: Final = "sha256:"


class _Away(OSError):
    """Error: the scheduler does not answer now, or broke off."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Request for the archive of a launch.

    Attributes:
        plan: Launch with the upload.
        task: Mesos' task id.
        own: Environment of the executor.
        limits: Limits on what a task may fetch.
    """

    plan: Assignment
    task: str
    own: Mapping[str, str]
    limits: FetchLimits

    @property
    def digest(self) -> str:
        """SHA-256 of the archive, in hexadecimal digits."""
        return (self.plan.upload or "").removeprefix(_PREFIX)


def receive(
    wanted: Wanted,
    file: "BufferedRandom",
    *,
    aborted: Callable[[], bool],
    patience_s: float = PATIENCE_S,
) -> None:
    """Write the archive to a file, and verify its digest.

    Args:
        wanted: Request for the archive.
        file: New file that only the executor can write.
        aborted: Function that returns whether the task was killed.
        patience_s: Seconds for which a scheduler that does not answer is asked again.

    Raises:
        NotStarted: The archive does not exist, is too large, or has another digest; or the scheduler does not
            answer for long.
        OSError: The disk is full.
    """
    give_up_at = time.monotonic() + patience_s
    while True:
        file.seek(0)
        file.truncate()
        try:
            return _receive(wanted, file, aborted)
        except _Away as error:
            if aborted():
                raise NotStarted(KILLED_BEFORE_START) from error
            if time.monotonic() >= give_up_at:
                why = f"the job's files cannot be fetched from {wanted.plan.scheduler_url}: {error}"
                raise NotStarted(why, Outcome(infrastructure=True)) from error
        time.sleep(AGAIN_S)


def _receive(wanted: Wanted, file: "BufferedRandom", aborted: Callable[[], bool]) -> None:
    sums, size = hashlib.sha256(), 0
    connection = _connection(wanted.plan.scheduler_url, wanted.own)
    try:
        answer = _ask(connection, wanted)
        while piece := _read(answer):
            size += len(piece)
            if size > wanted.limits.size_bytes:
                raise _too_much(wanted.limits)
            if aborted():
                raise NotStarted(KILLED_BEFORE_START)
            sums.update(piece)
            file.write(piece)
    finally:
        connection.close()
    file.flush()
    if sums.hexdigest() != wanted.digest:
        raise _Away(f"the received archive does not have the digest {wanted.plan.upload}")


def _too_much(limits: FetchLimits) -> NotStarted:
    what = f"more than {limits.size_bytes >> 20} MiB, the most that this host allows or has space for"
    return NotStarted(f"the files to fetch exceed a limit: {what}")


def _ask(connection: HttpConnection, wanted: Wanted) -> Response:
    plan, path = wanted.plan, f"/v1/uploads/{wanted.digest}/archive"
    shown = pass_for(plan.secret, f"GET {path}")
    header = {"Mesos-Gpu-Task": wanted.task, "Mesos-Gpu-Pass": shown, "Connection": "close"}
    try:
        answer = connection.request("GET", urlsplit(plan.scheduler_url).path + path, b"", header)
    except OSError as error:
        raise _Away(error.strerror or str(error)) from error
    if answer.status in _AWAY:
        raise _Away(f"it answers with status {answer.status}")
    if answer.status != 200:
        raise NotStarted(
            f"the scheduler at {plan.scheduler_url} does not have the files that were uploaded for the job "
            f"({plan.upload}; it answers with status {answer.status})"
        )
    return answer


def _read(answer: Response) -> bytes:
    try:
        return answer.read(_PIECE)
    except OSError as error:
        raise _Away(error.strerror or str(error)) from error


def _connection(url: str, own: Mapping[str, str]) -> HttpConnection:
    parts = urlsplit(url)
    host = parts.hostname or ""
    tls = AgentTls(cacert=own.get(CACERT, ""), name=host) if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    return HttpConnection(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", ANSWER_S, tls)


def look_through(file: "BufferedRandom", limits: FetchLimits) -> None:
    """Check that no entry of an archive leaves the directory that it is extracted into, and that it is within
    the limits.

    Raises:
        NotStarted: An entry does, a limit is exceeded, or it is not a valid archive.
    """
    most = limits.free_bytes + limits.ratio * file.seek(0, 2)
    file.seek(0)
    count = size = 0
    try:
        with gzip.open(file) as data, tarfile.open(fileobj=data, mode="r|") as tar:
            for member in tar:
                count, size = count + 1, size + member.size
                if problem := _problem(member):
                    raise NotStarted(f"the job's archive cannot be extracted: {problem}")
                if count > limits.files:
                    raise NotStarted(f"the files to fetch exceed a limit: more than {limits.files} files")
                if size > limits.size_bytes:
                    raise _too_much(limits)
                if size > most:
                    raise NotStarted(f"the job's archive expands to more than {limits.ratio} times its size")
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise NotStarted(f"the job's archive cannot be read: {error}") from error


def _problem(member: tarfile.TarInfo) -> str:
    """Return why an entry cannot be extracted; "" if it can."""
    parts = member.name.split("/")
    if member.name.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return f"{member.name[:200]!r} is not a path below a directory"
    if parts[0] in TAKEN:
        return f"{parts[0]} in the sandbox belongs to the agent or the executor"
    if member.issym():
        target = normpath("/".join((*parts[:-1], member.linkname)))
        out = member.linkname.startswith("/") or target.split("/")[0] == ".."
        return f"the link {member.name[:200]!r} leads out of the archive" if out else ""
    return (
        ""
        if member.isreg() or member.isdir()
        else f"{member.name[:200]!r} is neither a file, a directory nor a symbolic link"
    )


def extraction(archive: str, directory: str) -> tuple[str, ...]:
    """Return the command that extracts an archive; its user owns the files that it makes."""
    return (
        "tar", "--extract", "--gzip", "--file", archive, "--directory", directory, "--no-same-owner",
        "--no-same-permissions", "--keep-old-files", "--touch",
    )  # fmt: skip
