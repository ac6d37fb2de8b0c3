"""Types of answers of /v1/upgrade: programs on hosts, and facts about this scheduler that a newer one must know."""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from mesos_gpu.api.spec.job_fields import Count
from mesos_gpu.api.spec.operation import Operation
from mesos_gpu.api.spec.schema import says
from mesos_gpu.api.spec.shapes import Moment


class Program(TypedDict):
    """A program of a host, as it reports itself."""

    version: str
    wire: Annotated[int, says(minimum=1, description="newest version of messages that it supports")]
    oldest: Annotated[int, says(minimum=1, description="oldest version of messages that it supports")]
    digest: (
        Annotated[str, says(description="SHA-256 of its archive, or of the list of installed files")] | None
    )


class NodeProgram(TypedDict):
    """The program that runs as the monitor of a node, and whether it must be replaced."""

    hostname: str
    agent_id: str
    program: Annotated[Program | None, says(description="null: not reported, as by programs of wire 1")]
    outdated: Annotated[str | None, says(description="why it must be replaced; null: it need not be")]
    unfit: Annotated[str | None, says(description="why nothing is launched on the node; null: no reason")]
    replaced_now: bool
    problem: Annotated[str | None, says(description="why its replacement does not finish")]


class Executors(TypedDict):
    """Executors of one version, of running jobs."""

    version: Annotated[str | None, says(description="null: not reported")]
    wire: Annotated[int, says(minimum=1, description="newest version of messages that they support")]
    tasks: Count
    unlimited: Annotated[int, says(minimum=0, description="tasks without a time limit")]
    last_ends_at: Annotated[Moment | None, says(description="when the last task with a time limit ends")]


class Flag(TypedDict):
    """An option of the scheduler's command line; its value is not shown."""

    name: str
    given: Annotated[bool, says(description="whether it is set on the command line, or by a variable")]
    default: Annotated[str | None, says(description="null: no constant default")]


class Upgrade(TypedDict):
    """This scheduler and the programs on hosts, as the next release must know them."""

    version: str
    wire: Annotated[int, says(minimum=1)]
    oldest: Annotated[int, says(minimum=1)]
    schema: Annotated[int, says(minimum=1, description="schema version of its state")]
    nodes: list[NodeProgram]
    replaced: Annotated[int, says(minimum=0, description="monitors replaced since this scheduler started")]
    executors: list[Executors]
    flags: list[Flag]


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/upgrade"): Operation(
        "show_upgrade", "Show programs on hosts, and facts that a newer scheduler must know", {200: Upgrade}
    ),
}
