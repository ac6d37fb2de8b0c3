"""Bodies of webhook requests: events in the envelope of Standard Webhooks; pure functions."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from mesos_gpu.model.tasks.event import LogEvent
from mesos_gpu.model.tenancy import EVERYBODY
from mesos_gpu.model.usage import MS

TEST = "test"  # event type of a test message


def hook_body(event: LogEvent, *, of_job: bool = False) -> bytes:
    """Return the body of a request for an event, without fields that do not apply.

    Args:
        event: Event to be sent.
        of_job: Whether a job named the receiver; then texts are left out, as they may mention other users' jobs.
    """
    data: dict[str, Any] = {
        "number": event.number, "job_id": event.job_id, "user": event.user, "queue": event.queue, "app": event.app,
        "node": event.node, "gpu": event.gpu, "state": event.state, "exit_code": event.exit_code,
        "deployment": event.deployment, "booking": event.booking, "apps": list(event.apps),
        "message": "" if of_job else event.message,
    }  # fmt: skip
    if event.notice is not None:
        notice = event.notice
        why = {} if of_job else {"why": notice.why}
        data["notice"] = {"reason": notice.reason.value, "until": notice.until, **why}
    if event.budget is not None:
        use = event.budget
        data["budget"] = {
            "queue": use.queue,
            "user": None if use.user == EVERYBODY else use.user,
            "percent": use.told_percent,
            "period_ends": use.ends_ms / MS,
        }
    return _envelope(
        event.kind.value, event.at, {key: each for key, each in data.items() if each not in ("", None, [])}
    )


def trial_body(hook: str, at: float) -> bytes:
    """Return the body of a test message."""
    return _envelope(TEST, at, {"message": f"a test of webhook {hook}"})


def _envelope(kind: str, at: float, data: dict[str, Any]) -> bytes:
    moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return msgspec.json.encode({"type": kind, "timestamp": moment, "data": data})
