"""What a task's GPUs count as while it holds them, and who is charged."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Charge:
    """What a queue and a user hold by one task, as it was granted. It is saved with the task, so that what is taken
    back at its end is what was charged, whatever became of costs, cards and the document meanwhile.

    Attributes:
        queue: The path of the leaf.
        user: Who asked for it; "": nobody is known.
        pool: Of its node.
        milli: Thousandths of cost that it holds: GPUs as granted times the cost of their models.
        rate: The same as it counts in use, by its class.
        cpus_milli: Thousandths of CPUs.
        mem_mib: Memory.
    """

    queue: str
    user: str
    pool: str
    milli: int
    rate: int
    cpus_milli: int = 0
    mem_mib: int = 0
