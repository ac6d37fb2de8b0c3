"""Queries of the audit log: the records that they match."""

import pytest

from mesos_gpu.access.asked import Asked
from mesos_gpu.model.access.record import AuditRecord, Result

RECORD = AuditRecord(
    1000.0,
    "DELETE /v1/jobs/{id}",
    Result.REFUSED,
    "ann",
    right="job:kill",
    on=("job:train-1a2b", "app:/shop/web"),
)


@pytest.mark.parametrize(
    "asked",
    [
        Asked(),
        Asked(who="ann"),
        Asked(who="a*"),
        Asked(what="job:kill"),
        Asked(what="job:*"),
        Asked(what="DELETE"),
        Asked(what="/v1/jobs"),
        Asked(on="job:train-1a2b"),
        Asked(on="train-1a2b"),
        Asked(on="train*"),
        Asked(on="app:/shop/*"),
        Asked(since=1000.0),
        Asked(until=1000.1),
        Asked(result=Result.REFUSED),
        Asked("ann", "job:kill", "train-1a2b", 1.0, 2000.0, Result.REFUSED),
    ],
)
def test_audit_query_matches_its_records(asked: Asked) -> None:
    assert asked.matches(RECORD)


@pytest.mark.parametrize(
    "asked",
    [
        Asked(who="an"),
        Asked(who="bob"),
        Asked(what="job:k"),
        Asked(what="POST"),
        Asked(on="job:train"),
        Asked(on="rain*"),
        Asked(on="gpu:*"),
        Asked(since=1000.1),
        Asked(until=1000.0),
        Asked(result=Result.DONE),
        Asked(who="ann", what="POST"),
    ],
)
def test_audit_query_does_not_match_other_records(asked: Asked) -> None:
    assert not asked.matches(RECORD)
