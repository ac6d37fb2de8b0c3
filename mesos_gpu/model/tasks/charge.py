"""Charges of running tasks to queues and users."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Charge:
    """Amounts that a task adds to the use of a queue and a user. They are saved with the task, so that exactly the
    charged amounts are subtracted at its end, even if costs, GPUs or the queue document have changed.

    Attributes:
        queue: Path of the leaf queue.
        user: User that is charged; "" if not known.
        pool: Pool of the task's node.
        milli: Thousandths of cost that it holds: assigned GPUs times the cost of their models.
        rate: Thousandths of cost that count as use, after the percentage of its job class.
        cpus_milli: Thousandths of CPUs.
        mem_mib: Memory in MiB.
    """

    queue: str
    user: str
    pool: str
    milli: int
    rate: int
    cpus_milli: int = 0
    mem_mib: int = 0
