"""Budgets, as the interface and the command line tell of them and grant them, and to whom."""

import csv
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Scope

from mesos_gpu.model.access.caller import ANYBODY, Caller
from tests.contract.access.rig import AccessRig
from tests.contract.cli.cli_rig import call


class Open(AccessRig):
    """Where who has no name may do everything."""

    async def identify(self, scope: Scope) -> Caller:
        known = await super().identify(scope)
        return known if known.name else ANYBODY


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Open]:
    rig = Open()
    rig.bind({"names": ["ann"], "roles": ["user"], "queues": ["ml"]})
    queues: dict[str, Any] = {
        "ml": {"budget": {"gpu_hours": 10, "period": "day", "on_empty": "no_start", "warn_at": [50]}},
        "other": {"budget": {"gpu_hours": 5, "period": "month", "zone": "Europe/Vienna"}},
        "default": {},
    }
    assert rig.call("anybody", "PUT", "/v1/queues", json={"version": 0, "queues": queues}).ok
    monkeypatch.setenv("MESOS_GPU_URL", rig.server.url)
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
    yield rig
    rig.close()


def good(*words: str) -> str:
    done = call(*words)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_budgets_are_listed_and_granted(rig: Open) -> None:
    ml, other = rig.call("anybody", "GET", "/v1/budgets").json()["budgets"]
    assert (ml["queue"], ml["user"], ml["gpu_hours"], ml["used_hours"], ml["left_hours"]) == (
        "ml",
        None,
        10,
        0,
        10,
    )
    assert ml["next_period"] == ml["ends"]
    assert (other["on_empty"], other["empty"], other["empty_at"]) == ("warn", False, None)
    answer = rig.call("anybody", "POST", "/v1/budgets/grants", json={"queue": "ml", "gpu_hours": -12.5})
    assert (answer.json()["granted_hours"], answer.json()["left_hours"], answer.json()["empty"]) == (
        -12.5,
        -2.5,
        True,
    )


def test_hours_below_0_are_refused_as_hours_and_not_as_an_option(rig: Open) -> None:
    for command in ("grant", "set-aside"):
        done = call("budget", command, "ml", "-5")
        assert done.exit_code == 2
        assert "'GPU_HOURS': -5.0 is not in the range" in done.stderr
    assert json.loads(good("budget", "show", "ml", "--json"))["granted_hours"] == 0


def test_a_threshold_that_is_reached_is_an_event_for_those_who_see_the_budget(rig: Open) -> None:
    rig.bind(
        {"names": ["ann"], "roles": ["user"], "queues": ["ml"]},
        {"names": ["carl"], "roles": ["user"], "queues": ["other"]},
    )
    before = rig.call("anybody", "GET", "/v1/events?kind=budget").json()
    assert before["events"] == []
    # Nothing of either is used: with nothing left to use, all of it is.
    for queue, hours in (("ml", -10), ("ml", 10), ("ml", -10), ("other", -5)):
        body = {"queue": queue, "gpu_hours": hours}
        assert rig.call("anybody", "POST", "/v1/budgets/grants", json=body).ok
    asked = {"after": before["last"], "timeout_s": 0, "kind": "budget"}
    told = rig.call("anybody", "GET", "/v1/events", params=asked).json()["events"]
    budget = rig.call("anybody", "GET", "/v1/budgets").json()["budgets"][0]
    assert [(event["kind"], event["job_id"], event["notice"]) for event in told] == [
        ("budget", None, None)
    ] * 3
    assert [event["budget"]["queue"] for event in told] == ["ml", "ml", "other"], (
        "anew after a grant, and once"
    )
    assert told[0]["budget"] == {"queue": "ml", "user": None, "percent": 100, "period_ends": budget["ends"]}
    for who, queue in (("ann", "ml"), ("carl", "other")):
        answer = rig.call(who, "GET", "/v1/events?kind=budget")
        assert answer.ok, answer.text
        events = answer.json()["events"]
        assert {event["budget"]["queue"] for event in events} == {queue}


