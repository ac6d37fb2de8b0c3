"""Limits on audit records of refusals: per origin the first of each minute are written, the rest counted; pure.

An origin is a proved name, or else an address. A limit for all addresses together applies too. If a table of origins is
full, further origins are counted together.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from mesos_gpu.access.rate import network_of
from mesos_gpu.model.access.record import AuditRecord, Result

MINUTE_S: Final = 60.0
FIRST: Final = 20  # written refusals of one origin per minute
FIRST_OF_ALL: Final = 600  # written refusals per minute of all origins without a proved name
MAX_ORIGINS: Final = 1024
MAX_REASONS: Final = 8  # distinct reasons by which refusals of an origin are counted
_OTHERS: Final = "others"


@dataclass(slots=True)
class _Minute:
    whole: int = 0
    last: AuditRecord | None = None  # latest record that was only counted
    counted: Counter[tuple[int, str]] = field(default_factory=Counter)  # by status and reason


@dataclass(slots=True)
class RefusalLimiter:
    """Refusals in the current minute. Not thread-safe."""

    _until: float = 0.0
    _whole: int = 0
    _origins: tuple[dict[str, _Minute], dict[str, _Minute]] = field(default_factory=lambda: ({}, {}))

    def take(self, record: AuditRecord) -> bool:
        """Return whether to write a refusal; otherwise it is counted. Call `over` first."""
        origin, origins = origin_of(record), self._origins[record.proved]
        minute = origins.get(origin)
        if minute is None:
            if len(origins) >= MAX_ORIGINS:
                origin = _OTHERS
            minute = origins.setdefault(origin, _Minute())
        may_write = record.proved or self._whole < FIRST_OF_ALL
        if minute.whole < FIRST and may_write and origin != _OTHERS:
            minute.whole += 1
            self._whole += not record.proved
            return True
        reason = (record.status, record.reason)
        if reason not in minute.counted and len(minute.counted) >= MAX_REASONS:
            reason = (0, "other")
        minute.counted[reason] += 1
        minute.last = record if origin != _OTHERS else replace(record, address=_OTHERS, who="-", relayed="")
        return False

    def over(self, now: float, *, at_once: bool = False) -> Iterator[AuditRecord]:
        """Yield the counts of the past minute as records, if it is over, or if `at_once` is set because no more
        follow."""
        if now < self._until and not at_once and now >= self._until - 2 * MINUTE_S:
            return
        (addresses, names), self._origins = self._origins, ({}, {})
        self._until, self._whole = now + MINUTE_S, 0
        for minute in (*addresses.values(), *names.values()):
            for (status, reason), count in minute.counted.items():
                if minute.last is not None:
                    yield _sum(minute.last, status, reason, count)


def _sum(last: AuditRecord, status: int, reason: str, count: int) -> AuditRecord:
    """Return the record that stands for `count` refusals of one origin, with one status and reason."""
    return AuditRecord(
        at=last.at,
        what="refusals",
        result=Result.REFUSED,
        who=last.who,
        proof=last.proof,
        proved=last.proved,
        address=last.address,
        relayed=last.relayed,
        status=status,
        reason=reason,
        detail="more of the same origin within a minute",
        count=count,
    )


def origin_of(record: AuditRecord) -> str:
    """Return the origin of a record: a proved name, else the address, for IPv6 its network of 64 bits."""
    if record.proved:
        return f"name {record.who}"
    host = record.address.rpartition(":")[0] or record.address
    return network_of(host.strip("[]"))
