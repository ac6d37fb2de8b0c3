"""`mesos-gpu keep`, beside a REST server of its contract."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from mesos_gpu.cli.queues.keep import moment_of
from tests.contract.cli.cli_rig import call
from tests.doubles.fake_rest import FakeRest

IDLE: dict[str, Any] = {
    "state": "active", "since": 1.0, "idle_s": 0.0, "warn_after_s": 100.0, "return_after_s": 200.0,
    "policy": "always", "keep_until": 1e9, "kept_by": "ann",
}  # fmt: skip


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRest]:
    with FakeRest() as server:
        monkeypatch.setenv("MESOS_GPU_URL", server.url)
        yield server


def test_keep_command_says_until_when_the_job_is_kept(rest: FakeRest) -> None:
    id = rest.add("notebook", gpus=1)
    rest.update(id, state="running", idle=IDLE)
    rest.fixed[f"PUT /v1/jobs/{id}/keep"] = (200, rest.jobs[id])
    got = call("keep", id, "--for", "2h")
    assert got.exit_code == 0, got.stderr
    assert got.stdout.startswith(f"{id} is kept until 2001-09-0")
    assert rest.asked[-1] == (f"PUT /v1/jobs/{id}/keep", {"for_s": 7200})
    assert "kept until 2001-09-0" in call("show", id).stdout


def test_keep_command_ends_the_keeping(rest: FakeRest) -> None:
    id = rest.add("notebook", gpus=1)
    rest.update(id, state="running")
    rest.fixed[f"DELETE /v1/jobs/{id}/keep"] = (200, rest.jobs[id])
    got = call("keep", id, "--end")
    assert (got.exit_code, got.stdout) == (0, f"{id} is no longer exempt from being ended for idle GPUs\n")


def test_keep_command_needs_one_of_three_options(rest: FakeRest) -> None:
    id = rest.add("notebook", gpus=1)
    rest.update(id, state="running")
    for options in ((), ("--for", "1h", "--end"), ("--for", "1h", "--until", "18:00")):
        got = call("keep", id, *options)
        assert got.exit_code == 2
        assert "give one of --until 18:00" in got.stderr


NOON = datetime(2026, 11, 24, 12, 0)  # local
MOMENTS = {
    "18:00": datetime(2026, 11, 24, 18, 0),
    "9:30": datetime(2026, 11, 25, 9, 30),
    "12:00": datetime(2026, 11, 25, 12, 0),
    "2026-11-30T08:00": datetime(2026, 11, 30, 8, 0),
}


@pytest.mark.parametrize(("text", "want"), MOMENTS.items(), ids=MOMENTS)
def test_a_time_of_day_is_the_next_one(text: str, want: datetime) -> None:
    assert moment_of(text, NOON) == want.timestamp()


def test_another_text_is_no_time() -> None:
    with pytest.raises(ValueError, match="write a time of day such as 18:00"):
        moment_of("25:00", NOON)
