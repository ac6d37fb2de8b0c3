"""What /v1/upgrade answers, as types: what runs on hosts, and what a newer scheduler has to know of this one."""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from mesos_gpu.api.spec.job_fields import Count
from mesos_gpu.api.spec.operation import Operation
from mesos_gpu.api.spec.schema import says
from mesos_gpu.api.spec.shapes import Moment


class Program(TypedDict):
    """A program of a host, as it says itself."""

    version: str
    wire: Annotated[int, says(minimum=1, description="the newest version of messages that it speaks")]
    oldest: Annotated[int, says(minimum=1, description="the oldest")]
    digest: (
        Annotated[str, says(description="SHA-256 of its archive, or of the list of what is installed")] | None
    )


class NodeProgram(TypedDict):
    """What runs as the monitor of a node, and what is to be done about it."""

    hostname: str
    agent_id: str
    program: Annotated[Program | None, says(description="null: it does not say it, as of wire 1")]
    outdated: Annotated[str | None, says(description="why it is to be replaced; null: it is not")]
    unfit: Annotated[str | None, says(description="why nothing is launched there; null: no such reason")]
    replaced_now: bool
    problem: Annotated[str | None, says(description="why its replacement does not come to an end")]


class Executors(TypedDict):
    """Executors of one kind: of jobs that run."""

    version: Annotated[str | None, says(description="null: they do not say it")]
    wire: Annotated[int, says(minimum=1, description="the newest version of messages that they speak")]
    tasks: Count
    unlimited: Annotated[int, says(minimum=0, description="of those, without a time limit")]
    last_ends_at: Annotated[Moment | None, says(description="when the last of the others has ended")]


class Flag(TypedDict):
    """An option of a scheduler's command line. What it was given is not told."""

    name: str
    given: Annotated[bool, says(description="on the command line, or by a variable")]
    default: Annotated[str | None, says(description="null: there is none that is always the same")]


class Upgrade(TypedDict):
    """This scheduler, and what runs on hosts, as the next release must know it."""

    version: str
    wire: Annotated[int, says(minimum=1)]
    oldest: Annotated[int, says(minimum=1)]
    schema: Annotated[int, says(minimum=1, description="of its state")]
    nodes: list[NodeProgram]
    replaced: Annotated[int, says(minimum=0, description="monitors, since this scheduler started")]
    executors: list[Executors]
    flags: list[Flag]


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/upgrade"): Operation(
        "show_upgrade", "What runs on hosts, and what a newer scheduler has to know", {200: Upgrade}
    ),
}
