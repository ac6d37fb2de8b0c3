"""Types of requests and answers about channels into running jobs, and their operations."""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from mesos_gpu.api.spec.operation import Operation, in_query
from mesos_gpu.api.spec.schema import says
from mesos_gpu.wire.channel.file import GET, LIST, MAX_PATH, PUT
from mesos_gpu.wire.channel.forward import MAX_PORTS
from mesos_gpu.wire.channel.order import MAX_SIDE, MAX_TEXT, MAX_WORDS
from mesos_gpu.wire.channel.tree import MAX_NAME

_Side = Annotated[int, says(minimum=0, maximum=MAX_SIDE)]
_Port = Annotated[int, says(minimum=1, maximum=65535)]
_Word = Annotated[str, says(pattern="^[^\\x00]*$", maxLength=MAX_TEXT)]


class _Command(TypedDict):
    argv: Annotated[list[_Word], says(minItems=1, maxItems=MAX_WORDS)]


class ExecRequest(_Command, total=False):
    """A command to run inside a running task: `argv` in the task's own environment, with a terminal of the given
    size if `tty` is set, and with the client's input as `stdin`.
    """

    rank: Annotated[int, says(minimum=0, maximum=(1 << 20) - 1, default=0)] | None
    stdin: bool | None
    tty: bool | None
    rows: _Side | None
    columns: _Side | None
    term: Annotated[str, says(pattern="^[A-Za-z0-9.+-]*[A-Za-z0-9][A-Za-z0-9.+-]*$", maxLength=40)] | None


class _Ports(TypedDict):
    ports: Annotated[list[_Port], says(minItems=1, maxItems=MAX_PORTS)]


class ForwardRequest(_Ports, total=False):
    """Ports of a running task, at its own addresses, to which connections are forwarded."""

    rank: Annotated[int, says(minimum=0, maximum=(1 << 20) - 1, default=0)] | None


class _FileOrder(TypedDict):
    what: Annotated[str, says(enum=[LIST, GET, PUT])]


class FilesRequest(_FileOrder, total=False):
    """Files of a running task. `path` is relative to its sandbox, in the task's view: it is listed, read, or the
    client's files are written there as `name`. Records on the channel are those of
    mesos_gpu/wire/channel/tree.py.
    """

    rank: Annotated[int, says(minimum=0, maximum=(1 << 20) - 1, default=0)] | None
    path: Annotated[str, says(pattern="^[^\\x00]*$", maxLength=MAX_PATH)] | None
    name: Annotated[str, says(pattern="^[^/\\x00]*$", maxLength=MAX_NAME)] | None


class Channel(TypedDict):
    """Path to connect to by WebSocket, and the proof to show there, once: `Authorization: Bearer PROOF`."""

    path: str
    proof: str
    task_id: str


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("POST", "/v1/jobs/{id}/exec"): Operation(
        "exec_in_job",
        "Open a channel to a command in a running job",
        {201: Channel},
        (409, 429),
        body=ExecRequest,
        example={"argv": ["nvidia-smi", "-L"], "rank": 0},
    ),
    ("GET", "/v1/jobs/{id}/files"): Operation(
        "kept_files_of_job",
        "Read files in the sandbox of an ended job, as records of mesos_gpu/wire/channel/tree.py",
        {200: "application/octet-stream"},
        (409, 429, 503),
        (
            in_query(
                "what",
                {"type": "string", "enum": [LIST, GET], "default": LIST},
                "list: names and sizes; get: contents, too",
            ),
            in_query("path", {"type": "string"}, "path in the sandbox"),
            in_query("rank", {"type": "integer", "minimum": 0, "maximum": (1 << 20) - 1}, "rank of the task"),
        ),
    ),
    ("POST", "/v1/jobs/{id}/files"): Operation(
        "files_of_job",
        "Open a channel to files of a running job",
        {201: Channel},
        (409, 429),
        body=FilesRequest,
        example={"what": "get", "path": "model.pt"},
    ),
    ("POST", "/v1/jobs/{id}/forward"): Operation(
        "forward_to_job",
        "Open a channel to ports of a running job",
        {201: Channel},
        (409, 429),
        body=ForwardRequest,
        example={"ports": [8888], "rank": 0},
    ),
}
