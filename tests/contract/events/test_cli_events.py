"""`mesos-gpu events`: what has happened, what happens, and nothing left out by a restart."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.cli.cli_rig import call, finish, read_until, started
from tests.contract.events.kept import Kept


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    kept = Kept(tmp_path / "state" / "state.sqlite")
    monkeypatch.setenv("MESOS_GPU_URL", kept.url)
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
    yield kept
    kept.close()


def lines(*words: str) -> list[dict[str, object]]:
    done = call("events", "--json", *words)
    assert done.exit_code == 0, done.output
    told: list[dict[str, object]] = json.loads(done.stdout)["events"]
    return told


def test_the_latest_are_told_and_filters_choose(kept: Kept) -> None:
    first = kept.submit(name="one", queue="ml")
    second = kept.submit(name="two")
    kept.call("DELETE", f"/v1/jobs/{second}")
    assert [(e["kind"], e["job_id"]) for e in lines()] == [
        ("submitted", first),
        ("submitted", second),
        ("killed", second),
    ]
    assert [e["job_id"] for e in lines("--queue", "ml")] == [first]
    assert [e["kind"] for e in lines("--job", second[:7], "--kind", "killed")] == ["killed"]
    assert [e["kind"] for e in lines("-n", "1")] == ["killed"]
    number = lines()[1]["number"]
    assert [e["kind"] for e in lines("--after", str(number))] == ["killed"]
    assert lines("--since", "2099-01-01") == []
    table = call("events").stdout.splitlines()
    assert table[0].split() == ["NUMBER", "TIME", "KIND", "ON", "USER", "WHAT"]
    assert len(table) == 4
    assert call("events", "--kind", "wrong").exit_code == 2
    newest, *_ = call("events", "--columns", "kind,on", "--sort", "-number").stdout.splitlines()[1:]
    assert newest.split() == ["killed", second]
    assert call("events", "-q").stdout.split() == [str(e["number"]) for e in lines()]
    for words in (("-q",), ("--columns", "time"), ("--sort", "time"), ("-w",)):
        got = call("events", "-f", *words)
        assert (got.exit_code, "remove the other format options" in got.stderr) == (2, True)


def test_events_command_watches_events_as_a_list(kept: Kept) -> None:
    before = kept.submit(name="before")
    with started("events", "-w", "--columns", "kind,on", "--job", "after") as process:
        assert process.stdout is not None
        out = process.stdout.fileno()
        assert b"KIND" in read_until(out, b"\n")
        after = kept.submit(name="after")
        told = read_until(out, after.encode())
        process.send_signal(signal.SIGINT)
        code, _, _ = finish(process)
    assert (before.encode() in told, code) == (False, 130)


def test_events_followed_through_a_restart_of_the_scheduler_are_complete(kept: Kept) -> None:
    before = kept.submit(name="before")
    with started("events", "-f", "--json", stderr=None) as process:
        assert process.stdout is not None
        read_until(process.stdout.fileno(), before.encode())
        kept.stop()
        kept.start()
        after = kept.submit(name="after")
        told = read_until(process.stdout.fileno(), after.encode() + b'", "user"')
        assert told.count(b"submitted") == 1, "what was told is not told again"
        process.send_signal(signal.SIGTERM)
        assert finish(process)[0] == 143


def test_events_after_one_that_is_no_longer_kept_are_refused(kept: Kept) -> None:
    kept.submit(name="one")
    done = call("events", "--after", "5")
    assert "only the latest are kept" in done.stderr
    assert os.environ["MESOS_GPU_URL"] == kept.url
