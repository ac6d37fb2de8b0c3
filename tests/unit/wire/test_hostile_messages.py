"""What a host sends is no reason for the scheduler to end, however it is nested."""

import pytest

from mesos_gpu.wire.mesos import assignment, report, resize

DEEP = [b"[" * 200_000, b'{"a":' * 200_000]


@pytest.mark.parametrize("data", DEEP, ids=["lists", "objects"])
def test_what_is_nested_too_deeply_is_no_message(data: bytes) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        report.decode(data)
    with pytest.raises(ValueError, match="nested too deeply"):
        assignment.decode_outcome(data)
    assert resize.decode_answer(data) is None
