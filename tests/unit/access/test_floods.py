"""Refusals of one origin: the first of a minute whole, the rest counted, none lost, memory bounded."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.access.floods import FIRST, FIRST_OF_ALL, MAX_ORIGINS, RefusalLimiter, origin_of
from mesos_gpu.model.access.record import AuditRecord, Result


def refusal(at: float = 0.0, address: str = "192.0.2.1:5", status: int = 401, who: str = "") -> AuditRecord:
    return AuditRecord(
        at,
        "GET /",
        Result.REFUSED,
        who or "nobody",
        proved=bool(who),
        address=address,
        status=status,
        reason="x",
    )


def taken(floods: RefusalLimiter, record: AuditRecord) -> list[AuditRecord]:
    """Return the records written for a refusal: counts so far, and the refusal if it is written whole."""
    return [*floods.over(record.at), *([record] if floods.take(record) else [])]


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.floats(0, 600), st.integers(0, 3), st.sampled_from([401, 403, 429]), st.booleans()))
)
def test_refusals_are_each_written_or_counted_once(asked: list[tuple[float, int, int, bool]]) -> None:
    floods, written = RefusalLimiter(), list[AuditRecord]()
    for at, host, status, proved in sorted(asked):
        written += taken(floods, refusal(at, f"192.0.2.{host}:1", status, who="ann" if proved else ""))
    written += floods.over(601.0, at_once=True)
    assert sum(record.count for record in written) == len(asked)


def test_refusals_first_in_a_minute_are_written_whole() -> None:
    floods = RefusalLimiter()
    whole = [floods.take(refusal()) for _ in range(100) if not list(floods.over(1.0))]
    assert whole == [True] * FIRST + [False] * (100 - FIRST)
    (summary,) = floods.over(62.0)
    assert (summary.count, summary.status, summary.address) == (100 - FIRST, 401, "192.0.2.1:5")
    assert floods.take(refusal(62.0))


def test_refusal_origins_are_bounded_and_leave_proved_names_their_records() -> None:
    floods = RefusalLimiter()
    assert not list(floods.over(1.0))
    count = 4 * MAX_ORIGINS
    whole = sum(floods.take(refusal(1.0, f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}:1")) for i in range(count))
    assert whole == FIRST_OF_ALL
    assert floods.take(refusal(1.0, who="ann"))
    summaries = list(floods.over(62.0))
    assert len(summaries) <= MAX_ORIGINS + 1
    assert sum(record.count for record in summaries) == count - whole


def test_refusal_reasons_are_bounded() -> None:
    floods = RefusalLimiter()
    for status in range(1000):
        floods.take(refusal(status=status))
    summaries = list(floods.over(61.0))
    assert len(summaries) <= 9
    assert sum(record.count for record in summaries) == 1000 - FIRST


def test_refusal_count_goes_on_when_the_clock_is_set_back() -> None:
    floods = RefusalLimiter()
    assert not list(floods.over(1e9))
    for _ in range(FIRST + 1):
        floods.take(refusal(1e9))
    assert [record.count for record in floods.over(1000.0)] == [1]


def test_refusal_origin_is_one_for_a_network_of_ipv6() -> None:
    assert origin_of(refusal(address="2001:db8:0:1::5:443")) == origin_of(
        refusal(address="[2001:db8:0:1:ff::9]:1")
    )
    assert origin_of(refusal(address="192.0.2.1:5")) == "192.0.2.1"
    assert origin_of(refusal(address="::ffff:192.0.2.1:5")) == "192.0.2.1"
    assert origin_of(refusal(address="unix")) == "unix"
    assert origin_of(refusal(who="ann")) == "name ann"
