"""Bookings over REST and on the command line: made, listed, moved, cancelled, and refused with what would fit."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mesos_gpu.cli import main, output
from mesos_gpu.engine import events as ev
from tests.conftest import wait_until
from tests.contract.rig import Rig, code_of
from tests.doubles.builders import gpu

GPUS = tuple(gpu(f"g{i}") for i in range(4))
NOON = 1_795_521_600.0  # Tue 2026-11-24 12:00 UTC


@pytest.fixture
def booked() -> Iterator[Rig]:
    rig = Rig(now=NOON)
    rig.node(gpus=GPUS)
    yield rig
    rig.close()


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
    monkeypatch.setenv("TZ", "Europe/Vienna")


def call(rig: Rig, *words: str, **more: Any) -> Result:
    return CliRunner().invoke(main, ["--url", rig.url, "reserve", *words], **more)


def make(rig: Rig, **fields: Any) -> dict[str, Any]:
    body = {"name": "exam", "queue": "default", "gpus": 4, "from": "tomorrow 9:00", "for_s": 14400, **fields}
    response = rig.call("POST", "/v1/bookings", json=body)
    assert response.status_code == 201, response.text
    return dict(response.json())


def test_a_booking_is_made_and_listed(booked: Rig) -> None:
    made = make(booked, zone="Europe/Vienna")
    assert (made["from"], made["state"], made["places"]) == ("2026-11-25T09:00", "booked", [])
    assert made["message"] == "it begins Wed 2026-11-25 09:00"
    assert made["ends"] - made["begins"] == 14400
    (listed,) = booked.call("GET", "/v1/bookings").json()["bookings"]
    assert listed == {**made, "times": [{"begins": made["begins"], "ends": made["ends"]}]}
    assert booked.call("GET", "/v1/bookings/exam").json()["id"] == made["id"]
    assert code_of(booked.call("GET", "/v1/bookings/none")) == (404, "not-found")


def test_times_of_a_repeated_one_are_those_of_the_window(booked: Rig) -> None:
    made = make(booked, repeat="weekdays")
    week = booked.call("GET", f"/v1/bookings?since={NOON}&until={NOON + 7 * 86400}").json()["bookings"][0]
    assert [each["begins"] - made["begins"] for each in week["times"]] == [0, 86400, 172800, 432000, 518400]
    assert booked.call("GET", "/v1/bookings?until=1").json()["bookings"][0]["times"] == []


def test_booking_that_is_cancelled_keeps_the_time_that_it_lasted(booked: Rig) -> None:
    early, late = (make(booked, name=name, gpus=2, zone="Europe/Vienna") for name in ("early", "late"))
    booked.call("DELETE", "/v1/bookings/early")
    booked.clock.time = late["begins"] + 600.0
    booked.call("DELETE", "/v1/bookings/late")
    every = booked.call("GET", f"/v1/bookings?past=true&since={NOON}").json()["bookings"]
    assert {each["name"]: each["times"] for each in every} == {
        "early": [{"begins": early["begins"], "ends": early["ends"]}],
        "late": [{"begins": late["begins"], "ends": late["begins"] + 600}],
    }
    assert booked.call("GET", "/v1/bookings?past=true").json()["bookings"][1]["times"] == []
    assert "times" not in call(booked, "show", "early").output


def test_booking_that_does_not_fit_is_refused_with_the_nearest_times(booked: Rig) -> None:
    make(booked)
    body = {"name": "b", "queue": "default", "gpus": 2, "from": "2026-11-25T10:00", "for_s": 3600}
    refused = booked.call("POST", "/v1/bookings", json=body)
    assert code_of(refused) == (409, "conflict")
    error = refused.json()["error"]
    assert "no nodes are left for it beside 1 booking" in error["message"]
    assert "Wed 2026-11-25 08:00, or Wed 2026-11-25 13:00" in error["remedy"]
    for at in ("2026-11-25T08:00", "2026-11-25T13:00"):
        assert (
            booked.call("POST", "/v1/bookings", json={**body, "name": at[11:13], "from": at}).status_code
            == 201
        )


@pytest.mark.parametrize(
    ("wrong", "places"),
    [
        ({"gpus": 0}, ["/gpus"]),
        ({"gpus": 5}, ["/gpus"]),
        ({"gpu_model": ["H100"]}, ["/gpu_model"]),
        ({"from": "someday"}, ["/from"]),
        ({"from": "2026-11-24T09:00"}, ["/from"]),
        ({"from": "2031-01-01T09:00"}, ["/from"]),
        ({"zone": "Mars/Olympus"}, ["/zone"]),
        ({"pool": "fast", "from_guarantee": True}, ["/pool", "/from_guarantee"]),
        ({"repeat": "daily", "for_s": 100000}, ["/for_s"]),
        ({"repeat": "yearly"}, ["/repeat"]),
        ({"until": "2026-11-01", "repeat": "daily"}, ["/until"]),
        ({"users": ["a b"]}, ["/users/0"]),
        ({"extra": 1}, ["/extra"]),
        ({"queue": None, "name": None}, ["/name", "/queue"]),
    ],
)
def test_booking_refusal_names_the_wrong_field(booked: Rig, wrong: dict[str, Any], places: list[str]) -> None:
    body = {"name": "exam", "queue": "default", "gpus": 4, "from": "tomorrow 9:00", "for_s": 14400, **wrong}
    refused = booked.call("POST", "/v1/bookings", json=body)
    assert code_of(refused) == (422, "invalid")
    assert [each["path"] for each in refused.json()["error"]["problems"]] == places
    assert booked.call("GET", "/v1/bookings").json()["bookings"] == []


def test_a_name_is_there_once_and_free_again_after_the_end(booked: Rig) -> None:
    first = make(booked)
    body = {"name": "exam", "queue": "default", "gpus": 1, "from": "tomorrow 15:00", "for_s": 3600}
    assert code_of(booked.call("POST", "/v1/bookings", json=body)) == (409, "conflict")
    assert booked.call("DELETE", "/v1/bookings/exam").json()["state"] == "cancelled"
    assert code_of(booked.call("DELETE", f"/v1/bookings/{first['id']}")) == (409, "conflict")
    assert booked.call("POST", "/v1/bookings", json=body).status_code == 201
    ids = [each["id"] for each in booked.call("GET", "/v1/bookings?past=true").json()["bookings"]]
    assert len(ids) == 2
    assert ids[1] == first["id"]


def test_a_booking_is_moved_and_what_is_left_out_stays(booked: Rig) -> None:
    made = make(booked)
    moved = booked.call("PUT", "/v1/bookings/exam", json={"from": "Thu 09:00"}).json()
    assert (moved["from"], moved["for_s"], moved["begins"] - made["begins"]) == (
        "2026-11-26T09:00",
        14400,
        86400,
    )
    make(booked, name="other")
    refused = booked.call("PUT", "/v1/bookings/exam", json={"from": "Wed 10:00"})
    assert code_of(refused) == (409, "conflict")
    assert booked.call("GET", "/v1/bookings/exam").json()["from"] == "2026-11-26T09:00"


def test_booking_events_are_listed(booked: Rig) -> None:
    made = make(booked)
    booked.call("PUT", "/v1/bookings/exam", json={"from": "Thu 09:00"})
    booked.call("DELETE", "/v1/bookings/exam")
    told = [each for each in booked.call("GET", "/v1/events").json()["events"] if each["booking"]]
    assert [each["kind"] for each in told] == ["booking_made", "booking_moved", "booking_cancelled"]
    assert {(each["booking"], each["queue"]) for each in told} == {(made["id"], "default")}
    assert told[0]["message"] == "booking exam (4 GPUs): it begins Wed 2026-11-25 09:00"


def test_the_command_books_in_the_zone_of_this_machine(booked: Rig) -> None:
    done = call(booked, "--gpus", "4", "--model", "A100", "--from", "Tue 09:00", "--for", "4h", "--queue", "default",
                "--name", "exam", "--repeat", "weekly")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "Tue 2026-12-01 09:00 (Europe/Vienna)" in done.output
    listed = call(booked, "list", "-o", "json")
    (each,) = json.loads(listed.output)["bookings"]
    assert (each["from"], each["repeat"], each["gpu_model"]) == ("2026-12-01T09:00", "weekly", ["A100"])
    assert call(booked, "move", "exam", "--for", "2h").exit_code == 0
    shown = call(booked, "show", "exam")
    assert "Tue 2026-12-01 11:00, after 2h00m" in shown.output
    assert call(booked, "cancel", "exam").output == f"booking {each['id']} was cancelled\n"
    assert "exam" not in call(booked, "list").output
    assert "cancelled" in call(booked, "list", "--all").output


def test_the_command_says_what_is_missing_and_what_would_fit(booked: Rig) -> None:
    assert "Missing option '--from'" in call(booked, "--gpus", "4").output
    words = ("--gpus", "4", "--from", "tomorrow 9:00", "--for", "1h", "--queue", "default")
    assert call(booked, *words).exit_code == 0
    refused = call(booked, *words, "--name", "second")
    assert refused.exit_code == 73
    assert (
        "Tue 2026-11-24 13:00, or Wed 2026-11-25 08:00, or Wed 2026-11-25 10:00 on (Europe/Vienna)"
        in refused.output
    )


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_list_fits_a_terminal(booked: Rig, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    make(booked, name="a-long-name-of-an-exam", repeat="weekly", users=["ann", "bob"], gpu_model=["A100"])
    make(booked, name="night", **{"from": "23:00"})
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(output, "is_terminal", lambda _stream: True)
    lines = call(booked, "list").output.splitlines()
    assert len(lines) == 3, lines
    assert all(len(line) <= columns for line in lines), "\n".join(lines)
    assert "BEGINS" in lines[0]
    assert "Wed 2026-11-25 09:00" in lines[2]


def test_metrics_count_what_is_booked_and_used_now(booked: Rig) -> None:
    make(booked, gpus=2, **{"from": "now"})
    make(booked, name="later")
    booked.clock.time += 2
    lines = {
        'mesos_gpu_bookings{state="active"} 1', 'mesos_gpu_bookings{state="booked"} 1', "mesos_gpu_booked_gpus 2",
        "mesos_gpu_booked_ready_gpus 2", "mesos_gpu_booked_used_gpus 0", "mesos_gpu_bookings_short 0",
    }  # fmt: skip

    def shown() -> bool:
        booked.daemon.put(ev.Tick())
        booked.daemon.put(ev.Match())
        return lines <= set(booked.call("GET", "/metrics/prometheus").text.splitlines())

    wait_until("the booking is active", shown)
