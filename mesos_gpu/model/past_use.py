"""What a queue, or a user of it, has used of late."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PastUse:
    """Use that is forgotten by half-lives; `mesos_gpu.policy.tenancy.usage` says how much it is at a time.

    Attributes:
        queue: The path of a leaf.
        user: Of whom; "*": of all of them together, those included of whom nothing is known any more.
        value: What is not forgotten at `since`, in thousandths of cost times seconds.
        since: Microseconds since the epoch.
        rate: Thousandths of cost that are charged since then.
    """

    queue: str
    user: str
    value: int = 0
    since: int = 0
    rate: int = 0
