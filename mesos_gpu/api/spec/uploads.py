"""Types of answers about uploaded archives, and their operations."""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from mesos_gpu.api.spec.operation import Operation, in_query
from mesos_gpu.api.spec.schema import says
from mesos_gpu.api.spec.shapes import Moment

_BYTES: Final = {"type": "integer", "minimum": 0}


class Upload(TypedDict):
    """An archive that is uploaded for jobs, or the part of it that has arrived."""

    sha256: Annotated[str, says(description="SHA-256 of the archive in hexadecimal digits")]
    received_bytes: Annotated[int, says(minimum=0)]
    complete: bool
    used_at: Moment


class KeptUpload(Upload):
    """An archive of the caller."""

    jobs: Annotated[
        list[str], says(description="the caller's jobs that have not ended, and apps, that need the archive")
    ]


class Uploads(TypedDict):
    """The archives of the caller, the latest used first, and the limits of their sizes."""

    uploads: list[KeptUpload]
    archive_limit_bytes: Annotated[int, says(minimum=1)]
    owner_limit_bytes: Annotated[int, says(minimum=1, description="limit for all archives of one owner")]


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/uploads"): Operation("list_uploads", "List the caller's archives", {200: Uploads}),
    ("GET", "/v1/uploads/{sha256}"): Operation(
        "show_upload", "Show how much of an archive has arrived", {200: Upload}
    ),
    ("PUT", "/v1/uploads/{sha256}"): Operation(
        "put_upload",
        "Add a piece of at most 1 MiB to an archive (gzip of tar); 409: it does not follow the previous piece",
        {200: Upload},
        (408, 409, 413, 415),
        (
            in_query("offset", _BYTES, "offset of the piece's first byte"),
            in_query("size", _BYTES, "size of the whole archive, in bytes"),
        ),
        raw_body=True,
    ),
    ("DELETE", "/v1/uploads/{sha256}"): Operation(
        "remove_upload",
        "Remove an archive of the caller, complete or not; 409: a job needs it",
        {200: Upload},
        (409,),
    ),
    ("GET", "/v1/uploads/{sha256}/archive"): Operation(
        "read_upload",
        "Read an archive, as the executor of a job that needs it",
        {200: "application/gzip"},
    ),
}
