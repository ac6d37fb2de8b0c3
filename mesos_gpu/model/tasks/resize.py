"""A change of a running task's share: what its executor is asked for, and what it answers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resize:
    """What a task shall have of each of its GPUs from now on. It may be asked for more than once: the highest number
    counts, and one that was done is answered again.

    Attributes:
        number: Grows with each request of the task, from 1.
        memory_mib, memory_max_mib, compute_milli: As of a `Share`.
    """

    number: int
    memory_mib: int
    memory_max_mib: int
    compute_milli: int


@dataclass(frozen=True, slots=True)
class Resized:
    """What came of it.

    Attributes:
        number: Of the request that is answered.
        memory_mib, memory_max_mib, compute_milli: What the task has of each GPU now, be it changed or not.
        refused: Why nothing was changed, for people; "": all of it is done.
        used_mib: The memory that the task uses, where that is more than it would have had.
        restart: Whether the task could have it if it started again.
    """

    number: int
    memory_mib: int
    memory_max_mib: int
    compute_milli: int
    refused: str = ""
    used_mib: int | None = None
    restart: bool = False
