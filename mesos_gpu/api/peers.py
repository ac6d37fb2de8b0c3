"""Who leads of several schedulers, as the REST interface asks for it."""

from typing import Protocol, TypedDict


class Scheduler(TypedDict):
    """A scheduler among several; applied: the last batch of saves that its state is known to have."""

    url: str
    leads: bool
    here: bool
    applied: int


class Leadership(TypedDict):
    """Who leads of all schedulers that were seen within a day; age_s: of what this one answers, null: it leads.

    zookeeper: why nobody can be elected now; null: it answers.
    """

    leader: str | None
    here: str
    leads: bool
    age_s: float | None
    batch: int
    candidates: int
    schedulers: list[Scheduler]
    zookeeper: str | None


class Peers(Protocol):
    """What this scheduler knows of the others."""

    @property
    def leads(self) -> bool:
        """Whether this one leads."""

    @property
    def leader_url(self) -> str | None:
        """The leader's, as it was heard last; None: nobody leads."""

    @property
    def standbys(self) -> int | None:
        """How many stand by, as they were counted last; None: ZooKeeper does not answer."""

    def told(self) -> Leadership:
        """All of it; it may wait for ZooKeeper for some seconds, and raises nothing."""

    def abdicate(self) -> None:
        """Lead no more, as soon as what is being answered is. Only of who leads."""
