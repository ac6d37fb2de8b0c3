"""Upload of a directory for a job: packed, and sent unless the scheduler has the archive already."""

import tempfile
import time
from pathlib import Path
from typing import BinaryIO, Final, cast

from mesos_gpu.api.spec.uploads import Upload, Uploads
from mesos_gpu.cli import output
from mesos_gpu.cli.client import Client, Refused
from mesos_gpu.cli.code.archive import Found, Packed, find, in_mib, pack
from mesos_gpu.model.words import counted

_PIECE: Final = 1 << 20  # bytes; maximum of the interface per request
_KEPT: Final = 1 << 24  # bytes of an archive kept in memory; larger ones use a temporary file
_MAX_NAMED: Final = 5
_AGAIN_S: Final = 0.2  # seconds before retrying an archive that another request uses


def upload(client: Client, directory: Path) -> str:
    """Upload the archive of a directory unless the scheduler has it; return the value of a job's field `upload`.

    Raises:
        BadDirectory: The directory cannot be packed, or its archive exceeds the scheduler's limit.
        MesosGpuError: Raised by the client's calls.
    """
    finds = find(directory)
    limit = client.call("GET", "/v1/uploads", Uploads)["archive_limit_bytes"]
    with tempfile.SpooledTemporaryFile(_KEPT) as file:
        packed = pack(finds.entries, cast(BinaryIO, file), limit)
        sent = _send(client, cast(BinaryIO, file), packed)
    _say(directory, finds, packed, sent)
    return f"sha256:{packed.digest}"


def _say(directory: Path, finds: Found, packed: Packed, sent: int) -> None:
    if finds.skipped:
        named = "; ".join(f"{name}: {why}" for name, why in finds.skipped[:_MAX_NAMED])
        output.note(f"{counted(len(finds.skipped), 'file')} of {directory} skipped: {named}")
    files = counted(len(finds.entries), "file")
    how = f"{in_mib(sent)} sent" if sent else "already on the scheduler"
    output.note(f"{directory}: {files}, {in_mib(packed.size)} packed; {how}")


def _send(client: Client, file: BinaryIO, packed: Packed) -> int:
    """Send the missing part of an archive in blocks; return the number of bytes sent."""
    path, sent = f"/v1/uploads/{packed.digest}", 0
    there = _there(client, path)
    while there is None or not there["complete"]:
        offset = there["received_bytes"] if there else 0
        file.seek(offset)
        data = file.read(_PIECE)
        query = {"offset": offset, "size": packed.size}
        try:
            there = client.call("PUT", path, Upload, query, body=data)
        except Refused as error:
            if error.http_status != 409:
                raise
            time.sleep(_AGAIN_S)  # another process sends this archive, or its last block is being synced
            there = _there(client, path)
            continue
        sent += len(data)
        output.status_line.show(f"uploading code: {in_mib(there['received_bytes'])} of {in_mib(packed.size)}")
    output.status_line.clear()
    return sent


def _there(client: Client, path: str) -> Upload | None:
    try:
        return client.call("GET", path, Upload)
    except Refused as error:
        if error.http_status == 404:
            return None
        raise
