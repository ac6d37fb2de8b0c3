"""A budget on the real Mesos that is empty before its period ends, and what is on record of those who paid from it."""

import math
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from mesos_gpu.cli.client import Client
from mesos_gpu.local.stack import NodeSpec, Stack
from tests.clients import client_of
from tests.conftest import wait_until
from tests.e2e.tenancy.story import apply, runs, submit

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

ZONE: Final = "Test/Soon"
MIDNIGHT_S: Final = 45  # from the begin of the budget
AMOUNT_GPU_S: Final = 20
DAY_S: Final = 86_400


@pytest.fixture
def zones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory in which the scheduler looks for time zones first."""
    monkeypatch.setenv("PYTHONTZPATH", str(tmp_path / "zones"))
    return tmp_path / "zones"


@pytest.fixture
def client(open_directory: Path, zones: Path) -> Iterator[Client]:
    assert zones.name, "before the scheduler starts"
    arguments = ["--share-linger", "1", "--report-interval", "2"]
    with (
        Stack(open_directory / "stack", [NodeSpec(4)], scheduler_arguments=arguments) as stack,
        client_of(stack, 4) as made,
    ):
        apply(made, {"lab": {}})
        yield made


def zone_with_midnight_at(zones: Path, midnight: int) -> None:
    """Time zones may differ from UTC by any number of seconds."""
    east_s = -midnight % DAY_S
    east_s -= DAY_S if east_s > DAY_S // 2 else 0
    sign, (minutes, seconds) = "-" if east_s < 0 else "", divmod(abs(east_s), 60)
    source = zones.parent / "soon"
    source.write_text(f"Zone {ZONE} {sign}{minutes // 60}:{minutes % 60:02}:{seconds:02} - SOON\n")
    subprocess.run(["/usr/sbin/zic", "-d", zones, source], check=True)


def budgets(client: Client) -> list[dict[str, Any]]:
    return list(client.call("GET", "/v1/budgets?past=true", dict[str, Any])["budgets"])


def paid_s(records: list[Mapping[str, Any]], since: float, until: float) -> float:
    """Return the GPU seconds by cost that records have of a time; the last of each are refunded. Times of day are
    right to a microsecond."""
    return math.fsum(
        each["cost"] * max(0.0, min(each["ends"] - each["refunded_s"], until) - max(each["begins"], since))
        for each in records
    )


@pytest.mark.long
def test_budget_is_empty_until_the_next_period_and_shares_pay_by_thousandths(
    client: Client, zones: Path
) -> None:
    quarter = submit(client, "quarter", "lab", "sleep 600", gpus=0.25)
    pair = submit(client, "pair", "lab", "sleep 600", gpus=2)
    runs(client, [quarter, pair])
    midnight = int(time.time()) + MIDNIGHT_S
    zone_with_midnight_at(zones, midnight)
    budget = {
        "gpu_hours": AMOUNT_GPU_S / 3600,
        "period": "day",
        "zone": ZONE,
        "warn_at": [50],
        "on_empty": "no_start",
    }
    apply(client, {"lab": {"budget": budget}})

    (first,) = budgets(client)
    assert (first["rate_gpus"], first["ends"]) == (2.25, midnight)
    assert first["empty_at"] - first["begins"] == pytest.approx(AMOUNT_GPU_S / 2.25, abs=0.01)
    wait_until("it is empty", lambda: budgets(client)[0]["empty"], 30)
    late = submit(client, "late", "lab", "sleep 600", gpus=1)
    words = wait_until("it waits", lambda: client.why(late)["summary"], 30)
    assert "the budget of queue lab is used up" in words
    assert "the next period opens" in words
    assert {client.job(job)["state"] for job in (quarter, pair)} == {"running"}, "nothing is ended for it"
    client.kill(pair)
    wait_until("it has ended", lambda: client.job(pair)["state"] == "killed", 30)
    assert time.time() < midnight, "all of that was in the first period"

    runs(client, [late], 90)
    (launch,) = client.tasks(late)
    assert launch["launched_at"] >= midnight
    events = client.call("GET", "/v1/events?after=0&timeout_s=0", dict[str, Any])["events"]
    told = [each["budget"] for each in events if each["budget"] is not None]
    assert [each["percent"] for each in told if each["period_ends"] == midnight] == [50, 100]

    first, second = budgets(client)
    assert (first["ends"], second["begins"]) == (midnight, midnight)
    records = client.call("GET", "/v1/usage/export", dict[str, Any])["records"]
    assert first["used_hours"] * 3600 == pytest.approx(paid_s(records, first["begins"], midnight), abs=1e-4)
    assert first["used_hours"] * 3600 > AMOUNT_GPU_S
    (part,) = [each for each in records if each["job_id"] == quarter]
    assert (part["gpus"], part["cost"]) == (0.25, 0.25)
    assert part["gpu_s"] == pytest.approx(0.25 * (part["ends"] - part["begins"]), abs=1e-4)
