"""What /v1 answers about shares of queues: as types, and its operations."""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from mesos_gpu.api.spec.job_fields import Count
from mesos_gpu.api.spec.operation import Operation
from mesos_gpu.api.spec.schema import says
from mesos_gpu.api.spec.shapes import Why

_Gpus = Annotated[float, says(minimum=0, description="GPUs of cost 1, in thousandths")]
_Hours = Annotated[
    float, says(minimum=0, description="GPU hours of cost 1 that are not forgotten, by half_life_s")
]


class QueueShare(TypedDict):
    """What a queue is due of a pool, and what it follows from: `given` is what the queue above it divides, `floor` what
    it gets of its guarantee, `kept` what is kept idle for it, `rest` what was left over in the turn of its band, of
    which it has `borrowed` by its `weight` of all `weights`. What it is due is floor and borrowed."""

    path: str
    pool: str
    guarantee_gpus: _Gpus
    limit_gpus: _Gpus | None
    held_gpus: _Gpus
    pending_gpus: _Gpus
    over_gpus: Annotated[float, says(minimum=0, description="held beyond the guarantee")]
    lent_gpus: Annotated[float, says(minimum=0, description="of the guarantee, held by queues beside it")]
    due_gpus: _Gpus
    given_gpus: _Gpus
    floor_gpus: _Gpus
    kept_gpus: _Gpus
    rest_gpus: _Gpus
    weight: Count
    weights: Count
    borrowed_gpus: _Gpus
    used_gpu_hours: _Hours


class UserShare(TypedDict):
    """A user beside the others of a queue; the lowest rank is served first, and equals share one. `user` is empty for
    jobs that name nobody."""

    user: str
    shares: Count
    used_gpu_hours: _Hours
    held_gpus: _Gpus
    rank: Count


class QueueShareList(TypedDict):
    """Every queue that one may see, in each pool that has GPUs."""

    shares: list[QueueShare]


class PathShare(TypedDict):
    """A queue's share: by pool the steps to it, the top queue first, and its users."""

    path: str
    steps: list[QueueShare]
    users: list[UserShare]


class QueuePool(TypedDict):
    """What a queue has of a pool, with all below it; `seated` is what its jobs hold within guarantees."""

    pool: str
    guarantee_gpus: _Gpus
    seated_gpus: _Gpus
    lent_gpus: Annotated[float, says(minimum=0, description="of the guarantee, held by queues beside it")]
    held_gpus: _Gpus
    due_gpus: _Gpus
    limit_gpus: _Gpus | None
    pending_gpus: _Gpus


class QueueWait(TypedDict):
    """Jobs that wait for the same kind of thing."""

    reason: Annotated[
        str,
        says(
            description="of the funnel; gpus: room on nodes; guarantee: room that a guarantee gives them; pace: their "
            "turn on nodes with room; retry: their next launch; secrets"
        ),
    ]
    jobs: Count
    gpus: Annotated[float, says(minimum=0, description="that they ask for")]
    first: Annotated[str, says(description="of them, in the line")]
    words: Annotated[str, says(description='why that one waits; "": for room')]


class QueueWhy(TypedDict):
    """Why the jobs of a queue wait, and those of all below it."""

    path: str
    summary: str
    pools: list[QueuePool]
    waits: list[QueueWait]
    first: (
        Annotated[Why, says(description="of the first in the line; null: none waits that one may see")] | None
    )


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/queue-shares"): Operation(
        "list_queue_shares", "What each queue is due, holds and waits for", {200: QueueShareList}
    ),
    ("GET", "/v1/queue-shares/{queue}"): Operation(
        "show_queue_share", "Why a queue is due what it is, step by step, and its users", {200: PathShare}
    ),
    ("GET", "/v1/queue-why/{queue}"): Operation(
        "explain_queue", "Why the jobs of a queue wait, and the first of them in full", {200: QueueWhy}
    ),
}