def test_budget_threshold_wakes_a_request_for_events(rig: Open) -> None:
    with ThreadPoolExecutor(1) as aside:
        asked = {"after": 0, "timeout_s": 50, "kind": "budget"}
        waiting = aside.submit(rig.call, "anybody", "GET", "/v1/events", params=asked)
        deadline = time.monotonic() + 30
        while not waiting.done():
            assert time.monotonic() < deadline, "it waits on"
            for hours in (10, -20, 10):  # it may not have been asked yet when the first was reached
                rig.call("anybody", "POST", "/v1/budgets/grants", json={"queue": "ml", "gpu_hours": hours})
        assert waiting.result().json()["events"][0]["kind"] == "budget"


def test_a_grant_that_makes_no_sense_is_refused_with_all_its_faults(rig: Open) -> None:
    answer = rig.call("anybody", "POST", "/v1/budgets/grants", json={"queue": 3, "gpu_hours": "x", "more": 1})
    assert answer.status_code == 422
    assert {p["path"] for p in answer.json()["error"]["problems"]} == {"/more", "/queue", "/gpu_hours"}
    for body in ({"queue": "none", "gpu_hours": 1}, {"queue": "default", "gpu_hours": 1}):
        assert rig.call("anybody", "POST", "/v1/budgets/grants", json=body).status_code == 404


def test_budgets_of_own_queues_are_seen_and_not_granted(rig: Open) -> None:
    listed = rig.call("ann", "GET", "/v1/budgets").json()["budgets"]
    assert [each["queue"] for each in listed] == ["ml"]
    assert (
        rig.call("ann", "POST", "/v1/budgets/grants", json={"queue": "ml", "gpu_hours": 1}).status_code == 403
    )


def test_the_command_line_lists_shows_grants_and_sets_aside(rig: Open) -> None:
    header, ml, _ = [line.split() for line in good("budget", "list").splitlines()]
    assert header == ["QUEUE", "USER", "HOURS", "USED", "LEFT", "USED%", "EMPTY", "ENDS"]
    assert ml[:6] == ["ml", "-", "10", "0", "10", "0"]
    assert json.loads(good("budget", "grant", "ml", "2.5", "--json"))["left_hours"] == 12.5
    assert "granted       -7.5" in good("budget", "set-aside", "ml", "10")
    assert "left          2.5" in good("budget", "show", "ml")
    missing = call("budget", "show", "none")
    assert (missing.exit_code, missing.stderr.splitlines()[0]) == (66, "Error: queue none has no budget")


def test_a_report_of_budgets_has_a_row_for_each_period(rig: Open) -> None:
    good("budget", "grant", "ml", "5")
    (budget,) = [
        each for each in json.loads(good("report", "budget", "--json"))["budgets"] if each["queue"] == "ml"
    ]
    day = datetime.fromtimestamp(budget["begins"], UTC).strftime("%Y-%m-%d")
    head, ml, other = (line.split() for line in good("report", "budget").splitlines())
    assert head == ["FROM", "QUEUE", "USER", "HOURS", "USED", "USED%", "LEFT"]
    assert ml == [day, "ml", "-", "15", "0", "0", "15"]
    assert other[1:4] == ["other", "-", "5"]
    first, second, _ = csv.reader(good("report", "budget", "--csv").splitlines())
    assert dict(zip(first, second, strict=True))["granted_hours"] == "5.0"
    assert good("report", "budget", "--until", "2020-01-01").splitlines() == [
        " ".join(head).replace(" ", "  ")
    ]
    assert rig.call("anybody", "GET", "/v1/budgets?past=yes").status_code == 422


def test_budget_left_is_a_metric_of_each_queue(rig: Open) -> None:
    text = rig.call("anybody", "GET", "/metrics/prometheus").text
    assert 'mesos_gpu_queue_budget_left{queue="ml"} 10' in text
    assert 'mesos_gpu_queue_budget_left{queue="default"}' not in text
