"""A chain of audit records: what is written is read, and any change of it shows."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesos_gpu.access.chain import GENESIS, MAX_LINE, Entry, Head, decode, digest, encode, flaws
from mesos_gpu.model.access.record import MAX_SUBJECTS, AuditRecord, Result

NONE = Head()
RECORDS = st.builds(
    AuditRecord,
    at=st.floats(0, 4e9),
    what=st.text(max_size=40),
    result=st.sampled_from(Result),
    who=st.text(max_size=20),
    proved=st.booleans(),
    on=st.lists(st.text(max_size=30), max_size=4).map(tuple),
    status=st.integers(0, 599),
    detail=st.text(max_size=20),
    count=st.integers(1, 10**9),
)


def chained(records: Sequence[AuditRecord], before: Head = NONE) -> list[bytes]:
    """Lines that follow each other."""
    lines = []
    for record in records:
        line = encode(Entry(before.seq + 1, before.hash, record))
        before = Head(before.seq + 1, digest(line))
        lines.append(line)
    return lines


def head_of(lines: Sequence[bytes]) -> Head:
    return Head(len(lines), digest(lines[-1]))


def record(number: int = 0) -> AuditRecord:
    return AuditRecord(1e9 + number, "DELETE /v1/jobs/{id}", Result.DONE, "ann", "token", True, on=("job:a",))


@given(RECORDS)
@settings(max_examples=15)
def test_audit_record_is_read_as_it_was_written(record: AuditRecord) -> None:
    entry = Entry(7, GENESIS, record)
    line = encode(entry)
    assert decode(line) == entry
    assert line.isascii()
    assert line.decode().isprintable()  # no control character reaches who looks at the file
    assert json.loads(line)["prev"] == GENESIS


@given(st.lists(RECORDS, max_size=6))
@settings(max_examples=20)
def test_audit_chain_as_written_has_no_flaw(records: list[AuditRecord]) -> None:
    assert_flawless(records)


@pytest.mark.long
@given(st.lists(RECORDS, max_size=6))
@settings(max_examples=300)
def test_audit_chains_of_many_records_have_no_flaw(records: list[AuditRecord]) -> None:
    assert_flawless(records)


def assert_flawless(records: list[AuditRecord]) -> None:
    """Assert that records are read as they were written, in a chain without a flaw."""
    lines = chained(records)
    assert flaws(lines, head_of(lines) if lines else None) == []
    entries = [decode(line) for line in lines]
    assert [entry and entry.record for entry in entries] == records


@settings(max_examples=50)
@given(st.data())
def test_audit_chain_shows_a_change_of_a_byte(data: st.DataObject) -> None:
    assert_shown(data)


@pytest.mark.long
@settings(max_examples=300)
@given(st.data())
def test_audit_chain_shows_a_change_of_any_byte(data: st.DataObject) -> None:
    assert_shown(data)


def assert_shown(data: st.DataObject) -> None:
    """Assert that a changed byte of a chain is a flaw."""
    lines = chained([record(i) for i in range(4)])
    text = b"\n".join(lines) + b"\n"
    at = data.draw(st.integers(0, len(text) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != text[at]))
    changed = text[:at] + bytes([byte]) + text[at + 1 :]
    assert flaws(changed.removesuffix(b"\n").split(b"\n"), head_of(lines)), changed


def test_audit_chain_shows_a_change_of_any_bit() -> None:
    lines = chained([record(i) for i in range(3)])
    text, mark = b"\n".join(lines), head_of(lines)
    for bit in range(8 * len(text)):
        changed = bytearray(text)
        changed[bit // 8] ^= 1 << bit % 8
        assert flaws(bytes(changed).split(b"\n"), mark), (bit, bytes(changed))


@pytest.mark.parametrize("gone", range(5))
def test_audit_chain_shows_a_line_that_is_cut_out(gone: int) -> None:
    lines = chained([record(i) for i in range(5)])
    assert flaws([*lines[:gone], *lines[gone + 1 :]], head_of(lines)) != []


@pytest.mark.parametrize("left", range(1, 5))
def test_audit_chain_mark_shows_an_end_that_is_cut_off(left: int) -> None:
    lines = chained([record(i) for i in range(5)])
    (flaw,) = flaws(lines[:left], head_of(lines))
    assert (flaw.where, flaw.why) == ("the end", f"lines {left + 1} to 5 are missing")


def test_audit_chain_shows_lines_of_another_order() -> None:
    lines = chained([record(i) for i in range(4)])
    assert flaws([lines[0], lines[2], lines[1], lines[3]], head_of(lines)) != []


def test_audit_chain_shows_a_line_that_is_put_in() -> None:
    lines = chained([record(i) for i in range(4)])
    forged = encode(Entry(3, digest(lines[1]), record(9)))
    assert flaws([*lines[:2], forged, *lines[2:]], head_of(lines)) != []


def test_audit_chain_mark_shows_an_end_that_is_rewritten() -> None:
    lines = chained([record(i) for i in range(4)])
    forged = chained([record(8), record(9)], Head(2, digest(lines[1])))
    assert "another hash" in flaws([*lines[:2], *forged], head_of(lines))[0].why


@pytest.mark.parametrize("torn", [b"", b"\0\0\0", b'{"seq":3,"prev":"ab'])
def test_audit_chain_tells_a_line_torn_by_a_crash_from_a_change(torn: bytes) -> None:
    lines = chained([record(i) for i in range(2)])
    begin = encode(Entry(3, digest(torn), record(), torn=True))
    after = [begin, *chained([record()], Head(3, digest(begin)))]
    whole = [*lines, torn, *after]
    mark = Head(4, digest(whole[-1]))
    assert flaws(whole, mark) == []
    assert flaws([*lines, torn + b"x", *after], mark) != []
    assert flaws([*lines, *after], mark) != []
    assert flaws([*lines, torn, torn, *after], mark) != []


def test_audit_chain_with_two_crashes_in_a_row_has_no_flaw() -> None:
    lines = chained([record()])
    begin = encode(Entry(2, digest(b"ab\ncd"), record(), torn=True))
    assert flaws([*lines, b"ab", b"cd", begin]) == []


def test_audit_chain_tells_a_rotation_from_a_removal() -> None:
    lines = chained([record(i) for i in range(5)])
    rotated = encode(Entry(6, digest(lines[-1]), record(), gone=3))
    assert flaws([*lines[3:], rotated]) == []
    assert flaws([*lines[2:], rotated]) == []  # a crash came before the removal
    (flaw,) = flaws([*lines[4:], rotated])
    assert (flaw.where, flaw.why) == ("the beginning", "lines 4 to 4 are missing")


def test_audit_chain_lines_are_bounded_for_any_record() -> None:
    long = "\U0001f600" * 10_000
    huge = AuditRecord(
        1e9, long, Result.REFUSED, long, long, True, long, long, long, (long,) * 999, 1, long, long, long
    )
    line = encode(Entry(1 << 60, GENESIS, huge))
    assert len(line) <= MAX_LINE
    entry = decode(line)
    assert entry is not None
    assert len(entry.record.on) == MAX_SUBJECTS
    assert entry.record.on[-1] == f"and {999 - MAX_SUBJECTS + 1} more"


@pytest.mark.parametrize("line", [b"", b"[]", b"{}", b"[" * 100_000, b"\xff", b'{"seq":"1"}'])
def test_audit_chain_line_that_is_no_record_gives_none(line: bytes) -> None:
    assert decode(line) is None
