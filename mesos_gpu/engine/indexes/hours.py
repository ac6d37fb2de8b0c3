"""Tree of queues at a time, with the figures that its hours give it then."""

from dataclasses import dataclass
from functools import cached_property

from mesos_gpu.model.tenancy import QueueDocument
from mesos_gpu.policy.tenancy.tree import Tree
from mesos_gpu.policy.times.hours import Span, span_at


@dataclass(frozen=True, eq=False)
class HoursNow:
    """Version of the document of queues, seen at one moment.

    Attributes:
        written: Document with all hours.
        at: Moment, in seconds since the epoch.
    """

    written: QueueDocument
    at: float

    @cached_property
    def span(self) -> Span:
        """Figures that hold at the moment, and the time for which they hold."""
        return span_at(self.written, self.at)

    @cached_property
    def tree(self) -> Tree:
        """Tree of the queues, which is flat while the document is empty."""
        return Tree(self.span.document)
