"""Types of answers about fair shares of queues, and their operations."""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from mesos_gpu.api.spec.job_fields import Count
from mesos_gpu.api.spec.operation import Operation
from mesos_gpu.api.spec.schema import says
from mesos_gpu.api.spec.shapes import Why

_Gpus = Annotated[float, says(minimum=0, description="GPUs of cost 1, in thousandths")]
_Hours = Annotated[
    float, says(minimum=0, description="GPU hours of cost 1, reduced over time by half_life_s")
]


class QueueShare(TypedDict):
    """The fair share of a queue in a pool, and how it is computed: `given` is what the queue above divides, `floor`
    what the queue gets of its guarantee, `kept` what is kept idle for it, `rest` what was left when its band got
    its turn, of which the queue gets `borrowed` by its `weight` among all `weights`. The fair share `due` is
    floor plus borrowed.
    """

    path: str
    pool: str
    guarantee_gpus: _Gpus
    limit_gpus: _Gpus | None
    held_gpus: _Gpus
    pending_gpus: _Gpus
    over_gpus: Annotated[float, says(minimum=0, description="held beyond the guarantee")]
    lent_gpus: Annotated[float, says(minimum=0, description="part of the guarantee that sibling queues hold")]
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
    """A user among the users of a queue. The lowest rank is served first; equal users share a rank. `user` is empty
    for jobs without a name.
    """

    user: str
    shares: Count
    used_gpu_hours: _Hours
    held_gpus: _Gpus
    rank: Count


class QueueShareList(TypedDict):
    """Every visible queue, in each pool that has GPUs."""

    shares: list[QueueShare]


class PathShare(TypedDict):
    """Fair share of a queue: for each pool the steps from the top queue to it, and its users."""

    path: str
    steps: list[QueueShare]
    users: list[UserShare]


class QueuePool(TypedDict):
    """State of a queue and the queues below it in a pool; `seated` is what its jobs hold within guarantees."""

    pool: str
    guarantee_gpus: _Gpus
    seated_gpus: _Gpus
    lent_gpus: Annotated[float, says(minimum=0, description="part of the guarantee that sibling queues hold")]
    held_gpus: _Gpus
    due_gpus: _Gpus
    limit_gpus: _Gpus | None
    pending_gpus: _Gpus


class QueueWait(TypedDict):
    """Jobs that wait for the same reason."""

    reason: Annotated[
        str,
        says(
            description="a stage of the funnel; gpus: capacity of nodes; guarantee: capacity that a guarantee gives "
            "them; pace: their turn on nodes with room; retry: their next launch; secrets"
        ),
    ]
    jobs: Count
    gpus: Annotated[float, says(minimum=0, description="GPUs that they request")]
    first: Annotated[str, says(description="first of these jobs in queue order")]
    words: Annotated[str, says(description='why the first of them waits; "": for capacity')]


class QueueWhy(TypedDict):
    """Reasons for which the jobs of a queue, and of all queues below it, wait."""

    path: str
    summary: str
    pools: list[QueuePool]
    waits: list[QueueWait]
    first: (
        Annotated[Why, says(description="about the first job in queue order; null: no visible job waits")]
        | None
    )


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/queue-shares"): Operation(
        "list_queue_shares",
        "List the fair share, the usage and the pending GPUs of each queue",
        {200: QueueShareList},
    ),
    ("GET", "/v1/queue-shares/{queue}"): Operation(
        "show_queue_share", "Explain the fair share of a queue step by step, with its users", {200: PathShare}
    ),
    ("GET", "/v1/queue-why/{queue}"): Operation(
        "explain_queue",
        "Explain why the jobs of a queue wait, with full details of the first one",
        {200: QueueWhy},
    ),
}
