"""Types of answers about the map of all GPUs, and their operation."""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from mesos_gpu.api.spec.operation import Operation
from mesos_gpu.api.spec.schema import says


class NodeCards(TypedDict):
    """The GPUs of a node in the order of their indexes. The last four fields have one entry for each GPU."""

    hostname: str
    agent_id: str
    lost: bool
    drained: bool
    indexes: Annotated[
        list[int | None],
        says(description="indexes in nvidia-smi; null: the driver does not list the GPU now"),
    ]
    minors: Annotated[list[int], says(description="minor numbers: N of /dev/nvidiaN")]
    cards: Annotated[
        str,
        says(
            description="a letter for each GPU: f free, u used, s shared; p suspect, k sick, l lost, y dirty, d "
            "drained, n unknown, in upper case if a task holds it"
        ),
    ]
    held_by: Annotated[
        list[int | None],
        says(description="index in `jobs` of the job that holds the whole GPU; null if none does"),
    ]


class CardHolder(TypedDict):
    """A job that holds GPUs."""

    id: str
    name: str
    owner: str | None


class Cards(TypedDict):
    """A compact map of all GPUs, on large clusters up to 3 s old. Invisible jobs are null."""

    nodes: list[NodeCards]
    jobs: list[CardHolder | None]


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/cards"): Operation(
        "map_cards", "Show all GPUs as a map: a letter for each, and the jobs that hold them", {200: Cards}
    ),
}
