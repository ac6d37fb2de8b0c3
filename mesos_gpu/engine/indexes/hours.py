"""The tree of queues as it is at a time: with the figures that its hours give it then."""

from dataclasses import dataclass
from functools import cached_property

from mesos_gpu.model.tenancy import QueueDocument
from mesos_gpu.policy.tenancy.tree import Tree
from mesos_gpu.policy.times.hours import Span, span_at


@dataclass(frozen=True, eq=False)
class HoursNow:
    """A version of the document, and the moment at which it is looked at."""

    written: QueueDocument
    at: float

    @cached_property
    def span(self) -> Span:
        """The figures that hold at that moment, and for how long."""
        return span_at(self.written, self.at)

    @cached_property
    def tree(self) -> Tree:
        """Tree of the queues, which is flat while the document is empty."""
        return Tree(self.span.document)
