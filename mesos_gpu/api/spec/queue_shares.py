"""What /v1 answers about shares of queues: as types, and its operations."""

from collections.abc import Mapping
from typing import Annotated, Final, TypedDict

from mesos_gpu.api.spec.job_fields import Count
from mesos_gpu.api.spec.operation import Operation
from mesos_gpu.api.spec.schema import says

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


OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    ("GET", "/v1/queue-shares"): Operation(
        "list_queue_shares", "What each queue is due, holds and waits for", {200: QueueShareList}
    ),
    ("GET", "/v1/queue-shares/{queue}"): Operation(
        "show_queue_share", "Why a queue is due what it is, step by step, and its users", {200: PathShare}
    ),
}
