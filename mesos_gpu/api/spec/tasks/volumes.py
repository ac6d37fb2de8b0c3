"""Types of answers about named volumes, and their operations."""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from mesos_gpu.api.spec.operation import Operation, in_query
from mesos_gpu.api.spec.schema import says
from mesos_gpu.api.spec.shapes import Moment

_MIB: Final = says(minimum=0)


class NamedVolume(TypedDict):
    """A named volume of jobs."""

    id: Annotated[str, says(description="UUID; also the name of its directory on the host")]
    name: str
    owner: Annotated[str, says(description="user or authenticated name; empty: the default user")]
    user: Annotated[str, says(description="Unix user of the jobs that use it; empty: the default user")]
    size_mib: Annotated[int, _MIB]
    hostname: Annotated[str | None, says(description="host that has it; null: no job was launched yet")]
    jobs: Annotated[list[str], says(description="jobs and arrays that have not ended and use it")]
    created_at: Moment
    used_at: Annotated[Moment | None, says(description="latest launch of a job that uses it")]
    removing: Annotated[bool, says(description="whether it is removed when its host next reports")]


class NamedVolumes(TypedDict):
    """Named volumes by owner and name."""

    volumes: list[NamedVolume]
    owner_limit_mib: Annotated[
        int, says(minimum=0, description="limit for all volumes of one owner; 0: no limit")
    ]


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/volumes"): Operation(
        "list_volumes",
        "List the caller's named volumes; without authentication all volumes",
        {200: NamedVolumes},
        query=(
            in_query("all_users", {"type": "boolean", "default": False}, "list the volumes of all users"),
        ),
    ),
    ("DELETE", "/v1/volumes/{name}"): Operation(
        "remove_volume",
        "Remove a named volume and its data from its host; 409: a job that has not ended uses it",
        {202: NamedVolume},
        (409,),
        (in_query("user", {"type": "string"}, "owner of the volume; default: the caller"),),
    ),
}
