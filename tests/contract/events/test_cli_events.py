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
    return [json.loads(line) for line in done.stdout.splitlines()]


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
    assert table[0].split() == ["NUMBER", "TIME", "KIND", "ON", "USER", "QUEUE", "WHAT"]
    assert len(table) == 4
    assert call("events", "--kind", "wrong").exit_code == 2


def test_who_follows_misses_nothing_while_the_scheduler_is_restarted(kept: Kept) -> None:
    before = kept.submit(name="before")
    with started("events", "-f", "--json", stderr=None) as process:
        assert process.stdout is not None
        read_until(process.stdout.fileno(), before.encode())
        kept.stop()
        kept.start()
        after = kept.submit(name="after")
        told = read_until(process.stdout.fileno(), after.encode() + b'", "user"')
        assert told.count(b"submitted") == 1, "what was told is not told again"
        process.send_signal(signal.SIGINT)
        finish(process)


def test_who_knows_an_event_that_is_not_kept_any_more_is_told(kept: Kept) -> None:
    kept.submit(name="one")
    done = call("events", "--after", "5")
    assert "only the latest events are kept" in done.stderr
    assert os.environ["MESOS_GPU_URL"] == kept.url
