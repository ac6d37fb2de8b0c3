"""What /v1 takes and says of commands in running jobs: as types, and its operation."""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from mesos_gpu.api.spec.operation import Operation
from mesos_gpu.api.spec.schema import says
from mesos_gpu.wire.channel.forward import MOST_PORTS
from mesos_gpu.wire.channel.order import MOST_SIDE, MOST_TEXT, MOST_WORDS

_Side = Annotated[int, says(minimum=0, maximum=MOST_SIDE)]
_Port = Annotated[int, says(minimum=1, maximum=65535)]
_Word = Annotated[str, says(pattern="^[^\\x00]*$", maxLength=MOST_TEXT)]


class _Command(TypedDict):
    argv: Annotated[list[_Word], says(minItems=1, maxItems=MOST_WORDS)]


class ExecRequest(_Command, total=False):
    """A command for a running task: `argv` in the task's own surroundings, with a terminal (`tty`) of that size, and
    with what the client sends as its `stdin`."""

    rank: Annotated[int, says(minimum=0, maximum=(1 << 20) - 1, default=0)] | None
    stdin: bool | None
    tty: bool | None
    rows: _Side | None
    columns: _Side | None
    term: Annotated[str, says(pattern="^[A-Za-z0-9.+-]*[A-Za-z0-9][A-Za-z0-9.+-]*$", maxLength=40)] | None


class _Ports(TypedDict):
    ports: Annotated[list[_Port], says(minItems=1, maxItems=MOST_PORTS)]


class ForwardRequest(_Ports, total=False):
    """Ports of a running task to which connections are to go, of its own addresses."""

    rank: Annotated[int, says(minimum=0, maximum=(1 << 20) - 1, default=0)] | None


class Channel(TypedDict):
    """Where to go by WebSocket, and the proof to show there, once: `Authorization: Bearer PROOF`."""

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
    ("POST", "/v1/jobs/{id}/forward"): Operation(
        "forward_to_job",
        "Open a channel to ports of a running job",
        {201: Channel},
        (409, 429),
        body=ForwardRequest,
        example={"ports": [8888], "rank": 0},
    ),
}
