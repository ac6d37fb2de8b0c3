"""At which of its ports a task listens, as its executor has proved."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listening:
    """What the executor of a task saw last.

    Attributes:
        ports: Those of its host's ports at which the task listens, and nobody else does.
        problem: What is in the way at others, for people; "": nothing, it does not listen there yet.
    """

    ports: tuple[int, ...] = ()
    problem: str = ""
