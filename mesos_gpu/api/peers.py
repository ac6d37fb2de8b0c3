"""Leadership among several schedulers, as the REST interface reads and changes it."""

from typing import Protocol, TypedDict


class Scheduler(TypedDict):
    """A scheduler among several; applied: the last batch of saves that its state is known to contain."""

    url: str
    leads: bool
    here: bool
    applied: int


class Leadership(TypedDict):
    """The leading scheduler and all schedulers seen within a day.

    age_s: greatest age of the state that this scheduler answers from; null if it leads.
    zookeeper: why no leader can be elected now; null if ZooKeeper answers.
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
    """This scheduler's knowledge of the other schedulers."""

    @property
    def leads(self) -> bool:
        """Whether this scheduler leads."""

    @property
    def leader_url(self) -> str | None:
        """URL of the last known leader; None if no scheduler leads."""

    @property
    def standbys(self) -> int | None:
        """Number of standby schedulers when last counted; None if ZooKeeper does not answer."""

    def told(self) -> Leadership:
        """Return the leadership as a document. May wait for ZooKeeper for some seconds; raises nothing."""

    def abdicate(self) -> None:
        """Give up the leadership after pending answers are sent. Only the leader may call it."""
