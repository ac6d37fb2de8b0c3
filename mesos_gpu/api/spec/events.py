"""What /v1/events answers, as types."""

from typing import Annotated, TypedDict

from mesos_gpu.api.spec.job_fields import Count
from mesos_gpu.api.spec.schema import one_of, says
from mesos_gpu.api.spec.shapes import Moment, Notice
from mesos_gpu.model.tasks.event import EventKind


class BudgetEvent(TypedDict):
    """A threshold of a budget that was reached; 100: nothing is left in its period."""

    queue: str
    user: Annotated[str, says(description="whose jobs pay; null: all")] | None
    percent: Count
    period_ends: Moment


class Event(TypedDict):
    """Something that has befallen a job, or a budget."""

    number: Count
    at: Moment
    kind: Annotated[str, one_of(*EventKind)]
    job_id: Annotated[str, says(description="null: it is of a budget")] | None
    notice: Notice | None
    budget: BudgetEvent | None


class Events(TypedDict):
    """What has befallen jobs and budgets of late, oldest first; last: the number to ask after."""

    events: list[Event]
    last: Count
