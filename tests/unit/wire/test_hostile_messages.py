"""Messages of hosts that are hostile: no nesting ends the scheduler."""

import pytest

from mesos_gpu.wire.body import parsed
from mesos_gpu.wire.mesos import assignment, report, resize

DEEP = [b"[" * 200_000, b'{"a":' * 200_000]


@pytest.mark.parametrize("data", DEEP, ids=["lists", "objects"])
def test_host_message_nested_too_deeply_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        report.decode(data)
    with pytest.raises(ValueError, match="nested too deeply"):
        assignment.decode_outcome(data)
    assert resize.decode_answer(data) is None


@pytest.mark.parametrize(
    "text",
    ["NaN", "[Infinity]", "-Infinity", "[1e999]", "1" * 5000, "{", "", "\ufeff{}", b"\xff", b"[" * 200_000],
)
def test_host_message_that_is_no_json_is_one_kind_of_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        parsed(text)


def test_half_a_character_is_shown_and_a_whole_one_is_a_character() -> None:
    assert parsed(r'["a\udcffb", "\ud83d\ude00", "\\ud800"]') == [r"a\udcffb", "\U0001f600", r"\ud800"]
