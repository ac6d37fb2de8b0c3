"""What /v1 answers about the map of all cards: as types, and its operation."""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from mesos_gpu.api.spec.operation import Operation
from mesos_gpu.api.spec.schema import says


class NodeCards(TypedDict):
    """The cards of a node by their indexes; an entry of each of the last four is of one card."""

    hostname: str
    agent_id: str
    lost: bool
    drained: bool
    indexes: Annotated[
        list[int | None], says(description="as nvidia-smi shows; null: the driver does not list the card now")
    ]
    minors: Annotated[list[int], says(description="N of /dev/nvidiaN")]
    cards: Annotated[
        str,
        says(
            description="a letter for each: f free, u used, s shared; p suspect, k sick, l lost, y dirty, d drained, "
            "n unknown, in upper case if a task holds it"
        ),
    ]
    held_by: Annotated[
        list[int | None],
        says(description="where the job that holds all of it stands in the list of jobs; null: none does"),
    ]


class CardHolder(TypedDict):
    """A job that holds cards."""

    id: str
    name: str
    owner: str | None


class Cards(TypedDict):
    """All cards, as small as can be, on large clusters up to 3 s old; jobs that may not be seen are null."""

    nodes: list[NodeCards]
    jobs: list[CardHolder | None]


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/cards"): Operation(
        "map_cards", "All cards as a map: a letter for each, and the jobs that hold them", {200: Cards}
    ),
}
