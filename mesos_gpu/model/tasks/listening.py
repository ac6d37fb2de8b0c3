"""Ports at which a task listens, as proved by its executor."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listening:
    """Latest report of an executor on the ports of its task.

    Attributes:
        ports: Ports of the host at which the task, and no other process, listens.
        problem: Why other ports of the task are not among `ports`, as a sentence for people; "" if no process listens
            at them yet.
    """

    ports: tuple[int, ...] = ()
    problem: str = ""
