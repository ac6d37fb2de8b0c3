"""Which audit records somebody asks for. Pure."""

from dataclasses import dataclass

from mesos_gpu.model.access.record import AuditRecord, Result


@dataclass(frozen=True, slots=True)
class Asked:
    """Filters; one that is empty lets everything through. A text that ends with * is the start of what is meant.

    Attributes:
        who: A name.
        what: A right, or a part of verb and route, as `DELETE` or `/v1/jobs`.
        on: Kind and id, as `job:train-1a2b3c4d`, or an id alone.
        since: Seconds since the epoch; the first moment that counts.
        until: Likewise; the first that does not.
        result: How it ended.
    """

    who: str = ""
    what: str = ""
    on: str = ""
    since: float | None = None
    until: float | None = None
    result: Result | None = None

    def matches(self, record: AuditRecord) -> bool:
        """Whether a record is asked for."""
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
    """What was found, the newest first, each with its id; `cursor`: where to go on, "" at the end."""

    records: tuple[tuple[str, AuditRecord], ...]
    cursor: str


def _is(wanted: str, text: str) -> bool:
    return text.startswith(wanted[:-1]) if wanted.endswith("*") else text == wanted


def _names(wanted: str, subject: str) -> bool:
    return _is(wanted, subject) or _is(wanted, subject.partition(":")[2])
