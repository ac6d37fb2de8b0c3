"""Form of the tree of queues in files of the command line."""

from collections.abc import Mapping
from typing import Any, Final

from mesos_gpu.adapters.files.versioned import QUEUES
from mesos_gpu.cli.queues.hours import remarks
from mesos_gpu.cli.versioned.files import without
from mesos_gpu.cli.versioned.kept import Kept
from mesos_gpu.model.tenancy import (
    NO_QUEUES,
    Budget,
    Hours,
    Idle,
    JobClass,
    MinRuntime,
    Pool,
    QueueDocument,
    QueueSpec,
)
from mesos_gpu.model.words import counted
from mesos_gpu.wire.tenancy.document import encode

_DEFAULTS: Final = encode(NO_QUEUES)
_OF_ITEMS: Final = encode(
    QueueDocument(
        queues={
            "q": QueueSpec(budget=Budget(0), min_runtime_s=MinRuntime(), idle=Idle(), hours=(Hours("", ""),))
        },
        pools=(Pool("p"),),
        classes=(JobClass("c"),),
    )
)
_OBJECTS: Final = ("budget", "min_runtime_s", "idle")
_QUEUE: Final[Mapping[str, Any]] = {**_OF_ITEMS["queues"]["q"], **dict.fromkeys(_OBJECTS), "hours": []}
_IDLE: Final[Mapping[str, Any]] = _OF_ITEMS["queues"]["q"]["idle"]
_HOURS: Final[Mapping[str, Any]] = {**_OF_ITEMS["queues"]["q"]["hours"][0], "from": None, "to": None}
_RUNTIMES: Final[Mapping[str, Any]] = _OF_ITEMS["queues"]["q"]["min_runtime_s"]
_BUDGET: Final[Mapping[str, Any]] = {**_OF_ITEMS["queues"]["q"]["budget"], "gpu_hours": None}
_POOL: Final[Mapping[str, Any]] = _OF_ITEMS["pools"]["p"]
_CLASS: Final[Mapping[str, Any]] = _OF_ITEMS["classes"]["c"]
_KEPT_APART: Final = (
    "version",
    "at",
    "by",
    "comment",
    "reclaim_at",
    "queues",
    "pools",
    "classes",
    "users",
    "plan",
    "warnings",
    "in_force",
)


def _body(shown: Mapping[str, Any]) -> dict[str, Any]:
    body = {
        key: value for key, value in shown.items() if key not in _KEPT_APART and value != _DEFAULTS.get(key)
    }
    for key, defaults in (("pools", _POOL), ("classes", _CLASS)):
        if shown[key]:
            body[key] = {name: _with_idle(without(item, defaults)) for name, item in shown[key].items()}
    if shown["users"]:
        body["users"] = _by_user(shown["users"])
    body["queues"] = {path: queue_body(spec) for path, spec in shown["queues"].items()}
    return body


def queue_body(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a queue without fields that have their defaults."""
    body = _with_idle(without(spec, _QUEUE))
    if "budget" in body:
        body["budget"] = without(body["budget"], _BUDGET)
    if "min_runtime_s" in body:
        body["min_runtime_s"] = without(body["min_runtime_s"], _RUNTIMES)
    if "hours" in body:
        body["hours"] = [without(entry, _HOURS) for entry in body["hours"]]
    if "users" in body:
        body["users"] = _by_user(body["users"])
    if "user_budgets" in body:
        body["user_budgets"] = {
            name: without(budget, _BUDGET) for name, budget in body["user_budgets"].items()
        }
    return body


def _with_idle(body: dict[str, Any]) -> dict[str, Any]:
    """Return an object with its settings for idle GPUs reduced to values that differ from the defaults."""
    return {**body, "idle": without(body["idle"], _IDLE)} if "idle" in body else body


def _by_user(limits: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        name: {key: value for key, value in limit.items() if value is not None}
        for name, limit in limits.items()
    }


KIND: Final = Kept(
    QUEUES,
    "queue",
    "/v1/queues",
    "/v1/queue-versions",
    "all queue names are accepted, without guarantees",
    _body,
    lambda shown: counted(len(shown["queues"]), "queue"),
    remarks,
)
