"""Files of the journal: times and threads of writing, retention, and full disks."""

import json
import logging
import os
import stat
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mesos_gpu.adapters.disk.room import Reserve
from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine import journal as kept
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.step import step
from mesos_gpu.errors import BadConfiguration, Damaged
from mesos_gpu.model.arrays.array import JobArray
from mesos_gpu.model.ids import JobId
from mesos_gpu.scheduler import journal as writing
from mesos_gpu.scheduler.journal import Journal
from mesos_gpu.simulate.replay import files_of, replay
from mesos_gpu.wire import journal as wire
from tests.chaos import world
from tests.doubles.builders import spec
from tests.unit.engine.journal.test_journal import SETTINGS, edit, feed, happen, head_of, state_of


def test_journal_files_are_private_and_bounded(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "journal"
    journal, state = Journal(directory, 64 << 10), State(1.0)
    journal.begin(state, SETTINGS)
    feed(journal, state, 2000)
    journal.close()
    files = files_of(directory)
    states = [state_of(path) for path in files]
    assert sorted(directory.iterdir()) == sorted([*files, *states])
    assert 4 <= len(files) <= writing.FILES
    assert (
        sum(path.stat().st_size for path in directory.iterdir()) < (64 << 10) + states[-1].stat().st_size * 2
    )
    assert int(files[0].stem[-8:]) > 1, "the oldest are gone"
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert replay(files).first_difference is None


def test_journal_files_beyond_their_age_go_and_the_rest_is_replayed(tmp_path: Path) -> None:
    journal, state = Journal(tmp_path, 1 << 20, most_days=8.0), State(1.0)
    journal.begin(state, SETTINGS)
    for day in range(1, 21):
        feed(journal, state, 3, now=day * writing.DAY_S)
        for path in files_of(tmp_path):  # as if each had been written then
            if head_of(path)["seq"] > day * 6 - 12:
                os.utime(path, (time.time() - (20 - day) * writing.DAY_S,) * 2)
    journal.close()
    files = files_of(tmp_path)
    assert (len(files) in (9, 10), head_of(files[0])["seq"] > 1) == (True, True), "one a day"
    assert replay(files).first_difference is None


def test_journal_of_a_scheduler_started_rarely_keeps_nothing_old(tmp_path: Path) -> None:
    for _ in range(3):
        journal, state = Journal(tmp_path, 1 << 20, most_days=8.0), State(1.0)
        journal.begin(state, SETTINGS)
        feed(journal, state, 2, now=time.time())
        journal.close()
    first, second, third = files_of(tmp_path)
    os.utime(first, (time.time() - 9 * writing.DAY_S,) * 2)
    os.utime(second, (time.time() - 7 * writing.DAY_S,) * 2)
    journal = Journal(tmp_path, 1 << 20, most_days=8.0)
    journal.begin(state, SETTINGS)
    journal.close()
    assert files_of(tmp_path)[:2] == [second, third]


def test_journal_begins_one_new_file_when_a_clock_is_set_back(tmp_path: Path) -> None:
    journal, state = Journal(tmp_path, 1 << 20, most_days=8.0), State(1.0)
    journal.begin(state, SETTINGS)
    for now in (5000.0, 4000.0, 4001.0, 4002.0):
        feed(journal, state, 1, now=now)
    journal.close()
    assert (len(files_of(tmp_path)), replay(files_of(tmp_path)).first_difference) == (2, None)


def test_journal_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    for start in (1.0, 2.0, 3.0):
        journal, state = Journal(tmp_path, 1 << 20), State(start)
        journal.begin(state, SETTINGS)
        feed(journal, state, 0 if start == 2.0 else 2)
        journal.close()
        (tmp_path / f"journal-0000000{start * 2:.0f}.jsonl").write_text('{"jour')  # as a full disk leaves it
    seqs = [head_of(path)["seq"] for path in files_of(tmp_path)[::2]]
    assert seqs == [1, 5, 5]
    result = replay(files_of(tmp_path))
    assert (result.events, result.files, len(result.warnings)) == (8, 3, 3)


class Slow:
    """Blocks the writer of states until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on, write = threading.Event(), threading.Event(), writing._write_state

        def slow(*given: Any) -> int:
            if threading.current_thread().name == "journal":
                self.begun.set()
                assert self.go_on.wait(60)
            return write(*given)

        monkeypatch.setattr(writing, "_write_state", slow)


def test_journal_steps_are_written_while_a_state_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch)
    journal, state = Journal(tmp_path, 64 << 10), State(1.0)
    journal.begin(state, SETTINGS)
    feed(journal, state, 500, waits=False)
    assert slow.begun.wait(60)
    first, second = files_of(tmp_path)
    state.put(JobArray(JobId("later"), spec(array="0-9"), 0.1, 1))
    last = json.loads(second.read_text().splitlines()[-1])
    assert last["seq"] + len(last["steps"]) == 1001, "all steps are on the disk"
    assert not state_of(second).exists()
    assert replay([first, second]).warnings == [], (
        "a scheduler that is killed now leaves what can be replayed"
    )
    alone = replay([second])
    assert (alone.events, alone.warnings[0]) == (
        0,
        f"{second.name} is left out: the state that it begins with was not written to its end",
    )
    slow.go_on.set()
    journal.close()
    assert "later" not in state_of(second).read_text(), "it came after the file had begun"
    assert (replay([second]).first_difference, replay([first, second]).first_difference) == (None, None)


def test_journal_reports_a_state_it_cannot_write_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = writing._write_state

    def full(*given: Any) -> int:
        if threading.current_thread().name == "journal":
            raise OSError(28, "No space left on device")
        return write(*given)

    monkeypatch.setattr(writing, "_write_state", full)
    journal, state = Journal(tmp_path, 64 << 10), State(1.0)
    journal.begin(state, SETTINGS)
    feed(journal, state, 300)
    journal.close()
    assert "so replaying its steps needs the previous journal file: [Errno 28]" in caplog.text
    files = files_of(tmp_path)
    assert len(files) > 2
    result = replay(files)
    assert (result.events, result.first_difference, result.warnings) == (600, None, [])


def test_journal_copy_of_a_state_is_not_changed_by_later_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further steps after each copy must not change it: no mutable part may be shared."""
    kept_copies: list[tuple[wire.Copied, bytes]] = []

    def copying(state: State, event: ev.Event, now: float, settings: Settings) -> list[fx.Effect]:
        copied = kept.begun_with(state)
        kept_copies.append((copied, b"".join(kept.STATES.pieces(copied))))
        return step(state, event, now, settings)

    monkeypatch.setattr(world, "step", copying)
    for seed in range(20, 24):
        happen(seed, 60)
        assert all(b"".join(kept.STATES.pieces(copied)) == then for copied, then in kept_copies)
        kept_copies.clear()


def test_journal_keeps_the_last_days_whatever_their_size(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal, state = Journal(tmp_path, 64 << 10, least_days=7.0), State(1.0)
    journal.begin(state, SETTINGS)
    feed(journal, state, 1000)
    files = files_of(tmp_path)
    assert len(files) > writing.FILES
    assert head_of(files[0])["seq"] == 1
    assert journal.problem == f"the journal in {tmp_path} has 0 MiB of 0: its last 7 days are kept"
    assert caplog.text.count(journal.problem) == 1
    for path in files[:-1]:
        os.utime(path, (time.time() - 8 * writing.DAY_S,) * 2)
    feed(journal, state, 300)
    journal.close()
    left = files_of(tmp_path)
    assert (left[0] in files[1:], journal.problem) == (True, "")
    assert sorted(tmp_path.iterdir()) == sorted([*left, *map(state_of, left)])
    assert replay(files_of(tmp_path)).first_difference is None


def test_journal_days_have_a_limit_of_bytes_and_the_oldest_go_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal, state = Journal(tmp_path, 16 << 10, least_days=7.0), State(1.0)
    journal.begin(state, SETTINGS)
    most, sizes = 8 * (16 << 10), list[int]()
    for _ in range(40):
        feed(journal, state, 50)
        if journal._writer is not None:
            journal._writer.join()
        newest = state_of(files_of(tmp_path)[-1]).stat().st_size
        sizes.append(sum(path.stat().st_size for path in tmp_path.iterdir()) - newest)
    journal.close()
    assert most * 0.8 < max(sizes) <= most + 2048, "a file ends with the batch that fills it"
    words = "has 0 MiB of 0: the oldest of its last 7 days are removed at 8 times the size"
    assert journal.problem == f"the journal in {tmp_path} {words}"
    assert caplog.text.count(words) == 1
    files = files_of(tmp_path)
    assert (head_of(files[0])["seq"] > 1, replay(files).first_difference) == (True, None)


def test_journal_drops_old_files_before_the_disk_has_half_its_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = SimpleNamespace(f_blocks=1 << 20, f_frsize=4096, f_bavail=1 << 20)
    journal, state = Journal(tmp_path, 64 << 10, least_days=7.0, reserve=Reserve(1 << 20)), State(1.0)
    journal.begin(state, SETTINGS)
    feed(journal, state, 300)
    assert len(files_of(tmp_path)) == 3
    monkeypatch.setattr(os, "statvfs", lambda _: free)
    free.f_bavail = 256  # archives fill the disk up to the reserve
    feed(journal, state, 200)
    assert len(files_of(tmp_path)) > 3, "what is refused at the reserve removes no files of the journal"
    free.f_bavail = 127
    feed(journal, state, 200)
    journal.close()
    (only,) = files_of(tmp_path)
    assert not state_of(only).exists(), "there is no room for it"


def test_journal_whose_heads_hold_the_state_is_still_replayed(tmp_path: Path) -> None:
    journal, state = Journal(tmp_path, 64 << 10), State(1.0)
    journal.begin(state, SETTINGS)
    feed(journal, state, 300)
    journal.close()
    files = files_of(tmp_path)
    assert len(files) > 2
    for path in files:
        beside = json.loads(state_of(path).read_text())["state"]
        edit(path, lambda lines, state=beside: lines[0].update(journal=1, state=state))  # type: ignore[misc]
        state_of(path).unlink()
    result = replay(files)
    assert (result.events, result.first_difference, result.warnings) == (600, None, [])


def test_journal_state_of_another_file_is_refused(tmp_path: Path) -> None:
    journal, state = Journal(tmp_path, 64 << 10), State(1.0)
    journal.begin(state, SETTINGS)
    feed(journal, state, 300)
    journal.close()
    first, second, *_ = files_of(tmp_path)
    state_of(first).replace(state_of(second))
    with pytest.raises(Damaged, match="has the state before step 1, but"):
        replay([second])


def test_journal_directory_that_cannot_be_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadConfiguration, match="--journal"):
        Journal(tmp_path / "file", 1)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_journal_ends_with_one_warning_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = os.open
    journal, state = Journal(tmp_path, 1 << 20), State(1.0)
    with monkeypatch.context() as local:
        local.setattr(os, "open", lambda path, flags, mode: real("/dev/full", os.O_WRONLY))
        journal.begin(state, SETTINGS)
    feed(journal, state, 3)
    journal.close()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "the scheduler continues" in record.message
