"""Visibility of events and of their fields."""

from mesos_gpu.access.decide import Rights, Subject
from mesos_gpu.access.rights import APP_SEE, BOOKING_SEE, GPU_SEE, JOB_READ, JOB_SEE, NODE_SEE, Right
from mesos_gpu.api.sight.queues import sees_budget
from mesos_gpu.model.tasks.event import LogEvent


class EventSight:
    """The events that a caller may see. The job of an event may have been removed already.

    Args:
        rights: Rights of the caller.
    """

    def __init__(self, rights: Rights) -> None:
        self._rights = rights
        self._known: dict[tuple[Right, Subject], bool] = {}

    def sees(self, event: LogEvent) -> bool:
        """Return whether the event is visible."""
        if event.job_id:
            return self._may(JOB_SEE, _subject(event))
        if event.budget is not None:
            return sees_budget(self._rights, event.budget)
        if event.booking:
            return self._may(BOOKING_SEE, Subject(queue=event.queue))
        if event.deployment:
            if not event.apps:
                return self._may(APP_SEE, None)
            return all(self._may(APP_SEE, Subject(app=app)) for app in event.apps)
        return self._may(GPU_SEE if event.gpu else NODE_SEE, None)

    def message(self, event: LogEvent) -> str | None:
        """Return an event's message; None if it is hidden or empty."""
        if event.job_id and event.notice is None and not self._may(JOB_READ, _subject(event)):
            return None
        return event.message or None

    def _may(self, right: Right, subject: Subject | None) -> bool:
        if subject is None:
            return self._rights.may(right)
        key = right, subject
        if key not in self._known:
            self._known[key] = self._rights.may(right, subject)
        return self._known[key]


def _subject(event: LogEvent) -> Subject:
    return Subject(event.owner, event.queue, event.app)
