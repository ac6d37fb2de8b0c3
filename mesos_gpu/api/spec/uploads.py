"""What the routes of archives answer, as types, and their operations."""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from mesos_gpu.api.spec.operation import Operation, in_query
from mesos_gpu.api.spec.schema import says
from mesos_gpu.api.spec.shapes import Moment

_BYTES: Final = {"type": "integer", "minimum": 0}


class Upload(TypedDict):
    """An archive that is sent along with jobs, or as much of one as has come."""

    sha256: Annotated[str, says(description="of its bytes, in hexadecimal digits")]
    received_bytes: Annotated[int, says(minimum=0)]
    complete: bool
    used_at: Moment


class KeptUpload(Upload):
    """An archive of who asks."""

    jobs: Annotated[list[str], says(description="one's own that have not ended and need it, and apps")]


class Uploads(TypedDict):
    """The archives of who asks, the latest used first, and how large they may be."""

    uploads: list[KeptUpload]
    archive_limit_bytes: Annotated[int, says(minimum=1)]
    owner_limit_bytes: Annotated[int, says(minimum=1, description="of all archives of one name")]


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/uploads"): Operation("list_uploads", "One's own archives of code", {200: Uploads}),
    ("GET", "/v1/uploads/{sha256}"): Operation(
        "show_upload", "How much has come of an archive of one's own", {200: Upload}
    ),
    ("PUT", "/v1/uploads/{sha256}"): Operation(
        "put_upload",
        "Add a piece to an archive (gzip of tar), of at most 1 MiB; 409: it does not follow what is there",
        {200: Upload},
        (408, 409, 413, 415),
        (
            in_query("offset", _BYTES, "of the piece's first byte"),
            in_query("size", _BYTES, "of the whole archive, in bytes"),
        ),
        raw_body=True,
    ),
    ("DELETE", "/v1/uploads/{sha256}"): Operation(
        "remove_upload",
        "Remove an archive of one's own, or as much of one as has come; 409: a job needs it",
        {200: Upload},
        (409,),
    ),
    ("GET", "/v1/uploads/{sha256}/archive"): Operation(
        "read_upload",
        "The bytes of an archive, for the executor of a job that needs it",
        {200: "application/gzip"},
    ),
}
