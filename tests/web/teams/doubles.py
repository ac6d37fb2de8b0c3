"""What parts of the interface answer, put in place of it in a page: states that take days to come about."""

import json
from typing import Any, Final

from tests.web.browser import Page
from tests.web.teams.tenants import Tenants

#: Let a page get these answers; what it changes is kept in `window.sent`, and is answered with an empty object.
ANSWERED: Final = """(() => {
  const own = window.fetch, answers = %s, json = {headers: {"Content-Type": "application/json"}};
  window.sent = [];
  window.fetch = async (path, options = {}) => {
    const found = Object.keys(answers).find((each) => path.split("?")[0] === each);
    if (options.method && options.method !== "GET" && Object.keys(answers).some((each) => path.startsWith(each))) {
      window.sent.push([options.method, path, options.body ?? ""]);
      return new Response("{}", json);
    }
    return found && !options.method ? new Response(JSON.stringify(answers[found]), json) : own(path, options);
  };
})()"""
HOUR_S: Final = 3600.0
DAY_S: Final = 86400.0


def answer(page: Page, answers: dict[str, Any]) -> None:
    """Let the page have these answers by path from now on."""
    page.when()
    page.run(ANSWERED % json.dumps(answers))


def booking(midnight: float, name: str, queue: str, day: int, hour: int, **fields: Any) -> dict[str, Any]:
    """A booking of four hours on a day from `midnight` on."""
    begins = midnight + day * DAY_S + hour * HOUR_S
    return {
        "id": f"{name}-1a2b3c4d", "name": name, "queue": queue, "users": [], "gpus": 8, "nodes": 1, "gpu_model": [],
        "pool": "default", "from": "2026-12-01T09:00", "for_s": 14400, "zone": "UTC", "repeat": "none", "until": None,
        "overrun": False, "from_guarantee": False, "purge_after_s": 900, "charge": "none", "by": "tom",
        "made_at": midnight - DAY_S, "state": "booked", "begins": begins, "ends": begins + 4 * HOUR_S,
        "message": "its nodes are chosen shortly before it begins", "places": [], "used_at": None, "last": None,
        "ended_at": None,
        "times": [{"begins": begins, "ends": begins + 4 * HOUR_S}], **fields,
    }  # fmt: skip


def calendar(tenants: Tenants, midnight: float) -> dict[str, Any]:
    """A week with an exam, a class each day, one that was cancelled, and nights that belong to research."""
    document = tenants.call("GET", "/v1/queues").json()
    night = {
        "days": None,
        "from": "22:00",
        "to": "06:00",
        "zone": "UTC",
        "guarantee_gpus": 24,
        "weight": None,
    }
    document["queues"]["research"]["hours"] = [night]
    times = [
        {"begins": midnight + day * DAY_S + 14 * HOUR_S, "ends": midnight + day * DAY_S + 16 * HOUR_S}
        for day in range(5)
    ]
    bookings = [
        booking(midnight, "exam", "teaching/exam", 1, 9, state="preparing", message="room is made on b2.example",
                places=[{"node": "b2.example", "gpus": [f"GPU-b2-{i}" for i in range(8)]}]),
        booking(midnight, "class", "teaching", 0, 14, gpus=4, repeat="daily", for_s=7200, times=times),
        booking(midnight, "demo", "production", 3, 10, state="cancelled", message="cancelled by pat"),
    ]  # fmt: skip
    exam = {f"/v1/bookings/{each['id']}": each for each in bookings}
    listed = {"bookings": bookings, "since": midnight, "until": midnight + 7 * DAY_S}
    return {"/v1/bookings": listed, "/v1/queues": document, **exam}


def idlers(tenants: Tenants, now: float) -> dict[str, Any]:
    """Jobs of which one is warned, one is kept, one has its notice, and of one nothing is known."""
    listed = tenants.call("GET", "/v1/jobs?state=running").json()
    by_name = {job["name"]: job for job in listed["jobs"]}

    def idle(name: str, state: str, idle_s: float, **fields: Any) -> None:
        by_name[name]["idle"] = {
            "state": state, "since": now - idle_s, "idle_s": idle_s, "warn_after_s": 1800, "return_after_s": 3600,
            "policy": "pressure", "keep_until": None, "kept_by": None, **fields,
        }  # fmt: skip

    idle("dino", "warned", 2700)
    idle("segment", "suspect", 9000, keep_until=now + 2 * HOUR_S, kept_by="ann")
    idle("yolo", "suspect", 900, policy="report")
    idle("serve", "active", 0)
    for job in listed["jobs"]:
        job.setdefault("idle", None)
    return {"/v1/jobs": listed}
