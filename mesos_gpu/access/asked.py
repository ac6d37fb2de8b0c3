"""Filters of a search in the audit log; pure functions."""

from dataclasses import dataclass

from mesos_gpu.model.access.record import AuditRecord, Result


@dataclass(frozen=True, slots=True)
class Asked:
    """Filters of a search; an empty filter matches everything. A text that ends with * matches by prefix.

    Attributes:
        who: Name of the caller.
        what: Right, or part of method and route, such as `DELETE` or `/v1/jobs`.
        on: Kind and id of a subject, such as `job:train-1a2b3c4d`, or an id alone.
        since: First matching time, seconds since the epoch.
        until: End of the matching times, itself excluded, seconds since the epoch.
        result: Outcome of the request.
    """

    who: str = ""
    what: str = ""
    on: str = ""
    since: float | None = None
    until: float | None = None
    result: Result | None = None

    def matches(self, record: AuditRecord) -> bool:
        """Return whether a record matches all filters."""
        return (
            (self.since is None or record.at >= self.since)
            and (self.until is None or record.at < self.until)
            and (self.result is None or record.result is self.result)
            and (not self.who or _is(self.who, record.who))
            and (not self.what or self.what in record.what or _is(self.what, record.right))
            and (not self.on or any(_names(self.on, subject) for subject in record.on))
        )


@dataclass(frozen=True, slots=True)
class Found:
    """Matching records with their ids, the newest first; `cursor`: place to continue the search, "" at the end."""

    records: tuple[tuple[str, AuditRecord], ...]
    cursor: str


def _is(wanted: str, text: str) -> bool:
    return text.startswith(wanted[:-1]) if wanted.endswith("*") else text == wanted


def _names(wanted: str, subject: str) -> bool:
    return _is(wanted, subject) or _is(wanted, subject.partition(":")[2])
