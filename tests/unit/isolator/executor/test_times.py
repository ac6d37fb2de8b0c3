"""When a task wrote what: what is noted of its streams, and what a reader makes of it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isolator.executor import times as noting
from isolator.executor.times import LogTimes
from isolator.host.sandbox import Sandbox
from mesos_gpu.wire.mesos.cuts import TIMES, size_at, thinned, time_line, times_of, times_within, written_by
from tests.doubles.fake_driver import FakeClock

KNOWN = [(10, 100.0), (25, 101.0), (40, 105.5)]


def test_a_stream_that_grows_is_noted_once_a_second_at_most_and_at_its_end(tmp_path: Path) -> None:
    clock = FakeClock(100.0)
    with Sandbox(str(tmp_path)) as sandbox:
        times = LogTimes(sandbox, clock.now)
        times.note("stdout", 0)
        times.note("stdout", 10)
        clock.time = 100.5
        times.note("stdout", 20)
        times.note("stderr", 5)
        clock.time = 101.0
        times.note("stdout", 25)
        clock.time = 101.2
        times.note("stdout", 30, last=True)
        times.note("stderr", 5, last=True)
        times.close()
    text = (tmp_path / TIMES).read_bytes()
    assert times_of(text, "stdout") == [(10, 100.0), (25, 101.0), (30, 101.2)]
    assert times_of(text, "stderr") == [(5, 100.5)]


def test_the_file_is_bounded_and_says_less_exactly_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noting, "MAX_TIMES", 400)
    clock = FakeClock(0.0)
    with Sandbox(str(tmp_path)) as sandbox:
        times = LogTimes(sandbox, clock.now)
        for turn in range(1, 200):
            clock.time = turn * 2.0
            times.note("stdout", turn * 100)
            assert (tmp_path / TIMES).stat().st_size <= 400
        times.close()
    noted = times_of((tmp_path / TIMES).read_bytes(), "stdout")
    assert noted[-1] == (19_900, 398.0)
    assert len(noted) > 5
    assert all(at == size / 50 for size, at in noted), "what is left is as it was"


def test_log_times_replace_a_planted_link_and_skip_bad_lines(tmp_path: Path) -> None:
    (tmp_path / TIMES).symlink_to("/etc/passwd")
    with Sandbox(str(tmp_path)) as sandbox:
        LogTimes(sandbox).close()
    assert not (tmp_path / TIMES).is_symlink()
    bad = b"o x 1\no 5\n\xff\no -1 3\ne 7 8000\no 9 " + b"9" * 40 + b"\no 5 1000\no 3 2000\no 6 3000"
    assert times_of(bad, "stdout") == [(5, 1.0), (6, 3.0)]


def test_log_times_answer_readers() -> None:
    assert [written_by(KNOWN, end) for end in (1, 10, 11, 40, 41)] == [100.0, 100.0, 101.0, 105.5, None]
    assert [size_at(KNOWN, at) for at in (99.0, 100.0, 104.0, 200.0)] == [0, 10, 25, 40]
    assert times_within(KNOWN, 0, 10) == [(10, 100.0)]
    assert times_within(KNOWN, 10, 30) == [(25, 101.0), (40, 105.5)]
    assert times_within(KNOWN, 40, 50) == []


@given(st.lists(st.integers(1, 50), max_size=60), st.data())
def test_thinning_keeps_the_last_and_never_says_too_early(steps: list[int], data: st.DataObject) -> None:
    sizes = [sum(steps[: i + 1]) for i in range(len(steps))]
    text = b"".join(time_line("stdout", size, float(i)) for i, size in enumerate(sizes))
    full, half = times_of(text, "stdout"), times_of(thinned(text), "stdout")
    assert half[-1:] == full[-1:]
    if sizes:
        end = data.draw(st.integers(1, sizes[-1]))
        assert (written_by(half, end) or 0.0) >= (written_by(full, end) or 0.0)
